//! Columns and rows of the sheet.

use crate::Amount;
use anyhow::{Context, bail};
use serde_json::Value;

/// A count of an operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Column {
    /// Instructions of the program's own code.
    Instructions,
    /// Locked instructions among them.
    Locked,
    /// Fences among them.
    Fences,
    /// System calls.
    SystemCalls,
    /// Calls into shared libraries. Instructions there are not counted.
    LibraryCalls,
    /// Distinct cache lines that an operation reads or writes in the model, all CPUs in one
    /// process.
    LinesTouched,
    /// The same, each CPU in a process of its own.
    LinesTouchedOwnProcesses,
    /// Distinct lines that an operation writes and another CPU uses, all CPUs in one process.
    SharedLinesOneProcess,
    /// The same, each CPU in a process of its own.
    SharedLinesOwnProcesses,
    /// Bytes of slab objects and of the C library's memory that an operation allocates.
    BytesAllocated,
    /// Bytes that an operation leaves allocated.
    BytesRetained,
}

/// All columns, in the order of the sheet.
pub const COLUMNS: [Column; 11] = [
    Column::Instructions,
    Column::Locked,
    Column::Fences,
    Column::SystemCalls,
    Column::LibraryCalls,
    Column::LinesTouched,
    Column::LinesTouchedOwnProcesses,
    Column::SharedLinesOneProcess,
    Column::SharedLinesOwnProcesses,
    Column::BytesAllocated,
    Column::BytesRetained,
];

impl Column {
    /// Key in the ledger.
    pub fn key(self) -> &'static str {
        match self {
            Self::Instructions => "instructions",
            Self::Locked => "locked",
            Self::Fences => "fences",
            Self::SystemCalls => "system_calls",
            Self::LibraryCalls => "library_calls",
            Self::LinesTouched => "lines_touched",
            Self::LinesTouchedOwnProcesses => "lines_touched_own_processes",
            Self::SharedLinesOneProcess => "shared_lines_one_process",
            Self::SharedLinesOwnProcesses => "shared_lines_own_processes",
            Self::BytesAllocated => "bytes_allocated",
            Self::BytesRetained => "bytes_retained",
        }
    }

    /// Header of a table, in two lines.
    pub fn header(self) -> &'static str {
        match self {
            Self::Instructions => "instruc-\ntions",
            Self::Locked => "\nlocked",
            Self::Fences => "\nfences",
            Self::SystemCalls => "system\ncalls",
            Self::LibraryCalls => "library\ncalls",
            Self::LinesTouched => "lines,\n1 process",
            Self::LinesTouchedOwnProcesses => "lines,\nown proc.",
            Self::SharedLinesOneProcess => "shared,\n1 process",
            Self::SharedLinesOwnProcesses => "shared,\nown proc.",
            Self::BytesAllocated => "bytes\nallocated",
            Self::BytesRetained => "bytes\nretained",
        }
    }

    /// Percent that a count may grow by before the check fails.
    pub fn tolerance(self) -> u64 {
        if self == Self::Instructions { 1 } else { 0 }
    }

    /// Whether the model counts it, and not this machine.
    pub fn is_modelled(self) -> bool {
        matches!(
            self,
            Self::LinesTouched
                | Self::LinesTouchedOwnProcesses
                | Self::SharedLinesOneProcess
                | Self::SharedLinesOwnProcesses
        )
    }

    /// Whether the first entries of the ledger lack the column: it was added on 2026-11-24.
    pub(super) fn is_newer_than_the_ledger(self) -> bool {
        self == Self::LinesTouchedOwnProcesses
    }
}

/// Counts of one operation: one for each of [`COLUMNS`], or none where a column was not measured.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Row([Option<Amount>; COLUMNS.len()]);

impl Row {
    /// The count in a column.
    pub fn get(&self, column: Column) -> Option<Amount> {
        self.0[column as usize]
    }

    /// Sets the count in a column.
    pub fn set(&mut self, column: Column, amount: Amount) {
        self.0[column as usize] = Some(amount);
    }

    /// The row as one line of JSON, with the operation's name first.
    pub fn to_json(&self, operation: &str) -> String {
        let mut line = format!("{{\"operation\":\"{operation}\"");
        for column in COLUMNS {
            if let Some(amount) = self.get(column) {
                line += &format!(",\"{}\":{amount}", column.key());
            }
        }
        line + "}"
    }

    /// The row of a JSON object.
    ///
    /// # Errors
    /// If a field is unknown or no count.
    pub fn from_json(value: &Value) -> anyhow::Result<Self> {
        let mut row = Self::default();
        for (key, value) in value.as_object().context("a row is an object")? {
            if key == "operation" {
                continue;
            }
            let Some(column) = COLUMNS.into_iter().find(|column| column.key() == key) else {
                bail!("no column is called {key}");
            };
            let amount = value.as_number().map(|number| number.to_string());
            let amount = amount.and_then(|text| text.parse().ok());
            row.set(column, amount.with_context(|| format!("{key} is {value}, and no count"))?);
        }
        Ok(row)
    }
}
