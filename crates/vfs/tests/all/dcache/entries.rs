//! Dentries: names, references, changes, what is kept and what is given back.

use crate::dcache::support::*;
use quietline_vfs::{DentryFlags, Dirs, PathBuffer, Step};
use rustix::io::Errno;

#[test]
fn a_name_is_found_until_it_is_taken_out() {
    let vfs = vfs();
    let sb = filesystem(&vfs);
    let root = sb.root();
    let file = make(&root, "file");
    assert!(file.is_hashed() && !file.is_negative() && file.flags().contains(DentryFlags::PINNED));
    assert_eq!(file.count(), 2, "the directory's and ours");
    let found = root.lookup(&name(&vfs, "file")).unwrap();
    assert!(found.same(&file));
    assert!(
        root.lookup(&name(&vfs, "fil")).is_none() && root.lookup(&name(&vfs, "file\0")).is_none()
    );
    assert!(found.parent().same(&root));
    assert_eq!(try_make(&root, "file", false).unwrap_err(), Errno::EXIST);
    drop(found);
    assert!(unlink(&root, "file"));
    assert!(!unlink(&root, "file"));
    assert!(root.lookup(&name(&vfs, "file")).is_none());
    assert!(!file.is_hashed());
    assert_eq!(file.count(), 1, "who has it open keeps it");
    assert!(file.parent().same(&root), "it knows where it was");
    let ino = file.inode().unwrap().ino();
    assert!(ino > 0);
    drop(file);
    assert_only_roots(&vfs, 1);
}

#[test]
fn names_of_all_lengths() {
    let vfs = vfs();
    let sb = filesystem(&vfs);
    let root = sb.root();
    let long = "0123456789".repeat(26);
    for len in 1..=255 {
        make(&root, &long[..len]);
    }
    assert_eq!(vfs.name(&long.as_bytes()[..256]).unwrap_err(), Errno::NAMETOOLONG);
    let section = vfs.read();
    for len in 1..=255 {
        let file = root.lookup(&name(&vfs, &long[..len])).unwrap();
        assert_eq!(name_of(&file, &section), long[..len]);
        // The same length, the last byte another.
        let other = format!("{}x", &long[..len - 1]);
        assert!(root.lookup(&name(&vfs, &other)).is_none());
    }
    drop(section);
    (1..=255).for_each(|len| assert!(unlink(&root, &long[..len])));
    assert_only_roots(&vfs, 1);
}

#[test]
fn renames_in_a_directory_and_between_two() {
    let vfs = vfs();
    let sb = filesystem(&vfs);
    let root = sb.root();
    let long = "a name that is too long to lie in the dentry itself";
    for (from, to) in [("a", "b"), ("b", long), (long, "c"), ("c", "d")] {
        let file = root.lookup(&name(&vfs, from)).unwrap_or_else(|| make(&root, from));
        let new = root.new_name(&name(&vfs, to)).unwrap();
        let mut lock = root.inode().unwrap().lock();
        assert!(file.rename(&mut Dirs::Same(&mut lock), &root, new, None).unwrap().is_none());
        drop(lock);
        assert!(root.lookup(&name(&vfs, from)).is_none());
        assert!(root.lookup(&name(&vfs, to)).unwrap().same(&file));
    }
    let (one, two) = (mkdir(&root, "one"), mkdir(&root, "two"));
    let (x, y) = (make(&one, "x"), make(&two, "y"));
    let (ino_x, ino_y) = (x.inode().unwrap().ino(), y.inode().unwrap().ino());
    {
        // In place of another one.
        let new = two.new_name(&name(&vfs, "y")).unwrap();
        let (mut from, mut to) = (one.inode().unwrap().lock(), two.inode().unwrap().lock());
        let pin = x.rename(&mut Dirs::Two(&mut from, &mut to), &two, new, Some(&y)).unwrap();
        assert!(pin.unwrap().same(&y));
    }
    assert!(!y.is_hashed() && x.is_hashed() && x.parent().same(&two) && y.parent().same(&two));
    assert!(one.lookup(&name(&vfs, "x")).is_none());
    let section = vfs.read();
    assert_eq!(ino_of(two.seen(&section), &name(&vfs, "y")), Some(ino_x));
    assert_eq!((name_of(&y, &section).as_str(), name_of(&x, &section).as_str()), ("y", "y"));
    drop(section);
    // Exchange, between directories and in one.
    let z = make(&one, "z");
    {
        let (mut from, mut to) = (one.inode().unwrap().lock(), two.inode().unwrap().lock());
        z.exchange(&mut Dirs::Two(&mut from, &mut to), &x).unwrap();
    }
    assert!(
        one.lookup(&name(&vfs, "z")).unwrap().same(&x)
            && two.lookup(&name(&vfs, "y")).unwrap().same(&z)
    );
    assert!(x.parent().same(&one) && z.parent().same(&two));
    {
        let mut lock = root.inode().unwrap().lock();
        one.exchange(&mut Dirs::Same(&mut lock), &two).unwrap();
        // Not where the lock says.
        assert_eq!(x.exchange(&mut Dirs::Same(&mut lock), &one), Err(Errno::NOENT));
    }
    let walked = root.lookup(&name(&vfs, "one")).unwrap();
    assert!(walked.same(&two) && walked.lookup(&name(&vfs, "y")).unwrap().same(&z));
    assert_ne!(ino_x, ino_y);
    drop((walked, x, y, z, one, two));
    root.clear();
    assert_only_roots(&vfs, 1);
}

#[test]
fn a_removed_directory_takes_no_names() {
    let vfs = vfs();
    let sb = filesystem(&vfs);
    let root = sb.root();
    let dir = mkdir(&root, "dir");
    let file = make(&root, "file");
    assert!(unlink(&root, "dir"));
    assert_eq!(try_make(&dir, "x", false).unwrap_err(), Errno::NOENT);
    let new = dir.new_name(&name(&vfs, "x")).unwrap();
    let (mut from, mut to) = (root.inode().unwrap().lock(), dir.inode().unwrap().lock());
    assert_eq!(
        file.rename(&mut Dirs::Two(&mut from, &mut to), &dir, new, None).unwrap_err(),
        Errno::NOENT
    );
    drop((from, to));
    drop((dir, file));
    root.clear();
    assert_only_roots(&vfs, 1);
}

#[test]
fn what_was_seen_is_not_legitimised_after_a_change() {
    let vfs = vfs();
    let sb = filesystem(&vfs);
    let root = sb.root();
    let file = make(&root, "file");
    let section = vfs.read();
    let Step::Found(seen) = root.seen(&section).child(&name(&vfs, "file")) else {
        panic!("it is there")
    };
    assert!(seen.valid() && seen.acquire().unwrap().same(&file));
    let new = root.new_name(&name(&vfs, "other")).unwrap();
    file.rename(&mut Dirs::Same(&mut root.inode().unwrap().lock()), &root, new, None).unwrap();
    assert!(!seen.valid() && seen.acquire().is_none() && seen.parent().is_none());
    let Step::Found(seen) = root.seen(&section).child(&name(&vfs, "other")) else {
        panic!("it is there")
    };
    assert!(seen.parent().unwrap().is(&root));
    drop(file.unhash(&mut root.inode().unwrap().lock()));
    assert!(seen.acquire().is_none());
    assert_eq!(file.count(), 1, "a failed attempt leaves nothing behind");
    drop(file);
    assert_eq!(seen.count(), -128, "dead, and readable as long as the section is open");
    assert!(seen.acquire().is_none());
    drop(section);
    assert_only_roots(&vfs, 1);
}

#[test]
fn unpinned_dentries_are_kept_and_given_back_by_age() {
    let vfs = vfs();
    let sb = filesystem(&vfs);
    let root = sb.root();
    for i in 0..100 {
        make_unpinned(&root, &format!("f{i}"), i % 2 == 0);
    }
    let state = vfs.dentry_state();
    assert_eq!((state.nr_dentry, state.nr_unused, state.nr_negative), (101, 100, 50));
    // Used again: a second chance. Held: off the list.
    let held = root.lookup(&name(&vfs, "f2")).unwrap();
    drop(root.lookup(&name(&vfs, "f4")).unwrap());
    assert_eq!(vfs.prune(5), 5, "f0, f1, f3, f5, f6");
    for (i, kept) in [
        (0, false),
        (1, false),
        (2, true),
        (3, false),
        (4, true),
        (5, false),
        (6, false),
        (7, true),
    ] {
        let section = vfs.read();
        let found =
            matches!(root.seen(&section).child(&name(&vfs, &format!("f{i}"))), Step::Found(_));
        assert_eq!(found, kept, "f{i}");
    }
    assert_eq!(vfs.shrink(), 94);
    assert_eq!(vfs.dentry_state().nr_dentry, 2, "the root and what is held");
    drop(held);
    assert_eq!(vfs.shrink(), 1);
    assert_only_roots(&vfs, 1);
}

#[test]
fn a_negative_dentry_becomes_positive_once() {
    let vfs = vfs();
    let sb = filesystem(&vfs);
    let root = sb.root();
    let dentry = make_unpinned(&root, "x", false);
    let section = vfs.read();
    let Step::Found(before) = root.seen(&section).child(&name(&vfs, "x")) else {
        panic!("it is there")
    };
    assert!(before.inode().is_none());
    let mut lock = root.inode().unwrap().lock();
    let inode = |_| {
        sb.new_inode(made(quietline_vfs::abi::S_IFREG), quietline_vfs::Content::Regular).unwrap()
    };
    dentry.instantiate(&mut lock, inode(1), true).unwrap();
    assert!(!before.valid(), "who saw it negative must look again");
    assert!(dentry.instantiate(&mut lock, inode(2), true).is_err());
    drop((lock, section));
    assert_eq!((dentry.count(), vfs.dentry_state().nr_negative), (2, 0));
    drop(dentry);
    assert_eq!(vfs.shrink(), 0, "pinned");
    assert!(unlink(&root, "x"));
    assert_only_roots(&vfs, 1);
}

#[test]
fn paths_and_who_is_below_whom() {
    let vfs = vfs();
    let sb = filesystem(&vfs);
    let root = sb.root();
    let a = mkdir(&root, "a");
    let b = mkdir(&a, "bb");
    let c = make(&b, "ccc");
    let path = |dentry: &quietline_vfs::DentryRef<'_>| {
        let mut buffer = [0; 64];
        let mut path = PathBuffer::new(&mut buffer);
        dentry
            .path_in_filesystem(&mut path)
            .map(|()| String::from_utf8(path.bytes().to_vec()).unwrap())
    };
    assert_eq!(path(&root).unwrap(), "/");
    assert_eq!(path(&c).unwrap(), "/a/bb/ccc");
    assert!(
        c.is_below(&a)
            && c.is_below(&root)
            && c.is_below(&c)
            && !a.is_below(&b)
            && !root.is_below(&a)
    );
    let deep = mkdir(&b, &"d".repeat(60));
    assert_eq!(path(&deep).unwrap_err(), Errno::NAMETOOLONG);
    drop((a, b, c, deep));
    root.clear();
    assert_only_roots(&vfs, 1);
}

#[test]
fn a_filesystem_goes_with_its_last_reference() {
    let vfs = vfs();
    let sb = filesystem(&vfs);
    let other = filesystem(&vfs);
    let root = sb.root();
    for d in 0..10 {
        let dir = mkdir(&root, &format!("d{d}"));
        (0..10).for_each(|f| drop(make(&dir, &format!("f{f}"))));
        make_unpinned(&dir, "kept", false);
    }
    assert_eq!((sb.nr_dentry(), sb.nr_inodes(), sb.nr_negative()), (121, 111, 10));
    let open = root.lookup(&name(&vfs, "d3")).unwrap().lookup(&name(&vfs, "f7")).unwrap();
    let unlinked = make(&root, "tmp");
    assert!(unlink(&root, "tmp"));
    drop(root);
    let again = sb.clone();
    drop(sb);
    assert_eq!(again.nr_dentry(), 122);
    drop(again);
    assert!(!open.is_hashed());
    // Each keeps its parents: d3 and the root.
    assert_eq!(vfs.dentry_state().nr_dentry, 4 + 1);
    assert!(open.parent().parent().same(&unlinked.parent()));
    drop((open, unlinked));
    assert_eq!(vfs.dentry_state().nr_dentry, 1);
    drop(filesystem(&vfs));
    assert_only_roots(&vfs, 1);
    drop(other);
    assert_only_roots(&vfs, 0);
}

#[test]
fn invalidation_takes_a_subtree_out() {
    let vfs = vfs();
    let sb = filesystem(&vfs);
    let root = sb.root();
    let a = mkdir(&root, "a");
    let b = mkdir(&a, "b");
    make_unpinned(&b, "x", true);
    a.invalidate();
    assert!(root.lookup(&name(&vfs, "a")).is_none() && !b.is_hashed());
    a.invalidate();
    root.invalidate();
    drop((a, b));
    assert_only_roots(&vfs, 1);
}

#[test]
fn a_tree_4000_deep() {
    let vfs = vfs();
    let sb = filesystem(&vfs);
    let mut at = sb.root();
    for _ in 0..4000 {
        at = mkdir(&at, "d");
    }
    let mut buffer = vec![0; 8000];
    let mut path = PathBuffer::new(&mut buffer);
    at.path_in_filesystem(&mut path).unwrap();
    assert_eq!(path.len(), 8000);
    assert!(at.is_below(&sb.root()));
    // Down it goes, on a small stack, from the top; and a second one from the bottom.
    let on_a_small_stack = |f: &mut (dyn FnMut() + Send)| {
        std::thread::scope(|s| {
            std::thread::Builder::new()
                .stack_size(64 << 10)
                .spawn_scoped(s, f)
                .unwrap()
                .join()
                .unwrap()
        });
    };
    on_a_small_stack(&mut || sb.root().clear());
    assert_eq!(vfs.dentry_state().nr_dentry, 4001, "the lowest keeps its parents");
    let mut lowest = Some(at);
    on_a_small_stack(&mut || drop(lowest.take()));
    assert_only_roots(&vfs, 1);
}
