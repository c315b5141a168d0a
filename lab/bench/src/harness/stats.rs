//! The arithmetic of a report: medians with their spread, and ratios of pairs.

use serde::Serialize;

/// A median and how far the values lie from it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Spread {
    /// The middle value, or the mean of the middle two.
    pub median: f64,
    /// The smallest value.
    pub min: f64,
    /// The largest value.
    pub max: f64,
}

impl Spread {
    /// The spread of `values`, or nothing if there are none.
    pub fn of(values: impl IntoIterator<Item = f64>) -> Option<Self> {
        let mut values: Vec<f64> = values.into_iter().collect();
        values.sort_unstable_by(f64::total_cmp);
        let (&min, &max) = (values.first()?, values.last()?);
        let middle = values.len() / 2;
        let median = if values.len() % 2 == 1 {
            values[middle]
        } else {
            (values[middle - 1] + values[middle]) / 2.0
        };
        Some(Self { median, min, max })
    }
}

/// How many times as fast `column` is as `base`: the spread of `base / column` over rounds in which both were
/// sampled. Values are times, one per round.
///
/// Pairs come from the same round, so that whatever slowed the machine in that round slowed both.
pub fn ratio(base: &[f64], column: &[f64]) -> Option<Spread> {
    Spread::of(base.iter().zip(column).map(|(base, column)| base / column))
}

/// How many times the work of one thread `threads` threads do in the same time: the spread of
/// `threads * one / many` over the rounds. `threads` means linear scaling.
pub fn scaling(one: &[f64], many: &[f64], threads: usize) -> Option<Spread> {
    Spread::of(one.iter().zip(many).map(|(one, many)| threads as f64 * one / many))
}
