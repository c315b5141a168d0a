//! The half of a primitive that only its slow paths touch: on lines of its own, and, natively, with its locks held
//! across `fork`.

use quietline_platform::AllocError;
#[cfg(not(loom))]
use quietline_platform::fork::{AtFork, Rank, Registered};

#[cfg(not(loom))]
pub(crate) type SlowHalf<T> = Registered<T>;
#[cfg(loom)]
pub(crate) type SlowHalf<T> = Box<T>;

/// Puts `value` at an address of its own.
#[cfg(not(loom))]
pub(crate) fn slow_half<T: AtFork>(value: T) -> Result<SlowHalf<T>, AllocError> {
    Registered::new(Rank::Domain, value)
}

/// Puts `value` at an address of its own.
#[cfg(loom)]
pub(crate) fn slow_half<T>(value: T) -> Result<SlowHalf<T>, AllocError> {
    quietline_platform::heap::try_box(value)
}
