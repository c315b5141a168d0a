//! Atomics that tell the machine before they act. Their layout is that of `core`'s.

use super::machine::{Access, Place, with};
use core::sync::atomic::{self, Ordering};

/// Tells of an access to `word`.
#[inline]
#[track_caller]
fn tell<T>(word: &T, access: Access) {
    let place = Place::of(core::ptr::from_ref(word).addr(), size_of::<T>());
    with(|machine| machine.access(place, access));
}

/// A store that is a full barrier is a locked instruction.
fn store_kind(order: Ordering) -> Access {
    if order == Ordering::SeqCst { Access::Locked } else { Access::Store }
}

/// A fence; a full one is an event, the others cost a compiler its freedom only.
#[inline]
pub fn fence(order: Ordering) {
    if order == Ordering::SeqCst {
        with(|machine| machine.fence());
    }
    atomic::fence(order);
}

/// Operations by name: what each is for the machine, and the one of `core` that does it.
macro_rules! operations {
    ($($access:ident $name:ident $core:ident($($argument:ident: $type:ty),*) -> $result:ty;)*) => { $(
        /// As in `core`.
        #[inline]
        #[track_caller]
        pub fn $name(&self, $($argument: $type),*) -> $result {
            tell(self, Access::$access);
            self.0.$core($($argument),*)
        }
    )* };
}

macro_rules! watched {
    ($name:ident, $value:ty, [$($generic:tt)*]: $($fetch:ident),*) => {
        impl $($generic)* $name $($generic)* {
            /// As in `core`.
            pub const fn new(value: $value) -> Self {
                Self(atomic::$name::new(value))
            }

            /// As in `core`; not seen by the machine.
            pub fn get_mut(&mut self) -> &mut $value {
                self.0.get_mut()
            }

            /// As in `core`; not seen by the machine.
            pub fn into_inner(self) -> $value {
                self.0.into_inner()
            }

            /// As in `core`; accesses through it are seen by the machine.
            ///
            /// # Safety
            /// As in `core`.
            pub const unsafe fn from_ptr<'a>(word: *mut $value) -> &'a Self {
                // SAFETY: the layout is `core`'s, which has the layout of the value, and the rest is the caller's promise.
                unsafe { &*word.cast::<Self>() }
            }

            /// As in `core`; what is done through it is not seen by the machine.
            pub const fn as_ptr(&self) -> *mut $value {
                self.0.as_ptr()
            }

            // An exchange never fails without cause: a run must be the same every time.
            operations! {
                Load load load(order: Ordering) -> $value;
                Locked swap swap(value: $value, order: Ordering) -> $value;
                Locked compare_exchange compare_exchange(
                    current: $value, new: $value, success: Ordering, failure: Ordering
                ) -> Result<$value, $value>;
                Locked compare_exchange_weak compare_exchange(
                    current: $value, new: $value, success: Ordering, failure: Ordering
                ) -> Result<$value, $value>;
                $(Locked $fetch $fetch(value: $value, order: Ordering) -> $value;)*
            }

            /// As in `core`.
            #[inline]
            #[track_caller]
            pub fn store(&self, value: $value, order: Ordering) {
                tell(self, store_kind(order));
                self.0.store(value, order);
            }

            /// As in `core`: a load, and locked instructions until one succeeds.
            #[inline]
            #[track_caller]
            pub fn fetch_update(
                &self,
                set: Ordering,
                fetch: Ordering,
                mut f: impl FnMut($value) -> Option<$value>,
            ) -> Result<$value, $value> {
                let mut seen = self.load(fetch);
                while let Some(next) = f(seen) {
                    match self.compare_exchange(seen, next, set, fetch) {
                        Ok(was) => return Ok(was),
                        Err(now) => seen = now,
                    }
                }
                Err(seen)
            }
        }

        impl $($generic)* core::fmt::Debug for $name $($generic)* {
            fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
                core::fmt::Debug::fmt(&self.0, f)
            }
        }

        impl $($generic)* From<$value> for $name $($generic)* {
            fn from(value: $value) -> Self {
                Self::new(value)
            }
        }
    };
}

macro_rules! integers {
    ($($name:ident $value:ty),*) => { $(
        #[doc = concat!("`core`'s `", stringify!($name), "`, watched.")]
        #[repr(transparent)]
        #[derive(Default)]
        pub struct $name(atomic::$name);
        watched!($name, $value, []: fetch_add, fetch_sub, fetch_and, fetch_or, fetch_max);
    )* };
}

integers!(AtomicU8 u8, AtomicU16 u16, AtomicU32 u32, AtomicU64 u64, AtomicI64 i64, AtomicUsize usize);

/// `core`'s `AtomicBool`, watched.
#[repr(transparent)]
#[derive(Default)]
pub struct AtomicBool(atomic::AtomicBool);
watched!(AtomicBool, bool, []: fetch_and, fetch_or);

/// `core`'s `AtomicPtr`, watched.
#[repr(transparent)]
pub struct AtomicPtr<T>(atomic::AtomicPtr<T>);
watched!(AtomicPtr, *mut T, [<T>]:);

impl<T> Default for AtomicPtr<T> {
    fn default() -> Self {
        Self::new(core::ptr::null_mut())
    }
}
