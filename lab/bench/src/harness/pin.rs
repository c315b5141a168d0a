//! Which CPU a thread runs on.

use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

/// The CPUs on which this process may run, by number, at least one.
pub fn allowed_cpus() -> Vec<usize> {
    let mut cpus: Vec<usize> = match sched_getaffinity(None) {
        Ok(set) => (0..CpuSet::MAX_CPU).filter(|&cpu| set.is_set(cpu)).collect(),
        Err(_) => Vec::new(),
    };
    if cpus.is_empty() {
        cpus.push(0);
    }
    cpus
}

/// The CPU for a thread: the threads go round the CPUs in order.
///
/// # Panics
///
/// If `cpus` is empty.
pub fn cpu_of(thread: usize, cpus: &[usize]) -> usize {
    cpus[thread % cpus.len()]
}

/// Binds the calling thread to `cpu`.
///
/// # Errors
///
/// What `sched_setaffinity` says, for instance that the CPU went offline.
pub fn pin_to(cpu: usize) -> rustix::io::Result<()> {
    let mut set = CpuSet::new();
    set.set(cpu);
    sched_setaffinity(None, &set)
}
