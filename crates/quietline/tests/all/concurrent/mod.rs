//! Properties 12 and 13, held against the host: programs of several threads, of which the same sleep after every call here and there, and
//! what comes of each is the same, results, errors, bytes, poll masks and events of epolls in their order.
//!
//! A program is a list of calls by four threads on a few places, each of which holds a descriptor or none: pipes, a fifo, event
//! counters, epolls that nest, local sockets of all types, whose messages may have a counter with them, and TCP and UDP over the loopback
//! device; `splice` and `tee` go from pipe to pipe without waiting. Threads of ours share one
//! process of quietline; the host's are threads of this program. One call is made at a time, on both systems, and the next only
//! when every thread has ended its call or sleeps in it ([`worker`] says how that is seen). So a thread may sleep in a read, a write,
//! an accept, a connect, an open, a poll or a wait for events, others go on, and one of their calls wakes it, or an interrupt does:
//! a signal to the host's thread, an [`Interrupt`](quietline::Interrupt) here. Descriptors are closed, replaced and duplicated
//! while somebody sleeps on them. After each call all files are asked what they have for `poll` and how many bytes (`FIONREAD`);
//! at its end a program has nobody left asleep and nothing left open.
//!
//! Calls are chosen by chance from what there is, with seeds. Where Linux leaves the outcome to chance a call is passed over:
//! [`model`] has the rules (`model/rules.rs`). A program that differs is printed in full, and then with fewer calls.
//! A difference that does not come again is counted; there may be as many as [`ONE_IN`] says.
//!
//! `QUIETLINE_CONCURRENT_PROGRAMS=100000` runs so many (500 by default, and a quarter as many over
//! the loopback device), `QUIETLINE_CONCURRENT_SEED` begins elsewhere,
//! `QUIETLINE_CONCURRENT_SHRINK` says for how many seconds calls are left out. With
//! `QUIETLINE_CONCURRENT_CLOSES=0` no descriptor is closed or replaced while a thread sleeps on its
//! file.
#![allow(unsafe_code, reason = "the host's calls")]

mod call;
mod generate;
mod host;
mod model;
mod ours;
mod run;
mod worker;

use crate::support::Random;
use crate::support::chance::Chance;
use call::Kind;
use run::{Run, Seen, Step, Team};
use std::time::{Duration, Instant};

/// One program in so many may differ, and not in two of the runs after that: see [`Chance`].
const ONE_IN: u64 = 1000;

fn number(name: &str, or: u64) -> u64 {
    std::env::var(name).map_or(or, |text| text.parse().expect("a number"))
}

/// Leaves out what is not needed for a difference, for as long as that may take.
fn shrink(team: &mut Team, steps: &[Step]) -> Run {
    let until = Instant::now() + Duration::from_secs(number("QUIETLINE_CONCURRENT_SHRINK", 60));
    team.late = Duration::from_millis(500);
    let mut best = team.replay(steps);
    let mut shorter = best.difference.is_some();
    while shorter {
        let steps = best.steps.clone();
        let fewer = (0..steps.len()).rev().map(|at| [&steps[..at], &steps[at + 1..]].concat());
        let found = fewer.take_while(|_| Instant::now() < until).map(|steps| team.replay(&steps));
        match found.into_iter().find(|run| run.difference.is_some()) {
            Some(run) => best = run,
            None => shorter = false,
        }
    }
    best
}

fn programs(kinds: Option<&'static [Kind]>, count: u64) -> Seen {
    // One test at a time: a thread of another might have a lock of the heap's while all of these sleep.
    let _alone = crate::support::alone();
    worker::handle_signal();
    // The host's threads are made in it.
    crate::support::own_network();
    crate::support::assert_dgram_queues();
    let mut team = Team::new(kinds.is_some());
    let first = number("QUIETLINE_CONCURRENT_SEED", 1);
    let mut chance = Chance::new(count, ONE_IN);
    for seed in first..first + count {
        let mut dice = Random(seed.wrapping_mul(0x9e37_79b9));
        let theme = generate::theme(&mut dice, kinds);
        let length = 5 + dice.below(40);
        let run = team.generate(&mut dice, &theme, length);
        let Some(difference) = run.difference else { continue };
        let said = format!("seed {seed}, {theme:?}:\n{}{difference}\n", run.told);
        // A poller of the host that is woken late finds room that it was not woken for.
        if chance.is_it(&said, || team.replay(&run.steps).difference).is_none() {
            continue;
        }
        eprintln!("{said}");
        let fewer = shrink(&mut team, &run.steps);
        match fewer.difference {
            Some(difference) => panic!("seed {seed}, less of it:\n{}{difference}", fewer.told),
            None => panic!("seed {seed} differs now and then"),
        }
    }
    println!("{:?}, {chance}", team.seen);
    team.seen
}

/// Few steps end only when one system is waited for: otherwise it would be chance that they end alike.
#[track_caller]
fn assert_seldom_late(seen: &Seen) {
    assert!(seen.programs < 100 || seen.late * 10 <= seen.calls, "{seen:?}");
}

fn count() -> u64 {
    quietline_testing::budget("QUIETLINE_CONCURRENT_PROGRAMS", 250)
}

#[test]
fn on_one_machine() {
    quietline_testing::isolated!();
    let seen = programs(None, count());
    assert_seldom_late(&seen);
    // The programs come to what they are there for.
    if seen.programs >= 250 {
        assert!(seen.slept > 2 * seen.programs && seen.interrupted > seen.programs, "{seen:?}");
        assert!(seen.woken > seen.programs / 2 && seen.together > seen.programs / 20, "{seen:?}");
        assert!(seen.spliced > seen.programs / 20 && seen.files > seen.programs / 50, "{seen:?}");
    }
    if seen.programs >= 1000 {
        for kind in [
            "Accept", "Add", "Connect", "Open", "Poll", "Read", "Recv", "Send", "Take", "Wait",
            "Write",
        ] {
            assert!(seen.kinds.contains_key(kind), "nobody has slept in {kind}: {seen:?}");
        }
    }
}

#[test]
fn over_the_loopback_device() {
    quietline_testing::isolated!();
    let seen = programs(Some(generate::INET), count() / 4);
    assert_seldom_late(&seen);
    assert!(
        seen.programs < 100 || seen.slept > seen.programs && seen.woken > seen.programs / 4,
        "{seen:?}"
    );
}
