//! The lock excludes, is fair enough to end, and counts down to its taking.

use std::thread;

use super::{TicketLock, atomic_dec_and_lock, atomic_dec_and_test};
use crate::atomic::{AtomicU32, AtomicU64, Ordering};

#[test]
fn holders_exclude_each_other() {
    const TURNS: u64 = 100_000;
    let (lock, count) = (TicketLock::new(), AtomicU64::new(0));
    thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                for turn in 0..TURNS {
                    let _guard = if turn % 8 == 0 { lock.try_lock() } else { None }
                        .unwrap_or_else(|| lock.lock());
                    count.store(count.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
                }
            });
        }
    });
    assert_eq!(count.load(Ordering::Relaxed), 2 * TURNS);
}

#[test]
fn try_lock_fails_while_the_lock_is_held() {
    let lock = TicketLock::new();
    // Past the wrap-around of the tickets, which is near in debug builds.
    for _ in 0..8 {
        let guard = lock.try_lock().expect("no one holds it");
        assert!(lock.try_lock().is_none());
        drop(guard);
    }
}

#[test]
fn only_the_last_decrement_takes_the_lock() {
    let (lock, count) = (TicketLock::new(), AtomicU32::new(3));
    assert!(atomic_dec_and_lock(&count, &lock).is_none());
    assert!(!atomic_dec_and_test(&count));
    let guard = atomic_dec_and_lock(&count, &lock).expect("the last");
    assert!(lock.try_lock().is_none());
    assert_eq!(count.load(Ordering::Relaxed), 0);
    drop(guard);
    assert!(lock.try_lock().is_some());
}
