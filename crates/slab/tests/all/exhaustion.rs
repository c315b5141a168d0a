//! The system has no more memory: in a child process that may have 64 MiB.
#![cfg(not(loom))]

use quietline_slab::{Entry, Options, RawCache};
use std::ptr::NonNull;

/// Limits the address space to what there is now and as many bytes more.
fn limit(more: usize) {
    let statm = std::fs::read_to_string("/proc/self/statm").unwrap();
    let pages: usize = statm.split(' ').next().unwrap().parse().unwrap();
    let most = (pages * 4096 + more) as libc::rlim_t;
    let limit = libc::rlimit { rlim_cur: most, rlim_max: libc::RLIM_INFINITY };
    // SAFETY: a plain call on a structure of our own.
    assert_eq!(unsafe { libc::setrlimit(libc::RLIMIT_AS, &limit) }, 0);
}

#[test]
fn the_system_has_no_more() {
    quietline_testing::isolated!();
    const MORE: usize = 64 << 20;
    const SIZE: usize = 1000;
    let cache = RawCache::new(Options::new("exhaustion", SIZE, 8)).unwrap();
    let mut objects: Vec<NonNull<u8>> = Vec::with_capacity(2 * MORE / SIZE);
    let mut array: Vec<Entry> = vec![None; 5000];
    limit(MORE);
    let counts: Vec<usize> = (0..3)
        .map(|round| {
            let mut failures = 0;
            while failures < 3 {
                match cache.alloc() {
                    Ok(object) => {
                        crate::support::fill(object, SIZE, round);
                        objects.push(object);
                    }
                    Err(_) => failures += 1,
                }
            }
            assert!(cache.alloc_bulk(&mut array).is_err(), "there was memory for 5000 more");
            assert!(array.iter().all(Option::is_none));
            assert_eq!(cache.stats().active, objects.len());
            let count = objects.len();
            for object in objects.drain(..) {
                assert!(crate::support::is_filled(object, SIZE, round));
                // SAFETY: allocated above.
                unsafe { cache.free(object) };
            }
            cache.alloc_bulk(&mut array).unwrap();
            // SAFETY: as above.
            unsafe { cache.free_bulk(&mut array) };
            cache.shrink();
            assert_eq!((cache.stats().active, cache.stats().slabs), (0, 0));
            count
        })
        .collect();
    // All but what regions of 2 MiB leave over at the limit, each time.
    println!("{counts:?} objects");
    assert!(counts.iter().all(|count| count * SIZE > MORE - MORE / 4), "{counts:?}");
}
