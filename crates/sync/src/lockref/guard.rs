//! The held lock of a [`Lockref`].

use super::{Lockref, too_many};

/// The lock of a [`Lockref`], held; dropping it unlocks and publishes the count.
///
/// The count belongs to the guard while it lives: nobody else changes it, and others see the value it had when the
/// lock was taken.
#[derive(Debug)]
#[must_use = "the lock is released when this is dropped"]
pub struct LockrefGuard<'a> {
    lockref: &'a Lockref,
    count: u32,
    dead: bool,
    #[cfg(all(feature = "lock-times", not(any(loom, quietline_sim))))]
    _hold: crate::lock_times::Hold,
}

impl<'a> LockrefGuard<'a> {
    #[inline]
    #[cfg_attr(feature = "lock-times", track_caller)]
    pub(super) fn new(lockref: &'a Lockref, count: u32, dead: bool) -> Self {
        Self {
            lockref,
            count,
            dead,
            #[cfg(all(feature = "lock-times", not(any(loom, quietline_sim))))]
            _hold: crate::lock_times::Hold::new(),
        }
    }

    /// The count, or [`Lockref::DEAD`].
    #[inline]
    pub fn count(&self) -> i32 {
        if self.dead { Lockref::DEAD } else { self.count as i32 }
    }

    /// True if the object was marked dead.
    #[inline]
    pub fn is_dead(&self) -> bool {
        self.dead
    }

    /// Takes a reference.
    ///
    /// # Panics
    ///
    /// If the object is dead or has [`Lockref::MAX`] references.
    #[inline]
    pub fn get(&mut self) {
        assert!(!self.dead, "a reference to a dead object");
        if self.count >= Lockref::MAX {
            too_many();
        }
        self.count += 1;
    }

    /// Puts a reference and returns how many are left.
    ///
    /// # Panics
    ///
    /// If there is none.
    #[inline]
    pub fn put(&mut self) -> u32 {
        assert!(!self.dead && self.count > 0, "a reference put that was not held");
        self.count -= 1;
        self.count
    }

    /// Ends the counting: from here on no reference can be taken, whatever the count was.
    ///
    /// # Panics
    ///
    /// If the object is dead already: two callers ending one object is the very thing this exists to prevent.
    #[inline]
    pub fn mark_dead(&mut self) {
        assert!(!self.dead, "an object ended twice");
        self.dead = true;
        self.count = 0;
    }
}

impl Drop for LockrefGuard<'_> {
    #[inline]
    fn drop(&mut self) {
        self.lockref.unlock(self.count, self.dead);
    }
}
