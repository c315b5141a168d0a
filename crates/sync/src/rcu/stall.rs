//! Stall reports: a grace period that does not end has a reader that does not leave.

use super::callbacks::contain;
use super::{Domain, PER_GENERATION, PER_INDEX};
use core::ptr;
use quietline_platform::atomic::{AtomicBool, AtomicPtr, AtomicU64, Ordering};
use quietline_platform::clock;
use std::io::Write;
use std::time::Duration;

/// How long a grace period may last before it is reported, and between reports.
const PATIENCE: Duration = Duration::from_secs(10);

/// Bits that hold the number of reports about one grace period. The other bits hold microseconds,
/// which wrap after 200 days.
const REPORT_BITS: u32 = 20;
const MOST_REPORTS: u64 = (1 << REPORT_BITS) - 1;

/// Microseconds of the monotonic clock.
fn now() -> u64 {
    clock::monotonic().as_micros() as u64
}

/// What is known about a grace period that does not end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Stall {
    /// How long the grace period has lasted.
    pub waited: Duration,
    /// Read sections that are open, at both indices.
    pub open_sections: u64,
    /// Whether the kernel refused the barrier that the grace period needs, when a thread last asked
    /// for it. The grace period goes on when a thread comes by to which it is allowed.
    pub fence_refused: bool,
}

type Handler = fn(&Stall);

static HANDLER: AtomicPtr<()> = AtomicPtr::new(ptr::null_mut());

/// Calls `handler`, from a thread that waits, when a grace period has not ended for ten seconds, and every ten seconds
/// after that, instead of writing a line to standard error. Of all who wait for it one reports.
pub fn set_stall_handler(handler: Handler) {
    // Relaxed: the pointer is to code, which is there already.
    HANDLER.store(handler as *mut (), Ordering::Relaxed);
}

#[cold]
fn report(stall: &Stall) {
    // Relaxed: see `set_stall_handler`.
    let handler = HANDLER.load(Ordering::Relaxed);
    if handler.is_null() && stall.fence_refused {
        let _ = writeln!(
            std::io::stderr(),
            "quietline: RCU stall: for {:.1} s the kernel has refused membarrier, which a grace \
             period needs; allow it in the seccomp filters of all threads",
            stall.waited.as_secs_f64()
        );
    } else if handler.is_null() {
        // Nobody can be told that standard error is gone.
        let _ = writeln!(
            std::io::stderr(),
            "quietline: RCU stall: {} read section(s) have kept a grace period waiting for {:.1} s; look for a guard \
             that is held while its thread sleeps, or a synchronize inside a read section",
            stall.open_sections,
            stall.waited.as_secs_f64()
        );
    } else {
        // SAFETY: only `set_stall_handler` writes the pointer, always from a Handler.
        let handler = unsafe { core::mem::transmute::<*mut (), Handler>(handler) };
        // A panic would end the wait for a grace period before its time.
        contain(|| handler(stall));
    }
}

/// What a domain remembers of the grace period that began last.
#[derive(Debug)]
pub(super) struct Watch {
    /// The time of its beginning, in microseconds of the monotonic clock, and in the low
    /// [`REPORT_BITS`] the number of reports about it. In one word: a report counts for the grace
    /// period whose beginning it has measured from.
    began: AtomicU64,
    /// Nanoseconds.
    patience: AtomicU64,
    /// Whether the last fence was refused.
    refused: AtomicBool,
}

impl Watch {
    pub(super) fn new() -> Self {
        Self {
            began: AtomicU64::new(0),
            patience: AtomicU64::new(PATIENCE.as_nanos() as u64),
            refused: AtomicBool::new(false),
        }
    }

    /// A grace period begins. Its number is stored after this.
    pub(super) fn restart(&self) {
        // Relaxed, so below: published by the number, and nothing else is read because of it.
        self.began.store(now() << REPORT_BITS, Ordering::Relaxed);
    }

    /// Returns what `f` returns, and how long it takes.
    pub(super) fn time<R>(&self, f: impl FnOnce() -> R) -> (R, Duration) {
        let began = clock::monotonic();
        let result = f();
        (result, clock::monotonic().saturating_sub(began))
    }

    /// Notes whether the last fence was refused.
    pub(super) fn set_refused(&self, refused: bool) {
        // Relaxed: for reports.
        self.refused.store(refused, Ordering::Relaxed);
    }

    /// How long it has lasted, if it is time for a report and nobody else makes it.
    fn due(&self) -> Option<Duration> {
        let began = self.began.load(Ordering::Relaxed);
        let waited = (now() << REPORT_BITS).wrapping_sub(began & !MOST_REPORTS) >> REPORT_BITS;
        let waited = Duration::from_micros(waited);
        let next = (began & MOST_REPORTS) + 1;
        let patience = self.patience.load(Ordering::Relaxed).saturating_mul(next);
        let due = waited >= Duration::from_nanos(patience)
            && next <= MOST_REPORTS
            && self
                .began
                .compare_exchange(began, began + 1, Ordering::Relaxed, Ordering::Relaxed)
                .is_ok();
        due.then_some(waited)
    }
}

impl Domain {
    /// Reports if a grace period is on for too long.
    pub(super) fn look_for_stall(&self) {
        if self.grace.unfinished().is_some()
            && let Some(waited) = self.grace.watch.due()
        {
            // Relaxed: for the report.
            let fence_refused = self.grace.watch.refused.load(Ordering::Relaxed);
            report(&Stall { waited, open_sections: self.open_sections(), fence_refused });
        }
    }

    /// How long a grace period may last before it is reported, and between reports; ten seconds at first. At least a
    /// millisecond.
    pub fn set_stall_patience(&self, patience: Duration) {
        let nanos =
            u64::try_from(patience.max(Duration::from_millis(1)).as_nanos()).unwrap_or(u64::MAX);
        // Relaxed: a quantity.
        self.grace.watch.patience.store(nanos, Ordering::Relaxed);
    }

    /// Read sections that are open now: exact when nobody enters or leaves meanwhile. O(CPUs). Sections that were open
    /// when a parent process forked this one do not count.
    pub fn open_sections(&self) -> u64 {
        // Relaxed: a statistic.
        let index = self.readers.index.load(Ordering::Relaxed) as usize;
        let generation = index - index % PER_GENERATION;
        (generation..generation + PER_GENERATION)
            .step_by(PER_INDEX)
            .map(|entered| {
                // Those who leave between the two sums are counted as open, not as less than nobody.
                let left = self.readers.counts.sum(entered + 1);
                (self.readers.counts.sum(entered).wrapping_sub(left) as i64).max(0) as u64
            })
            .sum()
    }
}
