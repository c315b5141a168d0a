//! The share of a thread in the callbacks that are due.
//!
//! A thread that fills a batch of callbacks may hold any lock and any section, so it only notes how
//! much it has queued. It runs its share later, where it holds none.

use super::Domain;
use core::cell::Cell;

#[cfg(not(loom))]
quietline_platform::thread_local! {
    /// Objects in the batches that the thread has filled since it last ran its share.
    static QUEUED: Cell<i64> = const { Cell::new(0) };
}
#[cfg(loom)]
quietline_platform::thread_local! {
    static QUEUED: Cell<i64> = Cell::new(0);
}

/// Notes that the thread has filled a batch.
pub(super) fn add(queued: i64) {
    // A thread whose thread-local storage is gone leaves its share to others.
    let _ = QUEUED.try_with(|sum| sum.set(sum.get().saturating_add(queued)));
}

/// Returns whether the calling thread has a share to run with [`run_pending`]. A load of a
/// thread-local variable.
#[inline(always)]
pub fn is_pending() -> bool {
    QUEUED.try_with(Cell::get).is_ok_and(|queued| queued != 0)
}

/// Runs the calling thread's share of the callbacks of these domains: up to twice as many as it has
/// queued in full batches since the last time. Moves grace periods on. Waits, up to ten
/// milliseconds, in a domain with more than [`Domain::backlog_limit`] queued.
///
/// The caller holds no lock that a callback may take, and has no section of the domains open.
#[cold]
#[inline(never)]
pub fn run_pending(domains: &[&Domain]) {
    let queued = QUEUED.try_with(|queued| queued.replace(0)).unwrap_or(0);
    if queued != 0 {
        domains.iter().for_each(|domain| domain.run_share(queued));
    }
}
