//! The gate: how many contended lines each hot operation of the library may have to fetch.
//!
//! An allowance that is not zero is computed from a batch, and what is measured may be above it by
//! [`Allowance::MARGIN`]. It must not be far below either: then the formula is wrong.

use crate::operation::{Allowance, Operation};
use core::fmt;
use quietline_sim::check::verdict;
use quietline_sim::simulation::{Failed, Plan};
use quietline_sim::topology::Topology;
use serde::Serialize;

/// Virtual CPUs.
pub const CPUS: usize = 4;

/// The share of a computed rate that must be seen, or the formula is wrong.
const SEEN: f64 = 0.5;

/// An operation that is held to something.
#[derive(Debug, Clone, Serialize)]
pub struct Row {
    /// The operation.
    pub operation: String,
    /// Contended lines that an operation had to get from other CPUs.
    pub moved: f64,
    /// What was computed, and what that is.
    pub computed: f64,
    /// What is allowed.
    pub allowed: f64,
    /// As `computed`.
    pub formula: &'static str,
    /// What is wrong, in words that name the lines.
    pub complaint: Option<String>,
}

/// All operations that are held to something.
#[derive(Debug, Clone, Serialize)]
pub struct Gate {
    /// The machine's name.
    pub machine: String,
    /// The operations.
    pub rows: Vec<Row>,
}

/// How much is simulated of each: whole batches of 1,024 ids, and some work between operations. Where a program does
/// nothing but end batches, its CPUs meet at the end of each, and the queue there is what would be counted.
pub fn plan() -> Plan {
    Plan { cpus: CPUS, warm_up: 1100, ops: 4096, work_ns: 100.0, ..Plan::default() }
}

impl Gate {
    /// Simulates all of them.
    ///
    /// # Errors
    /// [`Failed`].
    pub fn run() -> Result<Self, Failed> {
        let machine = Topology::load("one-socket-16").expect("a machine of our own");
        let held =
            Operation::all().into_iter().filter(|operation| operation.allowance != Allowance::Any);
        let rows = held.map(|operation| row(&operation, &machine)).collect::<Result<_, _>>()?;
        Ok(Self { machine: machine.name, rows })
    }

    /// What is wrong, if anything is.
    pub fn complaints(&self) -> impl Iterator<Item = &str> {
        self.rows.iter().filter_map(|row| row.complaint.as_deref())
    }
}

fn row(operation: &Operation, machine: &Topology) -> Result<Row, Failed> {
    let computed = operation.allowance.computed().expect("it is held to something");
    let allowed = operation.allowance.allowed().expect("it is held to something");
    let (_, report) = operation.simulate(machine, &plan())?;
    let moved = report.moved_lines;
    let too_few = || {
        (moved < computed * SEEN).then(|| {
            format!(
                "{}: {moved:.4} lines an operation, computed were {computed:.4}: tighten it",
                operation.name
            )
        })
    };
    Ok(Row {
        operation: operation.name.clone().into_owned(),
        moved,
        computed,
        allowed,
        formula: match operation.allowance {
            Allowance::Batch { says, .. } => says,
            Allowance::Any | Allowance::Never => "",
        },
        complaint: verdict(&report, allowed).err().or_else(too_few),
    })
}

impl fmt::Display for Gate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "Contended lines that an operation gets from other CPUs, {CPUS} CPUs of {}",
            self.machine
        )?;
        writeln!(f, "{:18} {:>9} {:>9} {:>9}", "operation", "measured", "computed", "allowed")?;
        for row in &self.rows {
            let Row { operation, moved, computed, allowed, formula, .. } = row;
            let line =
                format!("{operation:18} {moved:9.5} {computed:9.5} {allowed:9.5}  {formula}");
            writeln!(f, "{}", line.trim_end())?;
        }
        self.complaints().try_for_each(|complaint| writeln!(f, "{complaint}"))
    }
}
