//! [`FileRef`] in every interleaving.
#![cfg(loom)]

use std::sync::Arc;

use quietline_platform::atomic::{AtomicU32, AtomicUsize, Ordering};
use quietline_platform::cell::UnsafeCell;
use quietline_platform::{model, thread};
use quietline_sync::FileRef;

struct Object {
    count: FileRef,
    /// Written before init and by the one who ends a life; read under a reference.
    data: UnsafeCell<u32>,
}

// SAFETY: the tests access the cell only as its comment says; the model finds out where they do not.
unsafe impl Sync for Object {}
// SAFETY: nothing in it belongs to a thread.
unsafe impl Send for Object {}

fn object(refs: u64) -> Arc<Object> {
    let object = Object { count: FileRef::dead(), data: UnsafeCell::new(1) };
    object.count.init(refs);
    Arc::new(object)
}

fn read(object: &Object) -> u32 {
    // SAFETY: the callers hold a reference.
    object.data.with(|data| unsafe { *data })
}

fn write(object: &Object, value: u32) {
    // SAFETY: the callers have ended the object, or have not begun its life.
    object.data.with_mut(|data| unsafe { *data = value });
}

/// Property 7: the last put comes exactly once. The Release of put and the Acquire of the exchange: who ends the
/// object does not overtake what the other holders did.
#[test]
fn last_put_once() {
    model(|| {
        let object = object(2);
        let end = |object: &Object, close: bool| {
            assert_eq!(read(object), 1);
            let last = if close { object.count.put_close() } else { object.count.put() };
            if last {
                write(object, 0);
            }
            last
        };
        let other = {
            let object = object.clone();
            thread::spawn(move || end(&object, false))
        };
        let here = end(&object, true);
        let there = other.join().unwrap();
        assert!(here != there);
        assert_eq!(object.count.count(), 0);
    });
}

/// Property 7: a get beside the last put either fails or gets a reference that counts, and one of the two ends the
/// object.
#[test]
fn get_beside_the_last_put() {
    model(|| {
        let object = object(1);
        let reader = {
            let object = object.clone();
            thread::spawn(move || {
                if !object.count.get() {
                    return false;
                }
                assert_eq!(read(&object), 1);
                let last = object.count.put();
                if last {
                    write(&object, 0);
                }
                last
            })
        };
        let here = object.count.put();
        if here {
            write(&object, 0);
        }
        let there = reader.join().unwrap();
        assert!(here != there);
        assert!(!object.count.get());
    });
}

/// Property 7: the Release of init and the Acquire of get: a stale reader that gets a reference to a new life sees
/// that life whole; one that fails changes nothing that the new life can notice.
#[test]
fn recycling_under_a_stale_reader() {
    model(|| {
        let object = object(1);
        let ends = Arc::new(AtomicUsize::new(0));
        let reader = {
            let (object, ends) = (object.clone(), ends.clone());
            thread::spawn(move || {
                if object.count.get() {
                    let life = read(&object);
                    assert!(life == 1 || life == 2);
                    if object.count.put() {
                        ends.fetch_add(1, Ordering::Relaxed);
                    }
                }
            })
        };
        let mut lives = 1;
        if object.count.put_close() {
            ends.fetch_add(1, Ordering::Relaxed);
            write(&object, 2);
            object.count.init(1);
            lives = 2;
            if object.count.put() {
                ends.fetch_add(1, Ordering::Relaxed);
            }
        }
        reader.join().unwrap();
        assert_eq!(ends.load(Ordering::Relaxed), lives);
        assert_eq!(object.count.count(), 0);
    });
}

/// Property 7: the lookup protocol. A slot names one of two objects; what a reader holds after its second look is
/// what the slot named when it took the reference, though the objects are closed and recycled meanwhile.
#[test]
fn slot_lookup_with_recheck() {
    model(|| {
        let objects = Arc::new([object(1), object(1)]);
        let slot = Arc::new(AtomicU32::new(0));
        let reader = {
            let (objects, slot) = (objects.clone(), slot.clone());
            thread::spawn(move || {
                let named = slot.load(Ordering::Acquire);
                let object = &objects[named as usize];
                if !object.count.get() {
                    return;
                }
                if slot.load(Ordering::Acquire) == named {
                    assert_eq!(read(object), 1);
                }
                if object.count.put() {
                    write(object, 0);
                }
            })
        };
        slot.store(1, Ordering::Release);
        if objects[0].count.put_close() {
            write(&objects[0], 0);
        }
        reader.join().unwrap();
        assert_eq!(objects[0].count.count(), 0);
        assert_eq!(objects[1].count.count(), 1);
    });
}
