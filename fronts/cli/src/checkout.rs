//! Programs that `ql` builds from its checkout and runs: `ql costs`, `ql report`.
//!
//! They are programs of their own, because their libraries would make the build of `ql` longer, and
//! because they count and measure the code of the checkout.

use anyhow::{Context, ensure};
use std::ffi::OsString;
use std::path::Path;
use std::process::{Command, ExitCode};

/// Builds a program in the profile `release` if a source has changed, and runs it. The exit status
/// is the program's.
pub(crate) fn run(
    command: &str,
    package: &str,
    program: &str,
    arguments: &[OsString],
) -> anyhow::Result<ExitCode> {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    let manifest = here.ancestors().nth(2).context("the crate lies in fronts/cli")?;
    let manifest = manifest.join("Cargo.toml");
    ensure!(
        manifest.is_file(),
        "`ql {command}` needs the checkout that ql was built from, and {} is gone",
        manifest.display()
    );
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let status = Command::new(&cargo)
        .args(["run", "--release", "--locked", "--quiet", "--manifest-path"])
        .arg(&manifest)
        .args(["-p", package, "--bin", program, "--"])
        .args(arguments)
        // Flags would make it other code than the ledger's.
        .env_remove("RUSTFLAGS")
        .env_remove("CARGO_ENCODED_RUSTFLAGS")
        .status()
        .with_context(|| {
            format!(
                "{} cannot be started; `ql {command}` builds {program} with it",
                cargo.display()
            )
        })?;
    Ok(ExitCode::from(status.code().and_then(|code| u8::try_from(code).ok()).unwrap_or(1)))
}
