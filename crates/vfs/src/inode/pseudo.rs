//! Inodes of pseudo objects.
//!
//! Most sockets and pipes keep the attributes that they are made with, and are never locked.
//! Changed attributes and locks are in a [`PseudoState`] in a table of the object's file system.
//! Anonymous descriptors share one inode per kernel.

use crate::abi::Timespec;
use crate::cred::Cred;
use crate::locks::{FileLocks, LockWaits};
use crate::permission::Ownership;
use quietline_platform::{AllocError, fault};
use quietline_sync::{Shared, SpinLock};
use rustix::io::Errno;

/// Identity and mode of a socket or a pipe.
///
/// It is part of its pseudo object: on no list and in no hash, and it ends with its dentry. It has no count of its own,
/// because only that dentry refers to it.
#[derive(Debug)]
pub struct PseudoInode {
    /// The number, unique among the kernel's living inodes until 2^32 have been made.
    pub i_ino: u32,
    /// Type and permissions.
    pub i_mode: u32,
}

/// Attributes of a pseudo inode.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct PseudoAttributes {
    pub(crate) ownership: Ownership,
    pub(crate) atime: Timespec,
    pub(crate) mtime: Timespec,
    pub(crate) ctime: Timespec,
}

impl PseudoAttributes {
    /// The attributes of the anonymous inode. Nothing changes them.
    pub(crate) const ANONYMOUS: Self = Self::unchanged(Ownership { mode: 0o600, uid: 0, gid: 0 });

    const fn unchanged(ownership: Ownership) -> Self {
        let never = Timespec { tv_sec: 0, tv_nsec: 0 };
        Self { ownership, atime: never, mtime: never, ctime: never }
    }

    /// The attributes of a socket or a pipe that nothing has changed. It belongs to its user.
    pub(crate) fn new(inode: &PseudoInode, user: &Cred) -> Self {
        Self::unchanged(Ownership { mode: inode.i_mode, uid: user.fsuid(), gid: user.fsgid() })
    }
}

/// The changed attributes of a pseudo inode, and the locks on it.
#[derive(Debug)]
pub(crate) struct PseudoState {
    /// None as long as nothing has changed them.
    pub(crate) attributes: SpinLock<Option<PseudoAttributes>>,
    pub(crate) locks: FileLocks,
    /// The kernel's waits for locks, for the end of a file, which has no kernel at hand.
    pub(crate) waits: Shared<LockWaits>,
}

impl PseudoState {
    /// Makes the state of an inode that nothing has changed.
    pub(crate) fn new(waits: Shared<LockWaits>) -> Self {
        Self { attributes: SpinLock::new(None), locks: FileLocks::new(), waits }
    }
}

/// The states of a file system's inodes, by the address of the object; at address 0, the state of
/// the anonymous inode. Sorted.
#[derive(Debug)]
pub(crate) struct PseudoStates(SpinLock<Vec<(usize, Shared<PseudoState>)>>);

impl PseudoStates {
    pub(crate) const fn new() -> Self {
        Self(SpinLock::new(Vec::new()))
    }

    /// Returns the state of an inode, if it has one.
    pub(crate) fn find(&self, object: usize) -> Option<Shared<PseudoState>> {
        let states = self.0.lock();
        let at = states.binary_search_by_key(&object, |(object, _)| *object).ok()?;
        Some(states[at].1.clone())
    }

    /// Returns the state of an inode, which becomes `state` if it has none.
    ///
    /// # Errors
    /// `ENOMEM`.
    pub(crate) fn find_or_insert(
        &self,
        object: usize,
        state: Shared<PseudoState>,
    ) -> Result<Shared<PseudoState>, Errno> {
        let no_memory = |_: AllocError| Errno::NOMEM;
        let mut states = self.0.lock();
        match states.binary_search_by_key(&object, |(object, _)| *object) {
            Ok(at) => Ok(states[at].1.clone()),
            Err(at) => {
                fault::check().map_err(no_memory)?;
                states.try_reserve(1).map_err(|_| Errno::NOMEM)?;
                states.insert(at, (object, state.clone()));
                Ok(state)
            }
        }
    }

    /// Whether no object has a state, only perhaps the anonymous inode.
    pub(crate) fn is_without_objects(&self) -> bool {
        self.0.lock().iter().all(|(object, _)| *object == 0)
    }

    /// Forgets the state of an inode that ends.
    #[cold]
    pub(crate) fn remove(&self, object: usize) {
        let removed = {
            let mut states = self.0.lock();
            let at = states.binary_search_by_key(&object, |(object, _)| *object);
            at.ok().map(|at| states.remove(at))
        };
        drop(removed);
    }
}
