//! Runs parts in the checkout that this program was built from.

use crate::parts::{Part, Program};
use anyhow::{Context, ensure};
use indicatif::{ProgressBar, ProgressStyle};
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

/// The checkout: where cargo builds the programs.
pub(crate) struct Checkout {
    root: PathBuf,
    cargo: OsString,
    /// Features that `ql` is built with.
    features: String,
}

impl Checkout {
    /// Finds the checkout. `ql` will be built with these features.
    ///
    /// # Errors
    ///
    /// If it is gone.
    pub(crate) fn find(features: &[String]) -> anyhow::Result<Self> {
        let here = Path::new(env!("CARGO_MANIFEST_DIR"));
        let root = here.ancestors().nth(2).context("the crate lies in lab/report")?.to_owned();
        ensure!(
            root.join("Cargo.toml").is_file(),
            "`ql report` measures the code of the checkout that it was built from, and {} is gone",
            root.display()
        );
        let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
        Ok(Self { root, cargo, features: features.join(",") })
    }

    /// Returns the root of the checkout.
    pub(crate) fn root(&self) -> &Path {
        &self.root
    }

    /// Returns the folder for the results of the present commit.
    pub(crate) fn default_dir(&self, quick: bool) -> PathBuf {
        let commit = self.git(&["describe", "--always", "--dirty", "--abbrev=12", "--exclude=*"]);
        let commit = commit.unwrap_or_else(|| "unknown".to_owned());
        let quick = if quick { "-quick" } else { "" };
        let separator = if self.features.is_empty() { "" } else { "-" };
        let features = self.features.replace(',', "-");
        self.root.join("target/report").join(format!("{commit}{quick}{separator}{features}"))
    }

    fn git(&self, arguments: &[&str]) -> Option<String> {
        let output = Command::new("git").arg("-C").arg(&self.root).args(arguments).output().ok()?;
        let text = String::from_utf8(output.stdout).ok()?.trim().to_owned();
        (output.status.success() && !text.is_empty()).then_some(text)
    }

    /// Returns a command that builds a program if need be, and runs it.
    fn program(&self, program: Program) -> Command {
        let mut command = Command::new(&self.cargo);
        command.args(["run", "--quiet", "--locked", "--manifest-path"]);
        command.arg(self.root.join("Cargo.toml"));
        match program {
            Program::Ql => command
                .args(["--profile", "record", "-p", "quietline-cli", "--bin", "ql"])
                .args(["--features", &self.features]),
            Program::Sim => command
                .args(["--profile", "sim", "--config", "build.rustflags=['--cfg','quietline_sim']"])
                .arg("--target-dir")
                .arg(self.root.join("target/sim"))
                .args(["-p", "quietline-lines", "--bin", "ql-sim"]),
        };
        command.arg("--");
        // Flags would make it other code than the records'.
        command.env_remove("RUSTFLAGS").env_remove("CARGO_ENCODED_RUSTFLAGS");
        command
    }
}

/// Runs every part that has no result in the folder. Returns the names of those that failed.
///
/// # Errors
///
/// If a program cannot be started or a file cannot be written.
pub(crate) fn all(
    checkout: &Checkout,
    parts: &[Part],
    dir: &Path,
    again: bool,
) -> anyhow::Result<Vec<String>> {
    let bar = ProgressBar::new(parts.len() as u64);
    let style = ProgressStyle::with_template("[{elapsed_precise}] {pos}/{len} {wide_msg}");
    bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()));
    bar.enable_steady_tick(Duration::from_secs(1));
    let mut failed = Vec::new();
    for part in parts {
        bar.set_message(part.name.clone());
        if bar.is_hidden() {
            eprintln!("{}/{} {}", bar.position() + 1, parts.len(), part.name);
        }
        if (again || !file(dir, part).is_file()) && !run(checkout, part, dir)? {
            let said = format!("{} failed: see {}", part.name, log(dir, part).display());
            bar.suspend(|| eprintln!("{said}"));
            failed.push(part.name.clone());
        }
        bar.inc(1);
    }
    bar.finish_and_clear();
    Ok(failed)
}

/// Returns the file of a part's result.
pub(crate) fn file(dir: &Path, part: &Part) -> PathBuf {
    dir.join(format!("{}.json", part.name))
}

fn log(dir: &Path, part: &Part) -> PathBuf {
    dir.join(format!("{}.txt", part.name))
}

/// Runs a part. Its output goes to a file beside the result, which appears when it is whole.
/// Returns whether the part succeeded.
fn run(checkout: &Checkout, part: &Part, dir: &Path) -> anyhow::Result<bool> {
    let unfinished = dir.join(format!("{}.json.unfinished", part.name));
    let output = std::fs::File::create(log(dir, part))
        .with_context(|| log(dir, part).display().to_string())?;
    let status = checkout
        .program(part.program)
        .args(&part.arguments)
        .arg("--json")
        .arg(&unfinished)
        .stdin(Stdio::null())
        .stdout(output.try_clone()?)
        .stderr(output)
        .status()
        .with_context(|| format!("{} cannot be started", checkout.cargo.display()))?;
    // A bench with a failed check has results too: the page shows the reasons.
    if unfinished.is_file() {
        let result = file(dir, part);
        std::fs::rename(&unfinished, &result).with_context(|| result.display().to_string())?;
    }
    Ok(status.success())
}
