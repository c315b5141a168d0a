//! The ladder of 2008 on a model of its machine, beside the seconds that its author reported.

use crate::forecast::plan;
use crate::rungs::{self, Object};
use core::fmt;
use quietline_history::Rung;
use quietline_sim::simulation::{Failed, Plan};
use quietline_sim::topology::Topology;
use serde::Serialize;

/// Seconds of a million open+close on one CPU in the base, as the series reports them.
pub const BASE_ON_1: f64 = 1.561;
/// CPUs of the machine.
pub const CPUS: usize = 8;

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

/// The ladder.
#[derive(Debug, Clone, Serialize)]
pub struct Ladder {
    /// All latencies between CPUs, and to memory, were those of the file times this.
    pub latencies: f64,
    /// Nanoseconds of each operation that were added to the model so that the base on one CPU takes what was reported:
    /// what the miniature leaves out. The one number that is fitted.
    pub work_ns: f64,
    /// All rungs, lowest first.
    pub steps: Vec<Step>,
}

impl Ladder {
    /// Simulates it on a machine whose latencies are multiplied.
    ///
    /// # Errors
    /// [`Failed`].
    pub fn climb(machine: &Topology, latencies: f64, seed: u64) -> Result<Self, Failed> {
        let machine = machine.scaled(latencies);
        let time = |rung: Rung, cpus: usize, work_ns: f64| {
            let operation = rungs::operation(Object::Socket, rung);
            let plan = Plan { work_ns, ..plan(&operation, cpus, seed) };
            let (run, report) = operation.simulate(&machine, &plan)?;
            let bottleneck = report.bottleneck().map(|conflict| conflict.line.clone());
            Ok::<_, Failed>((run.ns_per_op() / 1000.0, bottleneck))
        };
        let work_ns = (BASE_ON_1 - time(Rung::Base, 1, 0.0)?.0) * 1000.0;
        let step = |rung: Rung| {
            let (on_8, bottleneck) = time(rung, CPUS, work_ns)?;
            Ok(Step {
                rung: rung.name(),
                on_1: time(rung, 1, work_ns)?.0,
                on_8,
                reported_on_8: rung.seconds_on_8_cpus(),
                bottleneck,
            })
        };
        let steps = Rung::ALL.into_iter().map(step).collect::<Result<_, Failed>>()?;
        Ok(Self { latencies, work_ns, steps })
    }
}

impl fmt::Display for Ladder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "latencies x {:.1}; {:.0} ns of work that the miniature leaves out, fitted on base, 1 CPU",
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
