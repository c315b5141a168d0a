//! Items that may be ready: pushed by those who wake, taken in by those who wait.
//!
//! ```text
//!   wakers ── swap the item's word, CAS ──> pushed ─> item ─> item       newest first
//!                                              │ one exchange, under the poller's lock
//!   who waits  <── looks at each ── list ──────┘                          oldest first
//! ```
//!
//! A waker that finds the item's word set pushes nothing: the item is on its way. So whoever is about to take an item
//! off for good clears the word *first* and looks at the file *after*: either the waker's exchange came before, and the
//! look sees what the waker saw; or it comes later, finds the word clear, and pushes the item again.

use core::ptr::{self, NonNull};
use quietline_platform::atomic::{AtomicBool, AtomicPtr, AtomicU32, Ordering};

const IDLE: u32 = 0;
const QUEUED: u32 = 1;

/// What an item has of this: the first thing in it.
#[derive(Debug)]
pub(crate) struct Link {
    /// Whether the item is on the stack or on the list, or about to be.
    word: AtomicU32,
    /// The next on the stack. Written by the one who has set the word, until the stack is taken.
    next: AtomicPtr<Link>,
}

impl Link {
    pub(crate) fn new() -> Self {
        Self { word: AtomicU32::new(IDLE), next: AtomicPtr::new(ptr::null_mut()) }
    }

    /// Says that the item is queued; whether it was not. The caller then queues it.
    #[inline(always)]
    pub(crate) fn queue(&self) -> bool {
        // ORDERING: release: whoever clears the word after this sees what made the caller wake; acquire: the one who was
        // the last to clear it is done with the link. SeqCst for `wake_ordered`, which follows.
        self.word.swap(QUEUED, Ordering::SeqCst) == IDLE
    }

    /// Says that it is not. After this the caller looks at the file.
    #[inline(always)]
    pub(crate) fn clear(&self) {
        // ORDERING: acquire: pairs with the release of the wakers that found the word set and therefore did nothing: the
        // look that follows sees what they saw. Release: the list's links are not the caller's any more. An exchange and
        // not a store, so that the next waker's continues what the ones before have released.
        self.word.swap(IDLE, Ordering::AcqRel);
    }

    /// Whether it is queued, for the holder of the poller's lock: nobody clears the word meanwhile.
    #[inline(always)]
    pub(crate) fn is_queued(&self) -> bool {
        // ORDERING: acquire: pairs with the release of the waker that has set it.
        self.word.load(Ordering::Acquire) == QUEUED
    }
}

/// The stack of a poller, and whether its list has something.
#[derive(Debug)]
pub(crate) struct Ready {
    pushed: AtomicPtr<Link>,
    /// Whether somebody looks through the list, or has left something on it. Written under the poller's lock.
    held: AtomicBool,
}

impl Ready {
    pub(crate) fn new() -> Self {
        Self { pushed: AtomicPtr::new(ptr::null_mut()), held: AtomicBool::new(false) }
    }

    /// Pushes an item, unless it is queued. Writes the item's line; then the stack's.
    ///
    /// # Safety
    /// The link stays where it is until the item has left stack and list.
    #[inline]
    pub(crate) unsafe fn push(&self, link: NonNull<Link>) {
        // SAFETY: by contract it lives.
        let own = unsafe { link.as_ref() };
        if !own.queue() {
            return;
        }
        // Relaxed: a guess, which the exchange confirms; nothing is read through it here.
        let mut head = self.pushed.load(Ordering::Relaxed);
        loop {
            // Relaxed: published by the exchange.
            own.next.store(head, Ordering::Relaxed);
            // ORDERING: release publishes the link; SeqCst for `wake_ordered`, which follows: a sleeper that has not been found
            // in its queue finds this.
            match self.pushed.compare_exchange_weak(head, link.as_ptr(), Ordering::SeqCst, Ordering::Relaxed)
            {
                Ok(_) => return,
                Err(now) => head = now,
            }
        }
    }

    /// Whether there may be something. Two loads; writes no line.
    #[inline(always)]
    pub(crate) fn is_any(&self) -> bool {
        // ORDERING: acquire, both: who finds the stack taken finds that somebody holds what was on it, or what came of
        // that. SeqCst for those who have just entered a queue of the poller: pairs with the exchange in `push`.
        !self.pushed.load(Ordering::SeqCst).is_null() || self.held.load(Ordering::Acquire)
    }

    /// Whether something is on the stack, for the holder of the poller's lock.
    #[inline(always)]
    pub(crate) fn is_pushed(&self) -> bool {
        // Relaxed: a look; `take` orders. For one who is about to sleep, the fence of its queue comes before.
        !self.pushed.load(Ordering::Relaxed).is_null()
    }

    /// Takes the stack: calls `each` for every link, oldest first. For the holder of the poller's lock, who says afterwards by
    /// [`hold`](Self::hold) what is left.
    #[inline]
    pub(crate) fn take(&self, mut each: impl FnMut(NonNull<Link>)) {
        // Relaxed: the exchange below publishes it.
        self.held.store(true, Ordering::Relaxed);
        // ORDERING: acquire pairs with the release in `push`; release: who finds the stack empty finds it held.
        let mut at = self.pushed.swap(ptr::null_mut(), Ordering::AcqRel);
        // SAFETY: links on the stack live, and are the taker's from here on. So below.
        let single = unsafe { at.as_ref() }.is_none_or(|link| link.next.load(Ordering::Relaxed).is_null());
        if !single {
            let mut turned = ptr::null_mut();
            // SAFETY: as above.
            while let Some(link) = unsafe { at.as_ref() } {
                let next = link.next.load(Ordering::Relaxed);
                link.next.store(turned, Ordering::Relaxed);
                turned = core::mem::replace(&mut at, next);
            }
            at = turned;
        }
        while let Some(link) = NonNull::new(at) {
            // SAFETY: as above; read before the link is given away.
            at = unsafe { link.as_ref() }.next.load(Ordering::Relaxed);
            each(link);
        }
    }

    /// Says whether the list has something. For the holder of the poller's lock.
    #[inline(always)]
    pub(crate) fn hold(&self, any: bool) {
        // ORDERING: release pairs with the acquire in `is_any`.
        self.held.store(any, Ordering::Release);
    }
}
