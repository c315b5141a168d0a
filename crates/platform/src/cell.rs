//! Cells whose accesses a model checker can see.

#[cfg(quietline_sim)]
use crate::sim::{Access, Place};

/// [`core::cell::UnsafeCell`] with accesses as closures, so that a model checker can watch them. In a
/// simulation an access counts as one of the value's first word.
#[derive(Debug, Default)]
#[repr(transparent)]
pub struct UnsafeCell<T: ?Sized>(core::cell::UnsafeCell<T>);

impl<T> UnsafeCell<T> {
    /// A cell that holds `value`.
    pub const fn new(value: T) -> Self {
        Self(core::cell::UnsafeCell::new(value))
    }

    /// The value, out of the cell.
    pub fn into_inner(self) -> T {
        self.0.into_inner()
    }
}

impl<T: ?Sized> UnsafeCell<T> {
    /// Calls `f` with a pointer that may be read while no one writes.
    #[inline(always)]
    #[cfg_attr(quietline_sim, track_caller)]
    pub fn with<R>(&self, f: impl FnOnce(*const T) -> R) -> R {
        #[cfg(quietline_sim)]
        self.tell(Access::Load);
        f(self.0.get())
    }

    /// Calls `f` with a pointer that may be written while no one else reads or writes.
    #[inline(always)]
    #[cfg_attr(quietline_sim, track_caller)]
    pub fn with_mut<R>(&self, f: impl FnOnce(*mut T) -> R) -> R {
        #[cfg(quietline_sim)]
        self.tell(Access::Store);
        f(self.0.get())
    }

    #[cfg(quietline_sim)]
    #[track_caller]
    fn tell(&self, access: Access) {
        let bytes = size_of_val(self);
        if bytes > 0 {
            let place = Place::of(self.0.get().cast::<u8>().addr(), bytes.min(8));
            crate::sim::with(|machine| machine.access(place, access));
        }
    }
}
