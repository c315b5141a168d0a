//! The ledger: a file to which each accepted change of a cost is appended.
//!
//! A line is a JSON object: the head of an entry (date, commit, compiler, profile, reason), or a
//! row of the entry above it. An entry has the rows that changed, sorted by name.

use crate::{Amount, Column, Row};
use anyhow::{Context, bail, ensure};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::path::Path;

/// The committed history of all rows.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Ledger {
    /// Entries, the oldest first.
    pub entries: Vec<Entry>,
}

/// An accepted change.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    /// Date, as year-month-day.
    pub date: String,
    /// Commit that the change was measured at; with a plus sign if files had changed since.
    pub commit: String,
    /// Version of the compiler.
    pub compiler: String,
    /// Profile of the build.
    pub profile: String,
    /// Reason for the change.
    pub reason: String,
    /// Number of the decision record that allows growth of more than 3 %.
    pub adr: Option<u32>,
    /// Rows that changed, by the operation's name. A removed operation has `None`.
    pub rows: BTreeMap<String, Option<Row>>,
}

impl Ledger {
    /// Reads a ledger. A file that is not there is an empty ledger.
    ///
    /// # Errors
    /// If the file cannot be read or is malformed.
    pub fn read(path: &Path) -> anyhow::Result<Self> {
        match std::fs::read_to_string(path) {
            Ok(text) => Self::parse(&text).with_context(|| path.display().to_string()),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(Self::default()),
            Err(error) => Err(error).with_context(|| path.display().to_string()),
        }
    }

    /// Reads a ledger from text.
    ///
    /// # Errors
    /// If it is malformed.
    pub fn parse(text: &str) -> anyhow::Result<Self> {
        let mut ledger = Self::default();
        for (number, line) in text.lines().enumerate() {
            let value: Value =
                serde_json::from_str(line).with_context(|| format!("line {}", number + 1))?;
            ledger.add_line(&value).with_context(|| format!("line {}", number + 1))?;
        }
        Ok(ledger)
    }

    fn add_line(&mut self, value: &Value) -> anyhow::Result<()> {
        let Some(operation) = value.get("operation") else {
            self.entries.push(Entry::from_json(value)?);
            return Ok(());
        };
        let operation = operation.as_str().context("the operation's name is no text")?;
        let entry = self.entries.last_mut().context("a row before the first entry")?;
        let row = if value.get("removed").is_some() {
            None
        } else {
            let row = Row::from_json(value)?;
            for column in super::COLUMNS {
                ensure!(
                    row.get(column).is_some() || column.is_newer_than_the_ledger(),
                    "{operation} has no {}",
                    column.key()
                );
            }
            Some(row)
        };
        if entry.rows.insert(operation.to_owned(), row).is_some() {
            bail!("{operation} twice in an entry");
        }
        Ok(())
    }

    /// The newest value of each row, but of those that were removed.
    pub fn newest(&self) -> BTreeMap<&str, Row> {
        let mut newest = BTreeMap::new();
        for (name, row) in self.entries.iter().flat_map(|entry| &entry.rows) {
            match row {
                Some(row) => newest.insert(name.as_str(), *row),
                None => newest.remove(name.as_str()),
            };
        }
        newest
    }

    /// The smallest count that a row had in a column since its last growth that a decision allows.
    pub fn best(&self, operation: &str, column: Column) -> Option<Amount> {
        let mut best: Option<Amount> = None;
        for entry in &self.entries {
            let Some(Some(row)) = entry.rows.get(operation) else { continue };
            let Some(amount) = row.get(column) else { continue };
            let decided = entry.adr.is_some() && best.is_some_and(|best| amount > best);
            best = Some(if decided { amount } else { best.map_or(amount, |b| b.min(amount)) });
        }
        best
    }

    /// The compiler and profile of the newest entry.
    pub fn build(&self) -> Option<(&str, &str)> {
        self.entries.last().map(|entry| (entry.compiler.as_str(), entry.profile.as_str()))
    }
}

impl Entry {
    fn from_json(value: &Value) -> anyhow::Result<Self> {
        let text = |key: &str| -> anyhow::Result<String> {
            let text = value[key].as_str().map(str::to_owned);
            text.with_context(|| format!("the entry has no {key}"))
        };
        let adr = match &value["adr"] {
            Value::Null => None,
            number => {
                let number = number.as_u64().and_then(|n| u32::try_from(n).ok());
                Some(number.context("adr is no number")?)
            }
        };
        Ok(Self {
            date: text("date")?,
            commit: text("commit")?,
            compiler: text("compiler")?,
            profile: text("profile")?,
            reason: text("reason")?,
            adr,
            rows: BTreeMap::new(),
        })
    }

    /// The lines of the entry, to be appended to the file.
    pub fn to_lines(&self) -> String {
        let Self { date, commit, compiler, profile, reason, adr, rows } = self;
        let quoted = |text: &str| json!(text).to_string();
        let mut lines = format!(
            "{{\"date\":{},\"commit\":{},\"compiler\":{},\"profile\":{},\"reason\":{}",
            quoted(date),
            quoted(commit),
            quoted(compiler),
            quoted(profile),
            quoted(reason)
        );
        if let Some(adr) = adr {
            lines += &format!(",\"adr\":{adr}");
        }
        lines += "}\n";
        for (name, row) in rows {
            match row {
                Some(row) => lines += &row.to_json(name),
                None => lines += &format!("{{\"operation\":\"{name}\",\"removed\":true}}"),
            }
            lines += "\n";
        }
        lines
    }
}
