//! Inodes of pseudo objects.
//!
//! Most sockets and pipes keep the attributes that they are made with, and are never locked.
//! Changed attributes and locks are in a [`PseudoState`] in a table of the object's file system.
//! Anonymous descriptors share one inode per kernel.

use crate::abi::Timespec;
use crate::cred::Cred;
use crate::locks::{FileLocks, LockWaits};
use crate::permission::Ownership;
use core::array;
use quietline_platform::atomic::{AtomicU64, Ordering};
use quietline_platform::{AllocError, fault};
use quietline_sync::{LazyBox, Shared, SpinLock};
use rustix::io::Errno;
use std::collections::HashMap;

/// Identity and owner of a socket or a pipe. Its mode is that of its [kind](crate::Payload::MODE).
///
/// It is part of its pseudo object: on no list and in no hash, and it ends with its dentry. It has no count of its own,
/// because only that dentry refers to it.
#[derive(Debug)]
pub struct PseudoInode {
    /// The number, unique among the kernel's living inodes until 2^32 have been made.
    pub i_ino: u32,
    /// The user and the group that made it.
    pub i_owner: Owner,
}

/// A user and a group.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Owner {
    uid: u32,
    gid: u32,
}

impl Owner {
    /// The user and the group for files of a process with these credentials.
    pub fn of(cred: &Cred) -> Self {
        Self::new(cred.fsuid(), cred.fsgid())
    }

    /// Returns an owner with this user and this group.
    pub const fn new(uid: u32, gid: u32) -> Self {
        Self { uid, gid }
    }

    /// The user.
    pub const fn uid(self) -> u32 {
        self.uid
    }

    /// The group.
    pub const fn gid(self) -> u32 {
        self.gid
    }
}

/// The owner of the objects that a process makes: a copy out of its credentials, which a call that
/// makes an object reads without a read-side critical section.
#[derive(Debug)]
pub struct OwnerCell(AtomicU64);

impl OwnerCell {
    /// Returns a cell with an owner.
    pub fn new(owner: Owner) -> Self {
        Self(AtomicU64::new(Self::word(owner)))
    }

    /// Returns the owner.
    #[inline(always)]
    pub fn load(&self) -> Owner {
        // Relaxed: a word of its own.
        let word = self.0.load(Ordering::Relaxed);
        Owner { uid: word as u32, gid: (word >> 32) as u32 }
    }

    /// Replaces the owner. The caller keeps other updaters of the cell out.
    pub fn store(&self, owner: Owner) {
        // Relaxed: as above.
        self.0.store(Self::word(owner), Ordering::Relaxed);
    }

    fn word(owner: Owner) -> u64 {
        u64::from(owner.uid) | u64::from(owner.gid) << 32
    }
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

    /// The attributes of a socket or a pipe that nothing has changed. It belongs to its maker.
    pub(crate) fn new(inode: &PseudoInode, mode: u32) -> Self {
        let Owner { uid, gid } = inode.i_owner;
        Self::unchanged(Ownership { mode, uid, gid })
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

/// log2 of the number of parts of a [`PseudoStates`]. A part that grows moves its own states only.
const SHARD_BITS: u32 = 6;
const SHARDS: usize = 1 << SHARD_BITS;

/// One part of a [`PseudoStates`], by the address of the object.
type Shard = SpinLock<HashMap<usize, Shared<PseudoState>>>;

/// The states of a file system's inodes, by the address of the object. The table is made for the
/// first state.
#[derive(Debug)]
pub(crate) struct PseudoStates(LazyBox<[Shard; SHARDS]>);

impl PseudoStates {
    pub(crate) fn new() -> Self {
        Self(LazyBox::new())
    }

    /// Returns the part for an object.
    fn shard(shards: &[Shard; SHARDS], object: usize) -> &Shard {
        // The upper bits of a product with the golden ratio are spread evenly.
        let mixed = (object as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        &shards[(mixed >> (u64::BITS - SHARD_BITS)) as usize]
    }

    /// Returns the state of an inode, if it has one.
    pub(crate) fn find(&self, object: usize) -> Option<Shared<PseudoState>> {
        Self::shard(self.0.get()?, object).lock().get(&object).cloned()
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
        let make = || Ok(array::from_fn(|_| SpinLock::new(HashMap::new())));
        let shards = self.0.get_or_make(make).map_err(no_memory)?;
        let mut states = Self::shard(shards, object).lock();
        if let Some(state) = states.get(&object) {
            return Ok(state.clone());
        }
        fault::check().map_err(no_memory)?;
        states.try_reserve(1).map_err(|_| Errno::NOMEM)?;
        states.insert(object, state.clone());
        Ok(state)
    }

    /// Whether no object has a state.
    pub(crate) fn is_empty(&self) -> bool {
        self.0.get().is_none_or(|shards| shards.iter().all(|shard| shard.lock().is_empty()))
    }

    /// Removes the state of an inode that ends.
    #[cold]
    pub(crate) fn remove(&self, object: usize) {
        let removed =
            self.0.get().and_then(|shards| Self::shard(shards, object).lock().remove(&object));
        drop(removed);
    }
}
