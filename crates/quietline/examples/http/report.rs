//! The table.

use super::options::{Options, System};
use super::round::Sample;
use std::fmt::Write;
use std::time::Duration;

/// A system and its rounds.
pub(crate) struct Row {
    pub(crate) system: System,
    pub(crate) samples: Vec<Sample>,
}

impl Row {
    pub(crate) fn new(system: System) -> Self {
        Self { system, samples: Vec::new() }
    }
}

/// The median, the least and the most.
fn spread(mut numbers: Vec<f64>) -> [f64; 3] {
    numbers.sort_by(f64::total_cmp);
    let last = numbers.len() - 1;
    [(numbers[last / 2] + numbers[last.div_ceil(2)]) / 2.0, numbers[0], numbers[last]]
}

/// The table of all rows, which have a sample for each round.
pub(crate) fn table(options: &Options, rows: &[Row]) -> String {
    let plan = options.plan(false);
    let mut text = String::new();
    // Writing to a String cannot fail.
    let _ = writeln!(
        text,
        "{} workers, {} clients, {} connections, {} on their way on each, bodies of {} bytes; {} rounds, medians (least to most)",
        plan.workers, plan.clients, plan.connections, plan.pipeline, options.body, options.rounds
    );
    for row in rows {
        let [rate, least, most] = spread(row.samples.iter().map(|sample| sample.rate).collect());
        let latency = |which: usize| {
            let [median, ..] = spread(
                row.samples
                    .iter()
                    .map(|sample| sample.latencies[which].as_nanos() as f64)
                    .collect(),
            );
            Duration::from_nanos(median as u64)
        };
        let answers: u64 = row.samples.iter().map(|sample| sample.answers).sum();
        let shares: Vec<String> = row
            .samples
            .last()
            .map_or(Vec::new(), |sample| sample.shares.iter().map(u64::to_string).collect());
        let _ = writeln!(
            text,
            "{:<9} {rate:>9.0} requests/s ({least:.0} to {most:.0})   p50 {:>7.1?}  p99 {:>7.1?}  max {:>7.1?}   \
             {answers} answers checked; connections of the workers: {}",
            row.system.name(),
            latency(0),
            latency(1),
            latency(2),
            shares.join(", ")
        );
    }
    if let [ours, host] = rows {
        let ratios =
            ours.samples.iter().zip(&host.samples).map(|(ours, host)| ours.rate / host.rate);
        let [ratio, least, most] = spread(ratios.collect());
        let _ =
            writeln!(text, "quietline: {ratio:.2} times the host's rate ({least:.2} to {most:.2})");
    }
    text
}
