//! Tunables of a live cache.

#[cfg(doc)]
use crate::options::Options;
use quietline_platform::atomic::{AtomicUsize, Ordering};

/// Tunables of a cache, with the kernel's names where it has them.
///
/// [`Control::tunables`](crate::Control::tunables) returns the values in force. 0 in the argument
/// of [`set_tunables`](crate::Control::set_tunables) means the field's default, by the formulas of
/// [`Options`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Tunables {
    /// The number of objects that a slab should hold at least.
    pub min_objects: usize,
    /// log2 of the least number of pages of a slab.
    pub min_order: usize,
    /// The number of slabs with free objects above which an empty slab is freed. 0 means none.
    pub min_partial: usize,
    /// The number of objects that a miss takes from partial slabs at once, for the CPU's sheaf.
    pub cpu_partial: usize,
    /// The capacity of a sheaf.
    pub sheaf_capacity: usize,
    /// The number of objects of other slabs after which a bulk free ends its scan for objects of
    /// the same slab. 1 is Brouer's simple version, which ends at the first.
    /// [`GATHER`](crate::GATHER) scans the whole array.
    pub look_ahead: usize,
}

/// A tunable of a live cache. Relaxed: each value stands alone, and an old one was right a moment
/// ago.
#[derive(Debug)]
pub(crate) struct Knob(AtomicUsize);

impl Knob {
    pub(crate) fn new(value: usize) -> Self {
        Self(AtomicUsize::new(value))
    }

    pub(crate) fn get(&self) -> usize {
        self.0.load(Ordering::Relaxed)
    }

    pub(crate) fn set(&self, value: usize) {
        self.0.store(value, Ordering::Relaxed);
    }
}
