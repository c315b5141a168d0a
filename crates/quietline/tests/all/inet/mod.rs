//! Sockets of the internet families (and property 13 of them, in `stress.rs` and `waiting.rs`) beside those of the host's loopback device, call by call: results, errors, bytes,
//! addresses, what `poll` says of every socket after every call, and what two epolls tell that watch all of them, one level- and
//! one edge-triggered.
//!
//! A program is a list of calls on a few places, each of which holds a socket or none. All calls fail rather than wait, and all
//! are made by one thread, so that there is one right answer. Ports are compared by which socket has them. Programs come from
//! seeds; one that differs is cut down to the calls that matter.
//!
//! # When a difference is one
//!
//! The host's loopback device may be late. So a program that differs is run
//! [`crate::support::chance::AGAIN`] times more, and the device is given time after each call. If
//! it differs in two of these runs, the test fails. If it does not, the difference is printed, with
//! its seed, and laid to chance; of that there may be as much as [`ONE_IN`] says, and more is a
//! failure, too. The difference must be the host's: made here alone, the calls have to give
//! each time what they gave beside it. An error here now and then is a failure when it is
//! first seen.
//!
//! Left out, because Linux keeps a port for a minute after a connection has ended (TIME_WAIT): binding to a port by its number
//! once there were connections, to listen there once one has ended, and to connect two ports that were connected to each other
//! before. Where the host lets it the
//! programs have a network of their own, and every thousand a new one: other programs' ports are there no more.
//!
//! `QUIETLINE_INET_PROGRAMS=1000000` runs so many (500 by default), `QUIETLINE_INET_SEED` begins
//! elsewhere.
#![allow(unsafe_code, reason = "the host's calls")]

mod answers;
mod call;
mod control;
mod faults;
mod generate;
mod host;
mod limits;
mod many;
mod ours;
mod stress;
mod waiting;

use crate::support::chance::Chance;
use call::{Call, Outcome, World};
use generate::generate;
use host::Host;
use ours::Ours;

/// How seldom a program may differ once: with some five busy threads for each CPU none of 30,000 did.
const ONE_IN: u64 = 1_000;

/// Runs a program on both: where they first differ, and how.
fn first_difference(program: &[Call], slow: bool) -> Option<(usize, Outcome, Outcome)> {
    let (mut host, mut ours) = (World::new(Host { slow }), World::new(Ours::new()));
    for (at, &call) in program.iter().enumerate() {
        let (theirs, own) = (host.run(call), ours.run(call));
        if theirs != own {
            return Some((at, theirs, own));
        }
    }
    None
}

/// What the last call of a program comes to here, with no host beside it.
fn alone(program: &[Call]) -> Outcome {
    let mut ours = World::new(Ours::new());
    program.iter().map(|&call| ours.run(call)).last().expect("a call")
}

/// Whether it differs whenever it is run.
fn differs(program: &[Call]) -> bool {
    (0..3).all(|_| first_difference(program, true).is_some())
}

/// The shortest program that can be had by leaving calls out, and still differs.
fn shrink(mut program: Vec<Call>) -> Vec<Call> {
    loop {
        let before = program.len();
        let mut at = program.len();
        while at > 0 {
            at -= 1;
            let mut shorter = program.clone();
            shorter.remove(at);
            if differs(&shorter) {
                program = shorter;
            }
        }
        if program.len() == before {
            return program;
        }
    }
}

fn number(name: &str, default: u64) -> u64 {
    std::env::var(name).map_or(default, |text| text.parse().expect("a number"))
}

#[test]
fn programs_give_what_the_host_gives() {
    quietline_testing::isolated!();
    let (first, programs) = (
        number("QUIETLINE_INET_SEED", 1),
        quietline_testing::budget("QUIETLINE_INET_PROGRAMS", 500),
    );
    let mut chance = Chance::new(programs, ONE_IN);
    for seed in first..first + programs {
        if (seed - first).is_multiple_of(1000) {
            // Where few ports are what is left of former programs' connections.
            crate::support::own_network();
        }
        let program = generate(seed);
        let Some((at, theirs, own)) = first_difference(&program, false) else { continue };
        let said = format!("seed {seed}, call {at}:\n host      {theirs:?}\n quietline {own:?}");
        for _ in 0..crate::support::chance::AGAIN {
            assert_eq!(alone(&program[..=at]), own, "here, alone and beside the host: {said}");
        }
        let Some(again) = chance.is_it(&said, || first_difference(&program, true)) else {
            continue;
        };
        // Where it differs now and then, all of it may matter.
        let (program, (at, theirs, own)) = if differs(&program) {
            let program = shrink(program);
            let found =
                (0..10).find_map(|_| first_difference(&program, true)).expect("it always differed");
            (program, found)
        } else {
            (program, again)
        };
        for call in &program[..=at] {
            eprintln!("    {call:?}");
        }
        panic!("seed {seed}:\n host      {theirs:?}\n quietline {own:?}");
    }
    eprintln!("{programs} programs: all the same, {chance}");
}

/// The programs do what they are there for: each kind of call succeeds often.
#[test]
fn programs_reach_what_they_are_to_test() {
    quietline_testing::isolated!();
    let mut counts = std::collections::BTreeMap::new();
    for seed in 1..800 {
        let mut ours = World::new(Ours::new());
        for call in generate(seed) {
            let outcome = ours.run(call);
            let name = format!("{call:?}");
            let name = name.split([' ', '(']).next().unwrap_or_default().to_owned();
            let count: &mut (u32, u32) = counts.entry(name).or_default();
            count.0 += 1;
            count.1 += u32::from(outcome.result.is_ok());
        }
    }
    for (name, (all, good)) in &counts {
        assert!(*good >= 30, "{name}: {good} of {all}");
    }
    assert!(counts.len() >= 18, "{counts:?}");
}
