//! One measurement: started by the parent, done in a process of its own.

use std::env;
use std::io::{self, Write};
use std::process::Command;

use super::{Case, Readings, Row, Subject};
use crate::harness::{Fault, Unfit};
use crate::{Error, Verdict};

/// In the child: measures, and prints the readings or what is wrong.
pub(super) fn measure_here(
    subjects: &[Subject],
    mut cases: impl Iterator<Item = Case>,
) -> Result<Verdict, Error> {
    let (Some(subject), Some(case)) = (subjects.first(), cases.next()) else {
        return Ok(Verdict::Failed);
    };
    match (subject.measure)(case) {
        Ok(readings) => {
            let text = serde_json::to_string(&readings).expect("numbers under names");
            writeln!(io::stdout(), "{text}").map_err(Error::output)?;
            Ok(Verdict::Checked)
        }
        Err(Unfit::Missing(reason)) => {
            eprintln!("{reason}");
            Ok(Verdict::Checked)
        }
        Err(Unfit::Broken(fault)) => {
            eprintln!("{fault}");
            Ok(Verdict::Failed)
        }
    }
}

/// In the parent: starts a child and reads what it says.
pub(super) fn measure(subject: &Subject, case: Case) -> Row {
    let row = |result| Row::new(subject, case, result);
    match start(subject, case) {
        Ok(result) => row(result),
        Err(fault) => row(Err(Unfit::Broken(fault))),
    }
}

fn start(subject: &Subject, case: Case) -> Result<Result<Readings, Unfit>, Fault> {
    let failed =
        |error: io::Error| Fault::new(format!("cannot start a process to measure in: {error}"));
    let output = Command::new(env::current_exe().map_err(failed)?)
        .args(["memory", "--measure", "--columns", subject.name])
        .args(["--sizes", &case.size.to_string(), "--objects", &case.objects.to_string()])
        .output()
        .map_err(failed)?;
    let said = String::from_utf8_lossy(&output.stderr).trim().to_owned();
    if !output.status.success() {
        return Err(Fault::new(format!("{}: {said}", output.status)));
    }
    if output.stdout.is_empty() {
        return Ok(Err(Unfit::Missing(said)));
    }
    let readings = serde_json::from_slice(&output.stdout);
    readings
        .map(Ok)
        .map_err(|error| Fault::new(format!("the process printed no readings: {error}")))
}
