//! The checkout that this program was built from.

use anyhow::{Context, bail, ensure};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// The checkout that this program was built from: ledger, documents, decisions, and the sources of
/// the model.
#[derive(Debug, Clone)]
pub struct Checkout {
    root: PathBuf,
}

impl Checkout {
    /// Finds the checkout.
    ///
    /// # Errors
    /// If it is gone.
    pub fn find() -> anyhow::Result<Self> {
        let here = Path::new(env!("CARGO_MANIFEST_DIR"));
        let root = here.ancestors().nth(2).context("the crate lies in lab/costs")?;
        ensure!(
            root.join("Cargo.toml").is_file(),
            "{} is gone, the checkout that this program was built from",
            root.display()
        );
        Ok(Self { root: root.to_owned() })
    }

    /// Path of the ledger.
    pub fn ledger(&self) -> PathBuf {
        self.root.join("lab/record/costs/ledger.jsonl")
    }

    /// Path of the rendered ledger.
    pub fn document(&self) -> PathBuf {
        self.root.join("docs/costs.md")
    }

    /// Checks that a decision record exists.
    ///
    /// # Errors
    /// If it does not.
    pub fn check_decision(&self, number: u32) -> anyhow::Result<()> {
        let folder = self.root.join("docs/adr");
        let prefix = format!("{number:04}-");
        for entry in folder.read_dir().with_context(|| folder.display().to_string())? {
            let name = entry?.file_name();
            let name = name.to_string_lossy();
            if name.starts_with(&prefix) && name.ends_with(".md") {
                return Ok(());
            }
        }
        bail!("there is no docs/adr/{prefix}*.md: write the decision down first")
    }

    /// Returns today's date, and the commit of the checkout: with a plus sign if files have changed
    /// since.
    ///
    /// # Errors
    /// If `git` or `date` fails.
    pub fn now(&self) -> anyhow::Result<(String, String)> {
        let date = self.output(Command::new("date").args(["-u", "+%F"]))?;
        let commit = self.output(Command::new("git").args(["rev-parse", "--short=12", "HEAD"]))?;
        let status = ["status", "--porcelain", "--untracked-files=no"];
        let changed = self.output(Command::new("git").args(status))?;
        Ok((date, commit + if changed.is_empty() { "" } else { "+" }))
    }

    /// Builds the simulated machine if need be, and runs it, with a variable in its environment.
    /// Returns what it prints.
    ///
    /// # Errors
    /// If it cannot be built, or fails.
    pub fn run_model(
        &self,
        arguments: &[&str],
        variable: Option<(&str, String)>,
    ) -> anyhow::Result<String> {
        let target = std::env::var_os("CARGO_TARGET_DIR").map_or("target".into(), PathBuf::from);
        let mut cargo = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
        // As the alias `lines` in .cargo/config.toml.
        cargo
            .args(["run", "--quiet", "--locked", "--profile", "sim"])
            .args(["--config", "build.rustflags=['--cfg','quietline_sim']", "--target-dir"])
            .arg(target.join("sim"))
            .args(["-p", "quietline-lines", "--bin", "ql-sim", "--"])
            .args(arguments)
            .envs(variable)
            .env_remove("RUSTFLAGS")
            .env_remove("CARGO_ENCODED_RUSTFLAGS")
            .stderr(Stdio::inherit());
        self.output(&mut cargo)
    }

    fn output(&self, command: &mut Command) -> anyhow::Result<String> {
        let program = command.get_program().to_string_lossy().into_owned();
        let output = command
            .current_dir(&self.root)
            .output()
            .with_context(|| format!("{program} cannot be started"))?;
        let said = String::from_utf8_lossy(&output.stderr);
        ensure!(output.status.success(), "{program}: {}\n{}", output.status, said.trim());
        Ok(String::from_utf8(output.stdout)?.trim().to_owned())
    }
}
