//! `ql bench`: the arguments, handed to the bench as they are.

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use bench::Options;
use clap::Args;

/// Time a job in quietline, in the ways of old kernels and in the kernel of this machine
///
/// Every thread is pinned, columns are interleaved in one run, results are checked before a time is told.
/// Prints one table per workload: ns per operation of each thread, the ratio to the host kernel (or to the
/// first column of the case) and the scaling from 1 thread. Exits with 1 if a check failed, with 2 if the request
/// was wrong.
#[derive(Debug, Args)]
#[command(after_long_help = EXAMPLES)]
pub(crate) struct BenchArgs {
    /// Workloads to run; all if none is named
    #[arg(value_name = "WORKLOAD")]
    workloads: Vec<String>,

    /// Thread counts; by default 1 and the powers of two up to the number of CPUs
    #[arg(short = 'n', long = "threads", value_name = "N,...", value_delimiter = ',')]
    threads: Vec<usize>,

    /// Columns to run, in this order; `*` in a name stands for any text
    #[arg(long, value_name = "A,B", value_delimiter = ',')]
    columns: Vec<String>,

    /// Cases to run instead of the workload's default ones; `*` in a name stands for any text
    #[arg(long = "case", value_name = "CASE,...", value_delimiter = ',')]
    cases: Vec<String>,

    /// Show the host kernel, each patch of the 2008 series and quietline (default for sockets; primitives have no ladder)
    #[arg(long)]
    ladder: bool,

    /// Short samples and few rounds: ends within 30 seconds for a workload
    #[arg(long)]
    quick: bool,

    /// How many rounds, each with one sample of every row
    #[arg(long, value_name = "N")]
    rounds: Option<u32>,

    /// How long a sample should take, in milliseconds
    #[arg(long, value_name = "MS")]
    sample_ms: Option<u64>,

    /// Take ratios from CPU time, for machines too noisy for wall time
    #[arg(long)]
    cpu_time: bool,

    /// Do not bind threads to CPUs
    #[arg(long)]
    no_pin: bool,

    /// Write machine, commit, rows and raw samples as JSON to FILE, `-` for the standard output
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,

    /// List the workloads, cases and columns, and run nothing
    #[arg(long)]
    list: bool,
}

const EXAMPLES: &str = "\
Examples:
  ql bench sockets -n 1,2                     host kernel, the 2008 series by patch, quietline
  ql bench sockets --columns 'host,quietline-*'
  ql bench sockets --case 'inet*,unix-stream' --quick
  ql bench pipes --ladder                     the same ladder for pipes
  ql bench anonfds --case timerfd --cpu-time
  ql bench primitives --case 'slab-*,rcu-*'   caches, RCU, counters and locks beside their peers
  ql bench --quick --json results.json        everything, for machines
  ql bench --list                             what there is to choose from";

impl From<BenchArgs> for Options {
    fn from(arguments: BenchArgs) -> Self {
        Self {
            workloads: arguments.workloads,
            cases: arguments.cases,
            threads: arguments.threads,
            columns: arguments.columns,
            ladder: arguments.ladder,
            quick: arguments.quick,
            rounds: arguments.rounds,
            sample: arguments.sample_ms.map(Duration::from_millis),
            cpu_time: arguments.cpu_time,
            no_pin: arguments.no_pin,
            json: arguments.json.map(Into::into),
            list: arguments.list,
        }
    }
}

/// Runs the bench. The exit status tells whether all results were right.
pub(crate) fn run(arguments: BenchArgs) -> anyhow::Result<ExitCode> {
    Ok(bench::run(&arguments.into())?.into())
}

/// 2 for a wrong request, as for wrong arguments; 1 for everything else.
pub(crate) fn exit_code(error: &anyhow::Error) -> ExitCode {
    let usage = error.downcast_ref::<bench::Error>().is_some_and(bench::Error::is_usage)
        || error.is::<crate::forward::WrongRequest>();
    ExitCode::from(if usage { 2 } else { 1 })
}
