//! What a cache holds, and how often its slow paths ran.

use crate::cache::RawCache;
use quietline_platform::atomic::Ordering;

/// Per-CPU statistics, by the number of their word.
pub(crate) const REFILL: usize = 0;
pub(crate) const FLUSH: usize = 1;
pub(crate) const BARN_GET: usize = 2;
pub(crate) const BARN_PUT: usize = 3;
pub(crate) const SLAB_SYNC: usize = 4;
/// How many there are.
pub(crate) const WORDS: usize = 5;

/// A cache's numbers. Exact when nobody uses the cache meanwhile.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Stats {
    /// The cache's name.
    pub name: &'static str,
    /// Bytes of an object, with what alignment and a link add.
    pub object_size: usize,
    /// Objects in a slab.
    pub objects_per_slab: usize,
    /// Bytes of a slab.
    pub slab_size: usize,
    /// Slabs that the cache has.
    pub slabs: usize,
    /// Objects with users.
    pub active: usize,
    /// Objects in sheaves.
    pub cached: usize,
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
}

impl Stats {
    pub(crate) fn of(cache: &RawCache) -> Self {
        let (inner, sheaves) = (&*cache.inner, &cache.sheaves);
        let cached = inner.barn.content() + sheaves.content(&inner.handshake);
        // Relaxed: statistics.
        let taken = inner.taken.load(Ordering::Relaxed).max(0) as usize;
        Self {
            name: inner.options.name,
            object_size: inner.layout.stride,
            objects_per_slab: inner.layout.objects,
            slab_size: inner.layout.block,
            slabs: inner.slabs.load(Ordering::Relaxed),
            active: taken.saturating_sub(cached),
            cached,
            refills: sheaves.counted(REFILL),
            flushes: sheaves.counted(FLUSH),
            barn_gets: sheaves.counted(BARN_GET),
            barn_puts: sheaves.counted(BARN_PUT),
            slab_syncs: sheaves.counted(SLAB_SYNC),
        }
    }
}
