//! The arguments.

use clap::{Args, Parser, Subcommand};
use quietline_lines::Operation;
use quietline_lines::forecast::{self, Forecast};
use quietline_lines::ladder::Ladder;
use quietline_lines::validation::Validation;
use quietline_sim::report::html;
use quietline_sim::simulation::Plan;
use quietline_sim::topology::Topology;
use std::path::PathBuf;
use std::process::ExitCode;

/// Cache lines on simulated machines: which lines an operation dirties, who else wants them, and what that means on many
/// CPUs
#[derive(Debug, Parser)]
#[command(name = "ql", version, arg_required_else_help = true)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    Lines(Lines),
    Forecast(ForecastArgs),
    /// The ladder of 2008 on a model of its machine, beside its author's seconds, with latencies 30 % off either way
    Ladder {
        /// The machine by name, or the path of its file
        #[arg(long, default_value = "core2-2x4")]
        machine: String,
        /// Write the numbers as JSON to FILE
        #[arg(long, value_name = "FILE")]
        json: Option<PathBuf>,
    },
    /// The model beside this machine
    Validate {
        /// The machine that is most like this one
        #[arg(long, default_value = "one-socket-2")]
        machine: String,
        /// Threads, and virtual CPUs
        #[arg(long, default_value_t = 2)]
        cpus: usize,
        /// Write the numbers as JSON to FILE
        #[arg(long, value_name = "FILE")]
        json: Option<PathBuf>,
    },
    /// One point of a forecast, as JSON
    #[command(hide = true)]
    Point {
        column: String,
        machine: String,
        cpus: usize,
        seed: u64,
    },
}

/// Which lines an operation touches, who shares them, and what that costs
#[derive(Debug, Args)]
struct Lines {
    /// The operation; without one, all are listed
    operation: Option<String>,
    /// A machine by name, or the path of its file
    #[arg(long, default_value = "one-socket-16")]
    machine: String,
    /// Virtual CPUs
    #[arg(long, default_value_t = 2)]
    cpus: usize,
    /// Seed of the noise: the same seed, the same result
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Write the report as JSON to FILE
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Write the report as a page to FILE
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
}

/// Throughput by number of CPUs on a machine that need not be there
#[derive(Debug, Args)]
struct ForecastArgs {
    /// sockets, pipes, anonfds, slab, primitives, locks, or one operation of `ql lines`
    workload: String,
    /// A machine by name, or the path of its file
    #[arg(long)]
    machine: String,
    /// Numbers of CPUs
    #[arg(long, value_name = "N,...", value_delimiter = ',', required = true)]
    cpus: Vec<usize>,
    /// Seed of the noise: the same seed, the same result
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Write the numbers as JSON to FILE
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Write a plot to FILE
    #[arg(long, value_name = "FILE")]
    svg: Option<PathBuf>,
}

type Outcome = Result<(), Box<dyn std::error::Error>>;

pub(crate) fn main() -> ExitCode {
    quietline_sim::simulation::fix_addresses();
    let result = match Cli::parse().command {
        Command::Lines(arguments) => lines(&arguments),
        Command::Forecast(arguments) => draw(&arguments),
        Command::Ladder { machine, json } => ladder(&machine, json.as_ref()),
        Command::Validate { machine, cpus, json } => validate(&machine, cpus, json.as_ref()),
        Command::Point { column, machine, cpus, seed } => point(&column, &machine, cpus, seed),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::from(2)
        }
    }
}

fn write_json(value: &impl serde::Serialize, file: Option<&PathBuf>) -> Outcome {
    if let Some(file) = file {
        std::fs::write(file, serde_json::to_string_pretty(value)?)?;
    }
    Ok(())
}

fn lines(arguments: &Lines) -> Outcome {
    let Some(name) = &arguments.operation else {
        println!("Operations:");
        Operation::all().iter().for_each(|operation| println!("  {:24} {}", operation.name, operation.says));
        println!("Machines: {}", Topology::known().collect::<Vec<_>>().join(", "));
        return Ok(());
    };
    let operation = Operation::find(name)
        .ok_or_else(|| format!("no operation is called {name}; `ql lines` lists them"))?;
    let machine = Topology::load(&arguments.machine)?;
    let sized = forecast::plan(name, arguments.cpus, arguments.seed);
    let plan = Plan { warm_up: sized.warm_up.max(1100), ops: sized.ops.max(1100), ..sized };
    let (_, report) = operation.simulate(&machine, &plan)?;
    println!("{report}");
    write_json(&report, arguments.json.as_ref())?;
    if let Some(file) = &arguments.html {
        std::fs::write(file, html::page(&report))?;
    }
    Ok(())
}

fn point(column: &str, machine: &str, cpus: usize, seed: u64) -> Outcome {
    let point = forecast::point(column, &Topology::load(machine)?, &forecast::plan(column, cpus, seed))?;
    println!("{}", serde_json::to_string(&point)?);
    Ok(())
}

fn draw(arguments: &ForecastArgs) -> Outcome {
    let machine = Topology::load(&arguments.machine)?;
    let mut cpus = arguments.cpus.clone();
    cpus.sort_unstable();
    cpus.dedup();
    if cpus.first() == Some(&0) || cpus.last().is_some_and(|most| *most > machine.cpus()) {
        return Err(format!("{} has 1 to {} CPUs", machine.name, machine.cpus()).into());
    }
    let program = std::env::current_exe()?;
    let forecast =
        forecast::forecast(&arguments.workload, &arguments.machine, &cpus, arguments.seed, &program)?;
    print(&forecast, &cpus);
    write_json(&forecast, arguments.json.as_ref())?;
    if let Some(file) = &arguments.svg {
        std::fs::write(file, forecast::svg(&forecast)?)?;
    }
    Ok(())
}

/// A curve in a row: millions of operations a second, and the efficiency at the most CPUs.
fn print(forecast: &Forecast, cpus: &[usize]) {
    println!("{} on {}: million operations a second, by CPUs", forecast.workload, forecast.machine);
    print!("{:24}", "");
    cpus.iter().for_each(|n| print!("{n:>9}"));
    println!("{:>12}{:>6}  bottleneck at the most CPUs", "efficiency", "knee");
    for curve in &forecast.curves {
        print!("{:24}", curve.column);
        curve.points.iter().for_each(|p| print!("{:9.3}", p.throughput / 1e6));
        let last = curve.points.last().expect("there is a point for each number");
        let bottleneck = match &last.bottleneck {
            Some((line, wait)) => format!("{line} ({wait:.0} ns an operation)"),
            None => "none: no line is contended".to_owned(),
        };
        println!("{:12.3}{:6}  {bottleneck}", curve.efficiency(last), curve.knee);
    }
}

fn ladder(machine: &str, json: Option<&PathBuf>) -> Outcome {
    let machine = Topology::load(machine)?;
    let mut ladders = Vec::new();
    for latencies in [1.0, 0.7, 1.3] {
        let ladder = Ladder::climb(&machine, latencies, 1)?;
        println!("{ladder}");
        ladders.push(ladder);
    }
    write_json(&ladders, json)
}

fn validate(machine: &str, cpus: usize, json: Option<&PathBuf>) -> Outcome {
    let validation = Validation::run(&Topology::load(machine)?, cpus, pin)?;
    println!("{validation}");
    write_json(&validation, json)
}

/// Puts the thread on the CPU of its number, if it may be there.
fn pin(number: usize) {
    let mut only = rustix::thread::CpuSet::new();
    only.set(number);
    // Where it may not, the spread of the rounds shows it.
    let _ = rustix::thread::sched_setaffinity(None, &only);
}
