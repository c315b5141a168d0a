//! The ledger as a document.

use super::COLUMNS;
use crate::{Entry, Ledger, operations};
use std::fmt::Write;

/// Widest line of the document.
const WIDTH: usize = 100;

/// Renders the newest rows and the list of entries as Markdown.
pub fn render(ledger: &Ledger) -> String {
    let mut text = String::from(HEAD);
    let newest = ledger.newest();
    if let Some((compiler, profile)) = ledger.build() {
        let said = format!(
            "The ledger has {} operations. Compiler: {compiler}. Profile: {profile}.",
            newest.len()
        );
        text += &wrap("", &said);
        text += "\n";
    }
    let (mut group, mut about) = ("", String::new());
    for operation in operations() {
        let Some(row) = newest.get(operation.name) else { continue };
        if operation.group != group {
            text += &std::mem::take(&mut about);
            text += if group.is_empty() { "" } else { "\n" };
            group = operation.group;
            let headers = COLUMNS.map(|column| column.header().trim().replace("-\n", ""));
            let headers = headers.map(|header| header.replace('\n', " ")).join(" | ");
            let _ = writeln!(text, "## {group}\n\n| | {headers} |");
            text += "|---|";
            text += &"---:|".repeat(COLUMNS.len());
            text += "\n";
            about = "\n".to_owned();
        }
        let _ = write!(text, "| {} |", operation.name);
        for column in COLUMNS {
            let amount = row.get(column).map_or("?".to_owned(), |amount| amount.to_string());
            let _ = write!(text, " {amount} |");
        }
        text += "\n";
        about += &wrap("* ", &format!("`{}`: {}", operation.name, operation.about));
    }
    text += &about;
    text += "\n## Entries\n\n";
    for entry in &ledger.entries {
        text += &wrap("* ", &summary(entry));
    }
    text
}

fn summary(entry: &Entry) -> String {
    let Entry { date, commit, reason, adr, rows, .. } = entry;
    let adr = adr.map_or(String::new(), |number| format!(", decision {number}"));
    format!("{date}, {commit}, {} rows{adr}: {reason}", rows.len())
}

/// Breaks a paragraph into lines.
fn wrap(bullet: &str, text: &str) -> String {
    let mut lines = String::new();
    let mut line = bullet.to_owned();
    for word in text.split_whitespace() {
        if line.chars().count() + 1 + word.chars().count() > WIDTH && !line.trim().is_empty() {
            lines += line.trim_end();
            lines += "\n";
            line = " ".repeat(bullet.len());
        }
        if !line.is_empty() && !line.ends_with(' ') {
            line += " ";
        }
        line += word;
    }
    lines + line.trim_end() + "\n"
}

const HEAD: &str = "\
# Costs

What each public operation on a hot path costs: counts, not times. `ql costs --render` writes this
file from the [ledger](../lab/record/costs/ledger.jsonl), and the gate checks that it is up to date.
The gate also counts all operations anew, and fails when a count has grown: see
[ADR 24](adr/0024-the-cost-ledger.md).

| column | count for each operation |
|---|---|
| instructions | instructions of the program's own code, in the median of three operations |
| locked, fences | locked instructions and fences among them |
| system calls | system calls |
| library calls | calls into the C library, whose own instructions are not counted |
| lines | cache lines that two of three operations stay within, in the model: as for shared |
| shared | lines that it writes and another CPU uses: CPUs in one process, or in their own |
| bytes allocated | bytes of slab objects and of the C library's memory |
| bytes retained | bytes that are still allocated after it |

";

#[cfg(test)]
mod tests {
    use super::{WIDTH, render, wrap};
    use crate::{Amount, COLUMNS, Entry, Ledger, Row};

    #[test]
    fn a_document_has_each_row_and_entry_and_no_wide_line() {
        let mut row = Row::default();
        COLUMNS.into_iter().for_each(|column| row.set(column, Amount::whole(123_456)));
        let entry = Entry {
            date: "2026-11-23".into(),
            commit: "0123456789ab".into(),
            compiler: "rustc 1".into(),
            profile: "release".into(),
            reason: "word ".repeat(60),
            adr: Some(24),
            rows: ["stat-1", "spinlock"].map(|name| (name.to_owned(), Some(row))).into(),
        };
        let text = render(&Ledger { entries: vec![entry] });
        assert!(text.contains("| stat-1 | 123456 |"), "{text}");
        assert!(text.contains("* 2026-11-23, 0123456789ab, 2 rows, decision 24: word"), "{text}");
        assert!(text.contains("* `stat-1`: stat of a file"), "{text}");
        assert!(!text.contains("stat-3"), "rows that are not in the ledger are not shown");
        assert!(text.contains("unlock\n\n## paths\n"), "{text}");
        let rows = |line: &&str| !line.starts_with('|');
        assert!(text.lines().filter(rows).all(|line| line.chars().count() <= WIDTH), "{text}");
    }

    #[test]
    fn lines_are_broken_at_the_width() {
        let text = wrap("* ", &"abc ".repeat(50));
        assert_eq!(text.lines().count(), 3);
        assert!(text.lines().all(|line| line.len() <= WIDTH));
        assert!(text.lines().skip(1).all(|line| line.starts_with("  abc")));
        assert_eq!(wrap("", "one line"), "one line\n");
    }
}
