//! The memory of a cache's per-CPU words: only CPUs that use the cache take any.
#![cfg(not(any(loom, quietline_sim)))]

use quietline_platform::cpu;
use quietline_slab::Cache;

/// CPUs that the machine may get; it has a few of them.
const POSSIBLE: usize = 1024;

/// Returns the pages of anonymous memory that are resident.
fn resident_pages() -> usize {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|line| line.starts_with("RssAnon:")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse::<usize>().unwrap() / 4
}

#[test]
fn cpus_that_do_not_use_a_cache_take_no_memory() {
    quietline_testing::isolated!();
    cpu::pretend_possible(POSSIBLE);
    let before = resident_pages();
    let most = before + POSSIBLE / 2;
    let check = |what: &str| {
        let now = resident_pages();
        assert!(now <= most, "{what}: {before} to {now} pages, of {POSSIBLE} CPUs");
    };
    for _ in 0..3 {
        let caches: Vec<Cache<u64>> = (0..20).map(|_| Cache::new("percpu").unwrap()).collect();
        check("made");
        for cache in &caches {
            let objects: Vec<_> = (0..100).map(|n| cache.alloc(n).unwrap()).collect();
            drop(objects);
        }
        check("used");
        for cache in &caches {
            assert_eq!(cache.stats().active, 0);
            cache.shrink();
        }
        check("asked and shrunk");
        drop(caches);
        check("dropped");
    }
}
