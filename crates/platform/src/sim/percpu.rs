//! The per-CPU operations: each contract executed as one step of the virtual CPU, at the price of
//! plain accesses. Words of one CPU share lines, as they do natively.

use super::cpu::{MAX, current};
use super::machine::with;
use crate::FenceError;
use crate::percpu::Body;
use crate::percpu::area::Area;
use crate::percpu::locked::Locked;
use core::sync::atomic::{AtomicBool, Ordering};

pub(crate) use crate::percpu::step::{operate, operate_restartable};

/// The body in use.
pub fn active() -> Body {
    Body::Fallback
}

/// Returns `false`: every operation has one body here, whatever its name ends in.
pub fn is_fallback() -> bool {
    false
}

/// Returns the number of copies of each word.
pub(crate) fn copies() -> usize {
    MAX
}

/// Forks are noticed from now on; there is nothing else to decide.
pub(crate) fn decide() {
    crate::fork::watch();
}

/// Whether a thread outside any simulation has its turn. All such threads are on CPU 0.
static TURN: AtomicBool = AtomicBool::new(false);

struct Turn;

impl Turn {
    fn wait() -> Self {
        // ORDERING: pairs with the release in `drop`: a turn sees what was done in the one before.
        while TURN.compare_exchange(false, true, Ordering::Acquire, Ordering::Relaxed).is_err() {
            std::thread::yield_now();
        }
        Self
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        // ORDERING: pairs with the acquire in `wait`.
        TURN.store(false, Ordering::Release);
    }
}

/// In a forked child: ends the turn that another thread of the parent had. Its operation has
/// happened or has not, as natively.
pub(crate) fn abandon() {
    drop(Turn);
}

/// One operation.
pub(crate) fn step<const N: usize, R>(area: &Area<N>, f: impl FnOnce(Locked<'_>) -> R) -> R {
    if with(|machine| machine.step_begin()).is_some() {
        let result = f(Locked(area.copy(current())));
        with(|machine| machine.step_end());
        result
    } else {
        let _turn = Turn::wait();
        f(Locked(area.copy(0)))
    }
}

/// Has a price. There is nothing to wait for: a step is never seen half done.
pub(crate) fn fence() -> Result<(), FenceError> {
    if with(|machine| machine.fence_all()).is_none() {
        drop(Turn::wait());
    }
    Ok(())
}
