//! Tunables of a live cache.

use crate::options::{CacheError, Options};
use crate::slab::Layout;
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

/// The tunables of a live cache. All accesses are relaxed: each value stands alone, and an old
/// value was right a moment ago.
#[derive(Debug)]
pub(crate) struct Knobs {
    min_objects: AtomicUsize,
    min_order: AtomicUsize,
    min_partial: AtomicUsize,
    cpu_partial: AtomicUsize,
    sheaf_capacity: AtomicUsize,
    look_ahead: AtomicUsize,
}

impl Knobs {
    pub(crate) fn new(tunables: Tunables) -> Self {
        Self {
            min_objects: AtomicUsize::new(tunables.min_objects),
            min_order: AtomicUsize::new(tunables.min_order),
            min_partial: AtomicUsize::new(tunables.min_partial),
            cpu_partial: AtomicUsize::new(tunables.cpu_partial),
            sheaf_capacity: AtomicUsize::new(tunables.sheaf_capacity),
            look_ahead: AtomicUsize::new(tunables.look_ahead),
        }
    }

    pub(crate) fn get(&self) -> Tunables {
        Tunables {
            min_objects: self.min_objects.load(Ordering::Relaxed),
            min_order: self.min_order.load(Ordering::Relaxed),
            min_partial: self.min_partial(),
            cpu_partial: self.cpu_partial(),
            sheaf_capacity: self.sheaf_capacity(),
            look_ahead: self.look_ahead(),
        }
    }

    pub(crate) fn set(&self, tunables: Tunables) {
        self.min_objects.store(tunables.min_objects, Ordering::Relaxed);
        self.min_order.store(tunables.min_order, Ordering::Relaxed);
        self.min_partial.store(tunables.min_partial, Ordering::Relaxed);
        self.cpu_partial.store(tunables.cpu_partial, Ordering::Relaxed);
        self.sheaf_capacity.store(tunables.sheaf_capacity, Ordering::Relaxed);
        self.look_ahead.store(tunables.look_ahead, Ordering::Relaxed);
    }

    pub(crate) fn min_partial(&self) -> usize {
        self.min_partial.load(Ordering::Relaxed)
    }

    pub(crate) fn cpu_partial(&self) -> usize {
        self.cpu_partial.load(Ordering::Relaxed)
    }

    pub(crate) fn sheaf_capacity(&self) -> usize {
        self.sheaf_capacity.load(Ordering::Relaxed)
    }

    pub(crate) fn look_ahead(&self) -> usize {
        self.look_ahead.load(Ordering::Relaxed)
    }
}

/// Returns the tunables with defaults in place of zeros, and the layout that follows from them.
pub(crate) fn resolve(
    options: &Options,
    asked: Tunables,
) -> Result<(Tunables, Layout), CacheError> {
    let asked = Options {
        min_objects: asked.min_objects,
        min_order: asked.min_order,
        min_partial: asked.min_partial,
        cpu_partial: asked.cpu_partial,
        sheaf_capacity: asked.sheaf_capacity,
        look_ahead: asked.look_ahead,
        ..*options
    };
    let layout = asked.layout()?;
    Ok((asked.tunables(&layout), layout))
}
