//! The workloads of paths and dentries, one worker at a time: how much it does, when it ends, what it leaves; who has them.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use quietline_bench::adapters;
use quietline_bench::harness::{Column, Seat, Unfit};
use quietline_bench::workloads::{
    Case, Dcache, Job, Shown, Unlink, Whose, Workload, dcache::DCACHE, open::OPEN, pipes::PIPES,
    unlink::UNLINK,
};

const ALL: [&Workload; 3] = [&DCACHE, &OPEN, &UNLINK];

fn cases() -> impl Iterator<Item = &'static Case> {
    ALL.into_iter().flat_map(|workload| workload.cases)
}

fn names(case: &Case) -> Vec<String> {
    let columns = adapters::all().into_iter().filter(|column| column.does(case.job));
    columns.map(|column| column.name().to_owned()).collect()
}

/// Every pair of a case and a column that has it.
fn pairs() -> Vec<(&'static Case, Arc<dyn Column>)> {
    let columns = adapters::all();
    let there = |case: &'static Case| {
        let columns = columns.iter().filter(move |column| column.does(case.job));
        columns.map(move |column| (case, column.clone()))
    };
    cases().flat_map(there).collect()
}

fn batch(case: &Case) -> u64 {
    match case.job {
        Job::Unlink(Unlink { batch, .. }) => batch as u64,
        _ => 1,
    }
}

#[test]
fn a_name_says_what_its_case_does() {
    for case in cases() {
        let told = match case.job {
            Job::Dcache(Dcache::Stat(whose, depth)) => format!("stat-{}-{depth}", of(whose)),
            Job::Dcache(Dcache::Get(whose)) => format!("get-{}", of(whose)),
            Job::Dcache(Dcache::GetParent(whose)) => format!("get-parent-{}", of(whose)),
            Job::Dcache(Dcache::Missing) => "stat-missing".to_owned(),
            Job::Dcache(Dcache::Short(users)) => format!("short-{users}"),
            Job::Open(open) if open.whose == Whose::Own => format!("own-{}", open.depth),
            Job::Open(_) => "shared".to_owned(),
            Job::Unlink(Unlink { directory, batch: 1 }) => of(directory).to_owned(),
            Job::Unlink(Unlink { directory, batch }) => format!("{}-{batch}", of(directory)),
            Job::Watched => "own-watched".to_owned(),
            other => panic!("{} is no job of paths: {other:?}", case.name),
        };
        assert_eq!(case.name, told);
    }
}

fn of(whose: Whose) -> &'static str {
    match whose {
        Whose::Own => "own",
        Whose::Shared => "shared",
    }
}

#[test]
fn every_case_has_quietline_and_somebody_beside_it() {
    for workload in ALL {
        assert_eq!(workload.shown, Shown::Everything, "{}", workload.name);
    }
    for case in cases() {
        let names = names(case);
        let has = |name: &str| names.iter().filter(|other| *other == name).count() == 1;
        match case.job {
            Job::Dcache(Dcache::Stat(..) | Dcache::Missing) => {
                assert!(
                    ["host", "history-2.6.37", "quietline", "quietline-by-reference"]
                        .into_iter()
                        .all(has),
                    "{names:?}"
                );
            }
            Job::Dcache(_) => {
                assert!(
                    has("history-3.10") && has("history-cmpxchg") && has("quietline"),
                    "{names:?}"
                );
            }
            _ => {
                let ours = ["quietline-lowestfd", "quietline-anyfd", "quietline-handle"];
                assert!(has("host") && ours.into_iter().all(has), "{names:?}");
                let ways = ["immediate", "call_rcu", "typesafe", "sheaf"]
                    .map(|way| format!("history-inode-{way}"));
                let is_unlink = matches!(case.job, Job::Unlink(_));
                assert!(ways.iter().all(|way| has(way) == is_unlink), "{names:?}");
            }
        }
    }
}

#[test]
fn a_worker_does_what_it_is_asked_in_whole_batches_and_leaves_nothing() {
    quietline_testing::isolated!();
    let (go_on, stop) = (AtomicBool::new(false), AtomicBool::new(true));
    for (case, column) in pairs() {
        let what = format!("{} in {}", case.name, column.name());
        let arena = column.open(case.job, 2).unwrap_or_else(|unfit| panic!("{what}: {unfit:?}"));
        // On a thread of its own: a worker of the host's takes it out of the program's table and directory.
        std::thread::scope(|scope| {
            let work = || {
                let mut worker = arena.worker(Seat { thread: 1, threads: 2 }).expect("a worker");
                assert_eq!(arena.settle(), Ok(()), "{what}");
                for ops in [1, 130] {
                    let done = worker.run(ops, &go_on);
                    assert_eq!(done, Ok(ops.next_multiple_of(batch(case))), "{what}");
                    assert_eq!(worker.check(), Ok(()), "{what}");
                    assert_eq!(arena.settle(), Ok(()), "{what}");
                }
                let done = worker.run(1 << 40, &stop).expect("stopped, but right");
                assert!((1..=1_000.max(batch(case))).contains(&done), "{what}: {done}");
                assert_eq!(arena.settle(), Ok(()), "{what}");
            };
            scope.spawn(work).join().expect("no panic");
        });
    }
}

#[test]
fn a_column_of_paths_has_no_other_jobs() {
    for case in cases() {
        for column in adapters::all()
            .iter()
            .filter(|column| column.does(case.job) && !column.does(PIPES.cases[0].job))
        {
            assert!(
                matches!(column.open(PIPES.cases[0].job, 1), Err(Unfit::Missing(_))),
                "{}",
                column.name()
            );
        }
    }
}
