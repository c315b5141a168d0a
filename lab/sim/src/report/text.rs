//! The report as a table.

use super::Report;
use comfy_table::{CellAlignment, ContentArrangement, Table, presets};
use core::fmt::{self, Write};

/// Rows of fields that a table shows.
const FIELDS: usize = 24;

fn table(heads: &[&str]) -> Table {
    let mut table = Table::new();
    table
        .load_style(presets::UTF8_FULL_CONDENSED)
        .set_content_arrangement(ContentArrangement::Dynamic);
    table.set_header(heads);
    for column in table.column_iter_mut().skip(1) {
        column.set_cell_alignment(CellAlignment::Right);
    }
    table
}

/// A number with as many digits as say something.
pub(super) fn number(n: f64) -> String {
    match n {
        0.0 => "0".to_owned(),
        n if n < 0.01 => format!("{n:.4}"),
        n if n < 100.0 => format!("{n:.2}"),
        n => format!("{n:.0}"),
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "{} on {} CPU(s) of {} ({}), {} operations, seed {}",
            self.operation, self.cpus, self.machine, self.title, self.ops, self.seed
        )?;
        writeln!(
            f,
            "{:.1} ns per operation; per operation {} contended lines touched, {} lines moved between CPUs\n",
            self.ns_per_op,
            number(self.contended_lines),
            number(self.moved_lines)
        )?;
        let heads = [
            "field",
            "words",
            "reads",
            "writes",
            "locked",
            "hits",
            "transfers",
            "invalid.",
            "memory",
            "wait ns",
            "share",
        ];
        let mut fields = table(&heads);
        for row in self.fields.iter().take(FIELDS) {
            let mut cells = vec![row.field.clone(), row.words.to_string()];
            let counts = [
                row.reads,
                row.writes,
                row.locked,
                row.hits,
                row.transfers,
                row.invalidations,
                row.memory,
            ];
            cells.extend(counts.map(number));
            cells.push(number(row.wait_ns));
            cells.push(format!("{:.1} %", row.share * 100.0));
            fields.add_row(cells);
        }
        writeln!(f, "{fields}")?;
        if self.fields.len() > FIELDS {
            writeln!(f, "... and {} fields more that cost less", self.fields.len() - FIELDS)?;
        }
        f.write_char('\n')?;
        if self.conflicts.is_empty() {
            return writeln!(f, "No line was contended.");
        }
        let heads = [
            "contended line",
            "lines",
            "readers",
            "writers",
            "touched/op",
            "moved/op",
            "wait ns/op",
        ];
        let mut conflicts = table(&heads);
        for row in &self.conflicts {
            conflicts.add_row(vec![
                row.line.clone(),
                row.lines.to_string(),
                row.readers.to_string(),
                row.writers.to_string(),
                number(row.touched),
                number(row.moved),
                number(row.wait_ns),
            ]);
        }
        writeln!(f, "{conflicts}")
    }
}
