//! Filesystem instances.

pub use crate::raw::dcache::super_block::SuperRef;

use crate::abi::StatFs;
use crate::event_counts::EventCounts;
use crate::inode::Inode;
use crate::operations::FileSystem;
use crate::ramfs::RamFs;
use crate::raw::dcache::root::RootObjects;
use crate::vfs::Vfs;
use core::fmt;
use core::ptr::NonNull;
use quietline_platform::AllocError;
use quietline_platform::atomic::{AtomicPtr, AtomicU64};
use quietline_sync::rcu::Head;
use quietline_sync::{Seqcount, SpinLock, SpinLockGuard};

pub(crate) const DENTRIES_MADE: usize = 0;
pub(crate) const DENTRIES_ENDED: usize = 1;
pub(crate) const INODES_MADE: usize = 2;
pub(crate) const INODES_ENDED: usize = 3;
/// Dentries without an inode that a directory has.
pub(crate) const NEGATIVES: usize = 4;
const WORDS: usize = 5;

/// A filesystem instance (`struct super_block`): a tree of dentries and their inodes.
///
/// Lives while somebody has a [`SuperRef`] (a mount has one), and then until the last of its dentries and inodes is gone.
#[repr(C)]
pub struct SuperBlock {
    /// For its end, by RCU.
    pub(crate) head: Head,
    pub(crate) vfs: NonNull<Vfs>,
    pub(crate) s_active: AtomicU64,
    pub(crate) s_root: AtomicPtr<crate::dentry::Dentry>,
    s_type: &'static str,
    s_dev: u64,
    /// Without the root's.
    pub(crate) counts: EventCounts<WORDS>,
    pub(crate) root: RootObjects,
    /// Held by renames of directories from one directory to another, and by those of files that had to wait for a directory
    /// (`s_vfs_rename_mutex`).
    s_vfs_rename: SpinLock<()>,
    /// Held while a directory is moved; odd then, so that who reads several dentries' parents knows.
    pub(crate) moves: SpinLock<()>,
    pub(crate) move_seq: Seqcount,
    info: Info,
}

/// What a filesystem keeps for itself: the one that nearly all are of is told apart without a call.
enum Info {
    Memory(Box<RamFs>),
    Other(Box<dyn SuperOperations>),
}

impl Info {
    fn of(info: Box<dyn SuperOperations>) -> Self {
        let any: &dyn core::any::Any = &*info;
        if !any.is::<RamFs>() {
            return Self::Other(info);
        }
        let any: Box<dyn core::any::Any> = info;
        Self::Memory(any.downcast().expect("it is one"))
    }

    #[inline]
    fn get(&self) -> &dyn SuperOperations {
        match self {
            Self::Memory(info) => &**info,
            Self::Other(info) => &**info,
        }
    }
}

/// A filesystem's operations on its superblock (`super_operations`), and its private data
/// (`s_fs_info`).
pub trait SuperOperations: Send + Sync + fmt::Debug + core::any::Any {
    /// The last reference to an inode is gone: gives up at once what it holds. Readers inside sections may still look.
    fn evict(&self, _inode: &Inode) {}

    /// What `statfs` tells of it.
    fn statfs(&self) -> StatFs {
        StatFs::default()
    }

    /// Returns the embedder's file system, `None` for one of the kernel's own.
    fn foreign(&self) -> Option<&dyn FileSystem> {
        None
    }

    /// Whether modes and owners of its generated files stay.
    fn keeps_owners(&self) -> bool {
        false
    }
}

/// A filesystem that keeps nothing.
#[derive(Debug)]
pub struct Plain;

impl SuperOperations for Plain {}

impl SuperBlock {
    pub(crate) fn unborn(
        vfs: NonNull<Vfs>,
        s_type: &'static str,
        s_dev: u64,
        info: Box<dyn SuperOperations>,
    ) -> Result<Self, AllocError> {
        Ok(Self {
            root: RootObjects::alloc()?,
            head: Head::new(),
            vfs,
            s_active: AtomicU64::new(1),
            s_root: AtomicPtr::new(core::ptr::null_mut()),
            s_type,
            s_dev,
            counts: EventCounts::new(),
            s_vfs_rename: SpinLock::new(()),
            moves: SpinLock::new(()),
            move_seq: Seqcount::new(),
            info: Info::of(info),
        })
    }

    /// The filesystem's name, as `/proc/filesystems` has it.
    pub fn s_type(&self) -> &'static str {
        self.s_type
    }

    /// Its number, as `stat` tells it.
    pub fn s_dev(&self) -> u64 {
        self.s_dev
    }

    /// What the filesystem keeps for itself.
    pub fn info(&self) -> &dyn SuperOperations {
        self.info.get()
    }

    /// The filesystem in memory that it is, if it is one.
    #[inline]
    pub fn ramfs(&self) -> Option<&RamFs> {
        if let Info::Memory(info) = &self.info { Some(info) } else { None }
    }

    /// The last reference to an inode is gone.
    #[inline]
    pub(crate) fn evict(&self, inode: &Inode) {
        match &self.info {
            Info::Memory(info) => info.evict(inode),
            Info::Other(info) => info.evict(inode),
        }
    }

    /// What the filesystem keeps for itself, if it is of this type.
    pub fn info_as<T: SuperOperations>(&self) -> Option<&T> {
        let any: &dyn core::any::Any = self.info();
        any.downcast_ref()
    }

    /// Keeps other renames of directories from one directory to another out. The first lock to take.
    pub fn lock_renames(&self) -> SpinLockGuard<'_, ()> {
        self.s_vfs_rename.lock()
    }

    /// Begins a look at several dentries' names and parents; waits while a directory is being moved.
    pub fn moves_began(&self) -> u32 {
        self.move_seq.read_begin()
    }

    /// Whether a directory was moved since: then what was read of several dentries may not belong together. (A dentry that
    /// is no directory says by itself whether it was moved.)
    pub fn moved_since(&self, began: u32) -> bool {
        self.move_seq.read_retry(began)
    }

    /// Dentries that live; exact when nobody makes or ends one meanwhile.
    pub fn nr_dentry(&self) -> i64 {
        self.made_less_ended(DENTRIES_MADE, DENTRIES_ENDED) + i64::from(self.root.has_dentry())
    }

    /// Inodes that live; exact when nobody makes or ends one meanwhile.
    pub fn nr_inodes(&self) -> i64 {
        self.made_less_ended(INODES_MADE, INODES_ENDED) + i64::from(self.root.has_inode())
    }

    /// Dentries that a directory has and that stand for nothing.
    pub fn nr_negative(&self) -> i64 {
        (self.counts.sum(NEGATIVES) as i64).max(0)
    }

    fn made_less_ended(&self, made: usize, ended: usize) -> i64 {
        let ended = self.counts.sum(ended);
        self.counts.sum(made).wrapping_sub(ended) as i64
    }
}

impl fmt::Debug for SuperBlock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SuperBlock")
            .field("s_type", &self.s_type)
            .field("s_dev", &self.s_dev)
            .finish_non_exhaustive()
    }
}
