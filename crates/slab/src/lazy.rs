//! A cache that is made when its first object is allocated.
//!
//! A program may have many caches of which it uses few: each kernel has one for each kind of its
//! objects. A cache that holds nothing takes a kilobyte, and a word of each statistic for every
//! CPU. One that is not made yet takes 48 bytes.
//!
//! # The hot paths
//!
//! They are those of [`RawCache`]: a restartable sequence on the CPU's sheaf, which needs the
//! pointer to the CPUs' words and the offset of the rseq area. Before the cache is made there is no
//! offset, as where the system has no restartable sequences: the test for the latter sends the
//! first call to the slow path, which makes the cache.
//!
//! # Order
//!
//! The cache is published before its words, so a thread that finds the words finds the cache. An
//! object is freed after it was allocated, so the thread that frees it finds the cache.

use crate::account::{Account, AccountState};
use crate::bulk::Entry;
use crate::cache::RawCache;
use crate::options::{CacheError, Merge, Options};
use crate::sheaves::{Sheaves, SheavesCell};
use crate::stats::Stats;
use core::fmt;
use core::mem::ManuallyDrop;
use core::ptr::NonNull;
use quietline_platform::{AllocError, percpu};
use quietline_sync::rcu::Domain;
use quietline_sync::{LazyBox, Once, Shared};

/// A [`RawCache`] that is made when its first object is allocated.
///
/// ```
/// use quietline_slab::{LazyCache, Options};
/// use quietline_sync::rcu;
///
/// let domain = rcu::global()?;
/// // SAFETY: the options have no hooks.
/// let cache = unsafe {
///     LazyCache::new(|domain| Options { rcu: Some(domain), ..Options::new("fd", 64, 64) }, domain)
/// };
/// assert!(cache.made().is_none());
/// assert_eq!((&*cache.stats().name, cache.stats().active), ("fd", 0));
/// let object = cache.alloc()?;
/// assert_eq!(cache.stats().active, 1);
/// // SAFETY: allocated above, and used no more.
/// unsafe { cache.free(object) };
/// # Ok::<(), quietline_platform::AllocError>(())
/// ```
pub struct LazyCache {
    /// Those of the cache, a pointer nearer.
    sheaves: SheavesCell,
    made: LazyBox<RawCache>,
    options: fn(&'static Domain) -> Options,
    domain: &'static Domain,
    account: Once<Shared<AccountState>>,
}

impl LazyCache {
    /// Returns a cache that is not made. `options` returns its options, always the same, for
    /// objects that wait for grace periods of `domain`.
    ///
    /// # Safety
    /// The hooks of the options are as [`RawCache::with_hooks`] asks.
    pub unsafe fn new(options: fn(&'static Domain) -> Options, domain: &'static Domain) -> Self {
        let (sheaves, made) = (SheavesCell::new(), LazyBox::new());
        Self { sheaves, made, options, domain, account: Once::empty() }
    }

    /// As [`Control::charge_to`](crate::Control::charge_to), for the cache that will be made. It is
    /// not merged with others. To be called before other threads use this: a cache that is being
    /// made at the same time may not charge.
    ///
    /// # Errors
    /// [`CacheError::Account`] if the cache is made, or has an account.
    pub fn charge_to(&self, account: &Account) -> Result<(), CacheError> {
        if self.made().is_some() {
            return Err(CacheError::Account);
        }
        self.account.set(account.state().clone()).map_err(|_| CacheError::Account).map(drop)
    }

    /// Returns the account that the cache charges, or will charge.
    pub fn account(&self) -> Option<Account> {
        // SAFETY: owned by this.
        self.account.get().map(|state| unsafe { Account::of(state) })
    }

    /// Returns the cache, if it was made.
    #[inline]
    pub fn made(&self) -> Option<&RawCache> {
        self.made.get()
    }

    /// Returns the cache, if it was made, for its only user.
    pub fn made_mut(&mut self) -> Option<&mut RawCache> {
        self.made.get_mut()
    }

    /// Returns the cache, made if it was not.
    ///
    /// # Errors
    /// [`AllocError`]; nothing has changed.
    ///
    /// # Panics
    /// If the options are not those of a cache: see [`CacheError`].
    pub fn get_or_make(&self) -> Result<&RawCache, AllocError> {
        self.made.get_or_make(|| self.make())
    }

    #[cold]
    fn make(&self) -> Result<RawCache, AllocError> {
        let account = self.account();
        let mut options = (self.options)(self.domain);
        if account.is_some() {
            options.merge = Merge::Never;
        }
        // SAFETY: by the contract of `new`.
        let fresh = match unsafe { RawCache::with_hooks(options) } {
            Ok(fresh) => fresh,
            Err(CacheError::Alloc(error)) => return Err(error),
            Err(error) => panic!("the options of a cache: {error}"),
        };
        if let Some(account) = account {
            fresh.charge_to(&account).expect("a fresh cache that is not merged");
        }
        Ok(fresh)
    }

    /// The words of the cache for a fast path: `None` before it is made, and in the fallback.
    #[inline(always)]
    fn sheaves(&self) -> Option<ManuallyDrop<Sheaves>> {
        // SAFETY: the words are those of the cache, which stays until this is dropped.
        unsafe { self.sheaves.ready() }
    }

    /// The cache of an object that was allocated.
    fn of_object(&self) -> &RawCache {
        self.made().expect("an object was allocated from it")
    }

    /// As [`RawCache::alloc`]. The first call makes the cache.
    ///
    /// # Errors
    /// [`AllocError`] when the system gives no memory.
    #[inline(always)]
    pub fn alloc(&self) -> Result<NonNull<u8>, AllocError> {
        match self.try_alloc() {
            Some(object) => Ok(object),
            None => self.alloc_slow(),
        }
    }

    /// As [`RawCache::try_alloc`]: `None` also if the cache is not made.
    #[inline(always)]
    pub fn try_alloc(&self) -> Option<NonNull<u8>> {
        NonNull::new(self.sheaves()?.pop_restartable() as *mut u8)
    }

    #[cold]
    #[inline(never)]
    fn alloc_slow(&self) -> Result<NonNull<u8>, AllocError> {
        self.made_for_fast_paths()?.cpus.alloc_slow()
    }

    /// Returns the cache, made if it was not, with its words where the fast paths look for them.
    fn made_for_fast_paths(&self) -> Result<&RawCache, AllocError> {
        let made = self.get_or_make()?;
        if self.sheaves().is_none() && !percpu::is_fallback() {
            // Here, not where the cache is made: a thread may stop in between, at a fork for ever.
            // SAFETY: the cache stays until this is dropped.
            unsafe { self.sheaves.set(&made.sheaves) };
        }
        Ok(made)
    }

    /// Allocates memory, calls `make` and stores its value there.
    ///
    /// # Errors
    /// [`AllocError`]; `make` is not called.
    ///
    /// # Safety
    /// Objects of the cache have the size and the alignment of a `T`, or more.
    #[inline(always)]
    pub unsafe fn alloc_with<T>(&self, make: impl FnOnce() -> T) -> Result<NonNull<T>, AllocError> {
        /// Gives the memory back should `make` panic.
        struct Vacant<'a>(&'a LazyCache, NonNull<u8>);
        impl Drop for Vacant<'_> {
            fn drop(&mut self) {
                // SAFETY: allocated below, and without a value.
                unsafe { self.0.free(self.1) };
            }
        }
        let vacant = Vacant(self, self.alloc()?);
        // SAFETY: fresh memory, by contract large enough.
        unsafe { vacant.1.cast::<T>().write(make()) };
        Ok(ManuallyDrop::new(vacant).1.cast())
    }

    /// As [`RawCache::free`].
    ///
    /// # Safety
    /// As [`RawCache::free`].
    #[inline(always)]
    pub unsafe fn free(&self, object: NonNull<u8>) {
        // SAFETY: passed on.
        if unsafe { !self.try_free(object) } {
            self.free_slow(object);
        }
    }

    /// As [`RawCache::try_free`].
    ///
    /// # Safety
    /// As [`RawCache::free`].
    #[inline(always)]
    pub unsafe fn try_free(&self, object: NonNull<u8>) -> bool {
        #[cfg(debug_assertions)]
        self.of_object().slabs().check_owner(object);
        self.sheaves().is_some_and(|sheaves| sheaves.push_restartable(object.as_ptr() as usize))
    }

    #[cold]
    #[inline(never)]
    fn free_slow(&self, object: NonNull<u8>) {
        self.of_object().cpus.free_slow(object.as_ptr() as usize);
    }

    /// As [`RawCache::free_rcu`].
    ///
    /// # Safety
    /// As [`RawCache::free_rcu`].
    #[inline(always)]
    pub unsafe fn free_rcu(&self, object: NonNull<u8>) {
        #[cfg(debug_assertions)]
        self.of_object().slabs().check_owner(object);
        let pushed = self.sheaves().is_some_and(|s| s.push_rcu(object.as_ptr() as usize));
        if !pushed {
            self.free_rcu_slow(object);
        }
    }

    #[cold]
    #[inline(never)]
    fn free_rcu_slow(&self, object: NonNull<u8>) {
        // SAFETY: by the contract of `free_rcu`. It may find room where its caller found no words.
        unsafe { self.of_object().free_rcu(object) };
    }

    /// As [`RawCache::alloc_bulk`].
    ///
    /// # Errors
    /// [`AllocError`]: nothing is allocated, and all entries are `None`.
    #[inline]
    pub fn alloc_bulk(&self, objects: &mut [Entry]) -> Result<(), AllocError> {
        match self.made_for_fast_paths() {
            Ok(made) => made.alloc_bulk(objects),
            Err(error) => {
                objects.fill(None);
                Err(error)
            }
        }
    }

    /// As [`RawCache::free_bulk`].
    ///
    /// # Safety
    /// As [`RawCache::free_bulk`].
    #[inline]
    pub unsafe fn free_bulk(&self, objects: &mut [Entry]) {
        match self.made() {
            // SAFETY: passed on.
            Some(made) => unsafe { made.free_bulk(objects) },
            None => debug_assert!(objects.iter().all(Option::is_none), "nothing was allocated"),
        }
    }

    /// Returns the cache's statistics: zeros, but for its options, before it is made.
    pub fn stats(&self) -> Stats {
        match self.made() {
            Some(made) => made.stats(),
            None => Stats::unused((self.options)(self.domain)),
        }
    }

    /// As [`Control::shrink`](crate::Control::shrink).
    pub fn shrink(&self) {
        if let Some(made) = self.made() {
            made.shrink();
        }
    }

    /// As [`RawCache::flush_rcu`].
    ///
    /// # Panics
    /// As [`RawCache::flush_rcu`].
    pub fn flush_rcu(&self) {
        if let Some(made) = self.made() {
            made.flush_rcu();
        }
    }
}

impl fmt::Debug for LazyCache {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LazyCache").field("stats", &self.stats()).finish()
    }
}
