//! Which body runs: decided once, before the first per-CPU word exists.

use super::{rseq, slots as fallback};
use crate::backend::cpu;
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

/// Returns `true` if the `_restartable` operations do nothing, because the fallback
/// is in use.
#[inline]
pub fn is_fallback() -> bool {
    offset() == 0
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

/// The offset of the rseq area, if there is one and it is known how high CPU numbers go: a sequence stores at whatever
/// number the kernel names.
fn usable() -> Option<isize> {
    cpu::possible().and_then(|_| rseq::probe())
}

pub(super) fn decide() {
    // Before, so that a fork from now on waits for the decision: a child that found it half made would wait for ever.
    crate::fork::watch();
    DECIDE.call_once(|| {
        let mut wish = std::env::var("QUIETLINE_PERCPU").unwrap_or_default();
        if cfg!(miri) {
            // The interpreter runs no assembly.
            wish = "fallback".to_owned();
        }
        let offset = match wish.as_str() {
            "fallback" => None,
            "" | "auto" => usable(),
            "rseq" => Some(usable().expect(
                "QUIETLINE_PERCPU=rseq, but this system offers no restartable sequences: they need Linux 4.18, \
                 membarrier, glibc 2.35 with the tunable glibc.pthread.rseq=1, and /sys/devices/system/cpu/possible",
            )),
            other => panic!("QUIETLINE_PERCPU={other} is none of auto, rseq, fallback"),
        };
        let slots = match (offset, cpu::possible()) {
            (Some(_), Some(cpus)) => cpus,
            _ if cfg!(miri) => fallback::MIN,
            _ => cpu::configured().clamp(fallback::MIN, fallback::MAX),
        };
        SLOTS.store(slots, Ordering::Relaxed);
        OFFSET.store(offset.unwrap_or(0), Ordering::Relaxed);
    });
}
