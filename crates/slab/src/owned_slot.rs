//! Values in a [`Cache`] that own their cache.

use crate::cache::Memory;
use crate::typed::Cache;
use core::fmt;
use core::mem::ManuallyDrop;
use core::ops::{Deref, DerefMut};
use core::pin::Pin;
use core::ptr::NonNull;
use quietline_platform::AllocError;
use std::sync::Arc;

/// A value in a [`Cache`] that owns the cache through an [`Arc`]: a box without a lifetime, for
/// structures, tasks and threads that outlive the borrow of the cache.
///
/// Dropping it drops the value in place and frees its memory, and drops the cache if this is the
/// last owner.
///
/// # Cost
///
/// Making one and dropping one change the cache's reference count: two locked instructions on a
/// line that all CPUs write. Allocation, free and access cost what they cost with a
/// [`Slot`](crate::Slot). Where CPUs make and drop objects at a rate at which that line is
/// contended, use a `Slot<'static, T>` of a cache in a static or a leaked box.
///
/// ```
/// use quietline_slab::{Cache, OwnedSlot};
/// use std::sync::Arc;
///
/// struct Connection {
///     buffer: OwnedSlot<[u8; 512]>,
/// }
///
/// let cache = Arc::new(Cache::new("buffer").unwrap());
/// let connection = Connection { buffer: cache.alloc_owned([7; 512]).unwrap() };
/// drop(cache);
/// std::thread::spawn(move || assert_eq!(connection.buffer[511], 7)).join().unwrap();
/// ```
pub struct OwnedSlot<T> {
    value: NonNull<T>,
    /// Dropped after the value's memory is freed.
    cache: Arc<Cache<T>>,
}

// SAFETY: a slot owns its value, like a box; the cache is shared by design.
unsafe impl<T: Send> Send for OwnedSlot<T> {}
// SAFETY: as above.
unsafe impl<T: Sync> Sync for OwnedSlot<T> {}

impl<T> Cache<T> {
    /// Stores `value` in a slot that owns the cache. Costs and lines as
    /// [`RawCache::alloc`](crate::RawCache::alloc), and one locked instruction on the reference
    /// count of the cache.
    ///
    /// Other ways to make a value ([`alloc_with`](Self::alloc_with),
    /// [`alloc_vacant`](Self::alloc_vacant)) end in [`Slot::into_owned`](crate::Slot::into_owned).
    ///
    /// # Errors
    /// [`AllocError`]; `value` is dropped.
    pub fn alloc_owned(self: &Arc<Self>, value: T) -> Result<OwnedSlot<T>, AllocError> {
        Ok(self.alloc(value)?.into_owned(self))
    }
}

impl<T> OwnedSlot<T> {
    /// # Safety
    /// `value` is a value in memory of `cache`, and the caller its owner, which gives it up.
    pub(crate) unsafe fn from_parts(value: NonNull<T>, cache: Arc<Cache<T>>) -> Self {
        Self { value, cache }
    }

    /// Returns the cache. An associated function, so that it hides no method of `T`.
    pub fn cache(slot: &Self) -> &Arc<Cache<T>> {
        &slot.cache
    }

    /// Moves the value out and frees its memory.
    pub fn into_inner(self) -> T {
        let slot = ManuallyDrop::new(self);
        // SAFETY: the slot owns the value and a reference to the cache, and is forgotten.
        unsafe {
            let cache = core::ptr::read(&slot.cache);
            let _memory = Memory::new(&cache.raw, slot.value.cast());
            slot.value.read()
        }
    }

    /// Pins the value: it stays at its address until it is dropped.
    pub fn into_pin(self) -> Pin<Self> {
        // SAFETY: as in `Slot::into_pin`. The slot keeps the cache, and so the memory, alive.
        unsafe { Pin::new_unchecked(self) }
    }
}

impl<T> From<OwnedSlot<T>> for Pin<OwnedSlot<T>> {
    fn from(slot: OwnedSlot<T>) -> Self {
        slot.into_pin()
    }
}

impl<T> Deref for OwnedSlot<T> {
    type Target = T;

    #[inline(always)]
    fn deref(&self) -> &T {
        // SAFETY: the slot owns the value.
        unsafe { self.value.as_ref() }
    }
}

impl<T> DerefMut for OwnedSlot<T> {
    #[inline(always)]
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: the slot owns the value.
        unsafe { self.value.as_mut() }
    }
}

impl<T> Drop for OwnedSlot<T> {
    fn drop(&mut self) {
        // SAFETY: the slot owns the value, which came from this cache and is not used any more.
        unsafe {
            let _memory = Memory::new(&self.cache.raw, self.value.cast());
            self.value.drop_in_place();
        }
    }
}

impl<T: fmt::Debug> fmt::Debug for OwnedSlot<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        (**self).fmt(f)
    }
}
