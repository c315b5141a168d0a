//! The form that machines read. Its names are a contract: they are only ever added to.

use serde::Serialize;

use super::{Part, Report};
use crate::adapters::forward::SlowPaths;
use crate::harness::stats::Spread;
use crate::harness::{Row, Sample};
use crate::machine::Machine;

/// A whole report.
#[derive(Serialize)]
struct Document<'a> {
    machine: &'a Machine,
    commit: &'a str,
    /// CPUs that others kept busy during the run, on average; null if the system does not tell.
    other_cpus: Option<f64>,
    settings: Settings,
    rows: Vec<JsonRow<'a>>,
    missing: Vec<JsonMissing<'a>>,
    /// Of `forward`; empty if that was not run. A row without a count of some kind has null there.
    slow_paths: &'a [SlowPaths],
}

/// How it was measured.
#[derive(Serialize)]
struct Settings {
    sample_ns: u64,
    rounds: u32,
    pinned: bool,
    cpu_time: bool,
}

/// One column of one case at one thread count. `ns_per_op` and `cpu_ns_per_op` are per thread, the mean of
/// the threads of each sample (but see [`Sample::wall_ns`] for more threads than CPUs), spread over the
/// rounds; `ops` are those of all threads and rounds. A row that is not `checked` says why in `fault` and has
/// no samples to offer.
#[derive(Serialize)]
struct JsonRow<'a> {
    workload: &'a str,
    case: &'a str,
    column: &'a str,
    threads: usize,
    ns_per_op: Spread,
    cpu_ns_per_op: Spread,
    ops: u64,
    rounds: usize,
    checked: bool,
    table: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    fault: Option<String>,
    samples: Vec<JsonSample<'a>>,
}

/// The raw data of one round: ns per operation of each thread, how many operations it did, and the time from
/// the first thread's start to the last one's end.
#[derive(Serialize)]
struct JsonSample<'a> {
    ns: &'a [f64],
    cpu_ns: &'a [f64],
    ops: &'a [u64],
    span_ns: u64,
}

/// A column that cannot do a case.
#[derive(Serialize)]
struct JsonMissing<'a> {
    workload: &'a str,
    case: &'a str,
    column: &'a str,
    reason: &'a str,
}

/// The report as JSON text, without a newline at its end.
///
/// # Panics
///
/// Never: the document has no maps and no values that JSON lacks.
pub fn render(report: &Report) -> String {
    let plan = &report.plan;
    let document = Document {
        other_cpus: report.began.and_then(|began| began.others_since()),
        machine: &report.machine,
        commit: &report.commit,
        settings: Settings {
            sample_ns: u64::try_from(plan.sample.as_nanos()).unwrap_or(u64::MAX),
            rounds: plan.rounds,
            pinned: plan.pinned,
            cpu_time: plan.cpu_time,
        },
        rows: report.parts.iter().flat_map(rows).collect(),
        missing: report.parts.iter().flat_map(missing).collect(),
        slow_paths: &report.slow_paths,
    };
    serde_json::to_string(&document).expect("no maps with odd keys")
}

fn rows(part: &Part) -> impl Iterator<Item = JsonRow<'_>> {
    part.measured.rows.iter().map(|row| json_row(part.measured.workload.name, row))
}

fn json_row<'a>(workload: &'a str, row: &'a Row) -> JsonRow<'a> {
    // What was timed before a fault was found is no result.
    let samples = if row.checked() { row.samples.as_slice() } else { &[] };
    JsonRow {
        workload,
        case: row.case,
        column: &row.column,
        threads: row.threads,
        ns_per_op: Spread::of(samples.iter().map(Sample::wall_ns)).unwrap_or_default(),
        cpu_ns_per_op: Spread::of(samples.iter().map(Sample::cpu_ns)).unwrap_or_default(),
        ops: if row.checked() { row.ops() } else { 0 },
        rounds: samples.len(),
        checked: row.checked(),
        table: row.shape.name(),
        fault: row.fault.as_ref().map(ToString::to_string),
        samples: samples.iter().map(json_sample).collect(),
    }
}

fn json_sample(sample: &Sample) -> JsonSample<'_> {
    JsonSample { ns: &sample.wall, cpu_ns: &sample.cpu, ops: &sample.ops, span_ns: sample.span_ns }
}

fn missing(part: &Part) -> impl Iterator<Item = JsonMissing<'_>> {
    part.measured.missing.iter().map(|missing| JsonMissing {
        workload: part.measured.workload.name,
        case: missing.case,
        column: &missing.column,
        reason: &missing.reason,
    })
}
