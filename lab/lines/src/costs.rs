//! The columns of the cost ledger that the model counts: cache lines touched and shared lines
//! written by an operation.
//!
//! Each row is one operation of `quietline-costs` with one kind of sharing, simulated in a process
//! of its own. CPUs take turns: no two operations overlap, so a lock is never waited for, and the
//! counts say which lines the CPUs share, not how often they meet there. Each CPU counts exactly
//! the same number of operations. The counts therefore do not depend on the model's latencies.

use crate::children;
use core::fmt;
use quietline_costs::{Operation, Sharing};
use quietline_sim::directory::LineId;
use quietline_sim::ledger::Ledger;
use quietline_sim::report::line_name;
use quietline_sim::simulation::{Plan, Stage};
use quietline_sim::topology::Topology;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

/// Virtual CPUs.
pub const CPUS: usize = 4;

/// Measured operations of each CPU: whole batches of 1,024 inode numbers. Operations that repeat
/// something have shorter windows.
const WINDOW: u64 = 1024;

/// Measured operations of each CPU at least.
const LEAST: u64 = 16;

/// Operations of each CPU before its window: its batch of inode numbers has ended once, and its
/// sheaves have been exchanged.
const WARM_UP: u64 = 1100;

/// Nanoseconds between the beginnings of two operations of a CPU: no operation lasts a quarter of
/// it.
const TURN_NS: u64 = 1_000_000;

/// The machine by name.
const MACHINE: &str = "one-socket-16";

/// The kinds of sharing, as the sheet names them.
pub const SHARINGS: [(&str, Sharing); 2] =
    [("one-process", Sharing::OneProcess), ("own-processes", Sharing::OwnProcesses)];

/// A count per operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Count {
    /// The count that two of three operations stay within. Events that occur once in a batch do not
    /// change it. Not the median: an object of three quarters of a line lies on two lines in half
    /// of the places that it may have, so that one operation would decide.
    pub typical: u64,
    /// The sum over all measured operations.
    pub total: u64,
}

impl Count {
    fn of(mut counts: Vec<u64>) -> Self {
        counts.sort_unstable();
        let typical = counts.get(counts.len() * 2 / 3).copied().unwrap_or(0);
        Self { typical, total: counts.iter().sum() }
    }
}

/// A line that operations write after other CPUs, or all such lines of the same name.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Contended {
    /// The fields on the line.
    pub line: String,
    /// Number of operations that write the line after another CPU.
    pub written: u64,
}

/// The costs of one operation with one kind of sharing.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Row {
    /// The operation's name.
    pub operation: String,
    /// `one-process` or `own-processes`.
    pub sharing: String,
    /// Measured operations of each CPU.
    pub window: u64,
    /// Distinct lines that an operation reads or writes.
    pub lines_touched: Count,
    /// Distinct lines that an operation writes and has to get from other CPUs: another CPU has read
    /// or written them since.
    pub shared_lines_written: Count,
    /// The lines behind `shared_lines_written`.
    pub contended: Vec<Contended>,
}

/// All rows.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Sheet {
    /// The machine's name.
    pub machine: &'static str,
    /// Virtual CPUs.
    pub cpus: usize,
    /// The rows, in the order of `quietline_costs::operations`.
    pub rows: Vec<Row>,
}

/// Simulates one operation in this process.
///
/// # Errors
/// If there is no such operation or kind of sharing, and if the simulation gets stuck.
///
/// # Panics
/// If the operation panics.
pub fn simulate(operation: &str, sharing: &str) -> Result<Row, String> {
    let operation = find(operation)?;
    let (sharing, kind) = SHARINGS
        .into_iter()
        .find(|(name, _)| *name == sharing)
        .ok_or_else(|| format!("no kind of sharing is called {sharing}"))?;
    let machine = Topology::load(MACHINE).map_err(|error| error.to_string())?;
    let repeats = operation.repeats as u64;
    let plan = Plan {
        cpus: CPUS,
        warm_up: (WARM_UP / repeats).max(LEAST),
        ops: (WINDOW / repeats).max(LEAST),
        turn_ns: Some(TURN_NS),
        ..Plan::default()
    };
    // Decay of idle memory depends on the time.
    quietline_slab::set_decay_interval(Duration::ZERO);
    let stage = Stage::new(CPUS);
    let scene = operation.open(kind);
    let run = stage.run(&machine, &plan, |cpu| scene(cpu)).map_err(|error| error.to_string())?;
    if run.longest > TURN_NS * 1000 / CPUS as u64 {
        return Err(format!("an operation takes {} ns, so turns overlap", run.longest / 1000));
    }
    // Fields have names only while the scene exists.
    let row = Row::new(operation.name, sharing, plan.ops, &run.ledger);
    drop(scene);
    Ok(row)
}

fn find(name: &str) -> Result<Operation, String> {
    quietline_costs::operations()
        .into_iter()
        .find(|operation| operation.name == name)
        .ok_or_else(|| format!("no operation is called {name}; `ql costs --list` lists them"))
}

/// Simulates operations, or all of them if none is named, each with each kind of sharing in a
/// process of its own: `program costs-row OPERATION SHARING`. Calls `done` with the name of an
/// operation, and with the number of rows, when a row is done.
///
/// # Errors
/// If a row cannot be simulated. The message has all such rows.
pub fn sheet(
    names: &[String],
    program: &Path,
    done: impl Fn(&str, usize) + Sync,
) -> Result<Sheet, String> {
    let operations: Vec<&str> = if names.is_empty() {
        quietline_costs::operations().iter().map(|operation| operation.name).collect()
    } else {
        names.iter().map(|name| Ok(find(name)?.name)).collect::<Result<_, String>>()?
    };
    let jobs: Vec<Vec<String>> = operations
        .iter()
        .flat_map(|name| SHARINGS.map(|(sharing, _)| ["costs-row", name, sharing]))
        .map(|arguments| arguments.map(str::to_owned).to_vec())
        .collect();
    let results = children::run(program, &jobs, |job| done(&jobs[job][1], jobs.len()));
    let mut rows = Vec::new();
    let mut errors = Vec::new();
    for (job, result) in jobs.iter().zip(results) {
        match result {
            Ok(row) => rows.push(row),
            Err(error) => errors.push(format!("{} ({}): {error}", job[1], job[2])),
        }
    }
    if errors.is_empty() {
        Ok(Sheet { machine: MACHINE, cpus: CPUS, rows })
    } else {
        Err(errors.join("\n"))
    }
}

impl Row {
    fn new(operation: &str, sharing: &str, window: u64, ledger: &Ledger) -> Self {
        let footprints = ledger.footprints().expect("in the plan CPUs take turns");
        let mut by_line: BTreeMap<LineId, u64> = BTreeMap::new();
        for line in footprints.iter().flat_map(|footprint| footprint.shared) {
            *by_line.entry(*line).or_default() += 1;
        }
        let mut by_name: BTreeMap<String, u64> = BTreeMap::new();
        for (line, written) in by_line {
            *by_name.entry(line_name(ledger, line)).or_default() += written;
        }
        Self {
            operation: operation.to_owned(),
            sharing: sharing.to_owned(),
            window,
            lines_touched: Count::of(footprints.iter().map(|f| f.touched as u64).collect()),
            shared_lines_written: Count::of(
                footprints.iter().map(|f| f.shared.len() as u64).collect(),
            ),
            contended: by_name
                .into_iter()
                .map(|(line, written)| Contended { line, written })
                .collect(),
        }
    }
}

impl fmt::Display for Sheet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "Cache lines by operation, {} CPUs of {}: what two of three stay within, the mean",
            self.cpus, self.machine
        )?;
        writeln!(
            f,
            "{:32} {:13} {:>8} {:>10} {:>8} {:>10}",
            "operation", "sharing", "touched", "mean", "shared", "mean"
        )?;
        for row in &self.rows {
            let mean = |count: Count| count.total as f64 / (row.window * self.cpus as u64) as f64;
            let (touched, shared) = (row.lines_touched, row.shared_lines_written);
            writeln!(
                f,
                "{:32} {:13} {:8} {:10.4} {:8} {:10.4}",
                row.operation,
                row.sharing,
                touched.typical,
                mean(touched),
                shared.typical,
                mean(shared)
            )?;
        }
        Ok(())
    }
}
