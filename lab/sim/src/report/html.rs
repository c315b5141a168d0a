//! The report as a page: a picture of lines going from CPU to CPU, and the tables. `templates/report.html` is the page; here is
//! what it is filled with.

use super::text::number;
use super::{Report, Transfer};
use askama::Template;

/// Pixels of a row, and of the picture's width without the names.
const ROW: usize = 18;
const WIDTH: usize = 900;
const NAMES: usize = 320;
/// Letters of a name that have room there.
const LETTERS: usize = 52;

/// Colours that CPUs take in turn.
const COLOURS: [&str; 8] =
    ["#4269d0", "#efb118", "#ff725c", "#6cc5b0", "#3ca951", "#ff8ab7", "#a463f2", "#9c6b4e"];

#[derive(Template)]
#[template(path = "report.html", whitespace = "minimize")]
struct Page<'a> {
    report: &'a Report,
    picture: Option<Picture>,
}

/// A row for each line, a mark for each transfer.
struct Picture {
    width: usize,
    height: usize,
    left: usize,
    right: usize,
    /// What the right end stands for, in nanoseconds.
    end: String,
    rows: Vec<Row>,
    marks: Vec<Mark>,
}

struct Row {
    y: usize,
    name: String,
}

struct Mark {
    x: String,
    y: usize,
    fill: &'static str,
    colour: &'static str,
    cpu: usize,
    at: String,
}

/// The page.
pub fn page(report: &Report) -> String {
    let picture = (!report.picture.is_empty()).then(|| Picture::of(&report.picture));
    Page { report, picture }.render().expect("nothing that fills the page can fail")
}

impl Picture {
    fn of(transfers: &[Transfer]) -> Self {
        let rows = transfers.iter().map(|t| t.line + 1).max().unwrap_or(0);
        let end = transfers.iter().map(|t| t.at_ns).fold(1.0, f64::max);
        let y = |line: usize| line * ROW + ROW / 2;
        let row = |line| {
            let name = transfers.iter().find(|t| t.line == line).map_or("", |t| t.name.as_str());
            Row { y: y(line), name: name.chars().take(LETTERS).collect() }
        };
        let mark = |t: &Transfer| {
            let colour = COLOURS[t.cpu % COLOURS.len()];
            Mark {
                x: format!("{:.1}", NAMES as f64 + t.at_ns / end * WIDTH as f64),
                y: y(t.line),
                fill: if t.write { colour } else { "white" },
                colour,
                cpu: t.cpu,
                at: format!("{:.0}", t.at_ns),
            }
        };
        Self {
            width: NAMES + WIDTH + 20,
            height: (rows + 2) * ROW,
            left: NAMES,
            right: NAMES + WIDTH,
            end: format!("{end:.0}"),
            rows: (0..rows).map(row).collect(),
            marks: transfers.iter().map(mark).collect(),
        }
    }
}
