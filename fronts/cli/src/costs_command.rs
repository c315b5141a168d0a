//! `ql costs`: built from this program's checkout, and run.
//!
//! The counts are those of the code in the checkout. So the counting program, `ql-costs`, is built
//! anew when a source has changed, in the profile `release`. It is a program of its own, because
//! the libraries that decode instructions would make the build of `ql` longer.

use anyhow::{Context, ensure};
use clap::Args;
use std::ffi::OsString;
use std::path::Path;
use std::process::{Command, ExitCode};

/// Arguments of the counting program.
#[derive(Debug, Args)]
#[command(disable_help_flag = true)]
pub(crate) struct CostsArgs {
    /// As `ql costs --help` says, which is built first
    #[arg(trailing_var_arg = true, allow_hyphen_values = true, value_name = "ARGUMENT")]
    arguments: Vec<OsString>,
}

/// Builds and runs the counting program. The exit status is the program's.
pub(crate) fn run(arguments: CostsArgs) -> anyhow::Result<ExitCode> {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    let manifest = here.ancestors().nth(2).context("the crate lies in fronts/cli")?;
    let manifest = manifest.join("Cargo.toml");
    ensure!(
        manifest.is_file(),
        "`ql costs` counts the code of the checkout that ql was built from, and {} is gone",
        manifest.display()
    );
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let status = Command::new(&cargo)
        .args(["run", "--release", "--locked", "--quiet", "--manifest-path"])
        .arg(&manifest)
        .args(["-p", "quietline-costs", "--bin", "ql-costs", "--"])
        .args(&arguments.arguments)
        // Flags would make it other code than the ledger's.
        .env_remove("RUSTFLAGS")
        .env_remove("CARGO_ENCODED_RUSTFLAGS")
        .status()
        .with_context(|| {
            format!(
                "{} cannot be started; `ql costs` builds the counting program with it",
                cargo.display()
            )
        })?;
    Ok(ExitCode::from(status.code().and_then(|code| u8::try_from(code).ok()).unwrap_or(1)))
}
