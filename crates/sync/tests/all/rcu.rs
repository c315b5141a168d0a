//! RCU: property 8 (nothing is used again before its grace period), polled grace periods, and failing allocations.
#![cfg(not(loom))]

use quietline_platform::fault;
use quietline_sync::rcu::{self, Domain, Guard};
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Barrier, mpsc};
use std::thread;
use std::time::{Duration, Instant};

const GOOD: u64 = 0x600D;
const POISON: u64 = 0xDEAD;

/// Returns the duration of a stress test: `QUIETLINE_STRESS_MILLIS`, or the default times
/// `QUIETLINE_TEST_SCALE`.
fn stress_time(default_millis: u64) -> Duration {
    Duration::from_millis(quietline_testing::budget("QUIETLINE_STRESS_MILLIS", default_millis))
}

struct Item(AtomicU64);

/// A pointer that a writer swaps among items of its own; an item comes back into use after many rounds, so that a
/// reader that is not protected sees poison, not freed memory.
struct Place {
    now: AtomicPtr<Item>,
    items: Vec<Item>,
}

impl Place {
    fn new() -> Self {
        let items: Vec<Item> = (0..64).map(|_| Item(AtomicU64::new(GOOD))).collect();
        Self { now: AtomicPtr::new((&raw const items[0]).cast_mut()), items }
    }

    /// Writer's round `i`: publishes the next item, waits by `wait`, poisons the last one.
    fn swap(&self, i: usize, wait: impl FnOnce()) {
        let fresh = &self.items[(i + 1) % self.items.len()];
        fresh.0.store(GOOD, Ordering::Relaxed);
        let old = self.now.swap((fresh as *const Item).cast_mut(), Ordering::AcqRel);
        wait();
        // SAFETY: items live as long as the place.
        unsafe { &*old }.0.store(POISON, Ordering::Relaxed);
    }

    fn read(&self) -> &Item {
        // SAFETY: items live as long as the place.
        unsafe { &*self.now.load(Ordering::Acquire) }
    }
}

/// A thread that reads all places again and again; its sections.
fn reader<'s>(
    s: &'s thread::Scope<'s, '_>,
    places: &'s [Place],
    stop: &'s AtomicBool,
    read: impl Fn(&Place) + Send + 's,
) -> thread::ScopedJoinHandle<'s, usize> {
    s.spawn(move || {
        let mut n = 0;
        // On a busy machine the end may come before the first turn; there is one all the same.
        loop {
            places.iter().for_each(&read);
            n += places.len();
            if stop.load(Ordering::Relaxed) {
                return n;
            }
        }
    })
}

fn check(item: &Item, looks: usize) {
    for _ in 0..looks {
        assert_eq!(
            item.0.load(Ordering::Relaxed),
            GOOD,
            "an item was poisoned inside a read section"
        );
        std::hint::spin_loop();
    }
}

/// Property 8: readers of every kind, several writers whose grace periods overlap.
#[test]
fn property_8_torture() {
    let domain = Domain::new().unwrap();
    let places: Vec<Place> = (0..3).map(|_| Place::new()).collect();
    let stop = AtomicBool::new(false);
    let rounds = AtomicUsize::new(0);
    let (send, receive) = mpsc::sync_channel::<(Guard, AtomicPtr<Item>)>(16);
    thread::scope(|s| {
        let (domain, places, stop, rounds) = (&*domain, &places[..], &stop, &rounds);
        let readers = [
            // Short sections.
            reader(s, places, stop, |place| {
                let _guard = domain.read();
                check(place.read(), 1);
            }),
            // Long ones, which change the CPU inside.
            reader(s, places, stop, |place| {
                let _guard = domain.read();
                let item = place.read();
                check(item, 20);
                thread::yield_now();
                check(item, 20);
            }),
            // Sections in sections, ended in the order in which they began.
            reader(s, places, stop, |place| {
                let outer = domain.read();
                let first = place.read();
                let inner = domain.read();
                let second = place.read();
                check(first, 3);
                drop(outer);
                check(second, 10);
                drop(inner);
            }),
            // Sections that another thread ends.
            reader(s, places, stop, move |place| {
                let guard = domain.read();
                let item = place.read();
                check(item, 1);
                send.send((guard, AtomicPtr::new((item as *const Item).cast_mut()))).unwrap();
            }),
        ];
        s.spawn(move || {
            for (guard, item) in receive {
                // SAFETY: items live as long as the place.
                check(unsafe { &*item.into_inner() }, 5);
                drop(guard);
            }
        });
        for (n, place) in places.iter().enumerate() {
            s.spawn(move || {
                let mut i = 0;
                while i == 0 || !stop.load(Ordering::Relaxed) {
                    place.swap(i, || match n {
                        0 => domain.synchronize(),
                        1 => wait_by_polling(domain),
                        _ => domain.barrier(),
                    });
                    i += 1;
                }
                rounds.fetch_add(i, Ordering::Relaxed);
            });
        }
        let end = Instant::now() + stress_time(1000);
        while Instant::now() < end {
            thread::yield_now();
        }
        stop.store(true, Ordering::Relaxed);
        for reader in readers {
            assert!(reader.join().unwrap() >= places.len());
        }
    });
    assert!(rounds.load(Ordering::Relaxed) >= places.len());
    assert_eq!(domain.open_sections(), 0);
}

/// Property 8, one against one: the writer keeps taking the reader's line away, so that the reader's entry lingers in
/// its store buffer while it reads on. Only the barrier of the grace period makes the entry seen in time.
#[test]
fn property_8_an_entry_on_its_way_is_seen() {
    let domain = Domain::new().unwrap();
    let place = [Place::new()];
    let stop = AtomicBool::new(false);
    thread::scope(|s| {
        let reader = reader(s, &place, &stop, |place| {
            let _guard = domain.read();
            check(place.read(), 30);
        });
        let end = Instant::now() + stress_time(500);
        let mut i = 0;
        while i % 64 != 0 || Instant::now() < end {
            place[0].swap(i, || domain.synchronize());
            i += 1;
        }
        stop.store(true, Ordering::Relaxed);
        assert!(reader.join().unwrap() > 0);
    });
}

fn wait_by_polling(domain: &Domain) {
    let seq = domain.start_poll_synchronize();
    while !domain.poll_state_synchronize(seq) {
        domain.poll();
        thread::yield_now();
    }
}

/// Property 8: what one of many concurrent writers unlinked is not seen by sections that its own grace period covers.
#[test]
fn property_8_many_synchronize_at_once() {
    let domain = Domain::new().unwrap();
    let places: Vec<Place> = (0..8).map(|_| Place::new()).collect();
    let left = AtomicUsize::new(places.len());
    thread::scope(|s| {
        let (domain, places, left) = (&*domain, &places, &left);
        for place in places {
            s.spawn(move || {
                (0..300).for_each(|i| place.swap(i, || domain.synchronize()));
                left.fetch_sub(1, Ordering::Relaxed);
            });
        }
        while left.load(Ordering::Relaxed) != 0 {
            let _guard = domain.read();
            places.iter().for_each(|place| check(place.read(), 1));
        }
    });
}

#[test]
fn synchronize_waits_for_a_section_that_moved() {
    let domain = Domain::new().unwrap();
    let guard = domain.read();
    let over = AtomicBool::new(false);
    let begun = Barrier::new(2);
    thread::scope(|s| {
        s.spawn(|| {
            begun.wait();
            domain.synchronize();
            over.store(true, Ordering::Relaxed);
        });
        begun.wait();
        assert_eq!(domain.open_sections(), 1);
        // Sections that begin later do not keep the grace period from ending, and do not end it.
        for _ in 0..quietline_testing::scaled(1000) {
            drop(domain.read());
            thread::yield_now();
        }
        assert!(!over.load(Ordering::Relaxed));
        s.spawn(move || drop(guard)).join().unwrap();
    });
    assert!(over.load(Ordering::Relaxed));
    assert_eq!(domain.open_sections(), 0);
}

#[test]
fn a_polled_grace_period_ends_when_its_sections_have_left() {
    let domain = Domain::new().unwrap();
    let (early, guard) = (domain.start_poll_synchronize(), domain.read());
    let seq = domain.start_poll_synchronize();
    assert!(!domain.poll_state_synchronize(early) && !domain.poll_state_synchronize(seq));
    for _ in 0..100 {
        domain.poll();
        assert!(!domain.poll_state_synchronize(seq), "a section is open");
    }
    // The first grace period began while the section was open, so it too waits.
    assert!(!domain.poll_state_synchronize(early));
    drop(guard);
    wait_by_polling(&domain);
    assert!(domain.poll_state_synchronize(early) && domain.poll_state_synchronize(seq));
    assert!(
        !domain.poll_state_synchronize(domain.start_poll_synchronize()),
        "a new number stands for a new grace period"
    );
}

#[test]
fn domains_do_not_wait_for_each_other() {
    let (one, other) = (Domain::new().unwrap(), Domain::new().unwrap());
    let _guard = one.read();
    other.synchronize();
    assert!(std::ptr::eq(_guard.domain(), &*one));
    assert!(std::ptr::eq(rcu::global().unwrap(), rcu::global().unwrap()));
}

#[test]
fn every_allocation_may_fail() {
    let mut failed = 0;
    for nth in 1.. {
        fault::fail_nth(nth);
        let domain = Domain::new();
        let fired = !fault::armed();
        fault::fail_nth(0);
        assert_eq!(domain.is_err(), fired);
        if !fired {
            break;
        }
        failed += 1;
    }
    assert!(failed >= 3, "counts, lists, box");
    // What a failed call took it has given back.
    Domain::new().unwrap().synchronize();

    let domain = Domain::new().unwrap();
    let owned = Arc::new(());
    let (moved, ran) = (owned.clone(), Arc::new(AtomicBool::new(false)));
    let note = ran.clone();
    fault::fail_nth(1);
    let result = domain.defer(move || {
        let _moved = moved;
        note.store(true, Ordering::Relaxed);
    });
    fault::fail_nth(0);
    assert!(result.is_err());
    assert_eq!(Arc::strong_count(&owned), 1, "the closure is dropped");
    domain.barrier();
    assert!(!ran.load(Ordering::Relaxed));
    assert_eq!(domain.backlog(), 0);
}

/// Debug builds: a sleep inside a read section panics. A wait that ends at once does not.
#[test]
#[cfg(all(debug_assertions, not(any(loom, quietline_sim))))]
fn no_thread_sleeps_inside_a_section() {
    use quietline_sync::{Wait, WaitError, WaitQueue};
    use std::panic::{AssertUnwindSafe, catch_unwind};
    use std::time::Duration;

    quietline_testing::isolated!();
    let domains = [(); 2].map(|()| Domain::new().unwrap());
    let queue = WaitQueue::new();
    let wait = |millis| {
        let wait = Wait { timeout: Some(Duration::from_millis(millis)), ..Wait::default() };
        catch_unwind(AssertUnwindSafe(|| queue.wait_until(&wait, || None::<()>))).ok()
    };
    let timed_out = Some(Err(WaitError::TimedOut));
    assert_eq!(wait(1), timed_out);
    for (one, other) in [(0, 1), (1, 0)] {
        let outer = domains[one].read();
        let inner = domains[other].read();
        assert_eq!((wait(1), wait(0)), (None, timed_out));
        assert_eq!(queue.wait_until(&Wait::default(), || Some(7)), Ok(7));
        drop(outer);
        assert_eq!(wait(1), None, "the inner one is left");
        drop(inner);
        assert_eq!(wait(1), timed_out);
    }
    // Once another thread has left a section, nothing is asserted.
    let guard = domains[0].read();
    std::thread::scope(|scope| {
        scope.spawn(move || drop(guard));
    });
    assert_eq!(wait(1), timed_out);
}
