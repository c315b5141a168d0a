//! [`Lockref`]: one thread, then many.
#![cfg(not(loom))]

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};
use std::thread;

use quietline_sync::Lockref;

#[test]
fn one_thread() {
    let lockref = Lockref::new(0);
    assert!(lockref.get_not_dead());
    lockref.get();
    assert_eq!(lockref.count(), 2);
    assert!(lockref.put_or_lock().is_none());
    assert_eq!(lockref.count(), 1);
    {
        let guard = lockref.put_or_lock().expect("the last reference stays, under the lock");
        assert_eq!(guard.count(), 1);
        assert!(lockref.is_locked());
        assert!(lockref.try_lock().is_none());
    }
    assert_eq!(lockref.put_return(), Some(0));
    assert!(!lockref.is_locked());
}

/// Property 5: the count is constant while the lock is held; what meets the lock goes another way.
#[test]
fn under_the_lock() {
    let lockref = Lockref::new(2);
    let mut guard = lockref.lock();
    assert_eq!(lockref.put_return(), None);
    assert_eq!((guard.count(), lockref.count()), (2, 2));
    guard.get();
    assert_eq!((guard.count(), lockref.count()), (3, 2));
    assert_eq!(guard.put(), 2);
    drop(guard);
    assert_eq!(lockref.count(), 2);
    assert_eq!(lockref.put_return(), Some(1));
}

/// Property 5: nothing increments a dead count, and it reads dead whatever was tried on it.
#[test]
fn dead_is_final() {
    let lockref = Lockref::new(5);
    lockref.lock().mark_dead();
    for _ in 0..300 {
        assert!(!lockref.get_not_dead());
    }
    assert!(lockref.is_dead());
    assert_eq!(lockref.count(), Lockref::DEAD);
    assert_eq!(lockref.lock().count(), Lockref::DEAD);
    assert_eq!(lockref.put_or_lock().expect("the lock of the dead").count(), Lockref::DEAD);
    assert!(catch_unwind(|| lockref.get()).is_err());
    assert!(catch_unwind(AssertUnwindSafe(|| lockref.lock().mark_dead())).is_err());
    assert!(!lockref.is_locked());
    assert_eq!(lockref.count(), Lockref::DEAD);
}

#[test]
fn misuse_panics() {
    assert!(catch_unwind(|| Lockref::new(0).put_return()).is_err());
    assert!(catch_unwind(|| Lockref::new(0).lock().put()).is_err());
    assert!(catch_unwind(|| Lockref::new(Lockref::MAX).get()).is_err());
    assert!(catch_unwind(|| Lockref::new(Lockref::MAX).get_not_dead()).is_err());
    assert!(catch_unwind(|| Lockref::new(Lockref::MAX + 1)).is_err());
    let full = Lockref::new(Lockref::MAX);
    assert_eq!(full.lock().count(), Lockref::MAX as i32);
}

/// Property 5: gets, puts and lock holders in any mix lose no reference, and every holder sees the count stand
/// still.
#[test]
fn stress_count_under_lock_is_constant() {
    const ROUNDS: u32 = 100_000;
    let lockref = Lockref::new(1);
    let inside = AtomicU32::new(0);
    thread::scope(|scope| {
        for worker in 0..3u32 {
            let lockref = &lockref;
            scope.spawn(move || {
                for round in 0..ROUNDS {
                    if (worker + round) % 2 == 0 {
                        lockref.get();
                    } else {
                        assert!(lockref.get_not_dead());
                    }
                    if round % 3 > 0 {
                        assert!(lockref.put_or_lock().is_none());
                    } else if lockref.put_return().is_none() {
                        lockref.lock().put();
                    }
                }
            });
        }
        for _ in 0..ROUNDS / 10 {
            let guard = lockref.lock();
            assert_eq!(inside.fetch_add(1, Ordering::Relaxed), 0);
            let count = guard.count();
            assert!((1..=4).contains(&count), "{count}");
            for _ in 0..20 {
                assert_eq!(lockref.count(), count);
            }
            inside.fetch_sub(1, Ordering::Relaxed);
        }
    });
    assert_eq!(lockref.count(), 1);
}

/// Property 5: an object that everyone takes, puts and tries to end when the count is zero is ended exactly once, and
/// nobody holds a reference then.
#[test]
fn stress_killed_exactly_once() {
    for _ in 0..300 {
        let lockref = Lockref::new(0);
        let (killed, held) = (AtomicUsize::new(0), AtomicUsize::new(0));
        thread::scope(|scope| {
            for _ in 0..3 {
                scope.spawn(|| {
                    while lockref.get_not_dead() {
                        held.fetch_add(1, Ordering::Relaxed);
                        assert!(!lockref.is_dead());
                        held.fetch_sub(1, Ordering::Relaxed);
                        let mut guard = match lockref.put_return() {
                            Some(0) => lockref.lock(),
                            Some(_) => continue,
                            None => {
                                let mut guard = lockref.lock();
                                guard.put();
                                guard
                            }
                        };
                        if guard.count() == 0 {
                            assert_eq!(held.load(Ordering::Relaxed), 0);
                            guard.mark_dead();
                            killed.fetch_add(1, Ordering::Relaxed);
                        }
                    }
                });
            }
        });
        assert_eq!(killed.load(Ordering::Relaxed), 1);
    }
}
