//! Dentries.

use core::ptr::{self, NonNull};
use quietline_platform::atomic::{AtomicPtr, Ordering};
use quietline_sync::Lockref;

bitflags::bitflags! {
    /// What a dentry is (`d_flags`).
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub struct DentryFlags: u32 {
        /// Not in the hash: no lookup finds it.
        const UNHASHED = 1;
        /// Its own parent, part of no tree.
        const DISCONNECTED = 2;
        /// No RCU reader can see it, so that it is freed at once.
        const NORCU = 4;
    }
}

/// A name for an inode (`struct dentry`).
///
/// Differs from the kernel's in that a pseudo dentry lies in one allocation with what it names.
#[derive(Debug)]
pub struct Dentry {
    /// References: one for each file.
    pub(crate) d_lockref: Lockref,
    d_flags: DentryFlags,
    d_parent: AtomicPtr<Dentry>,
}

impl Dentry {
    /// A dentry of a pseudo object, before it has its place in memory.
    #[inline(always)]
    pub(crate) fn pseudo(references: u32) -> Self {
        Self {
            d_lockref: Lockref::new(references),
            d_flags: DentryFlags::UNHASHED.union(DentryFlags::DISCONNECTED).union(DentryFlags::NORCU),
            d_parent: AtomicPtr::new(ptr::null_mut()),
        }
    }

    /// Makes a dentry that has its place its own parent.
    #[inline(always)]
    pub(crate) fn adopt_self(&self) {
        // Relaxed: the dentry is not shared yet.
        self.d_parent.store(NonNull::from(self).as_ptr(), Ordering::Relaxed);
    }

    /// What it is.
    pub fn flags(&self) -> DentryFlags {
        self.d_flags
    }

    /// Whether it is the root of its own tree, as every pseudo dentry is (`IS_ROOT`).
    pub fn is_root(&self) -> bool {
        // Relaxed: only compared.
        ptr::eq(self.d_parent.load(Ordering::Relaxed), self)
    }

    /// References to it.
    pub fn count(&self) -> i32 {
        self.d_lockref.count()
    }
}
