//! Throughput on machines that are not there: points in processes of their own, curves, and a plot.

use crate::children;
use crate::operation::{Operation, Period};
use crate::rungs::{self, Object};
use plotters::prelude::*;
use quietline_history::Rung;
use quietline_sim::simulation::Plan;
use quietline_sim::topology::Topology;
use serde::{Deserialize, Serialize};
use std::borrow::Cow;

/// A workload's columns: operations side by side, ours and the rungs of the seed's series.
pub fn columns(workload: &str) -> Option<Vec<Cow<'static, str>>> {
    let ours: &[&str] = match workload {
        "sockets" => &["sockets", "sockets-anyfd", "sockets-handle"],
        "pipes" => &["pipes", "pipes-anyfd", "pipes-handle"],
        "anonfds" => &["eventfds", "eventfds-anyfd", "eventfds-handle"],
        "slab" => &["slab-pair", "slab-bulk-8", "slab-bulk", "slab-random", "slab-free-rcu"],
        "primitives" => &["counter", "ids", "rcu-read", "lockref", "file-ref", "mount"],
        "dcache" => {
            &["dentry", "dentry-shared", "history-dentry-d_lock", "history-dentry-d_lock-own"]
        }
        "paths" => {
            &["stat-1", "stat-3", "stat-8", "stat-shared-3", "stat-missing", "open", "create"]
        }
        "nested-epoll" => &[
            "nested-epoll",
            "history-nested-global",
            "history-nested-dlock",
            "history-nested-removed",
        ],
        "events" => &[
            "pipe-write-read",
            "eventfd-write-read",
            "epoll-wait-none",
            "epoll-wake",
            "epoll-wake-nested",
        ],
        "forward" => &[
            "forward",
            "forward-single",
            "forward-napi",
            "forward-1514",
            "forward-1514-single",
            "history-4.2-forward",
            "history-4.2-forward-bulk",
        ],
        "locks" => &["shared-counter", "spinlock", "queue-lock", "lockref-shared"],
        _ => return Operation::find(workload).map(|operation| vec![operation.name]),
    };
    let object = match workload {
        "sockets" => Some(Object::Socket),
        "pipes" => Some(Object::Pipe),
        "anonfds" => Some(Object::Eventfd),
        _ => None,
    };
    let rungs =
        object.into_iter().flat_map(|o| Rung::ALL.map(|rung| rungs::operation(o, rung).name));
    Some(ours.iter().map(|name| Cow::Borrowed(*name)).chain(rungs).collect())
}

/// One simulation's result.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Point {
    /// Virtual CPUs.
    pub cpus: usize,
    /// Operations of all CPUs in a second.
    pub throughput: f64,
    /// Nanoseconds that one takes a CPU.
    pub ns_per_op: f64,
    /// Lines that an operation had to get from other CPUs.
    pub moved_lines: f64,
    /// The line that was waited for most, and for how many nanoseconds an operation.
    pub bottleneck: Option<(String, f64)>,
}

/// A column's points.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Curve {
    /// The operation.
    pub column: String,
    /// By number of CPUs, rising.
    pub points: Vec<Point>,
    /// The number of CPUs up to which each doubling brought at least half of what it should.
    pub knee: usize,
    /// What holds it back first.
    pub limit: Option<Limit>,
}

/// The line that is waited for most where a curve first leaves the straight; of one that does not, at the end.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Limit {
    /// On so many CPUs.
    pub cpus: usize,
    /// What is on the line.
    pub line: String,
    /// How long an operation waits for it, in nanoseconds.
    pub wait_ns: f64,
}

/// What a curve must keep to be called straight.
pub const STRAIGHT: f64 = 0.95;

/// A workload on a machine.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Forecast {
    /// What is done.
    pub workload: String,
    /// The machine's name.
    pub machine: String,
    /// Seed of the noise.
    pub seed: u64,
    /// Nanoseconds of other work between operations.
    pub work_ns: f64,
    /// Memory and locks that the model does not see, and that these operations use.
    pub blind_spots: Vec<String>,
    /// One for each column.
    pub curves: Vec<Curve>,
}

/// Returns the memory and the locks that the operations of a workload use and the model does not
/// see.
pub fn blind_spots(workload: &str) -> Vec<String> {
    const PLAIN: &str = "fields and bytes that are neither atomic nor in a cell";
    const PAGES: &str = "the lock of the page allocator, which each new slab takes";
    const CHUNKS: &str = "the bytes of a message, and the chunks of a stream or of a pipe that \
                          they lie in: the reader fetches them from the writer";
    const LOCKS: &str = "part of the cost of handing over a contended lock: the patch of 2013 \
                         comes out 60 to 70 % too low on 40 and 80 CPUs, and is left out here";
    const PACKETS: &str = "the data of packets, the memory of queues and of rings: the next stage \
                           fetches them from the one before";
    let of_workload: &[&str] = match workload {
        "forward" => &[PACKETS, PAGES],
        "nested-epoll" | "events" => &[CHUNKS],
        "dcache" => &[LOCKS],
        "slab" | "paths" | "sockets" | "pipes" | "anonfds" => &[PAGES],
        _ => &[],
    };
    of_workload.iter().chain([&PLAIN]).map(|spot| (*spot).to_owned()).collect()
}

/// How much is simulated for a point: until all that is rare has come round, where that can be paid for.
pub fn plan(operation: &Operation, cpus: usize, seed: u64) -> Plan {
    let (warm_up, ops) = match (operation.period, cpus) {
        (Period::Short, ..=16) => (300, 600),
        (Period::Short, _) => (150, 200),
        (Period::Batch, ..=16) => (300, 2048),
        (Period::Batch, _) => (300, 1024),
        // What a CPU sends waits with three times as much before it comes back.
        (Period::Graces, _) => (8 * 1024, 8 * 1024),
        (Period::Ticks, ..=8) => (2500, 1280),
        // So many in a queue are seconds for each thousand; the queue, not what is freed late, sets the pace by then.
        (Period::Ticks, ..=32) => (700, 160),
        (Period::Ticks, _) => (60, 40),
    };
    Plan { cpus, seed, warm_up, ops, ..Plan::default() }
}

/// Simulates one point, in this process, with so many nanoseconds of other work between operations.
///
/// # Errors
/// In words.
pub fn point(
    column: &str,
    machine: &Topology,
    cpus: usize,
    seed: u64,
    work_ns: f64,
) -> Result<Point, String> {
    let operation =
        Operation::find(column).ok_or_else(|| format!("no operation is called {column}"))?;
    let plan = Plan { work_ns, ..plan(&operation, cpus, seed) };
    let (run, report) =
        operation.simulate(machine, &plan).map_err(|error| format!("{column}: {error}"))?;
    Ok(Point {
        cpus,
        throughput: run.throughput(),
        ns_per_op: run.ns_per_op(),
        moved_lines: report.moved_lines,
        bottleneck: report.bottleneck().map(|line| (line.line.clone(), line.wait_ns)),
    })
}

/// Simulates all points, each by `program point COLUMN MACHINE CPUS SEED WORK`, as many at once as this machine has CPUs: so
/// that each begins in the same state. `done` is told of each: column, CPUs, and how many there are in all.
///
/// # Errors
/// In words.
pub fn forecast(
    workload: &str,
    machine: &str,
    cpus: &[usize],
    seed: u64,
    work_ns: f64,
    program: &std::path::Path,
    done: impl Fn(&str, usize, usize) + Sync,
) -> Result<Forecast, String> {
    let columns = columns(workload)
        .ok_or_else(|| format!("no workload or operation is called {workload}"))?;
    // The longest first.
    let mut jobs: Vec<(&str, usize)> =
        columns.iter().flat_map(|c| cpus.iter().map(move |n| (c.as_ref(), *n))).collect();
    jobs.sort_by_key(|(_, n)| core::cmp::Reverse(*n));
    let arguments: Vec<Vec<String>> = jobs
        .iter()
        .map(|(column, n)| {
            let numbers = [n.to_string(), seed.to_string(), work_ns.to_string()];
            let words = ["point", column, machine].map(str::to_owned);
            words.into_iter().chain(numbers).collect()
        })
        .collect();
    let results =
        children::run(program, &arguments, |job| done(jobs[job].0, jobs[job].1, jobs.len()));
    let mut curves = Vec::new();
    for column in &columns {
        let points = jobs.iter().zip(&results).filter(|((of, _), _)| *of == column.as_ref());
        let mut points =
            points.map(|(_, result)| result.clone()).collect::<Result<Vec<Point>, String>>()?;
        points.sort_by_key(|p| p.cpus);
        curves.push(Curve::new(column, points));
    }
    Ok(Forecast {
        workload: workload.to_owned(),
        machine: machine.to_owned(),
        seed,
        work_ns,
        blind_spots: blind_spots(workload),
        curves,
    })
}

fn knee(points: &[Point]) -> usize {
    let mut knee = points.first().map_or(0, |p| p.cpus);
    for pair in points.windows(2) {
        let should =
            pair[0].throughput * (pair[1].cpus - pair[0].cpus) as f64 / pair[0].cpus as f64;
        if pair[1].throughput - pair[0].throughput < should / 2.0 {
            break;
        }
        knee = pair[1].cpus;
    }
    knee
}

impl Curve {
    /// The curve through some points, by number of CPUs, rising.
    pub fn new(column: &str, points: Vec<Point>) -> Self {
        let mut curve =
            Self { column: column.to_owned(), knee: knee(&points), points, limit: None };
        curve.limit = curve.limit();
        curve
    }

    /// Throughput as a multiple of the first point's, by CPU: 1 is linear.
    pub fn efficiency(&self, point: &Point) -> f64 {
        let first = &self.points[0];
        point.throughput / first.throughput * first.cpus as f64 / point.cpus as f64
    }

    fn limit(&self) -> Option<Limit> {
        let bent =
            self.points.iter().find(|p| self.efficiency(p) < STRAIGHT).or(self.points.last())?;
        let (line, wait_ns) = bent.bottleneck.clone()?;
        Some(Limit { cpus: bent.cpus, line, wait_ns })
    }
}

/// The curves as a picture in SVG: millions of operations a second by CPUs, both on logarithmic axes.
///
/// # Errors
/// In words.
pub fn svg(forecast: &Forecast) -> Result<String, String> {
    let mut text = String::new();
    draw(forecast, &mut text).map_err(|error| error.to_string())?;
    Ok(text)
}

fn draw(forecast: &Forecast, text: &mut String) -> Result<(), Box<dyn std::error::Error>> {
    let points = || forecast.curves.iter().flat_map(|c| &c.points);
    let most = points().map(|p| p.cpus).max().unwrap_or(1) as f64;
    let high = points().map(|p| p.throughput).fold(1.0, f64::max) / 1e6;
    let low = points().map(|p| p.throughput).fold(f64::MAX, f64::min) / 1e6;
    let root = SVGBackend::with_string(text, (1000, 720)).into_drawing_area();
    root.fill(&WHITE)?;
    let mut chart = ChartBuilder::on(&root)
        .caption(format!("{} on {}", forecast.workload, forecast.machine), ("sans-serif", 20))
        .margin(12)
        .x_label_area_size(40)
        .y_label_area_size(64)
        .build_cartesian_2d((1.0..most * 1.05).log_scale(), (low * 0.7..high * 8.0).log_scale())?;
    chart.configure_mesh().x_desc("CPUs").y_desc("million operations a second").draw()?;
    for (i, curve) in forecast.curves.iter().enumerate() {
        let colour = HSLColor(i as f64 / forecast.curves.len() as f64, 0.7, 0.45);
        let line = curve.points.iter().map(|p| (p.cpus as f64, p.throughput / 1e6));
        chart
            .draw_series(LineSeries::new(line, colour.stroke_width(2)))?
            .label(curve.column.clone())
            .legend(move |(x, y)| PathElement::new([(x, y), (x + 18, y)], colour.stroke_width(2)));
    }
    // Where no curve is: those that scale leave this corner, those that do not lie below it.
    let corner = SeriesLabelPosition::UpperLeft;
    chart
        .configure_series_labels()
        .position(corner)
        .background_style(WHITE.mix(0.8))
        .border_style(BLACK)
        .draw()?;
    root.present()?;
    Ok(())
}
