//! A column that is wrong has no figures and fails the run; the others keep theirs.

use std::sync::atomic::AtomicBool;
use std::time::Duration;

use crate::columns::{Flaw, Toy};
use quietline_bench::harness::{Measured, Plan, Progress, looped, measure};
use quietline_bench::machine::Machine;
use quietline_bench::workloads::{
    Job, Primitive, pipes::PIPES, primitives::PRIMITIVES, sockets::SOCKETS,
};
use quietline_bench::{Report, Verdict, report};
use serde_json::Value;

fn measured(flaw: Flaw, threads: Vec<usize>) -> Measured {
    let columns = [Toy::column("host", Flaw::None), Toy::column("peer-toy", flaw)];
    measure(&SOCKETS, &[&SOCKETS.cases[0]], &columns, &Plan::smoke(threads), &Progress::hidden())
}

fn reported(measured: Measured) -> Report {
    let mut report = Report::new(Machine::observe(), "unknown".to_owned(), Plan::smoke(vec![1, 2]));
    report.push(measured, Duration::from_millis(1));
    report
}

#[test]
fn right_results_are_checked() {
    let report = reported(measured(Flaw::None, vec![1, 2]));
    assert_eq!(report.verdict(), Verdict::Checked);
    assert_eq!(report.verdict().exit_status(), 0);
    for row in &report.parts[0].measured.rows {
        assert_eq!((row.samples.len(), row.checked()), (3, true), "{row:?}");
        assert!(
            row.samples
                .iter()
                .all(|sample| sample.wall.len() == row.threads && sample.wall_ns() > 0.0)
        );
    }
}

#[test]
fn every_kind_of_wrong_result_is_found_and_told() {
    let told = [
        (Flaw::Opening, "cannot open"),
        (Flaw::Hiring, "no worker"),
        (Flaw::Operation, "operation 7 failed"),
        (Flaw::Leak, "3 files left open"),
        (Flaw::Panic, "a worker thread panicked"),
    ];
    for (flaw, text) in told {
        let report = reported(measured(flaw, vec![1, 2]));
        assert_eq!(report.verdict().exit_status(), 1, "{flaw:?}");
        let table = report::table::render(&report, 0);
        assert!(table.contains("FAILED: inet-stream in peer-toy with 2 threads"), "{table}");
        assert!(table.contains(text), "{flaw:?}: {table}");

        let json: Value = serde_json::from_str(&report::json::render(&report)).expect("JSON");
        for row in json["rows"].as_array().expect("rows") {
            let right = row["column"] == "host";
            assert_eq!(row["checked"], right, "{row}");
            assert_eq!(row["ops"].as_u64() > Some(0), right, "{row}");
            assert_eq!(row["ns_per_op"]["median"].as_f64() > Some(0.0), right, "{row}");
            assert_eq!(row.get("fault").is_some(), !right, "{row}");
        }
    }
}

#[test]
fn a_missing_job_is_no_failure() {
    let report = reported(measured(Flaw::Absent, vec![1, 2]));
    assert_eq!(report.verdict(), Verdict::Checked);
    assert_eq!(report.parts[0].measured.missing.len(), 1, "told once, not once per thread count");
    assert!(
        report::table::render(&report, 0)
            .contains("not run: inet-stream in peer-toy: it only adds")
    );
    let json: Value = serde_json::from_str(&report::json::render(&report)).expect("JSON");
    assert_eq!(json["missing"][0]["column"], "peer-toy");
    assert_eq!(json["rows"].as_array().map(Vec::len), Some(2));
}

#[test]
fn a_loop_ends_at_a_failed_operation_remembers_a_wrong_one_and_can_be_stopped() {
    let (go_on, stop) = (AtomicBool::new(false), AtomicBool::new(true));
    let mut calls = 0;
    let mut failing = looped("none", move || {
        calls += 1;
        if calls == 5 { Err("EMFILE") } else { Ok(true) }
    });
    assert_eq!(failing.run(4, &go_on), Ok(4));
    let fault = failing.run(10, &go_on).expect_err("the fifth operation fails").to_string();
    assert_eq!(fault, "operation 0 of 10 failed: EMFILE");

    let mut calls = 0;
    let mut wrong = looped("numbers are even", move || {
        calls += 1;
        Ok::<_, String>(calls != 2)
    });
    let fault = wrong.run(100, &go_on).expect_err("the second operation is wrong").to_string();
    assert_eq!(fault, "a result broke the rule: numbers are even");
    assert_eq!(wrong.run(100, &go_on), Ok(100));

    let done = wrong.run(1_000_000, &stop).expect("stopped, but right");
    assert!((1..1_000_000).contains(&done), "{done}");
}

#[test]
fn the_baseline_is_the_host_or_the_first_column() {
    assert_eq!(measured(Flaw::None, vec![1]).baseline("inet-stream"), Some("host"));
    let columns = [Toy::column("peer-a", Flaw::None), Toy::column("peer-b", Flaw::None)];
    let measured =
        measure(&PIPES, &[&PIPES.cases[0]], &columns, &Plan::smoke(vec![1]), &Progress::hidden());
    assert_eq!(measured.baseline("pipe2"), Some("peer-a"));
    let columns = [Toy::column("peer-a", Flaw::None), Toy::column("host", Flaw::None)];
    let measured =
        measure(&PIPES, &[&PIPES.cases[0]], &columns, &Plan::smoke(vec![1]), &Progress::hidden());
    assert_eq!(measured.baseline("pipe2"), Some("host"));
}

#[test]
fn a_column_that_is_not_there_for_a_case_is_no_row_and_no_baseline() {
    fn counter(job: Job) -> bool {
        job == Job::Primitive(Primitive::Counter)
    }
    fn ids(job: Job) -> bool {
        job == Job::Primitive(Primitive::Ids)
    }
    let columns = [
        Toy::limited("peer-a", counter),
        Toy::limited("peer-b", ids),
        Toy::limited("host", |_| false),
        Toy::column("quietline", Flaw::None),
    ];
    let case = |name| PRIMITIVES.cases.iter().find(|case| case.name == name).expect("a case");
    let cases = [case("counter"), case("ids")];
    let measured =
        measure(&PRIMITIVES, &cases, &columns, &Plan::smoke(vec![1]), &Progress::hidden());
    let rows: Vec<_> = measured.rows.iter().map(|row| (row.case, row.column.as_str())).collect();
    assert_eq!(
        rows,
        [("counter", "peer-a"), ("counter", "quietline"), ("ids", "peer-b"), ("ids", "quietline")]
    );
    assert!(measured.missing.is_empty(), "{:?}", measured.missing);
    assert_eq!(measured.columns, ["peer-a", "peer-b", "quietline"]);
    assert_eq!(measured.baseline("counter"), Some("peer-a"));
    assert_eq!(measured.baseline("ids"), Some("peer-b"));
    let table = report::table::render(&reported(measured), 0);
    assert!(table.contains("as fast as the first column of the case"), "{table}");
}
