//! The slab workload, one worker at a time: how much it does, when it ends, what it leaves; and its names.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use quietline_bench::adapters;
use quietline_bench::harness::{Arena, Column, Seat, Unfit};
use quietline_bench::workloads::{Case, Job, Pattern, Shown, Slab, pipes::PIPES, slab, slab::SLAB};

/// Every pair of a case and a column that has it.
fn pairs() -> Vec<(&'static Case, Arc<dyn Column>)> {
    let columns = adapters::all();
    let there = |case: &'static Case| {
        let columns = columns.iter().filter(move |column| column.does(case.job));
        columns.map(move |column| (case, column.clone()))
    };
    SLAB.cases.iter().flat_map(there).collect()
}

fn pattern(case: &Case) -> Pattern {
    let Job::Slab(Slab { pattern, .. }) = case.job else {
        panic!("{} is no job of slab's", case.name)
    };
    pattern
}

/// Objects that one cycle of a case handles.
fn bundle(case: &Case) -> u64 {
    let objects = match pattern(case) {
        Pattern::Pair | Pattern::Churn => 1,
        Pattern::Bulk(count) | Pattern::Single(count) | Pattern::Global(count) => count,
        Pattern::Random => slab::RANDOM,
        Pattern::Scattered | Pattern::EveryNth(_) => slab::SCATTERED,
        Pattern::Remote => slab::PASSED,
    };
    objects as u64
}

#[test]
fn the_seeds_sizes_are_there_in_bulk_and_one_by_one() {
    let of = |is_2015: bool, kind: fn(Pattern) -> Option<usize>| -> Vec<usize> {
        SLAB.cases
            .iter()
            .filter(|case| !case.name.ends_with('b') && case.name.starts_with("2015-") == is_2015)
            .filter_map(|case| kind(pattern(case)))
            .collect()
    };
    let sizes = [1, 2, 3, 4, 8, 16, 30, 32, 34, 48, 64, 128, 158, 250];
    for is_2015 in [false, true] {
        let bulks =
            of(is_2015, |of| if let Pattern::Bulk(count) = of { Some(count) } else { None });
        let singles =
            of(is_2015, |of| if let Pattern::Single(count) = of { Some(count) } else { None });
        let heaps =
            of(is_2015, |of| if let Pattern::Global(count) = of { Some(count) } else { None });
        assert_eq!((bulks, singles), (sizes.to_vec(), sizes.to_vec()));
        assert_eq!(heaps, [16, 48, 144, 512, 2048]);
    }
    let every = of(false, |of| if let Pattern::EveryNth(every) = of { Some(every) } else { None });
    assert_eq!(every, [1, 2, 3, 4, 5, 6, 10, 65]);
    for case in SLAB.cases {
        let of_2015 = case.name.strip_prefix("2015-");
        let name = of_2015.unwrap_or(case.name);
        let told = match pattern(case) {
            Pattern::Bulk(count) => name.starts_with(&format!("bulk-{count}")),
            Pattern::Single(count) => name == format!("single-{count}"),
            Pattern::EveryNth(every) => name == format!("test03-same-{every}"),
            Pattern::Global(count) => of_2015.is_none_or(|name| name == format!("test02-{count}")),
            _ => of_2015.is_none(),
        };
        assert!(told, "{} is not what its name says", case.name);
    }
}

#[test]
fn every_case_has_quietline_the_old_kernels_and_a_peer() {
    assert_eq!(SLAB.shown, Shown::Everything);
    for case in SLAB.cases {
        let columns = adapters::all().into_iter().filter(|column| column.does(case.job));
        let names: Vec<String> = columns.map(|column| column.name().to_owned()).collect();
        for name in [
            "history-4.2",
            "history-detached-simple",
            "history-detached-lookahead",
            "peer-glibc",
            "quietline-slabs-simple",
            "quietline-slabs",
            "quietline",
        ] {
            assert_eq!(
                names.iter().filter(|other| *other == name).count(),
                1,
                "{name} in {}",
                case.name
            );
        }
        let has_null = names.iter().any(|name| name == "null");
        let alone = matches!(
            pattern(case),
            Pattern::Pair | Pattern::Bulk(_) | Pattern::Single(_) | Pattern::Global(_)
        );
        assert_eq!(has_null, !alone, "{}", case.name);
    }
}

#[test]
fn a_worker_does_what_it_is_asked_in_whole_bundles_and_leaves_nothing() {
    quietline_testing::isolated!();
    let (go_on, stop) = (AtomicBool::new(false), AtomicBool::new(true));
    for (case, column) in pairs().into_iter().filter(|(case, _)| pattern(case) != Pattern::Remote) {
        let what = format!("{} in {}", case.name, column.name());
        let bundle = bundle(case);
        let arena = match column.open(case.job, 1) {
            Err(Unfit::Missing(why)) if column.name() == "peer-dpdk" => {
                eprintln!("{what}: {why}");
                continue;
            }
            opened => opened.unwrap_or_else(|unfit| panic!("{what}: {unfit:?}")),
        };
        let mut worker = arena.worker(Seat { thread: 0, threads: 1 }).expect("a worker");
        for ops in [1, 100, 1_000] {
            let done = worker.run(ops, &go_on);
            assert_eq!(done, Ok(ops.next_multiple_of(bundle)), "{what}");
            assert_eq!(worker.check(), Ok(()), "{what}");
            assert_eq!(arena.settle(), Ok(()), "{what}");
        }
        let done = worker.run(1 << 40, &stop).expect("stopped, but right");
        assert!(done >= bundle && done < 10_000, "{what}: {done}");
        assert_eq!(arena.settle(), Ok(()), "{what}");
        drop(worker);
        assert_eq!(arena.settle(), Ok(()), "{what}: what it held is free again");
    }
}

/// Objects that passed from one worker to the other in one sample.
fn passed(arena: &dyn Arena, ops: u64, stop: &AtomicBool) -> [u64; 2] {
    std::thread::scope(|scope| {
        let run = |thread| {
            let mut worker = arena.worker(Seat { thread, threads: 2 }).expect("a worker");
            let done = worker.run(ops, stop).expect("right");
            worker.check().expect("right");
            done
        };
        let other = scope.spawn(move || run(1));
        [run(0), other.join().expect("no panic")]
    })
}

#[test]
fn what_one_thread_allocates_another_frees() {
    quietline_testing::isolated!();
    let (go_on, stop) = (AtomicBool::new(false), AtomicBool::new(true));
    for (case, column) in pairs().into_iter().filter(|(case, _)| pattern(case) == Pattern::Remote) {
        assert!(matches!(column.open(case.job, 1), Err(Unfit::Missing(_))), "{}", column.name());
        assert!(matches!(column.open(case.job, 3), Err(Unfit::Missing(_))), "{}", column.name());
        let Ok(arena) = column.open(case.job, 2) else {
            assert_eq!(column.name(), "peer-dpdk");
            continue;
        };
        for ops in [1u64, 32, 33, 10_000] {
            let whole = ops.next_multiple_of(32);
            assert_eq!(passed(&*arena, ops, &go_on), [whole; 2], "{}", column.name());
            assert_eq!(arena.settle(), Ok(()), "{}", column.name());
        }
        let [sent, received] = passed(&*arena, 1 << 40, &stop);
        assert!(
            sent == received && (32..10_000).contains(&sent),
            "{}: {sent}, {received}",
            column.name()
        );
        assert_eq!(arena.settle(), Ok(()), "{}", column.name());
    }
}

#[test]
fn a_column_of_objects_has_no_other_jobs() {
    for column in adapters::all().iter().filter(|column| column.does(SLAB.cases[0].job)) {
        assert!(!column.does(PIPES.cases[0].job), "{}", column.name());
        assert!(
            matches!(column.open(PIPES.cases[0].job, 1), Err(Unfit::Missing(_))),
            "{}",
            column.name()
        );
    }
}
