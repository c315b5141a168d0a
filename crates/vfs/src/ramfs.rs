//! The filesystem in memory.

pub mod dirlog;
pub(crate) mod fs;
mod limits;
pub mod pages;
pub mod xattr;

pub use fs::{RamFs, new_ramfs};
pub use limits::{Limits, PAGE};
