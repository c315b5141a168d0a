//! An operation with a row in the ledger.

use crate::Plant;

/// Closure that runs one operation, on the CPU that it was made on, and checks its result.
pub type Worker = Box<dyn FnMut()>;

/// Factory of workers: called once on each CPU, with the CPU's number.
pub type Scene = Box<dyn Fn(usize) -> Worker + Sync>;

/// Owner of the objects that the CPUs of a scene work on. Operations below processes (caches,
/// counters, packets) have a set of objects in place of a process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Sharing {
    /// All CPUs share one process.
    OneProcess,
    /// Each CPU has a process of its own, in one kernel.
    OwnProcesses,
}

/// A public operation whose cost the ledger records.
#[derive(Debug, Clone, Copy)]
pub struct Operation {
    /// Unique name in kebab case: the key of the row.
    pub name: &'static str,
    /// Group of rows that are shown together.
    pub group: &'static str,
    /// Description in one line.
    pub about: &'static str,
    /// Sets up kernel, processes and files, and returns the factory of the workers.
    pub scene: fn(Sharing) -> Scene,
    /// Elementary operations in one call of a worker: more than one in a row that covers what is
    /// done once in a batch. Warm-up and windows are shorter by this factor.
    pub repeats: usize,
}

impl Operation {
    /// Sets the scene, with the slowdown that is planted in the operation, if any.
    pub fn open(&self, sharing: Sharing) -> Scene {
        let scene = (self.scene)(sharing);
        match Plant::from_environment(self.name) {
            Some(plant) => plant.add_to(scene),
            None => scene,
        }
    }

    /// An operation of a group.
    pub(crate) const fn new(
        group: &'static str,
        name: &'static str,
        about: &'static str,
        scene: fn(Sharing) -> Scene,
    ) -> Self {
        Self { name, group, about, scene, repeats: 1 }
    }

    /// The same, with this many elementary operations in one call of a worker.
    pub(crate) const fn repeats(self, repeats: usize) -> Self {
        Self { repeats, ..self }
    }
}
