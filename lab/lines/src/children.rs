//! Simulations in processes of their own, so that each begins in the same state.

use serde::de::DeserializeOwned;
use std::path::Path;
use std::process::Command;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Runs `program ARGUMENTS` for each job, as many at once as this machine has CPUs. Returns the
/// value that each job prints as JSON, in the order of the jobs. Calls `done` with a job's index
/// when the job has ended.
pub(crate) fn run<T: DeserializeOwned + Send>(
    program: &Path,
    jobs: &[Vec<String>],
    done: impl Fn(usize) + Sync,
) -> Vec<Result<T, String>> {
    let (next, results) = (AtomicUsize::new(0), Mutex::new(Vec::new()));
    let work = || {
        loop {
            // Relaxed: a number that orders nothing.
            let index = next.fetch_add(1, Ordering::Relaxed);
            let Some(arguments) = jobs.get(index) else { return };
            let result = child(program, arguments);
            results.lock().unwrap_or_else(|e| e.into_inner()).push((index, result));
            done(index);
        }
    };
    let workers = std::thread::available_parallelism().map_or(1, usize::from);
    std::thread::scope(|scope| (0..workers).for_each(|_| drop(scope.spawn(work))));
    let mut results = results.into_inner().unwrap_or_else(|e| e.into_inner());
    results.sort_by_key(|(index, _)| *index);
    results.into_iter().map(|(_, result)| result).collect()
}

fn child<T: DeserializeOwned>(program: &Path, arguments: &[String]) -> Result<T, String> {
    let output = Command::new(program)
        .args(arguments)
        .output()
        .map_err(|error| format!("{}: {error}", program.display()))?;
    if !output.status.success() {
        return Err(format!(
            "{}\n{}",
            String::from_utf8_lossy(&output.stderr).trim(),
            output.status
        ));
    }
    serde_json::from_slice(&output.stdout).map_err(|error| error.to_string())
}
