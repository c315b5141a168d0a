//! Pipes, fifos and event counters, beside the host's kernel: random programs of one thread in which nothing waits, each call
//! made on both; results, errors, bytes and what `poll` says must be the same.
//!
//! `QUIETLINE_BYTES_PROGRAMS` says how many programs; `QUIETLINE_BYTES_SEED` where they begin.

// The host's side is made of system calls.
#![allow(unsafe_code)]

mod host;
mod program;
mod run;
mod threads;

use program::Program;
use std::sync::{Mutex, PoisonError};

/// One comparison at a time: the host's descriptors are the whole test's, and when a number is taken again, which epoll
/// tells apart from another, is to depend on the program only.
static HOST: Mutex<()> = Mutex::new(());

fn number(name: &str, default: u64) -> u64 {
    std::env::var(name).ok().and_then(|text| text.parse().ok()).unwrap_or(default)
}

/// Runs programs of a kind; one that tells the sides apart is cut down to the calls that it takes.
fn compare(kind: program::Kind) {
    let _alone = HOST.lock().unwrap_or_else(PoisonError::into_inner);
    let (programs, seed) = (
        quietline_testing::budget("QUIETLINE_BYTES_PROGRAMS", 150),
        number("QUIETLINE_BYTES_SEED", 1),
    );
    let mut calls = 0;
    for n in 0..programs {
        let program = Program::random(kind, seed + n);
        match run::run(&program) {
            Ok(made) => calls += made,
            Err(difference) => {
                let (program, difference) =
                    program.shortest(difference, |shorter| run::run(shorter).err());
                panic!("program {} of {kind:?}: {difference}\n{program:#?}", seed + n);
            }
        }
    }
    println!("{kind:?}: {programs} programs, {calls} calls");
    assert!(calls > programs * 10, "programs make calls");
}

#[test]
fn pipes() {
    quietline_testing::isolated!();
    compare(program::Kind::Pipes);
}

#[test]
fn counters() {
    quietline_testing::isolated!();
    compare(program::Kind::Counters);
}

#[test]
fn fifos() {
    quietline_testing::isolated!();
    compare(program::Kind::Fifos);
}

#[test]
fn transfers() {
    quietline_testing::isolated!();
    compare(program::Kind::Transfers);
}
