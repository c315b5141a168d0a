//! Who counts a cache's objects, or waits for all that were freed, beside those who have some in hand, in every interleaving
//! (property 10).
//!
//! Visits are the library's own source, and so is the domain in whose sections sheaves are sent.
//! What visitors and senders carry is a word each here.
//!
//! # Faults that were planted
//!
//! In `src/visits.rs`: the visit's end counted before its work, its beginning counted after; the second look at the beginning left
//! out. (The end's addition relaxed is not found: what it orders is behind locks here, as it is in
//! a cache.) Here: a section that is opened after the sheaf was taken, and a flush that does not
//! wait for sections (both tests with a `flush`).
#![cfg(loom)]

#[allow(dead_code)]
#[path = "../../src/visits.rs"]
mod visits;

use loom::sync::Mutex;
use quietline_platform::atomic::{AtomicUsize, Ordering::AcqRel};
use quietline_platform::thread;
use quietline_sync::rcu::Domain;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use visits::Visits;

fn explore(f: impl Fn() + Sync + Send + 'static) {
    explore_with(2, f);
}

/// All orders with so many forced switches.
fn explore_with(switches: usize, f: impl Fn() + Sync + Send + 'static) {
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

/// Two places of a cache, each behind a lock, and who visits.
struct Cache {
    visits: Visits,
    places: [Mutex<u32>; 2],
}

impl Cache {
    fn new() -> Arc<Self> {
        Arc::new(Self { visits: Visits::new(), places: [Mutex::new(1), Mutex::new(0)] })
    }

    fn add(&self, place: usize, change: i32) {
        let mut place = self.places[place].lock().unwrap();
        *place = place.checked_add_signed(change).expect("there is one");
    }

    /// Carries an object from one place to the other, as decay does.
    fn carry(&self, from: usize) {
        let _visit = self.visits.begin();
        self.add(from, -1);
        self.add(1 - from, 1);
    }

    fn count(&self) -> u32 {
        self.visits.settled(|| self.places.iter().map(|place| *place.lock().unwrap()).sum())
    }
}

/// Whoever counts while an object is carried finds it once.
#[test]
fn a_visit_beside_a_count() {
    explore(|| {
        let cache = Cache::new();
        let visitor = {
            let cache = cache.clone();
            thread::spawn(move || cache.carry(0))
        };
        assert_eq!(cache.count(), 1);
        visitor.join().unwrap();
        assert_eq!(cache.count(), 1);
    });
}

/// The other way round, and back again: in neither is it found twice or not at all.
#[test]
fn two_visits_beside_a_count() {
    explore(|| {
        let cache = Cache::new();
        let counter = {
            let cache = cache.clone();
            thread::spawn(move || cache.count())
        };
        cache.carry(0);
        cache.carry(1);
        assert_eq!(counter.join().unwrap(), 1);
    });
}

/// Sheaves of CPUs, by number, 0 for none, and those that the domain has.
struct Sheaves {
    domain: Pin<Box<Domain>>,
    places: [AtomicUsize; 2],
    queued: Mutex<Vec<usize>>,
}

impl Sheaves {
    fn new() -> Arc<Self> {
        let places = [AtomicUsize::new(1), AtomicUsize::new(2)];
        Arc::new(Self { domain: Domain::new().unwrap(), places, queued: Mutex::new(Vec::new()) })
    }

    fn take(&self, place: usize) -> usize {
        // ORDERING: the sheaf goes from one thread to another.
        self.places[place].swap(0, AcqRel)
    }

    /// As `RawCache::free_rcu`: takes a CPU's sheaf and queues it.
    fn send(&self, place: usize) {
        let _section = self.domain.read();
        let sheaf = self.take(place);
        if sheaf != 0 {
            self.queued.lock().unwrap().push(sheaf);
        }
    }

    /// As `RawCache::flush_rcu`: then the domain's barrier would find all that is queued.
    fn flush(&self) {
        self.send(0);
        self.send(1);
        self.domain.cond_synchronize(self.domain.get_state_synchronize());
        assert_eq!(self.queued.lock().unwrap().len(), 2, "a sheaf is in somebody's hands");
    }
}

/// Who waits has all sheaves queued, also the one that another thread was just sending.
#[test]
fn a_send_beside_a_flush() {
    explore(|| {
        let sheaves = Sheaves::new();
        let sender = {
            let sheaves = sheaves.clone();
            thread::spawn(move || sheaves.send(0))
        };
        sheaves.flush();
        sender.join().unwrap();
    });
}

/// Two who wait, each of whom is a sender to the other: both have them all, and neither waits for ever.
#[test]
fn two_flushes() {
    explore(|| {
        let sheaves = Sheaves::new();
        let other = {
            let sheaves = sheaves.clone();
            thread::spawn(move || sheaves.flush())
        };
        sheaves.flush();
        other.join().unwrap();
    });
}
