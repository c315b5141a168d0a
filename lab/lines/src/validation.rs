//! The model beside this machine: the same kernels by threads, timed, and by as many virtual CPUs.
//!
//! First what lines cost here is [measured](probe), and given to the model; then it has to say what the kernels cost. So
//! an error is the model's. A line of a kernel costs more or less by who has it when, which no probe knows.
//!
//! Outside a simulation the watched atomics cost a test of a thread-local more than real ones: about a nanosecond for
//! each access, which is in the measured figures.

mod meeting;
mod probe;

pub use probe::Probe;

use crate::Operation;
use core::fmt;
use meeting::Meeting;
use quietline_sim::simulation::{Failed, Plan};
use quietline_sim::topology::Topology;
use serde::Serialize;
use std::time::Instant;

/// The kernels that are compared: of a line of the CPU's own, then of lines that all want.
pub const UNCONTENDED: [&str; 3] = ["padded-counters", "lockref", "file-ref"];
/// As [`UNCONTENDED`].
pub const CONTENDED: [&str; 5] =
    ["shared-counter", "neighbour-counters", "spinlock", "queue-lock", "lockref-shared"];

/// Operations of each thread in a round, and before one; rounds. Short, so that most are not disturbed by who else uses
/// the machine.
const OPS: u32 = 20_000;
const WARM_UP: u32 = 500;
const ROUNDS: usize = 41;

/// Puts the calling thread on a CPU of this machine.
pub trait Pin: Sync {
    /// On the CPU with this number.
    fn pin(&self, cpu: usize);
}

impl<F: Fn(usize) + Sync> Pin for F {
    fn pin(&self, cpu: usize) {
        self(cpu);
    }
}

/// A kernel, measured and modelled.
#[derive(Debug, Clone, Serialize)]
pub struct Row {
    /// The kernel.
    pub kernel: &'static str,
    /// Whether its CPUs want the same line.
    pub contended: bool,
    /// Nanoseconds an operation takes each thread: the median of the rounds, the least, the most.
    pub measured: [f64; 3],
    /// What the model says.
    pub modelled: f64,
    /// By how much that is more than the median, as a part of it.
    pub error: f64,
}

/// All kernels on so many CPUs.
#[derive(Debug, Clone, Serialize)]
pub struct Validation {
    /// The machine that the model was given, but for what was probed.
    pub machine: String,
    /// Threads and virtual CPUs.
    pub cpus: usize,
    /// What lines cost here.
    pub probes: Vec<Probe>,
    /// Whether a load takes away the line that another has written.
    pub migratory: bool,
    /// The kernels.
    pub rows: Vec<Row>,
}

/// The smallest of the known machines that has so many CPUs.
///
/// # Errors
/// [`Failed::TooFew`] when none has: it names the largest.
pub fn machine_with(cpus: usize) -> Result<Topology, Failed> {
    let known = Topology::known().map(|name| Topology::load(name).expect("a machine of our own"));
    let mut known: Vec<_> = known.collect();
    // Of the same size one that is no particular machine.
    known.sort_by_key(|machine| (machine.cpus(), !machine.name.starts_with("one-socket")));
    let largest = known.last().map(|machine| (machine.name.clone(), machine.cpus()));
    known.into_iter().find(|machine| machine.cpus() >= cpus).ok_or_else(|| {
        let (machine, has) = largest.expect("there are machines");
        Failed::TooFew { machine, has, wanted: cpus }
    })
}

impl Validation {
    /// Measures and simulates, on the first `cpus` CPUs. The machine's file says which of them are near each other; `pin`
    /// is called in each thread with its CPU's number.
    ///
    /// # Errors
    /// [`Failed`]: when this machine or the model's has fewer CPUs, too.
    pub fn run(
        machine: &Topology,
        cpus: usize,
        pin: impl Fn(usize) + Sync,
    ) -> Result<Self, Failed> {
        let has = std::thread::available_parallelism().map_or(1, usize::from);
        for (name, has) in [("this machine", has), (machine.name.as_str(), machine.cpus())] {
            if has < cpus {
                return Err(Failed::TooFew { machine: name.to_owned(), has, wanted: cpus });
            }
        }
        let (here, probes) = probe::probe(machine, cpus, &pin);
        let mut rows = Vec::new();
        for (kernel, contended) in
            UNCONTENDED.map(|k| (k, false)).into_iter().chain(CONTENDED.map(|k| (k, true)))
        {
            let operation = Operation::find(kernel).expect("a kernel of our own");
            let measured = measure(&operation, cpus, &pin);
            let plan = Plan { cpus, warm_up: 500, ops: 4000, ..Plan::default() };
            let modelled = operation.simulate(&here, &plan)?.0.ns_per_op();
            rows.push(Row {
                kernel,
                contended,
                measured,
                modelled,
                error: modelled / measured[0] - 1.0,
            });
        }
        let migratory = here.core.migratory;
        Ok(Self { machine: machine.name.clone(), cpus, probes, migratory, rows })
    }
}

fn measure(operation: &Operation, cpus: usize, pin: &impl Pin) -> [f64; 3] {
    let stage = quietline_sim::simulation::Stage::new(cpus);
    let scene = (operation.scene)(cpus);
    let round = |_| {
        let start = Meeting::new(cpus);
        let one = &|cpu: usize| {
            pin.pin(cpu);
            let mut op = scene(cpu);
            (0..WARM_UP).for_each(|_| op());
            start.wait();
            let began = Instant::now();
            (0..OPS).for_each(|_| op());
            began.elapsed().as_nanos() as f64 / f64::from(OPS)
        };
        let times: Vec<f64> = std::thread::scope(|scope| {
            let threads: Vec<_> = (0..cpus).map(|cpu| scope.spawn(move || one(cpu))).collect();
            threads
                .into_iter()
                .map(|thread| thread.join().expect("a kernel does not panic"))
                .collect()
        });
        times.iter().sum::<f64>() / cpus as f64
    };
    let rounds = (0..ROUNDS).map(round).collect();
    drop(stage);
    spread(rounds)
}

/// The median, the least, the most.
fn spread(mut rounds: Vec<f64>) -> [f64; 3] {
    rounds.sort_by(f64::total_cmp);
    [rounds[rounds.len() / 2], rounds[0], rounds[rounds.len() - 1]]
}

impl fmt::Display for Validation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "What lines cost here, and the model was given; the rest is of {}:",
            self.machine
        )?;
        for Probe { what, ns: [median, least, most] } in &self.probes {
            let spread = format!("{least:.1}..{most:.1}");
            writeln!(f, "  {what:56} {median:7.1} {spread:>17}")?;
        }
        let takes = if self.migratory { "takes it away" } else { "leaves the writer a copy" };
        writeln!(f, "  A load of a line that another has written {takes}.\n")?;
        writeln!(f, "{} threads here, {} virtual CPUs; ns per operation", self.cpus, self.cpus)?;
        writeln!(
            f,
            "{:20} {:>9} {:>17} {:>9} {:>15} {:>7}",
            "kernel", "measured", "least..most", "modelled", "model/measured", "error"
        )?;
        for row in &self.rows {
            let [median, least, most] = row.measured;
            let spread = format!("{least:.1}..{most:.1}");
            let (ratio, error) = (row.modelled / median, row.error * 100.0);
            writeln!(
                f,
                "{:20} {median:9.1} {spread:>17} {:9.1} {ratio:15.2} {error:+6.0}%",
                row.kernel, row.modelled
            )?;
        }
        writeln!(
            f,
            "\nshared-counter is what the hand-over was measured with; the other kernels are predictions."
        )
    }
}
