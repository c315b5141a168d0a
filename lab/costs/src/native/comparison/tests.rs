//! The comparison, at and past each limit.

use super::{Acceptance, Change, Finding, changed, compare, cumulative};
use crate::{Amount, Checkout, Column, Entry, Ledger, Row, Sheet};
use std::collections::BTreeMap;

/// A row with this many instructions and locked instructions.
fn row(instructions: u64, locked: u64) -> Row {
    let mut row = Row::default();
    super::COLUMNS.into_iter().for_each(|column| row.set(column, Amount::whole(0)));
    row.set(Column::Instructions, Amount::whole(instructions));
    row.set(Column::Locked, Amount::whole(locked));
    row
}

fn entry(adr: Option<u32>, rows: &[(&str, Row)]) -> Entry {
    Entry {
        date: "2026-11-23".into(),
        commit: "0123456789ab".into(),
        compiler: "rustc 1".into(),
        profile: "release".into(),
        reason: "a \"test\"".into(),
        adr,
        rows: rows.iter().map(|(name, row)| ((*name).into(), Some(*row))).collect(),
    }
}

fn sheet(rows: &[(&'static str, Row)]) -> Sheet {
    Sheet {
        compiler: "rustc 1".into(),
        profile: "release".into(),
        rows: rows.iter().copied().collect(),
    }
}

fn ledger(entries: &[Entry]) -> Ledger {
    Ledger { entries: entries.to_vec() }
}

/// Compares one row before and after.
fn compared(before: Row, after: Row) -> Vec<Finding> {
    compare(&ledger(&[entry(None, &[("stat-1", before)])]), &sheet(&[("stat-1", after)]), true).0
}

fn change(column: Column, before: u64, after: u64) -> Change {
    let (before, after) = (Amount::whole(before), Amount::whole(after));
    Change { operation: "stat-1".into(), column, before, after }
}

#[test]
fn instructions_may_grow_by_one_percent() {
    assert_eq!(compared(row(1000, 2), row(1010, 2)), []);
    let grown = compared(row(1000, 2), row(1011, 2));
    assert_eq!(grown, [Finding::Grown(change(Column::Instructions, 1000, 1011))]);
    assert!(grown[0].is_failure());
    assert_eq!(grown[0].to_string(), "grown:   stat-1: instructions 1000 -> 1011 (+1.1 %)");
    // A hundredth of 50 is no whole instruction.
    assert_eq!(compared(row(50, 2), row(51, 2)).len(), 1);
}

#[test]
fn other_counts_may_not_grow() {
    for column in super::COLUMNS.into_iter().filter(|column| *column != Column::Instructions) {
        let (mut before, mut after) = (row(100, 0), row(100, 0));
        before.set(column, "100".parse().unwrap());
        after.set(column, "100".parse().unwrap());
        assert_eq!(compared(before, after), []);
        after.set(column, "100.001".parse().unwrap());
        let grown = compared(before, after);
        assert!(matches!(&grown[..], [Finding::Grown(c)] if c.column == column), "{grown:?}");
        after.set(column, "99.999".parse().unwrap());
        let shrunk = compared(before, after);
        assert!(matches!(&shrunk[..], [Finding::Shrunk(c)] if c.column == column), "{shrunk:?}");
        assert!(!shrunk[0].is_failure());
    }
}

#[test]
fn nothing_may_become_something() {
    assert_eq!(compared(row(100, 0), row(100, 1)), [Finding::Grown(change(Column::Locked, 0, 1))]);
    assert_eq!(
        Finding::Grown(change(Column::Locked, 0, 1)).to_string(),
        "grown:   stat-1: locked 0 -> 1"
    );
}

#[test]
fn a_row_that_shrinks_and_grows_fails() {
    let both = compared(row(1000, 2), row(900, 3));
    assert_eq!(both.len(), 2);
    assert!(both.iter().any(Finding::is_failure));
}

#[test]
fn rows_that_are_missing_or_new_fail() {
    let old = ledger(&[entry(None, &[("stat-1", row(1, 1)), ("gone", row(1, 1))])]);
    let now = sheet(&[("stat-1", row(1, 1)), ("fresh", row(1, 1))]);
    let findings = compare(&old, &now, true);
    assert_eq!(findings.0, [Finding::New("fresh".into()), Finding::Missing("gone".into())]);
    assert!(findings.fail());
    // A part of the sheet cannot tell that a row is missing.
    assert_eq!(compare(&old, &now, false).0, [Finding::New("fresh".into())]);
}

#[test]
fn another_compiler_or_profile_fails() {
    let old = ledger(&[entry(None, &[("stat-1", row(1, 1))])]);
    let now = sheet(&[("stat-1", row(1, 1))]);
    assert!(!compare(&old, &now, true).fail());
    let others = [
        Sheet { compiler: "rustc 2".into(), ..now.clone() },
        Sheet { profile: "record".into(), ..now },
    ];
    for other in others {
        let findings = compare(&old, &other, true);
        assert!(matches!(findings.0[..], [Finding::OtherBuild { .. }]));
        assert!(findings.fail());
    }
}

#[test]
fn the_newest_entry_counts() {
    let decided = entry(Some(24), &[("stat-1", row(200, 1))]);
    let old = ledger(&[entry(None, &[("stat-1", row(100, 1))]), decided]);
    assert!(!compare(&old, &sheet(&[("stat-1", row(202, 1))]), true).fail());
    assert!(compare(&old, &sheet(&[("stat-1", row(203, 1))]), true).fail());
}

#[test]
fn three_percent_above_the_best_take_a_decision() {
    let old = ledger(&[
        entry(None, &[("stat-1", row(1000, 1))]),
        entry(None, &[("stat-1", row(1020, 1))]),
    ]);
    assert_eq!(cumulative(&old, &sheet(&[("stat-1", row(1030, 1))])), []);
    let grown = cumulative(&old, &sheet(&[("stat-1", row(1031, 1))]));
    assert_eq!(grown, [change(Column::Instructions, 1000, 1031)]);
    // One locked instruction more is 100 % more.
    assert_eq!(cumulative(&old, &sheet(&[("stat-1", row(1000, 2))])).len(), 1);
}

#[test]
fn growth_in_the_ledger_takes_a_decision() {
    let grown = |adr| {
        let rows = [("stat-1", row(1000, 1))];
        let old = ledger(&[entry(None, &rows), entry(adr, &[("stat-1", row(1031, 1))])]);
        compare(&old, &sheet(&[("stat-1", row(1031, 1))]), true)
    };
    let undecided = grown(None);
    assert_eq!(undecided.0, [Finding::Undecided(change(Column::Instructions, 1000, 1031))]);
    assert!(undecided.fail());
    assert!(!grown(Some(24)).fail());
}

#[test]
fn a_column_that_the_ledger_lacks_fails() {
    let mut old = Row::default();
    old.set(Column::Instructions, Amount::whole(10));
    let mut new = old;
    new.set(Column::Locked, Amount::whole(0));
    assert_eq!(compared(old, new), [Finding::New("stat-1: locked".into())]);
    // What was not measured is not compared.
    assert_eq!(compared(new, old), []);
}

#[test]
fn another_compiler_takes_all_operations() {
    let checkout = Checkout::find().unwrap();
    let old = ledger(&[entry(None, &[("stat-1", row(1000, 1)), ("stat-3", row(1000, 1))])]);
    let other = Sheet { compiler: "rustc 2".into(), ..sheet(&[("stat-1", row(1001, 1))]) };
    let accept = |whole| {
        let acceptance = Acceptance { reason: "a new compiler".into(), adr: None, whole };
        acceptance.entry(&checkout, &old, &other)
    };
    assert!(accept(false).unwrap_err().to_string().contains("accept all operations"));
    assert_eq!(accept(true).unwrap().unwrap().compiler, "rustc 2");
}

#[test]
fn a_decision_begins_anew_what_it_lets_grow() {
    let mut old = ledger(&[
        entry(None, &[("stat-1", row(1000, 2))]),
        entry(Some(24), &[("stat-1", row(1100, 1))]),
    ]);
    let best = |ledger: &Ledger, column| ledger.best("stat-1", column).unwrap();
    assert_eq!(best(&old, Column::Instructions), Amount::whole(1100));
    // It lets nothing grow that became smaller.
    assert_eq!(best(&old, Column::Locked), Amount::whole(1));
    assert_eq!(cumulative(&old, &sheet(&[("stat-1", row(1133, 1))])), []);
    assert_eq!(cumulative(&old, &sheet(&[("stat-1", row(1134, 1))])).len(), 1);
    old.entries.push(entry(None, &[("stat-1", row(1050, 1))]));
    assert_eq!(best(&old, Column::Instructions), Amount::whole(1050));
}

#[test]
fn acceptance_takes_a_reason_and_an_existing_decision() {
    let checkout = Checkout::find().unwrap();
    let old = ledger(&[entry(None, &[("stat-1", row(1000, 1))])]);
    let accept = |reason: &str, adr, instructions| {
        let acceptance = Acceptance { reason: reason.into(), adr, whole: true };
        acceptance.entry(&checkout, &old, &sheet(&[("stat-1", row(instructions, 1))]))
    };
    assert!(accept(" ", None, 1010).unwrap_err().to_string().contains("reason"));
    assert_eq!(accept("why", None, 1000).unwrap(), None);
    let entry = accept("why", None, 1001).unwrap().unwrap();
    assert_eq!(entry.rows, BTreeMap::from([("stat-1".into(), Some(row(1001, 1)))]));
    let error = accept("why", None, 1031).unwrap_err().to_string();
    assert!(error.contains("stat-1: instructions 1000 -> 1031"), "{error}");
    assert!(accept("why", Some(9999), 1031).unwrap_err().to_string().contains("9999"));
    assert_eq!(accept("why", Some(1), 1031).unwrap().unwrap().adr, Some(1));
}

#[test]
fn an_entry_has_the_rows_that_changed() {
    let old =
        ledger(&[entry(None, &[("same", row(1, 1)), ("less", row(2, 1)), ("gone", row(3, 1))])]);
    let now = sheet(&[("same", row(1, 1)), ("less", row(1, 1)), ("new", row(4, 1))]);
    let rows = changed(&old, &now, true);
    let expected = [("gone", None), ("less", Some(row(1, 1))), ("new", Some(row(4, 1)))];
    assert_eq!(rows, expected.map(|(name, row)| (name.to_owned(), row)).into());
    assert!(!changed(&old, &now, false).contains_key("gone"));
}

#[test]
fn the_file_keeps_all_that_an_entry_has() {
    let mut entry = entry(Some(24), &[("stat-1", row(1000, 1)), ("a", row(1, 0))]);
    entry.rows.insert("gone".into(), None);
    let mut fraction = row(1, 1);
    fraction.set(Column::SharedLinesOwnProcesses, "0.001".parse().unwrap());
    entry.rows.insert("rare".into(), Some(fraction));
    let lines = entry.to_lines();
    assert_eq!(lines.lines().count(), 5);
    assert_eq!(Ledger::parse(&lines).unwrap().entries, [entry]);
    // Appending keeps what there is.
    let twice = Ledger::parse(&(lines.clone() + &lines)).unwrap();
    assert_eq!(twice.entries.len(), 2);
}

#[test]
fn a_malformed_ledger_is_refused() {
    let head = entry(None, &[]).to_lines();
    let row = row(1, 1).to_json("stat-1");
    assert!(Ledger::parse(&format!("{head}{row}")).is_ok());
    for wrong in [
        row.clone(),
        format!("{head}{row}\n{row}"),
        format!("{head}{}", row.replace("\"locked\":1,", "")),
        format!("{head}{}", row.replace("locked", "unlocked")),
        format!("{head}{}", row.replace("\"locked\":1", "\"locked\":\"1\"")),
        head.replace("\"reason\"", "\"season\""),
        "{".into(),
    ] {
        assert!(Ledger::parse(&wrong).is_err(), "{wrong}");
    }
}
