//! The real machine: instruments, ledger and check.

mod amount;
mod checkout;
mod column;
mod comparison;
mod counting;
mod ledger;
mod memory;
mod model;
mod planting;
mod render;
mod sheet;

pub use amount::Amount;
pub use checkout::Checkout;
pub use column::{COLUMNS, Column, Row};
pub use comparison::{Acceptance, Finding, Findings, compare};
pub use counting::{Counted, count, count_row};
pub use ledger::{Entry, Ledger};
pub use memory::{Bytes, measure_bytes};
pub use planting::{Planted, plant_every_row};
pub use render::render;
pub use sheet::{Sheet, measure};
