//! CPUs that take turns, and the footprints of operations.
#![cfg(quietline_sim)]

use quietline_platform::atomic::{AtomicU64, Ordering};
use quietline_sim::footprint::Footprint;
use quietline_sim::simulation::{Plan, Run, Stage};
use quietline_sim::topology::Topology;
use std::rc::Rc;

/// A word with its line to itself.
#[repr(align(128))]
struct Apart<T>(T);

/// CPUs, and operations of each that count.
const CPUS: usize = 4;
const WINDOW: u64 = 64;
/// Nanoseconds between the beginnings of two operations of a CPU.
const TURN_NS: u64 = 100_000;

/// Each operation reads a common line and writes a line of its CPU's own, twice; each eighth of a
/// CPU writes a line that all share. CPU 0 does nine times the work of the others.
fn run(seed: u64) -> Run {
    let stage = Stage::new(CPUS);
    let words = Rc::new([const { Apart(AtomicU64::new(0)) }; CPUS + 2]);
    let plan = Plan {
        cpus: CPUS,
        seed,
        warm_up: 20,
        ops: WINDOW,
        turn_ns: Some(TURN_NS),
        ..Plan::default()
    };
    let machine = Topology::load("one-socket-16").expect("a machine of our own");
    let worker = |cpu: usize| -> Box<dyn FnMut()> {
        let words = Rc::clone(&words);
        Box::new(move || {
            assert_eq!(words[CPUS].0.load(Ordering::Relaxed), 0);
            let mut done = 0;
            for _ in 0..if cpu == 0 { 9 } else { 1 } {
                done = words[cpu].0.fetch_add(1, Ordering::Relaxed);
                words[cpu].0.store(done + 1, Ordering::Relaxed);
            }
            if (done / if cpu == 0 { 9 } else { 1 }).is_multiple_of(8) {
                words[CPUS + 1].0.fetch_add(1, Ordering::Relaxed);
            }
        })
    };
    stage.run(&machine, &plan, worker).expect("it ends")
}

#[test]
fn each_cpu_counts_exactly_its_window() {
    for seed in 1..4 {
        let run = run(seed);
        let ledger = &run.ledger;
        assert_eq!(run.ops, WINDOW * CPUS as u64);
        assert!((1_000..TURN_NS * 1000 / CPUS as u64).contains(&run.longest), "{}", run.longest);
        let footprints: Vec<_> = ledger.footprints().expect("they are kept").iter().collect();
        assert_eq!(footprints.len() as u64, run.ops);
        let shared = |footprint: &&Footprint<'_>| footprint.shared.len() == 1;
        assert_eq!(footprints.iter().filter(shared).count() as u64, run.ops / 8);
        assert!(footprints.iter().all(|f| f.touched == 2 + f.shared.len()));
    }
}

#[test]
fn a_plan_without_turns_keeps_no_footprints() {
    let stage = Stage::new(2);
    let machine = Topology::load("one-socket-16").expect("a machine of our own");
    let run = stage.run(&machine, &Plan::default(), |_| Box::new(|| ())).expect("it ends");
    assert!(run.ledger.footprints().is_none());
}
