//! How much is measured, and on which CPUs.

use std::time::Duration;

use super::pin;

/// The plan of a run: thread counts, sample length, rounds.
#[derive(Clone, Debug)]
pub struct Plan {
    /// Thread counts, ascending, each at least 1.
    pub threads: Vec<usize>,
    /// The CPUs to which threads are bound, in order; at least one.
    pub cpus: Vec<usize>,
    /// Whether threads are bound at all.
    pub pinned: bool,
    /// How long one sample should take.
    pub sample: Duration,
    /// How many rounds, each with one sample of every row.
    pub rounds: u32,
    /// No new round of a case begins when a workload would then exceed this, except the first.
    pub budget: Option<Duration>,
    /// Whether ratios come from CPU time at every thread count.
    pub cpu_time: bool,
}

impl Plan {
    /// The plan whose figures may be quoted: samples of 30 ms, 15 rounds.
    pub fn thorough(threads: Vec<usize>, cpus: Vec<usize>) -> Self {
        let (sample, rounds) = (Duration::from_millis(30), 15);
        Self { threads, cpus, pinned: true, sample, rounds, budget: None, cpu_time: false }
    }

    /// The plan that ends within 30 seconds a workload: samples of 15 ms, at most 11 rounds.
    pub fn quick(threads: Vec<usize>, cpus: Vec<usize>) -> Self {
        let (sample, rounds) = (Duration::from_millis(15), 11);
        let budget = Some(Duration::from_secs(22));
        Self { threads, cpus, pinned: true, sample, rounds, budget, cpu_time: false }
    }

    /// A plan so small that its figures mean nothing, for tests of everything but the figures.
    pub fn smoke(threads: Vec<usize>) -> Self {
        let (sample, rounds) = (Duration::from_micros(200), 3);
        let cpus = pin::allowed_cpus();
        Self { threads, cpus, pinned: true, sample, rounds, budget: None, cpu_time: false }
    }

    /// Whether figures at this thread count are compared by CPU time: asked for, or more threads than CPUs,
    /// where wall time mostly tells who was waiting for a CPU.
    pub fn compares_cpu_time(&self, threads: usize) -> bool {
        self.cpu_time || threads > self.cpus.len()
    }

    /// What the reader of the figures should know beforehand.
    pub fn warnings(&self) -> Vec<String> {
        let mut warnings = Vec::new();
        let cpus = self.cpus.len();
        if let Some(&most) = self.threads.iter().rfind(|&&threads| threads > cpus) {
            warnings.push(format!(
                "{most} threads on {cpus} CPUs: threads share CPUs, so ratios at more than {cpus} threads come \
                 from CPU time"
            ));
        }
        if cfg!(debug_assertions) {
            warnings.push("a debug build: the figures mean nothing; use --release".to_owned());
        }
        warnings
    }
}
