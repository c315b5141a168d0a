//! The primitives, one worker at a time: how much it does, when it ends, what it leaves.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use quietline_bench::adapters;
use quietline_bench::harness::{Column, Seat, Unfit};
use quietline_bench::workloads::{Case, Job, Primitive, pipes::PIPES, primitives::PRIMITIVES};

/// Every pair of a case and a column that does it, but for the host's, which would take this thread's descriptors away.
fn pairs() -> Vec<(&'static Case, Arc<dyn Column>)> {
    let columns = adapters::all();
    let there = |case: &'static Case| {
        let columns =
            columns.iter().filter(move |column| column.does(case.job) && column.name() != "host");
        columns.map(move |column| (case, column.clone()))
    };
    PRIMITIVES.cases.iter().flat_map(there).collect()
}

/// Objects that one cycle of a case handles.
fn bundle(job: Job) -> u64 {
    match job {
        Job::Primitive(Primitive::SlabBulk8) => 8,
        Job::Primitive(Primitive::SlabBulk32) => 32,
        _ => 1,
    }
}

#[test]
fn a_worker_does_what_it_is_asked_in_whole_bundles_and_leaves_nothing() {
    quietline_testing::isolated!();
    let (go_on, stop) = (AtomicBool::new(false), AtomicBool::new(true));
    for (case, column) in pairs() {
        let what = format!("{} in {}", case.name, column.name());
        let bundle = bundle(case.job);
        let arena = column.open(case.job, 1).unwrap_or_else(|unfit| panic!("{what}: {unfit:?}"));
        let mut worker = arena.worker(Seat { thread: 0, threads: 1 }).expect("a worker");
        for ops in [1, 100, 1_000] {
            let done = worker.run(ops, &go_on);
            assert_eq!(done, Ok(ops.next_multiple_of(bundle)), "{what}");
            assert_eq!(arena.settle(), Ok(()), "{what}");
        }
        let done = worker.run(1 << 40, &stop).expect("stopped, but right");
        assert!(done >= bundle && done < 10_000, "{what}: {done}");
        assert_eq!(arena.settle(), Ok(()), "{what}");
    }
}

#[test]
fn quietlines_descriptors_are_counted_by_thread() {
    quietline_testing::isolated!();
    let pair = pairs().into_iter().find(|(case, _)| case.name == "dup").expect("quietline's");
    let arena = pair.1.open(pair.0.job, 2).expect("two processes");
    let first = arena.worker(Seat { thread: 0, threads: 2 }).expect("a worker");
    assert!(arena.settle().is_err(), "one of two eventfds is missing");
    let second = arena.worker(Seat { thread: 1, threads: 2 }).expect("a worker");
    assert_eq!(arena.settle(), Ok(()));
    drop((first, second));
    assert!(arena.settle().is_err(), "both are closed");
}

#[test]
fn peers_open_what_they_do_and_nothing_else() {
    let mut cases: HashMap<String, Vec<&str>> = HashMap::new();
    for (case, column) in pairs() {
        cases.entry(column.name().to_owned()).or_default().push(case.name);
    }
    assert_eq!(cases["quietline"].len(), 10);
    assert_eq!(cases["quietline-lowestfd"], ["dup", "getfl", "getfd"]);
    assert_eq!(cases["peer-arc"], ["lockref", "file-ref"]);
    for column in adapters::all().iter().filter(|column| column.name().starts_with("peer-")) {
        assert!(!column.does(PIPES.cases[0].job), "{}", column.name());
        assert!(
            matches!(column.open(PIPES.cases[0].job, 1), Err(Unfit::Missing(_))),
            "{}",
            column.name()
        );
    }
}
