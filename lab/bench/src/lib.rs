//! The bench: the same job done by quietline, by the ways of old kernels and by the host kernel, timed side
//! by side.
//!
//! # The problem
//!
//! A claim such as "N CPUs open and close sockets N times as fast as one" has to be shown on machines that
//! are noisy, shared and smaller than the claim, by numbers that compare like with like and that belong to
//! work that was really done.
//!
//! # The usual way
//!
//! Time one program, then the other, and divide. Whatever the machine did in the meantime is then part of the
//! quotient, a loop that fails early looks fast, and an indirect call in the loop may cost more than what is
//! measured.
//!
//! # Our way
//!
//! Columns are interleaved: every round takes one short sample of every column at every thread count, odd
//! rounds in reverse order, and ratios are taken inside a round before their median is. Each thread is pinned
//! and starts at a common line; wall time and the thread's own CPU time are both kept. A sample is one call
//! into the column, with the loop inside it, compiled for that column alone. A row whose results were wrong
//! has no time, only the reason. *The seed* of a job is the mail thread that it is taken from: `docs/seeds.md`.
//!
//! ```text
//!   Options --> select --> workloads (what is done)     adapters (who does it)
//!                               \                          /
//!                            harness: crew of pinned threads, calibrate,
//!                                     rounds of samples, checks
//!                                          |
//!                                       Report --> table, JSON
//! ```
//!
//! # Guarantees
//!
//! * A row is reported as checked only if every operation of every sample succeeded, gave a result that obeys
//!   the column's rule, and left the column's counters where they were.
//! * `ns_per_op` is per thread: equal at 1 and N threads means linear scaling.
//! * The JSON form is a contract: names are only ever added.
//!
//! # Limits
//!
//! * Linux only. With more threads than CPUs the wall time of a thread says little: `ns_per_op` is then the
//!   time of the whole sample, and ratios are taken from CPU time.
//! * CPU time counts a spinning wait and leaves out a sleeping one.

pub mod adapters;
mod error;
pub mod harness;
pub mod machine;
pub mod memory;
mod options;
mod raw;
pub mod report;
pub mod select;
pub mod workloads;

use std::fs::File;
use std::io::{self, Write};
use std::time::Instant;

pub use error::Error;
pub use options::{JsonTarget, MAX_THREADS, Options};
pub use report::{Report, Verdict};

use harness::Progress;
use machine::Machine;

/// Runs the bench as `options` say and prints the tables, or what there is to choose from if
/// [`Options::list`] is set.
///
/// Tables go to the standard output (to the standard error if the JSON goes to the standard output), warnings
/// and the progress bar to the standard error.
///
/// # Errors
///
/// A name that does not exist, a thread count that cannot be, a file that cannot be written. A failed check
/// is no error: it is told by the [`Verdict`].
pub fn run(options: &Options) -> Result<Verdict, Error> {
    let columns = adapters::all();
    if options.list {
        let text = select::listing(&columns);
        io::stdout().write_all(text.as_bytes()).map_err(Error::output)?;
        return Ok(Verdict::Checked);
    }
    let plan = options.plan()?;
    let chosen = select::workloads(&options.workloads, &options.cases)?;
    let batches = select::columns(&columns, chosen, &options.columns, options.ladder)?;
    // Opened before the measurement, so that a path that cannot be written costs no one the run.
    let json = options.json.as_ref().map(JsonSink::open).transpose()?;

    let mut report = Report::new(Machine::observe(), machine::commit(), plan.clone());
    for warning in plan.warnings() {
        eprintln!("warning: {warning}");
    }
    for ((workload, cases), picked) in batches {
        let started = Instant::now();
        let progress = Progress::start(workload.name);
        let measured = harness::measure(workload, &cases, &picked, &plan, &progress);
        progress.finish();
        report.push(measured, started.elapsed());
        let table = report::table::render(&report, report.parts.len() - 1);
        match json {
            Some(JsonSink::Stdout) => eprintln!("{table}"),
            _ => writeln!(io::stdout(), "{table}").map_err(Error::output)?,
        }
    }
    if let Some(sink) = json {
        sink.write(&report)?;
    }
    Ok(report.verdict())
}

/// Where the JSON goes, already open.
enum JsonSink {
    Stdout,
    File(File, std::path::PathBuf),
}

impl JsonSink {
    fn open(target: &JsonTarget) -> Result<Self, Error> {
        match target {
            JsonTarget::Stdout => Ok(Self::Stdout),
            JsonTarget::File(path) => {
                let file = File::create(path).map_err(|source| Error::json(path, source))?;
                Ok(Self::File(file, path.clone()))
            }
        }
    }

    fn write(self, report: &Report) -> Result<(), Error> {
        self.write_text(&report::json::render(report))
    }

    fn write_text(self, text: &str) -> Result<(), Error> {
        match self {
            Self::Stdout => writeln!(io::stdout(), "{text}").map_err(Error::output),
            Self::File(mut file, path) => {
                writeln!(file, "{text}").map_err(|source| Error::json(&path, source))
            }
        }
    }
}
