//! `ql slabtop`: the slab caches of a running process.

mod live;
mod table;

use std::io::{self, ErrorKind, IsTerminal};
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context, bail};
use clap::{Args, ValueEnum};
use quietline::observe::{self, Report};

/// Show the slab caches of a running process
///
/// Live in a terminal, once elsewhere. The process must publish its caches; a program does so by
/// quietline::observe::Observer, and `ql` itself if the environment variable QUIETLINE_OBSERVE is 1.
#[derive(Debug, Args)]
#[command(after_long_help = EXAMPLES)]
pub(crate) struct SlabtopArgs {
    /// The process by its number, or the path of its socket; not needed if only one publishes its caches
    #[arg(value_name = "PID|PATH")]
    process: Option<String>,

    /// Show it once, and do not clear the terminal
    #[arg(long, short = 'o')]
    once: bool,

    /// What comes first: one of slabtop's letters
    #[arg(long, short, value_name = "KEY", value_enum, default_value_t = table::Sort::Objects)]
    sort: table::Sort,

    /// Seconds from one look to the next
    #[arg(long, short, value_name = "SECONDS", default_value_t = 3.0, value_parser = seconds)]
    delay: f64,

    /// What to write; everything but a table is written once
    #[arg(long, short, value_enum, default_value_t = Format::Table)]
    format: Format,
}

const EXAMPLES: &str = "\
Keys, when live:
  q or Esc ends, the letters of --sort change the order, space looks again at once

Examples:
  ql slabtop                            the only process that publishes its caches
  ql slabtop 4711 --sort c              the largest caches first
  ql slabtop 4711 --format openmetrics  for Prometheus
  QUIETLINE_OBSERVE=1 ql bench pipes & ql slabtop --once";

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Format {
    /// For people
    Table,
    /// In the columns of /proc/slabinfo
    Slabinfo,
    /// For Prometheus and its kin
    Openmetrics,
    /// All there is, for programs
    Json,
}

fn seconds(text: &str) -> Result<f64, String> {
    match text.parse() {
        Ok(seconds) if (0.05..=86_400.0).contains(&seconds) => Ok(seconds),
        _ => Err("give seconds from 0.05 to 86400, such as `--delay 0.5`".into()),
    }
}

/// Shows a process's caches until the user has seen enough.
pub(crate) fn run(arguments: SlabtopArgs) -> anyhow::Result<ExitCode> {
    let path = choose(arguments.process.as_deref())?;
    let look = || observe::ask(&path).with_context(|| refused(&path));
    let report = look()?;
    if arguments.format == Format::Table && !arguments.once && io::stdout().is_terminal() {
        live::run(report, look, arguments.sort, Duration::from_secs_f64(arguments.delay))?;
    } else {
        write(&text(&report, arguments.format, arguments.sort)?)?;
    }
    Ok(ExitCode::SUCCESS)
}

fn text(report: &Report, format: Format, sort: table::Sort) -> anyhow::Result<String> {
    let mut text = String::new();
    match format {
        Format::Table => text = table::once(report, sort),
        Format::Slabinfo => report.slabinfo(&mut text)?,
        Format::Openmetrics => report.open_metrics(&mut text)?,
        Format::Json => text = serde_json::to_string(report)? + "\n",
    }
    Ok(text)
}

/// To the standard output; that its reader has seen enough is no error.
fn write(text: &str) -> anyhow::Result<()> {
    match io::Write::write_all(&mut io::stdout(), text.as_bytes()) {
        Err(error) if error.kind() == ErrorKind::BrokenPipe => Ok(()),
        other => other.context("cannot write to the standard output"),
    }
}

/// The socket of the process that is meant.
fn choose(process: Option<&str>) -> anyhow::Result<PathBuf> {
    if let Some(process) = process {
        return Ok(match process.parse() {
            Ok(pid) => observe::default_path(pid)?,
            Err(_) => process.into(),
        });
    }
    let mut found = observe::processes().context("cannot look for processes")?;
    found.retain(|observed| observed.pid != std::process::id());
    match &found[..] {
        [only] => Ok(only.path.clone()),
        [] => bail!("no process of yours publishes its caches; {HOW}"),
        several => {
            let pids: Vec<_> = several.iter().map(|observed| observed.pid.to_string()).collect();
            bail!(
                "several processes publish their caches; give one of their numbers: {}",
                pids.join(", ")
            )
        }
    }
}

const HOW: &str = "a program does by quietline::observe::Observer, and `ql` if QUIETLINE_OBSERVE=1 is in its \
     environment, such as `QUIETLINE_OBSERVE=1 ql bench pipes`";

fn refused(path: &std::path::Path) -> String {
    format!("no process publishes its caches at {}; {HOW}", path.display())
}
