//! CPU numbers, and the barrier across CPUs.
#![cfg(not(loom))]

mod support;

use quietline_platform::atomic::{Ordering, compiler_fence};
use quietline_platform::percpu::{Body, Words, active};
use quietline_platform::{cpu, membarrier};
use std::sync::atomic::{AtomicU32, Ordering::Relaxed, Ordering::SeqCst};
use support::{allowed_cpus, pin};

#[test]
fn the_current_cpu_is_one_of_them() {
    std::thread::scope(|s| {
        for _ in 0..4 {
            s.spawn(|| (0..10_000).for_each(|_| assert!(cpu::current() < cpu::nr_cpus())));
        }
    });
    assert!(allowed_cpus().into_iter().all(|c| c < cpu::nr_cpus() || active() == Body::Fallback));
}

#[test]
fn a_pinned_thread_is_where_it_was_put() {
    for cpu in allowed_cpus() {
        let seen = std::thread::spawn(move || {
            pin(cpu);
            cpu::current()
        });
        assert_eq!(seen.join().unwrap(), cpu % cpu::nr_cpus());
    }
}

#[test]
fn a_pinned_thread_works_on_its_own_words() {
    let words = Words::<1>::new().unwrap();
    let cpus = allowed_cpus();
    for &cpu in &cpus {
        std::thread::scope(|s| {
            s.spawn(|| {
                pin(cpu);
                (0..100).for_each(|_| words.add(0, 1));
            });
        });
        if active() == Body::Rseq {
            assert_eq!(words.load(cpu, 0), 100);
        }
    }
    assert_eq!(words.sum(0), 100 * cpus.len() as u64);
}

#[test]
fn restartable_sequences_need_the_barrier() {
    if !membarrier::available() {
        assert_eq!(active(), Body::Fallback);
        assert!(std::panic::catch_unwind(membarrier::memory).is_err(), "what is refused is not passed over");
        return;
    }
    membarrier::memory();
    membarrier::rseq();
    std::thread::scope(|s| {
        (0..4).for_each(|_| {
            s.spawn(|| (0..50).for_each(|_| membarrier::rseq()));
        });
    });
}

/// Store buffering: each side stores its word and loads the other's. One side pays for both fences; never do both
/// miss the other's store.
#[test]
fn the_barrier_orders_both_sides() {
    if !membarrier::available() {
        return;
    }
    const ROUNDS: u32 = 4000;
    #[repr(align(128))]
    #[derive(Default)]
    struct Line(AtomicU32);
    let [x, y, seen_by_rare, seen_by_often, round] = <[Line; 5]>::default();
    std::thread::scope(|s| {
        s.spawn(|| {
            for r in 1..=ROUNDS {
                while round.0.load(SeqCst) != r {
                    std::thread::yield_now();
                }
                // Relaxed: the compiler fence, with the other side's barrier, is what is under test.
                x.0.store(r, Relaxed);
                compiler_fence(Ordering::SeqCst);
                let seen = y.0.load(Relaxed);
                seen_by_often.0.store(seen * 2 + 1, SeqCst);
            }
        });
        for r in 1..=ROUNDS {
            round.0.store(r, SeqCst);
            y.0.store(r, Relaxed);
            membarrier::memory();
            seen_by_rare.0.store(x.0.load(Relaxed), Relaxed);
            let mut often = seen_by_often.0.load(SeqCst);
            // The other side writes each round's value, or the last one's, with a 1 below it.
            while often == 0 {
                std::thread::yield_now();
                often = seen_by_often.0.load(SeqCst);
            }
            seen_by_often.0.store(0, SeqCst);
            assert!(often / 2 == r || seen_by_rare.0.load(Relaxed) == r, "round {r}: both missed");
        }
    });
}
