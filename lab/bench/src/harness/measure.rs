//! The rounds: every row sampled once a round, there and back.

use std::sync::Arc;
use std::time::Instant;

use super::calibrate::calibrate;
use super::{Column, Crew, Fault, Plan, Progress, Sample, Shape, Unfit};
use crate::workloads::{Case, Workload};

/// What came of one workload.
#[derive(Debug)]
pub struct Measured {
    /// The workload.
    pub workload: &'static Workload,
    /// The columns in their order, those left out that are there for none of the cases.
    pub columns: Vec<String>,
    /// Rows by case, then thread count, then column.
    pub rows: Vec<Row>,
    /// The columns that have no such job.
    pub missing: Vec<Missing>,
}

/// One column doing one case with one number of threads.
#[derive(Debug)]
pub struct Row {
    /// The case's name.
    pub case: &'static str,
    /// The column's name.
    pub column: String,
    /// How its threads share descriptor tables.
    pub shape: Shape,
    /// How many threads.
    pub threads: usize,
    /// One sample per round; the index is the round. Ends early after a fault.
    pub samples: Vec<Sample>,
    /// Why the row has no figures, if a check failed.
    pub fault: Option<Fault>,
}

/// A column that cannot do a case.
#[derive(Debug, PartialEq, Eq)]
pub struct Missing {
    /// The case's name.
    pub case: &'static str,
    /// The column's name.
    pub column: String,
    /// Why not.
    pub reason: String,
}

impl Row {
    /// Whether every operation of the row gave a right result.
    pub fn checked(&self) -> bool {
        self.fault.is_none()
    }

    /// Wall ns per operation of a thread, by round.
    pub fn wall(&self) -> Vec<f64> {
        self.samples.iter().map(Sample::wall_ns).collect()
    }

    /// CPU ns per operation of a thread, by round.
    pub fn cpu(&self) -> Vec<f64> {
        self.samples.iter().map(Sample::cpu_ns).collect()
    }

    /// Operations timed, of all threads and rounds together.
    pub fn ops(&self) -> u64 {
        self.samples.iter().flat_map(|sample| &sample.ops).sum()
    }
}

impl Measured {
    /// The name of the column to which a case's ratios are taken: `host` if it is there for the case, else the first
    /// column that is.
    pub fn baseline(&self, case: &str) -> Option<&str> {
        let run = self.rows.iter().filter(|row| row.case == case).map(|row| &row.column);
        let not_run = self
            .missing
            .iter()
            .filter(|missing| missing.case == case)
            .map(|missing| &missing.column);
        let there: Vec<&String> = run.chain(not_run).collect();
        let mut columns = self.columns.iter().filter(|name| there.contains(name));
        let first = columns.next()?;
        let host = columns.find(|name| *name == "host");
        Some(host.unwrap_or(first))
    }

    /// The row of one column.
    pub fn row(&self, case: &str, column: &str, threads: usize) -> Option<&Row> {
        self.rows
            .iter()
            .find(|row| row.case == case && row.column == column && row.threads == threads)
    }
}

/// Measures `cases` of `workload` in `columns` as `plan` says. Cases come one after another; within a case
/// every column that is there for it is sampled at every thread count once a round, odd rounds in reverse order.
pub fn measure(
    workload: &'static Workload,
    cases: &[&'static Case],
    columns: &[Arc<dyn Column>],
    plan: &Plan,
    progress: &Progress,
) -> Measured {
    let used = columns.iter().filter(|column| cases.iter().any(|case| column.does(case.job)));
    let names = used.map(|column| column.name().to_owned()).collect();
    let mut measured = Measured { workload, columns: names, rows: Vec::new(), missing: Vec::new() };
    let started = Instant::now();
    let there = |case: &&Case| columns.iter().filter(|column| column.does(case.job)).count();
    let rows = cases.iter().map(there).sum::<usize>() * plan.threads.len();
    progress.expect(rows as u64 * u64::from(plan.rounds));
    for (index, case) in cases.iter().enumerate() {
        // Each case may use its share of what is left.
        let share = plan.budget.map(|budget| {
            let left = budget.saturating_sub(started.elapsed());
            Instant::now() + left / (cases.len() - index) as u32
        });
        measure_case(case, columns, plan, share, progress, &mut measured);
    }
    measured
}

/// A row and the crew that fills it.
struct Station {
    row: Row,
    /// The crew and its operations per sample; none after a fault.
    crew: Option<(Crew, u64)>,
}

fn measure_case(
    case: &'static Case,
    columns: &[Arc<dyn Column>],
    plan: &Plan,
    until: Option<Instant>,
    progress: &Progress,
    measured: &mut Measured,
) {
    let mut stations = Vec::new();
    for &threads in &plan.threads {
        for column in columns.iter().filter(|column| column.does(case.job)) {
            progress.announce(column.name());
            match station(case, column, threads, plan) {
                Ok(station) => stations.push(station),
                Err(missing) if measured.missing.contains(&missing) => {}
                Err(missing) => measured.missing.push(missing),
            }
        }
    }
    for round in 0..plan.rounds {
        let began = Instant::now();
        if round % 2 == 0 {
            stations.iter_mut().for_each(|station| station.sample(progress));
        } else {
            stations.iter_mut().rev().for_each(|station| station.sample(progress));
        }
        if until.is_some_and(|until| Instant::now() + began.elapsed() > until) {
            break;
        }
    }
    measured.rows.extend(stations.into_iter().map(|station| station.row));
}

/// Opens an arena, musters its crew, warms it up and calibrates it.
fn station(
    case: &'static Case,
    column: &Arc<dyn Column>,
    threads: usize,
    plan: &Plan,
) -> Result<Station, Missing> {
    let name = column.name().to_owned();
    let mut row = Row {
        case: case.name,
        column: name.clone(),
        shape: column.shape(),
        threads,
        samples: Vec::new(),
        fault: None,
    };
    let ready = match column.open(case.job, threads) {
        Ok(arena) => Crew::muster(arena, threads, plan).and_then(|mut crew| {
            let ops = calibrate(&mut crew, plan.sample)?;
            Ok((crew, ops))
        }),
        Err(Unfit::Missing(reason)) => {
            return Err(Missing { case: case.name, column: name, reason });
        }
        Err(Unfit::Broken(fault)) => Err(fault),
    };
    let crew = ready.map_err(|fault| row.fault = Some(fault)).ok();
    Ok(Station { row, crew })
}

impl Station {
    fn sample(&mut self, progress: &Progress) {
        progress.step(&self.row.column);
        let Some((crew, ops)) = &mut self.crew else { return };
        match crew.sample(*ops) {
            Ok(sample) => self.row.samples.push(sample),
            Err(fault) => {
                self.row.fault = Some(fault);
                self.crew = None;
            }
        }
    }
}
