//! The line at which the threads of a sample wait for each other.

use quietline_platform::atomic::{AtomicU64, Ordering};
use quietline_platform::{hint, thread};

/// A barrier that is met once per sample by a fixed number of threads.
///
/// It spins, because a thread woken from sleep would start tens of microseconds late; after a while it
/// yields, because there may be more threads than CPUs.
#[derive(Debug)]
pub(super) struct StartLine {
    threads: u64,
    arrivals: AtomicU64,
}

/// Spins before the first yield: some microseconds.
const SPINS: u32 = 2_000;

impl StartLine {
    pub(super) fn new(threads: usize) -> Self {
        Self { threads: threads as u64, arrivals: AtomicU64::new(0) }
    }

    /// Waits until every thread has called this `sample + 1` times. `sample` counts from 0 and is the same
    /// for all threads of a sample.
    pub(super) fn wait(&self, sample: u64) {
        let goal = self.threads * (sample + 1);
        // Nothing is ordered by these: the threads' data reached them over their channels, and a thread that
        // sees the count late starts late, no more.
        let mut arrivals = self.arrivals.fetch_add(1, Ordering::Relaxed) + 1;
        let mut spins = 0;
        while arrivals < goal {
            if spins < SPINS {
                spins += 1;
                hint::spin_loop();
            } else {
                thread::yield_now();
            }
            arrivals = self.arrivals.load(Ordering::Relaxed);
        }
    }
}
