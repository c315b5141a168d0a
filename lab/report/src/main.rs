//! `ql report`: runs all measurements and writes them into one page.
//!
//! ```text
//!   parts.rs     the commands: ql bench, ql-sim, ql costs; each writes JSON
//!   run.rs       runs the parts that have no result yet, one by one
//!   results.rs   reads the JSON
//!   measured.rs  measurements beside the tables of the thread of 2015
//!   losses.rs    rows in which another column is faster than ours
//!   plot.rs      curves
//!   page.rs      the page: templates/report.html
//!   figures.rs   figures of documents, taken from records
//! ```

mod figures;
mod losses;
mod measured;
mod page;
mod parts;
mod plot;
mod results;
mod run;

use anyhow::Context;
use clap::Parser;
use parts::Part;
use std::path::PathBuf;
use std::process::ExitCode;

/// Run all workloads, ladders, forecasts and the cost ledger, and write one page
///
/// Each part's JSON stays beside the page. A part that has a result of the same commit and options
/// is not run again, so an interrupted report goes on where it was. Exits with 1 if a part failed.
#[derive(Debug, Parser)]
#[command(name = "ql report", version)]
struct Cli {
    /// Short samples, few rounds and few points: some ten minutes on two CPUs instead of hours
    #[arg(long)]
    quick: bool,

    /// Build `ql` with these features: `peers`, and `peer-dpdk` where libdpdk is installed, add columns
    /// of other libraries to `bench slab`
    #[arg(long, value_name = "FEATURE,...", value_delimiter = ',')]
    features: Vec<String>,

    /// Run these parts only; `--list` names them
    #[arg(long, value_name = "PART,...", value_delimiter = ',')]
    only: Vec<String>,

    /// Run parts again that have a result
    #[arg(long)]
    again: bool,

    /// The folder for the page and the results [default: target/report/COMMIT, with -quick and the
    /// features]
    #[arg(long, value_name = "DIR")]
    dir: Option<PathBuf>,

    /// List the parts, and run nothing
    #[arg(long)]
    list: bool,

    /// Write the figures of the records into the documents, as docs/figures.toml says, and run nothing
    #[arg(long)]
    figures: bool,

    /// Exit with 1 if a document has another figure than its record, and run nothing
    #[arg(long, conflicts_with = "figures")]
    check_figures: bool,
}

fn main() -> anyhow::Result<ExitCode> {
    let cli = Cli::parse();
    let parts = parts::parts(cli.quick);
    if cli.list {
        parts.iter().for_each(|part| println!("{:24} {}", part.name, part.about));
        return Ok(ExitCode::SUCCESS);
    }
    let chosen = choose(parts, &cli.only)?;
    let checkout = run::Checkout::find(&cli.features)?;
    if cli.figures || cli.check_figures {
        let differences = figures::run(checkout.root(), cli.figures)?;
        differences.iter().for_each(|difference| println!("{difference}"));
        let is_wrong = cli.check_figures && !differences.is_empty();
        return Ok(if is_wrong { ExitCode::FAILURE } else { ExitCode::SUCCESS });
    }
    let dir = cli.dir.unwrap_or_else(|| checkout.default_dir(cli.quick));
    std::fs::create_dir_all(&dir).with_context(|| dir.display().to_string())?;
    let failed = run::all(&checkout, &chosen, &dir, cli.again)?;
    let page = page::render(&results::read(&dir, &chosen, &failed, cli.quick)?)?;
    let file = dir.join("report.html");
    std::fs::write(&file, page).with_context(|| file.display().to_string())?;
    println!("{}", file.display());
    Ok(if failed.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Returns the parts with these names, or all.
fn choose(parts: Vec<Part>, only: &[String]) -> anyhow::Result<Vec<Part>> {
    if let Some(name) = only.iter().find(|name| !parts.iter().any(|part| part.name == **name)) {
        anyhow::bail!("no part is called {name}; `ql report --list` names them");
    }
    Ok(parts.into_iter().filter(|p| only.is_empty() || only.contains(&p.name)).collect())
}
