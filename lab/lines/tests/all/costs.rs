//! `ql-sim costs`: the columns of the cost ledger that the model counts.
#![cfg(quietline_sim)]

use serde_json::Value;
use std::process::{Command, Output};

/// Plants a slowdown in an operation: `OPERATION:PLANT`.
const PLANT: &str = "QUIETLINE_COSTS_PLANT";

fn costs(operations: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_ql-sim"));
    command.args(["costs", "--json", "-"]).args(operations).env_remove(PLANT);
    command
}

fn output(command: &mut Command) -> Output {
    command.output().expect("ql-sim starts")
}

/// Returns what the program prints, which must succeed.
fn sheet(command: &mut Command) -> String {
    let output = output(command);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).expect("JSON is text")
}

/// Returns the shared lines that an operation with one kind of sharing typically writes, and the
/// names of the lines.
fn shared(sheet: &str, sharing: &str) -> (u64, String) {
    let sheet: Value = serde_json::from_str(sheet).expect("JSON");
    let rows = sheet["rows"].as_array().expect("rows");
    let row = rows.iter().find(|row| row["sharing"] == sharing).expect("a row for each sharing");
    let typical = row["shared_lines_written"]["typical"].as_u64().expect("a number");
    (typical, row["contended"].to_string())
}

/// The layout of the process, the limit of its stack and the processor's features that the C
/// library uses differ.
#[test]
fn counts_do_not_depend_on_the_environment() {
    let operations = ["rename-1", "inotify-add-rm", "udp-bind", "tcp-connect", "forward-ipv4"];
    let here = sheet(&mut costs(&operations));
    let mut elsewhere = costs(&operations);
    elsewhere
        .env("GLIBC_TUNABLES", "glibc.cpu.hwcaps=-AVX2,-AVX512F,-ERMS,-FSRM")
        .env("PADDING", "x".repeat(5000));
    assert_eq!(here, sheet(&mut elsewhere));
    assert_eq!(here.matches("one-process").count(), operations.len());
}

#[test]
fn a_planted_shared_line_is_counted_and_named() {
    let operation = "epoll-wait-0";
    let before = sheet(&mut costs(&[operation]));
    let after = sheet(costs(&[operation]).env(PLANT, format!("{operation}:shared-line")));
    for sharing in ["one-process", "own-processes"] {
        assert_eq!(shared(&before, sharing), (0, "[]".to_owned()));
        let (typical, names) = shared(&after, sharing);
        assert_eq!(typical, 1);
        assert!(names.contains("lab/costs/src/plant.rs"), "{names}");
    }
}

#[test]
fn an_operation_that_panics_is_named_and_fails_the_program() {
    let output = output(costs(&["stat-1", "fstat"]).env(PLANT, "stat-1:no-such-plant"));
    let message = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{message}");
    assert!(message.contains("stat-1 (one-process)"), "{message}");
    assert!(message.contains("stat-1 (own-processes)"), "{message}");
    assert!(!message.contains("fstat"), "{message}");
}

#[test]
fn an_unknown_operation_is_an_error() {
    let output = output(&mut costs(&["no-such-operation"]));
    assert_eq!(output.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&output.stderr).contains("no-such-operation"));
}
