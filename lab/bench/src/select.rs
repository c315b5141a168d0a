//! Names and patterns, turned into workloads, cases and columns.

use std::fmt::Write;
use std::sync::Arc;

use crate::Error;
use crate::adapters;
use crate::harness::Column;
use crate::workloads::{self, Case, Shown, Workload};

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
        let known =
            |workload: &&Workload| workload.cases.iter().any(|case| matches(given, case.name));
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

/// A chosen workload and the columns in which it is run.
pub type Batch = (Chosen, Vec<Arc<dyn Column>>);

/// Gives each of `chosen` the columns that `patterns` name, in the patterns' order and each once; a workload for which
/// none of them is there is left out. Without patterns: what the workload [shows](Shown), or its ladder if that is
/// asked for and it has one. With patterns and `ladder`: the columns of the ladder that match.
///
/// # Errors
///
/// A pattern that matches no column of any chosen workload.
pub fn columns(
    all: &[Arc<dyn Column>],
    chosen: Vec<Chosen>,
    patterns: &[String],
    ladder: bool,
) -> Result<Vec<Batch>, Error> {
    let allowed = |chosen: &Chosen, column: &Arc<dyn Column>| {
        let (workload, cases) = chosen;
        let shown = if ladder && workload.shown != Shown::Everything {
            Shown::Ladder
        } else {
            workload.shown
        };
        let wanted = match shown {
            Shown::Ladder if ladder || patterns.is_empty() => adapters::in_ladder(column.name()),
            Shown::Summary if patterns.is_empty() => adapters::in_summary(column.name()),
            _ => true,
        };
        wanted && cases.iter().any(|case| column.does(case.job))
    };
    let possible =
        || all.iter().filter(|column| chosen.iter().any(|chosen| allowed(chosen, column)));
    let known = |pattern: &&String| possible().any(|column| matches(pattern, column.name()));
    if let Some(given) = patterns.iter().find(|pattern| !known(pattern)) {
        let valid = list(possible().map(|column| column.name()));
        return Err(Error::UnknownColumn { given: given.clone(), valid });
    }
    let order: Vec<&Arc<dyn Column>> = match patterns {
        [] => all.iter().collect(),
        _ => patterns
            .iter()
            .flat_map(|p| all.iter().filter(|column| matches(p, column.name())))
            .collect(),
    };
    let with_columns = chosen.into_iter().map(|chosen| {
        let mut picked: Vec<Arc<dyn Column>> = Vec::new();
        for column in order.iter().filter(|column| allowed(&chosen, column)) {
            if !picked.iter().any(|other| other.name() == column.name()) {
                picked.push(Arc::clone(column));
            }
        }
        (chosen, picked)
    });
    Ok(with_columns.filter(|(_, picked)| !picked.is_empty()).collect())
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
        let _ =
            writeln!(text, "  {:<26} {} ({})", column.name(), column.says(), column.shape().name());
    }
    text
}

fn list<'a>(names: impl Iterator<Item = &'a str>) -> String {
    names.collect::<Vec<_>>().join(", ")
}
