//! The machines' files.

use quietline_sim::topology::Topology;

#[test]
fn every_known_machine_is_well_formed() {
    let mut machines = 0;
    for name in Topology::known() {
        let machine = Topology::load(name).expect("it can be read");
        assert_eq!(machine.name, name);
        // Eleven of the core, and three for each level.
        assert!(machine.sources.len() >= 11 + 3 * machine.levels.len(), "{name}");
        for pair in machine.levels.windows(2) {
            assert!(
                pair[0].load_modified <= pair[1].load_modified,
                "{name}: farther is not nearer"
            );
        }
        machines += 1;
    }
    assert_eq!(machines, 11);
}

/// Whether a source begins with a file of the repository.
fn is_there(source: &str) -> bool {
    let file = source.split(": ").next().expect("there is a first part");
    std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(file).is_file()
}

/// A figure is somebody's, is in a record that is here, or says that it is an estimate and why.
#[test]
fn every_figure_has_its_source() {
    for name in Topology::known() {
        for (what, source) in &Topology::load(name).expect("it can be read").sources {
            let of_somebody =
                ["public page: ", "paper: ", "thread: "].iter().any(|s| source.starts_with(s));
            let recorded = source.strip_prefix("record: ").is_some_and(is_there);
            let estimate =
                source.strip_prefix("estimate: ").is_some_and(|reason| reason.len() > 10);
            assert!(of_somebody || recorded || estimate, "{name}: {what}: {source}");
        }
    }
}

#[test]
fn distances() {
    let machine = Topology::load("core2-2x4").expect("it can be read");
    assert_eq!((machine.distance(0, 1), machine.distance(1, 2), machine.distance(0, 7)), (0, 1, 1));
    let machine = Topology::load("westmere-8x10").expect("it can be read");
    assert_eq!(
        (machine.distance(0, 9), machine.distance(9, 10), machine.distance(0, 79)),
        (0, 1, 2)
    );
    assert_eq!(machine.cpus(), 80);
}

#[test]
fn processes_are_dealt_to_nodes_in_turn() {
    let machine = Topology::load("westmere-8x10").expect("it can be read");
    let dealt = machine.dealt_to(2);
    assert_eq!((dealt.distance(0, 1), dealt.distance(0, 2), dealt.distance(1, 19)), (1, 0, 0));
    // On one node, and without dealing, CPUs are counted through.
    for same in [machine.dealt_to(1), machine.clone()] {
        assert_eq!((same.distance(0, 9), same.distance(0, 10)), (0, 1));
    }
    // Of eight nodes each gets one before the first gets its second.
    let dealt = machine.dealt_to(8);
    assert!((1..8).all(|cpu| dealt.distance(0, cpu) > 0) && dealt.distance(0, 8) == 0);
    assert!(std::panic::catch_unwind(|| machine.dealt_to(9)).is_err());
}

#[test]
fn bad_files_are_refused() {
    let good = include_str!("../../machines/one-socket-2.toml");
    assert!(Topology::parse(good).is_ok());
    for (from, to, says) in [
        ("cycles = 2\n", "cycles = 2\nns = 1\n", "one of them"),
        ("cpus = 2", "cpus = 1", "whole inner groups"),
        ("cpus = 2", "cpus = 300", "CPUs"),
        ("ghz", "gigahertz", "gigahertz"),
    ] {
        let error = Topology::parse(&good.replace(from, to)).expect_err("it is wrong").to_string();
        assert!(error.contains(says), "{error}");
    }
    assert!(
        Topology::load("no-such-machine")
            .expect_err("there is none")
            .to_string()
            .contains("core2-2x4")
    );
}

#[test]
fn scaling_leaves_the_core_alone() {
    let machine = Topology::load("core2-2x4").expect("it can be read");
    let slower = machine.scaled(1.3);
    assert_eq!(slower.levels[1].store, machine.levels[1].store * 13 / 10);
    assert_eq!((slower.core.locked, slower.core.l1), (machine.core.locked, machine.core.l1));
}
