//! CPU numbers, and the barrier across CPUs.
#![cfg(not(loom))]

use crate::support::{allowed_cpus, pin};
use quietline_platform::atomic::{Ordering, compiler_fence};
use quietline_platform::percpu::{Body, Words, active};
use quietline_platform::{FenceError, clock, cpu, membarrier};
use std::sync::atomic::{AtomicU32, Ordering::Acquire, Ordering::Relaxed, Ordering::Release};
use std::time::Duration;

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
#[cfg_attr(quietline_sim, ignore = "outside a simulation every thread is on virtual CPU 0")]
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
        assert_eq!(membarrier::rseq(), Err(FenceError), "a refusal is reported");
        return;
    }
    membarrier::rseq().unwrap();
    std::thread::scope(|s| {
        (0..4).for_each(|_| {
            s.spawn(|| (0..50).for_each(|_| membarrier::rseq().unwrap()));
        });
    });
}

/// A lock between two threads, of which one pays for both fences (Dekker's, biased): each raises its flag and looks at
/// the other's. Were one to miss the other's flag, both would be inside, and additions by plain loads and stores would
/// be lost. (Without the barrier they are, in some runs: it takes two CPUs that are really there at once.)
#[test]
fn the_barrier_orders_both_sides() {
    if !membarrier::available() {
        return;
    }
    #[repr(align(128))]
    #[derive(Default)]
    struct Line(AtomicU32);
    let [often, rare, sum, stop] = <[Line; 4]>::default();
    // Stores that miss the nearest cache, one behind another, keep the flag that follows them from being seen at once.
    let slow_stores = |lines: &[AtomicU32]| {
        // Relaxed: nobody reads them.
        lines.iter().step_by(1024).for_each(|line| line.store(1, Relaxed));
    };
    let fill: Vec<AtomicU32> = (0..1024 * 24).map(|_| AtomicU32::new(0)).collect();
    let inside = |additions: u32| {
        for _ in 0..additions {
            // Relaxed, and not one operation: the lock under test keeps the other out.
            sum.0.store(sum.0.load(Relaxed).wrapping_add(1), Relaxed);
        }
        additions
    };
    let (mut frequently, mut rarely) = (0, 0);
    std::thread::scope(|s| {
        s.spawn(|| {
            while stop.0.load(Relaxed) == 0 {
                // Relaxed: the compiler fence, with the other side's barrier, is what is under test.
                slow_stores(&fill);
                often.0.store(1, Relaxed);
                compiler_fence(Ordering::SeqCst);
                if rare.0.load(Acquire) == 0 {
                    frequently += inside(3);
                }
                often.0.store(0, Release);
            }
        });
        let start = clock::monotonic();
        while clock::monotonic() - start < Duration::from_millis(200) {
            slow_stores(&fill);
            rare.0.store(1, Relaxed);
            membarrier::rseq().unwrap();
            while often.0.load(Acquire) != 0 {
                std::hint::spin_loop();
            }
            rarely += inside(300);
            rare.0.store(0, Release);
        }
        stop.0.store(1, Relaxed);
    });
    assert_eq!(sum.0.into_inner(), frequently + rarely, "both were inside");
}
