//! [`SpinLock`] in every interleaving.
#![cfg(loom)]

use std::sync::Arc;

use quietline_platform::{model, thread};
use quietline_sync::{SpinLock, model_sleeps};

/// Runs `f` with at most `switches` forced switches per execution: with more, two waiters yield to
/// each other for ever, or the model takes minutes.
fn bounded(switches: usize, f: impl Fn() + Sync + Send + 'static) {
    let mut model = loom::model::Builder::new();
    model.preemption_bound = Some(switches);
    model.max_branches = 5_000;
    model_sleeps();
    model.check(f);
}

/// The Release of unlock with the Acquire of lock, on the fast path and for the spinner, which
/// demands the lock at once and is granted it.
#[test]
fn two_threads_twice() {
    bounded(3, || {
        let lock = Arc::new(SpinLock::new(0));
        let other = {
            let lock = lock.clone();
            thread::spawn(move || {
                *lock.lock() += 1;
                *lock.lock() += 1;
            })
        };
        lock.with(|value| *value += 1);
        other.join().unwrap();
        assert_eq!(*lock.lock(), 3);
    });
}

/// One holder, one spinner and one in the queue: the entry is linked, made head and left in every
/// order. The head sleeps without a time limit, so a lost wake-up is a deadlock. Seen to fail when
/// unlock did not look for the head, when the spinner left the slot by a store, and when a grant
/// was a Relaxed store.
#[test]
fn three_threads() {
    bounded(2, || {
        let lock = Arc::new(SpinLock::new(0));
        let others: Vec<_> = (0..2)
            .map(|_| {
                let lock = lock.clone();
                thread::spawn(move || *lock.lock() += 1)
            })
            .collect();
        *lock.lock() += 1;
        for other in others {
            other.join().unwrap();
        }
        assert_eq!(*lock.lock(), 3);
    });
}

/// As above, with waiters that only spin, as models of other structures have the lock.
#[test]
fn three_threads_spinning() {
    let mut model = loom::model::Builder::new();
    model.preemption_bound = Some(2);
    model.max_branches = 5_000;
    model.check(|| {
        let lock = Arc::new(SpinLock::new(0));
        let others: Vec<_> = (0..2)
            .map(|_| {
                let lock = lock.clone();
                thread::spawn(move || *lock.lock() += 1)
            })
            .collect();
        *lock.lock() += 1;
        for other in others {
            other.join().unwrap();
        }
        assert_eq!(*lock.lock(), 3);
    });
}

/// A failed try_lock changes nothing; a successful one excludes.
#[test]
fn try_lock() {
    model(|| {
        let lock = Arc::new(SpinLock::new(0));
        let other = {
            let lock = lock.clone();
            thread::spawn(move || lock.try_lock().map(|mut value| *value += 1).is_some())
        };
        let here = lock.try_lock().map(|mut value| *value += 1).is_some();
        let there = other.join().unwrap();
        assert!(here || there);
        assert_eq!(*lock.lock(), u32::from(here) + u32::from(there));
    });
}
