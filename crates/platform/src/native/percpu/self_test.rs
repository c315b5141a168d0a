//! Does the kernel restart what it interrupts?
//!
//! A sequence that goes on after an interruption loses updates silently. So where kernels are known that do this,
//! one sequence is tried out before any is relied on: a helper thread enters it and turns in a circle there, while
//! this thread asks, by `membarrier`, for every sequence in flight to be restarted.

use super::rseq;
use core::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::thread;
use std::time::{Duration, Instant};

/// How long a kernel may take to restart a sequence; it takes microseconds.
const PATIENCE: Duration = Duration::from_millis(250);

/// Whether a sequence is restarted; `offset` returns the offset of the calling thread's area. Costs a
/// thread and some ten microseconds where it is, and [`PATIENCE`] where it is not.
pub(super) fn restarts(offset: impl Fn() -> Option<isize> + Sync) -> bool {
    // A refused barrier restarts nothing, and the sequence is then taken for one that is not
    // restarted.
    let disturb = || {
        let _ = crate::membarrier::rseq();
    };
    restarts_by(disturb, |entered, leave| {
        let Some(o) = offset() else { return false };
        // SAFETY: `o` is the offset of this thread's registered area; the words outlive the call.
        unsafe { rseq::until_restarted(o, entered.as_ptr(), leave.as_ptr()) }
    })
}

/// Whether `run`, on a thread of its own, returns true while `disturb` is called again and again. `run` sets its
/// first word on entry, and returns when its second one is set.
pub(super) fn restarts_by(
    disturb: fn(),
    run: impl Fn(&AtomicU32, &AtomicU32) -> bool + Sync,
) -> bool {
    let (entered, leave) = (AtomicU32::new(0), AtomicU32::new(0));
    thread::scope(|scope| {
        let Ok(helper) = thread::Builder::new().spawn_scoped(scope, || run(&entered, &leave))
        else {
            // Not known to work.
            return false;
        };
        // Relaxed throughout: the words are flags, and nothing is published by them.
        while entered.load(Relaxed) == 0 && !helper.is_finished() {
            thread::yield_now();
        }
        let start = Instant::now();
        while !helper.is_finished() && start.elapsed() < PATIENCE {
            disturb();
            thread::yield_now();
        }
        leave.store(1, Relaxed);
        helper.join().unwrap_or(false)
    })
}
