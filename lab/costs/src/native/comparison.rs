//! The comparison of a sheet with the ledger.

use super::{COLUMNS, Checkout};
use crate::{Amount, Column, Entry, Ledger, Row, Sheet};
use anyhow::ensure;
use core::fmt;
use std::collections::BTreeMap;

/// Percent that a count may grow by over its best value without a decision record.
const CUMULATIVE: u64 = 3;

/// A difference between the sheet and the newest entries of the ledger.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Finding {
    /// A count has grown by more than its tolerance.
    Grown(Change),
    /// A count is smaller.
    Shrunk(Change),
    /// A row of the ledger was not measured: its operation is no more.
    Missing(String),
    /// A row, or a column of it, is not in the ledger.
    New(String),
    /// An entry of the ledger lets a count grow too far, and names no decision record.
    Undecided(Change),
    /// The counted code was made by another compiler, or in another profile.
    OtherBuild {
        /// Compiler and profile of the ledger.
        ledger: String,
        /// Compiler and profile of the sheet.
        sheet: String,
    },
}

/// Two values of a count.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Change {
    /// The operation's name.
    pub operation: String,
    /// The column.
    pub column: Column,
    /// The newest value in the ledger.
    pub before: Amount,
    /// The value in the sheet.
    pub after: Amount,
}

/// All differences.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Findings(pub Vec<Finding>);

impl Finding {
    /// Whether the check fails.
    pub fn is_failure(&self) -> bool {
        !matches!(self, Self::Shrunk(_))
    }
}

/// Compares a sheet with the ledger. `whole`: the sheet has all operations, so that a row of the
/// ledger without one is missing. Columns that the sheet lacks are not compared.
pub fn compare(ledger: &Ledger, sheet: &Sheet, whole: bool) -> Findings {
    let mut findings = Vec::new();
    if let Some(build) = ledger.build() {
        let (ledger, now) = (build, (sheet.compiler.as_str(), sheet.profile.as_str()));
        if ledger != now {
            let text = |(compiler, profile): (&str, &str)| format!("{compiler}, {profile}");
            findings.push(Finding::OtherBuild { ledger: text(ledger), sheet: text(now) });
        }
    }
    let newest = ledger.newest();
    for (name, row) in &sheet.rows {
        let Some(before) = newest.get(name) else {
            findings.push(Finding::New((*name).to_owned()));
            continue;
        };
        for column in COLUMNS {
            let Some(after) = row.get(column) else { continue };
            let Some(before) = before.get(column) else {
                findings.push(Finding::New(format!("{name}: {}", column.key())));
                continue;
            };
            let change = Change { operation: (*name).to_owned(), column, before, after };
            if after.exceeds(before, column.tolerance()) {
                findings.push(Finding::Grown(change));
            } else if after < before {
                findings.push(Finding::Shrunk(change));
            }
        }
    }
    let gone = newest.keys().filter(|name| whole && !sheet.rows.contains_key(*name));
    findings.extend(gone.map(|name| Finding::Missing((*name).to_owned())));
    findings.extend(undecided(ledger).into_iter().map(Finding::Undecided));
    Findings(findings)
}

impl Findings {
    /// Whether the check fails.
    pub fn fail(&self) -> bool {
        self.0.iter().any(Finding::is_failure)
    }

    /// Counts of one operation that have grown, by column.
    pub fn grown(&self, operation: &str) -> Vec<Column> {
        let grown = |finding: &Finding| match finding {
            Finding::Grown(change) if change.operation == operation => Some(change.column),
            _ => None,
        };
        self.0.iter().filter_map(grown).collect()
    }
}

impl fmt::Display for Change {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { operation, column, before, after } = self;
        write!(f, "{operation}: {} {before} -> {after}", column.key())?;
        if before.thousandths() > 0 {
            let (before, after) = (before.thousandths() as f64, after.thousandths() as f64);
            write!(f, " ({:+.1} %)", (after / before - 1.0) * 100.0)?;
        }
        Ok(())
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Grown(change) => write!(f, "grown:   {change}"),
            Self::Shrunk(change) => write!(f, "shrunk:  {change}"),
            Self::Missing(name) => write!(f, "missing: {name} is in the ledger, and no more"),
            Self::New(name) => write!(f, "new:     {name} is not in the ledger"),
            Self::Undecided(change) => write!(
                f,
                "undecided: {change}, more than {CUMULATIVE} % above the best: its entry in the \
                 ledger names no decision record"
            ),
            Self::OtherBuild { ledger, sheet } => write!(
                f,
                "build:   the ledger is of {ledger}, this program of {sheet}; the counts of two \
                 compilers or profiles cannot be compared"
            ),
        }
    }
}

impl fmt::Display for Findings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for finding in &self.0 {
            writeln!(f, "{finding}")?;
        }
        if self.fail() {
            write!(
                f,
                "The costs of operations have changed. `ql costs OPERATION --explain` lists the \
                 functions whose instructions are executed. Make the change cheaper, or accept the \
                 new counts with the reason for them: `ql costs --accept REASON`, then `ql costs \
                 --render`, and commit both files."
            )?;
        } else if !self.0.is_empty() {
            write!(f, "Operations got cheaper: `ql costs --accept REASON` keeps it so.")?;
        }
        Ok(())
    }
}

/// A request to append a sheet's changes to the ledger.
#[derive(Debug, Clone)]
pub struct Acceptance {
    /// Reason for the changes.
    pub reason: String,
    /// Number of the decision record that allows them.
    pub adr: Option<u32>,
    /// Whether the sheet has all operations.
    pub whole: bool,
}

impl Acceptance {
    /// Returns the entry to append, or none if nothing has changed.
    ///
    /// # Errors
    /// If the reason is empty, or a count grows so much that it takes a decision that is not there.
    pub fn entry(
        &self,
        checkout: &Checkout,
        ledger: &Ledger,
        sheet: &Sheet,
    ) -> anyhow::Result<Option<Entry>> {
        ensure!(!self.reason.trim().is_empty(), "a change of costs has a reason");
        if let Some(number) = self.adr {
            checkout.check_decision(number)?;
        } else {
            let grown = cumulative(ledger, sheet);
            ensure!(
                grown.is_empty(),
                "these counts are more than {CUMULATIVE} % above the best that the ledger has of \
                 them. Such growth takes a decision: write it down in docs/adr, and accept with \
                 `--adr NUMBER`.\n{}",
                grown.iter().map(Change::to_string).collect::<Vec<_>>().join("\n")
            );
        }
        let rows = changed(ledger, sheet, self.whole);
        let rebuilt = ledger.build() != Some((&sheet.compiler, &sheet.profile));
        ensure!(
            self.whole || !rebuilt,
            "the ledger is of another compiler or profile: accept all operations, not some"
        );
        if rows.is_empty() && !rebuilt {
            return Ok(None);
        }
        let (date, commit) = checkout.now()?;
        Ok(Some(Entry {
            date,
            commit,
            compiler: sheet.compiler.clone(),
            profile: sheet.profile.clone(),
            reason: self.reason.trim().to_owned(),
            adr: self.adr,
            rows,
        }))
    }
}

/// Rows that differ from the newest ones.
fn changed(ledger: &Ledger, sheet: &Sheet, whole: bool) -> BTreeMap<String, Option<Row>> {
    let newest = ledger.newest();
    let mut rows = BTreeMap::new();
    for (name, row) in &sheet.rows {
        if newest.get(name) != Some(row) {
            rows.insert((*name).to_owned(), Some(*row));
        }
    }
    for name in newest.keys().filter(|name| whole && !sheet.rows.contains_key(*name)) {
        rows.insert((*name).to_owned(), None);
    }
    rows
}

/// Counts that an entry of the ledger without a decision record lets grow too far, with the best
/// before it.
fn undecided(ledger: &Ledger) -> Vec<Change> {
    let mut grown = Vec::new();
    let mut past = Ledger::default();
    for entry in &ledger.entries {
        if entry.adr.is_none() {
            for (name, row) in &entry.rows {
                grown.extend(row.iter().flat_map(|row| too_far(&past, name, row)));
            }
        }
        past.entries.push(entry.clone());
    }
    grown
}

/// Counts of a row that are too far above their best.
fn too_far(ledger: &Ledger, name: &str, row: &Row) -> Vec<Change> {
    let of = |column| {
        let (before, after) = (ledger.best(name, column)?, row.get(column)?);
        let change = Change { operation: name.to_owned(), column, before, after };
        after.exceeds(before, CUMULATIVE).then_some(change)
    };
    COLUMNS.into_iter().filter_map(of).collect()
}

/// Counts that are too far above their best, with the best in place of the last value.
fn cumulative(ledger: &Ledger, sheet: &Sheet) -> Vec<Change> {
    sheet.rows.iter().flat_map(|(name, row)| too_far(ledger, name, row)).collect()
}

#[cfg(test)]
mod tests;
