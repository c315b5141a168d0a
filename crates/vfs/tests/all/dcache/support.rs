//! A small filesystem for tests of the dentry cache.
#![allow(dead_code)]

use core::pin::Pin;
use quietline_slab::LazyCache;
use quietline_vfs::abi::{S_IFDIR, S_IFREG, Timespec};
use quietline_vfs::{
    Content, DentryRef, InodeRef, Name, NewInode, Plain, Section, Seen, Step, SuperRef, Vfs,
};
use rustix::io::Errno;

pub(crate) const TIME: Timespec = Timespec { tv_sec: 1_000, tv_nsec: 7 };

pub(crate) fn made(mode: u32) -> NewInode {
    NewInode { mode, uid: 0, gid: 0, rdev: 0, nlink: 1, time: TIME }
}

/// A kernel's file systems, for a test. `Box::leak` would hide what a kernel leaves behind.
pub(crate) fn vfs() -> Pin<Box<Vfs>> {
    Vfs::new().unwrap()
}

pub(crate) fn filesystem(vfs: &Vfs) -> SuperRef<'_> {
    try_filesystem(vfs).unwrap()
}

pub(crate) fn try_filesystem(vfs: &Vfs) -> Result<SuperRef<'_>, Errno> {
    vfs.new_super("testfs", 1, Box::new(Plain), made(S_IFDIR | 0o755), Content::Directory)
}

pub(crate) fn name<'a>(vfs: &Vfs, name: &'a str) -> Name<'a> {
    vfs.name(name.as_bytes()).unwrap()
}

fn inode<'k>(parent: &DentryRef<'k>, dir: bool) -> Result<InodeRef<'k>, Errno> {
    if dir {
        parent.new_inode(made(S_IFDIR | 0o755), Content::Directory)
    } else {
        // What is in it does not matter here.
        parent.new_inode(made(S_IFREG | 0o644), Content::Regular)
    }
}

/// A pinned file or directory.
pub(crate) fn try_make<'k>(
    parent: &DentryRef<'k>,
    called: &str,
    dir: bool,
) -> Result<DentryRef<'k>, Errno> {
    let called = name(parent.vfs(), called);
    let mut new = parent.alloc(&called)?;
    new.instantiate(inode(parent, dir)?);
    let mut lock = parent.inode().expect("a directory has an inode").lock();
    let section = parent.vfs().read();
    loop {
        match parent.seen(&section).child(&called) {
            Step::Found(_) => return Err(Errno::EXIST),
            Step::Missing => break,
            // The directory itself was taken out just now, as a whole tree is.
            Step::Stale => {}
        }
    }
    drop(section);
    new.add_pinned(&mut lock)
}

pub(crate) fn make<'k>(parent: &DentryRef<'k>, called: &str) -> DentryRef<'k> {
    try_make(parent, called, false).unwrap()
}

pub(crate) fn mkdir<'k>(parent: &DentryRef<'k>, called: &str) -> DentryRef<'k> {
    try_make(parent, called, true).unwrap()
}

/// Takes a name out; whether it was there.
pub(crate) fn unlink(parent: &DentryRef<'_>, called: &str) -> bool {
    let called = name(parent.vfs(), called);
    let mut lock = parent.inode().unwrap().lock();
    let section = parent.vfs().read();
    let gone = match parent.seen(&section).child(&called) {
        Step::Found(child) => child.unhash(&mut lock),
        Step::Missing => None,
        Step::Stale => unreachable!("nobody renames directories here"),
    };
    drop(section);
    drop(lock);
    gone.is_some()
}

/// A dentry that is kept as long as nobody needs the memory; negative without an inode.
pub(crate) fn make_unpinned<'k>(
    parent: &DentryRef<'k>,
    called: &str,
    positive: bool,
) -> DentryRef<'k> {
    let called = name(parent.vfs(), called);
    let mut new = parent.alloc(&called).unwrap();
    if positive {
        new.instantiate(inode(parent, false).unwrap());
    }
    let mut lock = parent.inode().unwrap().lock();
    new.add(&mut lock).unwrap()
}

/// The number of the inode that a name stands for, by a walk without references.
pub(crate) fn ino_of(parent: Seen<'_, '_>, called: &Name<'_>) -> Option<u64> {
    match parent.child(called) {
        Step::Found(child) => Some(child.inode().expect("positive").ino()),
        Step::Missing => None,
        Step::Stale => panic!("the directory was renamed"),
    }
}

pub(crate) fn name_of(dentry: &DentryRef<'_>, section: &Section) -> String {
    let mut buffer = [0; 255];
    let len = dentry.seen(section).name(&mut buffer);
    String::from_utf8(buffer[..len].to_vec()).unwrap()
}

/// Nothing is left but the root of `filesystems` living filesystems.
pub(crate) fn assert_only_roots(vfs: &Vfs, filesystems: i64) {
    let state = vfs.dentry_state();
    assert_eq!((state.nr_dentry, state.nr_unused, state.nr_negative), (filesystems, 0, 0));
    assert_eq!(vfs.nr_inodes(), filesystems);
    // What waits for a grace period in a CPU's sheaf counts as active, and callbacks that another
    // test's thread has taken over run when it gets to them: so it may take a moment.
    let end = std::time::Instant::now() + std::time::Duration::from_secs(120);
    loop {
        vfs.shrink();
        let active = vfs.caches().map(LazyCache::stats).map(|cache| cache.active);
        // Roots are not in the caches.
        if active == [0; 7] {
            return;
        }
        assert!(
            std::time::Instant::now() < end,
            "dentries, inodes and names that are still there: {active:?}"
        );
        std::thread::yield_now();
    }
}
