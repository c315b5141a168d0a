//! The harness: crews of pinned threads, calibrated samples, interleaved rounds.
//!
//! It knows [columns](Column), not who is behind them, and [jobs](crate::workloads::Job), not what they do.

mod calibrate;
pub mod clock;
mod column;
mod crew;
mod measure;
pub mod pin;
mod plan;
mod progress;
mod start_line;
pub mod stats;

pub(crate) use column::BETWEEN_LOOKS;
pub use column::{Arena, Column, Fault, Seat, Shape, Unfit, Worker, looped, repeat};
pub use crew::{Crew, Sample};
pub use measure::{Measured, Missing, Row, measure};
pub use plan::Plan;
pub use progress::Progress;
