//! The form that machines read: every name of the contract, with its type.

use std::time::Duration;

use crate::columns::{Flaw, Toy};
use quietline_bench::harness::{Plan, Progress, measure};
use quietline_bench::machine::{self, Machine};
use quietline_bench::workloads::forward::FORWARD;
use quietline_bench::workloads::sockets::SOCKETS;
use quietline_bench::{Report, adapters, report};
use serde_json::Value;

fn document() -> Value {
    let plan = Plan::smoke(vec![1, 2]);
    let columns = [Toy::column("host", Flaw::None), Toy::column("quietline-handle", Flaw::None)];
    let mut report = Report::new(Machine::observe(), machine::commit(), plan.clone());
    let measured = measure(&SOCKETS, &[&SOCKETS.cases[0]], &columns, &plan, &Progress::hidden());
    report.push(measured, Duration::from_millis(1));
    serde_json::from_str(&report::json::render(&report)).expect("JSON")
}

#[test]
fn the_document_has_machine_commit_and_rows() {
    let document = document();
    assert!(document["machine"].is_object() && document["rows"].is_array());
    let commit = document["commit"].as_str().expect("a text");
    let hash = commit.strip_suffix("-dirty").unwrap_or(commit);
    let is_hash = hash.len() == 40 && hash.chars().all(|digit| digit.is_ascii_hexdigit());
    assert!(hash == "unknown" || is_hash, "{commit}");
    assert_eq!(document["settings"]["rounds"], 3);
}

#[test]
fn the_machine_is_described() {
    let machine = &document()["machine"];
    for name in ["cpu_model", "kernel", "arch", "libc", "governor", "rustc"] {
        assert!(machine[name].as_str().is_some_and(|text| !text.is_empty()), "{name}: {machine}");
    }
    assert!(machine["kernel"].as_str().is_some_and(|kernel| kernel.starts_with("Linux ")));
    assert!(machine["rustc"].as_str().is_some_and(|rustc| rustc.starts_with("rustc 1.")));
    assert!(machine["cpus"].as_u64() >= Some(1));
    assert!(machine["cpus_allowed"].as_array().is_some_and(|cpus| !cpus.is_empty()));
    assert_eq!(machine["load_average"].as_array().map(Vec::len), Some(3));
    assert!(document()["other_cpus"].as_f64().is_some_and(|cpus| cpus >= 0.0));
}

#[test]
fn rows_have_every_name_of_the_contract() {
    let document = document();
    let rows = document["rows"].as_array().expect("rows");
    let keys: Vec<_> =
        rows.iter().map(|row| (row["column"].as_str(), row["threads"].as_u64())).collect();
    let columns = [Some("host"), Some("quietline-handle")];
    assert_eq!(
        keys,
        [
            (columns[0], Some(1)),
            (columns[1], Some(1)),
            (columns[0], Some(2)),
            (columns[1], Some(2))
        ]
    );
    for row in rows {
        assert_eq!((&row["workload"], &row["case"]), (&"sockets".into(), &"inet-stream".into()));
        for clock in ["ns_per_op", "cpu_ns_per_op"] {
            let figure = |name: &str| row[clock][name].as_f64().expect("a number");
            assert!(
                figure("min") <= figure("median") && figure("median") <= figure("max"),
                "{row}"
            );
            assert!(figure("min") > 0.0, "{row}");
        }
        assert_eq!((&row["rounds"], &row["checked"]), (&3.into(), &true.into()));
        let samples = row["samples"].as_array().expect("the raw data");
        assert_eq!(samples.len(), 3);
        let threads = row["threads"].as_u64().expect("a number");
        let ops = samples.iter().filter_map(|sample| sample["ops"].as_array()).flatten();
        assert_eq!(row["ops"].as_u64(), Some(ops.filter_map(Value::as_u64).sum()));
        for sample in samples {
            for name in ["ns", "cpu_ns", "ops"] {
                assert_eq!(sample[name].as_array().map(Vec::len), Some(threads as usize), "{name}");
            }
        }
    }
}

#[test]
fn the_median_is_that_of_the_raw_samples() {
    let document = document();
    for row in document["rows"].as_array().expect("rows") {
        let mean = |sample: &Value| {
            let values: Vec<f64> =
                sample["ns"].as_array()?.iter().filter_map(Value::as_f64).collect();
            Some(values.iter().sum::<f64>() / values.len() as f64)
        };
        let mut means: Vec<f64> =
            row["samples"].as_array().expect("samples").iter().filter_map(mean).collect();
        means.sort_unstable_by(f64::total_cmp);
        let median = row["ns_per_op"]["median"].as_f64().expect("a number");
        assert!((median - means[1]).abs() <= 1e-9 * median, "{row}");
    }
}

#[test]
fn slow_paths_of_packets_are_beside_the_rows() {
    assert_eq!(document()["slow_paths"], Value::Array(Vec::new()), "where no packets are");
    let names = ["history-4.2-single", "history-alf-queue", "quietline"];
    let columns: Vec<_> =
        adapters::all().into_iter().filter(|column| names.contains(&column.name())).collect();
    let ring =
        FORWARD.cases.iter().find(|case| case.name == "ring-64").expect("a case of this name");
    let plan = Plan::smoke(vec![1]);
    let mut report = Report::new(Machine::observe(), machine::commit(), plan.clone());
    // Beside other load a column may get the processor for a few packets only.
    let enough = |document: &Value| {
        let slow = document["slow_paths"].as_array().expect("an array");
        let single = slow.iter().filter(|row| row["column"] == names[0]);
        single.filter_map(|row| row["packets"].as_u64()).any(|packets| packets >= 500)
    };
    let mut document = Value::Null;
    for times in 1..=200 {
        let measured = measure(&FORWARD, &[ring], &columns, &plan, &Progress::hidden());
        report.push(measured, Duration::from_millis(1));
        assert_eq!(report.slow_paths.len(), times * names.len(), "each is told once");
        document = serde_json::from_str(&report::json::render(&report)).expect("JSON");
        if times >= 2 && enough(&document) {
            break;
        }
    }
    let (rows, slow) = (&document["rows"], document["slow_paths"].as_array().expect("an array"));
    let mut found = Vec::new();
    for of_row in &slow[..names.len()] {
        let is_its = |row: &&Value| {
            ["case", "threads", "column"].iter().all(|key| row[*key] == of_row[*key])
        };
        let row =
            rows.as_array().expect("rows").iter().find(is_its).expect("a row of the same names");
        assert!(of_row["packets"].as_u64() >= row["ops"].as_u64() && row["ops"].as_u64() > Some(0));
        let keys = [
            "slab_words",
            "list_words",
            "list_locks",
            "refills",
            "flushes",
            "barn",
            "shared_queue",
        ];
        let object = of_row.as_object().expect("an object");
        assert_eq!(object.len(), 4 + keys.len(), "{of_row}");
        let counted: Vec<&str> = keys.into_iter().filter(|key| object[*key].is_u64()).collect();
        assert!(keys.iter().all(|key| object[*key].is_u64() || object[*key].is_null()), "{of_row}");
        found.push((of_row["column"].as_str().expect("a name"), counted));
    }
    found.sort_unstable();
    let [single, queue, ours] = [
        &["slab_words", "list_words", "list_locks"][..],
        &QUEUE,
        &["slab_words", "refills", "flushes", "barn"],
    ];
    let expected = [(names[0], single), (names[1], queue), (names[2], ours)];
    assert_eq!(found, expected.map(|(name, keys)| (name, keys.to_vec())));
    // Nearly each packet is freed by an exchange of its own.
    let singles = slow.iter().filter(|row| row["column"] == names[0]);
    let single = singles.max_by_key(|row| row["packets"].as_u64()).expect("it is there");
    let figure = |name: &str| single[name].as_f64().expect("a number");
    assert!(figure("slab_words") > 0.5 * figure("packets"), "{single}");
}

/// What is counted of the queue, behind which is the slab of packets.
const QUEUE: [&str; 5] = ["slab_words", "refills", "flushes", "barn", "shared_queue"];
