//! How to wait for a lock whose holder will not wake us.
#![cfg_attr(loom, allow(dead_code))]

use core::time::Duration;
use quietline_platform::thread;
#[cfg(not(loom))]
use quietline_platform::{atomic::AtomicU32, futex, hint};

/// A busy wait of bounded length: processor hints between looks.
///
/// In the model it lasts until the condition comes true, and lets other threads run; with
/// [`model_sleeps`] it is over at once.
#[derive(Debug)]
pub(crate) struct Spin {
    /// Hints given so far.
    given: u32,
    budget: u32,
    /// The most hints between two looks.
    stride: u32,
}

/// The most hints between two looks at a line that others use meanwhile.
const STRIDE: u32 = 32;

impl Spin {
    /// Creates a busy wait that looks again after each of `budget` hints.
    pub(crate) const fn eager(budget: u32) -> Self {
        Self { given: 0, budget, stride: 1 }
    }

    /// Creates a busy wait that looks less and less often, because each look takes the line from
    /// another CPU.
    pub(crate) const fn polite(budget: u32) -> Self {
        Self { given: 0, budget, stride: STRIDE }
    }

    /// Gives some hints. Returns `false`, without waiting, once the budget is spent.
    pub(crate) fn again(&mut self) -> bool {
        if self.given >= self.budget {
            return false;
        }
        #[cfg(loom)]
        if sleeps() {
            return false;
        } else {
            thread::yield_now();
            return true;
        }
        #[cfg(not(loom))]
        {
            let hints = (self.given + 1).min(self.stride).min(self.budget - self.given);
            for _ in 0..hints {
                hint::spin_loop();
            }
            self.given += hints;
            true
        }
    }
}

#[cfg(loom)]
std::thread_local! {
    /// All threads of a model run on one thread of the host.
    static SLEEPS: core::cell::Cell<bool> = const { core::cell::Cell::new(false) };
}

#[cfg(loom)]
pub(crate) fn sleeps() -> bool {
    SLEEPS.get()
}

/// Makes waiters of [`SpinLock`](crate::SpinLock) fall asleep in the models of this thread. Without
/// it they only spin, so that models of what uses the lock have few orders to try.
#[cfg(loom)]
#[doc(hidden)]
pub fn model_sleeps() {
    SLEEPS.set(true);
}

/// Hints before the CPU is given up: some 5 to 20 microseconds, about what a sleep and a wake-up
/// cost.
const SPINS: u32 = 400;

/// Waits longer the more often it is asked: a few processor hints, then the CPU offered to others, then a timed
/// sleep. In the model it only lets other threads run.
///
/// A lock that is released by a plain store cannot know whether anyone sleeps, so nobody wakes this waiter; it wakes
/// by itself, within [`SLEEP_MAX`].
#[derive(Debug)]
pub(crate) struct Backoff {
    spin: Spin,
    /// Waits after the busy one.
    round: u32,
}

/// Waits after these that offer the CPU: a holder that lost its CPU to us gets it back.
const YIELDS: u32 = 16;
/// The first sleep; each further one is twice as long.
const SLEEP_MIN: Duration = Duration::from_micros(50);
/// The longest sleep, and so the longest time that a free lock goes unnoticed.
const SLEEP_MAX: Duration = Duration::from_millis(1);

impl Backoff {
    /// For the only waiter on a line: looks again after each hint.
    pub(crate) fn alone() -> Self {
        Self { spin: Spin::eager(SPINS), round: 0 }
    }

    /// For one of many waiters on a line: looks less and less often, as each look takes the line from others.
    pub(crate) fn crowd() -> Self {
        Self { spin: Spin::polite(SPINS), round: 0 }
    }

    /// Waits a while.
    pub(crate) fn wait(&mut self) {
        #[cfg(loom)]
        return thread::yield_now();
        #[cfg(not(loom))]
        if !self.spin.again() {
            self.doze();
        }
    }

    /// Gives up the CPU for a while.
    #[cfg(not(loom))]
    fn doze(&mut self) {
        if self.round < YIELDS {
            thread::yield_now();
        } else {
            // Nobody knows this word, so nobody wakes the sleeper but the clock.
            let word = AtomicU32::new(0);
            let doubled = SLEEP_MIN * (1 << (self.round - YIELDS));
            futex::wait(&word, 0, Some(SLEEP_MAX.min(doubled)));
        }
        self.round = (self.round + 1).min(YIELDS + 8);
    }
}
