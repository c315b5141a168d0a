//! Debug builds: the number of read-side critical sections that the calling thread has open, in all
//! domains.
//!
//! A thread that sleeps inside a section keeps memory of every user of the domain from being
//! freed. So a wait queue [asserts](assert_none) that a thread about to sleep has no section open.
//! Release builds do not count.
//!
//! A guard counts for the thread that opens the section. Once another thread has dropped a guard,
//! the counts are no longer exact, and the program asserts nothing.

use core::cell::Cell;
use quietline_platform::atomic::{AtomicBool, Ordering};

quietline_platform::thread_local! {
    static OPEN: Cell<usize> = const { Cell::new(0) };
}

/// Whether a guard was dropped by a thread that did not open its section.
static MOVED: AtomicBool = AtomicBool::new(false);

/// Counts a section that the calling thread opens.
#[inline]
pub(super) fn enter() {
    // Not while the thread's storage is torn down.
    let _ = OPEN.try_with(|open| open.set(open.get() + 1));
}

/// Counts a section that the calling thread leaves.
#[inline]
pub(super) fn leave() {
    let _ = OPEN.try_with(|open| match open.get().checked_sub(1) {
        Some(left) => open.set(left),
        // Relaxed: only a switch of an assertion.
        None => MOVED.store(true, Ordering::Relaxed),
    });
}

/// Asserts that the calling thread has no read-side critical section open.
///
/// # Panics
/// If it has one.
#[track_caller]
pub(crate) fn assert_none() {
    let open = OPEN.try_with(Cell::get).unwrap_or(0);
    // Relaxed: as above.
    if open > 0 && !MOVED.load(Ordering::Relaxed) {
        panic!(
            "a thread sleeps inside {open} read-side critical section(s), and RCU frees nothing"
        );
    }
}
