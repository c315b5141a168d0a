//! Thread-local storage for virtual CPUs, which share one thread.

use super::machine::with;
use core::cell::RefCell;
use std::thread::AccessError;

/// The values of one thread, one for each virtual CPU that has asked, the first for code outside any.
pub type Values<T> = RefCell<Vec<Option<Box<T>>>>;

/// A key of [`thread_local`](crate::thread_local).
#[derive(Debug)]
pub struct LocalKey<T: 'static> {
    values: &'static std::thread::LocalKey<Values<T>>,
    make: fn() -> T,
}

impl<T: 'static> LocalKey<T> {
    #[doc(hidden)]
    pub const fn new(values: &'static std::thread::LocalKey<Values<T>>, make: fn() -> T) -> Self {
        Self { values, make }
    }

    /// Calls `f` with the virtual CPU's value, made on first use.
    ///
    /// # Panics
    /// When the thread's storage is gone.
    pub fn with<R>(&'static self, f: impl FnOnce(&T) -> R) -> R {
        self.try_with(f).expect("thread-local storage lives as long as its thread")
    }

    /// As [`with`](Self::with).
    ///
    /// # Errors
    /// When the thread's storage is gone.
    pub fn try_with<R>(&'static self, f: impl FnOnce(&T) -> R) -> Result<R, AccessError> {
        let slot = with(|machine| machine.cpu() + 1).unwrap_or(0);
        let value: *const T = self.values.try_with(|values| {
            let mut values = values.borrow_mut();
            if values.len() <= slot {
                values.resize_with(slot + 1, || None);
            }
            core::ptr::from_ref::<T>(values[slot].get_or_insert_with(|| Box::new((self.make)())))
        })?;
        // SAFETY: the box stays where it is until the thread ends, which cannot be while `f` runs on it.
        Ok(f(unsafe { &*value }))
    }
}

/// `std::thread_local` for virtual CPUs.
#[macro_export]
#[doc(hidden)]
macro_rules! sim_thread_local {
    ($($(#[$attribute:meta])* $visible:vis static $name:ident: $type:ty = $make:expr;)+) => { $(
        $(#[$attribute])*
        $visible static $name: $crate::sim::LocalKey<$type> = {
            ::std::thread_local! {
                static VALUES: ::core::cell::RefCell<::std::vec::Vec<::core::option::Option<::std::boxed::Box<$type>>>> =
                    const { ::core::cell::RefCell::new(::std::vec::Vec::new()) };
            }
            $crate::sim::LocalKey::new(&VALUES, || $make)
        };
    )+ };
}
