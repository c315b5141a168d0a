//! The cost ledger: counts of each public operation on a hot path, and the check that none grows unseen.

mod operation;
mod operations;
mod plant;
mod processes;
mod raw;

#[cfg(all(target_arch = "x86_64", not(quietline_sim)))]
mod native;

#[cfg(all(target_arch = "x86_64", not(quietline_sim)))]
pub use native::*;
pub use operation::{Operation, Scene, Sharing, Worker};
pub use operations::operations;
pub use plant::Plant;
