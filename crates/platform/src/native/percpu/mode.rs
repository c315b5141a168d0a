//! Which body runs: decided once, before the first per-CPU word exists.

#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
use super::{own, probe};
use super::{rseq, slots};
use crate::backend::cpu;
use crate::percpu::Body;
use core::sync::atomic::{AtomicIsize, Ordering};
use std::sync::OnceLock;

struct Decision {
    body: Body,
    /// Copies of each word that belong to CPUs: the first ones. 0 in the fallback.
    cpus: usize,
    /// All copies of each word. Those of locked slots follow those of the CPUs.
    copies: usize,
}

static DECISION: OnceLock<Decision> = OnceLock::new();

/// Offset of the thread's rseq area from its thread pointer, if the C library registered it; 0
/// while undecided and with the other bodies.
///
/// Read by every operation. Written once, before the first word is allocated; whoever has a word has it from a
/// thread that saw the decision, so relaxed reads suffice.
static OFFSET: AtomicIsize = AtomicIsize::new(0);

/// The offset of the rseq area, or 0 where the C library registers no thread.
#[inline(always)]
pub(crate) fn offset() -> isize {
    OFFSET.load(Ordering::Relaxed)
}

/// Returns the offset of the rseq area that this library registered for the calling thread.
#[inline]
pub(super) fn own_offset() -> Option<isize> {
    #[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
    if DECISION.get()?.body == Body::OwnRseq {
        return own::offset();
    }
    None
}

/// The body in use.
pub fn active() -> Body {
    decision().body
}

/// Returns `true` if the `_restartable` operations do nothing, because the C library registers no
/// thread.
#[inline]
pub fn is_fallback() -> bool {
    offset() == 0
}

/// Returns the number of copies of each word.
pub(crate) fn copies() -> usize {
    decision().copies
}

/// Returns the number of copies that belong to CPUs: the first ones. 0 in the fallback.
pub(super) fn sequence_cpus() -> usize {
    decision().cpus
}

/// Returns the number of copies that belong to locked slots: the last ones.
pub(super) fn locked_slots() -> usize {
    copies() - sequence_cpus()
}

#[inline]
pub(crate) fn current() -> usize {
    match offset() {
        0 => current_slow(),
        // SAFETY: a non-zero offset is that of this thread's registered area.
        offset => unsafe { rseq::cpu(offset) },
    }
}

#[cold]
#[inline(never)]
fn current_slow() -> usize {
    // The offset that the caller saw may have been that of an undecided process.
    let offset = if active() == Body::Rseq { Some(offset()) } else { own_offset() };
    match offset {
        // SAFETY: the offset is that of this thread's registered area.
        Some(offset) => unsafe { rseq::cpu(offset) },
        None => sequence_cpus() + slots::hint() % locked_slots(),
    }
}

/// Returns the body and the offset of the C library's areas, if sequences can be used. They need the
/// barrier that restarts them, and it must be known how high CPU numbers go: a sequence stores at
/// whatever number the kernel names.
#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
fn usable() -> Option<(Body, isize)> {
    cpu::possible()?;
    if !crate::membarrier::available() {
        return None;
    }
    rseq::prepare();
    own::pin();
    let registered = probe::registered_offset();
    let of_thread = || registered.or_else(own::offset);
    of_thread()?;
    let body = if registered.is_some() { Body::Rseq } else { Body::OwnRseq };
    rseq::is_restarted(of_thread).then_some((body, registered.unwrap_or(0)))
}

#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
fn usable() -> Option<(Body, isize)> {
    None
}

#[inline]
fn decision() -> &'static Decision {
    DECISION.get().unwrap_or_else(decide_slow)
}

/// Decides, unless it is decided.
pub(crate) fn decide() {
    decision();
}

#[cold]
fn decide_slow() -> &'static Decision {
    // Before, so that a fork from now on waits for the decision: a child that found it half made would wait for ever.
    crate::fork::watch();
    DECISION.get_or_init(|| {
        let mut wish = std::env::var("QUIETLINE_PERCPU").unwrap_or_default();
        if cfg!(miri) {
            // The interpreter runs no assembly.
            wish = "fallback".to_owned();
        }
        let usable = match wish.as_str() {
            "fallback" => None,
            "" | "auto" => usable(),
            "rseq" => Some(usable().expect(
                "QUIETLINE_PERCPU=rseq, but this system offers no restartable sequences: they need Linux 4.18, \
                 membarrier, no filter that forbids rseq, and /sys/devices/system/cpu/possible",
            )),
            other => panic!("QUIETLINE_PERCPU={other} is none of auto, rseq, fallback"),
        };
        let (body, offset) = usable.unwrap_or((Body::Fallback, 0));
        let cpus = usable.and_then(|_| cpu::possible()).unwrap_or(0);
        let slots = match body {
            Body::Rseq => 0,
            Body::Fallback if !cfg!(miri) => cpu::configured().clamp(slots::MIN, slots::MAX),
            _ => slots::MIN,
        };
        OFFSET.store(offset, Ordering::Relaxed);
        Decision { body, cpus, copies: cpus + slots }
    })
}
