//! Checks of objects that are freed after a grace period.
#![cfg(not(loom))]

use crate::support::{Stop, fill, is_filled};
use quietline_slab::{
    Debug, Invalid, Options, RawCache, Violation, ViolationKind, set_violation_handler,
};
use std::ptr::NonNull;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

static FOUND: Mutex<Vec<Violation>> = Mutex::new(Vec::new());

fn take_found() -> Vec<Violation> {
    std::mem::take(&mut FOUND.lock().unwrap())
}

fn cache(debug: Debug) -> RawCache {
    set_violation_handler(|violation| FOUND.lock().unwrap().push(*violation));
    take_found();
    RawCache::new(Options { debug, ..Options::new("after", 80, 8) }).unwrap()
}

/// Readers see a freed object as it was until the grace period is over; then it is filled.
#[test]
fn poison_comes_after_the_grace_period() {
    quietline_testing::isolated!();
    let cache = cache(Debug::ALL);
    let object = cache.alloc().unwrap();
    fill(object, 80, 7);
    // SAFETY: allocated above; it is freed once, and looked at inside a section, then as the cache's.
    unsafe {
        {
            let _section = quietline_sync::rcu::global().unwrap().read();
            cache.free_rcu(object);
            assert!(is_filled(object, 80, 7));
        }
        cache.flush_rcu();
        assert!(is_filled(object, 79, 0x6b));
    }
    assert_eq!((cache.stats().active, cache.stats().waiting), (0, 0));
    drop(cache);
    assert!(take_found().is_empty());
}

#[test]
fn freed_twice_after_grace_periods() {
    quietline_testing::isolated!();
    let cache = cache(Debug::TRACK);
    let object = cache.alloc().unwrap();
    let section = quietline_sync::rcu::global().unwrap().read();
    // SAFETY: all but the first are wrong, and found.
    unsafe {
        cache.free_rcu(object);
        assert!(take_found().is_empty());
        let wrong: [unsafe fn(&RawCache, NonNull<u8>); 2] = [RawCache::free_rcu, RawCache::free];
        for wrong in wrong {
            wrong(&cache, object);
            let found = take_found();
            assert_eq!((found.len(), found[0].kind), (1, ViolationKind::DoubleFree));
            let report = found[0].to_string();
            assert!(
                report.contains("freed by") && report.contains("freed_twice_after"),
                "{report}"
            );
        }
        cache.free_rcu(object.add(8));
    }
    let found = take_found();
    assert_eq!(found[0].kind, ViolationKind::InvalidPointer(Invalid::Inside { offset: 8 }));
    drop(section);
    cache.flush_rcu();
    // SAFETY: wrong again.
    unsafe { cache.free_rcu(object) };
    assert_eq!(take_found()[0].kind, ViolationKind::DoubleFree);
    assert_eq!((cache.stats().active, cache.stats().waiting), (0, 0));
    drop(cache);
    assert!(take_found().is_empty());
}

/// The switch is turned while objects wait.
#[test]
fn switched_while_objects_wait() {
    quietline_testing::isolated!();
    let cache = cache(Debug::OFF);
    let stop = AtomicBool::new(false);
    thread::scope(|scope| {
        let _stop = Stop(&stop);
        let workers = [1u8, 2].map(|me| {
            let (cache, stop) = (&cache, &stop);
            scope.spawn(move || {
                while !stop.load(Ordering::Relaxed) {
                    let object = cache.alloc().unwrap();
                    fill(object, 80, me);
                    assert!(is_filled(object, 80, me));
                    // SAFETY: allocated above.
                    unsafe { if me == 1 { cache.free_rcu(object) } else { cache.free(object) } }
                }
            })
        });
        for turn in 0..150 {
            cache.set_debug([Debug::ALL, Debug::OFF, Debug::RED_ZONE][turn % 3]).unwrap();
            if turn % 7 == 0 {
                cache.flush_rcu();
            }
            thread::yield_now();
            assert!(workers.iter().all(|worker| !worker.is_finished()));
        }
    });
    cache.flush_rcu();
    assert_eq!((cache.stats().active, cache.stats().waiting, cache.validate()), (0, 0, 0));
    cache.set_debug(Debug::OFF).unwrap();
    cache.shrink();
    assert_eq!(cache.stats().slabs, 0);
    drop(cache);
    assert!(take_found().is_empty());
}
