//! Counted objects on lines of their own, in a kernel's caches.
//!
//! # The contended way
//!
//! The states of sockets on the heap. Its blocks begin in the middle of lines, so two sockets of different CPUs share some; and
//! what one CPU frees is what another one gets next, with all its lines.
//!
//! # Our way
//!
//! ```text
//!   Net ── owns ──> Objects ── slab cache of blocks of whole lines, which come back to the CPU that has freed them
//!                      ^
//!   Object ──> count, home, value
//! ```
//!
//! The last owner gives the memory back at once and without a locked instruction: a new owner comes only from an old one.

use core::fmt;
use core::marker::PhantomData;
use core::ops::Deref;
use core::ptr::NonNull;
use quietline_platform::AllocError;
use quietline_platform::atomic::{AtomicUsize, Ordering};
#[cfg(loom)]
use quietline_platform::heap;
#[cfg(not(loom))]
use quietline_slab::{LazyCache, Options};
use quietline_sync::Counted;
#[cfg(not(loom))]
use quietline_sync::rcu;

/// A type whose objects have a slab cache.
pub(crate) trait Named {
    /// The name of the cache in statistics.
    const CACHE: &'static str;
}

/// Where the objects of a kind come from, and go back to.
///
/// It must stay where it is and outlive them: they point to it. It is a part of [`Net`](crate::net::Net): a kernel
/// that ends sees its last sockets off before that goes.
pub(crate) struct Objects<T> {
    #[cfg(not(loom))]
    cache: LazyCache,
    /// The model's come from the heap, where it sees that they are given back.
    of: PhantomData<fn() -> T>,
}

/// An object, with others who own it too ([`Shared`], but for where its memory comes from).
pub(crate) struct Object<T> {
    inner: NonNull<Inner<T>>,
}

/// Objects in a sheaf. States end with their sockets, and sockets that were used end by the sheaf, when a grace period is over:
/// some hundreds of states at once, which the CPU is to keep for its next sockets. So many may lie in a CPU's sheaves, and more in the
/// barn, until the cache is shrunk.
#[cfg(not(loom))]
const AT_ONCE: usize = 2048;

/// Whole lines: the neighbours in a slab may be other CPUs'.
#[repr(C, align(64))]
struct Inner<T> {
    count: AtomicUsize,
    home: NonNull<Objects<T>>,
    value: T,
}

// SAFETY: like Arc: the value is shared, and dropped by whoever comes last. Its home is shared by design.
unsafe impl<T: Send + Sync> Send for Object<T> {}
// SAFETY: as above.
unsafe impl<T: Send + Sync> Sync for Object<T> {}

impl<T> Objects<T> {
    /// None yet. The name of `T` is shown in statistics.
    ///
    /// # Errors
    /// [`AllocError`] when there is no memory for the RCU domain.
    #[cfg(not(loom))]
    pub(crate) fn new() -> Result<Self, AllocError>
    where
        T: Named,
    {
        // No object waits for a grace period.
        let options = |_| Options { sheaf_capacity: AT_ONCE, ..Options::of::<Inner<T>>(T::CACHE) };
        // SAFETY: there is no hook.
        Ok(Self { cache: unsafe { LazyCache::new(options, rcu::global()?) }, of: PhantomData })
    }

    /// A value with `N` owners, 1 or more. Writes no shared line, but once in a sheaf's worth.
    ///
    /// # Errors
    /// [`AllocError`]; the value is dropped.
    #[inline(always)]
    pub(crate) fn make<const N: usize>(&self, value: T) -> Result<[Object<T>; N], AllocError> {
        self.make_with(|| value)
    }

    /// The same with what `value` makes where it stays.
    ///
    /// # Errors
    /// [`AllocError`]; `value` was not called.
    #[inline(always)]
    pub(crate) fn make_with<const N: usize>(
        &self,
        value: impl FnOnce() -> T,
    ) -> Result<[Object<T>; N], AllocError> {
        const { assert!(N > 0, "somebody owns it") };
        let home = NonNull::from(self);
        let inner = self.allocate(|| Inner { count: AtomicUsize::new(N), home, value: value() })?;
        Ok(core::array::from_fn(|_| Object { inner }))
    }

    #[cfg(not(loom))]
    #[inline(always)]
    fn allocate(&self, inner: impl FnOnce() -> Inner<T>) -> Result<NonNull<Inner<T>>, AllocError> {
        // SAFETY: the cache is one of such objects.
        unsafe { self.cache.alloc_with(inner) }
    }

    /// # Safety
    /// From [`allocate`](Self::allocate), and nobody's any more.
    #[cfg(not(loom))]
    #[inline(always)]
    unsafe fn free(&self, inner: NonNull<Inner<T>>) {
        // SAFETY: by contract.
        unsafe {
            inner.drop_in_place();
            self.cache.free(inner.cast());
        }
    }

    /// The cache.
    #[cfg(not(loom))]
    pub(crate) fn cache(&self) -> &LazyCache {
        &self.cache
    }
}

#[cfg(loom)]
impl<T> Objects<T> {
    pub(crate) fn new() -> Result<Self, AllocError> {
        Ok(Self { of: PhantomData })
    }

    fn allocate(&self, inner: impl FnOnce() -> Inner<T>) -> Result<NonNull<Inner<T>>, AllocError> {
        Ok(NonNull::from(Box::leak(heap::try_box(inner())?)))
    }

    /// # Safety
    /// From [`allocate`](Self::allocate), and nobody's any more.
    unsafe fn free(&self, inner: NonNull<Inner<T>>) {
        // SAFETY: by contract.
        drop(unsafe { Box::from_raw(inner.as_ptr()) });
    }
}

impl<T> Object<T> {
    /// The value, for its only owner; none if there are more.
    pub(crate) fn get_mut(this: &mut Self) -> Option<&mut T> {
        // ORDERING: Acquire pairs with the release in `drop`: what a former owner did is seen.
        let alone = this.inner().count.load(Ordering::Acquire) == 1;
        // SAFETY: there is one owner, who is borrowed mutably; nobody can clone it meanwhile.
        alone.then(|| unsafe { &mut (*this.inner.as_ptr()).value })
    }

    #[inline(always)]
    fn inner(&self) -> &Inner<T> {
        // SAFETY: alive while anybody owns it.
        unsafe { self.inner.as_ref() }
    }
}

// SAFETY: the value lies in a block of its own, which the last owner frees.
unsafe impl<T> Counted for Object<T> {
    #[inline(always)]
    fn into_raw(this: Self) -> NonNull<T> {
        let this = core::mem::ManuallyDrop::new(this);
        // SAFETY: alive, and a field of what is not null is not null.
        unsafe { NonNull::new_unchecked(&raw mut (*this.inner.as_ptr()).value) }
    }

    #[inline(always)]
    unsafe fn from_raw(raw: NonNull<T>) -> Self {
        // SAFETY: by contract the value is a field of an Inner that lives.
        Self { inner: unsafe { raw.byte_sub(core::mem::offset_of!(Inner<T>, value)).cast() } }
    }

    unsafe fn again(value: &T) -> Self {
        // SAFETY: by contract; who is asked goes on to own it.
        let owner = core::mem::ManuallyDrop::new(unsafe { Self::from_raw(NonNull::from(value)) });
        (*owner).clone()
    }
}

impl<T> Clone for Object<T> {
    /// One more owner: a locked instruction on the count's line.
    #[inline]
    fn clone(&self) -> Self {
        // Relaxed: the new owner gets what the old one has, by whatever way it is handed over.
        let old = self.inner().count.fetch_add(1, Ordering::Relaxed);
        assert!(old < usize::MAX / 2, "too many owners");
        Self { inner: self.inner }
    }
}

impl<T> Deref for Object<T> {
    type Target = T;

    #[inline(always)]
    fn deref(&self) -> &T {
        &self.inner().value
    }
}

impl<T> Drop for Object<T> {
    #[inline]
    fn drop(&mut self) {
        let count = &self.inner().count;
        // ORDERING: Acquire pairs with the release below, in what the others did before: the last owner has seen what they did to
        // the value. An only owner has nobody to agree with: a new owner comes from an old one, and there is no other.
        let last = count.load(Ordering::Acquire) == 1
            // ORDERING: Release, as above. Acquire: the last one of several that end at once.
            || count.fetch_sub(1, Ordering::AcqRel) == 1;
        if last {
            // SAFETY: the home outlives its objects, and nobody owns this one any more.
            unsafe { self.inner().home.as_ref().free(self.inner) };
        }
    }
}

impl<T: fmt::Debug> fmt::Debug for Object<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        (**self).fmt(f)
    }
}

impl<T> fmt::Debug for Objects<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Objects").finish_non_exhaustive()
    }
}
