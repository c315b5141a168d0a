//! Turns of threads that are outside any simulation.

use core::sync::atomic::{AtomicBool, Ordering};

static TAKEN: AtomicBool = AtomicBool::new(false);

/// A thread's turn, until it is dropped.
pub(super) struct Turn(());

/// Waits for its turn.
pub(super) fn enter() -> Turn {
    // ORDERING: pairs with the release in `drop`: who gets a turn sees what was done in the one before.
    while TAKEN.compare_exchange(false, true, Ordering::Acquire, Ordering::Relaxed).is_err() {
        std::thread::yield_now();
    }
    Turn(())
}

impl Drop for Turn {
    fn drop(&mut self) {
        // ORDERING: pairs with the acquire in `enter`.
        TAKEN.store(false, Ordering::Release);
    }
}

/// In a forked child: ends the turn that another thread of the parent had. Its operation has happened or has not, as
/// natively.
pub(super) fn abandon() {
    drop(Turn(()));
}
