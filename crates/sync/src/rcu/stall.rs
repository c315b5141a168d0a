//! Stall reports: a grace period that does not end has a reader that does not leave.

use super::Domain;
use quietline_platform::atomic::{AtomicUsize, Ordering};
use quietline_platform::clock;
use std::time::Duration;

/// How long a waiter waits before it reports, and between reports.
const PATIENCE: Duration = Duration::from_secs(10);

/// What is known about a grace period that does not end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Stall {
    /// How long this waiter has waited.
    pub waited: Duration,
    /// Read sections that are open, in both editions.
    pub open_sections: u64,
}

type Handler = fn(&Stall);

static HANDLER: AtomicUsize = AtomicUsize::new(0);

/// Calls `handler` from the waiting thread when a grace period has not ended for ten seconds, and every ten seconds
/// after that, instead of writing a line to standard error.
pub fn set_stall_handler(handler: Handler) {
    // Relaxed: the pointer is to code, which is there already.
    HANDLER.store(handler as usize, Ordering::Relaxed);
}

fn report(stall: &Stall) {
    // Relaxed: see `set_stall_handler`.
    match HANDLER.load(Ordering::Relaxed) {
        0 => eprintln!(
            "quietline: RCU stall: {} read section(s) have kept a grace period waiting for {} s; look for a guard \
             that is held while its thread sleeps, or a synchronize inside a read section",
            stall.open_sections,
            stall.waited.as_secs()
        ),
        // SAFETY: only `set_stall_handler` writes the word, always with a Handler.
        handler => unsafe { core::mem::transmute::<usize, Handler>(handler)(stall) },
    }
}

/// A waiter's watch.
pub(super) struct Watch {
    began: Option<Duration>,
    reports: u32,
}

impl Watch {
    pub(super) fn new() -> Self {
        Self { began: None, reports: 0 }
    }

    /// Reports if it is time to.
    pub(super) fn look(&mut self, domain: &Domain) {
        let now = clock::monotonic();
        let waited = now.saturating_sub(*self.began.get_or_insert(now));
        if waited >= PATIENCE * (self.reports + 1) {
            self.reports += 1;
            report(&Stall { waited, open_sections: domain.open_sections() });
        }
    }
}

impl Domain {
    /// Read sections that are open now: exact when nobody enters or leaves meanwhile.
    pub fn open_sections(&self) -> u64 {
        (0..super::WORDS)
            .step_by(super::PER_EDITION)
            .map(|entered| self.readers.sum(entered).wrapping_sub(self.readers.sum(entered + 1)) as i64)
            .filter(|open| *open > 0)
            .sum::<i64>() as u64
    }
}
