//! What `ql` says: help, lists and errors, word for word, and one real measurement.

use std::process::{Command, Output};

fn ql(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_ql"))
        .args(arguments)
        .output()
        .expect("ql was built for this test")
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

#[test]
fn words() {
    let cases = trycmd::TestCases::new();
    cases.case("tests/cmd/*.trycmd");
}

#[test]
fn a_quick_bench_prints_one_table_and_ends_well() {
    let output = ql(&["bench", "pipes", "-n", "1,2", "--columns", "host", "--quick"]);
    assert!(output.status.success(), "{output:?}");
    let table = text(&output.stdout);
    assert_eq!(table.matches("pipes pipe2: ns per pipe2+2 closes").count(), 1, "{table}");
    for heading in ["threads", "column", "ns", "ratio", "scaling"] {
        assert!(table.contains(heading), "{table}");
    }
    // The progress bar is for terminals.
    assert!(!text(&output.stderr).contains("pipe2"), "{output:?}");
}

#[test]
fn json_on_the_standard_output_has_it_to_itself() {
    let arguments = [
        "bench",
        "anonfds",
        "--case",
        "eventfd",
        "-n1",
        "--columns=host",
        "--quick",
        "--json",
        "-",
    ];
    let output = ql(&arguments);
    assert!(output.status.success(), "{output:?}");
    let json = text(&output.stdout);
    assert!(
        json.starts_with("{\"machine\":") && json.ends_with("}\n") && json.lines().count() == 1,
        "{json}"
    );
    assert!(text(&output.stderr).contains("anonfds eventfd: ns per open+close"), "{output:?}");
}

#[test]
fn a_file_that_cannot_be_written_is_told_before_the_run() {
    let output = ql(&["bench", "--json", "/nonexistent/results.json"]);
    assert_eq!(output.status.code(), Some(1));
    assert!(output.stdout.is_empty(), "nothing was measured");
    let error = text(&output.stderr);
    assert!(error.contains("cannot write the JSON to /nonexistent/results.json"), "{error}");
    assert!(error.contains("give another path"), "{error}");
}
