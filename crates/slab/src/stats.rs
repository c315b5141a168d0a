//! Statistics of a cache: contents, and counts of its slow paths.

use crate::control::Control;
use crate::name::Name;
use crate::options::Options;
use crate::registry;
use crate::tunables::Tunables;
use quietline_platform::atomic::Ordering;

/// Numbers of the per-CPU words that count slow paths.
pub(crate) const REFILL: usize = 0;
pub(crate) const FLUSH: usize = 1;
pub(crate) const BARN_GET: usize = 2;
pub(crate) const BARN_PUT: usize = 3;
pub(crate) const SLAB_SYNC: usize = 4;
pub(crate) const RCU_SHEAF: usize = 5;
/// The number of these words.
pub(crate) const WORDS: usize = 6;

/// A snapshot of a cache's statistics. Exact if no other thread uses the cache meanwhile. While the
/// kernel refuses `membarrier` to the caller, objects in the CPUs' sheaves count as
/// [active](Self::active).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Stats {
    /// The number that identifies the cache while it lives: see [`with_cache`](crate::with_cache).
    /// 0 for a [`LazyCache`](crate::LazyCache) before it is made.
    pub id: usize,
    /// The cache's name. A merged cache has the name of its first handle.
    pub name: Name,
    /// Bytes of an object, as in the options.
    pub size: usize,
    /// Bytes from one object to the next: size, link, red zones, alignment.
    pub object_size: usize,
    /// Objects in a new slab.
    pub objects_per_slab: usize,
    /// Bytes of a new slab.
    pub slab_size: usize,
    /// All slabs of the cache.
    pub slabs: usize,
    /// Slabs with free objects that are on the partial list.
    pub partial_slabs: usize,
    /// Objects of all slabs, in use and free.
    pub places: usize,
    /// Objects in use.
    pub active: usize,
    /// Objects in sheaves, ready for allocation.
    pub cached: usize,
    /// Objects that wait for a grace period.
    pub waiting: usize,
    /// Further handles: caches that were merged with this one.
    pub aliases: usize,
    /// The tunables in force.
    pub tunables: Tunables,
    /// The number of refills of a sheaf from slabs.
    pub refills: u64,
    /// The number of flushes of a sheaf to slabs.
    pub flushes: u64,
    /// The number of full sheaves taken from the barn.
    pub barn_gets: u64,
    /// The number of full sheaves put into the barn.
    pub barn_puts: u64,
    /// The number of groups of objects taken from or returned to a slab, each by about one change
    /// of the slab's word.
    pub slab_syncs: u64,
    /// The number of sheaves queued for a grace period.
    pub rcu_sheaves: u64,
}

impl Stats {
    /// Returns the statistics, read while no other thread moves objects between layers.
    pub(crate) fn of(cache: &Control) -> Self {
        cache.visits.settled(|| Self::read(cache))
    }

    /// Returns the statistics of a cache that is not made yet: zeros, but for its options.
    ///
    /// # Panics
    /// If the options are not those of a cache.
    pub(crate) fn unused(options: Options) -> Self {
        let options = registry::with_environment(options);
        let (tunables, _) = options.resolve().expect("the options of a cache");
        let layout = options.layout_with(options.debug).expect("as without checks");
        Self {
            id: 0,
            name: options.name,
            size: options.size,
            object_size: layout.stride,
            objects_per_slab: layout.objects,
            slab_size: layout.block,
            slabs: 0,
            partial_slabs: 0,
            places: 0,
            active: 0,
            cached: 0,
            waiting: 0,
            aliases: 0,
            tunables,
            refills: 0,
            flushes: 0,
            barn_gets: 0,
            barn_puts: 0,
            slab_syncs: 0,
            rcu_sheaves: 0,
        }
    }

    fn read(cache: &Control) -> Self {
        let slabs = cache.slabs();
        // If the fence is refused, objects in sheaves count as in use.
        let (ready, collecting) = cache.cpus.content().unwrap_or_default();
        let cached = cache.cpus.barn.content() + ready;
        // Relaxed: statistics, so below.
        let waiting = collecting + cache.waiting.load(Ordering::Relaxed).max(0) as usize;
        let taken = slabs.taken.load(Ordering::Relaxed).max(0) as usize;
        let layout = cache.layout();
        // A statement of its own: a guard inside the expression below would be held to its end.
        let partial_slabs = slabs.partial.lock().len;
        Self {
            id: core::ptr::from_ref(cache).addr(),
            name: slabs.options.name,
            size: slabs.options.size,
            object_size: layout.stride,
            objects_per_slab: layout.objects,
            slab_size: layout.block,
            slabs: slabs.slabs.load(Ordering::Relaxed),
            partial_slabs,
            places: slabs.places.load(Ordering::Relaxed),
            active: taken.saturating_sub(cached + waiting),
            cached,
            waiting,
            aliases: registry::users(cache).saturating_sub(1),
            tunables: cache.tunables(),
            refills: slabs.counted(REFILL),
            flushes: slabs.counted(FLUSH),
            barn_gets: slabs.counted(BARN_GET),
            barn_puts: slabs.counted(BARN_PUT),
            slab_syncs: slabs.counted(SLAB_SYNC),
            rcu_sheaves: slabs.counted(RCU_SHEAF),
        }
    }
}
