//! `struct vfsmount` and its count (`include/linux/mount.h`, `fs/namespace.c`).

use crate::atomic::{AtomicU32, Ordering};
use crate::globals::Globals;
use crate::percpu::Line;
use crate::raw::Link;
use crate::superblock::{MS_NOREFCOUNT, SuperBlock};
use crate::ticket::atomic_dec_and_lock;

/// The mount of a file system.
#[repr(C)]
pub(crate) struct VfsMount {
    /// Set at boot and only read after.
    pub(crate) mnt_sb: Link<SuperBlock>,
    /// What every open and close writes: kept off the line above, as the kernel does.
    pub(crate) counted: Line<Counted>,
}

/// The words of a mount that open and close write.
#[repr(C)]
pub(crate) struct Counted {
    pub(crate) mnt_count: AtomicU32,
    pub(crate) mnt_expiry_mark: AtomicU32,
}

impl VfsMount {
    /// A mount with the one reference that the kernel keeps.
    pub(crate) fn new() -> Self {
        let counted = Counted { mnt_count: AtomicU32::new(1), mnt_expiry_mark: AtomicU32::new(0) };
        Self { mnt_sb: Link::null(), counted: Line(counted) }
    }

    /// The file system that is mounted.
    #[inline]
    pub(crate) fn sb(&self) -> &SuperBlock {
        self.mnt_sb.load().expect("the file system was mounted at boot")
    }
}

/// `mntget()`: one more open file. Writes the mount's counted line, by one locked instruction; from
/// [`Rung::Norefcount`](crate::Rung::Norefcount) on nothing.
#[inline]
pub(crate) fn mntget(mnt: &VfsMount) -> &VfsMount {
    if !mnt.sb().has(MS_NOREFCOUNT) {
        // Relaxed: whoever gets a reference has one to start from, or the kernel's own.
        mnt.counted.0.mnt_count.fetch_add(1, Ordering::Relaxed);
    }
    mnt
}

/// `mntput()`: one less. Writes what [`mntget`] writes.
#[inline]
pub(crate) fn mntput(globals: &Globals, mnt: &VfsMount) {
    if mnt.sb().has(MS_NOREFCOUNT) {
        return;
    }
    // Relaxed: a mark that a sweep looks for, ordered by nothing.
    mnt.counted.0.mnt_expiry_mark.store(0, Ordering::Relaxed);
    let last = atomic_dec_and_lock(&mnt.counted.0.mnt_count, &globals.vfsmount_lock.0);
    assert!(last.is_none(), "the kernel keeps a reference to its own mounts");
}
