//! Inodes: what names stand for.
//!
//! # The contended way
//!
//! In 2008 an inode was on two global lists under one global lock, which making and ending one took twice each.
//!
//! # Our way
//!
//! An inode is on no list. Its superblock counts it in words of the CPUs; whoever has a dentry finds it; and nobody else asks
//! for it, because a filesystem in memory looks no inode up by its number. An inode without references is not kept for later
//! either: every link of an inode is a dentry that stays, so what nobody refers to has no name and is over.
//!
//! # Who reads what how
//!
//! * Mode, owners and flags: one by one, relaxed, by everybody inside a section. Changed under the inode's lock.
//! * Links, size, blocks and times: together, under [`attributes`](Inode::attributes)' sequence count, so that a `stat` is of
//!   one moment and writes nothing.
//! * [`Content`]: as it says itself. It is dropped a grace period after the last reference.
//!
//! # Lock order
//!
//! The lock of an inode is what `i_rwsem` is in the kernel. Of several: directories before others, ancestors first, else by
//! address.

mod attributes;
mod content;
mod pseudo;

pub use attributes::{Attributes, Changes};
pub use content::{Content, Node, NodeEntry, NodeLink, Requester};
pub use pseudo::{Owner, OwnerCell, PseudoInode};
pub(crate) use pseudo::{PseudoAttributes, PseudoState, PseudoStates};

pub use crate::raw::dcache::inode::InodeRef;

use crate::abi::{S_IFDIR, S_IFLNK, S_IFMT, S_IFREG, S_ISGID, S_ISUID};
use crate::inotify::Watches;
use crate::locks::FileLocks;
use crate::ramfs::xattr::Xattrs;
use crate::raw::listing::Listing;
use crate::super_block::SuperBlock;
use attributes::Times;
use core::fmt;
use core::ops::{Deref, DerefMut};
use core::ptr::NonNull;
use quietline_platform::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use quietline_sync::{LazyBox, Seqcount, Shared, SpinLock, SpinLockGuard};

bitflags::bitflags! {
    /// What holds of an inode beside its mode (`i_flags`).
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub struct InodeFlags: u32 {
        /// A directory that has been removed (`S_DEAD`).
        const DEAD = 1;
        /// Its content is a [`Node`]: names that a directory has not got are asked for there.
        const NODE = 2;
        /// Made without a name, and may get one (`I_LINKABLE`).
        const LINKABLE = 4;
        /// A write takes privileges away from the file: its mode had a set-id bit or it had
        /// `security.capability` when the flag was last looked at.
        const PRIVILEGED = 0b1_1000;
    }
}

impl InodeFlags {
    /// [`PRIVILEGED`](Self::PRIVILEGED) for a mode with a set-id bit, else nothing.
    #[inline(always)]
    const fn of_mode(mode: u32) -> Self {
        // The two bits of the mode are those of the flag.
        const SHIFT: u32 = 7;
        const { assert!((S_ISUID | S_ISGID) >> SHIFT == Self::PRIVILEGED.bits()) };
        Self::from_bits_retain((mode & (S_ISUID | S_ISGID)) >> SHIFT)
    }
}

/// A file's identity, attributes and content (`struct inode`).
///
/// References are [`InodeRef`]s; a dentry has one.
#[repr(C, align(64))]
pub struct Inode {
    // What walks read.
    i_mode: AtomicU32,
    i_uid: AtomicU32,
    i_gid: AtomicU32,
    i_flags: AtomicU32,
    pub(crate) i_ino: u64,
    pub(crate) i_sb: NonNull<SuperBlock>,
    i_rdev: u64,
    /// Who watches it; none for nearly all. Belongs to `inotify`.
    pub(crate) i_watches: LazyBox<Shared<Watches>>,
    /// Locks on it; none for nearly all. Belongs to file locks.
    pub(crate) i_flctx: LazyBox<FileLocks>,
    pub(crate) i_count: AtomicU32,
    /// Whether nothing is left to be dropped: said by who ends it, for who frees it, who then reads no other line.
    pub(crate) i_bare: AtomicBool,

    // What changes when the file does.
    i_seq: Seqcount,
    i_nlink: AtomicU32,
    i_size: AtomicU64,
    i_blocks: AtomicU64,
    i_times: Times,

    /// Extended attributes; none for nearly all. Set under the inode's lock.
    pub(crate) i_xattrs: LazyBox<SpinLock<Xattrs>>,
    lock: SpinLock<Locked>,
    content: Content,
}

const _: () = assert!(core::mem::offset_of!(Inode, i_seq) == 64);

// SAFETY would be claimed in `raw`: see `raw::dcache::inode`.

/// What the holder of an inode's lock has to himself.
#[derive(Debug, Default)]
pub struct Locked {
    /// What a directory lists, in order.
    pub(crate) listing: Listing,
}

/// An inode, locked; dropping it unlocks.
#[must_use = "the lock is released when this is dropped"]
pub struct InodeGuard<'a> {
    inode: &'a Inode,
    locked: SpinLockGuard<'a, Locked>,
}

/// What a new inode is made with.
#[derive(Debug, Clone, Copy)]
pub struct NewInode {
    /// Type and permissions.
    pub mode: u32,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Device, for device nodes.
    pub rdev: u64,
    /// Links that it begins with.
    pub nlink: u32,
    /// All its times.
    pub time: crate::abi::Timespec,
}

impl Inode {
    pub(crate) fn unborn(
        new: NewInode,
        i_ino: u64,
        i_sb: NonNull<SuperBlock>,
        content: Content,
    ) -> Self {
        let flags = if matches!(content, Content::Node(_)) {
            InodeFlags::NODE
        } else {
            InodeFlags::empty()
        };
        Self {
            i_mode: AtomicU32::new(new.mode),
            i_uid: AtomicU32::new(new.uid),
            i_gid: AtomicU32::new(new.gid),
            i_flags: AtomicU32::new(flags.union(InodeFlags::of_mode(new.mode)).bits()),
            i_ino,
            i_sb,
            i_rdev: new.rdev,
            i_watches: LazyBox::new(),
            i_flctx: LazyBox::new(),
            i_xattrs: LazyBox::new(),
            i_count: AtomicU32::new(1),
            i_bare: AtomicBool::new(false),
            i_seq: Seqcount::new(),
            i_nlink: AtomicU32::new(new.nlink),
            i_size: AtomicU64::new(0),
            i_blocks: AtomicU64::new(0),
            i_times: Times::all(new.time),
            lock: SpinLock::new(Locked { listing: Listing::new() }),
            content,
        }
    }

    /// Its number.
    #[inline(always)]
    pub fn ino(&self) -> u64 {
        self.i_ino
    }

    /// Type and permissions.
    #[inline(always)]
    pub fn mode(&self) -> u32 {
        // Relaxed, here and below: a word of its own.
        self.i_mode.load(Ordering::Relaxed)
    }

    /// The owner.
    #[inline(always)]
    pub fn uid(&self) -> u32 {
        self.i_uid.load(Ordering::Relaxed)
    }

    /// The group.
    #[inline(always)]
    pub fn gid(&self) -> u32 {
        self.i_gid.load(Ordering::Relaxed)
    }

    /// The device that a device node is for.
    pub fn rdev(&self) -> u64 {
        self.i_rdev
    }

    /// What holds of it.
    #[inline(always)]
    pub fn flags(&self) -> InodeFlags {
        InodeFlags::from_bits_retain(self.i_flags.load(Ordering::Relaxed))
    }

    /// Whether it is a directory.
    #[inline(always)]
    pub fn is_dir(&self) -> bool {
        self.mode() & S_IFMT == S_IFDIR
    }

    /// Whether it is a symbolic link.
    #[inline(always)]
    pub fn is_symlink(&self) -> bool {
        self.mode() & S_IFMT == S_IFLNK
    }

    /// Whether it is a regular file.
    #[inline(always)]
    pub fn is_file(&self) -> bool {
        self.mode() & S_IFMT == S_IFREG
    }

    /// What is in it.
    #[inline(always)]
    pub fn content(&self) -> &Content {
        &self.content
    }

    /// What its filesystem makes it of, if it does. Reads no line but the first of an inode that is none.
    #[inline(always)]
    pub fn node(&self) -> Option<&dyn Node> {
        if !self.flags().contains(InodeFlags::NODE) {
            return None;
        }
        if let Content::Node(node) = &self.content { Some(&**node) } else { None }
    }

    /// References to it.
    pub fn count(&self) -> u32 {
        self.i_count.load(Ordering::Relaxed)
    }

    /// Whether it has one reference: then its holder, if he gives it to nobody, is the only one for good.
    #[inline(always)]
    pub(crate) fn is_sole(&self) -> bool {
        // ORDERING: pairs with the releases of the puts before.
        self.i_count.load(Ordering::Acquire) == 1
    }

    /// The last name of a file is gone that nobody has open and nobody can open any more. (Whoever finds it in a section, as
    /// a file that is being closed, may see it as it was.)
    #[inline(always)]
    pub(crate) fn lose_last_link(&self) {
        // Relaxed: a word of its own; nobody else changes it any more.
        self.i_nlink.store(0, Ordering::Relaxed);
    }

    /// Links to it now.
    #[inline(always)]
    pub fn nlink(&self) -> u32 {
        self.i_nlink.load(Ordering::Relaxed)
    }

    /// Bytes in it now.
    #[inline(always)]
    pub fn size(&self) -> u64 {
        // ORDERING: pairs with the release that made it larger: who sees the size sees the bytes.
        self.i_size.load(Ordering::Acquire)
    }

    /// Whether dropping it would do nothing, of an inode that nobody refers to: a file without pages that had nothing but bytes.
    #[inline]
    pub(crate) fn is_bare(&self) -> bool {
        let bare = matches!(&self.content, Content::File(data) if data.pages().is_bare());
        bare && self.i_watches.is_empty() && self.i_flctx.is_empty() && self.i_xattrs.is_empty()
    }

    /// Locks it (`inode_lock`).
    #[inline(always)]
    pub fn lock(&self) -> InodeGuard<'_> {
        InodeGuard { inode: self, locked: self.lock.lock() }
    }

    /// Locks it if nobody has.
    #[inline]
    pub fn try_lock(&self) -> Option<InodeGuard<'_>> {
        Some(InodeGuard { inode: self, locked: self.lock.try_lock()? })
    }

    /// Whether both are the same.
    #[inline(always)]
    pub fn same(&self, other: &Inode) -> bool {
        core::ptr::eq(self, other)
    }
}

impl<'a> InodeGuard<'a> {
    /// What is locked.
    #[inline(always)]
    pub fn inode(&self) -> &'a Inode {
        self.inode
    }
}

impl Deref for InodeGuard<'_> {
    type Target = Locked;

    fn deref(&self) -> &Locked {
        &self.locked
    }
}

impl DerefMut for InodeGuard<'_> {
    fn deref_mut(&mut self) -> &mut Locked {
        &mut self.locked
    }
}

impl fmt::Debug for Inode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Inode")
            .field("ino", &self.ino())
            .field("mode", &format_args!("{:#o}", self.mode()))
            .field("count", &self.count())
            .finish_non_exhaustive()
    }
}

impl fmt::Debug for InodeGuard<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "InodeGuard({})", self.inode.i_ino)
    }
}
