//! How many operations make a sample.

use std::time::Duration;

use super::{Crew, Fault};

/// Every step that is not the last doubles at least, so that this many suffice for any job.
const STEPS: u32 = 48;

/// Warms the crew up and finds the number of operations per thread for which a sample takes about `target`.
///
/// A number counts as found when two samples in a row were long enough: one alone may only have been
/// interrupted.
///
/// # Errors
///
/// Those of [`Crew::sample`].
pub(super) fn calibrate(crew: &mut Crew, target: Duration) -> Result<u64, Fault> {
    let target = target.as_nanos() as f64;
    let mut ops = 1;
    let mut confirmed = false;
    for _ in 0..STEPS {
        let sample = crew.sample(ops)?;
        let span = sample.span_ns as f64;
        // Fewer than asked for if the sample was stopped.
        ops = sample.ops.into_iter().min().unwrap_or(ops);
        let long_enough = span >= target / 2.0;
        // Short samples are mostly start-up and noise: trust them only for the direction.
        let factor =
            if long_enough { target / span } else { (target / span.max(1.0)).clamp(2.0, 16.0) };
        ops = scaled(ops, factor);
        if long_enough && confirmed {
            break;
        }
        confirmed = long_enough;
    }
    Ok(ops)
}

fn scaled(ops: u64, factor: f64) -> u64 {
    (ops as f64 * factor).clamp(1.0, 1e15) as u64
}
