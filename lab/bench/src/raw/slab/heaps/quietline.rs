//! quietline's cache: as it is, and without sheaves, so that each free goes to its slab.

use std::ptr::NonNull;

use quietline_slab::{Options, RawCache};

use crate::harness::{Fault, Seat, Unfit};
use crate::raw::slab::{Entry, Heap, Source};

/// Which cache.
pub(crate) trait Kind: Send + Sync + 'static {
    /// What differs from the default.
    fn change(options: Options) -> Options;
}

/// The cache as it is.
pub(crate) struct Sheaves;

/// Without sheaves; a bulk free looks three strangers ahead.
pub(crate) struct Slabs;

/// Without sheaves; a bulk free ends a group at the first stranger.
pub(crate) struct SlabsSimple;

impl Kind for Sheaves {
    fn change(options: Options) -> Options {
        options
    }
}

impl Kind for Slabs {
    fn change(options: Options) -> Options {
        Options { sheaves: false, look_ahead: 3, ..options }
    }
}

impl Kind for SlabsSimple {
    fn change(options: Options) -> Options {
        Options { sheaves: false, look_ahead: 1, ..options }
    }
}

/// A cache that all threads share.
pub(crate) struct Quietline<K> {
    cache: RawCache,
    slab_shift: u32,
    kind: std::marker::PhantomData<K>,
}

impl<K: Kind> Source for Quietline<K> {
    type Heap<'a> = Cache<'a>;

    fn new(size: usize, _threads: usize) -> Result<Self, Unfit> {
        let options = K::change(Options::new("bench", size, 64));
        let failed = |error| Fault::new(format!("cannot make a cache: {error}"));
        let slab_shift = options.layout().map_err(failed)?.block.ilog2();
        let cache = RawCache::new(options).map_err(failed)?;
        Ok(Self { cache, slab_shift, kind: std::marker::PhantomData })
    }

    fn heap(&self, _seat: Seat) -> Result<Cache<'_>, Fault> {
        Ok(Cache { cache: &self.cache, slab_shift: self.slab_shift })
    }

    fn active(&self) -> Option<usize> {
        Some(self.cache.stats().active)
    }
}

pub(crate) struct Cache<'a> {
    cache: &'a RawCache,
    slab_shift: u32,
}

impl Heap for Cache<'_> {
    #[inline(always)]
    fn alloc(&self) -> Entry {
        self.cache.alloc().ok()
    }

    #[inline(always)]
    unsafe fn free(&self, object: NonNull<u8>) {
        // SAFETY: passed on.
        unsafe { self.cache.free(object) };
    }

    #[inline(always)]
    fn alloc_bulk(&self, objects: &mut [Entry]) -> bool {
        self.cache.alloc_bulk(objects).is_ok()
    }

    #[inline(always)]
    unsafe fn free_bulk(&self, objects: &mut [Entry]) {
        // SAFETY: passed on.
        unsafe { self.cache.free_bulk(objects) };
    }

    #[inline(always)]
    fn slab_of(&self, object: NonNull<u8>) -> usize {
        object.addr().get() >> self.slab_shift
    }
}
