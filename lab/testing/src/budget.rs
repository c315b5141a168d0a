//! Budgets of generated tests.

use std::env;

/// Budgets are divided by this under Miri.
const SLOWER: u64 = 200;

/// Multiplies every default budget.
const SCALE: &str = "QUIETLINE_TEST_SCALE";

/// Returns the budget of a generated test: the value of the environment variable `variable` if it
/// is set, else `default` times `QUIETLINE_TEST_SCALE` (1 if unset).
///
/// # Panics
///
/// If one of the two variables is set and is not a number.
pub fn budget(variable: &str, default: u64) -> u64 {
    number(variable).unwrap_or_else(|| scaled(default))
}

/// Returns `default` times `QUIETLINE_TEST_SCALE` (1 if unset).
///
/// # Panics
///
/// If the variable is set and is not a number.
pub fn scaled(default: u64) -> u64 {
    let scaled = default * number(SCALE).unwrap_or(1);
    // An interpreter is slower by some hundred times.
    if cfg!(miri) { scaled.div_ceil(SLOWER) } else { scaled }
}

/// Returns the step by which a grid of cases is thinned: `default` divided by
/// `QUIETLINE_TEST_SCALE` (1 if unset), and 1, the whole grid, at least.
///
/// # Panics
///
/// If the variable is set and is not a number.
pub fn stride(default: usize) -> usize {
    default.div_ceil(number(SCALE).unwrap_or(1).max(1) as usize).max(1)
}

fn number(variable: &str) -> Option<u64> {
    let value = env::var(variable).ok()?;
    let digits = value.replace('_', "");
    Some(digits.parse().unwrap_or_else(|_| panic!("{variable} is not a number: {value:?}")))
}
