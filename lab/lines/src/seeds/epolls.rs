//! Nested epolls of 2017 on a model of a virtual machine, beside the throughput that the thread
//! reports.
//!
//! The thread names no unit. It is read as messages a second of each process. As a total, the
//! numbers would mean that 12 CPUs together do a seventeenth of what one does. By process, their
//! total before the patch rises to 3 CPUs and then falls.
//!
//! The machine and the benchmark of the table are not named either. The customer's machine is
//! assumed: a KVM guest of 18 cores. Two benchmarks are compared, and the column after the patch
//! contradicts both in part. It is level to 2 CPUs and 5 % lower at 3, as if each process sent to
//! itself. It falls to 0.54 at 12, as if processes shared something. The profile is of the
//! customer's dispatcher, and there each process sends to all.
//!
//! One parameter is fitted: the work between messages, to the kernel before the patch on one CPU.

use crate::forecast::plan;
use crate::operation::Operation;
use crate::sensitivity::LATENCIES;
use quietline_seeds::{Basis, Comparison, Point, Table};
use quietline_sim::report::{Field, Report};
use quietline_sim::simulation::{Failed, Plan};
use quietline_sim::topology::Topology;
use std::collections::HashMap;

/// The kernels, by column of the table.
const KERNELS: [(&str, &str); 2] =
    [("before", "history-nested-global"), ("after", "history-nested-dlock")];
/// The guesses at the benchmark, and the end of their operations' names.
const SCENES: [(&str, &str); 2] =
    [("each process sends to itself", "-own"), ("each process sends to all", "")];
/// CPUs of the workload that the patch was made for.
const CASE: usize = 18;
/// Rounds of fitting.
const ROUNDS: usize = 3;

/// The fitted model.
pub(super) struct Fit {
    machine: Topology,
    seed: u64,
    /// Nanoseconds between two messages of a process.
    pub(super) work_ns: f64,
}

impl Fit {
    /// Fits the work between messages to the kernel before the patch on one CPU.
    pub(super) fn new(machine: Topology, seed: u64) -> Result<Self, Failed> {
        let target = quietline_seeds::table("epoll-2017", "throughput").expect("1", "before");
        let mut fit = Self { machine, seed, work_ns: 0.0 };
        for _round in 0..ROUNDS {
            let (messages, _) = fit.messages("history-nested-global", 1)?;
            fit.work_ns = (fit.work_ns + 1e9 / target - 1e9 / messages).max(0.0);
        }
        Ok(fit)
    }

    /// Simulates so many processes. Returns messages a second of each.
    fn messages(&self, kernel: &str, cpus: usize) -> Result<(f64, Report), Failed> {
        let operation = Operation::find(kernel).expect("an operation of our own");
        let plan = Plan { work_ns: self.work_ns, ..plan(&operation, cpus, self.seed) };
        let (run, report) = operation.simulate(&self.machine, &plan)?;
        Ok((run.throughput() / cpus as f64, report))
    }

    /// Simulates a column of the table in a scene. Returns messages a second of each process by
    /// row.
    fn column(&self, table: &Table, kernel: &str) -> Result<HashMap<String, f64>, Failed> {
        let rows = table.rows.iter().map(|row| {
            let cpus = row.name.parse().expect("rows are numbers of CPUs");
            Ok((row.name.clone(), self.messages(kernel, cpus)?.0))
        });
        rows.collect()
    }
}

/// Why the model without the patch is far from the thread.
const BEFORE: &str = "not explained: how often an operation of the benchmark goes through \
    ep_call_nested is not known";
/// Why the model with the patch is far from the thread, by scene.
const AFTER: [&str; 2] = [
    "in the model only processes of which the tasks have the same hash share a line. What the \
     thread's processes share beside that is not known",
    "not explained: what a message of the thread's benchmark moves between CPUs is not known",
];

/// Simulates all points of the thread's table, and the case that it is about.
///
/// # Errors
/// [`Failed`].
pub(super) fn comparisons(machine: &Topology, seed: u64) -> Result<Vec<Comparison>, Failed> {
    let throughput = quietline_seeds::table("epoll-2017", "throughput");
    let fits = LATENCIES
        .iter()
        .map(|factor| Fit::new(machine.scaled(*factor), seed))
        .collect::<Result<Vec<_>, _>>()?;
    let fit = &fits[0];
    let ours =
        format!("model of {}; fitted: {:.0} ns between messages", machine.title, fit.work_ns);
    let mut comparisons = Vec::new();
    for ((scene, suffix), after) in SCENES.into_iter().zip(AFTER) {
        let assumed = format!("{ours}. The machine is the customer's, by assumption");
        let mut by_cpus = Comparison::of_scene(throughput, scene, &assumed);
        for (column, kernel) in KERNELS {
            let kernel = format!("{kernel}{suffix}");
            let points = fit.column(throughput, &kernel)?;
            for row in &throughput.rows {
                let is_fitted = row.name == "1" && column == "before";
                let basis = if is_fitted { Basis::Fitted } else { Basis::Predicted };
                by_cpus.add(throughput, &row.name, column, points[&row.name], basis);
            }
            if column == "before" {
                let scaled = fits[1..]
                    .iter()
                    .map(|fit| fit.column(throughput, &kernel))
                    .collect::<Result<Vec<_>, _>>()?;
                explain_before(&mut by_cpus, &scaled);
            }
        }
        let is_far = |point: &Point| (point.ours / point.reported - 1.0).abs() > FAR;
        by_cpus.explain(after, |point| point.column == "after" && is_far(point));
        explain_hash(&mut by_cpus, throughput);
        comparisons.push(by_cpus);
    }
    comparisons.push(profile(fit, &ours)?);
    Ok(comparisons)
}

/// Errors above this are explained, as a part of the thread's value.
const FAR: f64 = 0.15;

/// Gives the point of one CPU with the patch its cause: what the patch adds to an operation.
fn explain_hash(comparison: &mut Comparison, table: &Table) {
    let ours = |column| comparison.point("1", column).expect("it was added").ours;
    let added = 1e9 / ours("after") - 1e9 / ours("before");
    let reported = 1e9 / table.expect("1", "after") - 1e9 / table.expect("1", "before");
    let cause = format!(
        "the patch costs an operation {reported:.0} ns in the thread and {added:.0} ns in the \
         model: there a message has one hash of 45 cycles, and four entries that name their list"
    );
    comparison.explain(&cause, |point| point.column == "after" && point.row == "1");
}

/// Gives each point without the patch its cause, with the values for other latencies.
fn explain_before(comparison: &mut Comparison, scaled: &[HashMap<String, f64>]) {
    let rows: Vec<(String, f64, f64)> = comparison
        .points
        .iter()
        .filter(|point| point.column == "before" && point.basis == Basis::Predicted)
        .map(|point| (point.row.clone(), point.reported, point.ours))
        .collect();
    for (row, reported, ours) in rows {
        let cpus: f64 = row.parse().expect("rows are numbers of CPUs");
        // Nanoseconds of all processes together for an operation.
        let [reported, ours] = [reported, ours].map(|rate| 1e9 / (rate * cpus));
        let other: Vec<String> = LATENCIES[1..]
            .iter()
            .zip(scaled)
            .map(|(factor, points)| format!("{:.0} at {factor} times the latencies", points[&row]))
            .collect();
        let cause = format!(
            "{BEFORE}. All processes together take {reported:.0} ns an operation in the thread, \
             {ours:.0} in the model. The model gives {}",
            other.join(" and ")
        );
        comparison.explain(&cause, |point| point.row == row && point.column == "before");
    }
}

/// Simulates the customer's dispatcher: each process sends to all.
fn profile(fit: &Fit, ours: &str) -> Result<Comparison, Failed> {
    let table = quietline_seeds::table("epoll-2017", "profile");
    let ours = format!(
        "{ours}. Each process sends to all. A spinlock's slow path is the waiting at spinlocks and \
         their queue nodes, without the locked instructions of a lock that is free"
    );
    let mut profile = Comparison::new(table, ours);
    let (_, report) = fit.messages("history-nested-global", CASE)?;
    let waited: f64 =
        report.fields.iter().filter(|field| is_spinlock(field)).map(|field| field.wait_ns).sum();
    let row = "__pv_queued_spin_lock_slowpath";
    profile.add(table, row, "reported", waited / report.ns_per_op * 100.0, Basis::Predicted);
    profile.miss_the_rest(table, "the model counts by cache line, not by function");
    Ok(profile)
}

/// Returns whether a word is a spinlock or a queue node. The model names a word of eight bytes by
/// its first field.
fn is_spinlock(field: &Field) -> bool {
    field.field.ends_with(".lock") || field.field.starts_with("mcs_node.")
}
