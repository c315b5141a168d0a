//! Inodes: how long they live, and that their attributes are read as of one moment.

use crate::dcache::support::*;
use quietline_vfs::abi::{S_IFIFO, S_IFLNK, Timespec};
use quietline_vfs::{Changes, Content, InodeFlags};
use std::thread;

#[test]
fn an_inode_lives_as_long_as_its_names_and_its_users() {
    let vfs = vfs();
    let sb = filesystem(&vfs);
    let root = sb.root();
    let first = make(&root, "first");
    let inode = first.inode_ref().unwrap();
    // A second name.
    let mut new = root.alloc(&name(&vfs, "second")).unwrap();
    new.instantiate(inode.clone());
    drop(new.add_pinned(&mut root.inode().unwrap().lock()).unwrap());
    assert_eq!(inode.count(), 3);
    assert!(root.lookup(&name(&vfs, "second")).unwrap().inode().unwrap().same(&inode));
    assert!(unlink(&root, "first") && unlink(&root, "second"));
    drop(first);
    assert_eq!((inode.count(), vfs.nr_inodes(), vfs.dentry_state().nr_dentry), (1, 2, 1));
    let ino = inode.ino();
    drop(inode);
    assert_only_roots(&vfs, 1);
    assert_ne!(make(&root, "next").inode().unwrap().ino(), ino, "numbers are not used again soon");
}

#[test]
fn what_an_inode_is_made_with() {
    let vfs = vfs();
    let sb = filesystem(&vfs);
    let target: Box<[u8]> = b"somewhere".as_slice().into();
    let link = sb.new_inode(made(S_IFLNK | 0o777), Content::Symlink(target)).unwrap();
    assert!(link.is_symlink() && !link.is_dir() && !link.is_file());
    assert!(matches!(link.content(), Content::Symlink(target) if **target == *b"somewhere"));
    let of = link.attributes();
    assert_eq!(
        (of.mode, of.nlink, of.uid, of.gid, of.size, of.blocks),
        (S_IFLNK | 0o777, 1, 0, 0, 0, 0)
    );
    assert!([of.atime, of.mtime, of.ctime, of.btime].iter().all(|time| *time == TIME));
    assert_eq!(of.ino, link.ino());
    let mut lock = link.lock();
    assert!(link.try_lock().is_none() && lock.inode().same(&link));
    lock.set_flags(InodeFlags::LINKABLE, InodeFlags::empty());
    assert_eq!(link.flags(), InodeFlags::LINKABLE);
    lock.set_flags(InodeFlags::DEAD, InodeFlags::LINKABLE);
    assert_eq!(link.flags(), InodeFlags::DEAD);
}

#[test]
fn attributes_are_of_one_moment() {
    let vfs = vfs();
    let sb = filesystem(&vfs);
    let inode = sb.new_inode(made(S_IFIFO), Content::Regular).unwrap();
    let at = |i: u32| Timespec { tv_sec: i.into(), tv_nsec: i.into() };
    let change = |i: u32| Changes {
        uid: Some(i),
        gid: Some(i),
        nlink: Some(i),
        size: Some(i.into()),
        blocks: Some(i.into()),
        mtime: Some(at(i)),
        ctime: Some(at(i)),
        ..Changes::default()
    };
    inode.lock().change(&change(0));
    thread::scope(|s| {
        s.spawn(|| (1..=200_000).for_each(|i| inode.lock().change(&change(i))));
        for _ in 0..2 {
            s.spawn(|| {
                let mut last = 0;
                while last < 200_000 {
                    let of = inode.attributes();
                    let i = of.uid;
                    assert!(i >= last, "time goes forward");
                    assert_eq!((of.gid, of.nlink, of.size, of.blocks), (i, i, i.into(), i.into()));
                    assert_eq!((of.mtime, of.ctime, of.atime), (at(i), at(i), TIME));
                    last = i;
                }
            });
        }
    });
}
