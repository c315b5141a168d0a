//! The page: what `templates/report.html` is filled with.

use crate::losses::{Loss, losses};
use crate::plot::{Axes, Series, curves};
use crate::results::{
    Bench, Conclusion, ContendedLine, Forecast, Ladder, Machine, Results, Row, Settings, SlowPaths,
};
use anyhow::Context;
use askama::Template;
use quietline_seeds::{Basis, Comparison, Point, Seed, Table, figure};
use serde_json::Value;

/// The thread that the ladder is of.
const LADDER: &str = "sockets-2008";

/// Predictions with a larger error are marked.
const FAR: f64 = 0.3;

#[derive(Template)]
#[template(path = "report.html", whitespace = "minimize")]
struct Page {
    commit: String,
    machines: Vec<Machine>,
    /// Benches that others have disturbed, and how many CPUs these kept busy.
    disturbed: Vec<(String, String)>,
    failed: Vec<String>,
    quick: bool,
    losses: Vec<Loss>,
    seeds: Vec<SeedView>,
    workloads: Vec<WorkloadView>,
    forecasts: Vec<ForecastView>,
    count_titles: [&'static str; 7],
    costs: Option<CostsView>,
}

/// A thread.
struct SeedView {
    seed: &'static Seed,
    tables: Vec<TableView>,
    ladder: Option<LadderView>,
}

/// The ladder of 2008.
struct LadderView {
    machine: String,
    cpus: usize,
    /// Conclusions: the text, the reported ratio, the bounds, and the model's ratios.
    conclusions: Vec<ConclusionView>,
    rungs: Vec<String>,
    /// Lines: the name, the thread's words, and a number for each rung.
    lines: Vec<(String, String, Vec<String>)>,
}

/// A conclusion from the ladder.
struct ConclusionView {
    says: String,
    reported: String,
    bounds: String,
    /// The model's ratios, and whether each is within the bounds.
    modelled: Vec<(String, bool)>,
}

/// A table of a thread beside ours.
struct TableView {
    table: &'static Table,
    ours: String,
    points: Vec<PointView>,
    /// Rows of reported values, in place of the points, where there is no value of ours.
    grid: Option<Vec<(String, Vec<String>)>>,
    missing: Vec<(String, usize)>,
    plot: Option<String>,
    /// Causes of errors. Points name them by number.
    causes: Vec<String>,
    improvements: Vec<ImprovementView>,
}

/// A percentage that a thread gives for a row.
struct ImprovementView {
    row: String,
    /// The pair of values that the thread computes it from, if it is not in the table.
    from: Option<[String; 2]>,
    reported: String,
    ours: String,
    difference: String,
    /// Whether one of the two values is far from the thread's, and why.
    is_far: bool,
    cause: String,
}

/// A point of a table.
struct PointView {
    row: String,
    column: String,
    reported: String,
    ours: String,
    error: String,
    basis: &'static str,
    is_far: bool,
    cause: String,
}

/// A workload of the bench.
struct WorkloadView {
    name: String,
    rounds: usize,
    /// Milliseconds of a sample.
    sample_ms: u64,
    /// CPUs that others kept busy.
    others: String,
    cases: Vec<CaseView>,
}

/// A case of a workload.
struct CaseView {
    name: String,
    rows: Vec<RowView>,
    counts: Vec<CountView>,
    missing: Vec<(String, String)>,
    plot: Option<String>,
}

/// Slow paths that a packet of a column took.
struct CountView {
    column: String,
    threads: usize,
    counts: Vec<String>,
}

/// A column of a case at one number of threads.
struct RowView {
    column: String,
    threads: usize,
    samples: usize,
    p50: String,
    cpu_p50: String,
    p99: String,
    max: String,
    fault: Option<String>,
}

/// A forecast.
struct ForecastView {
    workload: String,
    machine: String,
    work_ns: f64,
    blind_spots: Vec<String>,
    cpus: Vec<usize>,
    curves: Vec<CurveView>,
    plot: Option<String>,
}

/// A column of a forecast.
struct CurveView {
    column: String,
    throughput: Vec<String>,
    moved_lines: String,
    bottleneck: String,
}

/// The sheet of costs.
struct CostsView {
    /// How it was compiled.
    compiler: String,
    profile: String,
    columns: Vec<&'static str>,
    /// Operations and their counts, a count for each column.
    rows: Vec<(String, Vec<String>)>,
}

/// Columns of the sheet: the names in its rows, and the titles.
const COSTS: [(&str, &str); 11] = [
    ("instructions", "instructions"),
    ("locked", "locked"),
    ("fences", "fences"),
    ("system_calls", "system calls"),
    ("library_calls", "library calls"),
    ("lines_touched", "lines, one process"),
    ("lines_touched_own_processes", "lines, own processes"),
    ("shared_lines_one_process", "shared lines, one process"),
    ("shared_lines_own_processes", "shared lines, own processes"),
    ("bytes_allocated", "bytes allocated"),
    ("bytes_retained", "bytes retained"),
];

/// Renders the page.
///
/// # Errors
///
/// If a plot cannot be drawn.
pub(crate) fn render(results: &Results) -> anyhow::Result<String> {
    let mut machines: Vec<Machine> = Vec::new();
    for bench in &results.benches {
        if !machines.iter().any(|machine| machine.cpu_model == bench.machine.cpu_model) {
            machines.push(bench.machine.clone());
        }
    }
    let page = Page {
        commit: results.benches.first().map_or("unknown".to_owned(), |bench| bench.commit.clone()),
        machines,
        failed: results.failed.clone(),
        quick: results.quick,
        losses: losses(&results.benches),
        disturbed: results.benches.iter().filter_map(disturbed).collect(),
        seeds: quietline_seeds::seeds()
            .iter()
            .map(|seed| seed_view(seed, results))
            .collect::<anyhow::Result<_>>()?,
        workloads: results.benches.iter().map(workload_view).collect::<anyhow::Result<_>>()?,
        forecasts: results.forecasts.iter().map(forecast_view).collect::<anyhow::Result<_>>()?,
        count_titles: COUNTS,
        costs: results.costs.as_ref().map(costs_view).transpose()?,
    };
    Ok(page.render()?)
}

/// The part of a bench's CPUs above which others are said to have disturbed it.
const DISTURBANCE: f64 = 0.05;

/// Returns a bench's workload and the CPUs that others kept busy, if that was more than
/// [`DISTURBANCE`] or is not known.
fn disturbed(bench: &Bench) -> Option<(String, String)> {
    let workload = || bench.rows.first().map_or(String::new(), |row| row.workload.clone());
    let is_quiet = |others: f64| others <= DISTURBANCE * bench.machine.cpus as f64;
    (!bench.other_cpus.is_some_and(is_quiet)).then(|| (workload(), others_text(bench)))
}

/// Returns how many CPUs others kept busy during a bench.
fn others_text(bench: &Bench) -> String {
    bench.other_cpus.map_or_else(|| "unknown".to_owned(), |others| format!("{others:.2} CPUs"))
}

fn seed_view(seed: &'static Seed, results: &Results) -> anyhow::Result<SeedView> {
    let compared = results.seeds.iter().find(|s| s.seed == seed.name);
    let mut tables = Vec::new();
    for table in &seed.tables {
        let of_table = compared.iter().flat_map(|s| &s.tables).filter(|ours| ours.is_of(table));
        // A table may be compared with several scenes of ours.
        let before = tables.len();
        for ours in of_table {
            tables.push(table_view(table, Some(ours))?);
        }
        if tables.len() == before {
            tables.push(table_view(table, None)?);
        }
    }
    let ladder = results.ladder.as_ref().filter(|_| seed.name == LADDER).map(ladder_view);
    Ok(SeedView { seed, tables, ladder })
}

fn ladder_view(ladder: &Ladder) -> LadderView {
    let conclusion = |conclusion: &Conclusion| {
        let Conclusion { says, reported, from, to, modelled } = conclusion;
        let bounds = if *to > 1e300 {
            format!("from {}", figure(*from))
        } else {
            format!("{} to {}", figure(*from), figure(*to))
        };
        let holds = |ratio: &f64| (figure(*ratio), (*from..=*to).contains(ratio));
        let modelled = modelled.iter().map(holds).collect();
        ConclusionView { says: says.clone(), reported: figure(*reported), bounds, modelled }
    };
    let number = |n: &f64| if *n < 0.0005 { "-".to_owned() } else { format!("{n:.3}") };
    let row = |line: &ContendedLine| {
        (line.line.clone(), line.says.clone(), line.moved.iter().map(number).collect())
    };
    let conflicts = &ladder.conflicts;
    let all = conflicts.total.iter().map(number).collect();
    let named = conflicts.lines.iter().chain(&conflicts.others).map(row);
    LadderView {
        machine: conflicts.machine.clone(),
        cpus: conflicts.cpus,
        conclusions: ladder.conclusions.iter().map(conclusion).collect(),
        rungs: conflicts.rungs.clone(),
        lines: named.chain([("all".to_owned(), String::new(), all)]).collect(),
    }
}

fn table_view(table: &'static Table, ours: Option<&Comparison>) -> anyhow::Result<TableView> {
    let mut view = TableView {
        table,
        ours: ours.map_or("not compared".to_owned(), |ours| ours.ours.clone()),
        points: Vec::new(),
        grid: ours.is_none_or(|ours| ours.points.is_empty()).then(|| grid(table)),
        missing: Vec::new(),
        plot: plot_of(table, ours)?,
        causes: Vec::new(),
        improvements: Vec::new(),
    };
    for row in &table.rows {
        for (column, reported) in table.columns.iter().zip(&row.values) {
            let point = ours.and_then(|ours| ours.point(&row.name, column));
            let error = ours.zip(point).map(|(ours, point)| ours.error(point));
            let is_fitted = point.is_some_and(|point| point.basis == Basis::Fitted);
            view.points.push(PointView {
                row: row.name.clone(),
                column: column.clone(),
                reported: table.text(*reported),
                ours: point.map_or(String::new(), ours_text),
                error: ours.zip(point).map_or(String::new(), |(ours, p)| ours.error_text(p)),
                basis: point.map_or("", |point| point.basis.name()),
                is_far: !is_fitted && error.is_some_and(|error| error.abs() > FAR),
                cause: number_of(&mut view.causes, point.and_then(|point| point.cause.as_ref())),
            });
        }
    }
    view.improvements = improvements(table, ours, &mut view.causes);
    let missing = ours.map(Comparison::missing_by_reason).unwrap_or_default();
    view.missing = missing.into_iter().map(|(why, values)| (why.to_owned(), values)).collect();
    Ok(view)
}

/// Returns the reported values of each row. `-`: the thread has none there.
fn grid(table: &Table) -> Vec<(String, Vec<String>)> {
    let text = |value: &f64| if value.is_nan() { "-".to_owned() } else { value.to_string() };
    let row =
        |row: &quietline_seeds::Row| (row.name.clone(), row.values.iter().map(text).collect());
    table.rows.iter().map(row).collect()
}

/// Returns a value of ours, with its spread if there is one.
fn ours_text(point: &Point) -> String {
    let spread = |[least, most]: [f64; 2]| format!(" ({} to {})", figure(least), figure(most));
    figure(point.ours) + &point.spread.map_or(String::new(), spread)
}

/// Returns the number of a cause in a list, which it enters. Without a cause: an empty text.
fn number_of(causes: &mut Vec<String>, cause: Option<&String>) -> String {
    let Some(cause) = cause else { return String::new() };
    let known = causes.iter().position(|known| known == cause);
    let place = known.unwrap_or_else(|| {
        causes.push(cause.clone());
        causes.len() - 1
    });
    format!("({})", place + 1)
}

/// Returns the percentages of a thread beside those of our values.
fn improvements(
    table: &Table,
    ours: Option<&Comparison>,
    causes: &mut Vec<String>,
) -> Vec<ImprovementView> {
    let Some(improvement) = &table.improvement else { return Vec::new() };
    let view = |(place, (row, reported)): (usize, (&quietline_seeds::Row, &f64))| {
        let (of, over) = (&improvement.of, &improvement.over);
        let points: Vec<(&Comparison, &Point)> = [of, over]
            .into_iter()
            .filter_map(|column| ours.and_then(|ours| Some((ours, ours.point(&row.name, column)?))))
            .collect();
        let is_far = points.iter().any(|(ours, point)| ours.error(point).abs() > FAR);
        let cause = points.iter().find_map(|(_, point)| point.cause.as_ref());
        let ours = ours.and_then(|ours| ours.improvement(table.better, &row.name, of, over));
        ImprovementView {
            is_far,
            cause: number_of(causes, cause),
            row: row.name.clone(),
            from: improvement.from.as_ref().map(|pairs| pairs[place].map(|n| n.to_string())),
            reported: format!("{reported:+}"),
            ours: ours.map_or(String::new(), |ours| format!("{ours:+.1}")),
            difference: ours.map_or(String::new(), |ours| format!("{:+.1}", ours - reported)),
        }
    };
    table.rows.iter().zip(&improvement.values).enumerate().map(view).collect()
}

/// Plots a table with numbers as rows: a curve for each column, and one of ours.
fn plot_of(table: &Table, ours: Option<&Comparison>) -> anyhow::Result<Option<String>> {
    let numbers: Option<Vec<f64>> = table.rows.iter().map(|row| row.name.parse().ok()).collect();
    let Some(numbers) = numbers else { return Ok(None) };
    let mut series = Vec::new();
    for (c, column) in table.columns.iter().enumerate() {
        let reported = numbers.iter().zip(&table.rows).map(|(x, row)| (*x, row.values[c]));
        let points = reported.filter(|(_, y)| !y.is_nan()).collect();
        series.push(Series { name: column.clone(), points });
        let Some(ours) = ours else { continue };
        let value = |(x, row): (&f64, &quietline_seeds::Row)| {
            ours.point(&row.name, column).map(|point| (*x, point.ours))
        };
        let points = numbers.iter().zip(&table.rows).filter_map(value).collect();
        series.push(Series { name: format!("{column}, ours"), points });
    }
    curves(&Axes { x: &table.rows_are, y: &table.unit }, &series)
}

fn costs_view(sheet: &Value) -> anyhow::Result<CostsView> {
    let text = |value: &Value| value.as_str().map_or_else(|| value.to_string(), str::to_owned);
    let rows = sheet["rows"].as_array().context("a sheet of costs has rows")?;
    let row = |row: &Value| {
        let count = |name: &str| row.get(name).map_or("-".to_owned(), &text);
        (text(&row["operation"]), COSTS.iter().map(|(name, _)| count(name)).collect())
    };
    Ok(CostsView {
        compiler: text(&sheet["compiler"]),
        profile: text(&sheet["profile"]),
        columns: COSTS.iter().map(|(_, title)| *title).collect(),
        rows: rows.iter().map(row).collect(),
    })
}

fn workload_view(bench: &Bench) -> anyhow::Result<WorkloadView> {
    let name = bench.rows.first().map_or(String::new(), |row| row.workload.clone());
    let mut cases: Vec<CaseView> = Vec::new();
    for row in &bench.rows {
        let known = cases.iter().position(|case| case.name == row.case);
        let case = known.unwrap_or_else(|| {
            let (name, rows) = (row.case.clone(), Vec::new());
            let (counts, missing) = (Vec::new(), Vec::new());
            cases.push(CaseView { name, rows, counts, missing, plot: None });
            cases.len() - 1
        });
        cases[case].rows.push(row_view(row));
    }
    for case in &mut cases {
        let rows = || bench.rows.iter().filter(|row| row.case == case.name && row.checked);
        case.plot = scaling_plot(rows())?;
        let counts = bench.slow_paths.iter().filter(|of| of.case == case.name);
        case.counts = counts.map(count_view).collect();
        let missing = bench.missing.iter().filter(|m| m.case == case.name && m.workload == name);
        case.missing = missing.map(|m| (m.column.clone(), m.reason.clone())).collect();
    }
    let Settings { rounds, sample_ns } = bench.settings;
    let others = others_text(bench);
    Ok(WorkloadView { name, rounds, sample_ms: sample_ns / 1_000_000, others, cases })
}

/// Titles of the counts of slow paths.
const COUNTS: [&str; 7] = [
    "slab words, to free",
    "slab words, refills and lists",
    "list locks",
    "refills",
    "flushes",
    "barn",
    "shared queue",
];

fn count_view(of: &SlowPaths) -> CountView {
    let counts = [
        of.slab_words,
        of.list_words,
        of.list_locks,
        of.refills,
        of.flushes,
        of.barn,
        of.shared_queue,
    ];
    let each = |n: u64| format!("{:.4}", n as f64 / of.packets as f64);
    let text = |n: Option<u64>| n.map_or("-".to_owned(), each);
    let counts = counts.map(text).into();
    CountView { column: of.column.clone(), threads: of.threads, counts }
}

fn row_view(row: &Row) -> RowView {
    let text = |ns: Option<f64>| ns.map_or(String::new(), figure);
    RowView {
        column: row.column.clone(),
        threads: row.threads,
        samples: row.samples.len(),
        p50: text(row.median()),
        cpu_p50: text(row.cpu_median()),
        p99: text(row.percentile(99)),
        max: text(row.percentile(100)),
        fault: (!row.checked).then(|| row.fault.clone().unwrap_or("not checked".to_owned())),
    }
}

/// Plots the nanoseconds of each column by threads.
fn scaling_plot<'a>(rows: impl Iterator<Item = &'a Row>) -> anyhow::Result<Option<String>> {
    let mut series: Vec<Series> = Vec::new();
    for row in rows {
        let Some(median) = row.median() else { continue };
        let point = (row.threads as f64, median);
        match series.iter_mut().find(|s| s.name == row.column) {
            Some(curve) => curve.points.push(point),
            None => series.push(Series { name: row.column.clone(), points: vec![point] }),
        }
    }
    curves(&Axes { x: "threads", y: "ns per operation of a thread" }, &series)
}

fn forecast_view(forecast: &Forecast) -> anyhow::Result<ForecastView> {
    let cpus = forecast
        .curves
        .first()
        .map_or(Vec::new(), |curve| curve.points.iter().map(|point| point.cpus).collect());
    let million = |throughput: f64| throughput / 1e6;
    let series: Vec<Series> = forecast
        .curves
        .iter()
        .map(|curve| Series {
            name: curve.column.clone(),
            points: curve
                .points
                .iter()
                .map(|point| (point.cpus as f64, million(point.throughput)))
                .collect(),
        })
        .collect();
    let curve_view = |curve: &crate::results::Curve| {
        let last = curve.points.last();
        let bottleneck = last.and_then(|point| point.bottleneck.as_ref());
        CurveView {
            column: curve.column.clone(),
            throughput: curve.points.iter().map(|p| figure(million(p.throughput))).collect(),
            moved_lines: last.map_or(String::new(), |point| format!("{:.3}", point.moved_lines)),
            bottleneck: bottleneck
                .map_or("none".to_owned(), |(line, ns)| format!("{line} ({} ns)", figure(*ns))),
        }
    };
    Ok(ForecastView {
        workload: forecast.workload.clone(),
        machine: forecast.machine.clone(),
        work_ns: forecast.work_ns,
        blind_spots: forecast.blind_spots.clone(),
        cpus,
        curves: forecast.curves.iter().map(curve_view).collect(),
        plot: curves(&Axes { x: "CPUs", y: "million operations a second" }, &series)?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn counts_stand_in_the_columns_of_their_titles() {
        let row = json!({"operation": "dup-getfl", "instructions": 321, "locked": 4});
        let results = Results {
            costs: Some(json!({"compiler": "rustc 1", "profile": "release", "rows": [row]})),
            ..Results::default()
        };
        let view = costs_view(results.costs.as_ref().expect("above")).expect("it has rows");
        assert_eq!(view.columns[..2], ["instructions", "locked"]);
        assert_eq!(view.rows[0].0, "dup-getfl");
        assert_eq!(view.rows[0].1[..3], ["321", "4", "-"]);
        let page = render(&results).expect("a page");
        assert!(page.contains("dup-getfl") && page.contains("321") && page.contains("rustc 1"));
        assert!(costs_view(&json!({})).is_err());
    }

    #[test]
    fn tables_without_values_of_ours_are_grids() {
        let page = render(&Results::default()).expect("a page");
        // A function of two lists out of six.
        let row = "<td>__slab_alloc</td><td class=\"n\">-</td><td class=\"n\">2.149</td>";
        assert!(page.contains(row), "the profile of 2008 has no grid");
    }

    #[test]
    fn the_ladder_stands_in_its_thread() {
        let line = json!({"line": "inode_lock", "says": "locks it", "moved": [0.5, 0.0]});
        let conclusion = json!({
            "says": "the jump", "reported": 6.6,
            "from": 3.0, "to": f64::MAX, "modelled": [2.5, 3.5],
        });
        let conflicts = json!({
            "machine": "core2", "cpus": 8, "rungs": ["base", "last"], "lines": [line],
            "others": [], "total": [0.5, 0.0],
        });
        let ladder = json!({"conclusions": [conclusion], "conflicts": conflicts});
        let ladder = Some(serde_json::from_value(ladder).expect("a ladder"));
        let page = render(&Results { ladder, ..Results::default() }).expect("a page");
        assert!(page.contains("inode_lock") && page.contains("2.500, does not hold"));
        assert!(page.contains("<td class=\"n\">3.500</td>") && page.contains("from 3.000"));
    }
}
