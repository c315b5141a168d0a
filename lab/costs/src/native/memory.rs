//! Bytes that an operation allocates and retains.
//!
//! A cache counts allocations only on its slow path. With checks on, every allocation takes the
//! slow path; so an operation is measured in a process with checks on.

use crate::{Operation, Sharing, raw};
use quietline_slab::each_cache;
use quietline_sync::rcu;

/// The environment of a process that measures bytes.
pub(super) const ENVIRONMENT: (&str, &str) = ("QUIETLINE_SLAB_DEBUG", "F");

/// Operations before the first measured one.
const WARM_UP: usize = 2000;
/// Operations whose allocations are measured, each by itself.
const MEASURED: usize = 5;
/// Operations whose leaks are measured, together.
const RETAINED: usize = 1000;

/// Bytes per operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Bytes {
    /// Slab objects that the median operation allocates.
    pub allocated: u64,
    /// Growth of the allocated bytes, over many operations.
    pub retained: u64,
}

/// Bytes of slab objects that were ever allocated in this process.
fn allocated() -> u64 {
    let mut bytes = 0;
    each_cache(|cache| bytes += cache.refills * cache.size as u64);
    bytes
}

/// Bytes that are allocated now: slab objects with users, and memory of the C library.
fn in_use() -> u64 {
    let mut bytes = raw::bytes_in_use() as u64;
    each_cache(|cache| bytes += (cache.active * cache.size) as u64);
    bytes
}

/// Measures an operation in this process. Its environment must have `QUIETLINE_SLAB_DEBUG=F`.
///
/// # Panics
/// If the environment is another one; if the operation panics.
pub fn measure_bytes(operation: &Operation) -> Bytes {
    let set = std::env::var(ENVIRONMENT.0);
    assert_eq!(set.as_deref(), Ok(ENVIRONMENT.1), "allocations are not counted");
    let scene = operation.open(Sharing::OneProcess);
    let mut worker = scene(0);
    let mut run = |operations: usize| {
        let runs = operations.div_ceil(operation.repeats);
        (0..runs).for_each(|_| worker());
        runs as u64
    };
    run(WARM_UP);
    let mut each = [0; MEASURED].map(|_: u64| {
        let before = allocated();
        run(1);
        allocated() - before
    });
    each.sort_unstable();
    let settle = || {
        if let Ok(domain) = rcu::global() {
            domain.barrier();
        }
    };
    settle();
    let before = in_use();
    let runs = run(RETAINED);
    settle();
    let growth = in_use().saturating_sub(before);
    Bytes { allocated: each[MEASURED / 2], retained: (growth + runs / 2) / runs }
}
