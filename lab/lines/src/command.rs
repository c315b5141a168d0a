//! The arguments.

use clap::{Args, Parser, Subcommand};
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use quietline_lines::Operation;
use quietline_lines::conflicts::Conflicts;
use quietline_lines::costs;
use quietline_lines::forecast::{self, Forecast, Limit};
use quietline_lines::gate::Gate;
use quietline_lines::ladder::{self, Ladder, Model};
use quietline_lines::seeds;
use quietline_lines::sensitivity::{self, Conclusion};
use quietline_lines::validation::{self, Validation};
use quietline_sim::report::html;
use quietline_sim::topology::Topology;
use std::path::{Path, PathBuf};
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
    /// The ladder of 2008 on a model of its machine: beside its author's seconds, with latencies 30
    /// % off either way, and the contended lines of each rung
    Ladder {
        /// The machine by name, or the path of its file
        #[arg(long, default_value = "core2-2x4")]
        machine: String,
        /// Write the numbers as JSON to FILE
        #[arg(long, value_name = "FILE")]
        json: Option<PathBuf>,
    },
    /// The tables of the mail threads with the model's values beside them, and the error of each
    /// point
    Seeds {
        /// sockets-2008, inodes-2010 or epoll-2017; without one, all
        seeds: Vec<String>,
        /// Write the numbers as JSON to FILE
        #[arg(long, value_name = "FILE")]
        json: Option<PathBuf>,
    },
    /// Every operation that is held to its contended lines; fails when one has too many
    Gate {
        /// Write the numbers as JSON to FILE
        #[arg(long, value_name = "FILE")]
        json: Option<PathBuf>,
    },
    /// The columns of the cost ledger that the model counts, for operations of `ql costs`
    Costs {
        /// Operations by name; without one, all
        operations: Vec<String>,
        /// Write the rows as JSON to FILE; - is standard output, in place of the table
        #[arg(long, value_name = "FILE")]
        json: Option<PathBuf>,
    },
    /// One row of the cost ledger, as JSON
    #[command(hide = true)]
    CostsRow {
        operation: String,
        sharing: String,
    },
    /// The model beside this machine
    Validate {
        /// The machine that is most like this one [default: the smallest with so many CPUs]
        #[arg(long)]
        machine: Option<String>,
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
        #[arg(default_value_t = 0.0)]
        work: f64,
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
    /// sockets, pipes, anonfds, slab, paths, dcache, forward, events, nested-epoll, primitives, locks, or one operation of `ql lines`
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
    /// Nanoseconds of work of its own that a CPU does after each operation
    #[arg(long, value_name = "NS", default_value_t = 0.0)]
    work: f64,
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
        Command::Ladder { machine, json } => ladder(&machine, json.as_deref()),
        Command::Seeds { seeds, json } => compare(&seeds, json.as_deref()),
        Command::Gate { json } => gate(json.as_deref()),
        Command::Costs { operations, json } => costs(&operations, json.as_deref()),
        Command::CostsRow { operation, sharing } => costs_row(&operation, &sharing),
        Command::Validate { machine, cpus, json } => {
            validate(machine.as_deref(), cpus, json.as_deref())
        }
        Command::Point { column, machine, cpus, seed, work } => {
            point(&column, &machine, cpus, seed, work)
        }
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::from(2)
        }
    }
}

fn write_json(value: &impl serde::Serialize, file: Option<&Path>) -> Outcome {
    if let Some(file) = file {
        std::fs::write(file, serde_json::to_string_pretty(value)?)?;
    }
    Ok(())
}

fn lines(arguments: &Lines) -> Outcome {
    let Some(name) = &arguments.operation else {
        println!("Operations:");
        for Operation { name, says, .. } in Operation::all() {
            println!("  {name:32} {says}");
        }
        println!("Machines: {}", Topology::known().collect::<Vec<_>>().join(", "));
        return Ok(());
    };
    let operation = Operation::find(name)
        .ok_or_else(|| format!("no operation is called {name}; `ql lines` lists them"))?;
    let machine = Topology::load(&arguments.machine)?;
    let plan = forecast::plan(&operation, arguments.cpus, arguments.seed);
    let (_, report) = operation.simulate(&machine, &plan)?;
    println!("{report}");
    write_json(&report, arguments.json.as_deref())?;
    if let Some(file) = &arguments.html {
        std::fs::write(file, html::page(&report))?;
    }
    Ok(())
}

fn point(column: &str, machine: &str, cpus: usize, seed: u64, work_ns: f64) -> Outcome {
    let point = forecast::point(column, &Topology::load(machine)?, cpus, seed, work_ns)?;
    println!("{}", serde_json::to_string(&point)?);
    Ok(())
}

fn costs(operations: &[String], json: Option<&Path>) -> Outcome {
    let bar = progress();
    let done = |operation: &str, rows: usize| {
        bar.set_length(rows as u64);
        bar.set_message(operation.to_owned());
        bar.inc(1);
    };
    let sheet = costs::sheet(operations, &std::env::current_exe()?, done)?;
    bar.finish_and_clear();
    match json {
        Some(file) if file == Path::new("-") => {
            println!("{}", serde_json::to_string_pretty(&sheet)?);
            Ok(())
        }
        file => {
            print!("{sheet}");
            write_json(&sheet, file)
        }
    }
}

fn costs_row(operation: &str, sharing: &str) -> Outcome {
    println!("{}", serde_json::to_string(&costs::simulate(operation, sharing)?)?);
    Ok(())
}

fn draw(arguments: &ForecastArgs) -> Outcome {
    let ForecastArgs { workload, machine: name, seed, work, .. } = arguments;
    let machine = Topology::load(name)?;
    let mut cpus = arguments.cpus.clone();
    cpus.sort_unstable();
    cpus.dedup();
    if cpus.first() == Some(&0) || cpus.last().is_some_and(|most| *most > machine.cpus()) {
        return Err(format!("{} has 1 to {} CPUs", machine.name, machine.cpus()).into());
    }
    let program = std::env::current_exe()?;
    let bar = progress();
    let done = |column: &str, cpus: usize, all: usize| {
        bar.set_length(all as u64);
        bar.set_message(format!("{column} on {cpus}"));
        bar.inc(1);
    };
    let forecast = forecast::forecast(workload, name, &cpus, *seed, *work, &program, done)?;
    bar.finish_and_clear();
    print(&forecast, &cpus);
    write_json(&forecast, arguments.json.as_deref())?;
    if let Some(file) = &arguments.svg {
        std::fs::write(file, forecast::svg(&forecast)?)?;
    }
    Ok(())
}

/// A bar on the standard error, if that is a terminal: a forecast takes up to a minute.
fn progress() -> ProgressBar {
    let bar = ProgressBar::with_draw_target(Some(0), ProgressDrawTarget::stderr());
    let style = ProgressStyle::with_template("[{wide_bar}] {pos}/{len} {msg}");
    bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()));
    bar
}

/// A curve in a row: millions of operations a second, and the efficiency at the most CPUs.
fn print(forecast: &Forecast, cpus: &[usize]) {
    println!("{} on {}: million operations a second, by CPUs", forecast.workload, forecast.machine);
    if forecast.work_ns != 0.0 {
        println!("{} ns of other work after each", forecast.work_ns);
    }
    println!("not in the model: {}", forecast.blind_spots.join("; "));
    print!("{:31}", "");
    cpus.iter().for_each(|n| print!("{n:>10}"));
    println!(
        "{:>12}{:>6}  waited for most at the most CPUs; and where the curve first leaves the straight",
        "efficiency", "knee"
    );
    for curve in &forecast.curves {
        print!("{:31}", curve.column);
        curve.points.iter().for_each(|p| print!("{:10.3}", p.throughput / 1e6));
        let last = curve.points.last().expect("there is a point for each number");
        let end = last
            .bottleneck
            .as_ref()
            .map_or("nothing: no line is contended".to_owned(), |(line, wait)| {
                format!("{line} ({} ns an operation)", figure(*wait))
            });
        let first = match &curve.limit {
            Some(Limit { cpus, line, wait_ns }) if *cpus != last.cpus => {
                format!("; first {line} ({} ns on {cpus})", figure(*wait_ns))
            }
            _ => String::new(),
        };
        println!("{:12.3}{:6}  {end}{first}", curve.efficiency(last), curve.knee);
    }
}

fn figure(ns: f64) -> String {
    if ns < 10.0 { format!("{ns:.2}") } else { format!("{ns:.0}") }
}

/// What `ladder` finds.
#[derive(serde::Serialize)]
struct Climbed {
    ladders: Vec<Ladder>,
    conclusions: Vec<Conclusion>,
    conflicts: Conflicts,
}

fn ladder(machine: &str, json: Option<&Path>) -> Outcome {
    let machine = Topology::load(machine)?;
    let mut ladders = Vec::new();
    for latencies in sensitivity::LATENCIES {
        let ladder = Model::fitted(&machine, latencies, 1)?.ladder()?;
        println!("{ladder}");
        ladders.push(ladder);
    }
    let conclusions = sensitivity::conclusions(&ladders);
    println!("{}", sensitivity::Table(&conclusions));
    let conflicts = Conflicts::count(&machine, ladder::CPUS, 1)?;
    println!("{conflicts}");
    write_json(&Climbed { ladders, conclusions, conflicts }, json)
}

/// A thread, and its tables beside the model.
#[derive(serde::Serialize)]
struct Compared {
    seed: &'static str,
    tables: Vec<quietline_seeds::Comparison>,
}

fn compare(chosen: &[String], json: Option<&Path>) -> Outcome {
    let known = |seed: &String| seeds::MODELLED.contains(&seed.as_str());
    if let Some(seed) = chosen.iter().find(|seed| !known(seed)) {
        let known = seeds::MODELLED.join(", ");
        return Err(format!("the model has no answer to {seed}, only to {known}").into());
    }
    let mut compared = Vec::new();
    for seed in seeds::MODELLED {
        if chosen.is_empty() || chosen.iter().any(|name| name == seed) {
            let tables = seeds::comparisons(seed)?;
            println!("{seed}\n");
            tables.iter().for_each(|table| println!("{table}"));
            compared.push(Compared { seed, tables });
        }
    }
    write_json(&compared, json)
}

fn gate(json: Option<&Path>) -> Outcome {
    let gate = Gate::run()?;
    println!("{gate}");
    write_json(&gate, json)?;
    match gate.complaints().count() {
        0 => Ok(()),
        n => Err(format!("{n} operations touch more than they may").into()),
    }
}

fn validate(machine: Option<&str>, cpus: usize, json: Option<&Path>) -> Outcome {
    let machine = match machine {
        Some(machine) => Topology::load(machine)?,
        None => validation::machine_with(cpus)?,
    };
    let validation = Validation::run(&machine, cpus, pin)?;
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
