//! The program `ql-costs`: its counts do not depend on the run, and show planted slowdowns.

use std::process::{Command, Output};

fn program(arguments: &[&str], variables: &[(&str, &str)]) -> Output {
    let mut program = Command::new(env!("CARGO_BIN_EXE_ql-costs"));
    program.args(arguments).envs(variables.iter().copied()).output().expect("the program runs")
}

/// Returns the numbers that a command prints, or `None` if the system lets no program trace its
/// child, which is a failure if `QUIETLINE_REQUIRE_COUNTS` is 1.
fn numbers(arguments: &[&str], variables: &[(&str, &str)]) -> Option<Vec<u64>> {
    let output = program(arguments, variables);
    let said = String::from_utf8_lossy(&output.stderr);
    if output.status.code() == Some(3) {
        let required = std::env::var_os("QUIETLINE_REQUIRE_COUNTS").is_some_and(|v| v == "1");
        assert!(!required, "{said}");
        eprintln!("not checked: {said}");
        return None;
    }
    assert!(output.status.success(), "{arguments:?}: {said}");
    let text = String::from_utf8(output.stdout).unwrap();
    Some(text.split_whitespace().map(|number| number.parse().unwrap()).collect())
}

#[test]
fn counts_do_not_depend_on_the_environment_or_the_library() {
    let tunables = "glibc.cpu.hwcaps=-AVX2,-AVX512F,-AVX,-ERMS,-FSRM";
    for operation in ["unix-stream-4096", "create-unlink-3", "inotify-event"] {
        let counts = |variables: &[_]| numbers(&["count-row", operation], variables);
        let Some(first) = counts(&[]) else { return };
        assert!(first[0] > 100, "{operation}: {first:?}");
        let long = "x".repeat(5000);
        let others: [&[(&str, &str)]; 3] =
            [&[], &[("GLIBC_TUNABLES", tunables)], &[("UNRELATED", &long)]];
        for variables in others {
            assert_eq!(counts(variables).as_ref(), Some(&first), "{operation} {variables:?}");
        }
    }
}

#[test]
fn each_planted_slowdown_shows_in_its_column() {
    // Instructions, locked, fences, system calls, library calls, bytes from the library.
    let plants = [
        ("instructions=10", 0, 10),
        ("locked", 1, 1),
        ("fence", 2, 1),
        ("system-call", 3, 1),
        ("library-call", 4, 1),
        ("allocation", 5, 64),
    ];
    let Some(clean) = numbers(&["count-row", "eventfd-handle"], &[]) else { return };
    for (plant, column, amount) in plants {
        let variable = format!("eventfd-handle:{plant}");
        let planted = [("QUIETLINE_COSTS_PLANT", variable.as_str())];
        let counts = numbers(&["count-row", "eventfd-handle"], &planted).unwrap();
        assert!(counts[column] >= clean[column] + amount, "{plant}: {clean:?} {counts:?}");
        // Another row is as it was.
        assert_eq!(
            numbers(&["count-row", "spinlock"], &planted),
            numbers(&["count-row", "spinlock"], &[])
        );
    }
}

#[test]
fn a_leak_is_retained_and_an_allocation_is_not() {
    let of = |plant: &str| {
        let variable = format!("eventfd-handle:{plant}");
        let checks = ("QUIETLINE_SLAB_DEBUG", "F");
        let variables = [checks, ("QUIETLINE_COSTS_PLANT", variable.as_str())];
        numbers(&["measure-bytes", "eventfd-handle"], &variables)
    };
    let Some(clean) = of("allocation") else { return };
    assert_eq!((clean[0], clean[1]), (192, 0), "an eventfd has 192 bytes");
    assert!(of("leak").unwrap()[1] >= 64);
}

#[test]
fn wrong_requests_are_explained() {
    for (arguments, said) in [
        (&["no-such-operation"][..], "`ql costs --list` lists them"),
        (&["--adr", "24"], "--accept"),
        (&["--accept", "why", "--check"], "cannot be used with"),
        (&["--accept", "why", "--without-model"], "cannot be used with"),
        (&["--check", "--without-model"], "cannot be used with"),
        (&["stat-1", "--render"], "cannot be used with"),
        (&["--explain"], "OPERATION"),
    ] {
        let output = program(arguments, &[]);
        let text = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{arguments:?}: {text}");
        assert!(text.contains(said), "{arguments:?}: {text}");
    }
    let list = program(&["--list"], &[]);
    let text = String::from_utf8_lossy(&list.stdout);
    assert!(list.status.success() && text.contains("stat-8"), "{text}");
}
