//! The arguments.

use anyhow::{Context, bail, ensure};
use clap::{Parser, Subcommand};
use comfy_table::presets::UTF8_FULL_CONDENSED;
use comfy_table::{Cell, CellAlignment, Table};
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use quietline_costs::{
    Acceptance, COLUMNS, Checkout, Ledger, Operation, Sheet, compare, count, count_row, measure,
    measure_bytes, operations, plant_every_row, render,
};
use quietline_count::run_reproducibly;
use std::fs::OpenOptions;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

/// Count what public operations cost: instructions, locked instructions, system calls, cache lines,
/// bytes
///
/// Runs each operation one instruction at a time, and on the simulated machine. The counts are the
/// same in each run, so they can be compared with those of the committed ledger
/// (lab/record/costs/ledger.jsonl). Exits with 1 if the check fails, with 3 if this system lets no
/// program trace its child, with 2 after other errors.
#[derive(Debug, Parser)]
#[command(name = "ql costs", bin_name = "ql costs", version, after_long_help = EXAMPLES)]
#[command(args_conflicts_with_subcommands = true)]
struct Cli {
    /// Operations or groups, by name; without one, all operations
    #[arg(value_name = "OPERATION")]
    operations: Vec<String>,

    /// List the operations, and count nothing
    #[arg(long)]
    list: bool,

    /// Write the counts as JSON to FILE, `-` for the standard output
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,

    /// Compare the counts with the newest ones of the ledger; with --render, the document with the
    /// ledger
    #[arg(long)]
    check: bool,

    /// Append what has changed to the ledger, with the reason for it
    #[arg(long, value_name = "REASON", conflicts_with_all = ["check", "without_model"])]
    accept: Option<String>,

    /// Decision record (docs/adr) that lets counts grow by more than 3 % over their best
    #[arg(long, value_name = "NUMBER", requires = "accept")]
    adr: Option<u32>,

    /// Write the ledger as a document, docs/costs.md
    #[arg(long, conflicts_with_all = ["operations", "json", "accept", "list"])]
    render: bool,

    /// List the functions whose instructions an operation executes, and its locked instructions,
    /// fences and system calls
    #[arg(long, requires = "operations", conflicts_with_all = ["json", "accept", "check", "list"])]
    explain: bool,

    /// Leave out the columns of the simulated machine, which take a build of their own; such counts
    /// cannot be checked or accepted
    #[arg(long, conflicts_with = "check")]
    without_model: bool,

    #[command(subcommand)]
    child: Option<Child>,
}

/// What this program runs in processes of its own.
#[derive(Debug, Subcommand)]
enum Child {
    /// Counts of instructions, as numbers
    #[command(hide = true)]
    CountRow { operation: String },
    /// Counts of bytes, as numbers
    #[command(hide = true)]
    MeasureBytes { operation: String },
    /// The functions of an operation
    #[command(hide = true)]
    ExplainRow { operation: String },
    /// Plant a random slowdown in each operation, and look whether the check finds it
    #[command(hide = true)]
    Plant {
        #[arg(long, default_value_t = 1)]
        seed: u64,
        operations: Vec<String>,
    },
}

const EXAMPLES: &str = "\
Examples:
  ql costs                              all operations
  ql costs stat-3 descriptors           one operation and a group
  ql costs --check                      what the gate runs
  ql costs stat-3 --explain             where the instructions are
  ql costs --accept 'stat: one test more, for mount points'
  ql costs --render                     docs/costs.md
  ql costs --list                       what there is to choose from";

/// Exit status if this system lets no program trace its child.
const REFUSED: u8 = 3;

pub(crate) fn main() -> ExitCode {
    run(Cli::parse()).unwrap_or_else(|error| {
        eprintln!("error: {error:#}");
        let refused = format!("{error:#}").contains(REFUSAL);
        ExitCode::from(if refused { REFUSED } else { 2 })
    })
}

/// Beginning of the message of `quietline_count::Error::Refused`.
const REFUSAL: &str = "this system refuses to trace";

fn run(cli: Cli) -> anyhow::Result<ExitCode> {
    if let Some(child) = cli.child {
        return run_child(child);
    }
    if cli.render {
        return render_document(cli.check);
    }
    let (chosen, whole) = choose(&cli.operations)?;
    if cli.list {
        list(&chosen);
        return Ok(ExitCode::SUCCESS);
    }
    if cli.explain {
        return explain(&chosen);
    }
    let checkout = Checkout::find()?;
    let model = (!cli.without_model).then_some(&checkout);
    let sheet = sheet(&chosen, model)?;
    match &cli.json {
        Some(file) if file == Path::new("-") => print!("{}", sheet.to_json()),
        Some(file) => std::fs::write(file, sheet.to_json())
            .with_context(|| format!("{} cannot be written", file.display()))?,
        None => {}
    }
    let ledger = Ledger::read(&checkout.ledger())?;
    if let Some(reason) = cli.accept {
        let acceptance = Acceptance { reason, adr: cli.adr, whole };
        accept(&acceptance, &checkout, &ledger, &sheet)?;
        return Ok(ExitCode::SUCCESS);
    }
    if !cli.check {
        if cli.json.is_none() {
            print_table(&sheet, &chosen);
        }
        return Ok(ExitCode::SUCCESS);
    }
    ensure!(!ledger.entries.is_empty(), "{} is empty", checkout.ledger().display());
    let findings = compare(&ledger, &sheet, whole);
    if findings.0.is_empty() {
        println!("{} operations cost what the ledger says", sheet.rows.len());
    } else {
        println!("{findings}");
    }
    Ok(ExitCode::from(u8::from(findings.fail())))
}

/// Returns the operations with these names or of these groups, and whether they are all.
fn choose(names: &[String]) -> anyhow::Result<(Vec<Operation>, bool)> {
    let all = operations();
    for name in names {
        if !all.iter().any(|operation| operation.name == name || operation.group == name) {
            bail!("no operation or group is called {name}; `ql costs --list` lists them");
        }
    }
    if names.is_empty() {
        return Ok((all, true));
    }
    let chosen = |operation: &Operation| {
        names.iter().any(|name| operation.name == name || operation.group == name)
    };
    Ok((all.into_iter().filter(chosen).collect(), false))
}

fn list(chosen: &[Operation]) {
    let mut group = "";
    for operation in chosen {
        if operation.group != group {
            group = operation.group;
            println!("{group}:");
        }
        println!("  {:24} {}", operation.name, operation.about);
    }
}

/// Measures operations behind a progress bar.
fn sheet(chosen: &[Operation], model: Option<&Checkout>) -> anyhow::Result<Sheet> {
    ensure!(!cfg!(debug_assertions), "the counted code has debug assertions: build with --release");
    let length = Some(chosen.len() as u64);
    let bar = ProgressBar::with_draw_target(length, ProgressDrawTarget::stderr());
    let style = ProgressStyle::with_template("[{wide_bar}] {pos}/{len} {msg}");
    bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()));
    bar.set_message("the simulated machine");
    bar.tick();
    let sheet = measure(chosen, model, None, |name| {
        bar.set_message(name.to_owned());
        bar.inc(1);
    });
    bar.finish_and_clear();
    sheet
}

fn print_table(sheet: &Sheet, chosen: &[Operation]) {
    let mut table = Table::new();
    table.load_style(UTF8_FULL_CONDENSED);
    let mut header = vec![String::new()];
    header.extend(COLUMNS.map(|column| column.header().to_owned()));
    table.set_header(header);
    for operation in chosen {
        let row = sheet.rows[operation.name];
        let mut cells = vec![Cell::new(operation.name)];
        cells.extend(COLUMNS.map(|column| {
            let amount = row.get(column).map_or("-".to_owned(), |amount| amount.to_string());
            Cell::new(amount).set_alignment(CellAlignment::Right)
        }));
        table.add_row(cells);
    }
    println!("{table}\n{}, profile {}", sheet.compiler, sheet.profile);
}

fn accept(
    acceptance: &Acceptance,
    checkout: &Checkout,
    ledger: &Ledger,
    sheet: &Sheet,
) -> anyhow::Result<()> {
    ensure!(
        sheet.profile == "release",
        "the ledger is of the profile `release`, and this program was built in `{}`",
        sheet.profile
    );
    let path = checkout.ledger();
    let Some(entry) = acceptance.entry(checkout, ledger, sheet)? else {
        println!("nothing has changed");
        return Ok(());
    };
    let folder = path.parent().context("the ledger lies in a folder")?;
    std::fs::create_dir_all(folder).with_context(|| folder.display().to_string())?;
    let file = OpenOptions::new().create(true).append(true).open(&path);
    file.and_then(|mut file| file.write_all(entry.to_lines().as_bytes()))
        .with_context(|| format!("{} cannot be written", path.display()))?;
    println!("{}: {} rows", path.display(), entry.rows.len());
    println!("Now `ql costs --render`, and commit both files.");
    Ok(())
}

fn render_document(check: bool) -> anyhow::Result<ExitCode> {
    let checkout = Checkout::find()?;
    let (text, path) = (render(&Ledger::read(&checkout.ledger())?), checkout.document());
    if !check {
        std::fs::write(&path, text)
            .with_context(|| format!("{} cannot be written", path.display()))?;
        return Ok(ExitCode::SUCCESS);
    }
    let current = std::fs::read_to_string(&path).unwrap_or_default() == text;
    if !current {
        println!("{} is not what the ledger says: run `ql costs --render`", path.display());
    }
    Ok(ExitCode::from(u8::from(!current)))
}

/// Lists the functions of operations, each counted in a process as for the sheet.
fn explain(chosen: &[Operation]) -> anyhow::Result<ExitCode> {
    for operation in chosen {
        let mut child = Command::new(std::env::current_exe()?);
        let status = child.args(["explain-row", operation.name]).env_clear().status()?;
        ensure!(status.success(), "{}: {status}", operation.name);
    }
    Ok(ExitCode::SUCCESS)
}

fn run_child(child: Child) -> anyhow::Result<ExitCode> {
    let find = |name: &str| -> anyhow::Result<Operation> {
        let (found, _) = choose(&[name.to_owned()])?;
        Ok(found[0])
    };
    match child {
        Child::CountRow { operation } => {
            let numbers = count_row(&find(&operation)?)?.map(|number| number.to_string());
            println!("{}", numbers.join(" "));
        }
        Child::MeasureBytes { operation } => {
            let operation = find(&operation)?;
            run_reproducibly(|| {
                let bytes = measure_bytes(&operation);
                println!("{} {}", bytes.allocated, bytes.retained);
            })?;
        }
        Child::ExplainRow { operation } => {
            let counts = count(&find(&operation)?)?.with_frames();
            println!("{operation}: {} instructions of its own", counts.own.instructions);
            for (function, instructions) in counts.own.by_function() {
                println!("{instructions:7} {function}");
            }
            println!("All code: {counts}");
        }
        Child::Plant { seed, operations } => return plant(seed, &operations),
    }
    Ok(ExitCode::SUCCESS)
}

fn plant(seed: u64, names: &[String]) -> anyhow::Result<ExitCode> {
    let (chosen, _) = choose(names)?;
    let planted = plant_every_row(&chosen, &Checkout::find()?, seed, |planted| {
        let found = if planted.found { "found" } else { "NOT FOUND" };
        println!("{:24} {:18} {found}", planted.operation, planted.plant.text());
    })?;
    let missed = planted.iter().filter(|planted| !planted.found).count();
    println!("seed {seed}: {} slowdowns planted, {missed} not found", planted.len());
    Ok(ExitCode::from(u8::from(missed > 0)))
}
