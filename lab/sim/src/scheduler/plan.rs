//! What a simulation is to measure.

/// What a simulation is to measure.
#[derive(Debug, Clone)]
pub struct Plan {
    /// Virtual CPUs.
    pub cpus: usize,
    /// Seed of the noise: the same seed, the same result.
    pub seed: u64,
    /// Noise of latencies, in percent.
    pub jitter: f64,
    /// Operations of each CPU before anything is counted; a quarter more follows when all have done these.
    pub warm_up: u64,
    /// Operations for each CPU, on average, that are counted.
    pub ops: u64,
    /// Nanoseconds of each operation that concern no line: work that the scene leaves out.
    pub work_ns: f64,
    /// Nanoseconds between the beginnings of two operations of a CPU, if CPUs take turns. Their
    /// beginnings are evenly spaced, so operations do not overlap if they are short enough. Each
    /// CPU counts exactly `ops` operations, the first of which follows its `warm_up`th, and the
    /// ledger keeps the footprint of each. These counts do not depend on latencies and
    /// noise.
    pub turn_ns: Option<u64>,
}

impl Default for Plan {
    fn default() -> Self {
        Self { cpus: 2, seed: 1, jitter: 5.0, warm_up: 200, ops: 400, work_ns: 0.0, turn_ns: None }
    }
}
