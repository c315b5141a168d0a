//! Generated sequences of calls on local sockets, made here and on the host: results, errors, bytes, addresses, control
//! messages and poll masks are equal, and what two epolls tell that watch all of them, one level- and one edge-triggered.
//!
//! # When a difference is one
//!
//! The host looks for unreachable sockets when it has the time. So a program that differs
//! is run [`crate::support::chance::AGAIN`] times more, and the host is given time after each call.
//! If it differs in two of these runs, the test fails. If it does not, the difference is printed,
//! with its seed, and laid to chance; of that there may be as much as [`ONE_IN`] says, and more is
//! a failure, too. The difference must be the host's: made here alone, the calls have to give
//! each time what they gave beside it. An error here now and then is a failure when it is
//! first seen.
//!
//! `QUIETLINE_SOCKETS_PROGRAMS=N` makes N programs (default 300), `QUIETLINE_SOCKETS_SEED=N` begins
//! with another.

mod amounts;
mod call;
mod cases;
mod connections;
mod drive;
mod faults;
mod found;
mod generate;
mod host;
mod http;
#[cfg(target_arch = "x86_64")]
mod instructions;
mod many;
mod options;
mod ours;
mod stress;

use crate::support::chance::Chance;
use call::Call;
use drive::{Step, World};
use generate::program;
use host::{Directory, Host};
use ours::{Machine, Ours};
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

fn number(name: &str, or: u64) -> u64 {
    std::env::var(name).ok().and_then(|text| text.parse().ok()).unwrap_or(or)
}

/// Where programs are run.
struct Place {
    directory: Directory,
    machine: Machine,
}

/// What a call did here and on the host, and whether both were made to look for unreachable
/// sockets.
struct Pair {
    steps: [Step; 2],
    collected: bool,
}

/// How seldom a program may differ once: with some five busy threads for each CPU one in 430 to 810 did.
const ONE_IN: u64 = 100;

/// How long a host may take to show what it does later.
const LIMIT: Duration = Duration::from_secs(2);

impl Place {
    fn new() -> Self {
        let directory = Directory::new();
        let machine = Machine::new(&directory.0);
        Self { directory, machine }
    }

    /// Runs a program on both, to the first step in which they differ: that step's number, and all steps.
    ///
    /// The host looks for unreachable sockets when any program of the machine closes one, and does
    /// it later. So when a call did the same and sockets show something else, both are made to look
    /// for them, and the host is given time. With `slow` that is done after each call, to its end.
    fn run(&self, tag: u64, calls: &[Call], slow: bool) -> (Option<usize>, Vec<Pair>) {
        let mut ours = World::new(Box::new(Ours::new(&self.machine)), &self.directory.0, tag);
        let mut host = World::new(Box::new(Host), &self.directory.0, tag);
        let mut steps = Vec::new();
        for call in calls {
            let (mut here, mut there) = (ours.step(call), host.step(call));
            if slow {
                host::collect_all();
            }
            let collected = slow || here.same_call(&there) && here.polls != there.polls;
            if collected {
                ours.collect();
                here.polls = ours.polls();
                let (until, mut pause) = (Instant::now() + LIMIT, Duration::from_micros(10));
                loop {
                    host.collect();
                    there.polls = host.polls();
                    if here.polls == there.polls || Instant::now() > until {
                        break;
                    }
                    std::thread::sleep(pause);
                    pause *= 2;
                }
            }
            ours.tell(&mut here);
            host.tell(&mut there);
            let differ = here != there;
            steps.push(Pair { steps: [here, there], collected });
            if differ {
                return (Some(steps.len() - 1), steps);
            }
        }
        (None, steps)
    }

    /// What the last of the calls does here, with no host beside it, and with the same looks for what nobody can reach.
    fn alone(&self, tag: u64, calls: &[Call], pairs: &[Pair]) -> Step {
        let mut ours = World::new(Box::new(Ours::new(&self.machine)), &self.directory.0, tag);
        let steps = calls.iter().zip(pairs).map(|(call, pair)| {
            let mut here = ours.step(call);
            if pair.collected {
                ours.collect();
                here.polls = ours.polls();
            }
            ours.tell(&mut here);
            here
        });
        steps.last().expect("a call")
    }

    /// The first step in which they differ, also if the host has time.
    fn difference(&self, tag: u64, calls: &[Call]) -> Option<usize> {
        self.run(tag, calls, false).0?;
        self.run(tag, calls, true).0
    }

    /// Leaves out what is not needed for a difference.
    fn shrink(&self, tag: u64, calls: &mut Vec<Call>) {
        let mut at = calls.len();
        while at > 0 {
            at -= 1;
            let mut fewer = calls.clone();
            fewer.remove(at);
            if let Some(end) = self.difference(tag, &fewer) {
                fewer.truncate(end + 1);
                *calls = fewer;
                at = at.min(calls.len());
            }
        }
    }
}

/// Shows a program that differs.
fn report(place: &Place, tag: u64, calls: &[Call]) -> ! {
    for (call, Pair { steps: [here, there], .. }) in
        calls.iter().zip(&place.run(tag, calls, true).1)
    {
        println!("{call:?}\n    here {here:?}");
        if here != there {
            println!("    host {there:?}");
        }
    }
    panic!("program {tag} differs");
}

#[test]
fn programs_do_here_what_they_do_on_linux() {
    quietline_testing::isolated!();
    crate::support::own_network();
    crate::support::assert_dgram_queues();
    let (programs, first) = (
        quietline_testing::budget("QUIETLINE_SOCKETS_PROGRAMS", 300),
        number("QUIETLINE_SOCKETS_SEED", 1),
    );
    let (mut place, mut chance) = (Place::new(), Chance::new(programs, ONE_IN));
    for seed in first..first + programs {
        if seed.is_multiple_of(1_000) {
            place = Place::new();
        }
        let mut calls = program(seed);
        let (Some(end), pairs) = place.run(seed, &calls, false) else { continue };
        let [here, there] = &pairs[end].steps;
        let said =
            format!("program {seed}, {:?}:\n    here {here:?}\n    host {there:?}", calls[end]);
        for _ in 0..crate::support::chance::AGAIN {
            assert_eq!(
                place.alone(seed, &calls, &pairs),
                *here,
                "here, alone and beside the host: {said}"
            );
        }
        let Some(end) = chance.is_it(&said, || place.run(seed, &calls, true).0) else { continue };
        eprintln!("{said}");
        calls.truncate(end + 1);
        place.shrink(seed, &mut calls);
        report(&place, seed, &calls);
    }
    println!("{programs} programs: all the same, {chance}");
}

#[test]
fn programs_that_have_differed_do_not() {
    quietline_testing::isolated!();
    crate::support::own_network();
    let place = Place::new();
    for (tag, calls) in (0..).zip(found::all()) {
        if place.difference(tag, &calls).is_some() {
            report(&place, tag, &calls);
        }
    }
}

/// The programs do what they are there for: each kind of call succeeds often.
#[test]
fn programs_reach_what_they_are_to_test() {
    quietline_testing::isolated!();
    let place = Place::new();
    let mut counts = BTreeMap::<String, [u32; 2]>::new();
    let mut files = 0;
    for seed in 1..400 {
        let mut ours = World::new(Box::new(Ours::new(&place.machine)), &place.directory.0, seed);
        for call in program(seed) {
            let step = ours.step(&call);
            let name = format!("{call:?}");
            let name = name.split([' ', '(']).next().unwrap_or_default().to_owned();
            let [all, good] = counts.entry(name).or_default();
            *all += 1;
            *good += u32::from(step.result.is_ok());
            files += u32::from(step.got_files());
        }
    }
    for (name, [all, good]) in &counts {
        assert!(*good >= 50 && good * 5 >= *all, "{name}: {good} of {all}");
    }
    assert_eq!(counts.len(), 20, "{counts:?}");
    assert!(files > 50, "{files} messages with files");
}
