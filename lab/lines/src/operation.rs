//! The operations, by name.

use crate::{kernels, product, rungs, vfs};
use quietline_sim::report::{Basis, Report};
use quietline_sim::simulation::{Failed, Plan, Run, Stage};
use quietline_sim::topology::Topology;

/// What does one operation on the CPU that it was made on.
pub type Worker = Box<dyn FnMut()>;

/// Makes the workers of a scene: called on each CPU with its number.
pub type Scene = Box<dyn Fn(usize) -> Worker + Sync>;

/// An operation that can be simulated.
pub struct Operation {
    /// As `ql lines` takes it.
    pub name: &'static str,
    /// What it does, in a line.
    pub says: &'static str,
    /// Sets the scene for so many CPUs.
    pub scene: fn(usize) -> Scene,
    /// Contended lines that it may have to get from other CPUs in an operation, on average; none if nothing is promised.
    pub allowed: Option<f64>,
}

impl Operation {
    /// All of them.
    pub fn all() -> Vec<Operation> {
        [vfs::operations(), product::operations(), kernels::operations(), rungs::operations()]
            .into_iter()
            .flatten()
            .collect()
    }

    /// The one with this name.
    pub fn find(name: &str) -> Option<Operation> {
        Self::all().into_iter().find(|operation| operation.name == name)
    }

    /// Simulates it on a machine.
    ///
    /// # Errors
    /// [`Failed`].
    pub fn simulate(&self, topology: &Topology, plan: &Plan) -> Result<(Run, Report), Failed> {
        let stage = Stage::new(plan.cpus);
        let scene = (self.scene)(plan.cpus);
        let run = stage.run(topology, plan, |cpu| scene(cpu))?;
        // While the scene is there: names are asked for.
        let report = Report::new(self.name, &Basis::of(&run));
        drop(scene);
        Ok((run, report))
    }
}
