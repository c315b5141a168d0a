//! Caches while the kernel refuses the barrier of the machine to a thread.
#![cfg(not(loom))]

use quietline_platform::{FenceError, fault};
use quietline_slab::{Debug, Options, Place, RawCache, RcuCache, Tunables};
use quietline_sync::rcu;
use quietline_testing::refuse_membarrier;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

/// Calls `f` in a thread to which the kernel refuses `membarrier`, if the kernel can refuse it.
fn refused(f: impl FnOnce() + Send) {
    thread::scope(|s| {
        let thread = s.spawn(|| {
            if refuse_membarrier() {
                f();
            } else {
                println!("skipped: no barrier that can be refused");
            }
        });
        thread.join().expect("a refused barrier is no panic");
    });
}

/// Allocates and frees `n` objects.
fn use_up(cache: &RawCache, n: usize) {
    let objects: Vec<_> = (0..n).map(|_| cache.alloc().unwrap()).collect();
    for object in objects {
        // SAFETY: allocated above, and freed once.
        unsafe { cache.free(object) };
    }
}

#[test]
fn a_refused_barrier_leaves_the_sheaves_in_use() {
    quietline_testing::isolated!();
    let cache = RawCache::new(Options::new("fence", 192, 8)).unwrap();
    use_up(&cache, 10);
    let before = cache.stats();
    assert!(before.cached >= 10, "{before:?}");
    refused(|| {
        cache.shrink();
        let _ = cache.stats();
        use_up(&cache, 10);
    });
    // The sheaves serve as before: nothing comes from slabs.
    for _ in 0..100 {
        use_up(&cache, 10);
    }
    let after = cache.stats();
    assert!(after.refills <= before.refills + 4, "{after:?}");
    assert_eq!(after.active, 0, "{after:?}");
    cache.shrink();
    let empty = cache.stats();
    assert_eq!((empty.slabs, empty.cached), (0, 0), "{empty:?}");
}

/// A cache of the environment's checks, or of none, is made where the barrier is refused.
#[test]
fn a_cache_is_made_and_used_without_the_barrier() {
    quietline_testing::isolated!();
    let first = RawCache::new(Options::new("fence-first", 64, 8)).unwrap();
    use_up(&first, 10);
    refused(|| {
        for (sheaves, debug) in [(true, Debug::OFF), (false, Debug::OFF), (true, Debug::ALL)] {
            let options = Options { sheaves, debug, ..Options::new("fence-made", 64, 8) };
            let cache = RawCache::new(options).unwrap();
            use_up(&cache, 1000);
            assert_eq!(cache.validate(), 0);
            assert_eq!(cache.debug() == Debug::OFF, debug == Debug::OFF);
            let less = Tunables { sheaf_capacity: 2, ..cache.tunables() };
            cache.set_tunables(less).unwrap();
            use_up(&cache, 1000);
        }
    });
}

/// Checks are switched on wholly or not at all, whichever of the fences is refused; what was taken
/// from the CPUs between two fences is found by the next call.
#[test]
fn a_refused_switch_changes_nothing() {
    quietline_testing::isolated!();
    let cache = RawCache::new(Options::new("fence-switch", 192, 8)).unwrap();
    for refused in 0..2 {
        use_up(&cache, 10);
        let before = cache.stats();
        assert!(before.cached >= 10, "{before:?}");
        fault::refuse_fences(refused, 1);
        assert_eq!(cache.set_debug(Debug::ALL), Err(FenceError));
        fault::refuse_fences(0, 0);
        assert_eq!(cache.debug(), Debug::OFF);
        // Sheaves that were taken are nowhere; others serve.
        use_up(&cache, 10);
        cache.shrink();
        let empty = cache.stats();
        assert_eq!((empty.slabs, empty.active, empty.cached), (0, 0, 0), "{empty:?}");
    }
    cache.set_debug(Debug::ALL).unwrap();
    use_up(&cache, 10);
    cache.set_debug(Debug::OFF).unwrap();
    use_up(&cache, 10);
    assert!(cache.stats().cached > 0, "CPUs have sheaves again");
}

/// Each fence of taking the sheaves is refused once, in a cache whose sheaves hold objects to hand
/// out and objects that wait for a grace period. Nothing is lost, and nothing is freed twice.
#[test]
fn whichever_fence_is_refused_nothing_is_lost() {
    quietline_testing::isolated!();
    let domain = rcu::global().unwrap();
    let cache = RawCache::new(Options { rcu: Some(domain), ..Options::new("fence-lost", 192, 8) });
    let cache = cache.unwrap();
    for refused in 0..4 {
        use_up(&cache, 50);
        for _ in 0..5 {
            let object = cache.alloc().unwrap();
            // SAFETY: allocated above, and freed once.
            unsafe { cache.free_rcu(object) };
        }
        fault::refuse_fences(refused, 1);
        cache.shrink();
        fault::refuse_fences(0, 0);
        cache.flush_rcu();
        let flushed = cache.stats();
        assert_eq!((flushed.active, flushed.waiting), (0, 0), "{flushed:?}");
        cache.shrink();
        let empty = cache.stats();
        assert_eq!((empty.slabs, empty.cached), (0, 0), "{empty:?}");
    }
    // What was unlinked and not fenced is found by the end of the cache.
    use_up(&cache, 50);
    fault::refuse_fences(1, 1);
    cache.shrink();
    fault::refuse_fences(0, 0);
    drop(cache);
    assert!(quietline_slab::memory_used() < 64 << 10);
}

/// A flush goes on when the barrier is allowed again, and not before.
#[test]
fn a_flush_repeats_a_refused_fence() {
    quietline_testing::isolated!();
    let domain = rcu::global().unwrap();
    let cache = RawCache::new(Options { rcu: Some(domain), ..Options::new("fence-flush", 192, 8) });
    let cache = cache.unwrap();
    let object = cache.alloc().unwrap();
    // SAFETY: allocated above, and freed once.
    unsafe { cache.free_rcu(object) };
    fault::refuse_fences(0, 5);
    cache.flush_rcu();
    let flushed = cache.stats();
    assert_eq!((flushed.active, flushed.waiting), (0, 0), "{flushed:?}");
}

/// A cache is dropped where the barrier is refused, while a part of its values waits for a grace
/// period and the rest lies in a CPU's sheaf. All values are dropped.
#[test]
fn a_cache_that_ends_without_a_fence_drops_its_values() {
    quietline_testing::isolated!();
    static DROPPED: AtomicUsize = AtomicUsize::new(0);
    struct Value;
    impl Drop for Value {
        fn drop(&mut self) {
            DROPPED.fetch_add(1, Ordering::Relaxed);
        }
    }
    // One CPU collects all values.
    #[cfg(not(miri))]
    crate::support::pin(crate::support::allowed_cpus()[0]);
    let domain = rcu::global().unwrap();
    // What is sent to its grace period stays there: it owns the cache.
    let section = domain.read();
    let cache = RcuCache::<Value>::new("fence-values", domain).unwrap();
    let values = 2 * cache.tunables().sheaf_capacity + 3;
    let place = Place::empty(&cache);
    for _ in 0..values {
        place.replace(cache.alloc(Value).unwrap());
    }
    assert!(place.take().is_some());
    drop(place);
    let stats = cache.stats();
    let sent = stats.rcu_sheaves as usize * stats.tunables.sheaf_capacity;
    assert!(0 < sent && sent < values, "a part was sent: {stats:?}");
    refused(move || drop(cache));
    drop(section);
    domain.barrier();
    assert_eq!(DROPPED.load(Ordering::Relaxed), values);
}
