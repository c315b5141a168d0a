//! Bulk operations.
#![cfg(not(loom))]

mod support;

use quietline_platform::fault;
use quietline_slab::{Entry, Options, RawCache};
use std::collections::HashSet;
use std::ptr::NonNull;
use support::{Random, each_fault, fill, is_filled};

const SIZES: [usize; 17] = [0, 1, 2, 3, 4, 8, 16, 30, 32, 34, 48, 64, 128, 158, 250, 1000, 3000];

fn cache(size: usize, sheaf_capacity: usize) -> RawCache {
    RawCache::new(Options { sheaf_capacity, ..Options::new("bulk", size, 8) }).unwrap()
}

#[test]
fn all_sizes() {
    for (size, capacity) in [(8, 0), (192, 0), (192, 1), (1000, 7), (4096, 0)] {
        let cache = cache(size, capacity);
        for _ in 0..3 {
            for n in SIZES {
                let mut objects = vec![Some(NonNull::dangling()); n];
                cache.alloc_bulk(&mut objects).unwrap();
                let distinct: HashSet<_> = objects.iter().map(|object| object.unwrap()).collect();
                assert_eq!(distinct.len(), n);
                assert_eq!(cache.stats().active, n);
                for (i, object) in objects.iter().enumerate() {
                    fill(object.unwrap(), size, i as u8);
                }
                for (i, object) in objects.iter().enumerate() {
                    assert!(is_filled(object.unwrap(), size, i as u8));
                }
                // SAFETY: allocated above.
                unsafe { cache.free_bulk(&mut objects) };
                assert_eq!(objects, vec![None; n]);
                assert_eq!(cache.stats().active, 0);
            }
        }
    }
}

/// Property 10: a bulk free is the multiset of single frees, wherever nulls stand among the objects.
#[test]
fn nulls_anywhere() {
    let mut random = Random::new(1);
    for capacity in [0, 1, 16] {
        let cache = cache(64, capacity);
        for n in SIZES {
            for share in [0, 1, 2, 3, 4] {
                let mut objects: Vec<Entry> = vec![None; n];
                cache.alloc_bulk(&mut objects).unwrap();
                let mut kept = Vec::new();
                for object in &mut objects {
                    if random.below(4) < share {
                        kept.extend(object.take());
                    }
                }
                // SAFETY: allocated above; those taken out are freed below, one by one.
                unsafe { cache.free_bulk(&mut objects) };
                assert_eq!(objects, vec![None; n]);
                assert_eq!(cache.stats().active, kept.len());
                // SAFETY: as above.
                kept.into_iter().for_each(|object| unsafe { cache.free(object) });
                assert_eq!(cache.stats().active, 0);
            }
        }
    }
}

/// Whatever allocation fails: all of the array or nothing of it, nothing leaked.
#[test]
fn all_or_nothing() {
    let mut failures = 0;
    for n in SIZES {
        for (capacity, warm) in [(0, 0), (1, 0), (16, 0), (16, 40), (0, 3)] {
            each_fault_of(n, capacity, warm, &mut failures);
        }
    }
    assert!(failures > 100, "only {failures} allocations were made to fail");
}

fn each_fault_of(n: usize, capacity: usize, warm: usize, failures: &mut u64) {
    let mut made = None;
    let mut reported = 0;
    let walked = each_fault(|armed| {
        if !armed {
            made = None;
            return;
        }
        // The cache itself is made, and warmed up, without faults.
        let wanted = arm_later(|| {
            let cache = cache(3000, capacity);
            let mut kept: Vec<Entry> = vec![None; warm];
            cache.alloc_bulk(&mut kept).unwrap();
            (cache, kept)
        });
        let (cache, kept) = made.insert(wanted);
        let mut objects = vec![Some(NonNull::dangling()); n];
        match cache.alloc_bulk(&mut objects) {
            Ok(()) => {
                let distinct: HashSet<_> =
                    objects.iter().chain(&*kept).map(|object| object.unwrap()).collect();
                assert_eq!(distinct.len(), n + warm);
                assert_eq!(cache.stats().active, n + warm);
                // SAFETY: allocated above.
                unsafe { cache.free_bulk(&mut objects) };
            }
            Err(_) => {
                reported += 1;
                assert_eq!(objects, vec![None; n]);
            }
        }
        assert_eq!(cache.stats().active, warm);
        // SAFETY: allocated above.
        unsafe { cache.free_bulk(kept) };
        assert_eq!(cache.stats().active, 0);
    });
    assert!(reported <= walked);
    *failures += walked;
}

/// Runs `f` with the armed fault put off until after it.
fn arm_later<R>(f: impl FnOnce() -> R) -> R {
    let nth = support::NTH.get();
    fault::fail_nth(0);
    let result = f();
    fault::fail_nth(nth);
    result
}
