//! A counted pointer whose making can fail.

use core::fmt;
use core::ops::Deref;
use core::ptr::{self, NonNull};
use quietline_platform::atomic::{AtomicUsize, Ordering};
use quietline_platform::{AllocError, heap};

/// [`std::sync::Arc`] without weak references, and with an error where `Arc::new` aborts.
pub struct Shared<T> {
    inner: NonNull<Inner<T>>,
}

struct Inner<T> {
    count: AtomicUsize,
    value: T,
}

// SAFETY: like Arc: the value is shared, and dropped by whoever comes last.
unsafe impl<T: Send + Sync> Send for Shared<T> {}
// SAFETY: as above.
unsafe impl<T: Send + Sync> Sync for Shared<T> {}

impl<T> Shared<T> {
    /// A value with one owner.
    ///
    /// # Errors
    /// [`AllocError`]; the value is dropped.
    pub fn new(value: T) -> Result<Self, AllocError> {
        let inner = Box::leak(heap::try_box(Inner { count: AtomicUsize::new(1), value })?);
        let inner = NonNull::from(inner);
        // A reference to the value does not reach the count beside it: see `again`.
        inner.as_ptr().expose_provenance();
        Ok(Self { inner })
    }

    /// Returns whether this is the only owner. What former owners did is then seen.
    pub fn is_unique(this: &mut Self) -> bool {
        // ORDERING: pairs with the release in `drop`: what a former owner did is seen.
        this.inner().count.load(Ordering::Acquire) == 1
    }

    /// The value, for its only owner; none if there are more.
    pub fn get_mut(this: &mut Self) -> Option<&mut T> {
        // SAFETY: there is one owner, which is borrowed mutably; it cannot be cloned meanwhile.
        Self::is_unique(this).then(|| unsafe { &mut (*this.inner.as_ptr()).value })
    }

    /// One more owner of a value that is known by reference.
    ///
    /// # Safety
    /// `value` is inside a `Shared`, and somebody owns it.
    pub unsafe fn again(value: &T) -> Self {
        let address = ptr::from_ref(value).addr() - core::mem::offset_of!(Inner<T>, value);
        // By the provenance that `new` has exposed: that of the reference ends at the value.
        let inner = NonNull::new(ptr::with_exposed_provenance_mut(address));
        let owner = core::mem::ManuallyDrop::new(Self { inner: inner.expect("inside a box") });
        (*owner).clone()
    }

    /// Gives up ownership without ending it: the count stays. Undone by [`from_raw`](Self::from_raw).
    pub fn into_raw(this: Self) -> NonNull<T> {
        let this = core::mem::ManuallyDrop::new(this);
        // SAFETY: alive, and a field of what is not null is not null.
        unsafe { NonNull::new_unchecked(&raw mut (*this.inner.as_ptr()).value) }
    }

    /// Takes ownership back.
    ///
    /// # Safety
    /// `raw` came from [`into_raw`](Self::into_raw), which this undoes; once for each.
    pub unsafe fn from_raw(raw: NonNull<T>) -> Self {
        // SAFETY: by contract the value is a field of an Inner that lives.
        Self { inner: unsafe { raw.byte_sub(core::mem::offset_of!(Inner<T>, value)).cast() } }
    }

    fn inner(&self) -> &Inner<T> {
        // SAFETY: alive while anybody owns it.
        unsafe { self.inner.as_ref() }
    }
}

impl<T> Clone for Shared<T> {
    /// One more owner: a locked instruction on the count's line.
    fn clone(&self) -> Self {
        // Relaxed: the new owner gets what the old one has, by whatever way it is handed over.
        let old = self.inner().count.fetch_add(1, Ordering::Relaxed);
        assert!(old < usize::MAX / 2, "too many owners");
        Self { inner: self.inner }
    }
}

impl<T> Deref for Shared<T> {
    type Target = T;

    #[inline(always)]
    fn deref(&self) -> &T {
        &self.inner().value
    }
}

impl<T> Drop for Shared<T> {
    fn drop(&mut self) {
        // ORDERING: pairs with the acquire below: the last owner has seen what the others did.
        if self.inner().count.fetch_sub(1, Ordering::Release) == 1 {
            // ORDERING: a load where a fence would do, because ThreadSanitizer does not understand fences.
            self.inner().count.load(Ordering::Acquire);
            // SAFETY: boxed in `new`, and nobody owns it any more.
            drop(unsafe { Box::from_raw(self.inner.as_ptr()) });
        }
    }
}

impl<T: fmt::Debug> fmt::Debug for Shared<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        (**self).fmt(f)
    }
}
