//! A walk through every path of the allocator with few objects: short enough for an interpreter
//! (`.ci/miri`), which finds what only the rules of pointers and of the memory model forbid. Each
//! object is written whole, so a pointer that reaches less than its object is found.
#![cfg(not(loom))]

use quietline_platform::fault;
use quietline_slab::{
    Counted, Debug, Entry, GATHER, Held, Hook, Options, Place, RawCache, RcuCache, Tunables,
    Typesafe, TypesafeCache, TypesafePlace, ViolationKind, each_cache, set_violation_handler,
    shrink_all,
};
use quietline_sync::{FileRef, rcu};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::thread;

const SIZE: usize = 1000;

/// Objects of 1,000 bytes, 4 to a sheaf.
fn options(name: &'static str) -> Options {
    Options { sheaf_capacity: 4, min_objects: 2, ..Options::new(name, SIZE, 8) }
}

fn write(object: NonNull<u8>, byte: u8) {
    // SAFETY: the object is the caller's, and has so many bytes.
    unsafe { object.write_bytes(byte, SIZE) };
}

fn alloc(cache: &RawCache) -> NonNull<u8> {
    let object = cache.alloc().unwrap();
    write(object, 1);
    object
}

fn free(cache: &RawCache, object: NonNull<u8>) {
    write(object, 2);
    // SAFETY: callers pass an object once.
    unsafe { cache.free(object) };
}

fn free_rcu(cache: &RawCache, object: NonNull<u8>) {
    write(object, 3);
    // SAFETY: callers pass an object once.
    unsafe { cache.free_rcu(object) };
}

fn is_empty(cache: &RawCache) {
    cache.shrink();
    let stats = cache.stats();
    assert_eq!((stats.active, stats.cached, stats.waiting, stats.slabs), (0, 0, 0, 0), "{stats:?}");
}

#[test]
fn sheaves_barn_and_slabs() {
    quietline_testing::isolated!();
    for (sheaves, look_ahead) in [(true, 0), (true, GATHER), (false, 2)] {
        let cache = RawCache::new(Options { sheaves, look_ahead, ..options("walk") }).unwrap();
        let mut objects: Vec<_> = (0..40).map(|_| alloc(&cache)).collect();
        // Out of order, so that slabs are partial, full and empty in turn.
        while !objects.is_empty() {
            let index = objects.len() * 7 / 10;
            free(&cache, objects.swap_remove(index));
        }
        let less = Tunables { sheaf_capacity: 2, ..cache.tunables() };
        cache.set_tunables(less).unwrap();
        let objects: Vec<_> = (0..10).map(|_| alloc(&cache)).collect();
        objects.into_iter().for_each(|object| free(&cache, object));
        is_empty(&cache);
    }
}

#[test]
fn bulk_and_batch() {
    quietline_testing::isolated!();
    let cache = RawCache::new(options("walk-bulk")).unwrap();
    for n in [1, 2, 3, 11] {
        let mut objects: Vec<Entry> = vec![None; n];
        cache.alloc_bulk(&mut objects).unwrap();
        objects.iter().flatten().for_each(|object| write(*object, 1));
        // One goes alone, so that the array has a hole.
        free(&cache, objects[n / 2].take().unwrap());
        // SAFETY: allocated above, and each freed once.
        unsafe { cache.free_bulk(&mut objects) };
    }
    let mut batch = cache.alloc_batch(5).unwrap();
    let objects: Vec<_> = batch.by_ref().take(3).collect();
    drop(batch);
    objects.into_iter().for_each(|object| free(&cache, object));
    fault::fail_nth(2);
    let mut objects: [Entry; 30] = [None; 30];
    let allocated = cache.alloc_bulk(&mut objects).is_ok();
    fault::fail_nth(0);
    assert_eq!(objects.iter().flatten().count(), if allocated { 30 } else { 0 });
    // SAFETY: as above.
    unsafe { cache.free_bulk(&mut objects) };
    is_empty(&cache);
}

#[test]
fn freed_after_a_grace_period() {
    quietline_testing::isolated!();
    static RELEASED: AtomicUsize = AtomicUsize::new(0);
    unsafe fn release(object: NonNull<u8>) {
        write(object, 4);
        RELEASED.fetch_add(1, Relaxed);
    }
    let domain = rcu::Domain::leaked().unwrap();
    for debug in [Debug::OFF, Debug::ALL - Debug::TRACK] {
        let before = RELEASED.load(Relaxed);
        let release = Some(Hook::new(release));
        let options = Options { rcu: Some(domain), release, debug, ..options("walk-rcu") };
        // SAFETY: the hook writes the object, which has so many bytes.
        let cache = unsafe { RawCache::with_hooks(options) }.unwrap();
        for round in 0..3 {
            let objects: Vec<_> = (0..10).map(|_| alloc(&cache)).collect();
            let section = domain.read();
            if round == 2 {
                // No sheaf can be had: objects are noted in their slabs.
                fault::fail_from(1);
            }
            objects.iter().for_each(|object| free_rcu(&cache, *object));
            fault::fail_nth(0);
            // SAFETY: the section began before they were freed.
            assert!(objects.iter().all(|object| unsafe { object.read() } == 3));
            drop(section);
            cache.flush_rcu();
        }
        assert_eq!(RELEASED.load(Relaxed) - before, 30);
        is_empty(&cache);
    }
}

#[test]
fn checks() {
    quietline_testing::isolated!();
    static FOUND: AtomicUsize = AtomicUsize::new(0);
    set_violation_handler(|violation| {
        assert!(matches!(violation.kind, ViolationKind::DoubleFree | ViolationKind::Leak { .. }));
        FOUND.fetch_add(1, Relaxed);
    });
    let cache = RawCache::new(options("walk-checks")).unwrap();
    let old: Vec<_> = (0..6).map(|_| alloc(&cache)).collect();
    cache.set_debug(Debug::ALL - Debug::TRACK).unwrap();
    let new: Vec<_> = (0..6).map(|_| alloc(&cache)).collect();
    old.into_iter().for_each(|object| free(&cache, object));
    assert_eq!(cache.validate(), 0);
    new.iter().for_each(|object| free(&cache, *object));
    // SAFETY: it is free already, which is found.
    unsafe { cache.free(new[3]) };
    assert_eq!(FOUND.load(Relaxed), 1);
    let between = alloc(&cache);
    cache.set_debug(Debug::OFF).unwrap();
    free(&cache, between);
    is_empty(&cache);
    cache.set_debug(Debug::CONSISTENCY).unwrap();
    alloc(&cache);
    drop(cache);
    assert_eq!(FOUND.load(Relaxed), 2);
}

/// A value that is found without being owned.
struct Session {
    count: FileRef,
    id: AtomicU64,
    link: AtomicU32,
    heap: Box<u64>,
}

// SAFETY: no reader looks at `link`.
unsafe impl Typesafe for Session {
    const LINK_OFFSET: Option<usize> = Some(std::mem::offset_of!(Self, link));

    fn construct() -> Self {
        let (id, link) = (AtomicU64::new(0), AtomicU32::new(0));
        Self { count: FileRef::dead(), id, link, heap: Box::new(5) }
    }
}

// SAFETY: one count, dead at first, which only the cache changes.
unsafe impl Counted for Session {
    fn references(&self) -> &FileRef {
        &self.count
    }
}

#[test]
fn typesafe_values() {
    quietline_testing::isolated!();
    let domain = rcu::Domain::leaked().unwrap();
    let cache = TypesafeCache::<Session>::new("walk-typesafe", domain).unwrap();
    let place = TypesafePlace::empty(&cache);
    thread::scope(|scope| {
        scope.spawn(|| {
            for _ in 0..10 {
                let section = domain.read();
                let read = |session: &Session| (session.id.load(Relaxed), *session.heap);
                let seen = place.candidate(&section).and_then(|found| found.read(read));
                assert!(seen.is_none_or(|(id, heap)| id < 10 && heap == 5));
                if let Some(held) = place.get(&section) {
                    drop(section);
                    assert_eq!(*held.heap, 5);
                }
            }
        });
        for id in 0..10 {
            drop(
                place.replace(Held::new(&cache, |session| session.id.store(id, Relaxed)).unwrap()),
            );
            cache.shrink();
        }
    });
    drop(place);
    cache.shrink();
    domain.barrier();
    assert_eq!((cache.stats().active, cache.stats().slabs), (0, 0));
}

#[test]
fn values_that_readers_find() {
    quietline_testing::isolated!();
    let domain = rcu::Domain::leaked().unwrap();
    let cache = RcuCache::<Vec<u64>>::new("walk-values", domain).unwrap();
    let place = Place::empty(&cache);
    thread::scope(|scope| {
        scope.spawn(|| {
            for _ in 0..10 {
                let section = domain.read();
                if let Some(values) = place.load(&section) {
                    assert_eq!(values[0], values[1]);
                }
            }
        });
        for n in 0..10 {
            drop(place.replace(cache.alloc(vec![n, n]).unwrap()));
            domain.poll();
        }
    });
    drop(place);
    cache.flush();
    assert_eq!(cache.stats().active, 0);
}

/// Two threads free each other's objects while a third one takes everything away.
#[test]
fn freed_elsewhere() {
    quietline_testing::isolated!();
    let cache = RawCache::new(options("walk-remote")).unwrap();
    thread::scope(|scope| {
        let (to_one, one) = std::sync::mpsc::channel::<usize>();
        let (to_other, other) = std::sync::mpsc::channel::<usize>();
        for (to, from) in [(to_other, one), (to_one, other)] {
            let cache = &cache;
            scope.spawn(move || {
                for _ in 0..12 {
                    to.send(alloc(cache).expose_provenance().get()).unwrap();
                }
                drop(to);
                for object in from {
                    free(
                        cache,
                        NonNull::new(std::ptr::with_exposed_provenance_mut(object)).unwrap(),
                    );
                }
            });
        }
        for _ in 0..3 {
            cache.shrink();
            assert!(cache.stats().active <= 24);
        }
    });
    is_empty(&cache);
}

#[test]
fn all_caches() {
    quietline_testing::isolated!();
    let caches = ["walk-one", "walk-two"].map(|name| RawCache::new(options(name)).unwrap());
    for cache in &caches {
        let objects: Vec<_> = (0..6).map(|_| alloc(cache)).collect();
        objects.into_iter().for_each(|object| free(cache, object));
    }
    let mut known = 0;
    each_cache(|cache| known += usize::from(cache.name.starts_with("walk-")));
    assert!(known > 0);
    assert!(shrink_all() > 0);
    caches.iter().for_each(is_empty);
}
