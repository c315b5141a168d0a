//! The kernels of the thread of 2008 on a model of its machine, beside the seconds that its author
//! reported.
//!
//! Two parameters are fitted. Work that the miniature leaves out is added to each operation, so
//! that the first kernel takes the reported time on one CPU. The bus latency in the machine's file
//! was chosen so that it takes about the reported time on 8 CPUs. All other points are predictions.

use crate::forecast::plan;
use crate::rungs::{self, Object};
use core::fmt;
use quietline_history::{Build, Rung};
use quietline_sim::report::Report;
use quietline_sim::simulation::{Failed, Plan};
use quietline_sim::topology::Topology;
use serde::Serialize;

/// CPUs of the machine.
pub const CPUS: usize = 8;
/// The row of the kernel without any patch.
pub(crate) const BEFORE: &str = "before (net-next-2.6, November 2008)";
/// Rounds of fitting the work that the miniature leaves out.
const ROUNDS: usize = 3;

/// Returns the seconds that the thread reports for a rung on 8 CPUs.
pub fn reported_on_8(rung: Rung) -> f64 {
    let table = |name| quietline_seeds::table("sockets-2008", name);
    match row_of(rung) {
        Some(row) => table("patches-3").expect(row, "8 CPUs"),
        None => table("versions").expect(BEFORE, "8 CPUs"),
    }
}

/// Returns the row of a rung in the table of version 3. The first rung has none there.
pub(crate) fn row_of(rung: Rung) -> Option<&'static str> {
    Some(match rung {
        Rung::Base => return None,
        Rung::NrDentry => "nr_dentry",
        Rung::NrInodes => "nr_inodes",
        Rung::LastIno => "last_ino",
        Rung::SingleDentry => "single dentries",
        Rung::SingleInode => "single inodes",
        Rung::TypesafeFiles => "SLAB_DESTROY_BY_RCU files",
        Rung::Norefcount => "MS_NOREFCOUNT",
    })
}

/// A rung, modelled and reported.
#[derive(Debug, Clone, Serialize)]
pub struct Step {
    /// The rung.
    pub rung: &'static str,
    /// Seconds of a million operations on each of the CPUs: one, and all, in the model.
    pub on_1: f64,
    /// As `on_1`.
    pub on_8: f64,
    /// What was reported for all.
    pub reported_on_8: f64,
    /// The line that is waited for most when all do it.
    pub bottleneck: Option<String>,
}

/// The machine with its latencies multiplied, and the work that the miniature leaves out.
#[derive(Debug)]
pub struct Model {
    pub(crate) machine: Topology,
    /// All latencies between CPUs, and to memory, are those of the file times this.
    pub(crate) latencies: f64,
    /// Nanoseconds that are added to each operation.
    work_ns: f64,
    seed: u64,
}

impl Model {
    /// Returns a model in which the first kernel takes the reported time on one CPU.
    ///
    /// # Errors
    /// [`Failed`].
    pub fn fitted(machine: &Topology, latencies: f64, seed: u64) -> Result<Self, Failed> {
        let machine = machine.scaled(latencies);
        let mut model = Self { machine, latencies, work_ns: 0.0, seed };
        let versions = quietline_seeds::table("sockets-2008", "versions");
        let reported = versions.expect(BEFORE, "1 CPU");
        for _round in 0..ROUNDS {
            // With more work an operation meets more ticks.
            model.work_ns += (reported - model.seconds(Build::default(), 1)?.0) * 1000.0;
        }
        Ok(model)
    }

    /// Simulates a million opens and closes of a socket on each CPU. Returns the seconds, and the
    /// line that is waited for most.
    ///
    /// # Errors
    /// [`Failed`].
    pub fn seconds(&self, build: Build, cpus: usize) -> Result<(f64, Option<String>), Failed> {
        let report = self.simulate(build, cpus)?;
        let bottleneck = report.bottleneck().map(|conflict| conflict.line.clone());
        // Nanoseconds for one operation are milliseconds for a million.
        Ok((report.ns_per_op / 1000.0, bottleneck))
    }

    /// Simulates opening and closing a socket on each CPU.
    ///
    /// # Errors
    /// [`Failed`].
    pub(crate) fn simulate(&self, build: Build, cpus: usize) -> Result<Report, Failed> {
        let operation = rungs::of_build("2008".into(), "".into(), Object::Socket, build);
        let plan = Plan { work_ns: self.work_ns, ..plan(&operation, cpus, self.seed) };
        Ok(operation.simulate(&self.machine, &plan)?.1)
    }

    /// Climbs all rungs, lowest first.
    ///
    /// # Errors
    /// [`Failed`].
    pub fn ladder(&self) -> Result<Ladder, Failed> {
        let step = |rung: Rung| {
            let (on_8, bottleneck) = self.seconds(rung.into(), CPUS)?;
            Ok(Step {
                rung: rung.name(),
                on_1: self.seconds(rung.into(), 1)?.0,
                on_8,
                reported_on_8: reported_on_8(rung),
                bottleneck,
            })
        };
        let steps = Rung::ALL.into_iter().map(step).collect::<Result<_, Failed>>()?;
        Ok(Ladder { latencies: self.latencies, work_ns: self.work_ns, steps })
    }
}

/// The ladder.
#[derive(Debug, Clone, Serialize)]
pub struct Ladder {
    /// All latencies between CPUs, and to memory, were those of the file times this.
    pub latencies: f64,
    /// Nanoseconds that were added to each operation, so that the base takes the reported time on
    /// one CPU: fitted.
    pub work_ns: f64,
    /// All rungs, lowest first.
    pub steps: Vec<Step>,
}

impl fmt::Display for Ladder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "latencies x {:.1}; fitted: {:.0} ns of work that the miniature leaves out (base, 1 CPU), \
             and the file's bus latency (base, 8 CPUs)",
            self.latencies, self.work_ns
        )?;
        writeln!(
            f,
            "{:16} {:>9} {:>9} {:>11} {:>13}  waited for most",
            "rung", "1 CPU, s", "8 CPUs, s", "reported, s", "model/report"
        )?;
        for step in &self.steps {
            let ratio = step.on_8 / step.reported_on_8;
            writeln!(
                f,
                "{:16} {:9.3} {:9.3} {:11.3} {:13.2}  {}",
                step.rung,
                step.on_1,
                step.on_8,
                step.reported_on_8,
                ratio,
                step.bottleneck.as_deref().unwrap_or("nothing")
            )?;
        }
        Ok(())
    }
}
