//! Names and patterns, turned into workloads, cases and columns.

use std::fmt::Write;
use std::sync::Arc;

use crate::Error;
use crate::adapters;
use crate::harness::Column;
use crate::workloads::{self, Case, Workload};

/// A workload and the cases of it that were chosen.
pub type Chosen = (&'static Workload, Vec<&'static Case>);

/// The workloads called `names` (all if there are none) with their default cases, or, if `cases` names any,
/// with those; a workload that has none of them is left out.
///
/// # Errors
///
/// A name that no workload has, or a case that none of the chosen workloads has.
pub fn workloads(names: &[String], cases: &[String]) -> Result<Vec<Chosen>, Error> {
    let mut chosen: Vec<&'static Workload> = Vec::new();
    for name in names {
        let found = workloads::ALL.iter().find(|workload| workload.name == name);
        let Some(&workload) = found else {
            let valid = workloads::ALL.iter().map(|workload| workload.name);
            return Err(Error::UnknownWorkload { given: name.clone(), valid: list(valid) });
        };
        if !chosen.iter().any(|other| other.name == workload.name) {
            chosen.push(workload);
        }
    }
    if names.is_empty() {
        chosen = workloads::ALL.to_vec();
    }
    for given in cases {
        let known = |workload: &&Workload| workload.cases.iter().any(|case| matches(given, case.name));
        if !chosen.iter().any(known) {
            let all = chosen.iter().flat_map(|workload| workload.cases).map(|case| case.name);
            return Err(Error::UnknownCase { given: given.clone(), valid: list(all) });
        }
    }
    let with_cases = chosen.into_iter().map(|workload| (workload, cases_of(workload, cases)));
    Ok(with_cases.filter(|(_, cases)| !cases.is_empty()).collect())
}

fn cases_of(workload: &'static Workload, patterns: &[String]) -> Vec<&'static Case> {
    let wanted = |case: &&Case| match patterns {
        [] => case.by_default,
        _ => patterns.iter().any(|pattern| matches(pattern, case.name)),
    };
    workload.cases.iter().filter(wanted).collect()
}

/// The columns that `patterns` name, in the patterns' order and each once. Without patterns: those of the
/// ladder if it is asked for or is the workload's default, else the host kernel and quietline. With patterns
/// and `ladder`: the columns of the ladder that match.
///
/// # Errors
///
/// A pattern that matches no column.
pub fn columns(
    all: &[Arc<dyn Column>],
    workload: &Workload,
    patterns: &[String],
    ladder: bool,
) -> Result<Vec<Arc<dyn Column>>, Error> {
    let ladder_only = |column: &&Arc<dyn Column>| !ladder || adapters::in_ladder(column.name());
    if patterns.is_empty() {
        let by_default = |column: &&Arc<dyn Column>| match ladder || workload.ladder {
            true => adapters::in_ladder(column.name()),
            false => adapters::in_summary(column.name()),
        };
        return Ok(all.iter().filter(by_default).cloned().collect());
    }
    let mut picked: Vec<Arc<dyn Column>> = Vec::new();
    for pattern in patterns {
        let mut found = false;
        for column in all.iter().filter(ladder_only).filter(|column| matches(pattern, column.name())) {
            found = true;
            if !picked.iter().any(|other| other.name() == column.name()) {
                picked.push(column.clone());
            }
        }
        if !found {
            let valid = all.iter().filter(ladder_only).map(|column| column.name());
            return Err(Error::UnknownColumn { given: pattern.clone(), valid: list(valid) });
        }
    }
    Ok(picked)
}

/// Whether `name` fits `pattern`, in which `*` stands for any text.
pub fn matches(pattern: &str, name: &str) -> bool {
    let Some((start, rest)) = pattern.split_once('*') else { return pattern == name };
    let Some(mut name) = name.strip_prefix(start) else { return false };
    // Each further piece is taken where it first occurs; only the last one has to be at the end.
    let mut pieces: Vec<&str> = rest.split('*').collect();
    let end = pieces.pop().unwrap_or("");
    for piece in pieces {
        match name.find(piece) {
            Some(at) => name = &name[at + piece.len()..],
            None => return false,
        }
    }
    name.ends_with(end)
}

/// What there is to choose from, for people.
pub fn listing(columns: &[Arc<dyn Column>]) -> String {
    let mut text = String::from("Workloads and their cases (* runs by default):\n");
    for workload in workloads::ALL {
        // Writing to a String cannot fail.
        let _ = writeln!(text, "  {:<26} {}", workload.name, workload.says);
        for case in workload.cases {
            let _ = writeln!(text, "    {} {}", if case.by_default { '*' } else { ' ' }, case.name);
        }
    }
    text.push_str("\nColumns:\n");
    for column in columns {
        let _ = writeln!(text, "  {:<26} {} ({})", column.name(), column.says(), column.shape().name());
    }
    text
}

fn list<'a>(names: impl Iterator<Item = &'a str>) -> String {
    names.collect::<Vec<_>>().join(", ")
}
