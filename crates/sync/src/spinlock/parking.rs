//! Sleeping on a word: by futex on the machine, by a condition variable in the model.

#[cfg(not(loom))]
pub(super) use quietline_platform::futex::{wait, wake_raw};

#[cfg(loom)]
pub(super) use model::{wait, wake_raw};

/// A futex of the model. A sleep without a time limit blocks the model's thread, so that the model
/// reports a lost wake-up as a deadlock.
#[cfg(loom)]
mod model {
    use core::time::Duration;
    use loom::sync::{Condvar, Mutex};
    use quietline_platform::atomic::{AtomicU32, Ordering};
    use quietline_platform::thread;

    loom::lazy_static! {
        static ref SLEEPERS: (Mutex<()>, Condvar) = (Mutex::new(()), Condvar::new());
    }

    pub(in super::super) fn wait(word: &AtomicU32, expect: u32, timeout: Option<Duration>) {
        if timeout.is_some() {
            return thread::yield_now();
        }
        let guard = SLEEPERS.0.lock().expect("no model thread panics");
        // Relaxed: as the kernel reads. An addition, because the kernel reads the newest value.
        if word.fetch_add(0, Ordering::Relaxed) == expect {
            drop(SLEEPERS.1.wait(guard));
        }
    }

    /// Wakes all sleepers on all words. A wake-up without cause is part of the contract.
    pub(in super::super) fn wake_raw(_word: *const u32, _n: u32) {
        let _guard = SLEEPERS.0.lock().expect("no model thread panics");
        SLEEPERS.1.notify_all();
    }
}
