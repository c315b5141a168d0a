//! Figures of documents, taken from records.
//!
//! `docs/figures.toml` names for each figure the sentence or the row of a table that it stands in,
//! and the value of a record under `lab/record`, or of a constant in the code.
//! `ql report --figures` writes the values into the documents, `ql report --check-figures` and a
//! test compare them.
//!
//! In a text, `{}` stands for a figure with three significant digits, `{.2}` for one with two
//! decimals. White space matches any white space, so that a paragraph can be wrapped anew.

use anyhow::{Context, anyhow, bail, ensure};
use regex::Regex;
use serde::Deserialize;
use serde_json::Value;
use std::collections::BTreeMap;
use std::ops::Range;
use std::path::Path;

/// The file of figures, from the root of the checkout.
const FILE: &str = "docs/figures.toml";
/// The folder of records, from the root of the checkout.
const RECORDS: &str = "lab/record";

/// The file of figures.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Figures {
    /// Documents in which each figure with a unit must be listed.
    complete: Vec<String>,
    #[serde(rename = "figure")]
    figures: Vec<Figure>,
    /// Texts with figures that no record has: of a thread, of a standard, or limits in the code.
    #[serde(rename = "fact")]
    facts: Vec<Fact>,
}

/// A text with figures, and the values of a record or of constants.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Figure {
    document: String,
    text: String,
    /// A file of [`RECORDS`].
    record: Option<String>,
    /// A source file, from the root of the checkout, in the place of a record.
    code: Option<String>,
    /// A value for each figure of the text, as [`value`] reads it.
    values: Vec<String>,
}

/// Texts with figures that are not measured here.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Fact {
    document: String,
    texts: Vec<String>,
    /// The source of the figures.
    source: String,
}

impl Figure {
    /// Returns the file of the values, from the root of the checkout.
    fn file(&self) -> anyhow::Result<String> {
        match (&self.record, &self.code) {
            (Some(file), None) => Ok(format!("{RECORDS}/{file}")),
            (None, Some(file)) => Ok(file.clone()),
            _ => bail!("{}: {:?} has not one of record and code", self.document, self.text),
        }
    }
}

/// Writes all figures into the documents, or only compares them. Returns the differences.
///
/// # Errors
///
/// If a text is not in its document exactly once, a record has no such value, or a complete
/// document has a figure that is not listed.
pub(crate) fn run(root: &Path, write: bool) -> anyhow::Result<Vec<String>> {
    let read = |file: &str| {
        std::fs::read_to_string(root.join(file)).with_context(|| format!("{file} cannot be read"))
    };
    let figures: Figures = toml::from_str(&read(FILE)?).context(FILE)?;
    let mut documents: BTreeMap<&str, String> = BTreeMap::new();
    let of_figures = figures.figures.iter().map(|figure| &figure.document);
    for document in of_figures.chain(&figures.complete) {
        if !documents.contains_key(document.as_str()) {
            documents.insert(document, read(document)?);
        }
    }
    let mut differences = Vec::new();
    for figure in &figures.figures {
        let record = read(&figure.file()?)?;
        let text = documents.get_mut(figure.document.as_str()).context("read above")?;
        let says = || format!("{}: {:?}", figure.document, figure.text);
        let new = rewrite(text, figure, &record, &mut differences).with_context(says)?;
        *text = new;
    }
    for document in &figures.complete {
        let text = documents.get(document.as_str()).context("read above")?;
        let unlisted = unlisted(text, document, &figures)?;
        ensure!(
            unlisted.is_empty(),
            "{document} has figures that {FILE} does not list:\n{}",
            unlisted.join("\n")
        );
    }
    if write {
        for (document, text) in &documents {
            std::fs::write(root.join(document), text).with_context(|| (*document).to_owned())?;
        }
    }
    Ok(differences)
}

/// Returns a document with the values of a record in place of a text's figures.
fn rewrite(
    document: &str,
    figure: &Figure,
    record: &str,
    differences: &mut Vec<String>,
) -> anyhow::Result<String> {
    let pattern = TextPattern::new(&figure.text)?;
    ensure!(
        pattern.decimals.len() == figure.values.len(),
        "{} figures, {} values",
        pattern.decimals.len(),
        figure.values.len()
    );
    let found = pattern.find(document)?;
    let mut new = document.to_owned();
    // From the end, so that the ranges before it stay right.
    for ((range, decimals), name) in
        found.figures.iter().zip(&pattern.decimals).zip(&figure.values).rev()
    {
        let value = value(record, name).with_context(|| name.clone())?;
        let (old, value) = (&document[range.clone()], figure_text(value, *decimals));
        if *old != value {
            differences.push(format!("{}: {old} is {value}: {name}", figure.document));
        }
        new.replace_range(range.clone(), &value);
    }
    Ok(new)
}

/// A text as a regular expression.
struct TextPattern {
    regex: Regex,
    /// For each figure the number of decimals, or none for three significant digits.
    decimals: Vec<Option<usize>>,
}

/// The byte ranges of a text and of its figures in a document.
struct TextMatch {
    whole: Range<usize>,
    figures: Vec<Range<usize>>,
}

impl TextPattern {
    fn new(text: &str) -> anyhow::Result<Self> {
        let hole = Regex::new(r"\{(?:\.([0-9]))?\}")?;
        let mut decimals = Vec::new();
        let mut regex = String::new();
        let mut end = 0;
        let literal = |text: &str| {
            let has_space = |edge: Option<char>| edge.is_some_and(char::is_whitespace);
            let words: Vec<String> = text.split_whitespace().map(regex::escape).collect();
            let mut pattern = words.join(r"\s+");
            if has_space(text.chars().next()) {
                pattern.insert_str(0, r"\s+");
            }
            if has_space(text.chars().next_back()) && !words.is_empty() {
                pattern.push_str(r"\s+");
            }
            pattern
        };
        for found in hole.captures_iter(text) {
            let whole = found.get(0).context("a match has a whole")?;
            regex += &literal(&text[end..whole.start()]);
            regex += r"([0-9][0-9,]*(?:\.[0-9]+)?)";
            decimals.push(found.get(1).map(|digit| digit.as_str().parse()).transpose()?);
            end = whole.end();
        }
        regex += &literal(&text[end..]);
        Ok(Self { regex: Regex::new(&regex)?, decimals })
    }

    /// Finds the text, which must be there once.
    fn find(&self, document: &str) -> anyhow::Result<TextMatch> {
        let mut all = self.regex.captures_iter(document);
        let first = all.next().context("the document does not have this text")?;
        ensure!(all.next().is_none(), "the document has this text twice");
        let ranges: Vec<Range<usize>> = first.iter().flatten().map(|found| found.range()).collect();
        let (whole, figures) = ranges.split_first().context("a match has a whole")?;
        Ok(TextMatch { whole: whole.clone(), figures: figures.to_vec() })
    }
}

/// Returns a value with so many decimals, or with three significant digits.
fn figure_text(value: f64, decimals: Option<usize>) -> String {
    let decimals = decimals.unwrap_or(match value.abs() {
        n if n >= 99.95 => 0,
        n if n >= 9.995 => 1,
        _ => 2,
    });
    let text = format!("{value:.decimals$}");
    let (whole, rest) = text.split_at(text.find('.').unwrap_or(text.len()));
    let mut grouped = String::new();
    for (place, digit) in whole.chars().enumerate() {
        if place > 0 && (whole.len() - place).is_multiple_of(3) {
            grouped.push(',');
        }
        grouped.push(digit);
    }
    grouped + rest
}

/// Reads a value of a record.
///
/// | record | value |
/// |---|---|
/// | `ql bench`  | `ns CASE COLUMN THREADS`, `us` and `cpu-ns` likewise: the median |
/// |             | `scaling CASE COLUMN THREADS`: the work of so many threads in the time of one |
/// |             | `ratio CASE COLUMN OTHER THREADS`: how often the other's time has the column's |
/// | `ql forecast` | `keeps COLUMN CPUS`: throughput of each CPU, as a part of that of one alone |
/// |               | `million COLUMN CPUS`: million operations a second of all CPUs |
/// | peers' JSON | `peer-ns ROW PAGES`: the median of CPU nanoseconds |
/// |             | `peer-ratio ROW OTHER PAGES`: the median of the ratios in a round |
/// |             | `peer-less ROW OTHER PAGES`: the difference of their medians |
/// | `ql memory` | `overhead COLUMN SIZE`: bytes of an object beyond its own |
/// | text, code | `find EXPRESSION`: the first group of a regular expression that matches once: |
/// |            | a number, or a product or shift of two |
/// |            | `find-million EXPRESSION`: the same in millions |
fn value(record: &str, name: &str) -> anyhow::Result<f64> {
    let words: Vec<&str> = name.split_whitespace().collect();
    match words.as_slice() {
        ["find", ..] => return find(record, name["find".len()..].trim()),
        ["find-million", ..] => {
            return Ok(find(record, name["find-million".len()..].trim())? / 1e6);
        }
        _ => {}
    }
    let json: Value = serde_json::from_str(record).context("the record is no JSON")?;
    match words.as_slice() {
        ["ns", case, column, threads] => median(&json, "ns_per_op", case, column, threads),
        ["us", case, column, threads] => {
            Ok(median(&json, "ns_per_op", case, column, threads)? / 1000.0)
        }
        ["cpu-ns", case, column, threads] => median(&json, "cpu_ns_per_op", case, column, threads),
        ["scaling", case, column, threads] => {
            let ns = |threads| median(&json, "ns_per_op", case, column, threads);
            Ok(threads.parse::<f64>()? * ns("1")? / ns(threads)?)
        }
        ["ratio", case, column, other, threads] => {
            let ns = |column| median(&json, "ns_per_op", case, column, threads);
            Ok(ns(other)? / ns(column)?)
        }
        ["keeps", column, cpus] => {
            let all = throughput(&json, column, cpus)?;
            Ok(all / cpus.parse::<f64>()? / throughput(&json, column, "1")?)
        }
        ["million", column, cpus] => Ok(throughput(&json, column, cpus)? / 1e6),
        ["overhead", column, size] => {
            let rows = json["rows"].as_array().context("no record of `ql memory`")?;
            let size: u64 = size.parse().context("a size is a number")?;
            let is_it = |row: &&Value| row["column"] == *column && row["size"] == size;
            let row = rows.iter().find(is_it).context("the record has no such row")?;
            row["overhead"].as_f64().context("the row has no overhead")
        }
        ["peer-ns", row @ ..] => Ok(middle(peer_ns(&json, &row.join(" "))?)),
        ["peer-less", row, other, pages] => {
            let ns = |row: &str| peer_ns(&json, &format!("{row} {pages}"));
            Ok(middle(ns(row)?) - middle(ns(other)?))
        }
        ["peer-ratio", row, other, pages] => {
            let of = |row: &str| peer_ns(&json, &format!("{row} {pages}"));
            let ratios = of(row)?.into_iter().zip(of(other)?).map(|(row, other)| row / other);
            Ok(middle(ratios.collect()))
        }
        _ => bail!("not a value of a record"),
    }
}

fn find(record: &str, expression: &str) -> anyhow::Result<f64> {
    let regex = Regex::new(expression)?;
    let mut all = regex.captures_iter(record);
    let first = all.next().context("the record does not have this text")?;
    ensure!(all.next().is_none(), "the record has this text twice");
    number(first.get(1).context("the expression has no group")?.as_str())
}

/// Reads a number, or a product or shift of two, as source code has it.
fn number(text: &str) -> anyhow::Result<f64> {
    if let Some((base, bits)) = text.split_once("<<") {
        return Ok(number(base)? * number(bits)?.exp2());
    }
    if let Some((one, other)) = text.split_once('*') {
        return Ok(number(one)? * number(other)?);
    }
    let digits = text.trim().replace([',', '_'], "");
    digits.parse().map_err(|_| anyhow!("{text} is no number"))
}

fn median(json: &Value, of: &str, case: &str, column: &str, threads: &str) -> anyhow::Result<f64> {
    let rows = json["rows"].as_array().context("no record of `ql bench`")?;
    let threads: u64 = threads.parse().context("a number of threads is a number")?;
    let is_it =
        |row: &&Value| row["case"] == case && row["column"] == column && row["threads"] == threads;
    let mut found = rows.iter().filter(is_it);
    let row = found.next().context("the record has no such row")?;
    ensure!(found.next().is_none(), "the record has two such rows");
    ensure!(row["checked"] == true, "the row's result was not checked");
    row[of]["median"].as_f64().context("the row has no median")
}

fn throughput(json: &Value, column: &str, cpus: &str) -> anyhow::Result<f64> {
    let cpus: u64 = cpus.parse().context("a number of CPUs is a number")?;
    let curves = json["curves"].as_array().context("no record of `ql forecast`")?;
    let curve = curves.iter().find(|curve| curve["column"] == column).context("no such column")?;
    let points = curve["points"].as_array().context("the curve has no points")?;
    let point = points.iter().find(|p| p["cpus"] == cpus).context("no such number of CPUs")?;
    point["throughput"].as_f64().context("the point has no throughput")
}

fn peer_ns(json: &Value, row: &str) -> anyhow::Result<Vec<f64>> {
    let samples = json["samples"][row].as_array().context("the record has no such row")?;
    let ns = |sample: &Value| sample["cpu_ns"].as_f64().context("a sample without CPU time");
    samples.iter().map(ns).collect()
}

fn middle(mut values: Vec<f64>) -> f64 {
    values.sort_unstable_by(f64::total_cmp);
    let middle = values.len() / 2;
    match values.len() {
        0 => f64::NAN,
        odd if odd % 2 == 1 => values[middle],
        _ => (values[middle - 1] + values[middle]) / 2.0,
    }
}

/// Returns the figures with a unit, and the numbers in cells of tables, that are in no text of the
/// list, each with its line.
fn unlisted(document: &str, name: &str, figures: &Figures) -> anyhow::Result<Vec<String>> {
    let mut listed = Vec::new();
    let of_figures = figures.figures.iter().map(|f| (&f.document, &f.text, ""));
    let of_facts = figures
        .facts
        .iter()
        .flat_map(|f| f.texts.iter().map(|text| (&f.document, text, f.source.as_str())));
    for (_, text, source) in of_figures.chain(of_facts).filter(|(of, ..)| *of == name) {
        let says = || format!("{name}: {text:?} {source}");
        listed.push(TextPattern::new(text)?.find(document).with_context(says)?.whole);
    }
    let figure = Regex::new(
        r"(?x) \b[0-9][0-9,]*(\.[0-9]+)? \s+
            (ns|us|ms|s|bytes|KiB|MiB|GiB|times|million|microseconds|nanoseconds)\b
        | \b[0-9][0-9,]*(\.[0-9]+)?\s?% | \|\s[0-9][0-9,]*(\.[0-9]+)?\s",
    )?;
    // Code is no text.
    let code = Regex::new(r"(?s)```.*?```")?;
    let code: Vec<Range<usize>> = code.find_iter(document).map(|found| found.range()).collect();
    let is_in = |ranges: &[Range<usize>], place: usize| ranges.iter().any(|r| r.contains(&place));
    let line = |place: usize| document[..place].matches('\n').count() + 1;
    Ok(figure
        .find_iter(document)
        // The bar after a cell's number begins the next cell, so it is no part of the match.
        .filter(|found| {
            !found.as_str().starts_with('|') || document[found.end()..].starts_with('|')
        })
        // A match of a cell begins with the bar before it, which may be the end of another text.
        .map(|found| {
            let number =
                found.start() + found.as_str().find(|c: char| c.is_ascii_digit()).unwrap_or(0);
            (number, found.as_str())
        })
        .filter(|(number, _)| !is_in(&listed, *number) && !is_in(&code, *number))
        .map(|(number, figure)| format!("  line {}: {}", line(number), figure.trim()))
        .collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The documents of this checkout have the figures of its records.
    #[test]
    fn documents_have_the_figures_of_the_records() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
        let differences = run(&root, false).unwrap_or_else(|error| panic!("{error:?}"));
        assert!(differences.is_empty(), "`ql report --figures` mends:\n{}", differences.join("\n"));
    }

    const RECORD: &str = r#"{"rows": [
        {"case": "c", "column": "a", "threads": 1, "checked": true, "ns_per_op": {"median": 10.0}},
        {"case": "c", "column": "a", "threads": 2, "checked": true, "ns_per_op": {"median": 16.0}},
        {"case": "c", "column": "b", "threads": 1, "checked": true, "ns_per_op": {"median": 5}},
        {"case": "c", "column": "x", "threads": 1, "checked": false, "ns_per_op": {"median": 5}}
        ]}"#;

    #[test]
    fn values_of_a_bench_are_medians() {
        let of = |name| value(RECORD, name);
        assert_eq!(of("ns c a 1").expect("it is there"), 10.0);
        assert_eq!(of("scaling c a 2").expect("both are there"), 1.25);
        assert_eq!(of("ratio c b a 1").expect("both are there"), 2.0);
        for (name, error) in [
            ("ns c a 3", "no such row"),
            ("ns c x 1", "not checked"),
            ("cpu-ns c a 1", "no median"),
            ("nothing", "not a value"),
        ] {
            let said = of(name).expect_err(name).to_string();
            assert!(said.contains(error), "{name}: {said}");
        }
    }

    #[test]
    fn values_of_forecasts_peers_and_texts() {
        let forecast = r#"{"curves": [{"column": "a", "points": [
            {"cpus": 1, "throughput": 2e6}, {"cpus": 4, "throughput": 4e6}]}]}"#;
        assert_eq!(value(forecast, "keeps a 4").expect("it is there"), 0.5);
        assert_eq!(value(forecast, "million a 4").expect("it is there"), 4.0);
        let peers = r#"{"samples": {"a small": [{"cpu_ns": 1}, {"cpu_ns": 3}, {"cpu_ns": 4}],
            "b small": [{"cpu_ns": 2}, {"cpu_ns": 2}, {"cpu_ns": 2}]}}"#;
        assert_eq!(value(peers, "peer-ns a small").expect("it is there"), 3.0);
        assert_eq!(value(peers, "peer-ratio a b small").expect("both are there"), 1.5);
        assert_eq!(value("x 1,234 ns", "find x ([0-9,]+) ns").expect("once"), 1234.0);
        assert!(value("x 1 x 2", "find x ([0-9])").is_err());
    }

    #[test]
    fn values_of_constants() {
        let code = "const A: u32 = 10_000;\nconst B: usize = 1 << 20;\nconst C: u8 = 2 * 3 * 4;\n\
                    const D: u8 = A;\n";
        let of = |name: &str| value(code, &format!("find const {name}: \\w+ = (.+);"));
        assert_eq!(of("A").expect("a number"), 10_000.0);
        assert_eq!(of("B").expect("a shift"), 1_048_576.0);
        assert_eq!(of("C").expect("a product"), 24.0);
        assert!(of("D").is_err());
        assert!(of("E").is_err());
    }

    #[test]
    fn a_figure_is_from_a_record_or_from_code() {
        let file = |origin: &str| {
            let text = format!("document = \"d\"\ntext = \"t\"\nvalues = []\n{origin}\n");
            toml::from_str::<Figure>(&text).expect(origin).file()
        };
        assert_eq!(file("record = \"day/a.json\"").expect("one"), "lab/record/day/a.json");
        assert_eq!(file("code = \"crates/a.rs\"").expect("one"), "crates/a.rs");
        assert!(file("").is_err());
        assert!(file("code = \"a\"\nrecord = \"b\"").is_err());
    }

    #[test]
    fn figures_are_written_into_their_places_only() {
        let figure = Figure {
            document: "d".into(),
            text: "| a | {} | {.1} |".into(),
            record: None,
            code: None,
            values: vec!["ns c a 1".into(), "ns c a 2".into()],
        };
        let mut differences = Vec::new();
        let document = "| b | 1 | 2 |\n| a |  3 | 16.0 |\n";
        let new = rewrite(document, &figure, RECORD, &mut differences).expect("it is there once");
        assert_eq!(new, "| b | 1 | 2 |\n| a |  10.0 | 16.0 |\n");
        assert_eq!(differences, ["d: 3 is 10.0: ns c a 1"]);
        let twice = format!("{document}{document}");
        assert!(rewrite(&twice, &figure, RECORD, &mut differences).is_err());
        assert!(rewrite("", &figure, RECORD, &mut differences).is_err());
    }

    #[test]
    fn a_figure_has_three_digits_or_the_decimals_that_are_asked_for() {
        for (value, decimals, text) in [
            (5445.4, None, "5,445"),
            (378.4, None, "378"),
            (99.96, None, "100"),
            (53.54, None, "53.5"),
            (1.972, None, "1.97"),
            (0.344, None, "0.34"),
            (1234567.0, None, "1,234,567"),
            (0.794, Some(1), "0.8"),
        ] {
            assert_eq!(figure_text(value, decimals), text);
        }
    }

    #[test]
    fn figures_that_no_list_names_are_found() {
        let figures = Figures {
            complete: vec!["d".into()],
            figures: Vec::new(),
            facts: vec![Fact {
                document: "d".into(),
                texts: vec!["takes 27.5 s on".into(), "| b | 18 |".into()],
                source: "a thread".into(),
            }],
        };
        let text = "It takes\n27.5 s on eight and 16 ns here.\n```\n5 ns\n```\n| a | 17 | x |\n\
                    | b | 18 |\n";
        let found = unlisted(text, "d", &figures).expect("the texts are there");
        assert_eq!(found, ["  line 2: 16 ns", "  line 6: | 17"]);
    }
}
