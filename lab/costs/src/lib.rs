//! The cost ledger: counts of each public operation on a hot path.

mod operation;
mod operations;
mod processes;

pub use operation::{Operation, Scene, Sharing, Worker};
pub use operations::operations;
