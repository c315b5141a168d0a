//! Test isolation and test budgets, for the test programs of every crate.
//!
//! - [`isolated!`] runs a test in a process of its own.
//! - [`budget`] and [`scaled`] return the number of rounds that a generated test runs.
//! - [`stride`] returns the step by which a grid of cases is thinned.
//! - [`refuse_membarrier`] makes the kernel refuse a system call to the calling thread.
//! - [`skip_without_root`] says that a test cannot run, or fails where it must.
//! - [`anonymous_memory`] counts the pages of the process.
//! - [`heap::Counting`] counts the bytes on the heap.
//! - [`use_up_mappings`] leaves few mappings to the process.
//! - [`TimedLoop`] runs for a time, and on until its goal is met.

mod budget;
pub mod heap;
mod isolated;
mod mappings;
mod memory;
mod refuse;
mod skip;
mod timed;

pub use budget::{budget, scaled, stride};
#[doc(hidden)]
pub use isolated::{Child, enter};
pub use isolated::{PASSED, program};
pub use mappings::{ManyMappings, use_up_mappings};
pub use memory::anonymous_memory;
pub use refuse::refuse_membarrier;
pub use skip::skip_without_root;
pub use timed::TimedLoop;
