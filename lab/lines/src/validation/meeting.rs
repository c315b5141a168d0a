//! Where threads meet before a round: all leave at once, each running on its CPU. A barrier that sleeps would let one begin
//! while another is still being woken.

use std::sync::atomic::{AtomicUsize, Ordering};

/// Turns of waiting before a thread lets others have its CPU.
const SPINS: u32 = 10_000;

/// A meeting of so many threads, again and again.
pub(super) struct Meeting {
    of: usize,
    came: AtomicUsize,
}

impl Meeting {
    pub(super) fn new(of: usize) -> Self {
        Self { of, came: AtomicUsize::new(0) }
    }

    /// Comes, and waits for the others.
    pub(super) fn wait(&self) {
        // ORDERING: pairs with itself and the loads below: what anybody did before the meeting, all see after it.
        let place = self.came.fetch_add(1, Ordering::AcqRel);
        let last = place - place % self.of + self.of;
        let mut spins = 0;
        // ORDERING: as above.
        while self.came.load(Ordering::Acquire) < last {
            if spins < SPINS {
                spins += 1;
                std::hint::spin_loop();
            } else {
                std::thread::yield_now();
            }
        }
    }
}
