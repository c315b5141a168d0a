//! Values in a typed cache, owned.

use crate::cache::{Memory, RawCache};
use crate::rcu_cache::RcuCache;
use crate::typed::Cache;
use core::fmt;
use core::mem::{ManuallyDrop, MaybeUninit};
use core::ops::{Deref, DerefMut};
use core::pin::Pin;
use core::ptr::{self, NonNull};
use quietline_platform::AllocError;
use std::sync::Arc;

/// A value in a typed cache, owned through a handle on the cache: [`Slot`], [`OwnedSlot`],
/// [`RcuSlot`]. Dropping it drops the value in place and frees its memory, also if the value's
/// `drop` panics.
pub struct SlotOf<H: Handle, T> {
    pub(crate) value: NonNull<T>,
    /// Dropped after the value's memory is freed.
    pub(crate) cache: H,
}

/// A value in a [`Cache`]: a box that borrows its cache.
///
/// A slot that must not borrow its cache is a `Slot<'static, T>` of a cache that lives as long as
/// the process, or an [`OwnedSlot`]. A slot that is leaked ([`core::mem::forget`]) leaks its
/// memory, which is never used again.
pub type Slot<'a, T> = SlotOf<&'a Cache<T>, T>;

/// A value in a [`Cache`] that owns the cache through an [`Arc`]: a box without a lifetime, for
/// structures, tasks and threads that outlive the borrow of the cache. The last owner drops the
/// cache.
///
/// # Cost
///
/// Making one and dropping one change the cache's reference count: two locked instructions on a
/// line that all CPUs write. Allocation, free and access cost what they cost with a [`Slot`]. Where
/// CPUs make and drop objects at a rate at which that line is contended, use a `Slot<'static, T>`
/// of a cache in a static or a leaked box.
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
pub type OwnedSlot<T> = SlotOf<Arc<Cache<T>>, T>;

/// A value in an [`RcuCache`] that no reader has seen. Dropping it drops the value at once.
pub type RcuSlot<'c, T> = SlotOf<&'c RcuCache<T>, T>;

/// A handle on a typed cache, shared by design. Not for other crates.
pub trait Handle {
    #[doc(hidden)]
    fn raw(&self) -> &RawCache;
}

impl<T> Handle for &Cache<T> {
    #[inline(always)]
    fn raw(&self) -> &RawCache {
        &self.raw
    }
}

impl<T> Handle for Arc<Cache<T>> {
    #[inline(always)]
    fn raw(&self) -> &RawCache {
        &self.raw
    }
}

impl<T> Handle for &RcuCache<T> {
    #[inline(always)]
    fn raw(&self) -> &RawCache {
        &self.raw
    }
}

/// Memory for one `T` in a [`Cache`], without a value. Dropping it frees the memory.
///
/// The memory is there before the value: a step that can fail, or that holds a lock, comes between
/// allocation and [`write`](Self::write), and allocates nothing.
///
/// ```
/// use quietline_slab::{Cache, Slot};
/// use quietline_platform::AllocError;
///
/// # #[derive(Debug)]
/// enum Error { Alloc(AllocError), Parse(std::num::ParseIntError) }
///
/// fn parse<'c>(cache: &'c Cache<u64>, text: &str) -> Result<Slot<'c, u64>, Error> {
///     let vacant = cache.alloc_vacant().map_err(Error::Alloc)?;
///     let value = text.parse().map_err(Error::Parse)?; // an error frees the memory
///     Ok(vacant.write(value))
/// }
///
/// let cache = Cache::new("numbers").unwrap();
/// assert_eq!(*parse(&cache, "7").unwrap(), 7);
/// assert!(parse(&cache, "seven").is_err());
/// assert_eq!(cache.stats().active, 0);
/// ```
#[must_use = "the memory is freed if the slot is dropped"]
pub struct VacantSlot<'a, T> {
    pub(crate) memory: NonNull<T>,
    pub(crate) cache: &'a Cache<T>,
}

// SAFETY: a slot owns its value, like a box; the cache is shared by design.
unsafe impl<H: Handle, T: Send> Send for SlotOf<H, T> {}
// SAFETY: as above.
unsafe impl<H: Handle, T: Sync> Sync for SlotOf<H, T> {}
// SAFETY: a vacant slot owns memory without a value. Sending it lets another thread write a `T` of
// its own there; `Slot`'s bounds say where that value may go.
unsafe impl<T> Send for VacantSlot<'_, T> {}
// SAFETY: a shared reference gives access to nothing.
unsafe impl<T> Sync for VacantSlot<'_, T> {}

impl<'a, T> VacantSlot<'a, T> {
    /// Stores `value`. Cannot fail.
    #[inline(always)]
    pub fn write(self, value: T) -> Slot<'a, T> {
        // SAFETY: the slot owns memory of T's size and alignment, which then holds a value.
        unsafe {
            self.memory.write(value);
            self.assume_init()
        }
    }

    /// Initialises the value in place by a function that can fail. `init` returns the reference
    /// that [`MaybeUninit::write`] gave it.
    ///
    /// A value that `init` has written before it fails or panics is forgotten, not dropped.
    ///
    /// # Errors
    /// The error of `init`; the memory is freed.
    ///
    /// # Panics
    /// If `init` returns a reference to another value.
    pub fn init_with<E>(
        mut self,
        init: impl FnOnce(&mut MaybeUninit<T>) -> Result<&mut T, E>,
    ) -> Result<Slot<'a, T>, E> {
        let memory = self.memory.as_ptr();
        let value: *mut T = init(self.as_uninit_mut())?;
        assert!(ptr::eq(value, memory), "the initialiser returned a reference to another value");
        // SAFETY: there is a reference to a T at this address, so a value is there.
        Ok(unsafe { self.assume_init() })
    }

    /// Returns the memory, for initialisation in place.
    pub fn as_uninit_mut(&mut self) -> &mut MaybeUninit<T> {
        // SAFETY: the slot owns memory of T's size and alignment.
        unsafe { self.memory.cast().as_mut() }
    }

    /// Returns the slot of the value in the memory.
    ///
    /// # Safety
    /// The memory holds a value: it was initialised through
    /// [`as_uninit_mut`](Self::as_uninit_mut).
    #[inline(always)]
    pub unsafe fn assume_init(self) -> Slot<'a, T> {
        let slot = ManuallyDrop::new(self);
        Slot { value: slot.memory, cache: slot.cache }
    }
}

impl<H: Handle, T> SlotOf<H, T> {
    /// Stores a value in fresh memory of the cache.
    ///
    /// # Errors
    /// [`AllocError`]; `value` is dropped.
    #[inline(always)]
    pub(crate) fn new(cache: H, value: T) -> Result<Self, AllocError> {
        let memory = cache.raw().alloc()?.cast::<T>();
        // SAFETY: fresh memory of T's size and alignment.
        unsafe { memory.write(value) };
        Ok(Self { value: memory, cache })
    }

    /// Moves the value out and frees its memory.
    pub fn into_inner(self) -> T {
        let slot = ManuallyDrop::new(self);
        // SAFETY: the slot owns the value and the handle, and is forgotten.
        unsafe {
            let cache = ptr::read(&slot.cache);
            let _memory = Memory::new(cache.raw(), slot.value.cast());
            slot.value.read()
        }
    }

    /// Pins the value: it stays at its address until it is dropped.
    #[inline(always)]
    pub fn into_pin(self) -> Pin<Self> {
        // SAFETY: a slot does not move its value, and frees the memory only after it has dropped
        // the value. A forgotten slot's memory is never used again. `into_inner` and `into_raw`
        // need a slot, which a pinned one does not give to safe code if T is not Unpin. The handle
        // keeps the cache, and so the memory, alive.
        unsafe { Pin::new_unchecked(self) }
    }
}

impl<'a, T> Slot<'a, T> {
    /// Gives up ownership. The value stays alive until it is dropped and freed by
    /// [`Cache::free_raw`].
    #[inline(always)]
    pub fn into_raw(self) -> NonNull<T> {
        ManuallyDrop::new(self).value
    }

    /// Makes the slot own its cache instead of borrowing it. One locked instruction on the
    /// reference count of the cache, which all CPUs share: see [`OwnedSlot`].
    ///
    /// # Panics
    /// If the slot is one of another cache. The value is dropped.
    pub fn into_owned(self, cache: &Arc<Cache<T>>) -> OwnedSlot<T> {
        assert!(ptr::eq(self.cache, &**cache), "the slot belongs to another cache");
        OwnedSlot { value: self.into_raw(), cache: cache.clone() }
    }
}

impl<T> OwnedSlot<T> {
    /// Returns the cache. An associated function, so that it hides no method of `T`.
    pub fn cache(slot: &Self) -> &Arc<Cache<T>> {
        &slot.cache
    }
}

impl<H: Handle, T> From<SlotOf<H, T>> for Pin<SlotOf<H, T>> {
    fn from(slot: SlotOf<H, T>) -> Self {
        slot.into_pin()
    }
}

impl<H: Handle, T> Deref for SlotOf<H, T> {
    type Target = T;

    #[inline(always)]
    fn deref(&self) -> &T {
        // SAFETY: the slot owns the value.
        unsafe { self.value.as_ref() }
    }
}

impl<H: Handle, T> DerefMut for SlotOf<H, T> {
    #[inline(always)]
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: the slot owns the value.
        unsafe { self.value.as_mut() }
    }
}

impl<H: Handle, T> Drop for SlotOf<H, T> {
    #[inline(always)]
    fn drop(&mut self) {
        // SAFETY: the slot owns the value, which came from this cache and is not used any more.
        unsafe {
            let _memory = Memory::new(self.cache.raw(), self.value.cast());
            self.value.drop_in_place();
        }
    }
}

impl<H: Handle, T: fmt::Debug> fmt::Debug for SlotOf<H, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        (**self).fmt(f)
    }
}

impl<T> Drop for VacantSlot<'_, T> {
    #[inline(always)]
    fn drop(&mut self) {
        // SAFETY: the memory came from this cache, its owner gives it up, and it holds no value.
        unsafe { self.cache.raw.free(self.memory.cast()) };
    }
}

impl<T> fmt::Debug for VacantSlot<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("VacantSlot").field("memory", &self.memory).finish_non_exhaustive()
    }
}
