//! Typed caches: no unsafe for callers.

use crate::bulk::Entry;
use crate::cache::RawCache;
use crate::hook::Hook;
use crate::options::{CacheError, Options};
use crate::stats::Stats;
use core::fmt;
use core::marker::PhantomData;
use core::mem::ManuallyDrop;
use core::ops::{Deref, DerefMut};
use core::ptr::NonNull;
use quietline_platform::AllocError;
use quietline_sync::rcu;

/// A cache of `T`s. Works for every `T` up to 16 KiB: with `Drop`, zero-sized, over-aligned.
///
/// ```
/// use quietline_slab::Cache;
///
/// let cache = Cache::<[u64; 8]>::new("example").unwrap();
/// let mut slot = cache.alloc([7; 8]).unwrap();
/// slot[0] += 1;
/// assert_eq!(slot[0] + slot[1], 15);
/// drop(slot); // drops the value and gives the memory back to this CPU's sheaf
/// ```
pub struct Cache<T> {
    raw: RawCache,
    of: PhantomData<fn() -> T>,
}

/// A value in a [`Cache`], owned: dropping it drops the value in place and frees its memory.
pub struct Slot<'a, T> {
    value: NonNull<T>,
    cache: &'a Cache<T>,
}

// SAFETY: a slot owns its value, like a box; the cache is shared by design.
unsafe impl<T: Send> Send for Slot<'_, T> {}
// SAFETY: as above.
unsafe impl<T: Sync> Sync for Slot<'_, T> {}

impl<T> Cache<T> {
    /// An empty cache; `name` is shown in statistics.
    ///
    /// # Errors
    /// [`CacheError`].
    pub fn new(name: &'static str) -> Result<Self, CacheError> {
        Self::with_options(Options::new(name, size_of::<T>(), align_of::<T>()))
    }

    /// A cache with tunables other than the defaults.
    ///
    /// # Errors
    /// [`CacheError`]; [`CacheError::BadLayout`] when the options are not for a `T`, or have hooks or RCU, which
    /// [`TypesafeCache`] is for.
    pub fn with_options(options: Options) -> Result<Self, CacheError> {
        let fits = options.size >= size_of::<T>() && options.align >= align_of::<T>();
        if !fits || options.has_hooks() || options.typesafe.is_some() || options.rcu.is_some() {
            return Err(CacheError::BadLayout);
        }
        Ok(Self { raw: RawCache::new(options)?, of: PhantomData })
    }

    /// Stores `value`. Costs and lines as [`RawCache::alloc`].
    ///
    /// # Errors
    /// [`AllocError`]; `value` is dropped.
    #[inline(always)]
    pub fn alloc(&self, value: T) -> Result<Slot<'_, T>, AllocError> {
        let memory = self.raw.alloc()?.cast::<T>();
        // SAFETY: fresh memory of T's size and alignment.
        unsafe { memory.write(value) };
        Ok(Slot { value: memory, cache: self })
    }

    /// Stores what `make` makes, once there is memory for it: a long value is then made where it stays, and not copied there.
    ///
    /// # Errors
    /// [`AllocError`]; `make` was not called.
    #[inline(always)]
    pub fn alloc_with(&self, make: impl FnOnce() -> T) -> Result<Slot<'_, T>, AllocError> {
        // Should `make` panic, what has no value yet is given back here.
        struct Unused<'a>(&'a RawCache, NonNull<u8>);
        impl Drop for Unused<'_> {
            fn drop(&mut self) {
                // SAFETY: it came from this cache just now.
                unsafe { self.0.free(self.1) };
            }
        }
        let unused = Unused(&self.raw, self.raw.alloc()?);
        let memory = unused.1.cast::<T>();
        // SAFETY: fresh memory of T's size and alignment.
        unsafe { memory.write(make()) };
        core::mem::forget(unused);
        Ok(Slot { value: memory, cache: self })
    }

    /// Stores `N` values in one bulk operation, all or nothing.
    ///
    /// # Errors
    /// [`AllocError`].
    pub fn alloc_bulk<const N: usize>(
        &self,
        mut make: impl FnMut(usize) -> T,
    ) -> Result<[Slot<'_, T>; N], AllocError> {
        let mut objects: [Entry; N] = [None; N];
        self.raw.alloc_bulk(&mut objects)?;
        // Should `make` panic, what has no value yet is given back here, and what has one by its slot.
        struct Unused<'a, const N: usize>(&'a RawCache, [Entry; N]);
        impl<const N: usize> Drop for Unused<'_, N> {
            fn drop(&mut self) {
                // SAFETY: the entries that are left came from this cache just now.
                unsafe { self.0.free_bulk(&mut self.1) };
            }
        }
        let mut unused = Unused(&self.raw, objects);
        let slots = core::array::from_fn(|i| {
            let value = make(i);
            let memory =
                unused.1[i].take().expect("a bulk allocation fills every entry").cast::<T>();
            // SAFETY: fresh memory of T's size and alignment.
            unsafe { memory.write(value) };
            Slot { value: memory, cache: self }
        });
        core::mem::forget(unused);
        Ok(slots)
    }

    /// Drops the values of `slots` and frees their memory in one bulk operation.
    pub fn free_bulk<const N: usize>(&self, slots: [Slot<'_, T>; N]) {
        let mut objects: [Entry; N] = slots.map(|slot| {
            assert!(core::ptr::eq(slot.cache, self), "the slot belongs to another cache");
            let slot = ManuallyDrop::new(slot);
            // SAFETY: the slot owns the value, and is forgotten.
            unsafe { slot.value.drop_in_place() };
            Some(slot.value.cast())
        });
        // SAFETY: they came from this cache, and their owners are gone.
        unsafe { self.raw.free_bulk(&mut objects) };
    }

    /// What the cache holds now.
    pub fn stats(&self) -> Stats {
        self.raw.stats()
    }

    /// Gives cached memory back: see [`RawCache::shrink`].
    pub fn shrink(&self) {
        self.raw.shrink();
    }

    /// Frees memory that [`Slot::into_raw`] gave out.
    ///
    /// # Safety
    /// `value` came from a slot of this cache, and its value has been dropped or moved out.
    #[inline(always)]
    pub unsafe fn free_raw(&self, value: NonNull<T>) {
        // SAFETY: passed on.
        unsafe { self.raw.free(value.cast()) };
    }
}

impl<T> Slot<'_, T> {
    /// Gives up ownership; the value stays alive until it is dropped and freed by [`Cache::free_raw`].
    #[inline(always)]
    pub fn into_raw(self) -> NonNull<T> {
        ManuallyDrop::new(self).value
    }

    /// Moves the value out and frees its memory.
    pub fn into_inner(self) -> T {
        let slot = ManuallyDrop::new(self);
        // SAFETY: the slot owns the value, and is forgotten.
        unsafe {
            let value = slot.value.read();
            slot.cache.raw.free(slot.value.cast());
            value
        }
    }
}

impl<T> Deref for Slot<'_, T> {
    type Target = T;

    #[inline(always)]
    fn deref(&self) -> &T {
        // SAFETY: the slot owns the value.
        unsafe { self.value.as_ref() }
    }
}

impl<T> DerefMut for Slot<'_, T> {
    #[inline(always)]
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: the slot owns the value.
        unsafe { self.value.as_mut() }
    }
}

impl<T> Drop for Slot<'_, T> {
    #[inline(always)]
    fn drop(&mut self) {
        // SAFETY: the slot owns the value, which came from this cache.
        unsafe {
            self.value.drop_in_place();
            self.cache.raw.free(self.value.cast());
        }
    }
}

impl<T: fmt::Debug> fmt::Debug for Slot<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        (**self).fmt(f)
    }
}

impl<T> fmt::Debug for Cache<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Cache").field("stats", &self.stats()).finish()
    }
}

/// A `T` that can be constructed in a typesafe cache: what a reader may see of it before it is first used, and
/// between its lives. Its fields are atomics or cells; the constructed state survives freeing.
///
/// # Safety
/// With a [`LINK_OFFSET`](Self::LINK_OFFSET), the four bytes there may take any value, at any time when nobody owns the
/// object, without harm to readers, to the next owner, or to `Self`'s `Drop`.
pub unsafe trait Typesafe: Sync + Send + 'static {
    /// The state of memory that has never been used. A panic in it leaks the objects that were being made.
    fn construct() -> Self;

    /// Where in a free object the allocator may keep four bytes that no reader looks at, or none: see
    /// [`Options::link_offset`].
    const LINK_OFFSET: Option<usize> = None;
}

/// A cache of `T`s that readers may find without owning them (`SLAB_TYPESAFE_BY_RCU`): memory that a read section
/// may look at stays a `T` until the section ends, though perhaps another one, in another life.
///
/// Whoever finds one through a pointer must therefore take a reference and then look at the pointer again.
pub struct TypesafeCache<T: Typesafe> {
    raw: RawCache,
    of: PhantomData<fn() -> T>,
}

impl<T: Typesafe> TypesafeCache<T> {
    /// An empty cache whose readers are those of `domain`.
    ///
    /// # Errors
    /// [`CacheError`].
    pub fn new(name: &'static str, domain: &'static rcu::Domain) -> Result<Self, CacheError> {
        unsafe fn ctor<T: Typesafe>(memory: NonNull<u8>) {
            // SAFETY: the cache passes memory of T's size and alignment that nobody uses.
            unsafe { memory.cast::<T>().write(T::construct()) };
        }
        let options = Options {
            ctor: Some(Hook::new(ctor::<T>)),
            dtor: Hook::drop_of::<T>(),
            typesafe: Some(domain),
            link_offset: T::LINK_OFFSET,
            ..Options::new(name, size_of::<T>(), align_of::<T>())
        };
        // SAFETY: the hooks are for memory of T's size and alignment, and a T may be made and dropped on any thread.
        let raw = unsafe { RawCache::with_hooks(options)? };
        Ok(Self { raw, of: PhantomData })
    }

    /// A `T` in the state in which it was freed, or freshly constructed. Costs and lines as [`RawCache::alloc`].
    ///
    /// The pointer may be dereferenced, shared, until the object is freed and the grace period after that is over.
    ///
    /// # Errors
    /// [`AllocError`].
    #[inline(always)]
    pub fn alloc(&self) -> Result<NonNull<T>, AllocError> {
        Ok(self.raw.alloc()?.cast())
    }

    /// Allocates from the CPU's sheaf alone. Returns `None` if the sheaf is empty; the caller then
    /// calls [`alloc`](Self::alloc).
    #[inline(always)]
    pub fn try_alloc(&self) -> Option<NonNull<T>> {
        self.raw.try_alloc().map(NonNull::cast)
    }

    /// Gives a `T` back, in whatever state; readers may go on looking at it, and it may be reused at once.
    ///
    /// # Safety
    /// `object` came from [`alloc`](Self::alloc) of this cache, and its owner uses it no more. With a
    /// [`LINK_OFFSET`](Typesafe::LINK_OFFSET), the four bytes there may take any value without harm to readers, to
    /// the next owner, or to `T`'s `Drop`.
    #[inline(always)]
    pub unsafe fn free(&self, object: NonNull<T>) {
        // SAFETY: passed on.
        unsafe { self.raw.free(object.cast()) };
    }

    /// Gives a `T` back if the CPU's sheaf has room, and returns `true`. Else it is still the
    /// caller's, who [frees](Self::free) it.
    ///
    /// # Safety
    /// As [`free`](Self::free).
    #[inline(always)]
    pub unsafe fn try_free(&self, object: NonNull<T>) -> bool {
        // SAFETY: passed on.
        unsafe { self.raw.try_free(object.cast()) }
    }

    /// Whose read sections keep objects from becoming anything else.
    pub fn domain(&self) -> &'static rcu::Domain {
        self.raw.inner.options.typesafe.expect("a typesafe cache has a domain")
    }

    /// What the cache holds now.
    pub fn stats(&self) -> Stats {
        self.raw.stats()
    }

    /// Gives cached memory back, that of empty slabs after a grace period: see [`RawCache::shrink`].
    pub fn shrink(&self) {
        self.raw.shrink();
    }
}

impl<T: Typesafe> fmt::Debug for TypesafeCache<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TypesafeCache").field("stats", &self.stats()).finish()
    }
}
