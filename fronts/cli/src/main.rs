//! The command `ql`: arguments in, a library call, an exit status out.

mod bench_command;
mod checkout;
mod costs_command;
mod forward;
mod lines_command;
mod memory_command;
mod mount_command;
mod published;
mod report_command;
mod slabtop;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

/// The Linux kernel's object layer as a library, measured.
#[derive(Debug, Parser)]
#[command(name = "ql", version, arg_required_else_help = true)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    Bench(bench_command::BenchArgs),
    /// Which lines an operation touches, who shares them, and what that costs, on a simulated machine
    Lines(lines_command::LinesArgs),
    /// Throughput by number of CPUs, on a simulated machine
    Forecast(lines_command::LinesArgs),
    /// Count what public operations cost, and compare the counts with those of the ledger
    Costs(costs_command::CostsArgs),
    /// Run all measurements and write them into one page
    Report(report_command::ReportArgs),
    Slabtop(slabtop::SlabtopArgs),
    Memory(memory_command::MemoryArgs),
    Mount(mount_command::MountArgs),
    Forward(forward::ForwardArgs),
}

fn main() -> ExitCode {
    let cli = Cli::parse();
    let _published = published::start();
    let result = match cli.command {
        Command::Bench(arguments) => bench_command::run(arguments),
        Command::Lines(arguments) => lines_command::run("lines", arguments),
        Command::Forecast(arguments) => lines_command::run("forecast", arguments),
        Command::Costs(arguments) => costs_command::run(arguments),
        Command::Report(arguments) => report_command::run(arguments),
        Command::Slabtop(arguments) => slabtop::run(arguments),
        Command::Memory(arguments) => memory_command::run(arguments),
        Command::Mount(arguments) => mount_command::run(arguments),
        Command::Forward(arguments) => forward::run(arguments),
    };
    result.unwrap_or_else(|error| {
        eprintln!("error: {error:#}");
        bench_command::exit_code(&error)
    })
}
