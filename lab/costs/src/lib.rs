//! The cost ledger: counts of each public operation on a hot path.

mod operation;
mod operations;
mod processes;
mod raw;

pub use operation::{Operation, Scene, Sharing, Worker};
pub use operations::operations;
