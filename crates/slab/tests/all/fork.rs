//! A child forked while other threads are everywhere in a cache uses it at once.
#![cfg(not(loom))]

use quietline_slab::{Entry, Options, RawCache};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

/// What the child does: nothing that another thread's lock could hold up. No panics here: a child must not unwind into
/// the test harness.
fn child(cache: &RawCache) -> bool {
    let mut objects: [Entry; 500] = [None; 500];
    for _ in 0..20 {
        if cache.alloc_bulk(&mut objects).is_err() {
            return false;
        }
        // SAFETY: allocated above.
        unsafe { cache.free_bulk(&mut objects) };
        let Ok(object) = cache.alloc() else { return false };
        // SAFETY: as above.
        unsafe { cache.free(object) };
        cache.shrink();
    }
    let Ok(fresh) = RawCache::new(Options::new("child", 100, 4)) else { return false };
    fresh.alloc().is_ok() && fresh.stats().active == 1
}

#[test]
fn child_goes_on() {
    quietline_testing::isolated!();
    let cache =
        RawCache::new(Options { sheaf_capacity: 4, ..Options::new("fork", 200, 8) }).unwrap();
    let stop = AtomicBool::new(false);
    thread::scope(|scope| {
        for bulk in [1, 9] {
            let (cache, stop) = (&cache, &stop);
            scope.spawn(move || {
                let mut objects: Vec<Entry> = vec![None; bulk];
                while !stop.load(Ordering::Relaxed) {
                    cache.alloc_bulk(&mut objects).unwrap();
                    // SAFETY: allocated above.
                    unsafe { cache.free_bulk(&mut objects) };
                    if bulk == 9 {
                        cache.shrink();
                        let _ = cache.stats();
                    }
                }
            });
        }
        for round in 0..60 {
            // SAFETY: the child calls only what is under test, and leaves by _exit. A child that hangs is ended by the
            // alarm.
            let status = unsafe {
                let pid = libc::fork();
                if pid == 0 {
                    libc::alarm(20);
                    let well = child(&cache);
                    libc::_exit(if well { 0 } else { 1 });
                }
                let mut status = 0;
                assert_eq!(libc::waitpid(pid, &mut status, 0), pid);
                status
            };
            if status != 0 {
                stop.store(true, Ordering::Relaxed);
            }
            assert_eq!(status, 0, "child of round {round}");
        }
        stop.store(true, Ordering::Relaxed);
    });
    assert_eq!(cache.stats().active, 0);
}
