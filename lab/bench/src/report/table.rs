//! The table that people read.

use std::fmt::Write;

use comfy_table::presets::UTF8_FULL_CONDENSED;
use comfy_table::{Cell, CellAlignment, ContentArrangement, Table};

use super::{Part, Report};
use crate::harness::stats::{Spread, ratio, scaling};
use crate::harness::{Measured, Plan, Row};

/// The table of the report's workload number `part`, its title above and its legend below.
///
/// # Panics
///
/// If the report has no such part.
pub fn render(report: &Report, part: usize) -> String {
    let Part { measured, took } = &report.parts[part];
    let case = only_case(measured).map_or_else(String::new, |case| format!(" {case}"));
    let mut text = format!(
        "{}{case}: ns per {} of each thread ({} x {:.0?} samples, {:.1} s in all)\n",
        measured.workload.name,
        measured.workload.operation,
        measured.rows.iter().map(|row| row.samples.len()).max().unwrap_or(0),
        report.plan.sample,
        took.as_secs_f64()
    );
    if !measured.rows.is_empty() {
        let _ = writeln!(text, "{}", grid(measured, &report.plan));
    }
    text.push_str(&legend(measured, &report.plan));
    text
}

/// The case, if all rows have the same: it then stands in the title instead of in a column.
fn only_case(measured: &Measured) -> Option<&'static str> {
    let case = measured.rows.first()?.case;
    measured.rows.iter().all(|row| row.case == case).then_some(case)
}

const HEADER: [&str; 11] = [
    "case",
    "threads",
    "column",
    "table",
    "ns",
    "min..max",
    "CPU ns",
    "ratio",
    "min..max",
    "scaling",
    "CPU scaling",
];

/// Rows by case and thread count, columns of the bench below each other, so that a ladder is read downwards.
fn grid(measured: &Measured, plan: &Plan) -> Table {
    let skip = usize::from(only_case(measured).is_some());
    let header = &HEADER[skip..];
    let mut table = Table::new();
    table.load_style(UTF8_FULL_CONDENSED).set_content_arrangement(ContentArrangement::Dynamic);
    table.set_header(header);
    let mut block = None;
    for row in &measured.rows {
        let first = block != Some((row.case, row.threads));
        if first && block.is_some() {
            table.add_row(vec![""; header.len()]);
        }
        block = Some((row.case, row.threads));
        table.add_row(cells(measured, plan, row, first).into_iter().skip(skip));
    }
    for (column, name) in table.column_iter_mut().zip(header) {
        if !matches!(*name, "case" | "column" | "table") {
            column.set_cell_alignment(CellAlignment::Right);
        }
    }
    table
}

fn cells(measured: &Measured, plan: &Plan, row: &Row, first: bool) -> Vec<Cell> {
    let (case, threads) =
        if first { (row.case, row.threads.to_string()) } else { ("", String::new()) };
    let mut cells = vec![case.to_owned(), threads, row.column.clone(), row.shape.name().to_owned()];
    if row.checked() {
        cells.extend(figures(measured, plan, row));
    } else {
        cells.push("FAILED".to_owned());
    }
    cells.into_iter().map(Cell::new).collect()
}

fn figures(measured: &Measured, plan: &Plan, row: &Row) -> [String; 7] {
    let cpu_time = plan.compares_cpu_time(row.threads);
    let basis = |row: &Row| if cpu_time { row.cpu() } else { row.wall() };
    let wall = Spread::of(row.wall());
    let cpu = Spread::of(row.cpu());
    let base =
        measured.baseline(row.case).and_then(|name| measured.row(row.case, name, row.threads));
    let base = base.filter(|base| base.checked());
    let ratio = base.and_then(|base| ratio(&basis(base), &basis(row)));
    let one = measured.row(row.case, &row.column, 1).filter(|one| one.checked() && row.threads > 1);
    let scaled =
        |of: fn(&Row) -> Vec<f64>| one.and_then(|one| scaling(&of(one), &of(row), row.threads));
    [
        wall.map_or_else(dash, |wall| ns(wall.median)),
        wall.map_or_else(dash, |wall| format!("{}..{}", ns(wall.min), ns(wall.max))),
        cpu.map_or_else(dash, |cpu| ns(cpu.median)),
        ratio.map_or_else(dash, |ratio| times(ratio.median)),
        ratio.map_or_else(dash, |ratio| format!("{}..{}", times(ratio.min), times(ratio.max))),
        scaled(Row::wall).map_or_else(dash, |scaling| format!("{:.2}", scaling.median)),
        scaled(Row::cpu).map_or_else(dash, |scaling| format!("{:.2}", scaling.median)),
    ]
}

fn legend(measured: &Measured, plan: &Plan) -> String {
    let mut text = String::new();
    let baseline = baseline(measured);
    let cpus = plan.cpus.len();
    let clock = match (plan.cpu_time, plan.threads.iter().any(|&threads| threads > cpus)) {
        (true, _) => " by CPU time".to_owned(),
        (false, true) => format!(" by wall time, with more than {cpus} threads by CPU time"),
        (false, false) => " by wall time".to_owned(),
    };
    // Writing to a String cannot fail.
    let _ = writeln!(
        text,
        "ratio: how many times as fast as {baseline},{clock}; median of the rounds' own ratios.\n\
         scaling: work done in the time in which 1 thread does 1; {}.\n\
         table: whether the threads are processes with a descriptor table each, one process, or hold handles,\n\
         which only the counters after each sample check.",
        if plan.threads.contains(&1) {
            "N threads at best N"
        } else {
            "needs 1 among the thread counts (-n 1,...)"
        }
    );
    for group in
        measured.missing.chunk_by(|one, next| (one.case, &one.reason) == (next.case, &next.reason))
    {
        let columns: Vec<&str> = group.iter().map(|missing| missing.column.as_str()).collect();
        let _ = writeln!(
            text,
            "not run: {} in {}: {}",
            group[0].case,
            columns.join(", "),
            group[0].reason
        );
    }
    for row in &measured.rows {
        if let Some(fault) = &row.fault {
            let (case, column, threads) = (row.case, &row.column, row.threads);
            let _ = writeln!(text, "FAILED: {case} in {column} with {threads} threads: {fault}");
        }
    }
    text
}

/// What ratios are taken to, in words: a column's name if it is the same for every case.
fn baseline(measured: &Measured) -> &str {
    let mut names = measured.rows.iter().map(|row| measured.baseline(row.case));
    let Some(first) = names.next().flatten() else { return "nothing" };
    if names.all(|name| name == Some(first)) { first } else { "the first column of the case" }
}

fn dash() -> String {
    "-".to_owned()
}

/// Three significant digits or whole ns, thousands set apart.
fn ns(value: f64) -> String {
    match value {
        v if v < 10.0 => format!("{v:.2}"),
        v if v < 100.0 => format!("{v:.1}"),
        v => grouped(v.round() as u64),
    }
}

fn times(value: f64) -> String {
    match value {
        v if v < 10.0 => format!("{v:.2}"),
        v if v < 100.0 => format!("{v:.1}"),
        v => grouped(v.round() as u64),
    }
}

fn grouped(value: u64) -> String {
    let digits = value.to_string();
    let mut text = String::new();
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}
