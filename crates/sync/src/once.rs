//! A counted pointer that is set at most once.

use crate::Shared;
use core::fmt;
use core::ops::Deref;
use core::ptr::{self, NonNull};
use quietline_platform::atomic::{AtomicPtr, Ordering};

/// A counted pointer that [`Once`] can keep: [`Shared`], or one like it.
///
/// # Safety
/// The value of a pointer stays at one address, and lives until the last owner is dropped. What
/// [`into_raw`](Self::into_raw) returns points to it.
pub unsafe trait Counted: Deref<Target: Sized> + Sized {
    /// Gives up ownership without ending it.
    fn into_raw(this: Self) -> NonNull<Self::Target>;

    /// Takes ownership back.
    ///
    /// # Safety
    /// `raw` came from [`into_raw`](Self::into_raw), which this undoes; once for each.
    unsafe fn from_raw(raw: NonNull<Self::Target>) -> Self;

    /// Returns one more owner.
    ///
    /// # Safety
    /// `value` is the value of such a pointer, and has an owner.
    unsafe fn again(value: &Self::Target) -> Self;
}

// SAFETY: the value lies in a box of its own, which the last owner frees.
unsafe impl<T> Counted for Shared<T> {
    fn into_raw(this: Self) -> NonNull<T> {
        Shared::into_raw(this)
    }

    unsafe fn from_raw(raw: NonNull<T>) -> Self {
        // SAFETY: passed on.
        unsafe { Shared::from_raw(raw) }
    }

    unsafe fn again(value: &T) -> Self {
        // SAFETY: passed on.
        unsafe { Shared::again(value) }
    }
}

/// A counted pointer that is set at most once. No thread waits for another, so a `fork` at any time
/// leaves it usable in the child.
pub struct Once<P: Counted> {
    value: AtomicPtr<P::Target>,
}

// SAFETY: owns a share of the value, like the pointer in it.
unsafe impl<P: Counted + Send> Send for Once<P> {}
// SAFETY: as above; it gives out references to the value, and shares.
unsafe impl<P: Counted + Send + Sync> Sync for Once<P> {}

impl<P: Counted> Once<P> {
    /// Returns one that is not set.
    #[inline(always)]
    pub fn empty() -> Self {
        Self { value: AtomicPtr::new(ptr::null_mut()) }
    }

    /// Returns one that is set.
    #[inline(always)]
    pub fn of(value: P) -> Self {
        Self { value: AtomicPtr::new(P::into_raw(value).as_ptr()) }
    }

    /// Returns the value, if it is set. One load.
    #[inline(always)]
    pub fn get(&self) -> Option<&P::Target> {
        // ORDERING: pairs with the release in `set`: a thread that finds the value finds it made.
        // SAFETY: never replaced, and kept until this is dropped.
        unsafe { self.value.load(Ordering::Acquire).as_ref() }
    }

    /// Returns the value's address, or 0 if it is not set: for a comparison that orders nothing.
    #[inline(always)]
    pub fn bits(&self) -> usize {
        // Relaxed: only compared.
        self.value.load(Ordering::Relaxed).addr()
    }

    /// Returns a share of the value, if it is set.
    pub fn share(&self) -> Option<P> {
        // SAFETY: the value is such a pointer's, of which this owns a share.
        self.get().map(|value| unsafe { P::again(value) })
    }

    /// Sets it and returns the value.
    ///
    /// # Errors
    /// The value that was passed, if another was set before.
    pub fn set(&self, value: P) -> Result<&P::Target, P> {
        let raw = P::into_raw(value);
        // ORDERING: release publishes the value. Relaxed: nothing is read of the other value.
        let set = self.value.compare_exchange(
            ptr::null_mut(),
            raw.as_ptr(),
            Ordering::Release,
            Ordering::Relaxed,
        );
        // SAFETY: kept by this if it was set; otherwise made above, and seen by no other thread.
        unsafe { if set.is_ok() { Ok(raw.as_ref()) } else { Err(P::from_raw(raw)) } }
    }

    /// Returns the value; if it is not set, sets it to what `make` returns. Of threads that make
    /// one at the same time all but one drop theirs.
    ///
    /// # Errors
    /// Those of `make`.
    pub fn get_or_try_set<E>(&self, make: impl FnOnce() -> Result<P, E>) -> Result<&P::Target, E> {
        if let Some(value) = self.get() {
            return Ok(value);
        }
        Ok(match self.set(make()?) {
            Ok(value) => value,
            Err(_late) => self.get().expect("it was set before"),
        })
    }

    /// Sets it without a locked instruction, where no other thread sets it. (A value that was set
    /// before would leak.)
    pub fn give(&self, value: P) {
        debug_assert!(self.get().is_none(), "set once");
        // ORDERING: Release publishes the value, as in `set`.
        self.value.store(P::into_raw(value).as_ptr(), Ordering::Release);
    }
}

impl<P: Counted> Drop for Once<P> {
    #[inline(always)]
    fn drop(&mut self) {
        // Relaxed: no other thread has it.
        if let Some(value) = NonNull::new(self.value.load(Ordering::Relaxed)) {
            // SAFETY: put there by `set`, `give` or `of`, once.
            drop(unsafe { P::from_raw(value) });
        }
    }
}

impl<P: Counted> fmt::Debug for Once<P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Once").field(&self.get().is_some()).finish()
    }
}
