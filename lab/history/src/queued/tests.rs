//! The lock excludes, and every waiter gets it.

use std::thread;

use super::{QueueNodes, QueuedLock};
use crate::atomic::{AtomicU64, Ordering};

/// The lock's parts: whether it is held, whether a waiter is next, the last waiter.
fn words(lock: &QueuedLock) -> (u8, u8, u16) {
    let QueuedLock { locked, pending, tail } = lock;
    let relaxed = Ordering::Relaxed;
    (locked.load(relaxed), pending.load(relaxed), tail.load(relaxed))
}

#[test]
fn holders_exclude_each_other() {
    const THREADS: usize = 3;
    const TURNS: u64 = 20_000;
    for paravirtual in [false, true] {
        let nodes = QueueNodes::new(THREADS, paravirtual).expect("memory");
        let (lock, count) = (QueuedLock::new(), AtomicU64::new(0));
        thread::scope(|scope| {
            for cpu in 0..THREADS {
                let (nodes, lock, count) = (&nodes, &lock, &count);
                scope.spawn(move || {
                    for _ in 0..TURNS {
                        let _guard = lock.lock(nodes, cpu);
                        count.store(count.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
                    }
                });
            }
        });
        assert_eq!(count.load(Ordering::Relaxed), THREADS as u64 * TURNS, "{paravirtual}");
        assert_eq!(words(&lock), (0, 0, 0), "{paravirtual}: nothing is left in the lock");
    }
}

#[test]
fn a_lock_that_nobody_wants_is_one_word() {
    let nodes = QueueNodes::new(1, false).expect("memory");
    let lock = QueuedLock::new();
    for _ in 0..3 {
        let guard = lock.lock(&nodes, 0);
        assert_eq!(words(&lock), (1, 0, 0));
        assert!(!lock.try_lock());
        drop(guard);
        assert_eq!(words(&lock), (0, 0, 0));
    }
}

/// Three waiters queue up behind a holder, in either form.
#[test]
fn waiters_queue_behind_a_holder() {
    for paravirtual in [false, true] {
        let nodes = QueueNodes::new(4, paravirtual).expect("memory");
        let (lock, entered) = (QueuedLock::new(), AtomicU64::new(0));
        thread::scope(|scope| {
            let guard = lock.lock(&nodes, 0);
            for cpu in 1..4 {
                let (nodes, lock, entered) = (&nodes, &lock, &entered);
                scope.spawn(move || {
                    let _guard = lock.lock(nodes, cpu);
                    entered.fetch_add(1, Ordering::Relaxed);
                });
            }
            while lock.tail.load(Ordering::Relaxed) == 0 {
                thread::yield_now();
            }
            assert_eq!(entered.load(Ordering::Relaxed), 0, "{paravirtual}: the lock is held");
            drop(guard);
        });
        assert_eq!(entered.load(Ordering::Relaxed), 3, "{paravirtual}");
    }
}
