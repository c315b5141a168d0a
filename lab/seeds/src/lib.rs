//! The figures of the five mail threads that quietline is about, as data.
//!
//! Each thread is a [`Seed`]: its [`Table`]s, with the message that each comes from.
//! `docs/seeds.md` names their authors. The figures are facts of the threads. The names of rows and
//! columns are ours.
//!
//! A [`Comparison`] puts measured, modelled or counted values beside a table and states the error
//! of each point.
//!
//! ```
//! let table = quietline_seeds::table("sockets-2008", "versions");
//! assert_eq!(table.value("version 3", "8 CPUs"), Some(1.624));
//! ```

mod comparison;

pub use comparison::{Basis, Comparison, Missing, Point, Spread, figure};

use serde::{Deserialize, Serialize};
use std::sync::OnceLock;

/// A mail thread and its tables.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Seed {
    /// Its name here: its subject and its year.
    pub name: String,
    /// The year.
    pub year: u16,
    /// The author of the measurements.
    pub author: String,
    /// The subject lines.
    pub subject: String,
    /// The machine that was measured.
    pub machine: String,
    /// All tables, in the order of the thread.
    #[serde(rename = "table")]
    pub tables: Vec<Table>,
}

/// A table of a thread: rows and columns of figures in one unit.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Table {
    /// Its name within the thread.
    pub name: String,
    /// The quantity that was measured.
    pub title: String,
    /// The message that it comes from.
    pub source: String,
    /// The unit of all values.
    pub unit: String,
    /// Which values are good.
    pub better: Better,
    /// The meaning of a row's name, for example "CPUs".
    #[serde(default = "row")]
    pub rows_are: String,
    /// Column names.
    pub columns: Vec<String>,
    /// Rows.
    pub rows: Vec<Row>,
    /// Digits after the point in the message, if all values have as many.
    pub decimals: Option<usize>,
    /// The percentages that the message gives beside the values.
    pub improvement: Option<Improvement>,
    /// A remark for readers of the table.
    pub note: Option<String>,
    /// The column of gains, if the table has one.
    pub gains: Option<Gains>,
    /// Tables of percentages: the samples of each column, of which the percentages are. The
    /// messages do not give them. They are computed from the percentages.
    pub all_samples: Option<Vec<f64>>,
}

/// A column of gains: by how much each row is better than the row before it.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Gains {
    /// The column of gains.
    pub column: String,
    /// The column that they are differences of.
    pub of: String,
    /// The value before the first row.
    pub before: f64,
}

/// Returns the title of row names that need none of their own.
fn row() -> String {
    "row".to_owned()
}

/// Which values of a table are good.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Better {
    /// Low values.
    Less,
    /// High values.
    More,
    /// A share, for example: neither.
    Neither,
}

/// A row of a table.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Row {
    /// Its name.
    pub name: String,
    /// A value for each column. NaN: the thread has no value there.
    pub values: Vec<f64>,
    /// The samples that the values are percentages of [`Table::all_samples`] by.
    pub samples: Option<Vec<f64>>,
}

/// Percentages that a message gives: by how much one column is better than another.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Improvement {
    /// The new column.
    pub of: String,
    /// The old column.
    pub over: String,
    /// A percentage for each row.
    pub values: Vec<f64>,
    /// The pairs of values that the message computes the percentages from, of the old column and of
    /// the new one, if those of the table are not they.
    pub from: Option<Vec<[f64; 2]>>,
    /// The unit of these pairs.
    pub from_unit: Option<String>,
    /// How far a percentage may be from the one that is computed from the values, in points.
    pub tolerance: f64,
}

impl Better {
    /// Returns by how many percent a value is better than another, if values can be good.
    pub fn improvement(self, value: f64, other: f64) -> Option<f64> {
        match self {
            Self::Less => Some((1.0 - value / other) * 100.0),
            Self::More => Some((value / other - 1.0) * 100.0),
            Self::Neither => None,
        }
    }
}

impl Table {
    /// Returns a value of the thread as it is written there. A value that is not there is `-`.
    pub fn text(&self, value: f64) -> String {
        match self.decimals {
            _ if value.is_nan() => "-".to_owned(),
            Some(decimals) => format!("{value:.decimals$}"),
            None => value.to_string(),
        }
    }

    /// Returns the value of a row and a column, if the thread has one there.
    ///
    /// # Panics
    ///
    /// If the table has no such row or column: a name in the code is wrong.
    pub fn value(&self, row: &str, column: &str) -> Option<f64> {
        let in_table = |what: &str, name: &str, place: Option<usize>| {
            place.unwrap_or_else(|| panic!("the table {} has no {what} {name}", self.name))
        };
        let r = in_table("row", row, self.rows.iter().position(|r| r.name == row));
        let c = in_table("column", column, self.columns.iter().position(|c| c == column));
        Some(self.rows[r].values[c]).filter(|value| !value.is_nan())
    }

    /// Returns the value of a row and a column.
    ///
    /// # Panics
    ///
    /// If there is none: a name in the code is wrong.
    pub fn expect(&self, row: &str, column: &str) -> f64 {
        let value = self.value(row, column);
        value.unwrap_or_else(|| panic!("{}: no value at {row}, {column}", self.name))
    }

    /// Computes the percentage of a row from the pairs that the message computes it from.
    ///
    /// # Panics
    ///
    /// If the table has no such row, no percentages, or no values for them.
    pub fn given_improvement(&self, row: &str) -> f64 {
        let improvement = self.improvement.as_ref().expect("the table has percentages");
        let Some(pairs) = &improvement.from else {
            return self.improvement(row, &improvement.of, &improvement.over);
        };
        let place = self.rows.iter().position(|r| r.name == row).expect("a row of the table");
        let [over, of] = pairs[place];
        self.better.improvement(of, over).expect("values can be good")
    }

    /// Computes by how many percent column `of` is better than column `over`, for a row.
    ///
    /// # Panics
    ///
    /// If a value is missing, or the table says neither which values are good.
    pub fn improvement(&self, row: &str, of: &str, over: &str) -> f64 {
        let improvement = self.better.improvement(self.expect(row, of), self.expect(row, over));
        improvement.unwrap_or_else(|| panic!("{}: no value is better than another", self.name))
    }
}

const FILES: [&str; 5] = [
    include_str!("../tables/sockets-2008.toml"),
    include_str!("../tables/inodes-2010.toml"),
    include_str!("../tables/dentries-2013.toml"),
    include_str!("../tables/bulk-2015.toml"),
    include_str!("../tables/epoll-2017.toml"),
];

/// Returns the five threads, oldest first.
pub fn seeds() -> &'static [Seed] {
    static SEEDS: OnceLock<Vec<Seed>> = OnceLock::new();
    let read = |text: &&str| toml::from_str(text).expect("the files of this crate are well-formed");
    SEEDS.get_or_init(|| FILES.iter().map(read).collect())
}

/// Returns a table by the names of its thread and of itself.
///
/// # Panics
///
/// If there is no such table: a name in the code is wrong.
pub fn table(seed: &str, table: &str) -> &'static Table {
    let of_seed = seeds().iter().find(|s| s.name == seed);
    let tables = &of_seed.unwrap_or_else(|| panic!("no thread is called {seed}")).tables;
    let found = tables.iter().find(|t| t.name == table);
    found.unwrap_or_else(|| panic!("{seed} has no table {table}"))
}
