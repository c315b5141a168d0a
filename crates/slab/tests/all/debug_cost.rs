//! Checks that are off cost nothing: the hit path executes what it executes in a cache that never had any.
#![cfg(all(target_arch = "x86_64", not(loom)))]

use quietline_count::{Counts, Error, count};
use quietline_platform::percpu::{Body, active};
use quietline_slab::{Debug, Options, RawCache};

/// Counts one pair of operations on a cache whose sheaf is warm; none, said aloud, where that cannot be.
fn pair(cache: &RawCache) -> Option<Counts> {
    if active() != Body::Rseq {
        eprintln!("not checked: per-CPU operations use the fallback");
        return None;
    }
    let pair = || {
        let object = cache.alloc().unwrap();
        // SAFETY: allocated above.
        unsafe { cache.free(object) };
    };
    (0..100).for_each(|_| pair());
    match count(pair) {
        Ok(counts) => Some(counts),
        Err(Error::Refused(e)) => {
            let required = std::env::var_os("QUIETLINE_REQUIRE_COUNTS").is_some_and(|v| v == "1");
            assert!(!required, "counting is required here, but this system refuses to trace: {e}");
            eprintln!("not checked: this system refuses to trace: {e}");
            None
        }
        Err(e) => panic!("{e}"),
    }
}

#[test]
fn off_is_free() {
    quietline_testing::isolated!();
    let never = RawCache::new(Options::new("never", 64, 8)).unwrap();
    let once = RawCache::new(Options::new("once", 64, 8)).unwrap();
    once.set_debug(Debug::ALL).unwrap();
    let object = once.alloc().unwrap();
    // SAFETY: allocated above.
    unsafe { once.free(object) };
    once.set_debug(Debug::OFF).unwrap();
    if let (Some(never), Some(once)) = (pair(&never), pair(&once)) {
        println!("{} instructions, {} locked", once.instructions, once.locked);
        assert_eq!((never.locked, never.fences, never.syscalls), (0, 0, 0));
        assert_eq!((once.locked, once.fences, once.syscalls), (0, 0, 0));
        assert_eq!(once.instructions, never.instructions);
    }
}
