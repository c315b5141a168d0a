//! `ql report`: built from this program's checkout, and run.

use crate::checkout;
use clap::Args;
use std::ffi::OsString;
use std::process::ExitCode;

/// Arguments of the reporting program.
#[derive(Debug, Args)]
#[command(disable_help_flag = true)]
pub(crate) struct ReportArgs {
    /// As `ql report --help` says, which is built first
    #[arg(trailing_var_arg = true, allow_hyphen_values = true, value_name = "ARGUMENT")]
    arguments: Vec<OsString>,
}

/// Builds and runs the reporting program.
pub(crate) fn run(arguments: ReportArgs) -> anyhow::Result<ExitCode> {
    checkout::run("report", "quietline-report", "ql-report", &arguments.arguments)
}
