//! A typed cache whose values readers find without owning them, and that end after a grace period.

use crate::cache::{RawCache, typed_cache};
use crate::hook::Hook;
use crate::options::{CacheError, Options};
use crate::slot::RcuSlot;
use core::fmt;
use core::marker::PhantomData;
use core::mem::ManuallyDrop;
use core::ops::Deref;
use core::ptr::{self, NonNull};
use quietline_platform::AllocError;
use quietline_platform::atomic::{AtomicPtr, Ordering};
use quietline_sync::rcu::{Domain, Guard};

/// A cache of `T`s that readers find through a [`Place`] while others replace them: no reader waits, counts or writes, and
/// no value ends under a reader's eyes. Works for every `T` up to 16 KiB: with `Drop`, zero-sized, over-aligned. No unsafe
/// for callers.
///
/// A value has one owner, as in three types: [`RcuSlot`], which nobody else has seen and which may be changed; a [`Place`],
/// where readers find it; [`Unlinked`], which readers may still be looking at. When that is
/// dropped, the value waits for a grace period of the domain. It is dropped where the domain's
/// callbacks run ([`Domain::poll`] and others), never where another value is freed. A program polls
/// the domain now and then; a [limit](Self::set_limit) bounds what waits meanwhile.
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
/// Values that refer to each other, as in a list or a tree, hold `Place<'static, T>`s of a cache that is never dropped.
pub struct RcuCache<T> {
    pub(crate) raw: RawCache,
    domain: &'static Domain,
    /// Values are dropped as what the cache was made for: no subtyping.
    of: PhantomData<fn(T) -> T>,
}

/// Where readers find a value, or none. Dropping it drops the value, after a grace period.
pub struct Place<'c, T> {
    value: AtomicPtr<T>,
    cache: &'c RcuCache<T>,
}

/// A value that is in no place any more, but that readers may be looking at. Dropping it drops the value after a grace
/// period; it may be put in a place again instead.
#[must_use = "the value is freed after a grace period if this is dropped"]
pub struct Unlinked<'c, T> {
    value: NonNull<T>,
    cache: &'c RcuCache<T>,
}

// SAFETY: the value is shared with readers, and in the end dropped on any thread.
unsafe impl<T: Send + Sync> Send for Unlinked<'_, T> {}
// SAFETY: as above.
unsafe impl<T: Send + Sync> Sync for Unlinked<'_, T> {}

impl<T: Send + Sync + 'static> RcuCache<T> {
    /// An empty cache whose readers are those of `domain`; `name` is shown in statistics.
    ///
    /// # Errors
    /// [`CacheError`].
    pub fn new(name: &str, domain: &'static Domain) -> Result<Self, CacheError> {
        Self::with_options(Options::of::<T>(name), domain)
    }

    /// A cache with tunables other than the defaults.
    ///
    /// # Errors
    /// [`CacheError`]: [`WrongType`](CacheError::WrongType) if the objects are smaller or less
    /// aligned than a `T`; [`Hooks`](CacheError::Hooks) and [`Domain`](CacheError::Domain) if the
    /// options have hooks or name a domain.
    pub fn with_options(options: Options, domain: &'static Domain) -> Result<Self, CacheError> {
        options.check_typed::<T>()?;
        let release = Hook::drop_of::<T>();
        // SAFETY: the hook is for objects that hold a T; whoever is given to `free_rcu` does, and T may be dropped on any
        // thread and at any time.
        let raw =
            unsafe { RawCache::with_hooks(Options { release, rcu: Some(domain), ..options })? };
        Ok(Self { raw, domain, of: PhantomData })
    }

    /// Stores `value` where only its owner sees it. Costs and lines as [`RawCache::alloc`].
    ///
    /// # Errors
    /// [`AllocError`]; `value` is dropped.
    #[inline(always)]
    pub fn alloc(&self, value: T) -> Result<RcuSlot<'_, T>, AllocError> {
        RcuSlot::new(self, value)
    }
}

impl<T> RcuCache<T> {
    /// Whose read sections values wait for.
    pub fn domain(&self) -> &'static Domain {
        self.domain
    }

    /// Bounds the values that wait for a grace period: see [`RawCache::set_rcu_limit`].
    pub fn set_limit(&self, values: usize) {
        self.raw.set_rcu_limit(values);
    }

    /// Waits until all values that were given up before have been dropped: see [`RawCache::flush_rcu`].
    pub fn flush(&self) {
        self.raw.flush_rcu();
    }

    #[inline(always)]
    fn check(&self, guard: &Guard<'_>) {
        if !ptr::eq(guard.domain(), self.domain) {
            wrong_domain(&self.options().name);
        }
    }
}

impl<'c, T> Place<'c, T> {
    /// A place for values of `cache`, with none in it.
    pub fn empty(cache: &'c RcuCache<T>) -> Self {
        Self { value: AtomicPtr::new(ptr::null_mut()), cache }
    }

    /// The value in the place, for as long as the section is open. One plain load; writes nothing.
    ///
    /// # Panics
    /// When the section is one of another domain than the cache's: it would protect nothing.
    #[inline(always)]
    pub fn load<'g>(&self, section: &'g Guard<'_>) -> Option<&'g T> {
        self.cache.check(section);
        // ORDERING: pairs with the release of whoever stored it: the value is seen as it was then.
        // SAFETY: found inside the section, so it was not yet unlinked when the section began; it ends after that.
        unsafe { self.value.load(Ordering::Acquire).as_ref() }
    }

    /// Stores a value, new or unlinked from a place; what was there before. One locked instruction on the place's line.
    ///
    /// # Panics
    /// When the value belongs to another cache.
    pub fn replace(&self, new: impl Into<Unlinked<'c, T>>) -> Option<Unlinked<'c, T>> {
        let new = ManuallyDrop::new(new.into());
        assert!(ptr::eq(new.cache, self.cache), "the value belongs to another cache");
        self.swap(new.value.as_ptr())
    }

    /// Empties the place; what was there.
    pub fn take(&self) -> Option<Unlinked<'c, T>> {
        self.swap(ptr::null_mut())
    }

    /// Stores a value if the place still holds `current`, which a load in the same section found; what was there before.
    /// (That it is the same value and not another one in the same memory is sure, as the section keeps the memory.)
    ///
    /// # Errors
    /// The new value, when the place holds something else by now.
    ///
    /// # Panics
    /// When the new value belongs to another cache, or the section to another domain.
    pub fn replace_if<'g>(
        &self,
        current: Option<&'g T>,
        new: RcuSlot<'c, T>,
        section: &'g Guard<'_>,
    ) -> Result<Option<Unlinked<'c, T>>, RcuSlot<'c, T>> {
        self.cache.check(section);
        assert!(ptr::eq(new.cache, self.cache), "the value belongs to another cache");
        let current = current.map_or(ptr::null_mut(), |current| ptr::from_ref(current).cast_mut());
        // ORDERING: as in `swap`. Relaxed on failure: what was found is not looked at.
        let swapped = self.value.compare_exchange(
            current,
            new.value.as_ptr(),
            Ordering::AcqRel,
            Ordering::Relaxed,
        );
        match swapped {
            Ok(old) => {
                let _ = ManuallyDrop::new(new);
                Ok(self.unlinked(old))
            }
            Err(_) => Err(new),
        }
    }

    fn swap(&self, new: *mut T) -> Option<Unlinked<'c, T>> {
        // ORDERING: release pairs with the acquire of `load`; acquire with the release of whoever stored what comes out,
        // whose new owner sees it as it was then.
        self.unlinked(self.value.swap(new, Ordering::AcqRel))
    }

    fn unlinked(&self, old: *mut T) -> Option<Unlinked<'c, T>> {
        NonNull::new(old).map(|value| Unlinked { value, cache: self.cache })
    }
}

#[cold]
fn wrong_domain(name: &str) -> ! {
    panic!(
        "the read section is of another domain than that of the cache {name}, and protects nothing in it"
    )
}

impl<'c, T> From<RcuSlot<'c, T>> for Unlinked<'c, T> {
    /// A value that readers might have seen, though none has.
    fn from(slot: RcuSlot<'c, T>) -> Self {
        let slot = ManuallyDrop::new(slot);
        Self { value: slot.value, cache: slot.cache }
    }
}

impl<T> Deref for Unlinked<'_, T> {
    type Target = T;

    #[inline(always)]
    fn deref(&self) -> &T {
        // SAFETY: owned, and shared with readers.
        unsafe { self.value.as_ref() }
    }
}

impl<T: fmt::Debug> fmt::Debug for Unlinked<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        (**self).fmt(f)
    }
}

impl<T> fmt::Debug for Place<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Place").field("value", &self.value).finish_non_exhaustive()
    }
}

typed_cache!(RcuCache, Sized);

impl<T> Drop for Unlinked<'_, T> {
    #[inline(always)]
    fn drop(&mut self) {
        // SAFETY: it came from this cache, its owner gives it up, and it is in no place: sections that begin later cannot
        // find it.
        unsafe { self.cache.raw.free_rcu(self.value.cast()) };
    }
}

impl<T> Drop for Place<'_, T> {
    fn drop(&mut self) {
        drop(self.take());
    }
}
