//! Objects in typesafe memory, found without a lock: the recheck that nobody can forget.
//!
//! Memory of a [`TypesafeCache`] is reused at once, for another object of the type. Who finds an object in a place must
//! therefore take a reference and then look whether it is still there; before that there is nothing to be had from it. Here
//! the types see to it: a [`Candidate`] gives no access but [`acquire`](Candidate::acquire) and [`read`](Candidate::read),
//! which look again.

use super::typed::{Typesafe, TypesafeCache};
use core::fmt;
use core::ops::Deref;
use core::ptr::{self, NonNull};
use quietline_platform::AllocError;
use quietline_platform::atomic::{AtomicPtr, AtomicU64, Ordering, fence};
use quietline_sync::FileRef;
use quietline_sync::rcu::Guard;

/// A typesafe object that counts its references.
///
/// # Safety
/// [`references`](Self::references) gives the same count of the object each time, which is dead in a constructed object; and
/// nobody else calls `init`, `put` or the like on it.
pub unsafe trait Counted: Typesafe {
    /// The count.
    fn references(&self) -> &FileRef;
}

/// A reference to an object, counted: while it is held, the object keeps its life.
///
/// ```
/// use quietline_platform::atomic::{AtomicU64, Ordering::Relaxed};
/// use quietline_slab::{Counted, Held, Typesafe, TypesafeCache, TypesafePlace};
/// use quietline_sync::{FileRef, rcu};
///
/// struct Session {
///     count: FileRef,
///     id: AtomicU64,
/// }
///
/// // SAFETY: there is no LINK_OFFSET.
/// unsafe impl Typesafe for Session {
///     fn construct() -> Self {
///         Session { count: FileRef::dead(), id: AtomicU64::new(0) }
///     }
/// }
///
/// // SAFETY: one count, dead at first, touched by nobody else.
/// unsafe impl Counted for Session {
///     fn references(&self) -> &FileRef {
///         &self.count
///     }
/// }
///
/// let domain = rcu::global()?;
/// let cache = TypesafeCache::<Session>::new("session", domain)?;
/// let current = TypesafePlace::empty(&cache);
/// current.replace(Held::new(&cache, |session| session.id.store(7, Relaxed))?);
/// let section = domain.read();
/// // Without a reference, only a copy of what was read can be had, and only if the object was there all the time.
/// let id = current.candidate(&section).and_then(|found| found.read(|session| session.id.load(Relaxed)));
/// assert_eq!(id, Some(7));
/// // With a reference, the object.
/// let session = current.candidate(&section).and_then(|found| found.acquire()).expect("nobody took it away");
/// drop(section);
/// drop(current.take());
/// assert_eq!(session.id.load(Relaxed), 7); // alive while it is held
/// # Ok::<(), quietline_slab::CacheError>(())
/// ```
pub struct Held<'c, T: Counted> {
    object: NonNull<T>,
    cache: &'c TypesafeCache<T>,
}

/// Where objects are found, or none. Holds a reference to the object in it.
pub struct TypesafePlace<'c, T: Counted> {
    object: AtomicPtr<T>,
    /// Changes of the place, each counted before the object that was there can end.
    changes: AtomicU64,
    cache: &'c TypesafeCache<T>,
}

/// What was found in a place: perhaps no longer there, perhaps in another life by now.
#[must_use = "a candidate is nothing before it is acquired or read"]
pub struct Candidate<'p, 'c, T: Counted> {
    object: NonNull<T>,
    changes: u64,
    /// Also stands for the section, which it does not outlive.
    place: &'p TypesafePlace<'c, T>,
}

// SAFETY: objects are Sync and Send, and the cache is shared by design.
unsafe impl<T: Counted> Send for Held<'_, T> {}
// SAFETY: as above.
unsafe impl<T: Counted> Sync for Held<'_, T> {}

impl<'c, T: Counted> Held<'c, T> {
    /// Begins an object's life: `fill` sets its fields, which readers of a former life may be looking at; then it has one
    /// reference.
    ///
    /// # Errors
    /// [`AllocError`]; `fill` was not called.
    pub fn new(cache: &'c TypesafeCache<T>, fill: impl FnOnce(&T)) -> Result<Self, AllocError> {
        /// Gives the memory back should `fill` panic.
        struct Unborn<'c, T: Counted>(NonNull<T>, &'c TypesafeCache<T>);
        impl<T: Counted> Drop for Unborn<'_, T> {
            fn drop(&mut self) {
                // SAFETY: allocated below; its life has not begun.
                unsafe { self.1.free(self.0) };
            }
        }
        let unborn = Unborn(cache.alloc()?, cache);
        // ORDERING: pairs with the fence in `Candidate::read`: who sees what `fill` writes sees also that the place has
        // changed from which the former life was taken.
        fence(Ordering::Release);
        // SAFETY: allocated; shared, as ever.
        let object = unsafe { unborn.0.as_ref() };
        fill(object);
        let held = Self { object: unborn.0, cache };
        core::mem::forget(unborn);
        object.references().init(1);
        Ok(held)
    }
}

impl<'c, T: Counted> TypesafePlace<'c, T> {
    /// A place for objects of `cache`, with none in it.
    pub fn empty(cache: &'c TypesafeCache<T>) -> Self {
        Self { object: AtomicPtr::new(ptr::null_mut()), changes: AtomicU64::new(0), cache }
    }

    /// What is in the place, to be [acquired](Candidate::acquire) or [read](Candidate::read) inside the section. Plain
    /// loads; writes nothing.
    ///
    /// # Panics
    /// When the section is one of another domain than the cache's: it would protect nothing.
    #[inline]
    pub fn candidate<'p>(&'p self, section: &'p Guard<'_>) -> Option<Candidate<'p, 'c, T>> {
        assert!(
            ptr::eq(section.domain(), self.cache.domain()),
            "the read section is of another domain than that of the cache, and protects nothing in it"
        );
        // ORDERING: pairs with the release of the addition in `swap`: who sees a change's number sees the change, so an
        // object that is found under a number was there at or after that change.
        let changes = self.changes.load(Ordering::Acquire);
        // ORDERING: pairs with the release of `swap`: the object is seen as it was when it was stored.
        let object = NonNull::new(self.object.load(Ordering::Acquire))?;
        Some(Candidate { object, changes, place: self })
    }

    /// A reference to what is in the place; none if it is empty. Tries again as long as the object changes under its eyes.
    ///
    /// # Panics
    /// As [`candidate`](Self::candidate).
    pub fn get(&self, section: &Guard<'_>) -> Option<Held<'c, T>> {
        loop {
            if let Some(held) = self.candidate(section)?.acquire() {
                return Some(held);
            }
        }
    }

    /// Puts an object in the place, with the reference that the caller holds; what was there before, with its reference.
    /// Two locked instructions on the place's line.
    ///
    /// # Panics
    /// When the object belongs to another cache.
    pub fn replace(&self, new: Held<'c, T>) -> Option<Held<'c, T>> {
        assert!(ptr::eq(new.cache, self.cache), "the object belongs to another cache");
        let new = core::mem::ManuallyDrop::new(new);
        self.swap(new.object.as_ptr())
    }

    /// Empties the place; what was there.
    pub fn take(&self) -> Option<Held<'c, T>> {
        self.swap(ptr::null_mut())
    }

    fn swap(&self, new: *mut T) -> Option<Held<'c, T>> {
        // ORDERING: release pairs with the acquire in `candidate`; acquire with the release of whoever stored what comes
        // out.
        let old = self.object.swap(new, Ordering::AcqRel);
        // ORDERING: pairs with the acquire in `candidate`. Before the caller can end what was there: see `Held::new`.
        self.changes.fetch_add(1, Ordering::Release);
        NonNull::new(old).map(|object| Held { object, cache: self.cache })
    }
}

impl<'c, T: Counted> Candidate<'_, 'c, T> {
    /// Takes a reference and looks again: the object, if the place held it then. It may have gone and come back in between,
    /// in another life even: what is given is what the place held when the reference was there.
    ///
    /// Writes the count's line.
    #[inline]
    pub fn acquire(self) -> Option<Held<'c, T>> {
        // SAFETY: found inside the section that this does not outlive, so it is a T.
        let object = unsafe { self.object.as_ref() };
        if !object.references().get() {
            return None;
        }
        // Puts the reference back where it is dropped.
        let held = Held { object: self.object, cache: self.place.cache };
        // ORDERING: pairs with the release of `swap`, and is not done before the reference was taken, by that acquire.
        (self.place.object.load(Ordering::Acquire) == self.object.as_ptr()).then_some(held)
    }

    /// Reads without a reference and looks again: what `f` returned, if the place held the object all the while, so that
    /// all of it was read in one life. `f` may run beside the object's end and the next life's beginning; then what it
    /// returns is thrown away.
    ///
    /// Writes nothing.
    #[inline]
    pub fn read<R: 'static>(self, f: impl FnOnce(&T) -> R) -> Option<R> {
        // SAFETY: found inside the section that this does not outlive, so it is a T.
        let result = f(unsafe { self.object.as_ref() });
        // ORDERING: pairs with the fence in `Held::new`: had `f` seen anything of a later life, the change is seen here.
        fence(Ordering::Acquire);
        // Relaxed: the fence orders it.
        (self.place.changes.load(Ordering::Relaxed) == self.changes).then_some(result)
    }
}

impl<T: Counted> Clone for Held<'_, T> {
    /// One more reference: a locked instruction on the count's line.
    fn clone(&self) -> Self {
        assert!(self.references().get(), "a held object is alive");
        Self { object: self.object, cache: self.cache }
    }
}

impl<T: Counted> Deref for Held<'_, T> {
    type Target = T;

    #[inline(always)]
    fn deref(&self) -> &T {
        // SAFETY: alive while it is held.
        unsafe { self.object.as_ref() }
    }
}

impl<T: Counted + fmt::Debug> fmt::Debug for Held<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        (**self).fmt(f)
    }
}

impl<T: Counted> fmt::Debug for TypesafePlace<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TypesafePlace").field("object", &self.object).finish_non_exhaustive()
    }
}

impl<T: Counted> fmt::Debug for Candidate<'_, '_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Candidate").field("object", &self.object).finish_non_exhaustive()
    }
}

impl<T: Counted> Drop for Held<'_, T> {
    #[inline]
    fn drop(&mut self) {
        // The count may be looked at once more when another has ended the object, whose memory must be there then.
        let _section = self.cache.domain().read();
        if self.references().put_close() {
            // SAFETY: it came from this cache, and the last reference is gone; `init` begins the next life.
            unsafe { self.cache.free(self.object) };
        }
    }
}

impl<T: Counted> Drop for TypesafePlace<'_, T> {
    fn drop(&mut self) {
        drop(self.take());
    }
}
