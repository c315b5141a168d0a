//! What a cache holds, and how often its slow paths ran.

use crate::inner::Inner;
use crate::registry;
use crate::tunables::Tunables;
use quietline_platform::atomic::Ordering;

/// Per-CPU statistics, by the number of their word.
pub(crate) const REFILL: usize = 0;
pub(crate) const FLUSH: usize = 1;
pub(crate) const BARN_GET: usize = 2;
pub(crate) const BARN_PUT: usize = 3;
pub(crate) const SLAB_SYNC: usize = 4;
pub(crate) const RCU_SHEAF: usize = 5;
/// How many there are.
pub(crate) const WORDS: usize = 6;

/// A cache's numbers. Exact when nobody uses the cache meanwhile. While the kernel refuses
/// `membarrier` to the caller, objects in the CPUs' sheaves count as [active](Self::active).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Stats {
    /// What tells it apart while it lives: see [`with_cache`](crate::with_cache).
    pub id: usize,
    /// The cache's name; of a merged one, that of its first handle.
    pub name: &'static str,
    /// Bytes of an object as asked for.
    pub size: usize,
    /// Bytes of an object, with what alignment, a link and checks add.
    pub object_size: usize,
    /// Objects in a slab that is made now.
    pub objects_per_slab: usize,
    /// Bytes of a slab that is made now.
    pub slab_size: usize,
    /// Slabs that the cache has.
    pub slabs: usize,
    /// Slabs with free objects that are on the partial list.
    pub partial_slabs: usize,
    /// Places for objects in all slabs.
    pub places: usize,
    /// Objects with users.
    pub active: usize,
    /// Objects in sheaves, ready to be handed out.
    pub cached: usize,
    /// Objects that wait for a grace period.
    pub waiting: usize,
    /// Handles on the cache besides the first: caches that were merged with it.
    pub aliases: usize,
    /// What is in force.
    pub tunables: Tunables,
    /// Times that objects were taken out of slabs.
    pub refills: u64,
    /// Times that a sheaf's objects went back to slabs.
    pub flushes: u64,
    /// Full sheaves taken from the barn.
    pub barn_gets: u64,
    /// Full sheaves given to the barn.
    pub barn_puts: u64,
    /// Groups of objects taken from or given to a slab: its word was changed about so often.
    pub slab_syncs: u64,
    /// Sheaves of objects sent to wait for a grace period.
    pub rcu_sheaves: u64,
}

impl Stats {
    /// The numbers while no other thread has objects in hand to give them back.
    pub(crate) fn of(inner: &Inner) -> Self {
        inner.visits.settled(|| Self::read(inner))
    }

    fn read(inner: &Inner) -> Self {
        let sheaves = &inner.sheaves;
        // If the fence is refused: as if all of those had users.
        let (ready, collecting) = sheaves.content(&inner.handshake).unwrap_or_default();
        let cached = inner.barn.content() + ready;
        // Relaxed: statistics, so below.
        let waiting = collecting + inner.waiting.load(Ordering::Relaxed).max(0) as usize;
        let taken = inner.taken.load(Ordering::Relaxed).max(0) as usize;
        let layout = inner.layout();
        // A statement of its own: a guard inside the expression below would be held to its end.
        let partial_slabs = inner.partial.lock().len;
        Self {
            id: core::ptr::from_ref(inner).addr(),
            name: inner.options.name,
            size: inner.options.size,
            object_size: layout.stride,
            objects_per_slab: layout.objects,
            slab_size: layout.block,
            slabs: inner.slabs.load(Ordering::Relaxed),
            partial_slabs,
            places: inner.places.load(Ordering::Relaxed),
            active: taken.saturating_sub(cached + waiting),
            cached,
            waiting,
            aliases: registry::users(inner).saturating_sub(1),
            tunables: inner.tunables(),
            refills: sheaves.counted(REFILL),
            flushes: sheaves.counted(FLUSH),
            barn_gets: sheaves.counted(BARN_GET),
            barn_puts: sheaves.counted(BARN_PUT),
            slab_syncs: sheaves.counted(SLAB_SYNC),
            rcu_sheaves: sheaves.counted(RCU_SHEAF),
        }
    }
}
