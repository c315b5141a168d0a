//! Property 10: a bulk free that goes to slabs executes one locked instruction for each slab whose objects are in it, and one for
//! the statistic; none for each object.
#![cfg(all(target_arch = "x86_64", not(loom)))]

use quietline_count::{Error, count};
use quietline_platform::percpu::{Body, active};
use quietline_slab::{Entry, GATHER, Options, RawCache};

const SLABS: usize = 3;
const EACH: usize = 10;
/// Arrays prepared: more than the counter calls for.
const ARRAYS: usize = 5;

/// Locked instructions of freeing objects of three slabs that lie in the array as `order` says, by a scan or gathered.
fn locked(look_ahead: usize, order: impl Fn(usize) -> usize) -> Option<u64> {
    let options = Options {
        sheaves: false,
        look_ahead,
        min_partial: usize::MAX,
        ..Options::new("count", 64, 8)
    };
    let cache = RawCache::new(options).unwrap();
    let per_slab = cache.layout().objects;
    let mut all: Vec<Entry> = vec![None; SLABS * per_slab];
    cache.alloc_bulk(&mut all).unwrap();
    // The first free of a full slab, and the last one of all, change lists under a lock: those are done, and not to come.
    for slab in 0..SLABS {
        // SAFETY: allocated above.
        unsafe { cache.free(all[slab * per_slab].take().unwrap()) };
    }
    let mut arrays: Vec<Vec<Entry>> = (0..ARRAYS)
        .map(|array| {
            let object = |i: usize| (i % SLABS) * per_slab + 1 + array * EACH + i / SLABS;
            (0..SLABS * EACH).map(|i| all[object(order(i))].take()).collect()
        })
        .collect();
    let free = || {
        let mut array = arrays.pop().expect("an array for each call");
        // SAFETY: allocated above, each once.
        unsafe { cache.free_bulk(&mut array) };
        assert!(array.iter().all(Option::is_none));
    };
    match count(free) {
        Ok(counts) => Some(counts.locked),
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
fn one_for_each_slab() {
    quietline_testing::isolated!();
    if active() != Body::Rseq {
        eprintln!("not checked: per-CPU operations use the fallback");
        return;
    }
    let side_by_side = |i: usize| i / EACH + (i % EACH) * SLABS;
    let in_turn = |i: usize| i;
    for (name, look_ahead, locked) in [
        ("look-ahead, side by side", 3, locked(3, side_by_side)),
        ("simple, side by side", 1, locked(1, side_by_side)),
        ("look-ahead, in turn", 3, locked(3, in_turn)),
        ("gathered, in turn", GATHER, locked(GATHER, in_turn)),
    ] {
        let Some(locked) = locked else { return };
        println!(
            "{name} (look-ahead {look_ahead}): {locked} locked instructions for {} objects",
            SLABS * EACH
        );
        // In turn, each scan stops after two objects of one slab, and finds more groups.
        let groups = if name == "look-ahead, in turn" { SLABS * EACH } else { SLABS };
        assert!(locked <= groups as u64 + 1, "{name}: {locked}");
    }
}
