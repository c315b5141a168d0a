//! Paths: what they stand for, and why they stand for nothing.

use crate::walk::support::{World, mount, vfs};
use quietline_vfs::abi::{S_IFDIR, S_IFREG};
use quietline_vfs::cred::Cred;
use quietline_vfs::{How, LastKind, Lookup, MountFlags, Reach, Resolve, Start};
use rustix::io::Errno;

const TREE: &[&str] = &[
    "a/",
    "a/b/",
    "a/b/c/",
    "a/f",
    "a/b/c/g",
    "l -> a",
    "lf -> a/f",
    "abs -> /a/b",
    "up -> a/b/../..",
    "dangling -> nowhere",
    "loop -> loop",
    "x -> y",
    "y -> x",
    "slash -> a/",
    "fslash -> a/f/",
    "dots -> ./a/./b/.",
    "deep -> l/b/c",
    "a/back -> ../l/f",
    "top -> /",
];

#[test]
fn names_dots_and_slashes() {
    let vfs = vfs();
    let w = World::with(&vfs, TREE);
    let ino = |path: &str| w.ino(path);
    let [root, a, b, c, f, g] =
        ["/", "a", "a/b", "a/b/c", "a/f", "a/b/c/g"].map(|path| ino(path).unwrap());
    for (path, expected) in [
        ("////", Ok(root)),
        (".", Ok(root)),
        ("..", Ok(root)),
        ("/../../a", Ok(a)),
        ("a/", Ok(a)),
        ("a//b///c//", Ok(c)),
        ("a/./b/../b/c/..", Ok(b)),
        ("a/b/c/g", Ok(g)),
        ("", Err(Errno::NOENT)),
        ("nowhere", Err(Errno::NOENT)),
        ("nowhere/", Err(Errno::NOENT)),
        ("nowhere/x", Err(Errno::NOENT)),
        ("a/f/", Err(Errno::NOTDIR)),
        ("a/f/.", Err(Errno::NOTDIR)),
        ("a/f/..", Err(Errno::NOTDIR)),
        ("a/f/x", Err(Errno::NOTDIR)),
        ("a/f", Ok(f)),
    ] {
        assert_eq!(ino(path), expected, "{path}");
    }
}

#[test]
fn links_are_followed() {
    let vfs = vfs();
    let w = World::with(&vfs, TREE);
    let [root, a, b, c, f] = ["/", "a", "a/b", "a/b/c", "a/f"].map(|path| w.ino(path).unwrap());
    for (path, expected) in [
        ("l", Ok(a)),
        ("l/", Ok(a)),
        ("l/b/c", Ok(c)),
        ("lf", Ok(f)),
        ("lf/", Err(Errno::NOTDIR)),
        ("lf/x", Err(Errno::NOTDIR)),
        ("abs/c", Ok(c)),
        ("up/a", Ok(a)),
        ("dangling", Err(Errno::NOENT)),
        ("dangling/", Err(Errno::NOENT)),
        ("loop", Err(Errno::LOOP)),
        ("x/z", Err(Errno::LOOP)),
        ("slash/b", Ok(b)),
        ("fslash", Err(Errno::NOTDIR)),
        ("dots/c", Ok(c)),
        ("deep", Ok(c)),
        ("a/back", Ok(f)),
        ("a/b/c/../../back", Ok(f)),
        ("top", Ok(root)),
        ("top/a/b/c/../../../top/l", Ok(a)),
    ] {
        assert_eq!(w.ino(path), expected, "{path}");
    }
    let link = w.ino_how("l", How::NOFOLLOW).unwrap();
    assert_ne!(link, a);
    assert_eq!(w.ino_how("l/", How::NOFOLLOW), Ok(a), "a slash has it followed");
    assert!(w.ino_how("loop", How::NOFOLLOW).is_ok());
    assert!(w.ino_how("dangling", How::NOFOLLOW).is_ok());
    assert_eq!(w.ino_how("dangling/", How::NOFOLLOW), Err(Errno::NOENT));
    let directory = How::of(Lookup::DIRECTORY);
    assert_eq!(w.ino_how("l", directory), Err(Errno::NOTDIR));
    assert_eq!(w.ino_how("l", How::of(Lookup::DIRECTORY | Lookup::FOLLOW)), Ok(a));
    assert_eq!(w.ino_how("a/f", directory), Err(Errno::NOTDIR));
}

#[test]
fn forty_links_and_not_one_more() {
    let vfs = vfs();
    let w = World::with(&vfs, &["l0/", "l0/end"]);
    for n in 1..=41 {
        w.make(&format!("l{n} -> l{}", n - 1));
    }
    assert!(w.ino("l40").is_ok());
    assert!(w.ino("l40/end").is_ok());
    assert_eq!(w.ino("l41"), Err(Errno::LOOP));
    assert_eq!(w.ino("l41/end"), Err(Errno::LOOP));
    assert!(w.ino("l20/../l20/end").is_ok());
    assert_eq!(w.ino("l20/../l21/end"), Err(Errno::LOOP));
}

#[test]
fn lengths() {
    let vfs = vfs();
    let w = World::with(&vfs, TREE);
    let (long, longer) = ("n".repeat(255), "n".repeat(256));
    assert_eq!(w.ino(&long), Err(Errno::NOENT));
    w.make(&long);
    assert!(w.ino(&long).is_ok());
    assert_eq!(w.ino(&longer), Err(Errno::NAMETOOLONG));
    assert_eq!(w.ino(&format!("{longer}/x")), Err(Errno::NAMETOOLONG));
    assert_eq!(w.ino(&format!("a/f/{longer}")), Err(Errno::NOTDIR));
    assert_eq!(w.ino(&format!("nowhere/{longer}")), Err(Errno::NOENT));
    assert_eq!(w.ino(&"/".repeat(4095)), w.ino("/"));
    assert_eq!(w.ino(&"/".repeat(4096)), Err(Errno::NAMETOOLONG));
    assert!(w.ino(&"./".repeat(2047)).is_ok());
}

#[test]
fn permission_on_the_way() {
    let vfs = vfs();
    let mut w = World::with(&vfs, &["open/"]);
    w.make_with("open/closed", S_IFDIR | 0o700, 7);
    w.make_with("open/closed/f", S_IFREG | 0o666, 7);
    w.make("open/in -> closed/f");
    w.make("open/closed/out -> ../..");
    w.cred = Cred::new(8, 8);
    assert!(w.ino("open/closed").is_ok());
    assert_eq!(w.ino("open/closed/f"), Err(Errno::ACCESS));
    assert_eq!(w.ino("open/closed/nowhere"), Err(Errno::ACCESS));
    assert_eq!(w.ino("open/closed/."), Err(Errno::ACCESS));
    assert_eq!(w.ino("open/closed/.."), Err(Errno::ACCESS));
    assert!(w.ino("open/closed/").is_ok());
    assert_eq!(w.ino("open/in"), Err(Errno::ACCESS));
    assert_eq!(w.ino(&format!("open/closed/{}", "n".repeat(256))), Err(Errno::ACCESS));
    w.cred = Cred::new(7, 8);
    assert!(w.ino("open/in").is_ok());
    assert!(w.ino("open/closed/out/open").is_ok());
}

#[test]
fn where_walks_begin() {
    let vfs = vfs();
    let w = World::with(&vfs, TREE);
    w.fs.set_pwd(w.path("a/b"));
    assert_eq!(w.ino("c"), w.ino("/a/b/c"));
    assert_eq!(w.ino("../f"), w.ino("/a/f"));
    let (dir, file, link) =
        (w.path("/a"), w.path("/a/f"), w.try_path("/l", How::NOFOLLOW).unwrap());
    fn from<'k>(
        w: &World<'k>,
        place: &quietline_vfs::Path<'k>,
        path: &str,
        how: How,
    ) -> Result<u64, Errno> {
        w.vfs.look(&Start::at(&w.fs, place.borrow()), path.as_bytes(), how, &w.cred, |found| {
            found.inode().ino()
        })
    }
    let at = |place, path, how| from(&w, place, path, how);
    assert_eq!(at(&dir, "b", How::FOLLOW), w.ino("/a/b"));
    assert_eq!(at(&dir, "/a/b/c", How::FOLLOW), w.ino("/a/b/c"));
    assert_eq!(at(&file, "x", How::FOLLOW), Err(Errno::NOTDIR));
    assert_eq!(at(&file, ".", How::FOLLOW), Err(Errno::NOTDIR));
    assert_eq!(at(&file, "/", How::FOLLOW), w.ino("/"));
    assert_eq!(at(&file, "", How::FOLLOW), Err(Errno::NOENT));
    let empty = How::of(Lookup::EMPTY | Lookup::FOLLOW);
    assert_eq!(at(&file, "", empty), w.ino("/a/f"));
    assert_eq!(
        at(&link, "", empty),
        w.ino_how("/l", How::NOFOLLOW),
        "what is open is not followed"
    );
    assert_eq!(w.ino_how("", empty), w.ino("/a/b"));
}

#[test]
fn a_root_of_ones_own() {
    let vfs = vfs();
    let w = World::with(&vfs, TREE);
    let b = w.ino("a/b");
    w.fs.set_root(w.path("a/b"));
    assert_eq!((w.ino("/"), w.ino("/.."), w.ino("/../..")), (b, b, b));
    assert_eq!(w.ino("/a"), Err(Errno::NOENT));
    // The working directory is above it still.
    assert!(w.ino("a/f").is_ok());
    assert_eq!(w.ino("a/abs"), Err(Errno::NOENT));
    assert_eq!(w.ino("abs"), Err(Errno::NOENT), "links begin at the root as well");
    assert_eq!(w.getcwd().unwrap(), "(unreachable)/");
    w.fs.set_pwd(w.path("/c"));
    assert_eq!(w.ino("../.."), b);
    assert_eq!(w.getcwd().unwrap(), "/c");
}

#[test]
fn parents() {
    let vfs = vfs();
    let w = World::with(&vfs, TREE);
    let parent = |path: &str, how| {
        let (place, last) = w.vfs.parent(&w.start(), path.as_bytes(), how, &w.cred)?;
        let name = String::from_utf8(last.bytes().to_vec()).unwrap();
        Ok((place.dentry().inode().unwrap().ino(), name, last.kind(), last.has_slash()))
    };
    let [root, a, b] = ["/", "a", "a/b"].map(|path| w.ino(path).unwrap());
    let named = |ino, name: &str, slash| Ok((ino, name.to_owned(), LastKind::Name, slash));
    let special = |ino, kind, slash| Ok((ino, String::new(), kind, slash));
    for (path, expected) in [
        ("new", named(root, "new", false)),
        ("a/new", named(a, "new", false)),
        ("a/new///", named(a, "new", true)),
        ("l/new", named(a, "new", false)),
        ("a/b/..", special(b, LastKind::DotDot, false)),
        ("a/b/.", special(b, LastKind::Dot, false)),
        ("a/./", special(a, LastKind::Dot, true)),
        ("/", special(root, LastKind::Root, false)),
        ("", Err(Errno::NOENT)),
        ("nowhere/new", Err(Errno::NOENT)),
        ("a/f/new", Err(Errno::NOTDIR)),
        ("loop/new", Err(Errno::LOOP)),
        ("dangling", named(root, "dangling", false)),
    ] {
        assert_eq!(parent(path, How::NOFOLLOW), expected, "{path}");
    }
    for (path, expected) in [
        ("dangling", named(root, "nowhere", false)),
        ("a/back", named(a, "f", false)),
        ("l", named(root, "a", false)),
        ("slash", named(root, "a", true)),
        ("top", special(root, LastKind::Root, false)),
        ("loop", Err(Errno::LOOP)),
        ("dangling/", named(root, "dangling", true)),
        ("dots", special(b, LastKind::Dot, false)),
    ] {
        assert_eq!(parent(path, How::FOLLOW), expected, "{path}, followed");
    }
    // Who looks it up says that it is too long: not before it is known that the directory is still there.
    let long = "n".repeat(256);
    assert_eq!(parent(&long, How::NOFOLLOW), named(root, &long, false));
    assert_eq!(parent(&format!("{long}/a"), How::NOFOLLOW), Err(Errno::NAMETOOLONG));
}

/// The rules of `openat2`.
#[test]
fn restricted_walks() {
    let vfs = vfs();
    let w = World::with(&vfs, TREE);
    w.make("mnt/");
    w.ns.attach(mount(&vfs, 2), w.path("mnt")).unwrap();
    w.make("mnt/inside/");
    w.make("mnt/home -> /a");
    w.make("a/out -> ../a/f");
    w.make("a/in -> b/c");
    w.make("a/rooted -> /b");
    w.make("a/above -> ../../../b");
    let dir = w.path("a");
    let at = |resolve: Resolve, path: &str| {
        let how = How { lookup: Lookup::FOLLOW, resolve };
        let start = Start::at(&w.fs, dir.borrow());
        let ino = w.vfs.look(&start, path.as_bytes(), how, &w.cred, |found| found.inode().ino());
        let held = w
            .vfs
            .path(&start, path.as_bytes(), how, &w.cred)
            .map(|p| p.dentry().inode().unwrap().ino());
        let referenced = w.vfs.path_by_reference(&start, path.as_bytes(), how, &w.cred);
        assert_eq!(ino, held, "{path}");
        if !resolve.contains(Resolve::CACHED) {
            assert_eq!(ino, referenced.map(|p| p.dentry().inode().unwrap().ino()), "{path}");
        }
        ino
    };
    let [root, a, b, c, f, home, inside] =
        ["/", "/a", "/a/b", "/a/b/c", "/a/f", "/mnt/home", "/mnt/inside"]
            .map(|path| w.ino(path).unwrap());
    let _ = (root, home);
    for (path, expected) in [
        ("b/../b", Ok(b)),
        (".", Ok(a)),
        ("..", Err(Errno::XDEV)),
        ("b/../../a", Err(Errno::XDEV)),
        ("/a", Err(Errno::XDEV)),
        ("/", Err(Errno::XDEV)),
        ("in", Ok(c)),
        ("out", Err(Errno::XDEV)),
        ("rooted", Err(Errno::XDEV)),
        ("nowhere", Err(Errno::NOENT)),
    ] {
        assert_eq!(at(Resolve::BENEATH, path), expected, "beneath: {path}");
    }
    for (path, expected) in [
        ("..", Ok(a)),
        ("../..", Ok(a)),
        ("/", Ok(a)),
        ("/b", Ok(b)),
        ("rooted", Ok(b)),
        ("above", Ok(b)),
        ("out", Err(Errno::NOENT)),
        ("in/../..", Ok(a)),
    ] {
        assert_eq!(at(Resolve::IN_ROOT, path), expected, "in root: {path}");
    }
    for (path, expected) in [
        ("../mnt", Err(Errno::XDEV)),
        ("../mnt/inside", Err(Errno::XDEV)),
        ("../mnt/..", Err(Errno::XDEV)),
        ("../lf", Ok(f)),
        ("/a/b", Ok(b)),
    ] {
        assert_eq!(at(Resolve::NO_XDEV, path), expected, "no xdev: {path}");
    }
    assert_eq!(at(Resolve::empty(), "../mnt/inside"), Ok(inside));
    for (path, expected) in [("in", Err(Errno::LOOP)), ("b/c", Ok(c)), ("../l/b", Err(Errno::LOOP))]
    {
        assert_eq!(at(Resolve::NO_SYMLINKS, path), expected, "no symlinks: {path}");
    }
    assert_eq!(at(Resolve::NO_MAGICLINKS, "in"), Ok(c));
    assert_eq!(at(Resolve::CACHED, "../mnt/inside"), Ok(inside));
    // A link in the last place that is not to be followed is not walked through.
    let how = How { lookup: Lookup::empty(), resolve: Resolve::NO_SYMLINKS };
    assert!(w.vfs.path(&Start::at(&w.fs, dir.borrow()), b"in", how, &w.cred).is_ok());
    // From inside the other mount.
    let inside = w.path("/mnt/inside");
    let from = |path: &str, resolve| {
        let how = How { lookup: Lookup::FOLLOW, resolve };
        w.vfs.path(&Start::at(&w.fs, inside.borrow()), path.as_bytes(), how, &w.cred).map(|_| ())
    };
    assert_eq!(from("../..", Resolve::NO_XDEV), Err(Errno::XDEV));
    assert_eq!(from("..", Resolve::NO_XDEV), Ok(()));
    assert_eq!(from("../home", Resolve::NO_XDEV), Err(Errno::XDEV));
    assert_eq!(from("/a", Resolve::NO_XDEV), Ok(()), "where a path begins is not a step");
}

#[test]
fn links_forbidden_by_the_mount() {
    let vfs = vfs();
    let w = World::with(&vfs, TREE);
    w.ns.remount(&w.ns.root(), MountFlags::NOSYMFOLLOW).unwrap();
    assert_eq!(w.ino("l"), Err(Errno::LOOP));
    assert_eq!(w.ino("l/f"), Err(Errno::LOOP));
    assert!(w.ino_how("l", How::NOFOLLOW).is_ok());
}

#[test]
fn paths_of_places() {
    let vfs = vfs();
    let w = World::with(&vfs, TREE);
    w.make("mnt/");
    let outside = mount(&vfs, 3);
    w.ns.attach(mount(&vfs, 2), w.path("mnt")).unwrap();
    w.make("mnt/sub/");
    let shown = |path: &str| w.shown(&w.path(path)).0;
    assert_eq!(shown("/"), "/");
    assert_eq!(shown("a/b/c/g"), "/a/b/c/g");
    assert_eq!(shown("mnt/sub"), "/mnt/sub");
    assert_eq!(shown("mnt"), "/mnt");
    let long = "n".repeat(200);
    w.make(&format!("a/{long}"));
    assert_eq!(shown(&format!("a/{long}")), format!("/a/{long}"));
    let gone = w.path("a/b/c/g");
    w.unlink("a/b/c/g");
    assert_eq!(w.shown(&gone), ("/a/b/c/g (deleted)".into(), Reach::Root));
    assert_eq!(w.shown(&quietline_vfs::Path::root_of(outside)), ("/".into(), Reach::Detached));
    w.fs.set_pwd(w.path("a/b/c"));
    assert_eq!(w.getcwd().unwrap(), "/a/b/c");
    w.unlink("/a/b/c");
    assert_eq!(w.getcwd(), Err(Errno::NOENT));
    assert_eq!(w.ino("x"), Err(Errno::NOENT));
    assert_eq!(w.ino(".."), w.ino("/a/b"), "its parent is what it was");
}

#[test]
fn a_deep_tree() {
    let vfs = vfs();
    let w = World::new(&vfs);
    let mut at = w.path("/").dentry().clone();
    const DEPTH: usize = 1300;
    for _ in 0..DEPTH {
        at = crate::walk::support::mkdir(&at, "d");
    }
    let path = "d/".repeat(DEPTH);
    assert_eq!(w.ino(&path), Ok(at.inode().unwrap().ino()));
    w.fs.set_pwd(w.path(&path));
    assert_eq!(w.getcwd().unwrap(), format!("/{}", path.trim_end_matches('/')));
    assert_eq!(w.ino(&"../".repeat(DEPTH)), w.ino("/"));
    assert_eq!(w.ino(&"../".repeat(DEPTH - 1)), w.ino("/d"));
    for _ in 0..100 {
        at = crate::walk::support::mkdir(&at, &"n".repeat(100));
        w.fs.set_pwd(quietline_vfs::Path::new(w.ns.root().mount().clone(), at.clone()));
    }
    assert_eq!(w.getcwd(), Err(Errno::NAMETOOLONG));
}

#[test]
fn the_umask_and_copies() {
    let vfs = vfs();
    let w = World::with(&vfs, TREE);
    assert_eq!((w.fs.umask(), w.fs.set_umask(0o1077), w.fs.umask()), (0o022, 0o022, 0o077));
    w.fs.set_pwd(w.path("a"));
    let child = w.fs.duplicate().unwrap();
    w.fs.set_pwd(w.path("b"));
    assert_eq!(child.umask(), 0o077);
    assert!(child.pwd_path().same(&w.path("/a")));
}
