//! `ql lines` and `ql forecast`: handed to the build that has the simulated machine.
//!
//! That build is another program, `ql-sim`, because every atomic in it is another type. It is looked for beside this one
//! and where cargo puts it; where it is not, the command that makes it is told.

use anyhow::{Context, bail};
use clap::Args;
use std::ffi::OsString;
use std::path::PathBuf;
use std::process::{Command, ExitCode};

/// What is handed on.
#[derive(Debug, Args)]
#[command(disable_help_flag = true)]
pub(crate) struct LinesArgs {
    /// As `ql lines --help` says, once it is built
    #[arg(trailing_var_arg = true, allow_hyphen_values = true, value_name = "ARGUMENT")]
    arguments: Vec<OsString>,
}

/// Hands the arguments on. The exit status is that of the other program.
pub(crate) fn run(command: &str, arguments: LinesArgs) -> anyhow::Result<ExitCode> {
    let Some(program) = places().into_iter().find(|place| place.is_file()) else {
        bail!(
            "this build runs on the real machine. In a checkout, `cargo {command} ...` builds the simulated one and runs \
             it; after that `ql {command}` finds it. (It may also lie beside ql, as ql-sim.)"
        );
    };
    let status = Command::new(&program)
        .arg(command)
        .args(&arguments.arguments)
        .status()
        .with_context(|| program.display().to_string())?;
    Ok(ExitCode::from(status.code().and_then(|code| u8::try_from(code).ok()).unwrap_or(1)))
}

/// Where the other program may lie: beside this one, or in the target folder that `cargo lines` uses.
fn places() -> Vec<PathBuf> {
    let Ok(here) = std::env::current_exe() else { return Vec::new() };
    let beside = here.with_file_name("ql-sim");
    // target/PROFILE/ql and target/sim/sim/ql-sim
    let target = here.ancestors().nth(2).map(|target| target.join("sim/sim/ql-sim"));
    // A ql of the normal build may be told to find one anywhere.
    let told = std::env::var_os("QUIETLINE_SIM").map(PathBuf::from);
    told.into_iter().chain(target).chain([beside]).filter(|place| *place != here).collect()
}
