//! Cells that tell the machine before they give access.

use super::machine::{Access, Place, with};

/// [`core::cell::UnsafeCell`] with accesses as closures. An access counts as one of the value's first word.
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
    #[inline]
    #[track_caller]
    pub fn with<R>(&self, f: impl FnOnce(*const T) -> R) -> R {
        self.tell(Access::Load);
        f(self.0.get())
    }

    /// Calls `f` with a pointer that may be written while no one else reads or writes.
    #[inline]
    #[track_caller]
    pub fn with_mut<R>(&self, f: impl FnOnce(*mut T) -> R) -> R {
        self.tell(Access::Store);
        f(self.0.get())
    }

    #[inline]
    #[track_caller]
    fn tell(&self, access: Access) {
        let bytes = size_of_val(self);
        if bytes > 0 {
            let place = Place::of(self.0.get().cast::<u8>().addr(), bytes.min(8));
            with(|machine| machine.access(place, access));
        }
    }
}
