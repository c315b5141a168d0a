//! Which body runs: decided once, before the first per-CPU word exists.

use super::{rseq, slots as fallback};
use core::sync::atomic::{AtomicIsize, AtomicUsize, Ordering};
use std::sync::Once;

/// The bodies that the native back end has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Body {
    /// Restartable sequences.
    Rseq,
    /// Locked sections on CPU slots.
    Fallback,
}

/// Offset of the thread's rseq area from its thread pointer; 0 while undecided and in the fallback.
///
/// Read by every operation. Written once, before the first word is allocated; whoever has a word has it from a
/// thread that saw the decision, so relaxed reads suffice.
static OFFSET: AtomicIsize = AtomicIsize::new(0);
static SLOTS: AtomicUsize = AtomicUsize::new(0);
static DECIDE: Once = Once::new();

/// The offset of the rseq area, or 0 for the fallback.
#[inline(always)]
pub(crate) fn offset() -> isize {
    OFFSET.load(Ordering::Relaxed)
}

/// The body in use.
pub fn active() -> Body {
    decide();
    if offset() != 0 { Body::Rseq } else { Body::Fallback }
}

pub(crate) fn slots() -> usize {
    // Relaxed: written once, inside `decide`, which synchronises.
    match SLOTS.load(Ordering::Relaxed) {
        0 => {
            decide();
            SLOTS.load(Ordering::Relaxed)
        }
        n => n,
    }
}

#[inline]
pub(crate) fn current() -> usize {
    match offset() {
        0 => fallback::hint() % slots(),
        // SAFETY: a non-zero offset is that of this thread's registered area.
        offset => unsafe { rseq::cpu(offset) },
    }
}

pub(super) fn decide() {
    DECIDE.call_once(|| {
        crate::fork::watch();
        let wish = std::env::var("QUIETLINE_PERCPU").unwrap_or_default();
        let offset = match wish.as_str() {
            "fallback" => None,
            "" | "auto" => rseq::probe(),
            "rseq" => Some(rseq::probe().expect(
                "QUIETLINE_PERCPU=rseq, but this system offers no restartable sequences: they need Linux 4.18, \
                 membarrier and glibc 2.35 with the tunable glibc.pthread.rseq=1",
            )),
            other => panic!("QUIETLINE_PERCPU={other} is none of auto, rseq, fallback"),
        };
        let cpus = crate::backend::cpu::possible();
        SLOTS.store(if offset.is_some() { cpus } else { cpus.clamp(fallback::MIN, fallback::MAX) }, Ordering::Relaxed);
        OFFSET.store(offset.unwrap_or(0), Ordering::Relaxed);
    });
}
