//! What this machine's lines cost, measured: the figures that the model is given, so that what is compared is the model and
//! not somebody else's machine.
//!
//! ```text
//!   locked      additions to a word of the CPU's own
//!   load, store a CPU writes some lines; another then follows a chain through them, or exchanges each
//!   migratory   after the chain it exchanges each: for free if the loads took the lines away from the writer
//!   hand-over   both take tickets from one counter: how long the line stays, and how long it is on its way
//! ```
//!
//! The hand-over is measured on a shared counter: of all kernels that one is no prediction.

use super::Pin;
use super::meeting::Meeting;
use quietline_sim::jitter::Jitter;
use quietline_sim::topology::{Ps, Topology};
use serde::Serialize;
use std::hint;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

/// Rounds of each probe, before which as many are not counted.
const ROUNDS: usize = 25;
/// Lines of a chain, and how far they are apart, so that no prefetcher helps.
const LINES: usize = 256;
const APART: usize = 256 / 8;
/// Operations of a round where one line is all there is.
const OPS: usize = 4000;

/// A figure, measured: nanoseconds.
#[derive(Debug, Clone, Serialize)]
pub struct Probe {
    /// What it is.
    pub what: String,
    /// The median of the rounds, the least, the most.
    pub ns: [f64; 3],
}

/// Measures what the machine's file says about cores, and about CPUs at each of its levels that has two among the first
/// `cpus`. The machine with the new figures, and these.
pub(super) fn probe(machine: &Topology, cpus: usize, pin: &impl Pin) -> (Topology, Vec<Probe>) {
    let mut machine = machine.clone();
    let mut probes = Vec::new();
    let mut enter = |what: String, rounds: Vec<f64>| {
        let ns = super::spread(rounds);
        probes.push(Probe { what, ns });
        ns[0]
    };
    let counter = AtomicU64::new(0);
    let locked = enter(
        "locked, line at hand".to_owned(),
        alone(pin, || _ = counter.fetch_add(1, Ordering::Relaxed)),
    );
    let pause = enter("pause".to_owned(), alone(pin, hint::spin_loop));
    // The model adds the issue and the hit of each access to it.
    let around = machine.core.issue + machine.core.l1;
    machine.core.locked = ps(locked).saturating_sub(around);
    machine.core.pause = ps(pause);
    let mut inner = 1;
    for level in &mut machine.levels {
        let other = inner;
        inner = level.cpus;
        if other >= cpus {
            break;
        }
        let mut enter = |what: &str, rounds| enter(format!("{}: {what}", level.name), rounds);
        let chains = chains(other, pin);
        let load = enter("load, written by another", chains.load);
        let store = enter("locked, written by another", chains.store) - locked;
        let after = enter("locked, written by another and read since", chains.after_load);
        let back = enter("load by the writer, read by another since", chains.back);
        let tickets = tickets(other, pin);
        let run = enter("tickets in a row", tickets.runs);
        let turn = enter("from one turn to the other's", tickets.turns);
        // It stays for the tickets of a turn, the last of them half on average, and is on its way for the rest.
        let stays = (run - 0.5) * locked;
        let back_way = (turn - stays).clamp(0.0, store.max(0.0));
        machine.core.migratory = after < (locked + store) / 2.0;
        machine.core.hold = ps(stays);
        level.load_modified = ps(load);
        // Where loads do not take lines away the writer still has its copy, and nothing was measured.
        level.load_shared =
            if machine.core.migratory { ps(back) } else { level.load_shared.min(ps(load)) };
        level.store = ps(store);
        level.request = ps(store - back_way).min(level.load_modified);
    }
    (machine, probes)
}

fn ps(ns: f64) -> Ps {
    (ns.max(0.0) * 1000.0).round() as Ps
}

/// Nanoseconds that it takes one thread to do something, by rounds.
fn alone(pin: &impl Pin, mut one: impl FnMut() + Send) -> Vec<f64> {
    let rounds = move || {
        pin.pin(0);
        let round = |_| {
            let began = Instant::now();
            (0..OPS).for_each(|_| one());
            began.elapsed().as_nanos() as f64 / OPS as f64
        };
        (0..2 * ROUNDS).map(round).skip(ROUNDS).collect()
    };
    std::thread::scope(|scope| scope.spawn(rounds).join().expect("a probe does not panic"))
}

/// Nanoseconds for each line, by rounds.
#[derive(Default)]
struct Chains {
    load: Vec<f64>,
    after_load: Vec<f64>,
    back: Vec<f64>,
    store: Vec<f64>,
}

/// CPU 0 writes lines, another reads or changes them.
fn chains(other: usize, pin: &impl Pin) -> Chains {
    let words: Vec<AtomicU64> = (0..LINES * APART).map(|_| AtomicU64::new(0)).collect();
    // Each line holds the index of the next one, somewhere; the last that of the first.
    let mut order: Vec<usize> = (0..LINES).collect();
    let mut dice = Jitter::new(1, 0.0);
    for i in (1..LINES).rev() {
        order.swap(i, dice.below(i as u64 + 1) as usize);
    }
    let mut next = vec![0; LINES];
    for (i, line) in order.iter().enumerate() {
        next[*line] = order[(i + 1) % LINES];
    }
    let write = || {
        for line in &order {
            words[line * APART].store(next[*line] as u64, Ordering::Relaxed);
        }
    };
    let follow = || {
        let began = Instant::now();
        let mut at = order[0];
        for _ in 0..LINES {
            at = words[at * APART].load(Ordering::Relaxed) as usize;
        }
        assert_eq!(hint::black_box(at), order[0], "the chain ends where it began");
        began.elapsed().as_nanos() as f64 / LINES as f64
    };
    // Each needs the one before, or a core would have many under way at once.
    let exchange = || {
        let began = Instant::now();
        let mut at = order[0];
        for _ in 0..LINES {
            at = words[at * APART].swap(next[at] as u64, Ordering::Relaxed) as usize;
        }
        assert_eq!(hint::black_box(at), order[0], "the chain ends where it began");
        began.elapsed().as_nanos() as f64 / LINES as f64
    };
    let meeting = Meeting::new(2);
    let meet = || meeting.wait();
    std::thread::scope(|scope| {
        let writer = scope.spawn(|| {
            pin.pin(0);
            let mut back = Vec::new();
            for _ in 0..2 * ROUNDS {
                write();
                meet(); // the other follows
                meet();
                back.push(follow());
                write();
                meet(); // the other exchanges
                meet();
                write();
                meet(); // the other follows, then exchanges
                meet();
            }
            back.split_off(ROUNDS)
        });
        let reader = scope.spawn(|| {
            pin.pin(other);
            let mut chains = Chains::default();
            for round in 0..2 * ROUNDS {
                meet();
                let load = follow();
                meet();
                meet();
                let store = exchange();
                meet();
                meet();
                follow();
                let after_load = exchange();
                meet();
                if round >= ROUNDS {
                    chains.load.push(load);
                    chains.store.push(store);
                    chains.after_load.push(after_load);
                }
            }
            chains
        });
        let back = writer.join().expect("a probe does not panic");
        Chains { back, ..reader.join().expect("a probe does not panic") }
    })
}

/// By rounds: tickets that a CPU gets in a row, and nanoseconds from its turn to the other's.
struct Tickets {
    runs: Vec<f64>,
    turns: Vec<f64>,
}

/// CPU 0 and another take tickets from one counter.
fn tickets(other: usize, pin: &impl Pin) -> Tickets {
    let (meeting, counter) = (Meeting::new(2), AtomicU64::new(0));
    let take = |cpu: usize| {
        pin.pin(cpu);
        let mut rounds = Vec::new();
        for _ in 0..2 * ROUNDS {
            // Touched beforehand: a page that is not there yet would count.
            let mut mine = vec![u64::MAX; OPS];
            meeting.wait();
            let began = Instant::now();
            // Relaxed: a number of its own.
            mine.iter_mut().for_each(|ticket| *ticket = counter.fetch_add(1, Ordering::Relaxed));
            rounds.push((began.elapsed().as_nanos() as f64 / OPS as f64, mine));
            meeting.wait();
        }
        rounds.split_off(ROUNDS)
    };
    let (mine, others) = std::thread::scope(|scope| {
        let other = scope.spawn(|| take(other));
        let mine = scope.spawn(|| take(0)).join().expect("a probe does not panic");
        (mine, other.join().expect("a probe does not panic"))
    });
    let mut tickets = Tickets { runs: Vec::new(), turns: Vec::new() };
    for ((ns, mine), (ns_other, others)) in mine.iter().zip(&others) {
        let mut all: Vec<(u64, bool)> = mine.iter().map(|ticket| (*ticket, true)).collect();
        all.extend(others.iter().map(|ticket| (*ticket, false)));
        all.sort_unstable();
        // In the middle both were surely at it.
        let middle = &all[OPS / 2..OPS / 2 * 3];
        let turns = 1 + middle.windows(2).filter(|pair| pair[0].1 != pair[1].1).count();
        let run = middle.len() as f64 / turns as f64;
        tickets.runs.push(run);
        tickets.turns.push(run * (ns + ns_other) / 4.0);
    }
    tickets
}
