//! Virtual CPUs: how many, and which.

use super::machine::with;
use core::sync::atomic::{AtomicUsize, Ordering};

/// Virtual CPUs that per-CPU words have room for.
pub(crate) const MAX: usize = 256;

static CPUS: AtomicUsize = AtomicUsize::new(2);

/// CPU slots that per-CPU data has: what was [set](set_cpus).
pub fn nr_cpus() -> usize {
    // Relaxed: set before the scene it is meant for.
    CPUS.load(Ordering::Relaxed)
}

/// Makes the machine one of `cpus` virtual CPUs, before anything that asks for their number is made. 2 at first. For the
/// whole process: simulations take turns.
///
/// # Panics
/// When `cpus` is 0 or above 256.
pub fn set_cpus(cpus: usize) {
    assert!((1..=MAX).contains(&cpus), "a virtual machine has 1 to {MAX} CPUs");
    // Relaxed: as above.
    CPUS.store(cpus, Ordering::Relaxed);
}

/// The virtual CPU that calls; 0 outside a simulation.
#[inline]
pub fn current() -> usize {
    with(|machine| machine.cpu()).unwrap_or(0)
}
