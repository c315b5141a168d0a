//! `ql memory`: the arguments, handed to the bench as they are.

use std::path::PathBuf;
use std::process::ExitCode;

use bench::memory::Options;
use clap::Args;

/// Measure the memory that objects take beyond their own bytes, and how much of it comes back
///
/// Every measurement is a process of its own: it allocates all objects, writes every byte of each, frees them, and asks for
/// what is free to be given back. Prints the overhead of an object in bytes, and what is resident afterwards as a share of
/// what was before. Exits with 1 if an object did not hold what was written into it, with 2 if the request was wrong.
#[derive(Debug, Args)]
#[command(after_long_help = EXAMPLES)]
pub(crate) struct MemoryArgs {
    /// How many objects; 10 million of 256 bytes need 3 GB of memory
    #[arg(long, value_name = "N,...", value_delimiter = ',', default_values_t = bench::memory::OBJECTS)]
    objects: Vec<usize>,

    /// Bytes of an object
    #[arg(long, value_name = "N,...", value_delimiter = ',', default_values_t = bench::memory::SIZES)]
    sizes: Vec<usize>,

    /// Columns to run, in this order; `*` in a name stands for any text
    #[arg(long, value_name = "A,B", value_delimiter = ',')]
    columns: Vec<String>,

    /// Write machine, commit and readings as JSON to FILE, `-` for the standard output
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,

    /// Measure the first column and case in this process, and print the readings as JSON
    #[arg(long, hide = true)]
    measure: bool,
}

const EXAMPLES: &str = "\
Examples:
  ql memory --objects 1000,1000000            quietline, the C library, and the peers that this was built with
  ql memory --columns quietline,peer-jemalloc --sizes 64 --json memory.json";

impl From<MemoryArgs> for Options {
    fn from(arguments: MemoryArgs) -> Self {
        Self {
            objects: arguments.objects,
            sizes: arguments.sizes,
            columns: arguments.columns,
            json: arguments.json.map(Into::into),
            measure: arguments.measure,
        }
    }
}

/// Runs the measurements. The exit status tells whether all objects were right.
pub(crate) fn run(arguments: MemoryArgs) -> anyhow::Result<ExitCode> {
    Ok(bench::memory::run(&arguments.into())?.into())
}
