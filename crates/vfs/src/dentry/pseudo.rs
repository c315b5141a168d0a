//! Dentries of pseudo objects: sockets, pipes, anonymous descriptors.

use super::DentryFlags;
use quietline_platform::atomic::{AtomicBool, Ordering};
use quietline_sync::Lockref;

/// A dentry that is in no tree (`d_alloc_pseudo`). It lies in one allocation with what it names.
///
/// Flags and parent are the same for all of them, and therefore not stored: a socket that is opened
/// and closed would pay for their stores.
#[derive(Debug)]
pub struct PseudoDentry {
    /// References: one for each file.
    pub(crate) d_lockref: Lockref,
    /// Whether a reader without a reference may be looking at the object.
    met: AtomicBool,
    /// Whether the file system has a [`PseudoState`](crate::inode::PseudoState) for the object's
    /// inode.
    stateful: AtomicBool,
}

impl PseudoDentry {
    /// Returns the dentry of a new pseudo object.
    #[inline(always)]
    pub(crate) fn new(references: u32) -> Self {
        Self {
            d_lockref: Lockref::new(references),
            met: AtomicBool::new(false),
            stateful: AtomicBool::new(false),
        }
    }

    /// Notes, before a reference is put, that readers may have found the object by way of it.
    #[inline(always)]
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

    /// Notes that the object's inode has a state, for a holder of a reference. The object then
    /// ends as one that readers may have found, where that is looked at.
    pub(crate) fn set_stateful(&self) {
        // Relaxed: the put publishes it.
        self.stateful.store(true, Ordering::Relaxed);
        self.meet();
    }

    /// Whether the object's inode has a state.
    #[inline(always)]
    pub(crate) fn is_stateful(&self) -> bool {
        // Relaxed: a holder of a reference has set it; the last put has seen that.
        self.stateful.load(Ordering::Relaxed)
    }

    /// What it is.
    pub fn flags(&self) -> DentryFlags {
        DentryFlags::UNHASHED.union(DentryFlags::DISCONNECTED).union(DentryFlags::NORCU)
    }

    /// Returns `true`: every pseudo dentry is the root of its own tree (`IS_ROOT`).
    pub fn is_root(&self) -> bool {
        true
    }

    /// References to it.
    pub fn count(&self) -> i32 {
        self.d_lockref.count()
    }
}
