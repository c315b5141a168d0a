//! Memory for each object: how much more than the object itself, and how much comes back.
//!
//! One process for each measurement, so that nothing of one is in another. It notes what is resident, allocates and frees one
//! object, which has the code for that loaded, and notes again; makes a source of objects, allocates all of them, writes every
//! byte of each, and notes; frees all, notes; asks for everything that is free to be given back, in the words that the column
//! has for it, and notes for the last time. The array that holds the objects' addresses is filled before the first reading,
//! and is the same for all columns.
//!
//! The parent starts these processes, by its own program, one at a time.

mod process;
mod reading;
mod report;
mod subjects;

use std::io::{self, Write};

use serde::{Deserialize, Serialize};

use crate::select::matches;
use crate::{Error, JsonSink, JsonTarget, Verdict};

pub use reading::Resident;
pub use report::{Document, Row};

pub(crate) use reading::Readings;
pub(crate) use subjects::Subject;

/// Numbers of objects, by default.
pub const OBJECTS: [usize; 2] = [1_000, 10_000_000];
/// Sizes of objects in bytes, by default.
pub const SIZES: [usize; 3] = [64, 192, 256];

/// What the command line can say.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// How many objects; none means [`OBJECTS`].
    pub objects: Vec<usize>,
    /// Bytes of an object; none means [`SIZES`].
    pub sizes: Vec<usize>,
    /// Columns by name or pattern, in the order in which they are to be shown; none means all.
    pub columns: Vec<String>,
    /// Where to write the results for machines.
    pub json: Option<JsonTarget>,
    /// Do one measurement in this process, and print its readings as JSON. For the parent.
    pub measure: bool,
}

/// One measurement: of whom, and of what.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Case {
    /// Bytes of an object.
    pub size: usize,
    /// How many.
    pub objects: usize,
}

/// Measures and prints a table, or, if [`Options::measure`] is set, measures in this process.
///
/// # Errors
///
/// A column that does not exist, a number of zero, a file that cannot be written. A measurement that failed is no error: it
/// is told by the [`Verdict`].
pub fn run(options: &Options) -> Result<Verdict, Error> {
    let or = |given: &[usize], default: &[usize]| {
        if given.is_empty() { default.to_vec() } else { given.to_vec() }
    };
    let (objects, sizes) = (or(&options.objects, &OBJECTS), or(&options.sizes, &SIZES));
    if objects.contains(&0) {
        return Err(Error::Zero { what: "--objects" });
    }
    // A mark is written into each object.
    if sizes.iter().any(|&size| size < size_of::<u64>()) {
        return Err(Error::ObjectSize { least: size_of::<u64>() });
    }
    let subjects = chosen(&options.columns)?;
    let cases =
        objects.iter().flat_map(|&objects| sizes.iter().map(move |&size| Case { size, objects }));
    if options.measure {
        return process::measure_here(&subjects, cases);
    }
    let json = options.json.as_ref().map(JsonSink::open).transpose()?;
    let mut document = Document::new();
    for case in cases {
        for subject in &subjects {
            document.push(process::measure(subject, case));
        }
    }
    let table = report::table(&document);
    match json {
        Some(JsonSink::Stdout) => eprintln!("{table}"),
        _ => writeln!(io::stdout(), "{table}").map_err(Error::output)?,
    }
    if let Some(sink) = json {
        sink.write_text(&report::json(&document))?;
    }
    Ok(document.verdict())
}

/// The subjects whose names fit, in the order of the patterns.
fn chosen(patterns: &[String]) -> Result<Vec<Subject>, Error> {
    let all = subjects::all();
    if let Some(given) =
        patterns.iter().find(|given| !all.iter().any(|subject| matches(given, subject.name)))
    {
        let valid = all.iter().map(|subject| subject.name).collect::<Vec<_>>().join(", ");
        return Err(Error::UnknownColumn { given: given.clone(), valid });
    }
    if patterns.is_empty() {
        return Ok(all);
    }
    let mut chosen: Vec<Subject> = Vec::new();
    for pattern in patterns {
        for subject in all.iter().filter(|subject| matches(pattern, subject.name)) {
            if !chosen.iter().any(|other| other.name == subject.name) {
                chosen.push(*subject);
            }
        }
    }
    Ok(chosen)
}
