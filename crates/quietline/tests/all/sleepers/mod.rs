//! Several threads that sleep in one stream, or in one counter: here and on the host.
//!
//! Which of them gets what Linux leaves to chance, so the programs of `tests/concurrent` have at most one. Here it is compared what
//! all get together. Threads begin calls on one object, on both systems; when all sleep, one call is made that wakes some, or all are
//! interrupted; and when all sleep again or have ended, both systems say the same:
//!
//! * where each asks for as much as the others, the same outcomes, as a multiset, at every rest;
//! * where not, the same sums; and on each system nobody sleeps beside bytes, or beside room for his number;
//! * in the end, all bytes once and in one piece, and the same errors as often.
//!
//! Rounds are made by chance, with seeds. `QUIETLINE_SLEEPERS_ROUNDS=10000` makes so many of each
//! kind (150 by default), `QUIETLINE_SLEEPERS_SEED` begins elsewhere.
#![allow(unsafe_code, reason = "the host's calls")]

mod both;
mod counters;
mod readers;
mod systems;
#[allow(clippy::duplicate_mod, reason = "each copy works with the module `call` beside it")]
#[path = "../concurrent/worker.rs"]
mod worker;
mod writers;

/// What [`worker`] asks of a test.
mod call {
    pub(crate) const THREADS: usize = 4;

    /// What a call returned, or why it failed; and what it has read.
    #[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
    pub(crate) struct Outcome {
        pub(crate) result: Result<usize, i32>,
        pub(crate) bytes: Vec<u8>,
    }
}

use crate::support::Random;
use both::Both;

fn number(name: &str, or: u64) -> u64 {
    std::env::var(name).map_or(or, |text| text.parse().expect("a number"))
}

fn count() -> u64 {
    quietline_testing::budget("QUIETLINE_SLEEPERS_ROUNDS", 150)
}

/// Runs `count` rounds, each from a seed that a panic is preceded by.
fn rounds(count: u64, round: impl Fn(&mut Both, &mut Random)) -> Both {
    // One test at a time: a thread of another might have a lock of the heap's while all of these sleep.
    let _alone = crate::support::alone();
    worker::handle_signal();
    // The host's threads are made in it.
    crate::support::own_network();
    let mut both = Both::new();
    let first = number("QUIETLINE_SLEEPERS_SEED", 1);
    for seed in first..first + count {
        both.seed = seed;
        round(&mut both, &mut Random(seed.wrapping_mul(0x9e37_79b9)));
        both.assert_nothing_open();
    }
    both
}
