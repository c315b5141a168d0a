//! Property 12, held against the host: epoll and poll call by call, the same programs on both; results, errors (of loops, chains and paths,
//! too), and every event in its order equal.
//!
//! A program is a list of calls on a few places, each of which holds a descriptor or none: event counters, pipes, epolls, places
//! of the tree (`O_PATH`) and duplicates of all these, watched by each other in every way, written to, read, closed, polled. All of it
//! in one thread, so that there is one right answer, and nothing is laid to chance: a program that differs once is a failure. Programs
//! come from seeds; one that differs is cut down to the calls that matter.
//!
//! `QUIETLINE_EVENTS_PROGRAMS=1000000` runs so many (6,000 by default), `QUIETLINE_EVENTS_SEED`
//! begins elsewhere.
#![allow(unsafe_code, reason = "the host's calls")]

mod call;
mod generate;
mod host;
#[cfg(target_arch = "x86_64")]
mod instructions;
mod ours;
mod scale;
mod threads;

use call::{Call, Outcome, System};
use generate::Dice;
use host::Host;
use ours::Ours;

/// Runs a program on both: where they first differ, and how.
fn first_difference(program: &[Call]) -> Option<(usize, Outcome, Outcome)> {
    let (mut host, mut ours) = (Host::default(), Ours::new());
    for (at, call) in program.iter().enumerate() {
        let (theirs, own) = (call.run(&mut host), call.run(&mut ours));
        if theirs != own {
            return Some((at, theirs, own));
        }
    }
    None
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
            if first_difference(&shorter).is_some() {
                program = shorter;
            }
        }
        if program.len() == before {
            return program;
        }
    }
}

/// Shows a program that has differed, also if it does not again.
fn report(seed: u64, program: Vec<Call>, (at, theirs, own): (usize, Outcome, Outcome)) -> ! {
    let shorter = shrink(program.clone());
    let (program, (at, theirs, own)) = match first_difference(&shorter) {
        Some(difference) => (shorter, difference),
        None => (program, (at, theirs, own)),
    };
    for call in &program[..=at] {
        eprintln!("    {call:?}");
    }
    panic!("seed {seed}: the host says {theirs:?}, quietline says {own:?}");
}

fn number(name: &str, default: u64) -> u64 {
    std::env::var(name).map_or(default, |n| n.parse().expect("a number"))
}

#[test]
fn generated_programs() {
    quietline_testing::isolated!();
    let (first, programs) = (
        number("QUIETLINE_EVENTS_SEED", 1),
        quietline_testing::budget("QUIETLINE_EVENTS_PROGRAMS", 6_000),
    );
    let mut seen = [0u64; 2];
    for seed in first..first + programs {
        let program = generate::program(&mut Dice(seed));
        if let Some(difference) = first_difference(&program) {
            report(seed, program, difference);
        }
        seen[0] += 1;
        seen[1] += program.len() as u64;
    }
    println!("{} programs, {} calls: all the same", seen[0], seen[1]);
}

/// A comparison that finds nothing must be able to find something.
#[test]
fn a_difference_is_found() {
    quietline_testing::isolated!();
    use call::Kind;
    let program = [Call::Make { at: 0, kind: Kind::Counter }, Call::Write { at: 0, n: 1 }];
    assert!(first_difference(&program).is_none());
    let (mut host, mut ours) = (Host::default(), Ours::new());
    program.iter().for_each(|call| drop(call.run(&mut host)));
    program[..1].iter().for_each(|call| drop(call.run(&mut ours)));
    let poll = Call::Poll { of: vec![(0, 1)] };
    assert_ne!(poll.run(&mut host), poll.run(&mut ours));
}

/// What few programs of that length come upon.
#[test]
fn limits_of_nesting() {
    quietline_testing::isolated!();
    use call::Kind;
    let add = |ep, at| Call::Control { ep, op: 1, at, events: 1, data: at as u64 };
    // Chains of all lengths, built from above, from below and from the middle, with and without a leaf.
    for length in 2..=7usize {
        let mut links: Vec<usize> = (0..length - 1).collect();
        for _ in 0..links.len().max(1) {
            links.rotate_left(1);
            for leaf in [false, true] {
                for reversed in [false, true] {
                    let mut program: Vec<_> =
                        (0..length).map(|at| Call::Make { at, kind: Kind::Epoll }).collect();
                    program.push(Call::Make { at: 7, kind: Kind::Counter });
                    if leaf {
                        program.push(add(length - 1, 7));
                    }
                    let order: Vec<_> = if reversed {
                        links.iter().rev().copied().collect()
                    } else {
                        links.clone()
                    };
                    program.extend(order.iter().map(|&link| add(link, link + 1)));
                    program.push(Call::Write { at: 7, n: 1 });
                    program.extend((0..length).map(|ep| Call::Wait { ep, max: 4 }));
                    program.push(add(length - 1, 0));
                    if let Some(difference) = first_difference(&program) {
                        report(0, program, difference);
                    }
                }
            }
        }
    }
}

/// So many epolls that watch one, so many paths to what it watches: the limits are reached on both at the same number.
#[test]
fn limits_of_paths() {
    quietline_testing::isolated!();
    let (mut host, mut ours) = (Host::default(), Ours::new());
    for depth in 1..=4usize {
        let reached = [paths(&mut host, depth), paths(&mut ours, depth)];
        assert_eq!(reached[0], reached[1], "paths with {depth} epolls below the last");
        assert!(reached[0].is_some());
    }
}

/// How many epolls may watch the top of a chain of `depth` that ends at a counter; none if there is no limit.
fn paths(system: &mut impl System, depth: usize) -> Option<usize> {
    let counter = system.counter().unwrap();
    let chain: Vec<_> = (0..depth).map(|_| system.epoll().unwrap()).collect();
    system.control(chain[0], 1, counter, 1, 0).unwrap();
    for pair in chain.windows(2) {
        system.control(pair[1], 1, pair[0], 1, 0).unwrap();
    }
    let mut tops = Vec::new();
    let limit = (0..600).find(|_| {
        let top = system.epoll().unwrap();
        tops.push(top);
        let added = system.control(top, 1, *chain.last().unwrap(), 1, 0);
        if let Err(errno) = added {
            assert_eq!(errno, libc::EINVAL);
        }
        added.is_err()
    });
    tops.into_iter().chain(chain).chain([counter]).for_each(|fd| system.close(fd).unwrap());
    limit
}
