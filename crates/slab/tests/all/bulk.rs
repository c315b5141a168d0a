//! Bulk operations.
#![cfg(not(loom))]

use crate::support::{Random, fill, is_filled};
use quietline_platform::fault;
use quietline_slab::{Entry, Options, RawCache};
use std::collections::HashSet;
use std::ptr::NonNull;

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

/// Whatever allocation fails, alone or with all after it: all of the array or nothing of it, nothing leaked.
#[test]
fn all_or_nothing() {
    quietline_testing::isolated!();
    let (mut faults, mut errors) = (0, 0);
    for n in [0, 1, 2, 3, 16, 34, 250, 600] {
        for (capacity, warm) in [(0, 0), (1, 0), (16, 0), (16, 40), (0, 3)] {
            for fail in [fault::fail_nth, fault::fail_from] {
                for nth in 1.. {
                    let cache = cache(3000, capacity);
                    let mut kept: Vec<Entry> = vec![None; warm];
                    cache.alloc_bulk(&mut kept).unwrap();
                    let mut objects = vec![Some(NonNull::dangling()); n];
                    fail(nth);
                    let result = cache.alloc_bulk(&mut objects);
                    let unharmed = result.is_ok() && fault::armed();
                    fault::fail_nth(0);
                    let distinct: HashSet<_> = objects.iter().chain(&kept).flatten().collect();
                    let out = if result.is_ok() { n } else { 0 };
                    assert_eq!(
                        distinct.len(),
                        out + warm,
                        "{n} of capacity {capacity}, fault {nth}"
                    );
                    assert_eq!(cache.stats().active, out + warm);
                    if result.is_err() {
                        errors += 1;
                        assert_eq!(objects, vec![None; n]);
                    }
                    // SAFETY: allocated above.
                    unsafe {
                        cache.free_bulk(&mut objects);
                        cache.free_bulk(&mut kept);
                    }
                    assert_eq!(cache.stats().active, 0);
                    if unharmed {
                        break;
                    }
                    faults += 1;
                }
            }
        }
    }
    assert!(
        faults > 400 && errors > 200,
        "{faults} allocations failed, {errors} bulk allocations with them"
    );
}
