//! `ql memory`: real measurements, small ones, in processes of their own.

use std::process::{Command, Output};

fn memory(arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_ql"));
    command.arg("memory").args(arguments).output().expect("ql was built for this test")
}

/// The number that follows a name.
fn number(json: &str, name: &str) -> f64 {
    let (_, rest) =
        json.split_once(&format!("\"{name}\":")).unwrap_or_else(|| panic!("no {name} in {json}"));
    let end = rest.find([',', '}']).expect("it goes on");
    rest[..end].parse().unwrap_or_else(|error| panic!("{name}: {error} in {json}"))
}

#[test]
fn what_is_shrunk_comes_back() {
    let output =
        memory(&["--objects", "200000", "--sizes", "192", "--columns", "quietline", "--json", "-"]);
    assert!(output.status.success(), "{output:?}");
    let json = String::from_utf8_lossy(&output.stdout);
    assert!(
        json.contains("\"column\":\"quietline\"") && json.contains("\"checked\":true"),
        "{json}"
    );
    let (overhead, end) = (number(&json, "overhead"), number(&json, "end"));
    // Headers of slabs, and what of a slab holds no object.
    assert!((0.0..40.0).contains(&overhead), "{overhead} bytes for each object");
    assert!(end < 1.05, "{end} of the start is resident");
    let kept = number(&json, "kept");
    // What a cache is made of stays: some words for every CPU that there may be, among others.
    let most = (256 << 10) + (4 << 10) * quietline_platform::cpu::nr_cpus();
    assert!((0.0..=most as f64).contains(&kept), "{kept} bytes stay");
    let table = String::from_utf8_lossy(&output.stderr);
    assert!(table.contains("given back") && table.contains("shrink"), "{table}");
}

#[test]
fn requests_that_cannot_be() {
    for (arguments, says) in [
        (
            ["--sizes", "4"],
            "objects must have at least 8 bytes; give sizes such as `--sizes 64,192`",
        ),
        (["--objects", "0"], "--objects must be at least 1"),
        (["--columns", "malloc"], "no column is called `malloc`"),
    ] {
        let output = memory(&arguments);
        assert_eq!(output.status.code(), Some(2), "{output:?}");
        assert!(String::from_utf8_lossy(&output.stderr).contains(says), "{output:?}");
    }
}
