//! Filesystem instances.

pub use crate::raw::dcache::super_block::SuperRef;

use crate::abi::StatFs;
use crate::event_counts::EventCounts;
use crate::inode::Inode;
use crate::operations::FileSystem;
use crate::ramfs::RamFs;
use crate::raw::dcache::root::RootObjects;
use crate::raw::mount::MountList;
use crate::vfs::Vfs;
use core::fmt;
use core::ptr::NonNull;
use quietline_platform::atomic::{AtomicPtr, AtomicU32, AtomicU64, Ordering};
use quietline_platform::{AllocError, heap};
use quietline_sync::rcu::Head;
use quietline_sync::{LazyBox, Seqcount, SpinLock, SpinLockGuard};
use rustix::io::Errno;

pub(crate) const DENTRIES_MADE: usize = 0;
pub(crate) const DENTRIES_ENDED: usize = 1;
pub(crate) const INODES_MADE: usize = 2;
pub(crate) const INODES_ENDED: usize = 3;
/// Dentries without an inode that a directory has.
pub(crate) const NEGATIVES: usize = 4;
const WORDS: usize = 5;

bitflags::bitflags! {
    /// Flags of a filesystem instance, for all of its mounts, numbered as `mount` does (`SB_*`).
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
    pub struct SuperFlags: u32 {
        /// Nothing is changed.
        const RDONLY = 1;
        /// Writes are waited for: as nothing is on a disk, no difference.
        const SYNCHRONOUS = 16;
        /// Locks are mandatory: no difference, as on Linux.
        const MANDLOCK = 64;
        /// Changes of directories are waited for: no difference.
        const DIRSYNC = 128;
        /// Times are written late: no difference.
        const LAZYTIME = 1 << 25;
    }
}

/// What a filesystem was mounted from, and with which options.
#[derive(Debug)]
struct MountText {
    source: Box<[u8]>,
    options: Box<[u8]>,
}

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
    /// All of its mounts.
    pub(crate) mounts: MountList,
    /// Changed under the lock of the mounts.
    s_flags: AtomicU32,
    /// Made before it is mounted, if it is.
    text: LazyBox<MountText>,
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

    /// Writes options that the filesystem shows in `/proc/PID/mounts`, each after a comma.
    fn show_options(&self, _out: &mut dyn fmt::Write) {}

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
            mounts: MountList::new(),
            s_flags: AtomicU32::new(0),
            text: LazyBox::new(),
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

    /// Flags for all of its mounts.
    pub fn flags(&self) -> SuperFlags {
        // Relaxed: a word of its own.
        SuperFlags::from_bits_retain(self.s_flags.load(Ordering::Relaxed))
    }

    /// Sets the flags of a filesystem that is not mounted yet.
    pub fn set_first_flags(&self, flags: SuperFlags) {
        self.set_flags(flags);
    }

    /// Changes the flags. The caller has the lock of the mounts, or no other thread has seen the
    /// filesystem.
    pub(crate) fn set_flags(&self, flags: SuperFlags) {
        // Relaxed: as above.
        self.s_flags.store(flags.bits(), Ordering::Relaxed);
    }

    /// Keeps what the filesystem is mounted from, and options to be shown as they are. Before it is
    /// mounted, once.
    ///
    /// # Errors
    /// `ENOMEM`.
    pub fn set_text(&self, source: &[u8], options: &[u8]) -> Result<(), Errno> {
        let copy = |of: &[u8]| -> Result<Box<[u8]>, AllocError> {
            let mut copy = heap::try_boxed_slice(of.len(), |_| 0)?;
            copy.copy_from_slice(of);
            Ok(copy)
        };
        let text = || Ok(MountText { source: copy(source)?, options: copy(options)? });
        self.text.get_or_make(text).map(drop).map_err(|_| Errno::NOMEM)
    }

    /// Returns what it was mounted from (`mnt_devname`): its type, unless a caller of `mount` has
    /// said so.
    pub fn source(&self) -> &[u8] {
        self.text.get().map_or(self.s_type.as_bytes(), |text| &text.source)
    }

    /// Returns the options that are shown as they are.
    pub fn options(&self) -> &[u8] {
        self.text.get().map_or(&[], |text| &text.options)
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
