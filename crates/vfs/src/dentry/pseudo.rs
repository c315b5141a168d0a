//! Dentries of pseudo objects: sockets, pipes, anonymous descriptors.

use super::DentryFlags;
use core::ptr::{self, NonNull};
use quietline_platform::atomic::{AtomicBool, AtomicPtr, Ordering};
use quietline_sync::Lockref;

/// A dentry that is in no tree (`d_alloc_pseudo`). It lies in one allocation with what it names.
#[derive(Debug)]
pub struct PseudoDentry {
    /// References: one for each file.
    pub(crate) d_lockref: Lockref,
    d_flags: DentryFlags,
    d_parent: AtomicPtr<PseudoDentry>,
    /// Whether a reader without a reference may be looking at the object.
    met: AtomicBool,
}

impl PseudoDentry {
    /// A dentry of a pseudo object, before it has its place in memory.
    #[inline(always)]
    pub(crate) fn pseudo(references: u32) -> Self {
        Self {
            d_lockref: Lockref::new(references),
            d_flags: DentryFlags::UNHASHED
                .union(DentryFlags::DISCONNECTED)
                .union(DentryFlags::NORCU),
            d_parent: AtomicPtr::new(ptr::null_mut()),
            met: AtomicBool::new(false),
        }
    }

    /// Notes, before a reference is put, that readers may have found the object by way of it.
    pub(crate) fn meet(&self) {
        // Relaxed: the put publishes it.
        self.met.store(true, Ordering::Relaxed);
    }

    /// Whether readers may have found the object; for who has put the last reference.
    #[inline(always)]
    pub(crate) fn is_met(&self) -> bool {
        // Relaxed: the last put has seen what came before the others.
        self.met.load(Ordering::Relaxed)
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
