//! Objects of 192 bytes, allocated, marked, checked and freed: from a slab cache, and from the heap.

use std::alloc::{Layout, alloc, dealloc};
use std::hint::black_box;
use std::ptr::NonNull;

use quietline_platform::AllocError;
use quietline_slab::{CacheError, Entry, Options, RawCache};

/// Three cache lines. The alignment is the one that `malloc` gives to everything, so that the heap is asked for no more
/// than it does anyway.
#[repr(C, align(16))]
struct Object([u64; WORDS]);

const WORDS: usize = 24;

/// A slab cache of such objects.
pub(crate) struct SlabObjects(RawCache);

impl SlabObjects {
    /// An empty cache.
    ///
    /// # Errors
    ///
    /// If there is no memory.
    pub(crate) fn new() -> Result<Self, CacheError> {
        RawCache::new(Options::new("bench-192", size_of::<Object>(), align_of::<Object>()))
            .map(Self)
    }

    /// Objects that are not free.
    pub(crate) fn active(&self) -> usize {
        self.0.stats().active
    }

    /// Allocates an object, writes `mark` to it, reads it back and frees it; whether it was the same.
    ///
    /// # Errors
    ///
    /// If there is no memory.
    #[inline(always)]
    pub(crate) fn pair(&self, mark: u64) -> Result<bool, AllocError> {
        let object = self.0.alloc()?;
        // SAFETY: fresh from the cache, so it has the layout of an Object and is ours until it is freed.
        unsafe {
            write(object, mark);
            let right = is(object, mark);
            self.0.free(object);
            Ok(right)
        }
    }

    /// The same for `N` objects at once, with a mark each from `mark` on.
    ///
    /// # Errors
    ///
    /// If there is no memory; then nothing stays allocated.
    #[inline(always)]
    pub(crate) fn bulk<const N: usize>(&self, mark: u64) -> Result<bool, AllocError> {
        let mut objects = [None; N];
        self.0.alloc_bulk(&mut objects)?;
        let right = mark_all(&objects, mark);
        // SAFETY: they came from this cache just now, each once, and are used no more.
        unsafe { self.0.free_bulk(&mut objects) };
        Ok(right)
    }
}

/// The same from the heap: [`SlabObjects::pair`].
///
/// # Errors
///
/// If there is no memory.
#[inline(always)]
pub(crate) fn heap_pair(mark: u64) -> Result<bool, AllocError> {
    let object = heap_alloc().ok_or(AllocError)?;
    // SAFETY: fresh from the heap with the layout of an Object, and ours until it is freed.
    unsafe {
        write(object, mark);
        let right = is(object, mark);
        heap_free(object);
        Ok(right)
    }
}

/// The same from the heap, which knows no bulk, one by one: [`SlabObjects::bulk`].
///
/// # Errors
///
/// If there is no memory; then nothing stays allocated.
#[inline(always)]
pub(crate) fn heap_bulk<const N: usize>(mark: u64) -> Result<bool, AllocError> {
    let mut objects = [None; N];
    for object in &mut objects {
        *object = heap_alloc();
    }
    let complete = objects.iter().all(Option::is_some);
    let right = complete && mark_all(&objects, mark);
    for object in objects.into_iter().flatten() {
        // SAFETY: from the heap just now, and used no more.
        unsafe { heap_free(object) };
    }
    if complete { Ok(right) } else { Err(AllocError) }
}

/// Marks all objects, then checks all: two that are one would have the same mark.
#[inline(always)]
fn mark_all<const N: usize>(objects: &[Entry; N], mark: u64) -> bool {
    let marked = |(object, mark): (&Entry, u64)| object.map(|object| (object, mark));
    // SAFETY: the callers have just allocated every object with the layout of an Object, and free it later.
    objects
        .iter()
        .zip(mark..)
        .filter_map(marked)
        .for_each(|(object, mark)| unsafe { write(object, mark) });
    let checked = objects.iter().zip(mark..).filter_map(marked);
    // SAFETY: as above, and written above.
    checked.fold(true, |right, (object, mark)| right & unsafe { is(object, mark) })
}

/// Writes `mark` to the first and to the last line of an object.
///
/// # Safety
///
/// The memory has the layout of an [`Object`] and is the caller's alone.
#[inline(always)]
unsafe fn write(object: NonNull<u8>, mark: u64) {
    let words = object.cast::<u64>();
    // SAFETY: both words lie in the object, which is the caller's.
    unsafe {
        words.write(mark);
        words.add(WORDS - 1).write(!mark);
    }
}

/// Whether `mark` is there. The compiler must not know what was written.
///
/// # Safety
///
/// As [`write`], and it was written.
#[inline(always)]
unsafe fn is(object: NonNull<u8>, mark: u64) -> bool {
    let words = black_box(object).cast::<u64>();
    // SAFETY: both words lie in the object, were written, and are the caller's.
    unsafe { (words.read() == mark) & (words.add(WORDS - 1).read() == !mark) }
}

#[inline(always)]
fn heap_alloc() -> Entry {
    // SAFETY: the layout has a size above zero.
    NonNull::new(black_box(unsafe { alloc(Layout::new::<Object>()) }))
}

/// # Safety
///
/// The object is from [`heap_alloc`] and used no more.
#[inline(always)]
unsafe fn heap_free(object: NonNull<u8>) {
    // SAFETY: allocated with this layout.
    unsafe { dealloc(object.as_ptr(), Layout::new::<Object>()) };
}
