//! What came of it, for people and for machines.

use comfy_table::presets::UTF8_FULL_CONDENSED;
use comfy_table::{CellAlignment, ContentArrangement, Table};
use serde::Serialize;

use super::{Case, Readings, Subject};
use crate::Verdict;
use crate::harness::Unfit;
use crate::machine::{self, Machine};

/// Everything a run found out.
#[derive(Debug, Serialize)]
pub struct Document {
    machine: Machine,
    commit: String,
    rows: Vec<Row>,
}

/// One measurement. `overhead` is in bytes for each object, of pages that are not of a file; `freed` and `end` are what was
/// resident, all of it but the array of addresses, as a share of the start; `kept` is in bytes, of pages that are not of a file, since before anything.
#[derive(Debug, Serialize)]
pub struct Row {
    column: &'static str,
    #[serde(flatten)]
    case: Case,
    /// How the column was asked to give back what is free.
    purge: Option<&'static str>,
    checked: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    overhead: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    freed: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    end: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    kept: Option<i64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    readings: Option<Readings>,
    #[serde(skip_serializing_if = "Option::is_none")]
    missing: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    fault: Option<String>,
}

impl Row {
    pub(super) fn new(subject: &Subject, case: Case, result: Result<Readings, Unfit>) -> Self {
        let (readings, missing, fault) = match result {
            Ok(readings) => (Some(readings), None, None),
            Err(Unfit::Missing(reason)) => (None, Some(reason), None),
            Err(Unfit::Broken(fault)) => (None, None, Some(fault.to_string())),
        };
        let overhead = |r: Readings| {
            let grown = r.full.anonymous as f64 - r.cold.anonymous as f64;
            grown / case.objects as f64 - case.size as f64
        };
        // The array of addresses is nobody's: without it.
        let array = (case.objects * size_of::<usize>()) as f64;
        let share = |part: u64, r: Readings| (part as f64 - array) / (r.start.all as f64 - array);
        Self {
            column: subject.name,
            case,
            purge: subject.purge,
            checked: readings.is_some(),
            overhead: readings.map(overhead),
            freed: readings.map(|r| share(r.freed.all, r)),
            end: readings.map(|r| share(r.end.all, r)),
            kept: readings.map(|r| r.end.anonymous as i64 - r.cold.anonymous as i64),
            readings,
            missing,
            fault,
        }
    }
}

impl Document {
    pub(super) fn new() -> Self {
        Self { machine: Machine::observe(), commit: machine::commit(), rows: Vec::new() }
    }

    pub(super) fn push(&mut self, row: Row) {
        self.rows.push(row);
    }

    pub(super) fn verdict(&self) -> Verdict {
        if self.rows.iter().any(|row| row.fault.is_some()) {
            Verdict::Failed
        } else {
            Verdict::Checked
        }
    }
}

pub(super) fn json(document: &Document) -> String {
    serde_json::to_string(document).expect("no maps with odd keys")
}

const HEADER: [&str; 8] =
    ["objects", "bytes", "column", "overhead", "freed", "given back", "kept KiB", "asked by"];

/// Rows by case, columns of the bench below each other, a legend at the end.
pub(super) fn table(document: &Document) -> String {
    let mut table = Table::new();
    table.load_style(UTF8_FULL_CONDENSED).set_content_arrangement(ContentArrangement::Dynamic);
    table.set_header(HEADER);
    let mut before = None;
    for row in &document.rows {
        let first = before != Some(row.case);
        if first && before.is_some() {
            table.add_row([""; HEADER.len()]);
        }
        before = Some(row.case);
        table.add_row(cells(row, first));
    }
    for (column, name) in table.column_iter_mut().zip(HEADER) {
        if !matches!(name, "column" | "asked by") {
            column.set_cell_alignment(CellAlignment::Right);
        }
    }
    let mut text = format!("memory: one process for each row\n{table}\n{LEGEND}");
    for row in &document.rows {
        let Case { size, objects } = row.case;
        let told = row.missing.as_ref().map(|reason| ("not run", reason));
        if let Some((what, why)) = told.or(row.fault.as_ref().map(|fault| ("FAILED", fault))) {
            text.push_str(&format!(
                "\n{what}: {} with {objects} objects of {size} bytes: {why}",
                row.column
            ));
        }
    }
    text
}

const LEGEND: &str = "\
overhead: bytes for each object beyond its own, with every byte of every object written: how much more is resident than
before there was anything, of pages that are not of a file.
freed, given back: what is resident, all of it, when all objects are freed, and when what is free was to be given back, as
a share of what was before the first object but one, which has the code loaded that allocates and frees.
kept: how much more is resident in the end than before there was anything, of pages that are not of a file.
(Memory that an allocator had already, from before main or for others, goes to objects first: a few of them seem to need
less than their size. In a program with many peers, what they take before main is part of what all start from.)";

fn cells(row: &Row, first: bool) -> [String; HEADER.len()] {
    let (objects, bytes) = if first {
        (row.case.objects.to_string(), row.case.size.to_string())
    } else {
        Default::default()
    };
    let number = |value: Option<f64>| value.map_or_else(dash, |value| format!("{value:.1}"));
    let percent =
        |value: Option<f64>| value.map_or_else(dash, |value| format!("{:.1} %", 100.0 * value));
    let kept = row.kept.map_or_else(dash, |kept| (kept / 1024).to_string());
    [
        objects,
        bytes,
        row.column.to_owned(),
        number(row.overhead),
        percent(row.freed),
        percent(row.end),
        kept,
        row.purge.unwrap_or("-").to_owned(),
    ]
}

fn dash() -> String {
    "-".to_owned()
}
