//! Notes of work that waits: batches that a thread has filled, and domains with too much queued.
//!
//! A thread that fills a batch of callbacks may hold any lock and any section, so it only notes the
//! domain. It runs its share of the domain's callbacks later, where it holds none.

use super::Domain;
use super::run;
use core::cell::Cell;
// In a model too a variable of the process, whose value decides nothing but when work is done.
use core::sync::atomic::{AtomicU64, Ordering};

#[cfg(not(loom))]
quietline_platform::thread_local! {
    /// Domains of which the thread has filled a batch since it last ran its share.
    static FILLED: Cell<u64> = const { Cell::new(0) };
}
#[cfg(loom)]
quietline_platform::thread_local! {
    static FILLED: Cell<u64> = Cell::new(0);
}

/// Domains with more than [`Domain::backlog_limit`] queued. Written where a domain passes its limit.
static OVER_LIMIT: AtomicU64 = AtomicU64::new(0);

/// Returns the bit of a new domain in the notes. From 65 domains on some share one.
pub(super) fn new_bit() -> u64 {
    static DOMAINS: AtomicU64 = AtomicU64::new(0);
    // Relaxed: a number.
    1 << (DOMAINS.fetch_add(1, Ordering::Relaxed) % u64::BITS as u64)
}

/// Notes that the thread has filled a batch of the domain.
pub(super) fn note_filled(bit: u64) {
    // A thread whose thread-local storage is gone leaves its share to others.
    let _ = FILLED.try_with(|filled| filled.set(filled.get() | bit));
}

/// Notes whether the domain has more queued than its limit. The line is written on a change only.
pub(super) fn note_over_limit(bit: u64, over: bool) {
    // Relaxed, here and in `is_pending`: a hint. If two threads differ, the next full batch sets it.
    if over != (OVER_LIMIT.load(Ordering::Relaxed) & bit != 0) {
        if over {
            OVER_LIMIT.fetch_or(bit, Ordering::Relaxed);
        } else {
            OVER_LIMIT.fetch_and(!bit, Ordering::Relaxed);
        }
    }
}

/// A set of domains, for a fast look at whether [`run_pending`] has work in them. Of more than 64
/// domains in a process, a set also stands for others.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DomainSet(u64);

impl DomainSet {
    /// Returns the set of these domains.
    pub fn new(domains: &[&Domain]) -> Self {
        Self(domains.iter().fold(0, |bits, domain| bits | domain.callbacks.bit))
    }

    /// Returns whether the calling thread has filled a batch of one of the domains since it last
    /// ran its share, or one of them has more than [`Domain::backlog_limit`] queued. Loads a
    /// thread-local variable and a line that is written where a domain passes its limit.
    #[inline(always)]
    pub fn is_pending(self) -> bool {
        let filled = FILLED.try_with(Cell::get).unwrap_or(0);
        (filled | OVER_LIMIT.load(Ordering::Relaxed)) & self.0 != 0
    }
}

impl Domain {
    /// Returns whether the calling thread has callbacks to run with [`run_pending`]: see
    /// [`DomainSet::is_pending`].
    #[inline]
    pub fn is_pending(&self) -> bool {
        DomainSet(self.callbacks.bit).is_pending()
    }
}

/// Runs the calling thread's share of the callbacks of these domains: the callbacks of its CPU that
/// are due, of [`SHARE`](super::SHARE) objects in each domain of which it has filled a batch since
/// the last time. Moves grace periods on. In a domain with more than [`Domain::backlog_limit`]
/// queued, it also runs those of other CPUs, and waits for a grace period, up to ten milliseconds,
/// if the thread has filled a batch.
///
/// The caller holds no lock that a callback may take, and has no section of the domains open. Does
/// nothing inside a callback.
#[cold]
#[inline(never)]
pub fn run_pending(domains: &[&Domain]) {
    if run::is_inside_callback() {
        return;
    }
    let set = DomainSet::new(domains).0;
    let filled = FILLED.try_with(|filled| filled.replace(filled.get() & !set)).unwrap_or(0);
    for domain in domains {
        domain.run_share(filled & domain.callbacks.bit != 0);
    }
}
