//! Nested epolls of 2017 on a model of a virtual machine, beside the throughput that the thread
//! reports.
//!
//! The thread names no unit. It is read as messages a second of each process. As a total, the
//! numbers would mean that 12 CPUs together do a seventeenth of what one does, behind a queued
//! lock, which hands over at a constant pace. By process, their total rises to 3 CPUs and then
//! falls slowly, as it does at such a lock.
//!
//! It does not describe the benchmark either. After the patch the rate of a process stays level up
//! to 3 CPUs, so its messages cannot cross CPUs: each process sends to itself here. The profile is
//! of a customer's dispatcher, and there each process sends to all.
//!
//! One parameter is fitted: the work between messages, to the kernel before the patch on one CPU.

use crate::forecast::plan;
use crate::operation::Operation;
use quietline_seeds::{Basis, Comparison};
use quietline_sim::report::Report;
use quietline_sim::simulation::{Failed, Plan};
use quietline_sim::topology::Topology;

/// The kernels, by column of the table.
const KERNELS: [(&str, &str); 2] =
    [("before", "history-nested-global-own"), ("after", "history-nested-dlock-own")];
/// CPUs of the workload that the patch was made for.
const CASE: usize = 18;
/// Rounds of fitting.
const ROUNDS: usize = 3;

struct Fit<'a> {
    machine: &'a Topology,
    seed: u64,
    /// Nanoseconds between two messages of a process.
    work_ns: f64,
}

impl Fit<'_> {
    /// Simulates so many processes. Returns messages a second of each.
    fn messages(&self, kernel: &str, cpus: usize) -> Result<(f64, Report), Failed> {
        let operation = Operation::find(kernel).expect("an operation of our own");
        let plan = Plan { work_ns: self.work_ns, ..plan(&operation, cpus, self.seed) };
        let (run, report) = operation.simulate(self.machine, &plan)?;
        Ok((run.throughput() / cpus as f64, report))
    }
}

/// Simulates all points of the thread's table, and the case that it is about.
///
/// # Errors
/// [`Failed`].
pub(super) fn comparisons(machine: &Topology, seed: u64) -> Result<Vec<Comparison>, Failed> {
    let table = |name| quietline_seeds::table("epoll-2017", name);
    let throughput = table("throughput");
    let mut fit = Fit { machine, seed, work_ns: 0.0 };
    let target = throughput.expect("1", "before");
    for _round in 0..ROUNDS {
        let (messages, _) = fit.messages("history-nested-global", 1)?;
        fit.work_ns = (fit.work_ns + 1e9 / target - 1e9 / messages).max(0.0);
    }
    let ours = format!(
        "model of {}, messages a second of each process; fitted: {:.0} ns between messages",
        machine.title, fit.work_ns
    );
    let mut by_cpus = Comparison::new(throughput, ours.as_str());
    for (column, kernel) in KERNELS {
        for row in &throughput.rows {
            let cpus = row.name.parse().expect("rows are numbers of CPUs");
            let (messages, _) = fit.messages(kernel, cpus)?;
            let is_fitted = cpus == 1 && column == "before";
            let basis = if is_fitted { Basis::Fitted } else { Basis::Predicted };
            by_cpus.add(throughput, &row.name, column, messages, basis);
        }
    }
    let mut profile = Comparison::new(table("profile"), ours.as_str());
    let (_, report) = fit.messages("history-nested-global", CASE)?;
    // The model names a word of eight bytes by its first field: a queue node is one.
    let waits_in = |field: &&quietline_sim::report::Field| {
        field.field == "nested_calls.lock" || field.field.starts_with("mcs_node.")
    };
    let share: f64 = report.fields.iter().filter(waits_in).map(|field| field.share).sum();
    let row = "__pv_queued_spin_lock_slowpath";
    profile.add(table("profile"), row, "before", share * 100.0, Basis::Predicted);
    profile.miss_the_rest(table("profile"), "the model counts by cache line, not by function");
    Ok(vec![by_cpus, profile])
}
