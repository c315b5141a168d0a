//! [`Lockref`] in every interleaving.
//!
//! Where one thread publishes and another looks, the main thread publishes: the model remembers only the last access
//! to a word, and a publisher's load before its exchange would hide the other's load from it.
#![cfg(loom)]

use std::sync::Arc;

use quietline_platform::cell::UnsafeCell;
use quietline_platform::{model, thread};
use quietline_sync::Lockref;

struct Object {
    lockref: Lockref,
    /// Written under the lock only, or by the one who ends the object.
    data: UnsafeCell<u32>,
}

// SAFETY: the tests access the cell only as its comment says; the model finds out where they do not.
unsafe impl Sync for Object {}
// SAFETY: nothing in it belongs to a thread.
unsafe impl Send for Object {}

fn object(count: u32) -> Arc<Object> {
    Arc::new(Object { lockref: Lockref::new(count), data: UnsafeCell::new(0) })
}

fn write(object: &Object, value: u32) {
    // SAFETY: the callers hold the lock or have ended the object.
    object.data.with_mut(|data| unsafe { *data = value });
}

fn read(object: &Object) -> u32 {
    // SAFETY: the callers hold the lock, or a reference after which nobody writes.
    object.data.with(|data| unsafe { *data })
}

/// Property 5: the count stands still while the lock is held, for the holder and for others, and additions that meet
/// the lock are made after it, not lost.
#[test]
fn count_is_constant_under_the_lock() {
    model(|| {
        let object = object(1);
        let other = {
            let object = object.clone();
            thread::spawn(move || {
                object.lockref.get();
                if object.lockref.put_return().is_none() {
                    object.lockref.lock().put();
                }
            })
        };
        {
            let mut guard = object.lockref.lock();
            let count = guard.count();
            assert!(count == 1 || count == 2);
            assert_eq!(object.lockref.count(), count);
            guard.get();
            assert_eq!(object.lockref.count(), count);
        }
        other.join().unwrap();
        assert_eq!(object.lockref.count(), 2);
    });
}

/// The Release of unlock and the Acquire of lock: what one holder writes, the next one sees.
#[test]
fn lock_excludes_and_publishes() {
    model(|| {
        let object = object(0);
        let other = {
            let object = object.clone();
            thread::spawn(move || {
                let _guard = object.lockref.lock();
                write(&object, read(&object) + 1);
            })
        };
        {
            let _guard = object.lockref.lock();
            write(&object, read(&object) + 1);
        }
        other.join().unwrap();
        let _guard = object.lockref.lock();
        assert_eq!(read(&object), 2);
    });
}

/// The Release of unlock and the Acquire of get_not_dead: a reference taken from the word that a holder left brings
/// what the holder wrote.
#[test]
fn get_not_dead_sees_what_was_written_under_the_lock() {
    model(|| {
        let object = object(0);
        let reader = {
            let object = object.clone();
            thread::spawn(move || {
                assert!(object.lockref.get_not_dead());
                if object.lockref.count() == 2 {
                    assert!(object.lockref.get_not_dead());
                    assert_eq!(read(&object), 7);
                }
            })
        };
        let mut guard = object.lockref.lock();
        write(&object, 7);
        guard.get();
        drop(guard);
        reader.join().unwrap();
    });
}

/// Property 5: a dead count is never incremented; a get either comes before death or fails.
#[test]
fn no_get_from_dead() {
    model(|| {
        let object = object(0);
        let killer = {
            let object = object.clone();
            thread::spawn(move || {
                let mut guard = object.lockref.lock();
                let idle = guard.count() == 0;
                if idle {
                    guard.mark_dead();
                }
                idle
            })
        };
        let got = object.lockref.get_not_dead();
        let killed = killer.join().unwrap();
        assert!(got != killed);
        assert_eq!(object.lockref.count(), if killed { Lockref::DEAD } else { 1 });
        assert_eq!(object.lockref.get_not_dead(), !killed);
    });
}

/// Property 5: of the puts that bring the count to zero exactly one ends the object; and the Release of put_return
/// and put_or_lock pair with the Acquire of lock, so that it sees what the others did under their references.
#[test]
fn last_put_ends_the_object_once() {
    model(|| {
        let object = object(2);
        let put = |object: &Object, optimistic: bool| {
            // A read under the reference, which the end of the object must not overtake.
            let _ = read(object);
            let guard = if optimistic {
                match object.lockref.put_return() {
                    Some(0) => Some(object.lockref.lock()),
                    Some(_) => None,
                    None => {
                        let mut guard = object.lockref.lock();
                        guard.put();
                        Some(guard)
                    }
                }
            } else {
                object.lockref.put_or_lock().map(|mut guard| {
                    guard.put();
                    guard
                })
            };
            let Some(mut guard) = guard else { return false };
            let ends = guard.count() == 0;
            if ends {
                guard.mark_dead();
                drop(guard);
                write(object, 1);
            }
            ends
        };
        let other = {
            let object = object.clone();
            thread::spawn(move || put(&object, true))
        };
        let here = put(&object, false);
        let there = other.join().unwrap();
        assert!(here != there);
        assert_eq!(read(&object), 1);
        assert!(object.lockref.is_dead());
    });
}

/// Property 5: conditional puts beside each other never count to zero.
#[test]
fn conditional_puts() {
    model(|| {
        let object = object(2);
        let other = {
            let object = object.clone();
            thread::spawn(move || object.lockref.put_or_lock().is_none())
        };
        let here = object.lockref.put_or_lock().is_none();
        let there = other.join().unwrap();
        assert!(here != there);
        assert_eq!(object.lockref.count(), 1);
    });
}

/// The Release of put_or_lock and the Acquire of lock: who finds itself the only holder, and ends the object, does
/// not overtake what the other did under its reference.
#[test]
fn put_or_lock_is_seen_by_the_one_who_ends_the_object() {
    model(|| {
        let object = object(2);
        let other = {
            let object = object.clone();
            thread::spawn(move || {
                let mut guard = object.lockref.lock();
                if guard.count() == 1 {
                    guard.mark_dead();
                    write(&object, 1);
                }
            })
        };
        let _ = read(&object);
        assert!(object.lockref.put_or_lock().is_none());
        other.join().unwrap();
    });
}
