//! Faults on demand, for tests: allocations that fail, and fences that the kernel refuses.
//!
//! Every fallible allocation of the library (pages, per-CPU words, heap objects) asks [`check`] first. A test
//! arms the calling thread with [`fail_nth`] and walks n upwards until nothing fails any more: each allocation
//! of the code under test has then failed once.

use crate::{AllocError, FenceError};
use std::cell::Cell;

thread_local! {
    /// Allocations until the failing one, 0 while disarmed; and whether all after it fail too.
    static COUNTDOWN: Cell<(u64, bool)> = const { Cell::new((0, false)) };

    /// Fences that are let through, and fences after those that are refused.
    static FENCES: Cell<(u64, u64)> = const { Cell::new((0, 0)) };
}

/// Refuses `count` [fences](crate::percpu::Words::fence) of this thread, after `skipped` that are
/// let through. (Under loom, whose threads share thread-local storage, fences of the whole model.)
pub fn refuse_fences(skipped: u64, count: u64) {
    FENCES.set((skipped, count));
}

/// Called before each fence.
///
/// # Errors
/// [`FenceError`] when this is a fence that was chosen to be refused.
pub(crate) fn check_fence() -> Result<(), FenceError> {
    // A thread whose thread-local storage is already gone is not under test.
    let refused = FENCES.try_with(|fences| {
        let (skipped, count) = fences.get();
        fences.set(if skipped > 0 { (skipped - 1, count) } else { (0, count.saturating_sub(1)) });
        skipped == 0 && count > 0
    });
    if refused.unwrap_or(false) { Err(FenceError) } else { Ok(()) }
}

/// Makes the `nth` fallible allocation from now on by this thread fail (1 is the next one). 0 disarms.
pub fn fail_nth(nth: u64) {
    COUNTDOWN.set((nth, false));
}

/// Makes the `nth` fallible allocation from now on by this thread fail, and all after it, until
/// [`fail_nth`]`(0)` disarms: what code that makes do with less must survive in the end. Stays armed.
pub fn fail_from(nth: u64) {
    COUNTDOWN.set((nth, true));
}

/// Whether an armed fault has not fired yet.
pub fn armed() -> bool {
    COUNTDOWN.get().0 != 0
}

/// Called before each fallible allocation.
///
/// # Errors
/// [`AllocError`] when this is the allocation that was chosen to fail.
#[inline]
pub fn check() -> Result<(), AllocError> {
    // A thread whose thread-local storage is already gone is not under test.
    COUNTDOWN
        .try_with(|c| match c.get() {
            (0, _) => Ok(()),
            (1, for_good) => {
                if !for_good {
                    c.set((0, false));
                }
                Err(AllocError)
            }
            (n, for_good) => {
                c.set((n - 1, for_good));
                Ok(())
            }
        })
        .unwrap_or(Ok(()))
}
