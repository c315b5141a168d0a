//! Every column does every job that it has, rightly, alone and in company.

use std::time::Duration;

use quietline_bench::harness::{Plan, Progress, measure};
use quietline_bench::machine::{self, Machine};
use quietline_bench::workloads::{
    Case, Job, Pattern, Shown, Slab, primitives::PRIMITIVES, sockets::SOCKETS,
};
use quietline_bench::{Report, Verdict, adapters, report, workloads};

fn takes_pairs(case: &Case) -> bool {
    matches!(
        case.job,
        Job::Slab(Slab { pattern: Pattern::Remote, .. }) | Job::PingPong(_) | Job::Throughput(_)
    )
}

#[test]
fn every_column_does_every_job_rightly() {
    quietline_testing::isolated!();
    let columns = adapters::all();
    // In company only, unless there is more time.
    let most = quietline_testing::budget("QUIETLINE_SMOKE_THREADS", 1).min(3) as usize;
    let plan = Plan::smoke(if most == 1 { vec![2] } else { (1..=most).collect() });
    let mut whole = Report::new(Machine::observe(), machine::commit(), plan.clone());
    for &workload in workloads::ALL {
        // Three threads that wait for tickets on two CPUs would be minutes at a batch of ten thousand.
        let cases: Vec<_> = workload.cases.iter().filter(|case| case.name != "own-10000").collect();
        let measured = measure(workload, &cases, &columns, &plan, &Progress::hidden());
        for row in &measured.rows {
            let fault = row.fault.as_ref().map(ToString::to_string);
            assert_eq!(fault, None, "{} in {} with {} threads", row.case, row.column, row.threads);
            assert_eq!(row.samples.len(), 3, "{} in {}", row.case, row.column);
            assert!(
                row.ops() > 0 && row.samples.iter().all(|sample| sample.wall.len() == row.threads)
            );
        }
        // Every column has each of its jobs at all thread counts, or says once that it has not; one
        // that takes pairs of threads has it at one of them, and says so.
        let there = |case: &&Case| columns.iter().filter(|column| column.does(case.job)).count();
        let (paired, others): (Vec<_>, Vec<_>) = cases.iter().partition(|case| takes_pairs(case));
        let expected = |cases: &[&Case]| cases.iter().map(there).sum::<usize>();
        let of = |cases: &[&'static Case], case: &str| cases.iter().any(|other| other.name == case);
        let rows = |cases: &[&'static Case]| {
            measured.rows.iter().filter(|row| of(cases, row.case)).count()
        };
        let missing = |cases: &[&'static Case]| {
            measured.missing.iter().filter(|row| of(cases, row.case)).count()
        };
        assert_eq!(rows(&others) / most + missing(&others), expected(&others));
        let refused = if most == 1 { 0 } else { expected(&paired) };
        assert_eq!((rows(&paired), missing(&paired)), (expected(&paired), refused));
        whole.push(measured, Duration::from_millis(1));
    }
    assert_eq!(whole.verdict(), Verdict::Checked);
    for (part, workload) in workloads::ALL.iter().enumerate() {
        let table = report::table::render(&whole, part);
        assert!(table.starts_with(workload.name) && table.contains("scaling"), "{table}");
        for column in
            columns.iter().filter(|column| workload.cases.iter().any(|case| column.does(case.job)))
        {
            assert!(
                table.contains(column.name()),
                "{} is neither run nor named: {table}",
                column.name()
            );
        }
    }
}

#[test]
fn every_primitive_has_quietline_and_a_peer() {
    let columns = adapters::all();
    assert_eq!(PRIMITIVES.shown, Shown::Everything);
    for case in PRIMITIVES.cases {
        let names: Vec<&str> = columns
            .iter()
            .filter(|column| column.does(case.job))
            .map(|column| column.name())
            .collect();
        let (ours, peers): (Vec<&str>, Vec<&str>) =
            names.into_iter().partition(|name| name.starts_with("quietline"));
        assert_eq!(ours.len(), 1, "{}: {ours:?}", case.name);
        let is_peer = |name: &&str| *name == "host" || name.starts_with("peer-");
        assert!(!peers.is_empty() && peers.iter().all(is_peer), "{}: {peers:?}", case.name);
    }
}

#[test]
fn the_headline_has_the_host_every_rung_and_quietline() {
    let all = adapters::all();
    let sockets = all.iter().filter(|column| column.does(SOCKETS.cases[0].job));
    let names: Vec<String> = sockets.map(|column| column.name().to_owned()).collect();
    let ladder: Vec<&str> =
        names.iter().map(String::as_str).filter(|name| adapters::in_ladder(name)).collect();
    let headline = [
        "host",
        "history-base",
        "history-nr_dentry",
        "history-nr_inodes",
        "history-last_ino",
        "history-single-dentry",
        "history-single-inode",
        "history-typesafe-files",
        "history-norefcount",
        "quietline-lowestfd",
        "quietline-anyfd",
        "quietline-handle",
    ];
    assert_eq!(ladder, headline);
}
