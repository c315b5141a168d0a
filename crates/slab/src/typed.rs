//! Typed caches: no unsafe for callers.

use crate::bulk::Entry;
use crate::cache::{InDomain, RawCache, typed_cache};
use crate::hook::Hook;
use crate::options::{CacheError, Options};
use crate::slot::{OwnedSlot, Slot, VacantSlot};
use core::marker::PhantomData;
use core::mem::ManuallyDrop;
use core::pin::Pin;
use core::ptr::NonNull;
use quietline_platform::AllocError;
use quietline_sync::rcu;
use std::sync::Arc;

/// A slab cache of `T`s. `T` has at most 16 KiB. It may need `drop`, be zero-sized or be
/// over-aligned.
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
    pub(crate) raw: RawCache,
    of: PhantomData<fn() -> T>,
}

/// Memory of objects without values. Dropping it frees the memory in one bulk operation.
///
/// The entries came from the cache, and no other owner has them.
struct BulkMemory<'a, const N: usize>(&'a RawCache, [Entry; N]);

impl<const N: usize> Drop for BulkMemory<'_, N> {
    #[inline(always)]
    fn drop(&mut self) {
        // SAFETY: see the type.
        unsafe { self.0.free_bulk(&mut self.1) };
    }
}

impl<T> Cache<T> {
    /// Returns an empty cache. `name` is copied, see [`Name`](crate::Name).
    ///
    /// # Errors
    /// [`CacheError`].
    pub fn new(name: &str) -> Result<Self, CacheError> {
        Self::with_options(Options::of::<T>(name))
    }

    /// Returns an empty cache with options other than the defaults of [`Options::of`]: tunables,
    /// merging, checks, larger objects.
    ///
    /// # Errors
    /// [`CacheError`]: [`WrongType`](CacheError::WrongType) if the objects are smaller or less
    /// aligned than a `T`; [`Hooks`](CacheError::Hooks) and [`Domain`](CacheError::Domain) if the
    /// options have hooks or name an RCU domain, for which there are [`TypesafeCache`] and
    /// [`RcuCache`](crate::RcuCache).
    pub fn with_options(options: Options) -> Result<Self, CacheError> {
        options.check_typed::<T>()?;
        Ok(Self { raw: RawCache::new(options)?, of: PhantomData })
    }

    /// Stores `value`. Costs and lines as [`RawCache::alloc`].
    ///
    /// # Errors
    /// [`AllocError`]; `value` is dropped.
    #[inline(always)]
    pub fn alloc(&self, value: T) -> Result<Slot<'_, T>, AllocError> {
        Slot::new(self, value)
    }

    /// Stores `value` in a slot that owns the cache. Costs and lines as [`RawCache::alloc`], and
    /// one locked instruction on the reference count of the cache.
    ///
    /// Other ways to make a value ([`alloc_with`](Self::alloc_with),
    /// [`alloc_vacant`](Self::alloc_vacant)) end in [`Slot::into_owned`].
    ///
    /// # Errors
    /// [`AllocError`]; `value` is dropped.
    pub fn alloc_owned(self: &Arc<Self>, value: T) -> Result<OwnedSlot<T>, AllocError> {
        Ok(self.alloc(value)?.into_owned(self))
    }

    /// Allocates memory, calls `make` and stores its value there. The compiler can construct a
    /// large value in place.
    ///
    /// # Errors
    /// [`AllocError`]; `make` is not called.
    #[inline(always)]
    pub fn alloc_with(&self, make: impl FnOnce() -> T) -> Result<Slot<'_, T>, AllocError> {
        // Frees the memory if `make` panics.
        let vacant = self.alloc_vacant()?;
        // SAFETY: fresh memory of T's size and alignment, which then holds a value.
        unsafe {
            vacant.memory.write(make());
            Ok(vacant.assume_init())
        }
    }

    /// Allocates the memory of a value that is made later: after a step that can fail, in place, or
    /// under a lock. See [`VacantSlot`]. Costs and lines as [`RawCache::alloc`].
    ///
    /// # Errors
    /// [`AllocError`].
    #[inline(always)]
    pub fn alloc_vacant(&self) -> Result<VacantSlot<'_, T>, AllocError> {
        Ok(VacantSlot { memory: self.raw.alloc()?.cast(), cache: self })
    }

    /// Stores `value` where it does not move until it is dropped, as [`Box::pin`] does. Costs and
    /// lines as [`RawCache::alloc`].
    ///
    /// A value that needs its own address is initialised through [`Pin::as_mut`]. If that fails,
    /// dropping the slot drops the value.
    ///
    /// # Errors
    /// [`AllocError`]; `value` is dropped.
    #[inline(always)]
    pub fn alloc_pin(&self, value: T) -> Result<Pin<Slot<'_, T>>, AllocError> {
        Ok(self.alloc(value)?.into_pin())
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
        // If `make` panics, this frees the memory without a value, and the slots drop the values.
        let mut unused = BulkMemory(&self.raw, objects);
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
    ///
    /// # Panics
    /// If a value's drop panics: the other values are dropped, and all memory is freed. If a slot
    /// is one of another cache: the memory of slots before it can leak.
    pub fn free_bulk<const N: usize>(&self, slots: [Slot<'_, T>; N]) {
        let own = |slot: Slot<'_, T>| {
            assert!(core::ptr::eq(slot.cache, self), "the slot belongs to another cache");
            ManuallyDrop::new(slot).value
        };
        if !core::mem::needs_drop::<T>() {
            let mut objects: [Entry; N] = slots.map(|slot| Some(own(slot).cast()));
            // SAFETY: they came from this cache, and their owners are gone.
            return unsafe { self.raw.free_bulk(&mut objects) };
        }
        // Frees the memory also if the drop of a value panics.
        let mut memory = BulkMemory(&self.raw, [None; N]);
        for (entry, slot) in memory.1.iter_mut().zip(slots) {
            let value = own(slot);
            *entry = Some(value.cast());
            // SAFETY: the slot owned the value, and is forgotten.
            unsafe { value.drop_in_place() };
        }
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

typed_cache!(Cache, Sized);

/// A type whose objects can be in a typesafe cache, where readers see them also before their first
/// use and between their lives. The fields are atomics or cells. The constructed state survives
/// freeing.
///
/// # Safety
/// With a [`LINK_OFFSET`](Self::LINK_OFFSET), the four bytes there may take any value while the
/// object is free, without harm to readers, to the next owner, or to `Self`'s `Drop`.
pub unsafe trait Typesafe: Sync + Send + 'static {
    /// Returns the initial state of an object. A panic leaks the objects of the same batch.
    fn construct() -> Self;

    /// The offset of four bytes that no reader looks at, for the allocator's link in a free object:
    /// see [`Options::link_offset`].
    const LINK_OFFSET: Option<usize> = None;
}

/// A slab cache of `T`s that readers find without owning them (`SLAB_TYPESAFE_BY_RCU`). Memory that
/// a read-side critical section may look at stays a `T` until the section ends, but perhaps becomes
/// another `T`.
///
/// So a reader that finds a `T` through a pointer takes a reference and then checks the pointer
/// again. [`TypesafePlace`](crate::TypesafePlace) does both.
pub struct TypesafeCache<T: Typesafe> {
    raw: InDomain,
    of: PhantomData<fn() -> T>,
}

impl<T: Typesafe> TypesafeCache<T> {
    /// An empty cache whose readers are those of `domain`: a `&'static Domain`, or a
    /// [`DomainHandle`](rcu::DomainHandle). If the cache has the last handle, its drop ends the
    /// domain.
    ///
    /// # Errors
    /// [`CacheError`].
    pub fn new(name: &str, domain: impl Into<rcu::DomainHandle>) -> Result<Self, CacheError> {
        Self::with_options(Options::of::<T>(name), domain)
    }

    /// Returns an empty cache with options other than the defaults of [`Options::of`]. Its readers
    /// are those of `domain`. [`Debug::POISON`](crate::Debug::POISON) has no effect, because
    /// readers may look at free objects.
    ///
    /// # Errors
    /// [`CacheError`]: [`WrongType`](CacheError::WrongType) if the objects are smaller or less
    /// aligned than a `T`; [`Hooks`](CacheError::Hooks) and [`Domain`](CacheError::Domain) if the
    /// options have hooks or name a domain; [`BadLayout`](CacheError::BadLayout) if they have a
    /// [`link_offset`](Options::link_offset), which is [`Typesafe::LINK_OFFSET`] here.
    pub fn with_options(
        options: Options,
        domain: impl Into<rcu::DomainHandle>,
    ) -> Result<Self, CacheError> {
        options.check_typed::<T>()?;
        if options.link_offset.is_some() {
            return Err(CacheError::BadLayout);
        }
        let options = |domain| Self::raw_options(options, domain);
        // SAFETY: the hooks are for memory of T's size and alignment, and a T may be made and
        // dropped on any thread. No object is freed by RCU.
        let raw = unsafe { InDomain::new(domain.into(), options)? };
        Ok(Self { raw, of: PhantomData })
    }

    /// Returns `options` with the hooks of a typesafe cache of `T`s: those of a
    /// [`LazyCache`](crate::LazyCache) of such objects, none of which is freed by RCU. The options
    /// are for memory of T's size and alignment.
    pub fn raw_options(options: Options, domain: &'static rcu::Domain) -> Options {
        unsafe fn ctor<T: Typesafe>(memory: NonNull<u8>) {
            // SAFETY: the cache passes memory of T's size and alignment that nobody uses.
            unsafe { memory.cast::<T>().write(T::construct()) };
        }
        Options {
            ctor: Some(Hook::new(ctor::<T>)),
            dtor: Hook::drop_of::<T>(),
            typesafe: Some(domain),
            link_offset: T::LINK_OFFSET,
            ..options
        }
    }

    /// Allocates a `T`, in the state in which it was freed, or freshly constructed. Costs and lines
    /// as [`RawCache::alloc`].
    ///
    /// The pointer may be dereferenced, shared, until the object is freed and the grace period
    /// after that has elapsed.
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

    /// Frees a `T` in any state. Readers may still look at it, and it may be reused at once.
    ///
    /// # Safety
    /// `object` came from [`alloc`](Self::alloc) of this cache, and its owner uses it no more. With
    /// a [`LINK_OFFSET`](Typesafe::LINK_OFFSET), the four bytes there may take any value without
    /// harm to readers, to the next owner, or to `T`'s `Drop`.
    #[inline(always)]
    pub unsafe fn free(&self, object: NonNull<T>) {
        // SAFETY: passed on.
        unsafe { self.raw.free(object.cast()) };
    }

    /// Frees a `T` if the CPU's sheaf has room, and returns `true`. Returns `false` if the caller
    /// still owns it and has to [free](Self::free) it.
    ///
    /// # Safety
    /// As [`free`](Self::free).
    #[inline(always)]
    pub unsafe fn try_free(&self, object: NonNull<T>) -> bool {
        // SAFETY: passed on.
        unsafe { self.raw.try_free(object.cast()) }
    }

    /// Returns the domain of the cache's readers.
    #[inline(always)]
    pub fn domain(&self) -> &rcu::Domain {
        &self.raw.domain
    }
}

typed_cache!(TypesafeCache, Typesafe);
