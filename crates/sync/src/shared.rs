//! A counted pointer whose making can fail.

use core::fmt;
use core::ops::Deref;
use core::ptr::NonNull;
use quietline_platform::atomic::{AtomicUsize, Ordering, fence};
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
        let inner = heap::try_box(Inner { count: AtomicUsize::new(1), value })?;
        Ok(Self { inner: NonNull::from(Box::leak(inner)) })
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
        // ORDERING: pairs with the acquire fence below: the last owner has seen what the others did.
        if self.inner().count.fetch_sub(1, Ordering::Release) == 1 {
            fence(Ordering::Acquire);
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
