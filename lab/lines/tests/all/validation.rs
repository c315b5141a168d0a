//! The model beside the machine that runs the tests: uncontended kernels cost what it says, and contended ones come in the order
//! that it says.
#![cfg(quietline_sim)]

use quietline_lines::validation::{Row, Validation, machine_with};
use quietline_sim::topology::Topology;

/// Runs before it is believed: whatever else the machine does shows in a single one.
const RUNS: usize = 12;

fn pin(number: usize) {
    let mut only = rustix::thread::CpuSet::new();
    only.set(number);
    // Where it may not be there, the spread of the rounds shows it.
    let _ = rustix::thread::sched_setaffinity(None, &only);
}

/// Kernels that the machine tells apart, all rounds of the one above all but the noisiest of the other, and the model puts the
/// other way round.
fn turned_round(rows: &[Row]) -> Vec<String> {
    let apart = |low: &&Row, high: &&Row| low.measured[0] * 1.5 < high.measured[1];
    let pairs = rows.iter().flat_map(|low| rows.iter().map(move |high| (low, high)));
    pairs
        .filter(|(low, high)| apart(low, high) && low.modelled >= high.modelled)
        .map(|(low, high)| {
            format!("{} is below {} here, and not in the model", low.kernel, high.kernel)
        })
        .collect()
}

fn wrong(validation: &Validation) -> Vec<String> {
    let mut wrong = turned_round(&validation.rows);
    for row in validation.rows.iter().filter(|row| !row.contended) {
        if !(-0.4..0.4).contains(&row.error) {
            wrong.push(format!(
                "{}: {:.1} ns here, {:.1} in the model",
                row.kernel, row.measured[0], row.modelled
            ));
        }
    }
    wrong
}

#[test]
#[cfg_attr(
    debug_assertions,
    ignore = "kernels cost what they cost when they are optimised: --profile sim"
)]
fn the_model_agrees_with_this_machine() {
    let here = std::thread::available_parallelism().map_or(1, usize::from);
    assert!(here >= 2, "contention needs two CPUs, and this machine has {here}");
    let machine = Topology::load("one-socket-2").expect("a machine of our own");
    let mut found = Vec::new();
    for _ in 0..RUNS {
        let validation = Validation::run(&machine, 2, pin).expect("it runs");
        println!("{validation}");
        assert!(
            validation.probes.iter().all(|probe| probe.ns[1] > 0.0 && probe.ns[1] <= probe.ns[2])
        );
        let contended = validation.rows.iter().filter(|row| row.contended);
        assert!(contended.clone().count() >= 5 && validation.rows.len() - contended.count() >= 3);
        found = wrong(&validation);
        if found.is_empty() {
            return;
        }
    }
    panic!("{}", found.join("\n"));
}

/// What this machine does not have is not measured.
#[test]
fn more_cpus_than_there_are_is_an_error() {
    let machine = Topology::load("epyc-2x64").expect("a machine of our own");
    let here = std::thread::available_parallelism().map_or(1, usize::from);
    if here < machine.cpus() {
        let error = Validation::run(&machine, here + 1, pin).expect_err("it has fewer").to_string();
        assert!(error.contains("this machine"), "{error}");
    }
    let small = Topology::load("one-socket-2").expect("a machine of our own");
    assert!(Validation::run(&small, 3, pin).is_err());
}

#[test]
fn the_model_is_given_a_machine_with_enough_cpus() {
    for (cpus, machine) in [
        (1, "one-socket-2"),
        (2, "one-socket-2"),
        (8, "one-socket-8"),
        (16, "one-socket-16"),
        (128, "epyc-2x64"),
    ] {
        assert_eq!(machine_with(cpus).expect("there is one").name, machine, "for {cpus}");
    }
    assert!(machine_with(10_000).expect_err("none is so large").to_string().contains("10000"));
}
