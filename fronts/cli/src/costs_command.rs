//! `ql costs`: built from this program's checkout, and run. The counts are those of the code in the
//! checkout.

use crate::checkout;
use clap::Args;
use std::ffi::OsString;
use std::process::ExitCode;

/// Arguments of the counting program.
#[derive(Debug, Args)]
#[command(disable_help_flag = true)]
pub(crate) struct CostsArgs {
    /// As `ql costs --help` says, which is built first
    #[arg(trailing_var_arg = true, allow_hyphen_values = true, value_name = "ARGUMENT")]
    arguments: Vec<OsString>,
}

/// Builds and runs the counting program.
pub(crate) fn run(arguments: CostsArgs) -> anyhow::Result<ExitCode> {
    checkout::run("costs", "quietline-costs", "ql-costs", &arguments.arguments)
}
