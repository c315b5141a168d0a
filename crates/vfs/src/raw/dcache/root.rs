//! The dentry and the inode of a root directory, in memory of their superblock.
//!
//! A file system in which nothing is made, as in an idle kernel, takes no slab of dentries or
//! inodes, and no per-CPU words to count them.
//!
//! ```text
//!   SuperBlock ── owns ──> the memory of both    freed with it, by RCU
//!              └─ live: a bit for each           cleared last, when the object has ended
//! ```

use super::entry::Dentry;
use crate::dcache::name::Name;
use crate::dentry::DentryFlags;
use crate::inode::{Content, Inode, NewInode};
use crate::super_block::SuperBlock;
use core::fmt;
use core::mem::MaybeUninit;
use core::ptr::NonNull;
use quietline_platform::AllocError;
use quietline_platform::atomic::{AtomicU32, Ordering};
use quietline_platform::heap;

const DENTRY: u32 = 1;
const INODE: u32 = 2;

#[repr(C)]
struct Memory {
    dentry: MaybeUninit<Dentry>,
    inode: MaybeUninit<Inode>,
}

/// The root's objects.
pub(crate) struct RootObjects {
    memory: NonNull<Memory>,
    /// That in the memory: for a comparison.
    inode: NonNull<Inode>,
    /// Which of the two live.
    live: AtomicU32,
    /// Whether the objects were made.
    made: bool,
}

impl RootObjects {
    /// Allocates the memory of both.
    ///
    /// # Errors
    /// [`AllocError`].
    pub(crate) fn alloc() -> Result<Self, AllocError> {
        let memory = Memory { dentry: MaybeUninit::uninit(), inode: MaybeUninit::uninit() };
        let memory = NonNull::from(Box::leak(heap::try_box(memory)?));
        // SAFETY: a field of the memory; no reference to it is made.
        let inode = unsafe { NonNull::new_unchecked(&raw mut (*memory.as_ptr()).inode) };
        Ok(Self { memory, inode: inode.cast(), live: AtomicU32::new(0), made: false })
    }

    /// Makes both, the dentry with one reference, hashed and pinned. Returns the dentry.
    ///
    /// # Safety
    /// The superblock is the one that these are the root of. Called once, before another thread
    /// sees it.
    pub(super) unsafe fn make(
        &mut self,
        sb: NonNull<SuperBlock>,
        name: &Name<'_>,
        ino: u64,
        new: NewInode,
        content: Content,
    ) -> NonNull<Dentry> {
        let dentry = self.memory.cast::<Dentry>();
        // SAFETY: memory of both, which is ours; the dentry comes first in it. A root is its own
        // parent, to which no reference is counted.
        unsafe {
            self.inode.write(Inode::unborn(new, ino, sb, content));
            dentry.write(Dentry::unborn(name, None, dentry.as_ptr(), true, sb));
            // Relaxed: published by `s_root`.
            dentry.as_ref().d_inode.store(self.inode.as_ptr(), Ordering::Relaxed);
            // No directory has it, but it is in the tree until that is taken down.
            dentry.as_ref().set_state(DentryFlags::PINNED);
        }
        (self.made, self.live) = (true, AtomicU32::new(DENTRY | INODE));
        dentry
    }

    /// Whether an inode is the root's.
    #[inline(always)]
    pub(super) fn is_inode(&self, inode: NonNull<Inode>) -> bool {
        self.inode == inode
    }

    /// The dentry has ended. Touches nothing of the superblock after that is said: another thread
    /// may free it.
    pub(super) fn dentry_ended(&self) {
        self.ended(DENTRY);
    }

    /// The inode has ended, as [`dentry_ended`](Self::dentry_ended).
    #[cold]
    pub(super) fn inode_ended(&self) {
        self.ended(INODE);
    }

    fn ended(&self, object: u32) {
        // ORDERING: release pairs with the acquire in `is_over`: the superblock is freed after all
        // that was done to it here.
        self.live.fetch_and(!object, Ordering::Release);
    }

    /// Whether both have ended.
    pub(super) fn is_over(&self) -> bool {
        // ORDERING: pairs with the release in `ended`.
        self.live.load(Ordering::Acquire) == 0
    }

    /// Whether the dentry lives.
    pub(crate) fn has_dentry(&self) -> bool {
        // Relaxed, so below: a statistic.
        self.live.load(Ordering::Relaxed) & DENTRY != 0
    }

    /// Whether the inode lives.
    pub(crate) fn has_inode(&self) -> bool {
        self.live.load(Ordering::Relaxed) & INODE != 0
    }
}

impl Drop for RootObjects {
    fn drop(&mut self) {
        // SAFETY: boxed in `alloc`. The superblock is dropped a grace period after both objects
        // end, or before another thread has seen it. A dentry has nothing to drop.
        unsafe {
            if self.made {
                Inode::drop_ended(self.inode);
            }
            drop(Box::from_raw(self.memory.as_ptr()));
        }
    }
}

impl fmt::Debug for RootObjects {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RootObjects").field("live", &self.live).finish_non_exhaustive()
    }
}
