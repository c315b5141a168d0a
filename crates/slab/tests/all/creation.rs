//! Making a cache fails cleanly. Alone in its process: it looks at the address space.
#![cfg(not(loom))]

use crate::support::each_fault;
use quietline_platform::{fault, pages};
use quietline_slab::{CacheError, Options, RawCache};

/// Makes a cache with each of its allocations failing in turn; how many there are.
fn walk() -> u64 {
    each_fault(|armed| {
        let made = RawCache::new(Options::new("creation", 64, 8));
        if armed && !fault::armed() {
            assert!(matches!(made, Err(CacheError::Alloc(_))));
        } else {
            assert!(made.is_ok());
        }
    })
}

fn mapped_pages() -> usize {
    let statm = std::fs::read_to_string("/proc/self/statm").unwrap();
    statm.split(' ').next().unwrap().parse().unwrap()
}

/// Nothing is left behind, whichever allocation fails: not in the heap, not in the per-CPU area, not in the registry.
#[test]
fn creation_fails_cleanly() {
    quietline_testing::isolated!();
    let faults = walk();
    assert!(faults >= 2, "the box, the per-CPU words");
    (0..200).for_each(|_| assert_eq!(walk(), faults));
    let before = mapped_pages();
    (0..20_000).for_each(|_| assert_eq!(walk(), faults));
    let grown = mapped_pages().saturating_sub(before);
    assert!(grown < 64, "address space grew by {grown} pages");
    assert_eq!(pages::usage().used, 0);
}
