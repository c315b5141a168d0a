//! Faults on demand, for tests: allocations that fail, and fences that the kernel refuses.
//!
//! Every fallible allocation of the library (pages, per-CPU words, heap objects) asks [`check`] first. A test
//! arms the calling thread with [`fail_nth`] and walks n upwards until nothing fails any more: each allocation
//! of the code under test has then failed once.

use crate::{AllocError, FenceError};
use std::cell::Cell;

thread_local! {
    /// Allocations until the failing one; 0 is "disarmed".
    static COUNTDOWN: Cell<u64> = const { Cell::new(0) };

    /// Whether all allocations after the failing one fail too.
    static FOR_GOOD: Cell<bool> = const { Cell::new(false) };

    /// Fences that are let through, and fences after those that are refused.
    static FENCES: Cell<(u64, u64)> = const { Cell::new((0, 0)) };
}

/// Refuses `count` [fences](crate::percpu::Words::fence) of this thread, after `skipped` that are
/// let through. (Under loom, whose threads share thread-local storage, fences of the whole model.)
pub fn refuse_fences(skipped: u64, count: u64) {
    FENCES.with(|fences| fences.set((skipped, count)));
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
    FOR_GOOD.with(|g| g.set(false));
    COUNTDOWN.with(|c| c.set(nth));
}

/// Makes the `nth` fallible allocation from now on by this thread fail, and all after it, until
/// [`fail_nth`]`(0)` disarms: what code that makes do with less must survive in the end. Stays armed.
pub fn fail_from(nth: u64) {
    FOR_GOOD.with(|g| g.set(true));
    COUNTDOWN.with(|c| c.set(nth));
}

/// Whether an armed fault has not fired yet.
pub fn armed() -> bool {
    COUNTDOWN.with(|c| c.get() != 0)
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
            0 => Ok(()),
            1 => {
                if !FOR_GOOD.with(Cell::get) {
                    c.set(0);
                }
                Err(AllocError)
            }
            n => {
                c.set(n - 1);
                Ok(())
            }
        })
        .unwrap_or(Ok(()))
}
