//! Values that readers find without owning them, and objects that are found before they are owned.
#![cfg(not(loom))]

use crate::support::{Random, Stop, each_fault, stress_rounds};
use quietline_platform::fault;
use quietline_slab::{
    CacheError, Counted, Held, Hook, Options, Place, RcuCache, Typesafe, TypesafeCache,
    TypesafePlace, Unlinked, with_cache,
};
use quietline_sync::FileRef;
use quietline_sync::rcu::{Domain, DomainHandle};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::*};
use std::sync::{Arc, Barrier, Mutex};
use std::thread;
use std::time::Duration;

fn domain() -> &'static Domain {
    Domain::leaked().unwrap()
}

/// A value whose end is counted, and seen by whoever looks too late.
struct Value {
    alive: AtomicBool,
    number: u64,
    copy: u64,
    ends: Arc<AtomicUsize>,
}

impl Value {
    fn new(number: u64, ends: &Arc<AtomicUsize>) -> Self {
        Self { alive: AtomicBool::new(true), number, copy: !number, ends: ends.clone() }
    }

    fn check(&self) {
        assert!(self.alive.load(Relaxed), "looked at after its end");
        assert_eq!(self.number, !self.copy);
    }
}

impl Drop for Value {
    fn drop(&mut self) {
        self.check();
        self.alive.store(false, Relaxed);
        self.ends.fetch_add(1, Relaxed);
    }
}

#[test]
fn a_value_ends_once_when_it_must() {
    let domain = domain();
    let cache = RcuCache::new("once", domain).unwrap();
    let ends = Arc::new(AtomicUsize::new(0));
    let ended = || ends.load(Relaxed);
    // Unseen: at once.
    drop(cache.alloc(Value::new(1, &ends)).unwrap());
    assert_eq!(ended(), 1);
    let mut slot = cache.alloc(Value::new(2, &ends)).unwrap();
    (slot.number, slot.copy) = (3, !3);
    let value = slot.into_inner();
    assert_eq!((value.number, ended()), (3, 1));
    drop(value);
    assert_eq!((ended(), cache.stats().active), (2, 0));
    // Seen: after the sections in which it may have been.
    let place = Place::empty(&cache);
    let section = domain.read();
    assert!(place.load(&section).is_none());
    assert!(place.replace(cache.alloc(Value::new(4, &ends)).unwrap()).is_none());
    let old = place.load(&section).unwrap();
    drop(place.replace(cache.alloc(Value::new(5, &ends)).unwrap()));
    cache.shrink();
    domain.poll();
    old.check();
    assert_eq!((old.number, place.load(&section).unwrap().number, ended()), (4, 5, 2));
    // From one place to another, not at all.
    let other = Place::empty(&cache);
    other.replace(place.take().unwrap());
    assert!(place.load(&section).is_none());
    assert_eq!(other.load(&section).unwrap().number, 5);
    drop(section);
    cache.flush();
    assert_eq!((ended(), cache.stats().active), (3, 1));
    // With its place.
    drop(other);
    cache.flush();
    assert_eq!((ended(), cache.stats().active, cache.stats().waiting), (4, 0, 0));
    // Whatever was not flushed ends after the cache.
    drop(place.replace(cache.alloc(Value::new(6, &ends)).unwrap()));
    drop(place);
    drop(cache);
    domain.barrier();
    assert_eq!(ended(), 5);
}

/// A domain ends with its last handle, of a cache or another: what waited is dropped by then, and
/// no cache is left in the registry.
#[test]
fn a_domain_ends_with_its_caches() {
    let ends = Arc::new(AtomicUsize::new(0));
    let ended = || ends.load(Relaxed);
    let tenant = DomainHandle::new().unwrap();
    let caches = ["one", "other"].map(|name| RcuCache::new(name, tenant.clone()).unwrap());
    for cache in &caches {
        let place = Place::empty(cache);
        assert!(std::ptr::eq(cache.domain(), &*tenant));
        let section = tenant.read();
        drop(place.replace(cache.alloc(Value::new(1, &ends)).unwrap()));
        let old = place.load(&section).unwrap();
        drop(place.replace(cache.alloc(Value::new(2, &ends)).unwrap()));
        tenant.poll();
        old.check();
    }
    let ids = [caches[0].stats().id, caches[1].stats().id];
    drop(caches);
    // The caches are gone, and their values wait in the domain.
    assert!(ids.iter().all(|id| with_cache(*id, |_| ()).is_none()));
    assert_eq!(ended(), 0);
    drop(tenant);
    assert_eq!(ended(), 4);
    // The last handle is the cache's.
    let cache = RcuCache::new("last", DomainHandle::new().unwrap()).unwrap();
    drop(Unlinked::from(cache.alloc(Value::new(3, &ends)).unwrap()));
    assert_eq!(ended(), 4);
    drop(cache);
    assert_eq!(ended(), 5);
    // The same in a callback of another domain.
    let (outer, cache) = (domain(), RcuCache::new("nested", DomainHandle::new().unwrap()).unwrap());
    drop(Unlinked::from(cache.alloc(Value::new(4, &ends)).unwrap()));
    outer.retire(cache).unwrap();
    outer.barrier();
    assert_eq!(ended(), 6);
    // Typesafe memory: its destructors run with the end of the domain.
    let cache = TypesafeCache::<Pair>::new("typesafe", DomainHandle::new().unwrap()).unwrap();
    let place = TypesafePlace::empty(&cache);
    drop(place.replace(Pair::begin(&cache, 7)));
    let section = cache.domain().read();
    assert_eq!(place.candidate(&section).unwrap().read(Pair::read), Some((7, !7)));
    drop(section);
    drop(place);
    drop(cache);
}

/// Domains and their caches end beside threads that reclaim from all caches of the process.
#[test]
fn domains_end_beside_reclaim() {
    let ends = Arc::new(AtomicUsize::new(0));
    let stop = AtomicBool::new(false);
    let rounds = stress_rounds(300);
    thread::scope(|scope| {
        let _stop = Stop(&stop);
        scope.spawn(|| {
            while !stop.load(Relaxed) {
                quietline_slab::shrink_all();
                quietline_slab::decay();
                quietline_slab::each_cache(|stats| assert!(!stats.name.is_empty()));
            }
        });
        for _ in 0..rounds {
            let tenant = DomainHandle::new().unwrap();
            let values = RcuCache::new("values", tenant.clone()).unwrap();
            let typesafe = TypesafeCache::<Pair>::new("typesafe", tenant).unwrap();
            for number in 0..40 {
                drop(Unlinked::from(values.alloc(Value::new(number, &ends)).unwrap()));
                drop(Pair::begin(&typesafe, number));
            }
        }
    });
    assert_eq!(ends.load(Relaxed), 40 * rounds);
}

/// A domain does not end while another thread looks at its cache through the registry.
#[test]
fn a_domain_outlives_guests() {
    let ends = Arc::new(AtomicUsize::new(0));
    let cache = RcuCache::new("looked at", DomainHandle::new().unwrap()).unwrap();
    drop(Unlinked::from(cache.alloc(Value::new(1, &ends)).unwrap()));
    let id = cache.stats().id;
    let (inside, left) = (Barrier::new(2), AtomicBool::new(false));
    thread::scope(|scope| {
        scope.spawn(|| {
            with_cache(id, |control| {
                inside.wait();
                thread::sleep(Duration::from_millis(20));
                control.shrink();
                left.store(true, Relaxed);
            })
        });
        inside.wait();
        drop(cache);
        // A guest that stays for seconds costs the domain's end, and nothing else.
        let ended = ends.load(Acquire) == 1;
        assert!(!ended || left.load(Relaxed), "the domain has ended under a guest");
    });
}

/// A cache that is dropped while this thread looks at it through the registry: its domain stays.
#[test]
fn a_cache_is_dropped_by_its_guest() {
    let ends = Arc::new(AtomicUsize::new(0));
    let cache = RcuCache::new("guest", DomainHandle::new().unwrap()).unwrap();
    drop(Unlinked::from(cache.alloc(Value::new(1, &ends)).unwrap()));
    let id = cache.stats().id;
    let name = with_cache(id, |control| {
        drop(cache);
        control.shrink();
        control.stats().name
    });
    assert_eq!(name.as_deref(), Some("guest"));
    assert!(with_cache(id, |_| ()).is_none());
    assert_eq!(ends.load(Relaxed), 0, "the domain is leaked, with the value");
}

#[test]
fn replace_if_unchanged() {
    let domain = domain();
    let cache = RcuCache::<u64>::new("numbers", domain).unwrap();
    let place = Place::empty(&cache);
    let section = domain.read();
    assert!(place.replace_if(None, cache.alloc(1).unwrap(), &section).unwrap().is_none());
    let one = place.load(&section);
    let refused = place.replace_if(None, cache.alloc(2).unwrap(), &section).unwrap_err();
    assert_eq!(*refused, 2);
    assert_eq!(*place.replace_if(one, refused, &section).unwrap().unwrap(), 1);
    assert!(place.replace_if(one, cache.alloc(3).unwrap(), &section).is_err());
    // Many add one at a time: nothing is lost.
    drop(section);
    let place = &place;
    thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| {
                for _ in 0..5000 {
                    let section = domain.read();
                    let mut new = cache.alloc(0).unwrap();
                    loop {
                        let current = place.load(&section);
                        *new = current.unwrap() + 1;
                        match place.replace_if(current, new, &section) {
                            Ok(old) => break drop(old),
                            Err(back) => new = back,
                        }
                    }
                }
            });
        }
    });
    assert_eq!(place.take().map(|last| *last), Some(2 + 3 * 5000));
    cache.flush();
    assert_eq!(cache.stats().active, 0);
}

#[test]
#[should_panic(expected = "of another domain than that of the pointer")]
fn a_section_of_another_domain_is_refused() {
    let cache = RcuCache::<u64>::new("mine", domain()).unwrap();
    let place = Place::empty(&cache);
    let section = domain().read();
    let _ = place.load(&section);
}

#[test]
#[should_panic(expected = "belongs to another storage")]
fn a_value_of_another_cache_is_refused() {
    let domain = domain();
    let (mine, other) =
        (RcuCache::<u64>::new("a", domain).unwrap(), RcuCache::new("b", domain).unwrap());
    let _ = Place::empty(&mine).replace(other.alloc(7).unwrap());
}

#[test]
fn options_are_checked() {
    let fit = Options::new("fit", 16, 8);
    assert!(RcuCache::<[u64; 2]>::with_options(fit, domain()).is_ok());
    let refused = |options| RcuCache::<[u64; 2]>::with_options(options, domain()).unwrap_err();
    assert_eq!(refused(Options::new("small", 15, 8)), CacheError::WrongType { size: 15, align: 8 });
    assert_eq!(
        refused(Options::new("crooked", 16, 4)),
        CacheError::WrongType { size: 16, align: 4 }
    );
    assert_eq!(refused(Options { typesafe: Some(domain()), ..fit }), CacheError::Domain);
    assert_eq!(refused(Options { rcu: Some(domain()), ..fit }), CacheError::Domain);
    assert_eq!(refused(Options { release: Some(Hook::new(|_| ())), ..fit }), CacheError::Hooks);
}

/// Types without a size, with more alignment than most, and that own other memory.
#[test]
fn any_type() {
    static ENDS: AtomicUsize = AtomicUsize::new(0);
    struct Nothing;
    impl Drop for Nothing {
        fn drop(&mut self) {
            ENDS.fetch_add(1, Relaxed);
        }
    }
    #[repr(align(1024))]
    struct Wide(u8);
    let domain = domain();
    let nothings = RcuCache::new("nothing", domain).unwrap();
    let places: Vec<_> = (0..1000).map(|_| Place::empty(&nothings)).collect();
    places.iter().for_each(|place| drop(place.replace(nothings.alloc(Nothing).unwrap())));
    drop(places);
    nothings.flush();
    assert_eq!(ENDS.load(Relaxed), 1000);
    let wides = RcuCache::new("wide", domain).unwrap();
    let place = Place::empty(&wides);
    for i in 0..100 {
        drop(place.replace(wides.alloc(Wide(i)).unwrap()));
        let section = domain.read();
        let wide = place.load(&section).unwrap();
        assert!(std::ptr::from_ref(wide).is_aligned() && wide.0 == i);
    }
    let strings = RcuCache::new("strings", domain).unwrap();
    let place = Place::empty(&strings);
    for i in 0..10_000 {
        drop(place.replace(strings.alloc(i.to_string()).unwrap()));
    }
    let section = domain.read();
    assert_eq!(place.load(&section).map(String::as_str), Some("9999"));
}

/// A list whose nodes hold the places of the next ones: its end is not deep, and takes all of it.
#[test]
fn values_that_hold_places() {
    struct Node {
        next: Place<'static, Node>,
        _end: Value,
    }
    let domain = domain();
    let cache: &'static RcuCache<Node> =
        Box::leak(Box::new(RcuCache::new("nodes", domain).unwrap()));
    let ends = Arc::new(AtomicUsize::new(0));
    let first = Place::empty(cache);
    const LONG: usize = 200_000;
    for i in 0..LONG {
        let node = Node { next: Place::empty(cache), _end: Value::new(i as u64, &ends) };
        let rest = first.take();
        if let Some(rest) = rest {
            node.next.replace(rest);
        }
        first.replace(cache.alloc(node).unwrap());
    }
    let section = domain.read();
    let (mut length, mut next) = (0, first.load(&section));
    while let Some(node) = next {
        length += 1;
        next = node.next.load(&section);
    }
    assert_eq!(length, LONG);
    drop(section);
    // A thousand of them: each ends a grace period after the one before it.
    let mut at = first.take();
    for _ in 0..LONG - 1000 {
        at = at.and_then(|node| node.next.take());
    }
    drop(at);
    while ends.load(Relaxed) < LONG {
        cache.flush();
    }
    assert_eq!((ends.load(Relaxed), cache.stats().active), (LONG, 0));
}

/// A value whose drop panics harms nobody else.
#[test]
fn a_panic_at_the_end_of_a_value() {
    struct Bad(Arc<AtomicUsize>);
    impl Drop for Bad {
        fn drop(&mut self) {
            assert!(!self.0.fetch_add(1, Relaxed).is_multiple_of(3), "a panic on purpose");
        }
    }
    let cache = RcuCache::new("bad", domain()).unwrap();
    let ends = Arc::new(AtomicUsize::new(0));
    let place = Place::empty(&cache);
    for _ in 0..30 {
        drop(place.replace(cache.alloc(Bad(ends.clone())).unwrap()));
    }
    drop(place);
    cache.flush();
    assert_eq!(ends.load(Relaxed), 30);
    assert_eq!((cache.stats().active, cache.stats().waiting), (0, 0));
}

#[test]
fn every_allocation_fails_once() {
    quietline_testing::isolated!();
    let domain = domain();
    let ends = Arc::new(AtomicUsize::new(0));
    let failed = each_fault(|_| {
        let Ok(cache) = RcuCache::new("faults", domain) else { return };
        let (mut made, before) = (0, ends.load(Relaxed));
        let place = Place::empty(&cache);
        for i in 0..50 {
            // A value that finds no room ends too.
            made += 1;
            if let Ok(slot) = cache.alloc(Value::new(i, &ends)) {
                drop(place.replace(slot));
            }
        }
        drop(place);
        cache.flush();
        assert_eq!(ends.load(Relaxed) - before, made);
        assert_eq!((cache.stats().active, cache.stats().waiting), (0, 0));
    });
    assert!(failed > 3, "{failed}");
    fault::fail_nth(0);
}

/// Readers beside writers: what a section finds stays whole and alive while it is open.
#[test]
fn readers_beside_writers() {
    const PLACES: usize = 16;
    let domain = domain();
    let cache = RcuCache::new("readers", domain).unwrap();
    let ends = Arc::new(AtomicUsize::new(0));
    let (stop, seen, made) = (AtomicBool::new(false), AtomicUsize::new(0), AtomicUsize::new(0));
    let places: Vec<_> = (0..PLACES).map(|_| Place::empty(&cache)).collect();
    thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                let _stop = Stop(&stop);
                while !stop.load(Relaxed) {
                    let section = domain.read();
                    let found: Vec<&Value> =
                        places.iter().filter_map(|place| place.load(&section)).collect();
                    found.iter().for_each(|value| value.check());
                    seen.fetch_add(found.len(), Relaxed);
                }
            });
        }
        let writers = [1, 2].map(|seed| {
            let (cache, places, ends, made, stop) = (&cache, &places, &ends, &made, &stop);
            scope.spawn(move || {
                let mut random = Random::new(seed);
                for round in 0..stress_rounds(50_000) {
                    let value = Value::new(random.next(), ends);
                    made.fetch_add(1, Relaxed);
                    drop(places[random.below(PLACES)].replace(cache.alloc(value).unwrap()));
                    if round % 10_000 == 0 {
                        cache.shrink();
                    }
                    if stop.load(Relaxed) {
                        break;
                    }
                }
            })
        });
        writers.into_iter().for_each(|writer| writer.join().unwrap());
        while seen.load(Relaxed) < 10_000 && !stop.load(Relaxed) {
            thread::yield_now();
        }
        stop.store(true, Relaxed);
    });
    drop(places);
    cache.flush();
    assert_eq!(ends.load(Relaxed), made.load(Relaxed));
}

/// An object in typesafe memory: in each life its two numbers belong together.
struct Pair {
    count: FileRef,
    number: AtomicU64,
    copy: AtomicU64,
}

// SAFETY: there is no LINK_OFFSET.
unsafe impl Typesafe for Pair {
    fn construct() -> Self {
        Self { count: FileRef::dead(), number: AtomicU64::new(0), copy: AtomicU64::new(!0) }
    }
}

// SAFETY: one count, dead at first, used by nobody else.
unsafe impl Counted for Pair {
    fn references(&self) -> &FileRef {
        &self.count
    }
}

impl Pair {
    fn begin(cache: &TypesafeCache<Pair>, number: u64) -> Held<'_, Pair> {
        Held::new(cache, |pair| {
            pair.number.store(number, Relaxed);
            std::hint::spin_loop();
            pair.copy.store(!number, Relaxed);
        })
        .unwrap()
    }

    fn read(&self) -> (u64, u64) {
        let number = self.number.load(Relaxed);
        std::hint::spin_loop();
        (number, self.copy.load(Relaxed))
    }
}

#[test]
fn a_held_object_keeps_its_life() {
    let domain = domain();
    let cache = TypesafeCache::<Pair>::new("held", domain).unwrap();
    let place = TypesafePlace::empty(&cache);
    let section = domain.read();
    assert!(place.candidate(&section).is_none() && place.get(&section).is_none());
    assert!(place.replace(Pair::begin(&cache, 1)).is_none());
    let held = place.get(&section).unwrap();
    let again = held.clone();
    assert_eq!(held.references().count(), 3);
    let candidate = place.candidate(&section).unwrap();
    let late = place.candidate(&section).unwrap();
    drop(place.replace(Pair::begin(&cache, 2)));
    assert!(candidate.acquire().is_none(), "the place holds another object now");
    assert!(late.read(Pair::read).is_none());
    assert_eq!((held.read(), held.references().count()), ((1, !1), 2));
    drop((held, again));
    assert_eq!(cache.stats().active, 1);
    // Its memory is used at once, also for a candidate from before: the same object in the same place in another life.
    let old = place.candidate(&section).unwrap();
    let reader = place.candidate(&section).unwrap();
    drop(place.take());
    assert_eq!(cache.stats().active, 0);
    place.replace(Pair::begin(&cache, 3));
    assert_eq!(
        old.acquire().map(|held| held.read()),
        Some((3, !3)),
        "what the place holds, whichever life"
    );
    assert!(reader.read(Pair::read).is_none(), "one life or nothing");
    assert_eq!(place.candidate(&section).unwrap().read(Pair::read), Some((3, !3)));
    drop(section);
    drop(place);
    assert_eq!(cache.stats().active, 0);
}

#[test]
fn a_life_that_does_not_begin() {
    let cache = TypesafeCache::<Pair>::new("unborn", domain()).unwrap();
    let panicked = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        let _ = Held::new(&cache, |_| panic!("a panic on purpose"));
    }));
    assert!(panicked.is_err());
    assert_eq!(cache.stats().active, 0);
    cache.shrink();
    fault::fail_from(1);
    let refused = Held::new(&cache, |_| unreachable!()).is_err();
    fault::fail_nth(0);
    assert!(refused);
}

#[test]
#[should_panic(expected = "another domain")]
fn a_typesafe_place_refuses_other_sections() {
    let cache = TypesafeCache::<Pair>::new("mine", domain()).unwrap();
    let place = TypesafePlace::empty(&cache);
    let section = domain().read();
    let _ = place.candidate(&section);
}

/// Few objects that begin and end all the time, in few places: whoever acquires one has one life of it, whoever reads has
/// all from one life, and every life ends.
#[test]
fn lookups_beside_reuse() {
    const PLACES: usize = 3;
    let domain = domain();
    let cache = TypesafeCache::<Pair>::new("reuse", domain).unwrap();
    let places: Vec<_> = (0..PLACES).map(|_| TypesafePlace::empty(&cache)).collect();
    let stop = AtomicBool::new(false);
    let (acquired, read) = (AtomicUsize::new(0), AtomicUsize::new(0));
    let kept = Mutex::new(Vec::new());
    thread::scope(|scope| {
        for seed in [1, 2] {
            let (places, stop, acquired, read, kept) = (&places, &stop, &acquired, &read, &kept);
            scope.spawn(move || {
                let _stop = Stop(stop);
                let mut random = Random::new(seed);
                while !stop.load(Relaxed) {
                    let section = domain.read();
                    for place in places {
                        if let Some((number, copy)) =
                            place.candidate(&section).and_then(|c| c.read(Pair::read))
                        {
                            assert_eq!(number, !copy, "of two lives");
                            read.fetch_add(1, Relaxed);
                        }
                        if let Some(held) = place.candidate(&section).and_then(|c| c.acquire()) {
                            let (number, copy) = held.read();
                            assert_eq!(number, !copy, "of two lives");
                            assert_eq!(held.read().0, number);
                            acquired.fetch_add(1, Relaxed);
                            if random.below(8) == 0 {
                                kept.lock().unwrap().push((held, number));
                            }
                        }
                    }
                }
            });
        }
        let writers = [3, 4].map(|seed| {
            let (cache, places, stop, kept) = (&cache, &places, &stop, &kept);
            let (acquired, read) = (&acquired, &read);
            scope.spawn(move || {
                let mut random = Random::new(seed);
                for round in 0.. {
                    let enough = acquired.load(Relaxed) > 10_000 && read.load(Relaxed) > 10_000;
                    if round > 50_000 && enough || stop.load(Relaxed) {
                        break;
                    }
                    drop(places[random.below(PLACES)].replace(Pair::begin(cache, random.next())));
                    for (held, number) in kept.lock().unwrap().drain(..) {
                        assert_eq!(held.read(), (number, !number), "a held object keeps its life");
                    }
                }
            })
        });
        writers.into_iter().for_each(|writer| writer.join().unwrap());
        stop.store(true, Relaxed);
    });
    kept.into_inner().unwrap().clear();
    drop(places);
    assert_eq!(cache.stats().active, 0);
}
