//! What few objects have, made when it is first asked for.

use core::fmt;
use core::ptr::{self, NonNull};
use quietline_platform::atomic::{AtomicPtr, Ordering};
use quietline_platform::{AllocError, heap};

/// A pointer to a value that is made at most once, and lives as long as this.
pub(crate) struct Once<T> {
    value: AtomicPtr<T>,
}

// SAFETY: owns the value, like a box, and shares it.
unsafe impl<T: Send + Sync> Send for Once<T> {}
// SAFETY: as above.
unsafe impl<T: Send + Sync> Sync for Once<T> {}

impl<T> Once<T> {
    /// None yet.
    pub(crate) fn empty() -> Self {
        Self { value: AtomicPtr::new(ptr::null_mut()) }
    }

    /// Whether there is none, for who asks nothing of it.
    #[inline(always)]
    pub(crate) fn is_empty(&self) -> bool {
        // Relaxed: only compared.
        self.value.load(Ordering::Relaxed).is_null()
    }

    /// The value, if it has been made. One load.
    #[inline(always)]
    pub(crate) fn get(&self) -> Option<&T> {
        // ORDERING: pairs with the release in `get_or_make`: who finds the value finds it made.
        // SAFETY: never replaced, and freed when this is dropped.
        unsafe { self.value.load(Ordering::Acquire).as_ref() }
    }

    /// The value, made if it was not. Of two that are made at the same time one is dropped.
    pub(crate) fn get_or_make(
        &self,
        make: impl FnOnce() -> Result<T, AllocError>,
    ) -> Result<&T, AllocError> {
        if let Some(value) = self.get() {
            return Ok(value);
        }
        let fresh = NonNull::from(Box::leak(heap::try_box(make()?)?));
        // ORDERING: release publishes the value; acquire sees that of somebody who was quicker.
        let set = self.value.compare_exchange(
            ptr::null_mut(),
            fresh.as_ptr(),
            Ordering::AcqRel,
            Ordering::Acquire,
        );
        if set.is_err() {
            // SAFETY: boxed above, and nobody has seen it.
            drop(unsafe { Box::from_raw(fresh.as_ptr()) });
        }
        Ok(self.get().expect("one of the two"))
    }
}

impl<T> Drop for Once<T> {
    fn drop(&mut self) {
        // Relaxed: nobody else has it.
        let value = self.value.load(Ordering::Relaxed);
        if !value.is_null() {
            // SAFETY: boxed in `get_or_make`.
            drop(unsafe { Box::from_raw(value) });
        }
    }
}

impl<T> fmt::Debug for Once<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Once").field(&!self.is_empty()).finish()
    }
}
