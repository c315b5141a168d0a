//! [`Counter`]: one thread, then many.
#![cfg(not(loom))]

use std::sync::atomic::{AtomicI64, Ordering, fence};
use std::thread;

use quietline_platform::cpu;
use quietline_sync::Counter;

fn bound(counter: &Counter) -> i64 {
    counter.batch() * cpu::nr_cpus() as i64
}

#[test]
fn one_thread() {
    let counter = Counter::new().unwrap();
    assert_eq!(counter.batch(), (2 * cpu::nr_cpus() as i64).max(32));
    for _ in 0..1000 {
        counter.inc();
        assert!((counter.read() - counter.sum()).abs() < bound(&counter));
    }
    counter.dec();
    counter.add(1 << 40);
    counter.sub(1 << 39);
    assert_eq!(counter.sum(), 999 + (1 << 39));
    counter.sub(counter.sum() + 3);
    assert_eq!(counter.sum(), -3);
    counter.inc();
    assert_eq!(counter.sum(), -2);
    assert_eq!(
        format!("{counter:?}"),
        format!("Counter {{ sum: -2, batch: {} }}", counter.batch())
    );
}

#[test]
fn batch_of_one_shares_everything() {
    let counter = Counter::with_batch(0).unwrap();
    counter.inc();
    assert_eq!((counter.batch(), counter.read()), (1, 1));
}

/// Property 1: one at a time, exactly as many additions succeed as there is room for, upwards and downwards.
#[test]
fn limited_add_stops_at_the_limit() {
    let counter = Counter::new().unwrap();
    let limit = 3 * bound(&counter) + 7;
    let added = (0..2 * limit).filter(|_| counter.limited_add(limit, 1)).count() as i64;
    assert_eq!((added, counter.sum()), (limit, limit));
    assert!(!counter.limited_add(limit, 2));
    assert!(counter.limited_add(limit, 0));
    counter.dec();
    assert!(!counter.limited_add(limit, 2));
    assert!(counter.limited_add(limit, 1));
    let taken = (0..4 * limit).filter(|_| counter.limited_add(-limit, -1)).count() as i64;
    assert_eq!((taken, counter.sum()), (2 * limit, -limit));
    assert!(!counter.limited_add(i64::MIN, i64::MIN));
    assert!(counter.limited_add(i64::MAX, i64::MAX));
    assert_eq!(counter.sum(), i64::MAX - limit);
    assert!(!counter.limited_add(i64::MAX, limit + 1), "past the range of numbers");
}

/// Property 1: whatever was added meanwhile, the quiescent sum is exact, and the approximate count near it.
#[test]
fn stress_quiescent_sum_is_exact() {
    for batch in [1, 3, 64, u32::MAX] {
        let counter = Counter::with_batch(batch).unwrap();
        thread::scope(|scope| {
            for worker in 1..=3 {
                let counter = &counter;
                scope.spawn(move || {
                    for round in 0..30_000 {
                        counter.add(worker);
                        if round % 3 == 0 {
                            counter.sub(2 * worker);
                        }
                    }
                });
            }
        });
        let expected = (1 + 2 + 3) * (30_000 - 2 * 10_000);
        assert_eq!(counter.sum(), expected, "{batch}");
        let off = (counter.read() - expected).unsigned_abs();
        assert!(
            u128::from(off) < counter.batch() as u128 * cpu::nr_cpus() as u128,
            "{batch}: off by {off}"
        );
    }
}

/// Property 1: a sum lies between the additions that had ended before it and those that had begun after it. With
/// a batch this large a fold seen by halves would be off by hundreds.
#[test]
fn stress_sum_beside_folds() {
    const ADDITIONS: i64 = 300_000;
    let counter = Counter::with_batch(1000).unwrap();
    let (begun, ended) = (AtomicI64::new(0), AtomicI64::new(0));
    thread::scope(|scope| {
        scope.spawn(|| {
            for n in 1..=ADDITIONS {
                begun.store(n, Ordering::Relaxed);
                counter.inc();
                ended.store(n, Ordering::Release);
            }
        });
        loop {
            let at_least = ended.load(Ordering::Acquire);
            let sum = counter.sum();
            // The CPUs' words are stored with release order: an addition that was counted had begun.
            fence(Ordering::Acquire);
            let at_most = begun.load(Ordering::Relaxed);
            assert!((at_least..=at_most).contains(&sum), "{at_least} <= {sum} <= {at_most}");
            if at_least == ADDITIONS {
                break;
            }
        }
    });
    assert_eq!(counter.sum(), ADDITIONS);
}

/// Property 1: overshoot is at most what was in flight: one addition of one for each thread.
#[test]
fn stress_limit_overshoot() {
    const THREADS: i64 = 3;
    for _ in 0..50 {
        let counter = Counter::with_batch(8).unwrap();
        let limit = 4 * bound(&counter);
        let total = AtomicI64::new(0);
        thread::scope(|scope| {
            for _ in 0..THREADS {
                scope.spawn(|| {
                    let added = (0..limit).filter(|_| counter.limited_add(limit, 1)).count();
                    total.fetch_add(added as i64, Ordering::Relaxed);
                });
            }
        });
        let total = total.into_inner();
        assert_eq!(counter.sum(), total);
        assert!((limit..limit + THREADS).contains(&total), "{total} of {limit}");
    }
}
