//! The operations, by name.

use crate::{dcache, epoll, forward, kernels, paths, product, rungs, slab, sockets, vfs};
use quietline_costs::Sharing;
use quietline_sim::report::{Basis, Report};
use quietline_sim::simulation::{Failed, Plan, Run, Stage};
use quietline_sim::topology::Topology;
use std::borrow::Cow;

/// What does one operation on the CPU that it was made on.
pub type Worker = Box<dyn FnMut()>;

/// Makes the workers of a scene: called on each CPU with its number.
pub type Scene = Box<dyn Fn(usize) -> Worker + Sync>;

/// An operation that can be simulated.
pub struct Operation {
    /// As `ql lines` takes it.
    pub name: Cow<'static, str>,
    /// What it does, in a line.
    pub says: Cow<'static, str>,
    /// Sets the scene for so many CPUs.
    pub scene: Box<dyn Fn(usize) -> Scene>,
    /// What the gate holds it to.
    pub allowance: Allowance,
    /// How far apart its rare events are: a window shorter than this does not see them.
    pub period: Period,
}

/// How many contended lines an operation may have to get from other CPUs.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Allowance {
    /// Nothing is promised.
    Any,
    /// None, ever.
    Never,
    /// What is done once in a batch.
    Batch {
        /// Lines that the batch's end fetches.
        lines: f64,
        /// Operations in a batch.
        ops: f64,
        /// What that is.
        says: &'static str,
    },
}

impl Allowance {
    /// How far a measured rate may be above the computed one: a window rarely holds a whole number of batches.
    pub const MARGIN: f64 = 1.2;

    /// One line for each batch of so many operations.
    pub(crate) fn batch(ops: u32, says: &'static str) -> Self {
        Self::Batch { lines: 1.0, ops: f64::from(ops), says }
    }

    /// Lines an operation, on average, as computed; none where nothing is promised.
    pub fn computed(self) -> Option<f64> {
        match self {
            Self::Any => None,
            Self::Never => Some(0.0),
            Self::Batch { lines, ops, .. } => Some(lines / ops),
        }
    }

    /// What a measurement may say at most.
    pub fn allowed(self) -> Option<f64> {
        self.computed().map(|lines| lines * Self::MARGIN)
    }
}

/// After how many operations everything has come round.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Period {
    /// After a few.
    Short,
    /// After a batch of numbers: 1,024.
    Batch,
    /// After some grace periods, for each of which thousands of objects come together.
    Graces,
    /// After some ticks of a miniature, 640 operations each, and dear to simulate.
    Ticks,
}

impl Operation {
    /// One with a scene for any number of CPUs, and with batches of 1,024 at most.
    pub(crate) fn new(
        name: &'static str,
        says: &'static str,
        allowance: Allowance,
        scene: impl Fn(usize) -> Scene + 'static,
    ) -> Self {
        Self {
            name: name.into(),
            says: says.into(),
            scene: Box::new(scene),
            allowance,
            period: Period::Batch,
        }
    }

    /// Returns an operation whose scene is the one of an operation of the cost ledger.
    ///
    /// # Panics
    /// If the cost ledger has no such operation.
    pub(crate) fn of_ledger(
        name: &'static str,
        ledger_name: &'static str,
        sharing: Sharing,
        allowance: Allowance,
    ) -> Self {
        let operation = quietline_costs::operations()
            .into_iter()
            .find(|operation| operation.name == ledger_name)
            .unwrap_or_else(|| panic!("no operation of the ledger is called {ledger_name}"));
        let owner = match sharing {
            Sharing::OneProcess => "one process, or one set of objects, for all CPUs",
            Sharing::OwnProcesses => "a process, or a set of objects, for each CPU",
        };
        let scene = move |_| operation.open(sharing);
        let says = format!("{}; {owner}", operation.about).into();
        Self { says, ..Self::new(name, "", allowance, scene) }
    }

    /// All of them.
    pub fn all() -> Vec<Operation> {
        [
            vfs::operations(),
            paths::operations(),
            product::operations(),
            slab::operations(),
            kernels::operations(),
            dcache::operations(),
            epoll::operations(),
            sockets::operations(),
            forward::operations(),
            rungs::operations(),
        ]
        .into_iter()
        .flatten()
        .collect()
    }

    /// The one with this name.
    pub fn find(name: &str) -> Option<Operation> {
        Self::all().into_iter().find(|operation| operation.name == name)
    }

    /// Simulates it on a machine. CPUs do not begin in step: by chance, each has some operations of a batch behind it. All in
    /// step would end their batches in the same moment, over and over, and their queue would be what is measured.
    ///
    /// # Errors
    /// [`Failed`].
    pub fn simulate(&self, topology: &Topology, plan: &Plan) -> Result<(Run, Report), Failed> {
        let stage = Stage::new(plan.cpus);
        let scene = (self.scene)(plan.cpus);
        let ahead = |cpu| if self.period == Period::Batch { phase(cpu, plan.seed) } else { 0 };
        let run = stage.run(topology, plan, |cpu| {
            let mut op = scene(cpu);
            (0..ahead(cpu)).for_each(|_| op());
            op
        })?;
        // While the scene is there: names are asked for.
        let report = Report::new(&self.name, &Basis::of(&run));
        drop(scene);
        Ok((run, report))
    }
}

/// How many operations of its batch a CPU has behind it when others begin.
fn phase(cpu: usize, seed: u64) -> u64 {
    // Multiplied by the golden ratio: what differs little comes to lie far apart.
    (cpu as u64 + seed).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 54
}
