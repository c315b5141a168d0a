//! The first operations of a worker, watched closely before many are timed.

use std::fmt::Display;

use crate::harness::Fault;

/// Proves that `open` gives the lowest free number and returns the two lowest free numbers.
///
/// Opens twice, closes the first and opens again: the second must be above the first, and the third must be
/// the first once more. Where an operation opens several descriptors, `number` is that of the first.
///
/// # Errors
///
/// If a call fails or another number is given.
pub(super) fn lowest<H, E: Display>(
    mut open: impl FnMut() -> Result<H, E>,
    number: impl Fn(&H) -> i32,
    mut close: impl FnMut(H) -> Result<(), E>,
) -> Result<[i32; 2], Fault> {
    let first = open().map_err(failed)?;
    let lowest = number(&first);
    let second = open().map_err(failed)?;
    let above = number(&second);
    close(first).map_err(failed)?;
    let third = open().map_err(failed)?;
    let again = number(&third);
    close(third).map_err(failed)?;
    close(second).map_err(failed)?;
    Fault::unless(lowest >= 0 && above > lowest && again == lowest, || {
        format!(
            "the lowest free descriptor was not given: opened {lowest}, {above}, closed {lowest}, opened {again}"
        )
    })?;
    Ok([lowest, above])
}

/// The fault of a first operation that gave `error`.
pub(super) fn failed(error: impl Display) -> Fault {
    Fault::new(format!("a first operation failed: {error}"))
}
