//! The parts' results, read from JSON.

use crate::measured;
use crate::parts::{Kind, Part};
use crate::run;
use anyhow::Context;
use quietline_seeds::Comparison;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use std::path::Path;

/// All results of a report.
#[derive(Debug, Default)]
pub(crate) struct Results {
    pub(crate) benches: Vec<Bench>,
    pub(crate) forecasts: Vec<Forecast>,
    pub(crate) seeds: Vec<SeedTables>,
    pub(crate) ladder: Option<Ladder>,
    pub(crate) costs: Option<serde_json::Value>,
    /// Parts that failed, and parts without a result.
    pub(crate) failed: Vec<String>,
    /// Whether samples are short and rounds few.
    pub(crate) quick: bool,
}

/// The result of `ql bench`.
#[derive(Debug, Deserialize)]
pub(crate) struct Bench {
    pub(crate) machine: Machine,
    pub(crate) commit: String,
    /// CPUs that others kept busy during the run, on average. Older records do not say it.
    #[serde(default)]
    pub(crate) other_cpus: Option<f64>,
    pub(crate) settings: Settings,
    pub(crate) rows: Vec<Row>,
    pub(crate) missing: Vec<MissingColumn>,
    /// Slow paths that packets took, by case and column of `forward`.
    #[serde(default)]
    pub(crate) slow_paths: Vec<SlowPaths>,
}

/// Slow paths that all packets of a column took together. Kinds that are not counted are `None`.
#[derive(Debug, Clone, Deserialize)]
pub(crate) struct SlowPaths {
    pub(crate) case: String,
    pub(crate) threads: usize,
    pub(crate) column: String,
    pub(crate) packets: u64,
    /// Changes of a slab's word, to free.
    pub(crate) slab_words: Option<u64>,
    /// Changes of a slab's word, to refill a CPU or to move the slab between lists.
    #[serde(default)]
    pub(crate) list_words: Option<u64>,
    /// Times that the lock of the node's list was taken.
    pub(crate) list_locks: Option<u64>,
    pub(crate) refills: Option<u64>,
    pub(crate) flushes: Option<u64>,
    pub(crate) barn: Option<u64>,
    pub(crate) shared_queue: Option<u64>,
}

/// The settings of a bench.
#[derive(Debug, Clone, PartialEq, Deserialize)]
pub(crate) struct Settings {
    pub(crate) sample_ns: u64,
    pub(crate) rounds: usize,
}

/// The machine that a bench ran on.
#[derive(Debug, Clone, PartialEq, Deserialize)]
pub(crate) struct Machine {
    pub(crate) cpu_model: String,
    pub(crate) cpus: usize,
    pub(crate) kernel: String,
    pub(crate) rustc: String,
}

/// A column of a case, at one number of threads.
#[derive(Debug, Clone, Deserialize)]
pub(crate) struct Row {
    pub(crate) workload: String,
    pub(crate) case: String,
    pub(crate) column: String,
    pub(crate) threads: usize,
    pub(crate) checked: bool,
    #[serde(default)]
    pub(crate) fault: Option<String>,
    pub(crate) samples: Vec<Sample>,
}

/// A sample: nanoseconds of an operation, by thread.
#[derive(Debug, Clone, Deserialize)]
pub(crate) struct Sample {
    /// By the clock on the wall.
    pub(crate) ns: Vec<f64>,
    /// Of the threads' CPU time.
    pub(crate) cpu_ns: Vec<f64>,
}

/// A column that has no row in a case.
#[derive(Debug, Deserialize)]
pub(crate) struct MissingColumn {
    pub(crate) workload: String,
    pub(crate) case: String,
    pub(crate) column: String,
    pub(crate) reason: String,
}

/// The result of `ql forecast`.
#[derive(Debug, Deserialize)]
pub(crate) struct Forecast {
    pub(crate) workload: String,
    pub(crate) machine: String,
    /// Nanoseconds of other work after each operation.
    pub(crate) work_ns: f64,
    pub(crate) blind_spots: Vec<String>,
    pub(crate) curves: Vec<Curve>,
}

/// A column of a forecast.
#[derive(Debug, Deserialize)]
pub(crate) struct Curve {
    pub(crate) column: String,
    pub(crate) points: Vec<Point>,
}

/// A point of a curve.
#[derive(Debug, Deserialize)]
pub(crate) struct Point {
    pub(crate) cpus: usize,
    pub(crate) throughput: f64,
    pub(crate) moved_lines: f64,
    pub(crate) bottleneck: Option<(String, f64)>,
}

/// A thread's tables beside ours.
#[derive(Debug, Deserialize)]
pub(crate) struct SeedTables {
    pub(crate) seed: String,
    pub(crate) tables: Vec<Comparison>,
}

/// The result of `ql-sim ladder`. The seconds of each rung are in the thread's tables.
#[derive(Debug, Deserialize)]
pub(crate) struct Ladder {
    pub(crate) conclusions: Vec<Conclusion>,
    pub(crate) conflicts: Conflicts,
}

/// A conclusion from the ladder: a ratio of seconds.
#[derive(Debug, Deserialize)]
pub(crate) struct Conclusion {
    pub(crate) says: String,
    pub(crate) reported: f64,
    /// The bounds within which it holds. The largest number stands for none.
    pub(crate) from: f64,
    pub(crate) to: f64,
    /// The model's ratios: latencies of the machine's file, 0.7 times these and 1.3 times these.
    pub(crate) modelled: Vec<f64>,
}

/// The contended lines of each rung.
#[derive(Debug, Deserialize)]
pub(crate) struct Conflicts {
    pub(crate) machine: String,
    pub(crate) cpus: usize,
    pub(crate) rungs: Vec<String>,
    pub(crate) lines: Vec<ContendedLine>,
    pub(crate) others: Vec<ContendedLine>,
    pub(crate) total: Vec<f64>,
}

/// A contended line: how often an operation gets it from another CPU, by rung.
#[derive(Debug, Deserialize)]
pub(crate) struct ContendedLine {
    pub(crate) line: String,
    pub(crate) says: String,
    pub(crate) moved: Vec<f64>,
}

/// Samples from which percentiles are shown.
pub(crate) const FEW: usize = 10;

/// Returns the middle of sorted values, or the mean of the two in the middle.
fn median(sorted: &[f64]) -> Option<f64> {
    let middle = sorted.len() / 2;
    let upper = sorted.get(middle)?;
    Some(if sorted.len() % 2 == 1 { *upper } else { (sorted[middle - 1] + upper) / 2.0 })
}

impl Bench {
    /// Returns whether it has rows of a workload.
    pub(crate) fn is_of(&self, workload: &str) -> bool {
        self.rows.iter().any(|row| row.workload == workload)
    }
}

impl Row {
    /// Returns the nanoseconds of all threads of all samples, sorted.
    fn sorted(&self, of: fn(&Sample) -> &Vec<f64>) -> Vec<f64> {
        let mut values: Vec<f64> = self.samples.iter().flat_map(of).copied().collect();
        values.sort_unstable_by(f64::total_cmp);
        values
    }

    /// Returns the median of nanoseconds on the wall, if there is a sample.
    pub(crate) fn median(&self) -> Option<f64> {
        median(&self.sorted(|sample| &sample.ns))
    }

    /// Returns the median of nanoseconds of CPU time, if there is a sample.
    pub(crate) fn cpu_median(&self) -> Option<f64> {
        median(&self.sorted(|sample| &sample.cpu_ns))
    }

    /// Returns the nanoseconds on the wall below which so many of a hundred samples lie, by nearest
    /// rank. Of few samples the highest ones are single events, so there is none below
    /// [`FEW`] samples.
    pub(crate) fn percentile(&self, percent: usize) -> Option<f64> {
        let values = self.sorted(|sample| &sample.ns);
        let rank = (values.len() * percent).div_ceil(100).max(1);
        values.get(rank - 1).copied().filter(|_| self.samples.len() >= FEW)
    }

    /// Returns whether the column is one of quietline's.
    pub(crate) fn is_ours(&self) -> bool {
        self.column == "quietline" || self.column.starts_with("quietline-")
    }
}

/// Reads the results of the parts.
///
/// # Errors
///
/// If a result is not of its form.
pub(crate) fn read(
    dir: &Path,
    parts: &[Part],
    failed: &[String],
    quick: bool,
) -> anyhow::Result<Results> {
    let mut results = Results { failed: failed.to_owned(), quick, ..Results::default() };
    for part in parts {
        let file = run::file(dir, part);
        if !file.is_file() {
            if !results.failed.contains(&part.name) {
                results.failed.push(part.name.clone());
            }
            continue;
        }
        match part.kind {
            Kind::Bench => results.benches.push(parse(&file)?),
            Kind::Forecast => results.forecasts.push(parse(&file)?),
            Kind::Seeds => results.seeds = parse(&file)?,
            Kind::Ladder => results.ladder = Some(parse(&file)?),
            Kind::Costs => results.costs = Some(parse(&file)?),
        }
    }
    results.seeds.push(measured::bulk_2015(&results.benches));
    Ok(results)
}

fn parse<T: DeserializeOwned>(file: &Path) -> anyhow::Result<T> {
    let says = || file.display().to_string();
    let text = std::fs::read_to_string(file).with_context(says)?;
    serde_json::from_str(&text).with_context(says)
}
