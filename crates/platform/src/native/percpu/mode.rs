//! Which body runs: decided once, before the first per-CPU word exists.

#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
use super::own;
use super::{rseq, slots as fallback};
use crate::backend::cpu;
use crate::percpu::Body;
use core::sync::atomic::{AtomicBool, AtomicIsize, AtomicUsize, Ordering};
use std::sync::Once;

/// The owner of the threads' rseq areas.
#[derive(Clone, Copy)]
#[cfg_attr(not(any(target_arch = "x86_64", target_arch = "aarch64")), allow(dead_code))]
enum AreaOwner {
    /// The C library, which has them at this offset from each thread pointer.
    CLibrary(isize),
    /// This library, which registers each thread.
    ThisLibrary,
}

/// Offset of the thread's rseq area from its thread pointer, if the C library registered it; 0
/// while undecided and with the other bodies.
///
/// Read by every operation. Written once, before the first word is allocated; whoever has a word has it from a
/// thread that saw the decision, so relaxed reads suffice.
static OFFSET: AtomicIsize = AtomicIsize::new(0);
/// Whether this library registers threads. Written as `OFFSET` is.
static OWN: AtomicBool = AtomicBool::new(false);
/// Copies of each word: those of the CPUs that sequences use, and after them those of locked slots.
/// Written last: after a load with acquire order that is not 0, the decision is seen.
static COPIES: AtomicUsize = AtomicUsize::new(0);
static SEQUENCE_CPUS: AtomicUsize = AtomicUsize::new(0);
static DECIDE: Once = Once::new();

/// The offset of the rseq area, or 0 where the C library registers no thread.
#[inline(always)]
pub(crate) fn offset() -> isize {
    OFFSET.load(Ordering::Relaxed)
}

/// Returns the offset of the rseq area that this library registered for the calling thread.
#[inline]
pub(super) fn own_offset() -> Option<isize> {
    #[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
    // Relaxed: see `OFFSET`.
    if OWN.load(Ordering::Relaxed) {
        return own::offset();
    }
    None
}

/// The body in use.
pub fn active() -> Body {
    decide();
    // Relaxed: `decide` synchronises.
    match offset() {
        0 if OWN.load(Ordering::Relaxed) => Body::OwnRseq,
        0 => Body::Fallback,
        _ => Body::Rseq,
    }
}

/// Returns `true` if the `_restartable` operations do nothing, because the C library registers no
/// thread.
#[inline]
pub fn is_fallback() -> bool {
    offset() == 0
}

/// Returns the number of copies of each word.
pub(crate) fn copies() -> usize {
    // ORDERING: pairs with the release in `decide`: a caller that sees the number sees the whole
    // decision. A caller that sees 0 waits for it.
    match COPIES.load(Ordering::Acquire) {
        0 => {
            decide();
            // Relaxed: `decide` synchronises.
            COPIES.load(Ordering::Relaxed)
        }
        n => n,
    }
}

/// Returns the number of copies that belong to CPUs: the first ones. 0 in the fallback.
pub(super) fn sequence_cpus() -> usize {
    // Relaxed: see `OFFSET`.
    SEQUENCE_CPUS.load(Ordering::Relaxed)
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
    // Decides. The offset that the caller saw may have been that of an undecided process.
    let copies = copies();
    let offset = if offset() != 0 { Some(offset()) } else { own_offset() };
    match offset {
        // SAFETY: the offset is that of this thread's registered area.
        Some(offset) => unsafe { rseq::cpu(offset) },
        None => {
            let cpus = sequence_cpus();
            cpus + fallback::hint() % (copies - cpus)
        }
    }
}

/// Returns the owner of the threads' areas, if sequences can be used. They need the barrier that
/// restarts them, and it must be known how high CPU numbers go: a sequence stores at whatever number
/// the kernel names.
#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
fn usable() -> Option<AreaOwner> {
    cpu::possible()?;
    if !crate::membarrier::available() {
        return None;
    }
    rseq::prepare();
    own::pin();
    let areas = match super::probe::registered_offset() {
        Some(offset) => AreaOwner::CLibrary(offset),
        None => own::offset().map(|_| AreaOwner::ThisLibrary)?,
    };
    let of_thread = || match areas {
        AreaOwner::CLibrary(offset) => Some(offset),
        AreaOwner::ThisLibrary => own::offset(),
    };
    rseq::is_restarted(of_thread).then_some(areas)
}

#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
fn usable() -> Option<AreaOwner> {
    None
}

pub(crate) fn decide() {
    // Before, so that a fork from now on waits for the decision: a child that found it half made would wait for ever.
    crate::fork::watch();
    DECIDE.call_once(|| {
        let mut wish = std::env::var("QUIETLINE_PERCPU").unwrap_or_default();
        if cfg!(miri) {
            // The interpreter runs no assembly.
            wish = "fallback".to_owned();
        }
        let areas = match wish.as_str() {
            "fallback" => None,
            "" | "auto" => usable(),
            "rseq" => Some(usable().expect(
                "QUIETLINE_PERCPU=rseq, but this system offers no restartable sequences: they need Linux 4.18, \
                 membarrier, no filter that forbids rseq, and /sys/devices/system/cpu/possible",
            )),
            other => panic!("QUIETLINE_PERCPU={other} is none of auto, rseq, fallback"),
        };
        let cpus = areas.and_then(|_| cpu::possible()).unwrap_or(0);
        let slots = match areas {
            Some(AreaOwner::CLibrary(_)) => 0,
            Some(AreaOwner::ThisLibrary) => fallback::MIN,
            None if cfg!(miri) => fallback::MIN,
            None => cpu::configured().clamp(fallback::MIN, fallback::MAX),
        };
        // Relaxed: see `OFFSET`, and below.
        SEQUENCE_CPUS.store(cpus, Ordering::Relaxed);
        OWN.store(matches!(areas, Some(AreaOwner::ThisLibrary)), Ordering::Relaxed);
        let offset = if let Some(AreaOwner::CLibrary(offset)) = areas { offset } else { 0 };
        OFFSET.store(offset, Ordering::Relaxed);
        // ORDERING: pairs with the acquire in `copies`.
        COPIES.store(cpus + slots, Ordering::Release);
    });
}
