//! A boxed value that is made when it is first asked for.

use core::fmt;
use core::ptr::{self, NonNull};
use quietline_platform::atomic::{AtomicPtr, Ordering};
use quietline_platform::{AllocError, heap};

/// A pointer to a value that is made at most once, and lives as long as this. For values that few
/// objects need, and that may fail to be made.
pub struct LazyBox<T> {
    value: AtomicPtr<T>,
}

// SAFETY: owns the value, like a box, and shares it.
unsafe impl<T: Send + Sync> Send for LazyBox<T> {}
// SAFETY: as above.
unsafe impl<T: Send + Sync> Sync for LazyBox<T> {}

impl<T> LazyBox<T> {
    /// No value yet.
    #[cfg(not(loom))]
    pub const fn new() -> Self {
        Self { value: AtomicPtr::new(ptr::null_mut()) }
    }

    /// No value yet.
    #[cfg(loom)]
    pub fn new() -> Self {
        Self { value: AtomicPtr::new(ptr::null_mut()) }
    }

    /// Returns whether there is no value. Orders nothing.
    #[inline(always)]
    pub fn is_empty(&self) -> bool {
        // Relaxed: only compared.
        self.value.load(Ordering::Relaxed).is_null()
    }

    /// The value, if it has been made. One load.
    #[inline(always)]
    pub fn get(&self) -> Option<&T> {
        // ORDERING: pairs with the release in `get_or_make`: a thread that finds the value finds it
        // made.
        // SAFETY: never replaced, and freed when this is dropped.
        unsafe { self.value.load(Ordering::Acquire).as_ref() }
    }

    /// The value, if it has been made, for its only user.
    pub fn get_mut(&mut self) -> Option<&mut T> {
        // Relaxed: no other thread has it.
        // SAFETY: as in `get`.
        unsafe { self.value.load(Ordering::Relaxed).as_mut() }
    }

    /// The value, made if it was not. Of two that are made at the same time one is dropped.
    ///
    /// # Errors
    /// [`AllocError`]; nothing has changed.
    ///
    /// # Panics
    /// If `make` does.
    pub fn get_or_make(
        &self,
        make: impl FnOnce() -> Result<T, AllocError>,
    ) -> Result<&T, AllocError> {
        if let Some(value) = self.get() {
            return Ok(value);
        }
        let fresh = NonNull::from(Box::leak(heap::try_box(make()?)?));
        // ORDERING: release pairs with the acquire in `get`; acquire with the release of a thread
        // that was faster.
        let set = self.value.compare_exchange(
            ptr::null_mut(),
            fresh.as_ptr(),
            Ordering::AcqRel,
            Ordering::Acquire,
        );
        if set.is_err() {
            // SAFETY: boxed above, and seen by no other thread.
            drop(unsafe { Box::from_raw(fresh.as_ptr()) });
        }
        Ok(self.get().expect("one of the two"))
    }
}

impl<T> Default for LazyBox<T> {
    fn default() -> Self {
        Self::new()
    }
}

impl<T> Drop for LazyBox<T> {
    fn drop(&mut self) {
        // Relaxed: no other thread has it.
        let value = self.value.load(Ordering::Relaxed);
        if !value.is_null() {
            // SAFETY: boxed in `get_or_make`.
            drop(unsafe { Box::from_raw(value) });
        }
    }
}

impl<T> fmt::Debug for LazyBox<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("LazyBox").field(&!self.is_empty()).finish()
    }
}
