//! Entries of a lock's queue.

use core::ptr;

use quietline_platform::atomic::{AtomicPtr, AtomicU32, Ordering};
#[cfg(loom)]
use quietline_platform::cell::UnsafeCell;
use quietline_platform::thread;

use super::parking;
use super::queue::SPINS;
use crate::backoff::Spin;

/// A queue entry, on the stack of its thread.
pub(super) struct Waiter {
    pub(super) next: AtomicPtr<Waiter>,
    turn: AtomicU32,
    /// Written by the owner when the entry begins and ends, read by other threads that use it. The
    /// model thereby checks that all use lies in between.
    #[cfg(loom)]
    life: UnsafeCell<()>,
}

/// [`Waiter::turn`]: an entry is ahead, and this waiter spins.
const QUEUED: u32 = 0;
/// [`Waiter::turn`]: an entry is ahead, and this waiter sleeps or is about to.
const ASLEEP: u32 = 1;
/// [`Waiter::turn`]: the thread ahead is waking this waiter and still uses its entry.
const WAKING: u32 = 2;
/// [`Waiter::turn`]: this is the head. No other thread uses the entry.
const HEAD: u32 = 3;

impl Waiter {
    pub(super) fn new() -> Self {
        Self {
            next: AtomicPtr::new(ptr::null_mut()),
            turn: AtomicU32::new(QUEUED),
            #[cfg(loom)]
            life: UnsafeCell::new(()),
        }
    }

    /// Marks the beginning or the end of the entry, for the model.
    #[inline(always)]
    pub(super) fn begins_or_ends(&self) {
        #[cfg(loom)]
        self.life.with_mut(|_| ());
    }

    /// Marks a use by another thread, for the model.
    #[inline(always)]
    pub(super) fn is_used(&self) {
        #[cfg(loom)]
        self.life.with(|_| ());
    }

    /// Returns whether the waiter sleeps in [`wait_for_turn`](Self::wait_for_turn).
    pub(super) fn is_asleep(&self) -> bool {
        // Relaxed: a hint.
        self.turn.load(Ordering::Relaxed) == ASLEEP
    }

    /// Waits until the waiter is the head: spins a while unless `sleep_at_once`, then sleeps.
    pub(super) fn wait_for_turn(&self, sleep_at_once: bool) {
        let mut spin = Spin::eager(if sleep_at_once { 0 } else { SPINS });
        loop {
            // ORDERING: pairs with the Release stores of make_head. HEAD: its use of this entry is
            // over. Any other value: it may still come.
            match self.turn.load(Ordering::Acquire) {
                HEAD => return,
                QUEUED if spin.again() => {}
                QUEUED => {
                    // Relaxed: the sleeper publishes nothing. A failure means that the turn has
                    // just come.
                    let _ = self.turn.compare_exchange(
                        QUEUED,
                        ASLEEP,
                        Ordering::Relaxed,
                        Ordering::Relaxed,
                    );
                }
                ASLEEP => parking::wait(&self.turn, ASLEEP, None),
                // WAKING: the thread ahead is in the wake-up call, and about to store HEAD.
                _ => thread::yield_now(),
            }
        }
    }

    /// Makes this waiter the head, and wakes it if it sleeps. Its entry may be gone as soon as HEAD
    /// is stored.
    pub(super) fn make_head(&self) {
        // ORDERING: Release, here and below, pairs with the Acquire in wait_for_turn: all use of
        // the entry (the load of its fields, the wake-up) is over when the waiter goes on. Failure:
        // it sleeps, nothing is ordered yet.
        if self.turn.compare_exchange(QUEUED, HEAD, Ordering::Release, Ordering::Relaxed).is_err() {
            // Relaxed: only keeps the sleeper from sleeping again; HEAD follows.
            self.turn.store(WAKING, Ordering::Relaxed);
            parking::wake_raw(ptr::from_ref(&self.turn).cast(), 1);
            self.turn.store(HEAD, Ordering::Release); // ORDERING: as above.
        }
    }
}
