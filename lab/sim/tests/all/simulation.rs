//! The scheduler: order, waiting, sleeping, and what happens when nobody can go on.
#![cfg(quietline_sim)]

use quietline_platform::atomic::{AtomicU32, AtomicU64, Ordering};
use quietline_platform::percpu::Words;
use quietline_platform::{clock, cpu, futex, hint};
use quietline_sim::check::Check;
use quietline_sim::simulation::{Plan, Stage};
use quietline_sim::topology::Topology;
use std::rc::Rc;
use std::time::Duration;

fn machine() -> Topology {
    Topology::load("one-socket-16").expect("a machine of our own")
}

fn plan(cpus: usize) -> Plan {
    Plan { cpus, warm_up: 20, ops: 100, ..Plan::default() }
}

/// A word with its line to itself.
#[repr(align(128))]
struct Apart<T>(T);

#[test]
fn nothing_is_lost_and_every_cpu_takes_part() {
    let stage = Stage::new(16);
    let total = Rc::new(Apart(AtomicU64::new(0)));
    let words = Rc::new(Words::<1>::new().expect("words"));
    let done = Rc::new((0..16).map(|_| std::cell::Cell::new(0u64)).collect::<Vec<_>>());
    let (t, w, d) = (Rc::clone(&total), Rc::clone(&words), Rc::clone(&done));
    let run = stage
        .run(&machine(), &plan(16), move |cpu| {
            let (total, words, done) = (Rc::clone(&t), Rc::clone(&w), Rc::clone(&d));
            Box::new(move || {
                assert_eq!(cpu, cpu::current());
                total.0.fetch_add(1, Ordering::Relaxed);
                words.add(0, 1);
                done[cpu].set(done[cpu].get() + 1);
            })
        })
        .expect("it ends");
    let all: u64 = done.iter().map(std::cell::Cell::get).sum();
    assert_eq!(total.0.load(Ordering::Relaxed), all);
    assert_eq!(words.sum(0), all);
    assert!(done.iter().all(|n| n.get() > 20));
    assert_eq!(run.ops, 1600);
}

/// The same seed gives the same result; another seed another, but not much.
#[test]
fn a_run_is_the_same_every_time() {
    let run = |seed| {
        let stage = Stage::new(8);
        let word = Rc::new(Apart(AtomicU64::new(0)));
        let plan = Plan { seed, ..plan(8) };
        let worker = move |_| -> Box<dyn FnMut()> {
            let word = Rc::clone(&word);
            Box::new(move || assert!(word.0.fetch_add(1, Ordering::Relaxed) < u64::MAX))
        };
        let run = stage.run(&machine(), &plan, worker).expect("it ends");
        (run.window, run.accesses)
    };
    assert_eq!(run(1), run(1));
    assert_ne!(run(1), run(2));
    assert!(run(1).0.abs_diff(run(2).0) < run(1).0 / 20);
}

/// Whoever spins is woken by the write, at no cost of time to the writer, and sees what was written before.
#[test]
fn spinning_is_waiting() {
    let stage = Stage::new(2);
    let turn = Rc::new(Apart(AtomicU64::new(0)));
    let worker = move |cpu| -> Box<dyn FnMut()> {
        let turn = Rc::clone(&turn);
        Box::new(move || {
            while turn.0.load(Ordering::Acquire) % 2 != cpu as u64 {
                hint::spin_loop();
            }
            turn.0.fetch_add(1, Ordering::Release);
        })
    };
    let run = stage.run(&machine(), &plan(2), worker).expect("it ends");
    // They alternate: a turn is a transfer or two, and costs no more than these.
    assert!((40.0..400.0).contains(&run.ns_per_op()), "{}", run.ns_per_op());
}

#[test]
fn sleepers_are_woken_and_time_runs_out() {
    let stage = Stage::new(2);
    let word = Rc::new(AtomicU32::new(0));
    let worker = move |cpu| -> Box<dyn FnMut()> {
        let word = Rc::clone(&word);
        Box::new(move || {
            if cpu == 0 {
                let began = clock::monotonic();
                futex::wait(&word, 7, Some(Duration::from_millis(5)));
                assert!(
                    clock::monotonic() - began < Duration::from_millis(1),
                    "the value was another"
                );
                futex::wait(&word, 0, Some(Duration::from_millis(5)));
                assert!(clock::monotonic() - began <= Duration::from_millis(6));
            } else {
                futex::wake(&word, 1);
            }
        })
    };
    stage.run(&machine(), &plan(2), worker).expect("it ends");
}

#[test]
fn a_deadlock_is_told_with_what_each_cpu_waits_for() {
    let stage = Stage::new(2);
    let words = Rc::new([Apart(AtomicU64::new(0)), Apart(AtomicU64::new(0))]);
    quietline_platform::sim::name(words[0].0.as_ptr().addr(), 8, "left");
    quietline_platform::sim::name(words[1].0.as_ptr().addr(), 8, "right");
    let kept = Rc::clone(&words);
    let worker = move |cpu: usize| -> Box<dyn FnMut()> {
        let words = Rc::clone(&words);
        Box::new(move || {
            while words[cpu].0.load(Ordering::Relaxed) == 0 {
                hint::spin_loop();
            }
        })
    };
    let error = stage.run(&machine(), &plan(2), worker).expect_err("nobody writes").to_string();
    assert!(
        error.contains("deadlock") && error.contains("left") && error.contains("right"),
        "{error}"
    );
    drop(kept);
}

#[test]
fn an_operation_that_panics_is_passed_on() {
    let outcome = std::panic::catch_unwind(|| {
        let stage = Stage::new(4);
        let _ =
            stage.run(&machine(), &plan(4), |cpu| Box::new(move || assert_ne!(cpu, 2, "planted")));
    });
    let message = outcome.expect_err("it panics");
    assert!(message.downcast_ref::<String>().is_some_and(|m| m.contains("planted")));
    assert!(!quietline_platform::sim::running());
}

#[test]
fn thread_locals_are_each_cpus_own() {
    quietline_platform::thread_local! {
        static MINE: std::cell::Cell<usize> = const { std::cell::Cell::new(0) };
    }
    MINE.with(|mine| mine.set(77));
    Check::new("thread-local").cpus(8).run(
        || (),
        |(), cpu| {
            MINE.with(|mine| {
                assert!(mine.get() == 0 || mine.get() == cpu + 1);
                mine.set(cpu + 1);
            });
        },
    );
    assert_eq!(MINE.with(std::cell::Cell::get), 77);
}

#[test]
fn outside_a_simulation_accesses_are_free_and_real() {
    let word = AtomicU64::new(1);
    assert_eq!(word.fetch_add(2, Ordering::SeqCst), 1);
    let total = AtomicU64::new(0);
    let words = Words::<1>::new().expect("words");
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                for _ in 0..1000 {
                    total.fetch_add(1, Ordering::Relaxed);
                    words.add(0, 1);
                }
            });
        }
    });
    assert_eq!((total.load(Ordering::Relaxed), words.sum(0)), (4000, 4000));
}

#[test]
fn a_check_passes_what_is_quiet_and_names_what_is_not() {
    let quiet = Words::<1>::new().expect("words");
    quietline_sim::check::check(|_| quiet.add(0, 1));
    let shared = Apart(AtomicU64::new(0));
    quietline_platform::sim::name(shared.0.as_ptr().addr(), 8, "Shared.count");
    let outcome = std::panic::catch_unwind(|| {
        quietline_sim::check::Check::new("count")
            .find(|| (), |(), _| assert!(shared.0.fetch_add(1, Ordering::Relaxed) < 1 << 40))
    });
    let message = outcome.expect("it does not panic").expect_err("it is contended");
    assert!(message.contains("simulation.rs"), "{message}");
    // Once in a batch is allowed by rate, not ignored.
    let often = |cpu: usize, word: &AtomicU64, each: &[Apart<AtomicU64>]| {
        if each[cpu].0.fetch_add(1, Ordering::Relaxed).is_multiple_of(64) {
            word.fetch_add(1, Ordering::Relaxed);
        }
    };
    let scene = || (Apart(AtomicU64::new(0)), [Apart(AtomicU64::new(0)), Apart(AtomicU64::new(0))]);
    let rate = |allowed| {
        Check::new("batch").allow(allowed).find(scene, |s, cpu| often(cpu, &s.0.0, &s.1)).is_ok()
    };
    assert!(rate(1.5 / 64.0));
    assert!(!rate(0.5 / 64.0));
}

#[test]
fn a_machine_that_is_too_small_is_refused() {
    let stage = Stage::new(32);
    let error =
        stage.run(&machine(), &plan(32), |_| Box::new(|| ())).expect_err("it has 16").to_string();
    assert!(error.contains("16 CPUs, not 32"), "{error}");
}
