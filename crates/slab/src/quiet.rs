//! Whether a thread is where RCU callbacks may not be run: in an allocation, or where it reclaims what is not its own.
//!
//! Callbacks are users' code and may take users' locks, which the caller of an allocation may hold. What is given up here
//! to wait for a grace period is only queued.

use core::cell::Cell;

quietline_platform::thread_local! {
    static DEPTH: Cell<usize> = const { Cell::new(0) };
}

/// Callbacks are not run by this thread until it is dropped.
pub(crate) struct Quiet(());

pub(crate) fn begin() -> Quiet {
    let _ = DEPTH.try_with(|depth| depth.set(depth.get() + 1));
    Quiet(())
}

/// So it is for threads whose thread-local storage is gone.
pub(crate) fn is_on() -> bool {
    DEPTH.try_with(Cell::get).unwrap_or(1) > 0
}

impl Drop for Quiet {
    fn drop(&mut self) {
        let _ = DEPTH.try_with(|depth| depth.set(depth.get() - 1));
    }
}
