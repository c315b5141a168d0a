//! What goes back to the system, and when. Tests here take turns: they look at the whole process.
#![cfg(not(loom))]

use crate::support::{Parcel, Stop, allowed_cpus, pin};
use quietline_platform::{fault, pages};
use quietline_slab::{Cache, Entry, Options, RawCache};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc;
use std::thread;

fn used() -> usize {
    pages::usage().used
}

fn cache(size: usize) -> RawCache {
    RawCache::new(Options::new("memory", size, 8)).unwrap()
}

#[test]
fn drop_leaks_nothing() {
    quietline_testing::isolated!();
    let before = used();
    for size in [1, 64, 192, 5000, 16384] {
        let cache = cache(size);
        let mut objects: Vec<Entry> = vec![None; 3000];
        cache.alloc_bulk(&mut objects).unwrap();
        assert!(used() >= before + 3000 * size);
        // SAFETY: allocated above.
        unsafe { cache.free_bulk(&mut objects) };
        for _ in 0..500 {
            let object = cache.alloc().unwrap();
            // SAFETY: allocated above.
            unsafe { cache.free(object) };
        }
        drop(cache);
        assert_eq!(used(), before, "size {size}");
    }
}

/// As documented: the slabs of objects that are still out stay, and only those.
#[test]
fn objects_that_are_out_stay() {
    quietline_testing::isolated!();
    let before = used();
    let cache = Cache::<[u64; 24]>::new("out").unwrap();
    let layout = Options::new("out", 192, 8).layout().unwrap();
    let slots: Vec<_> = (0..1000).map(|i| cache.alloc([i; 24]).unwrap()).collect();
    let kept = slots.into_iter().nth(500).map(|slot| slot.into_raw()).unwrap();
    assert_eq!(cache.stats().active, 1);
    drop(cache);
    // SAFETY: leaked, so it stays.
    assert_eq!(unsafe { kept.as_ref() }, &[500; 24]);
    assert_eq!(used(), before + layout.block);
}

#[test]
fn shrink_gives_back() {
    quietline_testing::isolated!();
    let before = used();
    let cache = cache(256);
    let mut objects: Vec<Entry> = vec![None; 10_000];
    cache.alloc_bulk(&mut objects).unwrap();
    // SAFETY: allocated above.
    unsafe { cache.free_bulk(&mut objects[1..]) };
    cache.shrink();
    let stats = cache.stats();
    assert_eq!((stats.active, stats.cached, stats.slabs), (1, 0, 1));
    assert_eq!(used(), before + stats.slab_size);
    // SAFETY: allocated above.
    unsafe { cache.free_bulk(&mut objects) };
    cache.shrink();
    assert_eq!((used(), cache.stats().slabs), (before, 0));
    // And it works on.
    let object = cache.alloc().unwrap();
    // SAFETY: allocated above.
    unsafe { cache.free(object) };
}

/// Threads go on while another one shrinks, and what they leave can be shrunk to nothing.
#[test]
fn shrink_beside_users() {
    quietline_testing::isolated!();
    let before = used();
    let cache = cache(128);
    let stop = AtomicBool::new(false);
    let mut seen = 0;
    thread::scope(|scope| {
        let _stop = Stop(&stop);
        for bulk in [1, 3, 40] {
            let (cache, stop) = (&cache, &stop);
            scope.spawn(move || {
                let mut objects: Vec<Entry> = vec![None; bulk];
                while !stop.load(Ordering::Relaxed) {
                    cache.alloc_bulk(&mut objects).unwrap();
                    for object in objects.iter().flatten() {
                        crate::support::fill(*object, 128, bulk as u8);
                    }
                    assert!(
                        objects
                            .iter()
                            .flatten()
                            .all(|object| crate::support::is_filled(*object, 128, bulk as u8))
                    );
                    // SAFETY: allocated above.
                    unsafe { cache.free_bulk(&mut objects) };
                }
            });
        }
        for round in 0.. {
            if round >= 300 && seen > 0 {
                break;
            }
            cache.shrink();
            let stats = cache.stats();
            seen = seen.max(stats.active + stats.cached);
        }
    });
    assert_eq!(cache.stats().active, 0);
    cache.shrink();
    assert_eq!((used(), cache.stats().cached, cache.stats().slabs), (before, 0, 0));
}

/// CPU 0 allocates, another frees: sheaves travel back, and the slabs do not grow without bound.
#[test]
fn remote_free_is_bounded() {
    quietline_testing::isolated!();
    let cpus = allowed_cpus();
    let cache = &cache(192);
    let (to_free, objects) = mpsc::sync_channel::<Parcel>(4);
    let (back, spent) = mpsc::channel::<Parcel>();
    let (first, last) = (cpus[0], *cpus.last().unwrap());
    let most = thread::scope(|scope| {
        scope.spawn(move || {
            pin(last);
            for mut parcel in objects {
                if parcel.0.len() % 2 == 0 {
                    // SAFETY: the other thread has given them away.
                    unsafe { cache.free_bulk(&mut parcel.0) };
                } else {
                    // SAFETY: as above.
                    parcel
                        .0
                        .iter_mut()
                        .filter_map(Option::take)
                        .for_each(|object| unsafe { cache.free(object) });
                }
                let _ = back.send(parcel);
            }
        });
        let allocating = scope.spawn(move || {
            pin(first);
            let mut most = 0;
            for i in 0..4000 {
                let mut parcel = spent.try_recv().unwrap_or_default();
                parcel.0.resize(32 + i % 2, None);
                cache.alloc_bulk(&mut parcel.0).unwrap();
                to_free.send(parcel).unwrap();
                if i % 100 == 0 {
                    most = most.max(cache.stats().slabs);
                }
            }
            most
        });
        allocating.join().unwrap()
    });
    let stats = cache.stats();
    assert_eq!(stats.active, 0);
    // In flight: 6 arrays. Cached: two sheaves for each CPU used, and the barn's ten.
    let capacity = stats.cached.max(512);
    let bound =
        (6 * 33 + (10 + 2 * 2 * cpus.len() + 64) * capacity).div_ceil(stats.objects_per_slab);
    assert!(most <= bound, "{most} slabs, {bound} expected at most: {stats:?}");
    assert!(stats.refills < 4000 / 4, "sheaves travel: {stats:?}");
    assert!(stats.barn_gets > 0 && stats.barn_puts > 0, "{stats:?}");
}

/// Single allocations: whatever fails, an error at most, and nothing lost.
#[test]
fn alloc_fails_cleanly() {
    quietline_testing::isolated!();
    let before = used();
    for (fail, expected) in [(fault::fail_nth as fn(u64), false), (fault::fail_from, true)] {
        let mut failed = 0;
        for nth in 1..4 {
            let cache = cache(8000);
            let mut objects = Vec::new();
            for _ in 0..200 {
                fail(nth);
                let object = cache.alloc();
                fault::fail_nth(0);
                match object {
                    Ok(object) => objects.push(object),
                    Err(_) => failed += 1,
                }
                assert_eq!(cache.stats().active, objects.len());
            }
            // SAFETY: allocated above.
            objects.into_iter().for_each(|object| unsafe { cache.free(object) });
            assert_eq!(cache.stats().active, 0);
        }
        assert_eq!(
            failed > 0,
            expected,
            "one failed allocation is made good by asking for less: {failed}"
        );
    }
    assert_eq!(used(), before);
}

/// Frees go on when no allocation at all succeeds, single or in bulk.
#[test]
fn free_never_fails() {
    quietline_testing::isolated!();
    let before = used();
    for capacity in [0, 1, 4] {
        let cache =
            RawCache::new(Options { sheaf_capacity: capacity, ..Options::new("free", 64, 8) })
                .unwrap();
        let mut objects: Vec<Entry> = vec![None; 5000];
        cache.alloc_bulk(&mut objects).unwrap();
        cache.shrink();
        let (singles, arrays) = objects.split_at_mut(2000);
        for object in singles.iter_mut().filter_map(Option::take) {
            fault::fail_from(1);
            // SAFETY: allocated above.
            unsafe { cache.free(object) };
        }
        for array in arrays.chunks_mut(37) {
            fault::fail_from(1);
            // SAFETY: allocated above.
            unsafe { cache.free_bulk(array) };
        }
        fault::fail_nth(0);
        // No sheaf was left, and none could be had.
        assert_eq!((cache.stats().active, cache.stats().cached), (0, 0));
        cache.shrink();
        assert_eq!(cache.stats().slabs, 0);
        drop(cache);
    }
    assert_eq!(used(), before);
}
