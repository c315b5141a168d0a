//! SLUB of 4.2, and the two ways of freeing in bulk that were proposed for it.

use std::marker::PhantomData;
use std::mem::transmute;
use std::ptr::NonNull;

use quietline_history::slab_bulk::{Current, KmemCache, Object};

use crate::harness::{Fault, Seat, Unfit};
use crate::raw::slab::{Entry, Heap, Source};

/// A way of freeing in bulk.
pub(crate) trait Way: Send + Sync + 'static {
    /// Frees the objects. Entries are `None` or stale afterwards, as the kernel leaves them.
    ///
    /// # Safety
    ///
    /// The entries must not be used again.
    unsafe fn free_bulk<'a>(current: &Current<'a>, objects: &mut [Option<Object<'a>>]);
}

/// One by one.
pub(crate) struct Linux42;

/// Objects of one slab that follow each other are one group.
pub(crate) struct Simple;

/// Objects with up to two of other slabs between them are one group.
pub(crate) struct LookAhead;

impl Way for Linux42 {
    #[inline(always)]
    unsafe fn free_bulk<'a>(current: &Current<'a>, objects: &mut [Option<Object<'a>>]) {
        // SAFETY: passed on.
        unsafe { current.free_bulk_as_is(objects) };
    }
}

impl Way for Simple {
    #[inline(always)]
    unsafe fn free_bulk<'a>(current: &Current<'a>, objects: &mut [Option<Object<'a>>]) {
        // SAFETY: passed on.
        unsafe { current.free_bulk_simple_as_is(objects) };
    }
}

impl Way for LookAhead {
    #[inline(always)]
    unsafe fn free_bulk<'a>(current: &Current<'a>, objects: &mut [Option<Object<'a>>]) {
        current.free_bulk_look_ahead(objects);
    }
}

/// Bytes for the slabs of a cache, for each thread: 65,536 objects of 256 bytes.
const MEMORY: usize = 16 << 20;

/// A cache with a CPU for each thread.
pub(crate) struct History<W> {
    cache: KmemCache,
    slab_shift: u32,
    way: PhantomData<W>,
}

impl<W: Way> Source for History<W> {
    type Heap<'a> = Cpu<'a, W>;

    fn new(size: usize, threads: usize) -> Result<Self, Unfit> {
        let memory = MEMORY * threads.next_power_of_two();
        let cache = KmemCache::new(size, threads, memory);
        let cache = cache.map_err(|error| Fault::new(format!("cannot make a cache: {error}")))?;
        let slab_shift = cache.slab_size().ilog2();
        Ok(Self { cache, slab_shift, way: PhantomData })
    }

    fn heap(&self, seat: Seat) -> Result<Cpu<'_, W>, Fault> {
        let current = self.cache.enter(seat.thread);
        let current =
            current.map_err(|error| Fault::new(format!("cannot enter a CPU: {error}")))?;
        Ok(Cpu { current, slab_shift: self.slab_shift, way: PhantomData })
    }

    fn active(&self) -> Option<usize> {
        Some(self.cache.active())
    }
}

pub(crate) struct Cpu<'a, W> {
    current: Current<'a>,
    slab_shift: u32,
    way: PhantomData<W>,
}

/// The array as the miniature sees it.
///
/// # Safety
///
/// Pointers in the array that are not overwritten are objects of this cache that nobody else uses.
unsafe fn objects_of<'a, 'b>(entries: &'b mut [Entry]) -> &'b mut [Option<Object<'a>>] {
    // SAFETY: an Object is a NonNull<u8> and nothing else (repr(transparent)), so both options are a pointer that may be
    // null; what the pointers are is the caller's to know.
    unsafe { transmute::<&'b mut [Entry], &'b mut [Option<Object<'a>>]>(entries) }
}

impl<'a, W: Way> Heap for Cpu<'a, W> {
    #[inline(always)]
    fn alloc(&self) -> Entry {
        self.current.alloc().ok().map(|object| object.as_ptr())
    }

    #[inline(always)]
    unsafe fn free(&self, object: NonNull<u8>) {
        // SAFETY: an Object is a NonNull<u8>; this one came from this cache and has no other user.
        self.current.free(unsafe { transmute::<NonNull<u8>, Object<'a>>(object) });
    }

    #[inline(always)]
    fn alloc_bulk(&self, objects: &mut [Entry]) -> bool {
        // SAFETY: every entry is overwritten.
        self.current.alloc_bulk(unsafe { objects_of(objects) }).is_ok()
    }

    #[inline(always)]
    unsafe fn free_bulk(&self, objects: &mut [Entry]) {
        // SAFETY: passed on.
        unsafe { W::free_bulk(&self.current, objects_of(objects)) };
    }

    #[inline(always)]
    fn slab_of(&self, object: NonNull<u8>) -> usize {
        object.addr().get() >> self.slab_shift
    }
}
