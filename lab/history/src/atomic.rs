//! The atomics of this crate: the platform's, and in debug builds the same with every write reported to
//! [`tally`](crate::tally), so that a test can say which words a system call dirties.

pub(crate) use quietline_platform::atomic::{Ordering, fence};

#[cfg(not(debug_assertions))]
pub(crate) use quietline_platform::atomic::{
    AtomicI64, AtomicPtr, AtomicU8, AtomicU16, AtomicU32, AtomicU64,
};

#[cfg(debug_assertions)]
pub(crate) use tallied::{AtomicI64, AtomicPtr, AtomicU8, AtomicU16, AtomicU32, AtomicU64};

#[cfg(debug_assertions)]
mod tallied {
    use quietline_platform::atomic;
    use quietline_platform::atomic::Ordering;

    use crate::tally::wrote;

    macro_rules! tallied {
        ($name:ident, $value:ty) => {
            #[repr(transparent)]
            pub(crate) struct $name(atomic::$name);

            #[allow(dead_code)] // Each width needs only some of them.
            impl $name {
                pub(crate) fn new(value: $value) -> Self {
                    Self(atomic::$name::new(value))
                }

                pub(crate) fn load(&self, order: Ordering) -> $value {
                    self.0.load(order)
                }

                pub(crate) fn store(&self, value: $value, order: Ordering) {
                    wrote(self);
                    self.0.store(value, order);
                }

                pub(crate) fn swap(&self, value: $value, order: Ordering) -> $value {
                    wrote(self);
                    self.0.swap(value, order)
                }

                pub(crate) fn fetch_add(&self, value: $value, order: Ordering) -> $value {
                    wrote(self);
                    self.0.fetch_add(value, order)
                }

                pub(crate) fn fetch_sub(&self, value: $value, order: Ordering) -> $value {
                    wrote(self);
                    self.0.fetch_sub(value, order)
                }

                pub(crate) fn compare_exchange_weak(
                    &self,
                    current: $value,
                    new: $value,
                    success: Ordering,
                    failure: Ordering,
                ) -> Result<$value, $value> {
                    wrote(self);
                    self.0.compare_exchange_weak(current, new, success, failure)
                }
            }
        };
    }

    tallied!(AtomicU8, u8);
    tallied!(AtomicU16, u16);
    tallied!(AtomicU32, u32);
    tallied!(AtomicU64, u64);
    tallied!(AtomicI64, i64);

    #[repr(transparent)]
    pub(crate) struct AtomicPtr<T>(atomic::AtomicPtr<T>);

    impl<T> AtomicPtr<T> {
        pub(crate) fn new(value: *mut T) -> Self {
            Self(atomic::AtomicPtr::new(value))
        }

        pub(crate) fn load(&self, order: Ordering) -> *mut T {
            self.0.load(order)
        }

        pub(crate) fn store(&self, value: *mut T, order: Ordering) {
            wrote(self);
            self.0.store(value, order);
        }

        pub(crate) fn compare_exchange_weak(
            &self,
            current: *mut T,
            new: *mut T,
            success: Ordering,
            failure: Ordering,
        ) -> Result<*mut T, *mut T> {
            wrote(self);
            self.0.compare_exchange_weak(current, new, success, failure)
        }
    }
}
