//! How many CPUs there are, and which one this is.

#[cfg(loom)]
pub use crate::backend::cpu::migrate;
pub use crate::backend::cpu::{current, nr_cpus};
