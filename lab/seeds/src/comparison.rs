//! Values of ours beside a table of a thread.

use crate::{Better, Gains, Table};
use core::fmt;
use serde::{Deserialize, Serialize};

/// Where a value of ours comes from. It decides what its error means.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Basis {
    /// A parameter of the model was chosen so that this point comes out right. The error says
    /// nothing.
    Fitted,
    /// The model computed it from parameters that were chosen without this point.
    Predicted,
    /// It is counted: instructions, locks or cache lines.
    Counted,
    /// It was measured on a machine that the comparison names.
    Measured,
}

impl Basis {
    /// Returns the word for a table's cell.
    pub fn name(self) -> &'static str {
        match self {
            Self::Fitted => "fitted",
            Self::Predicted => "predicted",
            Self::Counted => "counted",
            Self::Measured => "measured",
        }
    }
}

/// A value of the thread with ours beside it.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Point {
    /// The row of the table.
    pub row: String,
    /// The column of the table.
    pub column: String,
    /// The value of the thread.
    pub reported: f64,
    /// The value of ours, in the table's unit.
    pub ours: f64,
    /// Where the value of ours comes from.
    pub basis: Basis,
    /// The least and the greatest of our values, if there are several.
    #[serde(default)]
    pub spread: Option<[f64; 2]>,
    /// Why the two differ, if it is known.
    pub cause: Option<String>,
}

/// The median, the least and the greatest of some values.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Spread {
    /// The median.
    pub median: f64,
    /// The least value.
    pub least: f64,
    /// The greatest value.
    pub most: f64,
}

impl Spread {
    /// Returns the spread of values, if there is one.
    pub fn of(values: impl IntoIterator<Item = f64>) -> Option<Self> {
        let mut values: Vec<f64> = values.into_iter().collect();
        values.sort_unstable_by(f64::total_cmp);
        let (least, most) = (*values.first()?, *values.last()?);
        let middle = values.len() / 2;
        let median = match values.len() % 2 {
            0 => (values[middle - 1] + values[middle]) / 2.0,
            _ => values[middle],
        };
        Some(Self { median, least, most })
    }
}

/// A table of a thread with values of ours beside it.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Comparison {
    /// The table's name. If a table is compared with several scenes of ours, each name ends with a
    /// comma and the scene's name.
    pub table: String,
    /// The quantity that was measured.
    pub title: String,
    /// The unit of all values.
    pub unit: String,
    /// Where our values come from: the model's machine, or the machine that was measured.
    pub ours: String,
    /// All points that have a value of ours.
    pub points: Vec<Point>,
    /// Values of the thread that have no value of ours.
    pub missing: Vec<Missing>,
    /// The column of gains, if the table has one.
    #[serde(default)]
    pub gains: Option<Gains>,
}

/// A value of the thread that has no value of ours.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Missing {
    /// The row of the table.
    pub row: String,
    /// The column of the table.
    pub column: String,
    /// The reason.
    pub why: String,
}

impl Comparison {
    /// Returns a comparison without points.
    pub fn new(table: &Table, ours: impl Into<String>) -> Self {
        Self {
            table: table.name.clone(),
            title: table.title.clone(),
            unit: table.unit.clone(),
            ours: ours.into(),
            points: Vec::new(),
            missing: Vec::new(),
            gains: table.gains.clone(),
        }
    }

    /// Returns a comparison without points with one of several scenes of ours: an answer to what
    /// the thread does not say of its benchmark.
    pub fn of_scene(table: &Table, scene: &str, ours: &str) -> Self {
        let name = format!("{}, {scene}", table.name);
        Self { table: name, ..Self::new(table, format!("{scene}; {ours}")) }
    }

    /// Returns whether this is a comparison with the table.
    pub fn is_of(&self, table: &Table) -> bool {
        let rest = self.table.strip_prefix(&table.name);
        rest.is_some_and(|rest| rest.is_empty() || rest.starts_with(", "))
    }

    /// Adds a value of ours. A place where the thread has no value is left out.
    ///
    /// # Panics
    ///
    /// If the table has no such row or column.
    pub fn add(&mut self, table: &Table, row: &str, column: &str, ours: f64, basis: Basis) {
        let Some(reported) = table.value(row, column) else { return };
        let (row, column) = (row.to_owned(), column.to_owned());
        let (spread, cause) = (None, None);
        self.points.push(Point { row, column, reported, ours, basis, spread, cause });
    }

    /// Adds the median of values of ours, with the least and the greatest.
    ///
    /// # Panics
    ///
    /// If the table has no such row or column.
    pub fn add_spread(
        &mut self,
        table: &Table,
        row: &str,
        column: &str,
        values: &Spread,
        basis: Basis,
    ) {
        let points = self.points.len();
        self.add(table, row, column, values.median, basis);
        let added = self.points.get_mut(points);
        added.into_iter().for_each(|point| point.spread = Some([values.least, values.most]));
    }

    /// Gives the chosen points a cause for their errors.
    ///
    /// # Panics
    ///
    /// If no point is chosen: the cause is of a point that is gone.
    pub fn explain(&mut self, cause: &str, is_chosen: impl Fn(&Point) -> bool) {
        let mut points = 0;
        for point in self.points.iter_mut().filter(|point| is_chosen(point)) {
            point.cause = Some(cause.to_owned());
            points += 1;
        }
        assert!(points > 0, "{}: no point has the cause: {cause}", self.table);
    }

    /// Adds our gain of a row, if the table has a column of gains: the value `before` the row less
    /// the row's.
    ///
    /// # Panics
    ///
    /// If the row has no point yet.
    pub fn add_gain(&mut self, table: &Table, row: &str, before: f64) {
        let Some(gains) = &table.gains else { return };
        let remains = self.point(row, &gains.of).expect("a row's value comes before its gain");
        let (gain, basis) = (before - remains.ours, remains.basis);
        self.add(table, row, &gains.column, gain, basis);
    }

    /// Returns the error of a point: by how much our value is above the thread's, as a part of the
    /// thread's. The error of a percentage is in hundredths of a point. That of a gain is a part of
    /// the thread's value before the gain, since a gain can be 0.
    pub fn error(&self, point: &Point) -> f64 {
        let difference = point.ours - point.reported;
        if self.unit == "%" {
            difference / 100.0
        } else if let Some(remains) = self.remains_of(point) {
            difference / (remains + point.reported)
        } else {
            point.ours / point.reported - 1.0
        }
    }

    /// Returns the thread's value after a gain.
    fn remains_of(&self, point: &Point) -> Option<f64> {
        let gains = self.gains.as_ref().filter(|gains| gains.column == point.column)?;
        Some(self.point(&point.row, &gains.of)?.reported)
    }

    /// Returns the error of a point as text with its unit.
    pub fn error_text(&self, point: &Point) -> String {
        let error = self.error(point) * 100.0;
        if self.unit == "%" {
            format!("{:+.1} points", error + 0.0)
        } else if self.remains_of(point).is_some() {
            format!("{:+.2} {}", point.ours - point.reported, self.unit)
        } else {
            format!("{:+.0} %", error.round() + 0.0)
        }
    }

    /// Returns by how many percent our value of column `of` is better than that of column `over`,
    /// if there are both.
    pub fn improvement(&self, better: Better, row: &str, of: &str, over: &str) -> Option<f64> {
        better.improvement(self.point(row, of)?.ours, self.point(row, over)?.ours)
    }

    /// Lists every value of the thread that has no point yet as missing.
    pub fn miss_the_rest(&mut self, table: &Table, why: &str) {
        for row in &table.rows {
            for column in &table.columns {
                let has = |p: &Point| p.row == row.name && p.column == *column;
                if table.value(&row.name, column).is_some() && !self.points.iter().any(has) {
                    let (row, column) = (row.name.clone(), column.clone());
                    self.missing.push(Missing { row, column, why: why.to_owned() });
                }
            }
        }
    }

    /// Returns each reason for values to be missing, and their number.
    pub fn missing_by_reason(&self) -> Vec<(&str, usize)> {
        let mut reasons: Vec<(&str, usize)> = Vec::new();
        for missing in &self.missing {
            match reasons.iter_mut().find(|(why, _)| *why == missing.why) {
                Some((_, values)) => *values += 1,
                None => reasons.push((&missing.why, 1)),
            }
        }
        reasons
    }

    /// Returns the point of a row and a column.
    pub fn point(&self, row: &str, column: &str) -> Option<&Point> {
        self.points.iter().find(|p| p.row == row && p.column == column)
    }
}

impl fmt::Display for Comparison {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.points.is_empty() {
            writeln!(f, "{}, {}", self.title, self.unit)?;
            return self.fmt_missing(f);
        }
        writeln!(f, "{}, {}; ours: {}", self.title, self.unit, self.ours)?;
        let longest = |name: fn(&Point) -> &str, title: &str| {
            let lengths = self.points.iter().map(|p| name(p).chars().count());
            lengths.chain([title.len()]).max().unwrap_or(0)
        };
        let rows = longest(|p| &p.row, "row");
        let columns = longest(|p| &p.column, "column");
        writeln!(
            f,
            "{:rows$}  {:columns$} {:>12} {:>12} {:>12}  basis",
            "row", "column", "reported", "ours", "error"
        )?;
        for p in &self.points {
            writeln!(
                f,
                "{:rows$}  {:columns$} {:>12} {:>12} {:>12}  {}{}",
                p.row,
                p.column,
                p.reported,
                figure(p.ours),
                self.error_text(p),
                p.basis.name(),
                p.cause.as_ref().map(|cause| format!("; {cause}")).unwrap_or_default()
            )?;
        }
        self.fmt_missing(f)
    }
}

impl Comparison {
    fn fmt_missing(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (why, values) in self.missing_by_reason() {
            writeln!(f, "{values} values of the thread without one of ours: {why}")?;
        }
        Ok(())
    }
}

/// Returns a value of ours with four significant digits, or all digits of a larger whole number.
pub fn figure(value: f64) -> String {
    match value.abs() {
        n if n >= 1000.0 => format!("{value:.0}"),
        n if n >= 100.0 => format!("{value:.1}"),
        n if n >= 10.0 => format!("{value:.2}"),
        _ => format!("{value:.3}"),
    }
}
