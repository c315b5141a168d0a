//! Timers, signals and calls that wait for a time, beside those of the host, call by call: results, errors, bytes, poll masks
//! and every event of an epoll in its order equal.
//!
//! A program is a list of calls on a few places, each of which holds a descriptor or none: timerfds of all clocks, signalfds,
//! epolls that watch them level- and edge-triggered, pipes (whose writers are sent SIGPIPE), places of the tree
//! (`O_PATH`), and duplicates. Programs come from
//! seeds; one that differs is run again with more time, and then cut down to the calls that matter.
//!
//! # When a difference is one
//!
//! A program that differs is run [`crate::support::chance::AGAIN`] times more. If it differs in two
//! of these runs as well, the test fails. If it does not, the difference is printed, and laid to
//! chance (a thread that rings a timer, of either system, came later than the thread that looked);
//! of that there may be as much as [`crate::support::chance::allowed`] says, and more is a failure,
//! too.
//!
//! # How an outcome is one
//!
//! * A timer expires long after a program or has expired before it: then its count, what is left of it, and what it was set to
//!   are the same whenever they are asked. What expires soon is waited for before anything else is done. Times that are left are
//!   compared to ten seconds, which is what all that is far differs by; intervals to the nanosecond. Counts of timers that expire
//!   while a program runs are in `overruns`, between the least and the most that the clock allows.
//! * Calls that wait for ever are made where there is something to tell; a call that has waited in vain has waited as long as it
//!   said, at least.
//! * All signals are blocked, in a process of the host's own for the test, in all its threads; none but the program's is sent.
//!
//! # Left out
//!
//! * Times that are none (`EINVAL`): here a time is a `Duration`, which always is one.
//! * Masks of signals given to a call that waits: no call takes one here.
//! * Absolute times of the clocks that count suspended time, where the host has been suspended: here they are the monotonic one.
//! * Disarming a timer of a clock that wakes the system: Linux goes on to tell what was left of it. Arming one for the end of
//!   time from now, and timers of the time of day that go on at the end of time: Linux reckons that from 1970.
//! * Other signals while SIGPIPE waits: Linux sends that to the thread, whose signals are read before the process's; here all are
//!   the process's. So a broken pipe is written to where none waits, and none is sent until it is read.
//! * Reads of what has nothing to read and waits: nobody would end them.
//!
//! `QUIETLINE_TIMERS_PROGRAMS=1000000` runs so many (1,000 by default), `QUIETLINE_TIMERS_SEED`
//! begins elsewhere.
#![allow(unsafe_code, reason = "the host's calls")]

mod call;
mod generate;
mod host;
mod limited;
mod ours;
mod overruns;
mod own;
mod pending;
mod run;

use crate::support::chance::Chance;
use call::{Call, When};
use host::Host;
use ours::Ours;
use run::{Outcome, World};
use std::collections::BTreeMap;
use std::time::Duration;

/// How seldom a program may differ once: with fifty threads for each CPU one in 1,150 did.
const ONE_IN: u64 = 200;

/// Runs a program on both: where they first differ, and how.
fn first_difference(program: &[Call], slow: bool) -> Option<(usize, Outcome, Outcome)> {
    let (mut host, mut ours) = (Host::new(), Ours::new());
    let mut world = World::new(&mut host, &mut ours);
    if slow {
        world.patience = Duration::from_millis(20);
    }
    program.iter().enumerate().find_map(|(at, call)| {
        own::at(at);
        let (theirs, own) = world.step(call);
        (theirs != own).then_some((at, theirs, own))
    })
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
    std::env::var(name).map_or(default, |n| n.parse().expect("a number"))
}

#[test]
fn generated_programs() {
    if own::elsewhere("timers::generated_programs") {
        return;
    }
    let (first, programs) = (
        number("QUIETLINE_TIMERS_SEED", 1),
        quietline_testing::budget("QUIETLINE_TIMERS_PROGRAMS", 1_000),
    );
    let (mut calls, mut chance) = (0, Chance::new(programs, ONE_IN));
    for seed in first..first + programs {
        own::begins(seed);
        let program = generate::program(seed);
        calls += program.len();
        let Some((at, theirs, own)) = first_difference(&program, false) else { continue };
        let said = format!("seed {seed}, call {at}:\n host      {theirs:?}\n quietline {own:?}");
        let Some(again) = chance.is_it(&said, || first_difference(&program, true)) else {
            continue;
        };
        // Where it differs at times only, all of it may matter.
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
    eprintln!("{programs} programs, {calls} calls: all the same, {chance}");
}

/// The programs do what they are there for: each kind of call succeeds often, and what is to be compared happens.
#[test]
fn programs_reach_what_they_are_to_test() {
    if own::elsewhere("timers::programs_reach_what_they_are_to_test") {
        return;
    }
    let mut counts = BTreeMap::new();
    let mut count = |what: String, good: bool| {
        let count: &mut (u32, u32) = counts.entry(what).or_default();
        count.0 += 1;
        count.1 += u32::from(good);
    };
    // A fast machine reads most timers before their second tick, so this has no bound but zero.
    let mut several_ticks = 0;
    for seed in 1..=1000 {
        own::begins(seed);
        let (mut host, mut ours) = (Host::new(), Ours::new());
        let mut world = World::new(&mut host, &mut ours);
        for call in generate::program(seed) {
            let (outcome, _) = world.step(&call);
            let name = format!("{call:?}");
            let name = name.split([' ', '(']).next().unwrap_or_default().to_owned();
            match &outcome {
                Outcome::Bytes(bytes) if bytes.len() >= 128 => {
                    count("signals read".into(), bytes.len() > 128)
                }
                Outcome::Bytes(bytes) if bytes.len() == 8 => {
                    let ticks = u64::from_ne_bytes(*bytes.first_chunk().unwrap());
                    count("ticks read".into(), ticks >= 1);
                    several_ticks += u32::from(ticks > 1);
                }
                Outcome::Spec(left, _) => count("times told".into(), left.is_some()),
                Outcome::Events(events) if matches!(call, Call::Wait { .. }) => {
                    count("waits".into(), !events.is_empty());
                }
                _ => {}
            }
            if let Call::Arm { when: When::Soon(_) | When::SoonAt(_), .. } = call {
                count("soon".into(), matches!(outcome, Outcome::Spec(..)));
            }
            count(name, !matches!(outcome, Outcome::Passed | Outcome::Failed(_)));
        }
    }
    for (name, (all, good)) in &counts {
        assert!(*good >= 30, "{name}: {good} of {all}");
    }
    assert!(several_ticks > 0, "no read found more than one tick");
    assert!(counts.len() >= 22 + 5, "{counts:?}");
}

/// A comparison that finds nothing must be able to find something.
#[test]
fn a_difference_is_found() {
    if own::elsewhere("timers::a_difference_is_found") {
        return;
    }
    let (mut host, mut ours) = (Host::new(), Ours::new());
    let mut world = World::new(&mut host, &mut ours);
    let flags = libc::O_NONBLOCK;
    let made = world.step(&Call::Timer { at: 1, clock: libc::CLOCK_MONOTONIC, flags });
    assert_eq!(made.0, made.1);
    let made = world.step(&Call::Signals { at: 2, mask: !0, flags });
    assert_eq!(made.0, made.1);
    let fd = *world.ours.at(1);
    world.ours.set(fd, 0, [Duration::from_secs(100), Duration::ZERO]).unwrap();
    world.host.kill(libc::SIGUSR1).unwrap();
    for call in [Call::Get { at: 1 }, Call::Read { at: 2, n: vec![128] }, Call::Pending] {
        let (theirs, own) = world.step(&call);
        // Read there, nothing waits any more.
        assert_eq!(theirs == own, matches!(call, Call::Pending), "{call:?}");
    }
}
