//! Counts of instructions: an operation, one instruction at a time.

use crate::{Operation, Sharing};
use quietline_count::{Counts, Error, count_operations};
use quietline_platform::percpu::{Body, active};

/// Operations before the first counted one: batches are in a known state, and each table has the
/// size that it keeps.
const WARM_UP: usize = 2000;

/// Operations that are counted, unless they are long.
const COUNTED: usize = 3;

/// Instructions of a long operation. One such operation is counted.
const LONG: u64 = 10_000;

/// Counts of the median operation.
pub type Counted = Counts;

/// Counts an operation, in a child of this process.
///
/// # Errors
/// If this system refuses to trace a child, or has no restartable sequences; if the operation
/// panics.
pub fn count(operation: &Operation) -> Result<Counted, Error> {
    if active() != Body::Rseq {
        let why = "this system has no restartable sequences, which the counted code is made of";
        return Err(Error::Refused(std::io::Error::other(why)));
    }
    let prepare = || {
        let scene = operation.open(Sharing::OneProcess);
        let mut worker = scene(0);
        move || {
            let _alive = &scene;
            worker();
        }
    };
    let enough = |counts: &[Counts]| {
        let long = counts.first().is_some_and(|counts| counts.own.instructions > LONG);
        counts.len() == if long { 1 } else { COUNTED }
    };
    let mut counts = count_operations(prepare, WARM_UP / operation.repeats, enough)?;
    counts.sort_by_key(|counts| counts.own.instructions);
    Ok(counts.swap_remove(counts.len() / 2))
}

/// The columns that [`count`] fills, and the bytes that the operation requests from the C library.
///
/// # Errors
/// As [`count`].
pub fn count_row(operation: &Operation) -> Result<[u64; 6], Error> {
    let counts = count(operation)?;
    let own = &counts.own;
    Ok([
        own.instructions,
        own.locked,
        own.fences,
        counts.syscalls,
        own.library_calls,
        own.bytes_requested,
    ])
}
