//! The command `ql`: arguments in, a library call, an exit status out.

mod bench_command;

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
}

fn main() -> ExitCode {
    let cli = Cli::parse();
    let result = match cli.command {
        Command::Bench(arguments) => bench_command::run(arguments),
    };
    result.unwrap_or_else(|error| {
        eprintln!("error: {error:#}");
        bench_command::exit_code(&error)
    })
}
