//! `struct super_block`, as far as pseudo file systems have one.

use crate::atomic::{AtomicU32, Ordering};
use crate::dcache::Dentry;
use crate::list::ListHead;
use crate::percpu::Line;
use crate::raw::Link;

/// `MS_NOREFCOUNT` of the series' last patch: mounts of this file system are not counted.
pub(crate) const MS_NOREFCOUNT: u32 = 1 << 26;

/// A mounted pseudo file system: sockfs, pipefs or anon_inodefs.
#[repr(C)]
pub(crate) struct SuperBlock {
    /// Set at boot and only read after.
    pub(crate) s_flags: AtomicU32,
    /// Set at boot and only read after.
    pub(crate) s_root: Link<Dentry>,
    /// All inodes of the file system, under `inode_lock`.
    pub(crate) s_inodes: Line<ListHead>,
}

impl SuperBlock {
    /// A file system with no root yet.
    pub(crate) fn new() -> Self {
        Self { s_flags: AtomicU32::new(0), s_root: Link::null(), s_inodes: Line(ListHead::new()) }
    }

    /// The root dentry.
    #[inline]
    pub(crate) fn root(&self) -> &Dentry {
        self.s_root.load().expect("the file system was mounted at boot")
    }

    /// Whether `flag` is set.
    #[inline]
    pub(crate) fn has(&self, flag: u32) -> bool {
        // Relaxed: set before any thread can be here.
        self.s_flags.load(Ordering::Relaxed) & flag != 0
    }
}
