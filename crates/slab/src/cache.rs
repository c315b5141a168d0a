//! The untyped cache: hit paths. [`Control`] has the layers behind them.

use crate::control::Control;
use crate::options::{CacheError, Options};
use crate::sheaves::Sheaves;
use crate::{registry, visits};
use core::mem::ManuallyDrop;
use core::ops::Deref;
use core::ptr::NonNull;
use quietline_platform::AllocError;
use quietline_platform::atomic::{AtomicU64, Ordering};
use quietline_sync::Shared;
use quietline_sync::rcu::{Domain, DomainHandle};

/// A cache of objects of one size (`struct kmem_cache`).
///
/// Any thread may allocate and free. While a CPU has objects in its sheaf, [`alloc`](Self::alloc) and
/// [`free`](Self::free) are one restartable sequence each: no locked instruction, no shared line.
///
/// Dropping the cache gives all memory back, that of objects which wait for a grace period after it. Objects that are
/// still out then are leaked, memory and all, so that their users do not crash; [`Stats::active`](crate::Stats::active) says
/// before how many there are.
#[derive(Debug)]
pub struct RawCache {
    /// Those of `cache`, a pointer nearer.
    pub(crate) sheaves: ManuallyDrop<Sheaves>,
    pub(crate) cache: Shared<Control>,
}

/// A cache that keeps the domain of its options: that of a typed cache.
pub(crate) struct InDomain {
    raw: ManuallyDrop<RawCache>,
    pub(crate) domain: ManuallyDrop<DomainHandle>,
}

/// An object's memory, owned, without a value. Dropping it frees the memory: also while a panic of
/// the value's drop unwinds.
#[derive(Debug)]
pub(crate) struct Memory<'a> {
    cache: &'a RawCache,
    object: NonNull<u8>,
}

impl<'a> Memory<'a> {
    /// # Safety
    /// `object` came from this cache, and its owner gives it up. It may hold a value until this is
    /// dropped.
    #[inline(always)]
    pub(crate) unsafe fn new(cache: &'a RawCache, object: NonNull<u8>) -> Self {
        Self { cache, object }
    }
}

impl Drop for Memory<'_> {
    #[inline(always)]
    fn drop(&mut self) {
        // SAFETY: by the contract of `new`.
        unsafe { self.cache.free(self.object) };
    }
}

impl RawCache {
    /// An empty cache. Allocates no slab and no sheaf yet. If the options allow it, this may be another handle on a cache
    /// that is alike: see [`Merge`](crate::Merge).
    ///
    /// # Errors
    /// [`CacheError`]; [`CacheError::Hooks`] for options with a constructor, a destructor or a release function.
    pub fn new(options: Options) -> Result<Self, CacheError> {
        if options.has_hooks() {
            return Err(CacheError::Hooks);
        }
        // SAFETY: there is no hook.
        unsafe { Self::with_hooks(options) }
    }

    /// An empty cache with a constructor, a destructor, a release function, some or none of them.
    ///
    /// # Errors
    /// [`CacheError`].
    ///
    /// # Safety
    /// The constructor may be called with any memory of the options' size and alignment that nobody else uses, the
    /// destructor with any that was constructed and is used no more, the release function with any object that was given
    /// to [`free_rcu`](Self::free_rcu); all of them on any thread. The last two do not unwind.
    pub unsafe fn with_hooks(options: Options) -> Result<Self, CacheError> {
        let cache = registry::enter(options)?;
        // SAFETY: used through this handle only, which owns `cache` with the sheaves.
        let sheaves = unsafe { cache.cpus.sheaves.alias() };
        Ok(Self { sheaves, cache })
    }

    /// An object's memory: as its last user left it, but for the link (see [`Options::link_offset`]); unspecified if
    /// it never had one and there is no constructor.
    ///
    /// Writes no shared line while the CPU's sheaf has objects; else, once in a sheaf's worth, the barn's lock or a
    /// slab's word.
    ///
    /// # Errors
    /// [`AllocError`] when the system gives no memory.
    #[inline(always)]
    pub fn alloc(&self) -> Result<NonNull<u8>, AllocError> {
        match self.try_alloc() {
            Some(object) => Ok(object),
            None => self.cache.cpus.alloc_slow(),
        }
    }

    /// Allocates from the CPU's sheaf alone. Returns `None` if the sheaf is empty; the caller then
    /// calls [`alloc`](Self::alloc), in a function of its own that the fast path does not inline.
    #[inline(always)]
    pub fn try_alloc(&self) -> Option<NonNull<u8>> {
        NonNull::new(self.sheaves.pop_restartable() as *mut u8)
    }

    /// Gives an object back. Never fails.
    ///
    /// Writes no shared line while the CPU's sheaf has room; else as [`alloc`](Self::alloc).
    ///
    /// # Safety
    /// `object` came from this cache, and nobody uses it any more. (In a typesafe cache, readers may still look.)
    #[inline(always)]
    pub unsafe fn free(&self, object: NonNull<u8>) {
        // SAFETY: passed on.
        if unsafe { !self.try_free(object) } {
            self.cache.cpus.free_slow(object.as_ptr() as usize);
        }
    }

    /// Gives an object back if the CPU's sheaf has room, and returns `true`. Else it is still the
    /// caller's, who [frees](Self::free) it: for fast paths that leave the rest to a function of
    /// its own.
    ///
    /// # Safety
    /// As [`free`](Self::free).
    #[inline(always)]
    pub unsafe fn try_free(&self, object: NonNull<u8>) -> bool {
        #[cfg(debug_assertions)]
        self.cache.slabs().check_owner(object);
        self.sheaves.push_restartable(object.as_ptr() as usize)
    }

    /// For operations that are compiled into a caller in another language: the address of CPU 0's words, the first of which
    /// points to the CPU's main sheaf (see `quietline_platform::percpu`, Layout). Whoever pops from or pushes to it there
    /// keeps the contracts of [`sheaf_pop`](quietline_platform::percpu::Words::sheaf_pop) and
    /// [`sheaf_push`](quietline_platform::percpu::Words::sheaf_push).
    pub fn percpu_base(&self) -> NonNull<AtomicU64> {
        self.sheaves.base()
    }
}

impl Deref for RawCache {
    type Target = Control;

    #[inline(always)]
    fn deref(&self) -> &Control {
        &self.cache
    }
}

/// A typed cache dereferences to its [`Control`], and is shown as its statistics.
macro_rules! typed_cache {
    ($name:ident, $bound:path) => {
        impl<T: $bound> core::ops::Deref for $name<T> {
            type Target = $crate::Control;

            #[inline(always)]
            fn deref(&self) -> &$crate::Control {
                &self.raw
            }
        }

        impl<T: $bound> core::fmt::Debug for $name<T> {
            fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
                f.debug_struct(stringify!($name)).field("stats", &self.stats()).finish()
            }
        }
    };
}
pub(crate) use typed_cache;

impl Drop for RawCache {
    fn drop(&mut self) {
        self.close();
    }
}

impl RawCache {
    /// Gives a handle up. Returns whether no other thread uses the domain of the options from now
    /// on, outside the domain's callbacks and other handles.
    fn close(&mut self) -> bool {
        if !registry::leave(&self.cache) {
            return true;
        }
        // A thread that has looked in to reclaim is soon gone.
        registry::wait_for_guests(&self.cache);
        if Shared::is_unique(&mut self.cache) {
            // SAFETY: the only handle ends here.
            unsafe { self.cache.close_alone() }
        } else {
            // SAFETY: the last handle ends here.
            unsafe { self.cache.close() }
        }
        // The last owner takes it apart: this one, unless objects wait for a grace period.
        visits::wait_for(|| {
            // Relaxed: what waits was queued by `close` at the latest.
            Shared::is_unique(&mut self.cache)
                || self.cache.waiting.load(Ordering::Relaxed) > 0
                || registry::has_guests(&self.cache)
        });
        Shared::is_unique(&mut self.cache)
            || !registry::has_guests(&self.cache) && self.cache.options().typesafe.is_none()
    }
}

impl InDomain {
    /// [`RawCache::with_hooks`], with the options for a domain.
    ///
    /// # Errors
    /// [`CacheError`].
    ///
    /// # Safety
    /// As [`RawCache::with_hooks`]. Typesafe objects are not freed by RCU.
    pub(crate) unsafe fn new(
        domain: DomainHandle,
        options: impl FnOnce(&'static Domain) -> Options,
    ) -> Result<Self, CacheError> {
        // SAFETY: three use it. This cache has the handle. Guests of the registry have left before
        // the handle goes, or it stays (see `drop`). Objects that wait for a grace period use it
        // inside the domain's callbacks.
        let named = unsafe { NonNull::from(&*domain).as_ref() };
        // SAFETY: by contract.
        let raw = unsafe { RawCache::with_hooks(options(named))? };
        Ok(Self { raw: ManuallyDrop::new(raw), domain: ManuallyDrop::new(domain) })
    }
}

impl Deref for InDomain {
    type Target = RawCache;

    #[inline(always)]
    fn deref(&self) -> &RawCache {
        &self.raw
    }
}

impl Drop for InDomain {
    fn drop(&mut self) {
        let unused = self.raw.close();
        // SAFETY: both are dropped once. After `close`, a handle has its owner left to drop.
        unsafe {
            core::ptr::drop_in_place(&mut self.raw.cache);
            // A guest that does not leave, perhaps further up this stack, may use the domain.
            if unused {
                ManuallyDrop::drop(&mut self.domain);
            }
        }
    }
}
