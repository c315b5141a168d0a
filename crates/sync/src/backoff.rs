//! How to wait for a lock whose holder will not wake us.

use quietline_platform::thread;

#[cfg(not(loom))]
use core::time::Duration;
#[cfg(not(loom))]
use quietline_platform::{atomic::AtomicU32, futex, hint};

/// Waits longer the more often it is asked: a few processor hints, then the CPU offered to others, then a timed
/// sleep.
///
/// A lock that is released by a plain store cannot know whether anyone sleeps, so nobody wakes this waiter; it wakes
/// by itself, within [`SLEEP_MAX`].
#[derive(Debug)]
pub(crate) struct Backoff {
    /// Hints given so far, and after [`SPINS`] of them the waits.
    #[cfg(not(loom))]
    step: u32,
    /// The most hints between two looks.
    #[cfg(not(loom))]
    stride: u32,
}

/// Hints before the CPU is given up: some 5 to 10 microseconds, about what a sleep and a wake-up cost.
#[cfg(not(loom))]
const SPINS: u32 = 400;
/// Waits after these that offer the CPU: a holder that lost its CPU to us gets it back.
#[cfg(not(loom))]
const YIELDS: u32 = 16;
/// The first sleep; each further one is twice as long.
#[cfg(not(loom))]
const SLEEP_MIN: Duration = Duration::from_micros(50);
/// The longest sleep, and so the longest time that a free lock goes unnoticed.
#[cfg(not(loom))]
const SLEEP_MAX: Duration = Duration::from_millis(1);

#[cfg(not(loom))]
impl Backoff {
    /// For the only waiter on a line: looks again after each hint.
    pub(crate) fn alone() -> Self {
        Self { step: 0, stride: 1 }
    }

    /// For one of many waiters on a line: looks less and less often, as each look takes the line from others.
    pub(crate) fn crowd() -> Self {
        Self { step: 0, stride: 32 }
    }

    /// Waits a while.
    pub(crate) fn wait(&mut self) {
        if !self.spin() {
            self.doze();
        }
    }

    /// Waits a while without giving up the CPU; false, without waiting, once the budget for that is spent.
    pub(crate) fn spin(&mut self) -> bool {
        if self.step >= SPINS {
            return false;
        }
        let hints = (self.step + 1).min(self.stride).min(SPINS - self.step);
        for _ in 0..hints {
            hint::spin_loop();
        }
        self.step += hints;
        true
    }

    /// Gives up the CPU for a while.
    fn doze(&mut self) {
        let round = self.step - SPINS;
        if round < YIELDS {
            thread::yield_now();
        } else {
            // Nobody knows this word, so nobody wakes the sleeper but the clock.
            let word = AtomicU32::new(0);
            futex::wait(&word, 0, Some(SLEEP_MAX.min(SLEEP_MIN * (1 << (round - YIELDS)))));
        }
        self.step = (self.step + 1).min(SPINS + YIELDS + 8);
    }
}

/// In the model all waiting is to let other threads run.
#[cfg(loom)]
impl Backoff {
    pub(crate) fn alone() -> Self {
        Self {}
    }

    pub(crate) fn crowd() -> Self {
        Self {}
    }

    pub(crate) fn wait(&mut self) {
        thread::yield_now();
    }
}
