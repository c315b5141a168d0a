//! In which order and on which CPUs samples are taken.

use std::time::Duration;

use crate::columns::{Flaw, Log, Toy};
use quietline_bench::harness::{Plan, Progress, measure, pin};
use quietline_bench::workloads::pipes::PIPES;

#[test]
fn columns_are_interleaved_and_odd_rounds_go_back() {
    let log = Log::default();
    let columns = ["a", "b", "c"].map(|name| Toy::logged(name, &log));
    let plan = Plan { rounds: 3, ..Plan::smoke(vec![1]) };
    measure(&PIPES, &[&PIPES.cases[0]], &columns, &plan, &Progress::hidden());
    let log = log.lock().expect("not poisoned");
    // What comes before are the calibrations.
    let rounds: String = log[log.len() - 9..].iter().map(|(name, ..)| name.as_str()).collect();
    assert_eq!(rounds, "abccbaabc");
}

#[test]
fn every_thread_takes_every_sample_on_its_own_cpu() {
    let log = Log::default();
    let columns = [Toy::logged("a", &log)];
    let cpus = pin::allowed_cpus();
    let threads = cpus.len() + 1;
    let plan = Plan { rounds: 2, ..Plan::smoke(vec![threads]) };
    let measured = measure(&PIPES, &[&PIPES.cases[0]], &columns, &plan, &Progress::hidden());
    assert_eq!(measured.rows[0].samples.len(), 2);
    let log = log.lock().expect("not poisoned");
    for &(_, thread, cpu) in log.iter() {
        assert_eq!(cpu, Some(cpus[thread % cpus.len()]), "thread {thread}");
    }
    for thread in 0..threads {
        let samples = log.iter().filter(|entry| entry.1 == thread).count();
        assert_eq!(samples * threads, log.len(), "thread {thread}");
    }
}

#[test]
fn a_budget_ends_the_rounds_but_not_before_the_first() {
    let columns = [Toy::logged("a", &Log::default())];
    let plan = Plan { rounds: 1_000_000, budget: Some(Duration::ZERO), ..Plan::smoke(vec![1]) };
    let measured = measure(&PIPES, &[&PIPES.cases[0]], &columns, &plan, &Progress::hidden());
    assert_eq!(measured.rows[0].samples.len(), 1);
}

#[test]
fn a_sample_is_about_as_long_as_planned() {
    let columns = [Toy::logged("a", &Log::default())];
    let plan = Plan { sample: Duration::from_millis(4), rounds: 9, ..Plan::smoke(vec![1]) };
    let shortest = || {
        let measured = measure(&PIPES, &[&PIPES.cases[0]], &columns, &plan, &Progress::hidden());
        let samples = measured.rows[0].samples.iter();
        samples.map(|sample| sample.cpu_ns() * sample.ops[0] as f64).fold(f64::MAX, f64::min)
    };
    // A machine with other load interrupts a calibration, but not each one.
    let is_about = |ns: &f64| (400_000.0..40_000_000.0).contains(ns);
    let mut tries = Vec::new();
    while !tries.last().is_some_and(is_about) {
        assert!(tries.len() < 20, "{tries:?} ns");
        tries.push(shortest());
    }
}

#[test]
fn a_sample_that_does_not_end_is_stopped() {
    let columns = [Toy::column("a", Flaw::Stuck)];
    let plan = Plan { rounds: 2, ..Plan::smoke(vec![2]) };
    let measured = measure(&PIPES, &[&PIPES.cases[0]], &columns, &plan, &Progress::hidden());
    assert!(measured.rows[0].checked(), "slow is not wrong");
    for sample in &measured.rows[0].samples {
        // How long it took is the machine's; that it came back, with something done, is the harness's.
        assert!(sample.ops.iter().all(|&ops| ops >= 1), "{sample:?}");
    }
}
