//! Test isolation and test budgets, for the test programs of every crate.
//!
//! - [`isolated!`] runs a test in a process of its own.
//! - [`budget`] returns the number of rounds that a generated test runs.

mod budget;
mod isolated;

pub use budget::budget;
#[doc(hidden)]
pub use isolated::{Child, enter};
pub use isolated::{PASSED, program};
