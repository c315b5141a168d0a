//! A simulation from its scene to its ledger.

use crate::ledger::Ledger;
use crate::raw::Fibre;
use crate::scheduler::Scheduler;
pub use crate::scheduler::{Plan, Stuck};
use crate::topology::{Ps, Topology};
use quietline_platform::sim;
use std::rc::Rc;
use std::sync::{Mutex, MutexGuard};

/// Scenes lie at the same addresses in every run.
#[global_allocator]
static HEAP: sim::heap::Heap = sim::heap::Heap;

/// Simulations take turns: the number of virtual CPUs is the whole process's.
static TURN: Mutex<()> = Mutex::new(());

/// What a simulation has found.
#[derive(Debug)]
pub struct Run {
    /// The machine.
    pub topology: Topology,
    /// Virtual CPUs.
    pub cpus: usize,
    /// Seed of the noise.
    pub seed: u64,
    /// Operations that were measured.
    pub ops: u64,
    /// How long they took.
    pub window: Ps,
    /// Who touched what.
    pub ledger: Ledger,
    /// Accesses in the whole simulation.
    pub accesses: u64,
    /// How long the longest of the measured operations took.
    pub longest: Ps,
}

impl Run {
    /// Operations of all CPUs in a second.
    pub fn throughput(&self) -> f64 {
        self.ops as f64 / (self.window.max(1) as f64 * 1e-12)
    }

    /// Nanoseconds that an operation takes a CPU.
    pub fn ns_per_op(&self) -> f64 {
        self.window as f64 * self.cpus as f64 / (self.ops.max(1) as f64 * 1000.0)
    }
}

/// Why there is no result.
#[derive(Debug, thiserror::Error)]
pub enum Failed {
    /// Nobody could go on.
    #[error(transparent)]
    Stuck(#[from] Stuck),
    /// The machine has fewer CPUs.
    #[error("{machine} has {has} CPUs, not {wanted}")]
    TooFew {
        /// The machine.
        machine: String,
        /// CPUs that it has.
        has: usize,
        /// CPUs that were wanted.
        wanted: usize,
    },
    /// No memory for the CPUs' stacks.
    #[error("no memory for a virtual CPU: {0}")]
    NoMemory(#[from] std::io::Error),
}

/// For programs, first in `main`: fixes the addresses of what is in no scene, too, such as statics. It starts the program anew.
pub fn fix_addresses() {
    crate::raw::fix_addresses();
}

/// Virtual CPUs while there is no stage.
pub const CPUS: usize = 2;

/// The place for a scene: from its making on to its end, product code counts so many CPUs. One at a time in a process;
/// others wait.
pub struct Stage {
    _turn: MutexGuard<'static, ()>,
}

impl Stage {
    /// A stage for so many CPUs.
    ///
    /// # Panics
    /// When `cpus` is 0 or above 256.
    pub fn new(cpus: usize) -> Self {
        let turn = TURN.lock().unwrap_or_else(|e| e.into_inner());
        sim::forget_names();
        sim::set_cpus(cpus);
        sim::heap::begin();
        Self { _turn: turn }
    }

    /// Lets each CPU do operations until enough are measured. `worker` makes, on its CPU, what does one operation.
    ///
    /// # Errors
    /// [`Failed`].
    ///
    /// # Panics
    /// When an operation panics; and at a livelock.
    pub fn run<'a, W>(&self, topology: &Topology, plan: &Plan, worker: W) -> Result<Run, Failed>
    where
        W: Fn(usize) -> Box<dyn FnMut() + 'a> + 'a,
    {
        if plan.cpus > topology.cpus() {
            let (machine, has) = (topology.name.clone(), topology.cpus());
            return Err(Failed::TooFew { machine, has, wanted: plan.cpus });
        }
        let scheduler = Rc::new(Scheduler::new(topology, plan));
        let worker = Rc::new(worker);
        let fibre = |cpu| {
            let (scheduler, worker) = (Rc::clone(&scheduler), Rc::clone(&worker));
            Fibre::new(Box::new(move || {
                let mut op = worker(cpu);
                scheduler.worker_made();
                while !scheduler.is_over() {
                    op();
                    scheduler.op_done();
                }
            }))
        };
        let mut fibres = (0..plan.cpus).map(fibre).collect::<Result<Vec<_>, _>>()?;
        scheduler.set_fibres(fibres.iter().map(Fibre::here).collect());
        let machine = Rc::clone(&scheduler);
        let ended = {
            let _installed = sim::install(&*machine);
            play(&scheduler, &mut fibres)
        };
        // Where they did not come to their end they are unwound here, outside the machine.
        drop(fibres);
        ended?;
        drop(machine);
        let measured = Rc::into_inner(scheduler).expect("the fibres have ended").finish();
        Ok(Run {
            topology: topology.clone(),
            cpus: plan.cpus,
            seed: plan.seed,
            ops: measured.ops,
            window: measured.window,
            ledger: measured.ledger,
            accesses: measured.accesses,
            longest: measured.longest,
        })
    }
}

impl Drop for Stage {
    fn drop(&mut self) {
        sim::heap::end();
        sim::set_cpus(CPUS);
    }
}

fn play(scheduler: &Scheduler, fibres: &mut [Fibre<'_>]) -> Result<(), Stuck> {
    while let Some(cpu) = scheduler.next()? {
        if fibres[cpu].resume() {
            scheduler.ended();
        }
    }
    debug_assert!(fibres.iter().all(Fibre::done));
    Ok(())
}
