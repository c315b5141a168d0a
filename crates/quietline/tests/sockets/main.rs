//! Generated sequences of calls on local sockets, made here and on the host: results, errors, bytes, addresses, control
//! messages, poll masks and what epolls tell, level- and edge-triggered, are equal.
//!
//! `QUIETLINE_SOCKETS_PROGRAMS=N` makes N programs (default 3,000), `QUIETLINE_SOCKETS_SEED=N` begins with another.

mod call;
mod drive;
mod host;
mod many;
mod ours;
#[path = "../support/mod.rs"]
mod support;

use call::{Call, Dice};
use drive::{Step, World};
use std::time::{Duration, Instant};

fn number(name: &str, or: u64) -> u64 {
    std::env::var(name).ok().and_then(|text| text.parse().ok()).unwrap_or(or)
}

/// Both worlds' steps for a program.
///
/// The host looks for sockets that nobody can reach any more when any program of the machine closes one, and does it later. So
/// with `settled` both worlds are made to look for them after each call, and the host is given time to, and more time if it does
/// not show what is shown here.
fn both(tag: u64, calls: &[Call], settled: bool) -> (Vec<Step>, Vec<Step>) {
    let mut ours = World::new(Box::new(ours::Ours::new()), tag);
    let step = |call: &Call| {
        let mut step = ours.step(call, settled);
        ours.ask(&mut step);
        step
    };
    let ours: Vec<Step> = calls.iter().map(step).collect();
    let mut host = World::new(Box::new(host::Host::default()), tag);
    let step = |(call, ours): (&Call, &Step)| {
        let mut step = host.step(call, settled);
        let until = Instant::now() + LIMIT;
        while settled && step.polls != ours.polls && Instant::now() < until {
            step.polls = host.polls(settled);
        }
        host.ask(&mut step);
        step
    };
    let host = calls.iter().zip(&ours).map(step).collect();
    (ours, host)
}

/// How long a host may take to show what it does later.
const LIMIT: Duration = Duration::from_millis(300);

/// The first step in which they differ, also if the host has time.
fn difference(tag: u64, calls: &[Call]) -> Option<usize> {
    [false, true].into_iter().try_fold(0, |_, settled| {
        let (ours, host) = both(tag, calls, settled);
        ours.iter().zip(&host).position(|(ours, host)| ours != host)
    })
}

/// Leaves out what is not needed for a difference.
fn shrink(tag: u64, calls: &mut Vec<Call>) {
    let mut at = calls.len();
    while at > 0 {
        at -= 1;
        let mut fewer = calls.clone();
        fewer.remove(at);
        if let Some(end) = difference(tag, &fewer) {
            fewer.truncate(end + 1);
            *calls = fewer;
            at = at.min(calls.len());
        }
    }
}

#[test]
fn programs_do_here_what_they_do_on_linux() {
    support::own_network();
    support::assert_dgram_queues();
    let (programs, seed) = (number("QUIETLINE_SOCKETS_PROGRAMS", 3_000), number("QUIETLINE_SOCKETS_SEED", 1));
    for program in seed..seed + programs {
        let mut dice = Dice::new(program);
        let mut calls: Vec<Call> = (0..40).map(|_| Call::any(&mut dice)).collect();
        let Some(end) = difference(program, &calls) else { continue };
        calls.truncate(end + 1);
        shrink(program, &mut calls);
        let (ours, host) = both(program, &calls, true);
        for ((call, ours), host) in calls.iter().zip(&ours).zip(&host) {
            println!("{call:?}\n    here {ours:?}");
            if ours != host {
                println!("    host {host:?}");
            }
        }
        panic!("program {program} differs");
    }
}

/// What epolls tell is there to be compared: levels, and edges that say something new.
#[test]
fn epolls_tell_of_programs() {
    let mut told = [0; 2];
    for program in 1..=50 {
        let mut dice = Dice::new(program);
        let mut ours = World::new(Box::new(ours::Ours::new()), 1_000_000 + program);
        for _ in 0..40 {
            let mut step = ours.step(&Call::any(&mut dice), false);
            ours.ask(&mut step);
            told.iter_mut().zip(&step.events).for_each(|(told, events)| *told += events.len());
        }
    }
    assert!(told[0] > 1_000 && told[1] > 100, "{told:?}");
}
