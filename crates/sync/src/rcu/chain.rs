//! Chains of callbacks: what is queued, collected and run.

use core::cell::Cell;
use core::ptr::{self, NonNull};
use quietline_platform::atomic::{AtomicU64, Ordering};

type Callback = unsafe fn(NonNull<Head>);

/// What a callback needs: embed it in the object that is to be freed (`struct rcu_head`). Two words.
#[repr(C)]
#[derive(Debug)]
pub struct Head {
    next: AtomicU64,
    /// A cell: a head may be queued that its owner knows by a shared reference.
    run: Cell<Option<Callback>>,
}

// SAFETY: the owner alone writes `run`, when it queues the head; then the thread that runs it reads
// it.
unsafe impl Sync for Head {}

impl Head {
    /// A head that is queued nowhere.
    #[cfg(not(loom))]
    pub const fn new() -> Self {
        Self { next: AtomicU64::new(0), run: Cell::new(None) }
    }

    /// A head that is queued nowhere.
    #[cfg(loom)]
    pub fn new() -> Self {
        Self { next: AtomicU64::new(0), run: Cell::new(None) }
    }

    /// Says what runs.
    ///
    /// # Safety
    /// The head is valid and the caller's.
    #[inline(always)]
    pub(super) unsafe fn set(head: NonNull<Head>, run: unsafe fn(NonNull<Head>)) {
        // SAFETY: by contract.
        unsafe { (*head.as_ptr()).run.set(Some(run)) };
    }

    /// Runs the callback, which may free the head.
    ///
    /// # Safety
    /// The head is valid, off every chain, and what [`set`](Self::set) or a [`HeadOfMany`] named may run now.
    pub(super) unsafe fn run(head: NonNull<Head>) {
        // SAFETY: by contract.
        unsafe {
            match (*head.as_ptr()).run.get() {
                Some(run) => run(head),
                None => (HeadOfMany::kind(head).run)(head.cast()),
            }
        }
    }

    /// Objects that the head stands for.
    ///
    /// # Safety
    /// The head is valid and queued.
    unsafe fn weight(head: *mut Head) -> i64 {
        // SAFETY: by contract.
        unsafe {
            let head = NonNull::new_unchecked(head);
            match (*head.as_ptr()).run.get() {
                Some(_) => 1,
                None => HeadOfMany::weight(head.cast()),
            }
        }
    }
}

/// A head that stands for many objects which are freed together: grace periods begin, callers are slowed down and backlogs
/// are counted by objects. Three words. See [`Domain::call_many`](super::Domain::call_many).
#[repr(C)]
#[derive(Debug)]
pub struct HeadOfMany {
    /// Without a callback of its own: that tells it from others.
    head: Head,
    kind: &'static Many,
}

/// What is done with many objects.
#[derive(Debug)]
pub struct Many {
    /// Frees them.
    pub run: unsafe fn(NonNull<HeadOfMany>),
    /// How many there are: the same number whenever it is asked, from queueing to running. 0 counts as 1.
    pub count: unsafe fn(NonNull<HeadOfMany>) -> u32,
}

impl HeadOfMany {
    /// A head that is queued nowhere.
    pub fn new(kind: &'static Many) -> Self {
        Self { head: Head::new(), kind }
    }

    /// # Safety
    /// The head is valid.
    pub(super) unsafe fn weight(head: NonNull<HeadOfMany>) -> i64 {
        // SAFETY: by contract.
        unsafe { i64::from(((*head.as_ptr()).kind.count)(head).max(1)) }
    }

    /// # Safety
    /// The head is valid, queued, and has no callback of its own.
    unsafe fn kind(head: NonNull<Head>) -> &'static Many {
        // SAFETY: a queued head without a callback is the first field of a head of many.
        unsafe { (*head.as_ptr().cast::<HeadOfMany>()).kind }
    }
}

impl Default for Head {
    fn default() -> Self {
        Self::new()
    }
}

/// A chain of heads, oldest work first, its length counted in objects. It owns them. Whoever has it to itself walks it, so every access to a link is
/// relaxed: a lock, or the fence before a list was taken, has ordered it.
#[derive(Debug)]
pub(super) struct Chain {
    first: *mut Head,
    last: *mut Head,
    len: i64,
}

// SAFETY: the heads were given away by their owners, to be run on any thread.
unsafe impl Send for Chain {}

impl Chain {
    pub(super) const EMPTY: Self = Self { first: ptr::null_mut(), last: ptr::null_mut(), len: 0 };

    /// The chain of a list: the address of a head, or 0. Walks it: O(its length).
    ///
    /// # Safety
    /// The list's heads are valid, and the caller's to take.
    pub(super) unsafe fn of_list(list: u64) -> Self {
        let mut chain = Self::EMPTY;
        chain.first = list as *mut Head;
        let mut at = chain.first;
        while !at.is_null() {
            chain.last = at;
            // SAFETY: by contract.
            unsafe {
                chain.len += Head::weight(at);
                at = next(at);
            }
        }
        chain
    }

    /// Objects that its heads stand for.
    pub(super) fn len(&self) -> i64 {
        self.len
    }

    /// Puts `other` behind.
    pub(super) fn append(&mut self, other: Chain) {
        if other.first.is_null() {
            return;
        }
        if self.last.is_null() {
            *self = other;
            return;
        }
        // SAFETY: heads on a chain are valid and owned by the chain; so in the functions below.
        unsafe { (*self.last).next.store(other.first as u64, Ordering::Relaxed) };
        self.last = other.last;
        self.len += other.len;
    }

    /// Takes the first heads, as many as stand for `n` objects or a few more, or all there are. O(n), unless it is all.
    pub(super) fn take(&mut self, n: i64) -> Chain {
        if n >= self.len {
            return core::mem::replace(self, Self::EMPTY);
        }
        let mut taken = Self::EMPTY;
        while taken.len < n {
            taken.first = if taken.first.is_null() { self.first } else { taken.first };
            taken.last = self.first;
            // SAFETY: see `append`.
            unsafe {
                taken.len += Head::weight(self.first);
                self.first = next(self.first);
            }
        }
        self.len -= taken.len;
        if self.first.is_null() {
            self.last = ptr::null_mut();
        }
        if let Some(last) = NonNull::new(taken.last) {
            // SAFETY: see `append`.
            unsafe { (*last.as_ptr()).next.store(0, Ordering::Relaxed) };
        }
        taken
    }

    /// Takes the first head.
    pub(super) fn pop(&mut self) -> Option<NonNull<Head>> {
        let head = NonNull::new(self.first)?;
        // SAFETY: see `append`.
        unsafe {
            self.len -= Head::weight(head.as_ptr());
            self.first = next(head.as_ptr());
        }
        if self.first.is_null() {
            self.last = ptr::null_mut();
        }
        Some(head)
    }
}

/// # Safety
/// The head is valid and on a chain that the caller has to itself.
unsafe fn next(head: *mut Head) -> *mut Head {
    // SAFETY: by contract.
    unsafe { (*head).next.load(Ordering::Relaxed) as *mut Head }
}

#[cfg(all(test, not(loom)))]
mod tests;
