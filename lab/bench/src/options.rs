//! What a caller asks of the bench.

use std::path::PathBuf;
use std::time::Duration;

use crate::Error;
use crate::harness::{Plan, pin};

/// The most threads that a run may use.
pub const MAX_THREADS: usize = 1024;

/// Everything the command line can say about a bench; [`Options::default`] is `ql bench` without arguments.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// Workloads by name; none means all.
    pub workloads: Vec<String>,
    /// Cases by name or pattern; none means each workload's default cases.
    pub cases: Vec<String>,
    /// Thread counts; none means 1 and the powers of two up to the number of CPUs.
    pub threads: Vec<usize>,
    /// Columns by name or pattern, in the order in which they are to be shown; none means the workload's own.
    pub columns: Vec<String>,
    /// The host kernel, every rung of the ladder and quietline, for any workload that has a ladder.
    pub ladder: bool,
    /// Short samples and few rounds: a workload ends within 30 seconds.
    pub quick: bool,
    /// Rounds, instead of the default.
    pub rounds: Option<u32>,
    /// Length of one sample, instead of the default.
    pub sample: Option<Duration>,
    /// Ratios from CPU time even if there is a CPU for every thread.
    pub cpu_time: bool,
    /// Let the scheduler place the threads.
    pub no_pin: bool,
    /// Where to write the results for machines.
    pub json: Option<JsonTarget>,
    /// Only print what there is to choose from.
    pub list: bool,
}

/// Where the JSON goes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum JsonTarget {
    /// The standard output; the tables then go to the standard error.
    Stdout,
    /// A file, replaced if it exists.
    File(PathBuf),
}

impl From<PathBuf> for JsonTarget {
    /// `-` is the standard output, as everywhere.
    fn from(path: PathBuf) -> Self {
        if path.as_os_str() == "-" { Self::Stdout } else { Self::File(path) }
    }
}

impl Options {
    /// The plan of measurement that these options ask for on this machine.
    ///
    /// # Errors
    ///
    /// A count of zero, or more than [`MAX_THREADS`] threads.
    pub fn plan(&self) -> Result<Plan, Error> {
        let cpus = pin::allowed_cpus();
        let mut threads = self.threads.clone();
        if threads.is_empty() {
            threads =
                (0..).map(|power| 1 << power).take_while(|&count| count <= cpus.len()).collect();
        }
        if let Some(&given) = threads.iter().find(|&&count| count == 0 || count > MAX_THREADS) {
            return Err(Error::ThreadCount { given, most: MAX_THREADS });
        }
        threads.sort_unstable();
        threads.dedup();
        let mut plan =
            if self.quick { Plan::quick(threads, cpus) } else { Plan::thorough(threads, cpus) };
        if let Some(rounds) = self.rounds {
            plan.rounds = rounds;
        }
        if let Some(sample) = self.sample {
            plan.sample = sample;
        }
        if plan.rounds == 0 {
            return Err(Error::Zero { what: "--rounds" });
        }
        if plan.sample.is_zero() {
            return Err(Error::Zero { what: "--sample-ms" });
        }
        plan.cpu_time = self.cpu_time;
        plan.pinned = !self.no_pin;
        Ok(plan)
    }
}
