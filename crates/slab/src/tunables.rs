//! What may be changed while a cache lives.

use crate::options::{CacheError, Options};
use crate::slab::Layout;
use quietline_platform::atomic::{AtomicUsize, Ordering};

/// The tunables of a cache, by their kernel names where it has them. What [`RawCache::tunables`](crate::RawCache::tunables)
/// gives is what is in force; 0 in what is [set](crate::RawCache::set_tunables) means the default of that field, which the
/// formulas in [`Options`] give.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Tunables {
    /// Objects that a slab should hold at least.
    pub min_objects: usize,
    /// log2 of the pages that a slab has at least.
    pub min_order: usize,
    /// Slabs with free objects that are kept when one of them becomes empty. (0 is 0.)
    pub min_partial: usize,
    /// Objects that a miss takes out of partial slabs at once, for the CPU to keep.
    pub cpu_partial: usize,
    /// Objects that a sheaf holds.
    pub sheaf_capacity: usize,
    /// Objects of other slabs after which the scan for objects of the same slab ends, in a bulk free; 1 is Brouer's simple
    /// version, which ends at the first; [`GATHER`](crate::GATHER) looks through all of the array.
    pub look_ahead: usize,
}

/// The tunables of a live cache. All relaxed: each is a quantity of its own, and whoever meets an old one does what was
/// right a moment ago.
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

/// The tunables with defaults in place of zeros, and the layout that follows.
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
