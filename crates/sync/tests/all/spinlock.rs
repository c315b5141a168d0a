//! [`SpinLock`]: one thread, then many.
#![cfg(not(loom))]

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use quietline_sync::SpinLock;
use quietline_testing::budget;

static IN_A_STATIC: SpinLock<u32> = SpinLock::new(7);

#[test]
fn one_thread() {
    assert_eq!(*IN_A_STATIC.lock(), 7);
    let mut lock = SpinLock::new(1);
    {
        let mut value = lock.lock();
        *value += 1;
        assert!(lock.try_lock().is_none());
        assert_eq!(format!("{lock:?}"), "SpinLock { value: <locked> }");
    }
    assert_eq!(format!("{lock:?}"), "SpinLock { value: 2 }");
    lock.with(|value| *value += 1);
    *lock.get_mut() += 1;
    assert_eq!(lock.try_lock().map(|value| *value), Some(4));
    assert_eq!(lock.into_inner(), 4);
}

#[test]
fn a_panic_releases_the_lock() {
    let lock = SpinLock::new(1);
    let result = catch_unwind(AssertUnwindSafe(|| {
        let mut value = lock.lock();
        *value = 2;
        panic!("on purpose");
    }));
    assert!(result.is_err());
    assert_eq!(*lock.try_lock().expect("released"), 2);
}

#[test]
fn without_a_guard() {
    let lock = SpinLock::new(1);
    // SAFETY: let go below, by the same thread.
    unsafe { lock.raw_lock() };
    assert!(lock.try_lock().is_none());
    // SAFETY: locked above.
    unsafe { lock.raw_unlock() };
    assert!(lock.try_lock().is_some());
}

/// Mutual exclusion: more threads than CPUs, so that waiters of all three kinds sleep and are woken.
#[test]
fn stress_exclusion() {
    const ROUNDS: usize = 20_000;
    let lock = SpinLock::new((0usize, 0usize));
    let inside = AtomicUsize::new(0);
    thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                for round in 0..ROUNDS {
                    let mut value = lock.lock();
                    assert_eq!(inside.fetch_add(1, Ordering::Relaxed), 0);
                    value.0 += 1;
                    if round % 1000 == 0 {
                        // Lose the CPU inside, as preemption would have it.
                        thread::yield_now();
                    }
                    value.1 += 1;
                    assert_eq!(value.0, value.1);
                    inside.fetch_sub(1, Ordering::Relaxed);
                }
            });
        }
    });
    assert_eq!(lock.into_inner(), (4 * ROUNDS, 4 * ROUNDS));
}

/// Threads that take the lock again and again do not keep out those that want it now and then: one
/// that spins, one at the head of the queue, and those behind it.
#[test]
fn stress_no_starvation() {
    let rounds = budget("QUIETLINE_STRESS_ROUNDS", 500);
    let lock = SpinLock::new(0u64);
    let done = AtomicUsize::new(0);
    thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                while done.load(Ordering::Relaxed) < 4 {
                    *lock.lock() += 1;
                }
            });
        }
        for _ in 0..4 {
            scope.spawn(|| {
                (0..rounds).for_each(|_| *lock.lock() += 1);
                done.fetch_add(1, Ordering::Relaxed);
            });
        }
    });
    assert!(lock.into_inner() >= 4 * rounds as u64);
}

/// A section of many milliseconds: the spinner, the head and those behind it sleep, and each gets
/// the lock after it.
#[test]
fn a_long_section() {
    let lock = SpinLock::new(0);
    thread::scope(|scope| {
        let mut held = lock.lock();
        for _ in 0..5 {
            scope.spawn(|| *lock.lock() += 1);
        }
        thread::sleep(Duration::from_millis(20));
        *held += 1;
    });
    assert_eq!(lock.into_inner(), 6);
}
