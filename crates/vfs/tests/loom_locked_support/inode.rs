//! Inodes for `loom_locked`: a lock, a flag, and cells by which the model sees who is not alone.

use crate::raw::listing::Listing;
use core::marker::PhantomData;
use core::ops::{Deref, DerefMut};
use core::ptr::NonNull;
use loom::thread::ThreadId;
use quietline_platform::atomic::{AtomicU32, Ordering::Relaxed};
use quietline_platform::cell::UnsafeCell;
use quietline_sync::{SpinLock, SpinLockGuard};
use std::sync::Mutex;

bitflags::bitflags! {
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub struct InodeFlags: u32 {
        const DEAD = 1;
        const NODE = 2;
    }
}

/// Attributes do not matter here.
#[derive(Debug, Default)]
pub struct Changes;

pub struct Inode {
    directory: bool,
    flags: AtomicU32,
    lock: SpinLock<Locked>,
    /// Whether it has ended: read by who has it, written by who ends it.
    content: UnsafeCell<bool>,
    /// Whether it is freed: read by who may look at it, written by who frees it.
    memory: UnsafeCell<bool>,
    /// Who ended it, each time: for the model's questions.
    ended: Mutex<Vec<ThreadId>>,
}

// SAFETY: the cells are accessed as the protocol says, and the model finds out where that is not enough.
unsafe impl Sync for Inode {}

#[derive(Debug)]
pub struct Locked {
    pub(crate) listing: Listing,
}

#[derive(Debug)]
pub struct InodeRef<'k>(NonNull<Inode>, PhantomData<&'k ()>);

pub struct InodeGuard<'a>(&'a Inode, SpinLockGuard<'a, Locked>);

impl core::fmt::Debug for InodeGuard<'_> {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str("InodeGuard")
    }
}

impl Inode {
    pub fn new(directory: bool) -> InodeRef<'static> {
        let inode = Self {
            directory,
            flags: AtomicU32::new(0),
            lock: SpinLock::new(Locked { listing: Listing::new() }),
            content: UnsafeCell::new(false),
            memory: UnsafeCell::new(false),
            ended: Mutex::new(Vec::new()),
        };
        InodeRef(NonNull::from(Box::leak(Box::new(inode))), PhantomData)
    }

    fn look(&self) {
        // SAFETY: the claim under test: nobody frees it meanwhile.
        self.memory.with(|freed| assert!(unsafe { !*freed }, "freed under a section or a lock"));
    }

    /// By who has it for good: by a reference, or by a lock.
    pub fn use_it(&self) {
        self.look();
        // SAFETY: the claim under test: nobody ends it meanwhile.
        self.content.with(|ended| assert!(unsafe { !*ended }, "ended while somebody has it"));
    }

    pub(crate) fn end(&self) {
        self.look();
        // SAFETY: the claim under test: whoever ends it is alone with it.
        self.content
            .with_mut(|ended| assert!(!unsafe { core::mem::replace(&mut *ended, true) }, "once"));
        self.ended.lock().unwrap().push(loom::thread::current().id());
    }

    /// What a grace period is followed by.
    pub fn free(&self) {
        // SAFETY: the claim under test: nobody looks at it any more.
        self.memory.with_mut(|freed| unsafe { *freed = true });
    }

    /// Asked when all is quiet.
    pub fn ends(&self) -> usize {
        self.ended.lock().unwrap().len()
    }

    /// Whether this thread has ended it.
    pub fn is_mine_to_free(&self) -> bool {
        self.ended.lock().unwrap().contains(&loom::thread::current().id())
    }

    pub fn is_dir(&self) -> bool {
        self.look();
        self.directory
    }

    pub fn same(&self, other: &Inode) -> bool {
        core::ptr::eq(self, other)
    }

    pub fn flags(&self) -> InodeFlags {
        self.look();
        // Relaxed, as in the original.
        InodeFlags::from_bits_retain(self.flags.load(Relaxed))
    }

    pub fn lock(&self) -> InodeGuard<'_> {
        self.look();
        InodeGuard(self, self.lock.lock())
    }

    pub fn try_lock(&self) -> Option<InodeGuard<'_>> {
        self.look();
        Some(InodeGuard(self, self.lock.try_lock()?))
    }
}

impl<'a> InodeGuard<'a> {
    pub fn inode(&self) -> &'a Inode {
        self.0
    }

    pub fn change(&mut self, _: &Changes) {
        self.0.use_it();
    }

    pub fn set_dead(&mut self) {
        // Relaxed, as in the original.
        self.0.flags.store(InodeFlags::DEAD.bits(), Relaxed);
    }
}

impl Deref for InodeGuard<'_> {
    type Target = Locked;

    fn deref(&self) -> &Locked {
        &self.1
    }
}

impl DerefMut for InodeGuard<'_> {
    fn deref_mut(&mut self) -> &mut Locked {
        &mut self.1
    }
}

impl Drop for InodeGuard<'_> {
    /// To unlock is to write to it.
    fn drop(&mut self) {
        self.0.look();
    }
}

impl InodeRef<'_> {
    pub(crate) fn into_raw(self) -> NonNull<Inode> {
        self.0
    }

    pub(crate) unsafe fn again(inode: NonNull<Inode>) -> Self {
        Self(inode, PhantomData)
    }
}
