//! [`FileRef`]: one thread, then many.
#![cfg(not(loom))]

use std::panic::catch_unwind;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::thread;

use quietline_sync::FileRef;

#[test]
fn one_thread() {
    let count = FileRef::dead();
    assert!(!count.get());
    assert_eq!(count.count(), 0);
    count.init(1);
    assert_eq!(count.count(), 1);
    assert!(count.get());
    assert!(!count.put_close());
    assert!(count.get());
    assert!(!count.put());
    assert!(count.put_close());
    assert!(!count.get());
    count.init(3);
    assert!(!count.put());
    assert!(!count.put());
    assert!(count.put());
    assert_eq!(count.count(), 0);
}

/// Property 7: any number of failed gets leaves a dead object dead and the next life untouched.
#[test]
fn failed_gets_leave_no_trace() {
    let count = FileRef::dead();
    for life in 0..3 {
        for _ in 0..10_000 {
            assert!(!count.get(), "life {life}");
        }
        count.init(1);
        assert_eq!(count.count(), 1);
        assert!(count.put());
    }
}

#[test]
fn misuse_panics() {
    assert!(catch_unwind(|| FileRef::dead().put()).is_err());
    assert!(catch_unwind(|| FileRef::dead().put_close()).is_err());
    assert!(catch_unwind(|| FileRef::dead().init(0)).is_err());
}

/// Property 7: over many lives of one object, under readers that try to get it all the time, each life ends exactly
/// once, and no reader holds a reference while it is over.
#[test]
fn stress_last_put_once_per_life() {
    const LIVES: u64 = 100_000;
    let count = FileRef::dead();
    let (ended, readers_last) = (AtomicU64::new(0), AtomicU64::new(0));
    // The life's number; 0 between lives.
    let alive = AtomicU64::new(0);
    let end = |by_reader: bool| {
        assert_ne!(alive.swap(0, Ordering::Relaxed), 0, "a life ended twice");
        readers_last.fetch_add(by_reader.into(), Ordering::Relaxed);
        // Pairs with the owner's Acquire: the next life begins after this end.
        ended.fetch_add(1, Ordering::Release);
    };
    thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                while ended.load(Ordering::Relaxed) < LIVES {
                    if count.get() {
                        assert_ne!(
                            alive.load(Ordering::Relaxed),
                            0,
                            "a reference to an ended life"
                        );
                        if count.put() {
                            end(true);
                        }
                    }
                }
            });
        }
        for life in 1..=LIVES {
            alive.store(life, Ordering::Relaxed);
            count.init(1);
            if if life % 2 == 0 { count.put() } else { count.put_close() } {
                end(false);
            }
            while ended.load(Ordering::Acquire) < life {
                thread::yield_now();
            }
        }
    });
    assert_eq!(ended.load(Ordering::Relaxed), LIVES);
    assert_eq!(count.count(), 0);
}

/// Property 7: a reader that looks at the slot again after its get holds the object that the slot named, while the
/// owner closes and recycles the objects all the time.
#[test]
fn stress_slot_lookup_under_recycling() {
    const ROUNDS: u64 = 100_000;
    struct Object {
        count: FileRef,
        /// What the slot says while this object is in it.
        name: AtomicU64,
    }
    let objects: Vec<_> =
        (0..2).map(|_| Object { count: FileRef::dead(), name: AtomicU64::new(0) }).collect();
    // Name and index of the open object; 0 when there is none. Names are never used again.
    let slot = AtomicU64::new(0);
    let done = AtomicUsize::new(0);
    thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                while done.load(Ordering::Relaxed) == 0 {
                    let found = slot.load(Ordering::Acquire);
                    if found == 0 {
                        continue;
                    }
                    let object = &objects[(found & 1) as usize];
                    if object.count.get() {
                        if slot.load(Ordering::Acquire) == found {
                            assert_eq!(object.name.load(Ordering::Relaxed), found);
                        }
                        let _ended_here = object.count.put();
                    }
                }
            });
        }
        for round in 1..=ROUNDS {
            let index = round & 1;
            let object = &objects[index as usize];
            while object.count.count() != 0 {
                thread::yield_now();
            }
            let name = round << 1 | index;
            object.name.store(name, Ordering::Relaxed);
            object.count.init(1);
            slot.store(name, Ordering::Release);
            assert!(object.count.get());
            slot.store(0, Ordering::Release);
            assert!(!object.count.put());
            let _ended_here = object.count.put_close();
        }
        done.store(1, Ordering::Relaxed);
    });
    for object in &objects {
        assert_eq!(object.count.count(), 0);
    }
}
