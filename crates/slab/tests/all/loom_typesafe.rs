//! Objects in typesafe memory that are found without a lock, in every interleaving: what is read is of one life, and what is acquired was
//! in the place (properties 7 and 8).
//!
//! Places, candidates and references are the library's own source, and so is the count. Memory is a store of objects that are
//! used again at once.
//!
//! # Faults that were planted
//!
//! In `src/typesafe_place.rs`: no fence before an object is filled; no fence after it was read; the place's changes counted before it
//! is changed, or relaxed, or not at all; what was read not looked at again; what was acquired not looked at again.
#![cfg(loom)]
// As in the crate.
#![allow(dead_code, unreachable_pub, missing_docs)]

#[path = "../../src/typesafe_place.rs"]
mod typesafe_place;

/// As much of a `TypesafeCache` as is used.
mod typed {
    use core::ptr::NonNull;
    use loom::sync::Mutex;
    use quietline_platform::AllocError;
    use quietline_sync::rcu::Domain;

    /// # Safety
    /// None is needed here.
    pub unsafe trait Typesafe: Send + Sync + 'static {}

    struct Address<T>(NonNull<T>);

    // SAFETY: an address.
    unsafe impl<T> Send for Address<T> {}

    /// Objects, constructed once; the last that was freed is the next that is used.
    pub struct TypesafeCache<T> {
        free: Mutex<Vec<Address<T>>>,
        domain: &'static Domain,
    }

    impl<T: Typesafe> TypesafeCache<T> {
        pub fn new(domain: &'static Domain, objects: Vec<T>) -> Self {
            let address = |object| Address(NonNull::from(Box::leak(Box::new(object))));
            Self { free: Mutex::new(objects.into_iter().map(address).collect()), domain }
        }

        pub fn domain(&self) -> &'static Domain {
            self.domain
        }

        pub fn alloc(&self) -> Result<NonNull<T>, AllocError> {
            self.free.lock().unwrap().pop().map(|address| address.0).ok_or(AllocError)
        }

        /// # Safety
        /// It came from here.
        pub unsafe fn free(&self, object: NonNull<T>) {
            self.free.lock().unwrap().push(Address(object));
        }

        pub fn count(&self) -> usize {
            self.free.lock().unwrap().len()
        }
    }
}

use quietline_platform::atomic::{AtomicU32, Ordering::Relaxed};
use quietline_platform::{cpu, thread};
use quietline_sync::FileRef;
use quietline_sync::rcu::Domain;
use std::sync::Arc;
use typed::{Typesafe, TypesafeCache};
use typesafe_place::{Counted, Held, TypesafePlace};

/// An object: its life's number, twice.
struct Session {
    count: FileRef,
    id: AtomicU32,
    again: AtomicU32,
}

// SAFETY: made of atomics.
unsafe impl Typesafe for Session {}

// SAFETY: one count, dead at first, touched by nobody else.
unsafe impl Counted for Session {
    fn references(&self) -> &FileRef {
        &self.count
    }
}

type Cache = TypesafeCache<Session>;

fn session() -> Session {
    Session { count: FileRef::dead(), id: AtomicU32::new(0), again: AtomicU32::new(0) }
}

/// A cache of so many objects, and a place with the first life in it; neither is dropped.
fn world(objects: usize) -> (&'static Cache, &'static TypesafePlace<'static, Session>) {
    let domain: &'static Domain = Domain::leaked().unwrap();
    let cache: &'static Cache =
        Box::leak(Box::new(Cache::new(domain, (0..objects).map(|_| session()).collect())));
    let place = TypesafePlace::empty(cache);
    assert!(place.replace(life(cache, 1)).is_none());
    (cache, Box::leak(Box::new(place)))
}

fn life(cache: &'static Cache, id: u32) -> Held<'static, Session> {
    let fill = |session: &Session| {
        // Relaxed: what is filled is published by the count, or by the place.
        session.id.store(id, Relaxed);
        session.again.store(id, Relaxed);
    };
    Held::new(cache, fill).expect("there is a free one")
}

fn explore(switches: usize, f: impl Fn() + Sync + Send + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = builder.preemption_bound.or(Some(switches));
    builder.max_branches = 20_000;
    let tried = Arc::new(std::sync::atomic::AtomicUsize::new(0));
    let count = tried.clone();
    builder.check(move || {
        count.fetch_add(1, Relaxed);
        f();
    });
    assert!(tried.load(Relaxed) > 4, "the threads have not met");
}

/// Readers are spawned: loom tries more orders so (it looks at the last access to a word only).
fn reader<R: 'static>(read: impl FnOnce() -> R + 'static) -> thread::JoinHandle<R> {
    thread::spawn(move || {
        cpu::migrate(1);
        read()
    })
}

fn read(cache: &Cache, place: &TypesafePlace<'static, Session>) -> Option<(u32, u32)> {
    let section = cache.domain().read();
    place
        .candidate(&section)?
        .read(|session| (session.id.load(Relaxed), session.again.load(Relaxed)))
}

/// The object is taken out and its memory used again for one that is in no place: a reader has the first life or nothing.
#[test]
fn what_is_read_is_of_one_life() {
    explore(3, || {
        let (cache, place) = world(1);
        let reader = reader(move || read(cache, place));
        drop(place.take());
        let elsewhere = life(cache, 2);
        let found = reader.join().unwrap();
        assert!(matches!(found, None | Some((1, 1))), "{found:?}");
        drop(elsewhere);
        assert_eq!(cache.count(), 1);
    });
}

/// The same memory comes back into the place, with another life.
#[test]
fn what_comes_back_is_read_whole() {
    explore(3, || {
        let (cache, place) = world(1);
        let reader = reader(move || read(cache, place));
        drop(place.take());
        assert!(place.replace(life(cache, 2)).is_none());
        let found = reader.join().unwrap();
        assert!(matches!(found, None | Some((1, 1) | (2, 2))), "{found:?}");
        assert_eq!(read(cache, place), Some((2, 2)));
    });
}

/// What is acquired was in the place when the reference was there, and stays as it is while it is held. One that was not in the
/// place is not given, and the attempt leaves nothing behind.
#[test]
fn what_is_acquired_was_in_the_place() {
    explore(2, || {
        let (cache, place) = world(2);
        let reader = reader(move || {
            let section = cache.domain().read();
            let held = place.candidate(&section)?.acquire();
            drop(section);
            held.map(|held| (held.id.load(Relaxed), held.again.load(Relaxed)))
        });
        drop(place.take());
        let elsewhere = life(cache, 2);
        let found = reader.join().unwrap();
        assert!(matches!(found, None | Some((1, 1))), "{found:?}");
        drop(elsewhere);
        assert_eq!(cache.count(), 2, "each ended once");
    });
}
