//! The operations run, and their names are keys.

use quietline_costs::{Operation, Sharing, operations};
use std::collections::BTreeSet;

#[test]
fn names_are_unique_and_in_kebab_case() {
    let operations = operations();
    assert!(operations.len() >= 100, "{} operations", operations.len());
    let mut names = BTreeSet::new();
    for Operation { name, group, about, repeats, .. } in operations {
        let kebab = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
        assert!(name.chars().all(kebab), "{name}");
        assert!(names.insert(name), "{name} twice");
        assert!(!group.is_empty() && !about.is_empty() && repeats > 0, "{name}");
    }
}

#[test]
fn operations_run_with_a_process_for_all_and_with_one_each() {
    for sharing in [Sharing::OneProcess, Sharing::OwnProcesses] {
        for operation in operations() {
            println!("{} {sharing:?}", operation.name);
            let scene = (operation.scene)(sharing);
            let [mut first, mut second] = [scene(0), scene(1)];
            for _ in 0..50 {
                first();
                second();
            }
        }
    }
}
