//! [`SpinLock`] in every interleaving.
#![cfg(loom)]

use std::sync::Arc;

use quietline_platform::{model, thread};
use quietline_sync::SpinLock;

/// The Release of unlock with the Acquire of lock, on the fast path, for the first waiter and through the queue:
/// nothing is lost and the model sees no unordered access to the value.
#[test]
fn two_threads_twice() {
    model(|| {
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

/// One holder, one first and one in the queue: the node is linked, made head and left in every order.
#[test]
fn three_threads() {
    let mut model = loom::model::Builder::new();
    // Of three threads two can wait, and the model may let those two yield to each other for ever; with two forced
    // switches per execution it comes to an end.
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
