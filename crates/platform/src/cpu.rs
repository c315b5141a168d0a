//! How many CPUs there are, and which one this is.

#[cfg(loom)]
pub use crate::backend::cpu::migrate;
#[cfg(not(any(loom, quietline_sim)))]
#[doc(hidden)]
pub use crate::backend::cpu::pretend_possible;
pub use crate::backend::cpu::{current, nr_cpus};
