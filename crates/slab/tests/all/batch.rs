//! Property 10 for batches: whole freelists, each object once.
#![cfg(not(loom))]

use quietline_platform::fault;
use quietline_slab::{Hook, Options, RawCache};
use std::collections::BTreeSet;
use std::ptr::NonNull;
use std::thread;

fn cache(size: usize) -> RawCache {
    RawCache::new(Options::new("batch", size, 8)).unwrap()
}

#[test]
fn count_is_what_comes_out() {
    let cache = cache(192);
    let per_slab = cache.layout().objects;
    let batch = cache.alloc_batch(1).unwrap();
    assert_eq!(batch.len(), per_slab, "a whole slab, though one was wanted");
    assert_eq!(cache.stats().active, per_slab);
    let objects: BTreeSet<NonNull<u8>> = batch.collect();
    assert_eq!(objects.len(), per_slab, "each once");
    let two = cache.alloc_batch(per_slab + 1).unwrap();
    assert_eq!(two.len(), 2 * per_slab);
    let never_more = cache.alloc_batch(usize::MAX).unwrap();
    assert_eq!(never_more.len(), 2 * per_slab, "two slabs at most");
    drop((two, never_more));
    for object in objects {
        // SAFETY: taken above, once.
        unsafe { cache.free(object) };
    }
    assert_eq!(cache.stats().active, 0);
}

/// A list with holes: some of its objects are out, the others were freed in a wild order.
#[test]
fn listed_and_fresh() {
    let cache = RawCache::new(Options { sheaves: false, ..Options::new("batch", 64, 8) }).unwrap();
    let per_slab = cache.layout().objects;
    let mut out: Vec<_> = (0..10).map(|_| cache.alloc().unwrap()).collect();
    for index in [7, 2, 5] {
        // SAFETY: taken above, once.
        unsafe { cache.free(out.remove(index)) };
    }
    let batch: Vec<_> = cache.alloc_batch(1).unwrap().collect();
    assert_eq!(batch.len(), per_slab - 7);
    let all: BTreeSet<_> = batch.iter().chain(&out).collect();
    assert_eq!(all.len(), per_slab);
    for object in batch.into_iter().chain(out) {
        // SAFETY: taken above, once.
        unsafe { cache.free(object) };
    }
    assert_eq!(cache.stats().active, 0);
    cache.shrink();
    assert_eq!(cache.stats().slabs, 0);
}

#[test]
fn what_is_left_goes_back() {
    let cache = cache(256);
    for taken in [0, 1, 5, 40] {
        let mut batch = cache.alloc_batch(cache.layout().objects + 1).unwrap();
        let objects: Vec<_> = batch.by_ref().take(taken).collect();
        assert_eq!(objects.len(), taken);
        drop(batch);
        assert_eq!(cache.stats().active, taken);
        for object in objects {
            // SAFETY: taken above, once.
            unsafe { cache.free(object) };
        }
    }
    cache.shrink();
    assert_eq!(cache.stats().slabs, 0);
}

#[test]
fn constructed_before_they_come() {
    unsafe fn ctor(memory: NonNull<u8>) {
        // SAFETY: memory of the cache's size.
        unsafe { memory.cast::<u64>().write(0x1234) };
    }
    let options = Options { ctor: Some(Hook::new(ctor)), ..Options::new("batch-ctor", 8, 8) };
    // SAFETY: the constructor writes eight bytes.
    let cache = unsafe { RawCache::with_hooks(options).unwrap() };
    for object in cache.alloc_batch(1).unwrap() {
        // SAFETY: constructed, and ours.
        unsafe {
            assert_eq!(object.cast::<u64>().read(), 0x1234);
            cache.free(object);
        }
    }
    assert_eq!(cache.stats().active, 0);
}

#[test]
fn no_memory_is_an_error() {
    quietline_testing::isolated!();
    let cache = cache(192);
    fault::fail_from(1);
    let failed = cache.alloc_batch(5).is_err();
    fault::fail_nth(0);
    assert!(failed);
    assert_eq!(cache.stats().active, 0);
    // Memory ends within the first slab, which may take several steps, or later: then the slabs
    // that there are make the batch.
    for nth in 2.. {
        fault::fail_from(nth);
        let batch = cache.alloc_batch(usize::MAX);
        fault::fail_nth(0);
        if let Ok(batch) = batch {
            assert_eq!(batch.len(), cache.layout().objects);
            break;
        }
        assert!(nth < 10, "one slab takes a few steps");
    }
}

#[test]
fn beside_other_threads() {
    let cache = cache(64);
    let rounds = if cfg!(debug_assertions) { 2_000 } else { 20_000 };
    thread::scope(|scope| {
        for seed in 0..3usize {
            let cache = &cache;
            scope.spawn(move || {
                for round in 0..rounds {
                    let mark = seed * rounds + round + 1;
                    let mut objects: Vec<_> = cache.alloc_batch(8).unwrap().take(50).collect();
                    for object in &objects {
                        // SAFETY: ours.
                        unsafe { object.cast::<usize>().write(mark) };
                    }
                    if round % 2 == 0 {
                        objects.reverse();
                    }
                    for object in objects {
                        // SAFETY: ours, with our mark in it unless it was given out twice.
                        unsafe {
                            assert_eq!(object.cast::<usize>().read(), mark);
                            cache.free(object);
                        }
                    }
                }
            });
        }
    });
    assert_eq!(cache.stats().active, 0);
    cache.shrink();
    assert_eq!(cache.stats().slabs, 0);
}
