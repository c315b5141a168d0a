//! Mounting, unmounting, and the trees that processes live in.

use crate::walk::support::{World, filesystem, mount, vfs};
use quietline_vfs::{How, MountFlags, Path, Reach, UmountFlags};
use rustix::io::Errno;

const NONE: UmountFlags = UmountFlags::empty();

fn umount(w: &World<'_>, path: &str, flags: UmountFlags) -> Result<(), Errno> {
    // With one reference, as a system call takes it.
    let place = w.vfs.path(&w.start(), path.as_bytes(), How::FOLLOW, &w.cred)?;
    w.ns.umount(place, flags, &w.fs)
}

/// Dentries and inodes of all but the first filesystem are gone.
fn left(w: &World<'_>) -> (i64, i64) {
    (w.vfs.dentry_state().nr_dentry, w.vfs.nr_inodes())
}

#[test]
fn a_mount_hides_and_unmounting_shows() {
    let vfs = vfs();
    let w = World::with(&vfs, &["m/", "m/below", "f"]);
    let (before, below) = (left(&w), w.ino("m/below").unwrap());
    let hidden = w.path("m");
    w.ns.attach(mount(&vfs, 2), w.path("m")).unwrap();
    assert_eq!(w.ino("m/below"), Err(Errno::NOENT));
    w.make("m/new");
    assert_eq!(w.ino("m/../m/new"), w.ino("m/new"));
    assert_eq!(w.ino("m/.."), w.ino("/"));
    assert_eq!(w.path("m").dentry().super_block().s_dev(), 2);
    assert_eq!(hidden.dentry().super_block().s_dev(), 1);
    assert_eq!(w.ns.mounts().unwrap().len(), 2);
    umount(&w, "m", NONE).unwrap();
    assert_eq!(w.ino("m/below"), Ok(below));
    assert_eq!(w.ns.mounts().unwrap().len(), 1);
    assert_eq!(left(&w), before, "the filesystem is gone");
    assert_eq!(umount(&w, "m", NONE), Err(Errno::INVAL));
    assert_eq!(umount(&w, "f", NONE), Err(Errno::INVAL));
}

#[test]
fn what_may_be_mounted_where() {
    let vfs = vfs();
    let w = World::with(&vfs, &["m/", "f", "f2", "d/", "d/sub/", "l -> m"]);
    assert_eq!(w.ns.attach(mount(&vfs, 2), w.path("f")), Err(Errno::NOTDIR));
    let sb = filesystem(&vfs, 3);
    let again = || vfs.new_mount(sb.clone(), MountFlags::empty()).unwrap();
    w.ns.attach(again(), w.path("m")).unwrap();
    assert_eq!(w.ns.attach(again(), w.path("m")), Err(Errno::BUSY));
    // Another filesystem on top of it, and one on top of that.
    w.ns.attach(mount(&vfs, 4), w.path("m")).unwrap();
    w.ns.attach(again(), w.path("m")).unwrap();
    assert_eq!(w.path("m").dentry().super_block().s_dev(), 3);
    assert_eq!(w.ino("m/.."), w.ino("/"));
    assert_eq!(w.shown(&w.path("m")), ("/m".into(), Reach::Root));
    umount(&w, "m", NONE).unwrap();
    assert_eq!(w.path("l").dentry().super_block().s_dev(), 4);
    umount(&w, "l", NONE).unwrap();
    umount(&w, "m", NONE).unwrap();
    assert_eq!(w.path("m").dentry().super_block().s_dev(), 1);
    // Files on files.
    w.ns.bind(&w.path("f"), w.path("f2"), false).unwrap();
    assert_eq!(w.ino("f2"), w.ino("f"));
    assert_eq!(w.ns.bind(&w.path("f"), w.path("d"), false), Err(Errno::NOTDIR));
    umount(&w, "f2", NONE).unwrap();
    // What was removed.
    let removed = w.path("d/sub");
    w.unlink("d/sub");
    assert_eq!(w.ns.attach(mount(&vfs, 5), removed), Err(Errno::NOENT));
}

#[test]
fn busy_lazy_and_expiring() {
    let vfs = vfs();
    let w = World::with(&vfs, &["m/"]);
    let before = left(&w);
    w.ns.attach(mount(&vfs, 2), w.path("m")).unwrap();
    w.make("m/sub/");
    w.make("m/sub/f");
    let held = w.path("m/sub/f");
    assert_eq!(umount(&w, "m", NONE), Err(Errno::BUSY));
    assert!(w.ino("m/sub/f").is_ok(), "it is mounted still");
    assert_eq!(umount(&w, "m", UmountFlags::EXPIRE), Err(Errno::BUSY));
    drop(held);
    w.ns.attach(mount(&vfs, 3), w.path("m/sub")).unwrap();
    assert_eq!(umount(&w, "m", NONE), Err(Errno::BUSY), "something is mounted on it");
    umount(&w, "m/sub", NONE).unwrap();
    // Twice, with nobody using it in between.
    assert_eq!(umount(&w, "m", UmountFlags::EXPIRE | UmountFlags::DETACH), Err(Errno::INVAL));
    assert_eq!(umount(&w, "m", UmountFlags::EXPIRE), Err(Errno::AGAIN));
    w.fs.set_pwd(w.path("m/sub"));
    w.fs.set_pwd(w.path("/"));
    assert_eq!(umount(&w, "m", UmountFlags::EXPIRE), Err(Errno::AGAIN), "it was used");
    umount(&w, "m", UmountFlags::EXPIRE).unwrap();
    assert_eq!(left(&w), before);

    // Lazily: out of the tree at once, gone with its last user.
    w.ns.attach(mount(&vfs, 2), w.path("m")).unwrap();
    w.make("m/sub/");
    w.make("m/sub/f");
    w.ns.attach(mount(&vfs, 3), w.path("m/sub")).unwrap();
    let held = w.path("m");
    w.fs.set_pwd(w.path("m"));
    umount(&w, "/m", UmountFlags::DETACH).unwrap();
    assert_eq!(w.ino("/m/sub"), Err(Errno::NOENT));
    assert!(w.ino("sub/f").is_ok(), "who is inside stays there, and what was on it is off");
    assert_eq!(w.ino(".."), w.ino("."), "nothing is above");
    assert_eq!(w.getcwd().unwrap(), "(unreachable)/");
    assert_eq!(w.shown(&held).1, Reach::Detached);
    w.fs.set_pwd(w.path("/"));
    assert_ne!(left(&w), before);
    drop(held);
    assert_eq!(left(&w), before);
}

#[test]
fn the_root_is_not_unmounted() {
    let vfs = vfs();
    let w = World::with(&vfs, &["m/"]);
    assert_eq!(umount(&w, "/", UmountFlags::EXPIRE), Err(Errno::INVAL));
    umount(&w, "/", NONE).unwrap();
    assert!(
        w.path("/").mount().flags().contains(MountFlags::RDONLY),
        "it is made read-only instead"
    );
    assert!(w.ino("m").is_ok());
}

#[test]
fn parts_elsewhere() {
    let vfs = vfs();
    let w = World::with(&vfs, &["a/", "a/b/", "a/b/f", "m/", "o/"]);
    w.ns.bind(&w.path("a/b"), w.path("m"), false).unwrap();
    assert_eq!(w.ino("m/f"), w.ino("a/b/f"));
    assert_eq!(w.ino("m/.."), w.ino("/"));
    assert_eq!(w.shown(&w.path("m/f")), ("/m/f".into(), Reach::Root));
    w.make("m/new/");
    assert_eq!(w.ino("m/new"), w.ino("a/b/new"));
    // What is moved out of the part is below nothing that its mount knows.
    w.fs.set_pwd(w.path("m/new"));
    assert_eq!(w.ino("../.."), w.ino("/"));
    w.rename("/a/b/new", "/o/new");
    assert_eq!(w.ino(".."), Err(Errno::NOENT));
    assert_eq!(w.shown(&w.fs.pwd_path()).1, Reach::Escaped);
    assert_eq!(w.getcwd().unwrap(), "(unreachable)/o/new");
    w.fs.set_pwd(w.path("/"));
    // What is mounted below comes along if that is asked for.
    w.ns.attach(mount(&vfs, 2), w.path("a/b")).unwrap();
    w.make("a/b/x");
    w.ns.bind(&w.path("a"), w.path("o"), false).unwrap();
    assert_eq!(w.ino("o/b/x"), Err(Errno::NOENT));
    umount(&w, "o", NONE).unwrap();
    w.ns.bind(&w.path("a"), w.path("o"), true).unwrap();
    assert_eq!(w.ino("o/b/x"), w.ino("a/b/x"));
    assert_eq!(umount(&w, "o", NONE), Err(Errno::BUSY));
    umount(&w, "o", UmountFlags::DETACH).unwrap();
    assert!(w.ino("a/b/x").is_ok());
    umount(&w, "a/b", NONE).unwrap();
    umount(&w, "m", NONE).unwrap();
}

#[test]
fn moves() {
    let vfs = vfs();
    let w = World::with(&vfs, &["m/", "n/", "f"]);
    w.ns.attach(mount(&vfs, 2), w.path("m")).unwrap();
    w.make("m/sub/");
    w.make("m/sub/f");
    let held = w.path("m/sub");
    assert_eq!(w.ns.move_mount(&w.path("m"), w.path("m/sub")), Err(Errno::LOOP));
    assert_eq!(w.ns.move_mount(&w.path("m/sub"), w.path("n")), Err(Errno::INVAL));
    assert_eq!(w.ns.move_mount(&w.path("/"), w.path("n")), Err(Errno::INVAL));
    assert_eq!(w.ns.move_mount(&w.path("m"), w.path("f")), Err(Errno::INVAL));
    w.ns.move_mount(&w.path("m"), w.path("n")).unwrap();
    assert_eq!(w.ino("m/sub"), Err(Errno::NOENT));
    assert!(w.ino("n/sub/f").is_ok());
    assert_eq!(w.shown(&held), ("/n/sub".into(), Reach::Root));
    w.ns.move_mount(&w.path("n"), w.path("m")).unwrap();
    assert!(w.ino("m/sub/f").is_ok());
    drop(held);
    umount(&w, "m", NONE).unwrap();
}

#[test]
fn read_only() {
    let vfs = vfs();
    let w = World::with(&vfs, &["m/"]);
    w.ns.attach(mount(&vfs, 2), w.path("m")).unwrap();
    let place = w.path("m");
    let writing = place.mount().want_write().unwrap();
    let flags = MountFlags::RDONLY | MountFlags::NOEXEC;
    assert_eq!(w.ns.remount(&place, flags), Err(Errno::BUSY));
    assert_eq!(place.mount().flags(), MountFlags::empty());
    drop(writing);
    w.ns.remount(&place, flags).unwrap();
    assert_eq!(place.mount().flags(), flags);
    assert_eq!(place.mount().want_write().err(), Some(Errno::ROFS));
    // Another mount of the same filesystem may write.
    w.make("n/");
    w.ns.bind(&place, w.path("n"), false).unwrap();
    assert_eq!(w.path("n").mount().flags(), flags, "copied");
    w.ns.remount(&w.path("n"), MountFlags::NOSUID).unwrap();
    assert!(w.path("n").mount().want_write().is_ok());
    assert_eq!(place.mount().want_write().err(), Some(Errno::ROFS));
    assert_eq!(w.ns.remount(&w.path("/m/../n/.."), MountFlags::empty()), Ok(()));
    let sub = crate::walk::support::mkdir(place.dentry(), "sub");
    assert_eq!(
        w.ns.remount(&Path::new(place.mount().clone(), sub), MountFlags::empty()),
        Err(Errno::INVAL)
    );
}

#[test]
fn a_namespace_of_ones_own() {
    let vfs = vfs();
    let w = World::with(&vfs, &["m/", "n/"]);
    w.ns.attach(mount(&vfs, 2), w.path("m")).unwrap();
    w.make("m/f");
    w.make("m/sub/");
    w.ns.attach(mount(&vfs, 3), w.path("m/sub")).unwrap();
    w.make("m/sub/g");
    let all = left(&w);
    let child = w.fs.duplicate().unwrap();
    child.set_pwd(w.path("m/sub"));
    let ns = w.ns.duplicate(&child).unwrap();
    assert_ne!(ns.id(), w.ns.id());
    assert_eq!(ns.mounts().unwrap().len(), 3);
    let c = World { vfs: &vfs, fs: child, ns, cred: crate::walk::support::root() };
    assert_eq!((c.ino("/m/f"), c.ino("g")), (w.ino("/m/f"), w.ino("/m/sub/g")));
    assert!(!c.path("/m").mount().same(w.path("/m").mount()));
    assert_eq!(c.getcwd().unwrap(), "/m/sub");
    // What one mounts, the other does not see.
    c.ns.attach(mount(&vfs, 4), c.path("/n")).unwrap();
    c.make("/n/mine");
    assert_eq!(w.ino("/n/mine"), Err(Errno::NOENT));
    assert_eq!(w.ns.umount(c.path("/n"), NONE, &w.fs), Err(Errno::INVAL), "not of this namespace");
    assert_eq!(w.ns.attach(mount(&vfs, 5), c.path("/n")), Err(Errno::INVAL));
    assert_eq!(umount(&w, "/m/sub", NONE), Ok(()));
    assert!(c.ino("/m/sub/g").is_ok());
    assert_eq!(w.ino("/m/sub/g"), Err(Errno::NOENT));
    drop(c);
    assert!(w.ino("/m/f").is_ok());
    // The third filesystem, with its root and its file, was only in the other namespace by then.
    assert_eq!(left(&w), (all.0 - 2, all.1 - 2));
}

/// What is mounted in another namespace only does not keep a name.
#[test]
fn a_mountpoint_that_is_removed() {
    let vfs = vfs();
    let w = World::with(&vfs, &["d/", "d/m/"]);
    let child = w.fs.duplicate().unwrap();
    let ns = w.ns.duplicate(&child).unwrap();
    let c = World { vfs: &vfs, fs: child, ns, cred: crate::walk::support::root() };
    let point = w.path("d/m");
    for dev in [2, 3] {
        c.ns.attach(mount(&vfs, dev), c.path("d/m")).unwrap();
    }
    w.unlink("d/m");
    let events = vfs.mount_events().count();
    vfs.detach_mounts(point.dentry());
    assert_eq!(vfs.mount_events().count(), events + 1, "told to those who poll the mounts");
    assert_eq!(c.ns.mounts().unwrap().len(), 1);
    drop(point);
    assert_eq!(left(&w), (2, 2), "nothing keeps it any more");
}

#[test]
fn another_root() {
    let vfs = vfs();
    let w = World::with(&vfs, &["m/"]);
    let bare = w.path("/");
    // Over the root of the tree, as a system boots.
    w.ns.attach(mount(&vfs, 2), w.path("/")).unwrap();
    assert_eq!(w.path("/").dentry().super_block().s_dev(), 1, "who is beneath stays there");
    assert_eq!(w.path("/..").dentry().super_block().s_dev(), 2, "but .. comes out on top");
    let real = w.path("/..");
    w.fs.set_root(real.clone());
    w.fs.set_pwd(real.clone());
    for what in ["new/", "other/", "f"] {
        w.make(what);
    }
    assert_eq!(w.ns.pivot_root(&w.path("new"), w.path("new"), &w.fs).err(), Some(Errno::BUSY));
    w.ns.attach(mount(&vfs, 3), w.path("new")).unwrap();
    w.make("new/old/");
    w.make("new/sub/");
    w.make("new/home");
    assert_eq!(w.ns.pivot_root(&w.path("new"), w.path("other"), &w.fs).err(), Some(Errno::BUSY));
    assert_eq!(
        w.ns.pivot_root(&w.path("new/sub"), w.path("new/old"), &w.fs).err(),
        Some(Errno::INVAL)
    );
    let new = w.path("new");
    let was = w.ns.pivot_root(&new, w.path("new/old"), &w.fs).unwrap();
    assert!(was.same(&real));
    w.fs.replace(&was, &new);
    assert_eq!(w.path("/").dentry().super_block().s_dev(), 3);
    assert!(w.ino("/home").is_ok());
    assert!(w.ino("/old/f").is_ok());
    assert_eq!(w.ino("/old/.."), w.ino("/"));
    assert_eq!(w.shown(&w.path("/old/f")), ("/old/f".into(), Reach::Root));
    assert_eq!(w.getcwd().unwrap(), "/");
    drop((was, real, new));
    umount(&w, "/old", NONE).unwrap();
    assert_eq!(w.ino("/old/f"), Err(Errno::NOENT));
    // The mount at the very bottom cannot be pivoted.
    w.fs.set_root(bare.clone());
    w.fs.set_pwd(bare);
    assert_eq!(w.ns.pivot_root(&w.path("/.."), w.path("/../old"), &w.fs).err(), Some(Errno::INVAL));
}

#[test]
fn everything_goes_with_the_namespace() {
    let vfs = vfs();
    let w = World::with(&vfs, &["m/"]);
    for _ in 0..20 {
        w.ns.attach(mount(&vfs, 2), w.path("m")).unwrap();
    }
    drop(w);
    assert_eq!((vfs.dentry_state().nr_dentry, vfs.nr_inodes()), (0, 0));
}

/// What is mounted on a dentry that is invalidated, or below it, goes with it.
#[test]
fn invalidation_takes_mounts_off() {
    let vfs = vfs();
    let w = World::with(&vfs, &["a/", "a/b/", "a/b/c/", "a/f", "other/"]);
    for (dev, at) in [(2, "a/b"), (3, "a/f"), (4, "other"), (5, "a/b"), (6, "a")] {
        if at == "a/f" {
            // A file goes on a file.
            let file = w.path("other");
            assert_eq!(w.ns.attach(mount(&vfs, dev), w.path(at)), Err(Errno::NOTDIR));
            drop(file);
            continue;
        }
        w.ns.attach(mount(&vfs, dev), w.path(at)).unwrap();
    }
    assert_eq!(w.ns.mounts().unwrap().len(), 5);
    let root = w.ns.root();
    let a = root.dentry().lookup(&vfs.name(b"a").unwrap()).unwrap();
    a.invalidate();
    assert_eq!(w.ino("a"), Err(Errno::NOENT));
    assert_eq!(w.ns.mounts().unwrap().len(), 2, "the root, and the other");
    drop((a, root));
    // The root's, `other`, and what is mounted there.
    assert_eq!(vfs.dentry_state().nr_dentry, 3);
}

/// A mount of another kernel, which may go first, is refused.
#[test]
fn kernels_do_not_share_mounts() {
    let (vfs, other) = (vfs(), crate::walk::support::vfs());
    let (w, o) = (World::with(&vfs, &["a/"]), World::with(&other, &["a/"]));
    assert_eq!(w.ns.attach(mount(&other, 2), w.path("a")), Err(Errno::INVAL));
    assert_eq!(w.ns.attach(mount(&vfs, 2), o.path("a")), Err(Errno::INVAL));
    assert_eq!(w.ns.bind(&o.path("a"), w.path("a"), false), Err(Errno::INVAL));
    assert_eq!(w.ns.move_mount(&o.ns.root(), w.path("a")), Err(Errno::INVAL));
    assert!(vfs.new_namespace(mount(&other, 3)).is_err());
    let (mixed, root) = (w.ns.root().mount().clone(), o.path("a").dentry().clone());
    assert_eq!(w.ns.attach(mount(&vfs, 2), Path::new(mixed, root)), Err(Errno::INVAL));
    assert_eq!((w.ns.mounts().unwrap().len(), o.ns.mounts().unwrap().len()), (1, 1));
}
