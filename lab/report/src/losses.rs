//! Where another column is faster than the best of quietline's.

use crate::results::{Bench, Row};

/// A case at one number of threads that another column wins.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Loss {
    pub(crate) workload: String,
    pub(crate) case: String,
    pub(crate) threads: usize,
    /// The column that wins, and its median in nanoseconds.
    pub(crate) winner: String,
    pub(crate) winner_ns: f64,
    /// Samples of the column with the fewest.
    pub(crate) samples: usize,
    /// Quietline's fastest column, and its median in nanoseconds.
    pub(crate) ours: String,
    pub(crate) ours_ns: f64,
}

impl Loss {
    /// Returns how many times as long quietline's fastest column takes.
    pub(crate) fn ratio(&self) -> f64 {
        self.ours_ns / self.winner_ns
    }

    /// Returns whether the column that wins is one of the miniatures of old kernels, which have no
    /// descriptors, permissions or errors of allocation in most cases.
    pub(crate) fn is_to_miniature(&self) -> bool {
        self.winner.starts_with("history-")
    }
}

/// The column of the slab workload that allocates nothing: the cost of the loop.
const NOTHING: &str = "null";

/// Samples of a row that is compared.
pub(crate) const SAMPLES: usize = 3;

/// Returns all losses, the largest ratio first. Each column that wins has a row of its own, but for
/// the one that does nothing. Rows of fewer than [`SAMPLES`] samples are not compared.
pub(crate) fn losses(benches: &[Bench]) -> Vec<Loss> {
    let mut losses = Vec::new();
    for bench in benches {
        let checked =
            || bench.rows.iter().filter(|row| row.checked && row.samples.len() >= SAMPLES);
        for other in checked().filter(|row| !row.is_ours() && row.column != NOTHING) {
            let same = |row: &&Row| {
                row.is_ours()
                    && (&row.case, row.threads, &row.workload)
                        == (&other.case, other.threads, &other.workload)
            };
            let median = |row: &Row| row.median().unwrap_or(f64::MAX);
            let best = checked().filter(same).min_by(|a, b| median(a).total_cmp(&median(b)));
            let Some(ours) = best.filter(|ours| median(ours) > median(other)) else { continue };
            losses.push(Loss {
                workload: other.workload.clone(),
                case: other.case.clone(),
                threads: other.threads,
                winner: other.column.clone(),
                winner_ns: median(other),
                samples: other.samples.len().min(ours.samples.len()),
                ours: ours.column.clone(),
                ours_ns: median(ours),
            });
        }
    }
    losses.sort_by(|a, b| b.ratio().total_cmp(&a.ratio()));
    losses
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::results::{Machine, Sample, Settings};

    fn row(column: &str, threads: usize, ns: &[f64]) -> Row {
        Row {
            workload: "slab".into(),
            case: "pair".into(),
            column: column.into(),
            threads,
            checked: true,
            fault: None,
            samples: ns.iter().map(|ns| Sample { ns: vec![*ns], cpu_ns: vec![*ns] }).collect(),
        }
    }

    fn bench(rows: Vec<Row>) -> Bench {
        let machine = Machine {
            cpu_model: String::new(),
            cpus: 2,
            kernel: String::new(),
            rustc: String::new(),
        };
        let settings = Settings { sample_ns: 0, rounds: 3 };
        let (missing, slow_paths) = (Vec::new(), Vec::new());
        let commit = String::new();
        Bench { machine, commit, other_cpus: None, settings, rows, missing, slow_paths }
    }

    #[test]
    fn the_best_of_ours_counts() {
        let benches = [bench(vec![
            row("quietline", 1, &[5.0, 6.0, 7.0]),
            row("quietline-fast", 1, &[3.0, 3.0, 90.0]),
            row("peer-a", 1, &[2.0, 2.0, 2.0]),
            row("peer-b", 1, &[4.0, 4.0, 4.0]),
            row("peer-a", 2, &[1.0]),
            row("quietline", 3, &[2.0, 2.0, 2.0]),
            row("peer-a", 3, &[1.0, 1.0]),
        ])];
        let losses = losses(&benches);
        assert_eq!(losses.len(), 1, "{losses:?}");
        assert_eq!(
            (losses[0].winner.as_str(), losses[0].ours.as_str()),
            ("peer-a", "quietline-fast")
        );
        assert_eq!(losses[0].ratio(), 1.5);
    }

    #[test]
    fn unchecked_rows_win_nothing() {
        let mut wrong = row("peer-a", 1, &[1.0; 3]);
        wrong.checked = false;
        let nothing = row(NOTHING, 1, &[1.0; 3]);
        assert_eq!(losses(&[bench(vec![row("quietline", 1, &[5.0; 3]), wrong, nothing])]), []);
    }

    #[test]
    fn the_median_of_an_even_number_is_in_the_middle() {
        assert_eq!(row("peer-a", 1, &[4.0, 1.0]).median(), Some(2.5));
        assert_eq!(row("peer-a", 1, &[4.0, 1.0, 3.0]).median(), Some(3.0));
        assert_eq!(row("peer-a", 1, &[]).median(), None);
        assert_eq!(row("peer-a", 1, &[1.0; 9]).percentile(99), None);
        assert_eq!(row("peer-a", 1, &[1.0; 10]).percentile(99), Some(1.0));
    }
}
