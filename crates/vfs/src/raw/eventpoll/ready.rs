//! Items that may be ready: pushed by those who wake, taken in by those who wait.
//!
//! ```text
//!   wakers ── CAS ──> pushed = 9, 12, 5          numbers, while they fit (`few`): no line of the item is written
//!   wakers ── swap the item's word, CAS ──> pushed ─> item ─> item ─> 9, 12, 5         else: newest first
//!                                              │ one exchange, under the poller's lock
//!   who waits  <── looks at each ── list ──────┘                                       oldest first
//! ```
//!
//! Everything that wakers write is one word. A waker that finds its item in the word, or the item's own word set, pushes nothing
//! new: the item is on its way, or on the list. It makes its exchange all the same. So whoever is about to take an item off the
//! list takes the word *first*, which clears the items' own words, and looks at the file *after* that: either the waker's
//! exchange came before, and the look sees what the waker saw; or it comes later, and the item is there anew.
//!
//! Who only puts on the list what is new leaves numbers in the word. As long as a level-triggered item stays ready its wakers
//! find it there, and who waits writes nothing.

use super::few;
use core::num::NonZeroU8;
use core::ptr::{self, NonNull};
use quietline_platform::atomic::{AtomicPtr, AtomicU32, Ordering};

const IDLE: u32 = 0;
const QUEUED: u32 = 1;

/// What an item has of this: the first thing in it. Used if its number does not fit, or if it has none.
#[derive(Debug)]
#[repr(align(8))]
pub(crate) struct Link {
    /// Whether the item is on the stack, or about to be.
    word: AtomicU32,
    /// What was pushed before: the next on the stack, or a few. Written by the one who has set the word, until the stack is
    /// taken.
    next: AtomicPtr<Link>,
}

impl Link {
    pub(crate) fn new() -> Self {
        Self { word: AtomicU32::new(IDLE), next: AtomicPtr::new(ptr::null_mut()) }
    }

    /// Says that the item is on the stack; whether it was not. The caller then pushes it.
    #[inline(always)]
    fn queue(&self) -> bool {
        // ORDERING: release: whoever clears the word after this sees what made the caller wake; acquire: the one who was
        // the last to clear it is done with the link. SeqCst for `wake_exchanged`, which follows.
        self.word.swap(QUEUED, Ordering::SeqCst) == IDLE
    }

    /// Says that it is not. After this somebody looks at the file.
    #[inline(always)]
    fn clear(&self) {
        // ORDERING: acquire: pairs with the release of the wakers that found the word set and therefore did nothing: the
        // look that follows sees what they saw. Release: the link is not the caller's any more. An exchange and
        // not a store, so that the next waker's continues what the ones before have released.
        self.word.swap(IDLE, Ordering::AcqRel);
    }
}

/// An item that was pushed.
#[derive(Debug)]
pub(crate) enum Pushed {
    Number(NonZeroU8),
    Link(NonNull<Link>),
}

/// What was pushed to a poller.
#[derive(Debug)]
pub(crate) struct Ready {
    pushed: AtomicPtr<Link>,
}

impl Ready {
    pub(crate) fn new() -> Self {
        Self { pushed: AtomicPtr::new(ptr::null_mut()) }
    }

    /// Pushes an item, unless it is there. `stays`: it is likely to be there. Writes the word's line; and, before that, the
    /// item's, if its number does not fit.
    ///
    /// # Safety
    /// The link stays where it is until the item has left this; its number is the item's, and nobody else's meanwhile.
    #[inline]
    pub(crate) unsafe fn push(&self, link: NonNull<Link>, number: Option<NonZeroU8>, stays: bool) {
        let mut head = ptr::null_mut();
        if let Some(number) = number {
            // A guess without a look: the exchange gets the line as it needs it, where a load would fetch it once more.
            if stays {
                head = few::one(number);
            }
            while let Some(with) = few::with(head, number) {
                // ORDERING: release: who takes the word sees what made the caller wake, also if the number was there; SeqCst for
                // `wake_exchanged`, which follows: a sleeper that has not been found in its queue finds this. Relaxed: a guess.
                match self.pushed.compare_exchange(head, with, Ordering::SeqCst, Ordering::Relaxed)
                {
                    Ok(_) => return,
                    Err(now) => head = now,
                }
            }
        }
        // SAFETY: by contract it lives.
        let own = unsafe { link.as_ref() };
        if !own.queue() {
            return;
        }
        loop {
            // Relaxed: published by the exchange.
            own.next.store(head, Ordering::Relaxed);
            // ORDERING: release publishes the link; SeqCst and Relaxed as above.
            match self.pushed.compare_exchange(
                head,
                link.as_ptr(),
                Ordering::SeqCst,
                Ordering::Relaxed,
            ) {
                Ok(_) => return,
                Err(now) => head = now,
            }
        }
    }

    /// Whether something was pushed, for those who do not hold the poller's lock.
    #[inline(always)]
    pub(crate) fn is_any(&self) -> bool {
        // ORDERING: acquire: who finds the word taken finds that somebody holds what was there, or what came of that. SeqCst
        // for those who have just entered a queue of the poller: pairs with the exchange in `push`.
        !self.pushed.load(Ordering::SeqCst).is_null()
    }

    /// Whether something was pushed, for the holder of the poller's lock.
    #[inline(always)]
    pub(crate) fn is_pushed(&self) -> bool {
        // Relaxed: a look; `take` orders. For one who is about to sleep, the fence of its queue comes before.
        !self.pushed.load(Ordering::Relaxed).is_null()
    }

    /// Calls `each` for the numbers that were pushed, first come first, and leaves them there: whether there were any. None if
    /// there may be more than numbers: then all is to be [taken](Self::take). For the holder of the poller's lock.
    #[inline(always)]
    pub(crate) fn note(&self, each: impl FnMut(NonZeroU8)) -> Option<bool> {
        // ORDERING: acquire pairs with the release in `push`: a look sees what the waker saw.
        let word = self.pushed.load(Ordering::Acquire);
        few::is_few(word).then(|| {
            few::each(word, each);
            !word.is_null()
        })
    }

    /// Whether an item with this number, or with none, may be here. For the holder of the poller's lock.
    pub(crate) fn may_have(&self, number: Option<NonZeroU8>) -> bool {
        // Relaxed: a look, after everybody who has pushed the item has been waited for.
        let word = self.pushed.load(Ordering::Relaxed);
        !few::is_few(word) || number.is_some_and(|number| few::has(word, number))
    }

    /// Takes what was pushed: calls `each` for every item, oldest first. For the holder of the poller's lock. After this the
    /// files are looked at.
    #[inline]
    pub(crate) fn take(&self, mut each: impl FnMut(Pushed)) {
        // ORDERING: acquire pairs with the release in `push`; release: who finds nothing here finds what the caller has said
        // before.
        let mut at = self.pushed.swap(ptr::null_mut(), Ordering::AcqRel);
        let mut turned = ptr::null_mut();
        while !few::is_few(at) {
            // SAFETY: not a few, so a link. Links on the stack live, and are the taker's from here on; until they are cleared
            // nobody else writes them. So below.
            let link = unsafe { &*at };
            // Relaxed, here and below: the exchange above has ordered it, or it is the taker's own.
            let next = link.next.load(Ordering::Relaxed);
            link.next.store(turned, Ordering::Relaxed);
            turned = core::mem::replace(&mut at, next);
        }
        few::each(at, |number| each(Pushed::Number(number)));
        while let Some(link) = NonNull::new(turned) {
            // SAFETY: as above; read before the link is given away.
            unsafe {
                turned = link.as_ref().next.load(Ordering::Relaxed);
                link.as_ref().clear();
            }
            each(Pushed::Link(link));
        }
    }
}
