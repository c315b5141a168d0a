//! A typed cache of values that readers find without a reference count, and that are dropped after a
//! grace period.

use crate::cache::{InDomain, typed_cache};
use crate::hook::Hook;
use crate::options::{CacheError, Options};
use core::marker::PhantomData;
use core::ptr::NonNull;
use quietline_platform::AllocError;
use quietline_sync::rcu::{self, Domain, DomainHandle, Pointer, Storage, Unpublished};

/// A cache of `T`s that readers find through a [`Place`] while updaters replace them. Readers do not
/// wait, count or write, and no value is dropped while a reader holds it. `T` has at most 16 KiB. It
/// may need `drop`, be zero-sized or be over-aligned. Callers need no `unsafe`.
///
/// A value has one owner, of one of three types: [`RcuSlot`], a value that no reader has seen and
/// that may be changed; [`Place`], a pointer in which readers find it; [`Unlinked`], a value that
/// readers may still hold. When that is dropped, the value waits for a grace period of the domain.
/// It is dropped where the domain's callbacks run ([`Domain::poll`] and others), never where
/// another value is freed. A program polls the domain now and then; a [limit](Self::set_limit)
/// bounds what waits meanwhile.
///
/// ```
/// use quietline_slab::{Place, RcuCache};
/// use quietline_sync::rcu;
///
/// let domain = rcu::global()?;
/// let cache = RcuCache::<String>::new("motd", domain)?;
/// let motd = Place::empty(&cache);
/// motd.replace(cache.alloc("hello".to_owned())?);
/// {
///     let section = domain.read();
///     let text = motd.load(&section).expect("just stored");
///     motd.replace(cache.alloc("good bye".to_owned())?);
///     assert_eq!(text, "hello"); // the old text stays while the section is open
///     assert_eq!(motd.load(&section).unwrap(), "good bye");
/// }
/// assert!(motd.take().is_some());
/// # Ok::<(), quietline_slab::CacheError>(())
/// ```
///
/// A reference cannot outlive its section:
///
/// ```compile_fail,E0505
/// # use quietline_slab::{Place, RcuCache};
/// # use quietline_sync::rcu;
/// let domain = rcu::global().unwrap();
/// let cache = RcuCache::<String>::new("motd", domain).unwrap();
/// let motd = Place::empty(&cache);
/// let section = domain.read();
/// let text = motd.load(&section).unwrap();
/// drop(section);
/// println!("{text}");
/// ```
///
/// Values that refer to each other, as in a list or a tree, hold `Place<'static, T>`s of a cache
/// that is never dropped.
pub struct RcuCache<T> {
    raw: InDomain,
    /// Values are dropped as the type for which the cache was made: no subtyping.
    of: PhantomData<fn(T) -> T>,
}

/// A value in an [`RcuCache`] that no reader has seen. Dropping it drops the value at once.
pub type RcuSlot<'c, T> = Unpublished<'c, T, RcuCache<T>>;

/// An RCU-protected pointer to a value in an [`RcuCache`]: see [`Pointer`].
pub type Place<'c, T> = Pointer<'c, T, RcuCache<T>>;

/// A value in an [`RcuCache`] that readers may still hold, although no pointer leads to it any more.
/// Dropping it drops the value after a grace period.
pub type Unlinked<'c, T> = rcu::Unlinked<'c, T, RcuCache<T>>;

/// Objects of the cache. Retirement waits only at the cache's [limit](RcuCache::set_limit).
// SAFETY: the cache calls the drop of a `T` as the release function of an object that was freed by
// RCU, after a grace period of its domain.
unsafe impl<T> Storage<T> for RcuCache<T> {
    #[inline(always)]
    fn domain(&self) -> &Domain {
        self.domain()
    }

    #[inline(always)]
    unsafe fn free(&self, memory: NonNull<T>) {
        // SAFETY: by contract it came from this cache, and has no value.
        unsafe { self.raw.free(memory.cast()) };
    }

    #[inline(always)]
    unsafe fn retire(&self, value: NonNull<T>) {
        // SAFETY: by contract it came from this cache, and later sections cannot find it.
        unsafe { self.raw.free_rcu(value.cast()) };
    }
}

impl<T: Send + Sync + 'static> RcuCache<T> {
    /// An empty cache whose readers are those of `domain`; `name` is shown in statistics.
    ///
    /// The domain is a `&'static Domain`, or a [`DomainHandle`]. If the cache has the last handle,
    /// its drop ends the domain: values that wait are dropped before it returns.
    ///
    /// # Errors
    /// [`CacheError`].
    pub fn new(name: &str, domain: impl Into<DomainHandle>) -> Result<Self, CacheError> {
        Self::with_options(Options::of::<T>(name), domain)
    }

    /// A cache with tunables other than the defaults.
    ///
    /// # Errors
    /// [`CacheError`]: [`WrongType`](CacheError::WrongType) if the objects are smaller or less
    /// aligned than a `T`; [`Hooks`](CacheError::Hooks) and [`Domain`](CacheError::Domain) if the
    /// options have hooks or name a domain.
    pub fn with_options(
        options: Options,
        domain: impl Into<DomainHandle>,
    ) -> Result<Self, CacheError> {
        options.check_typed::<T>()?;
        let release = Hook::drop_of::<T>();
        // SAFETY: the hook is for objects that hold a T; whoever is given to `free_rcu` does, and T may be dropped on any
        // thread and at any time.
        let raw = unsafe {
            InDomain::new(domain.into(), |domain| Options {
                release,
                rcu: Some(domain),
                ..options
            })?
        };
        Ok(Self { raw, of: PhantomData })
    }

    /// Stores `value` where only its owner sees it. Costs and lines as [`RawCache::alloc`](crate::RawCache::alloc).
    ///
    /// # Errors
    /// [`AllocError`]; `value` is dropped.
    #[inline(always)]
    pub fn alloc(&self, value: T) -> Result<RcuSlot<'_, T>, AllocError> {
        let memory = self.raw.alloc()?.cast::<T>();
        // SAFETY: fresh memory of T's size and alignment.
        unsafe { memory.write(value) };
        // SAFETY: stored in this cache just now. `new` has asked for the bounds.
        Ok(unsafe { RcuSlot::from_raw(memory, self) })
    }
}

impl<T> RcuCache<T> {
    /// Returns the domain of the readers.
    #[inline(always)]
    pub fn domain(&self) -> &Domain {
        &self.raw.domain
    }

    /// Bounds the values that wait for a grace period: see [`RawCache::set_rcu_limit`](crate::RawCache::set_rcu_limit).
    pub fn set_limit(&self, values: usize) {
        self.raw.set_rcu_limit(values);
    }

    /// Waits until all values that were given up before have been dropped: see [`RawCache::flush_rcu`](crate::RawCache::flush_rcu).
    pub fn flush(&self) {
        self.raw.flush_rcu();
    }
}

typed_cache!(RcuCache, Sized);
