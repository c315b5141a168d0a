//! What came of a run, for people and for machines.

pub mod json;
pub mod table;

use std::process::ExitCode;
use std::time::Duration;

use crate::adapters::forward::{SlowPaths, slow_paths};
use crate::harness::{Measured, Plan};
use crate::machine::{CpuTimes, Machine};
use crate::workloads::forward::FORWARD;

/// Everything a run found out.
#[derive(Debug)]
pub struct Report {
    /// The machine it ran on.
    pub machine: Machine,
    /// The commit it was built from.
    pub commit: String,
    /// How it was measured.
    pub plan: Plan,
    /// The CPU times when the report began.
    pub began: Option<CpuTimes>,
    /// One part per workload.
    pub parts: Vec<Part>,
    /// How often packets of the workload `forward` took a slow path.
    pub slow_paths: Vec<SlowPaths>,
}

/// One workload of a report.
#[derive(Debug)]
pub struct Part {
    /// The rows.
    pub measured: Measured,
    /// How long the workload took.
    pub took: Duration,
}

impl Report {
    /// A report with nothing in it yet.
    pub fn new(machine: Machine, commit: String, plan: Plan) -> Self {
        let (parts, slow_paths) = (Vec::new(), Vec::new());
        Self { machine, commit, plan, began: CpuTimes::now(), parts, slow_paths }
    }

    /// Adds a workload that was just measured, and what its packets have counted.
    pub fn push(&mut self, measured: Measured, took: Duration) {
        // Not what another thread has measured and is about to take.
        if measured.workload.name == FORWARD.name {
            self.slow_paths.extend(slow_paths());
        }
        self.parts.push(Part { measured, took });
    }

    /// Whether every row was checked.
    pub fn verdict(&self) -> Verdict {
        let mut rows = self.parts.iter().flat_map(|part| &part.measured.rows);
        if rows.all(|row| row.checked()) { Verdict::Checked } else { Verdict::Failed }
    }
}

/// Whether the results can be trusted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Every row was checked.
    Checked,
    /// At least one row gave wrong results.
    Failed,
}

impl Verdict {
    /// The exit status of the command: 0, or 1 if a check failed.
    pub fn exit_status(self) -> u8 {
        match self {
            Self::Checked => 0,
            Self::Failed => 1,
        }
    }
}

impl From<Verdict> for ExitCode {
    fn from(verdict: Verdict) -> Self {
        verdict.exit_status().into()
    }
}
