//! The model beside this machine: the same kernels by two threads, timed, and by two virtual CPUs.
//!
//! Outside a simulation the watched atomics cost a test of a thread-local more than real ones: about a nanosecond for
//! each access, which is in the measured figures.

use crate::Operation;
use core::fmt;
use quietline_sim::simulation::{Failed, Plan};
use quietline_sim::topology::Topology;
use serde::Serialize;
use std::sync::Barrier;
use std::time::Instant;

/// The kernels that are compared.
pub const KERNELS: [&str; 6] =
    ["padded-counters", "shared-counter", "neighbour-counters", "spinlock", "queue-lock", "lockref-shared"];

/// Operations of each thread in a round, and rounds.
const OPS: u32 = 200_000;
const ROUNDS: usize = 15;

/// A kernel, measured and modelled.
#[derive(Debug, Clone, Serialize)]
pub struct Row {
    /// The kernel.
    pub kernel: &'static str,
    /// Nanoseconds an operation takes each thread: the median of the rounds, the least, the most.
    pub measured: [f64; 3],
    /// What the model says.
    pub modelled: f64,
}

/// All kernels on so many CPUs.
#[derive(Debug, Clone, Serialize)]
pub struct Validation {
    /// The machine that the model was given.
    pub machine: String,
    /// Threads and virtual CPUs.
    pub cpus: usize,
    /// The kernels.
    pub rows: Vec<Row>,
}

impl Validation {
    /// Measures and simulates. The threads should have a CPU each: `pin` is called in each with its number.
    ///
    /// # Errors
    /// [`Failed`].
    pub fn run(machine: &Topology, cpus: usize, pin: impl Fn(usize) + Sync) -> Result<Self, Failed> {
        let mut rows = Vec::new();
        for kernel in KERNELS {
            let operation = Operation::find(kernel).expect("a kernel of our own");
            let measured = measure(&operation, cpus, &pin);
            let plan = Plan { cpus, warm_up: 500, ops: 4000, ..Plan::default() };
            let modelled = operation.simulate(machine, &plan)?.0.ns_per_op();
            rows.push(Row { kernel, measured, modelled });
        }
        Ok(Self { machine: machine.name.clone(), cpus, rows })
    }
}

fn measure(operation: &Operation, cpus: usize, pin: &(impl Fn(usize) + Sync)) -> [f64; 3] {
    let stage = quietline_sim::simulation::Stage::new(cpus);
    let scene = (operation.scene)(cpus);
    let mut rounds: Vec<f64> = (0..ROUNDS)
        .map(|_| {
            let start = Barrier::new(cpus);
            let one = &|cpu: usize| {
                pin(cpu);
                let mut op = scene(cpu);
                start.wait();
                let began = Instant::now();
                (0..OPS).for_each(|_| op());
                began.elapsed().as_nanos() as f64 / f64::from(OPS)
            };
            let times: Vec<f64> = std::thread::scope(|scope| {
                let threads: Vec<_> = (0..cpus).map(|cpu| scope.spawn(move || one(cpu))).collect();
                threads.into_iter().map(|thread| thread.join().expect("a kernel does not panic")).collect()
            });
            times.iter().sum::<f64>() / cpus as f64
        })
        .collect();
    drop(stage);
    rounds.sort_by(f64::total_cmp);
    [rounds[ROUNDS / 2], rounds[0], rounds[ROUNDS - 1]]
}

impl fmt::Display for Validation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "{} threads here, {} virtual CPUs of {}; ns per operation",
            self.cpus, self.cpus, self.machine
        )?;
        writeln!(
            f,
            "{:20} {:>9} {:>19} {:>9} {:>15}",
            "kernel", "measured", "least..most", "modelled", "model/measured"
        )?;
        for row in &self.rows {
            let [median, least, most] = row.measured;
            let spread = format!("{least:.1}..{most:.1}");
            let ratio = row.modelled / median;
            writeln!(f, "{:20} {median:9.1} {spread:>19} {:9.1} {ratio:15.2}", row.kernel, row.modelled)?;
        }
        Ok(())
    }
}
