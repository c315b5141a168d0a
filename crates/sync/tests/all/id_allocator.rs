//! [`IdAllocator`]: one thread, then many.
#![cfg(not(loom))]

use std::thread;

use quietline_platform::cpu;
use quietline_sync::IdAllocator;

const BATCH: usize = 1024;

/// Property 2: never 0, also where the numbering wraps around, and no repetition there.
#[test]
fn wraps_around_without_zero() {
    const FIRST: [u32; 9] = [
        u32::MAX,
        u32::MAX - 1,
        u32::MAX - 1023,
        u32::MAX - 1024,
        u32::MAX - 5000,
        0,
        1,
        1023,
        1024,
    ];
    for first in FIRST.into_iter().step_by(if cfg!(miri) { 5 } else { 1 }) {
        let ids = IdAllocator::starting_at(first).unwrap();
        let mut all: Vec<_> = (0..4 * BATCH).map(|_| ids.next()).collect();
        assert!(!all.contains(&0), "from {first}");
        assert!(all.contains(&first.max(1)), "from {first}");
        all.sort_unstable();
        all.dedup();
        assert_eq!(all.len(), 4 * BATCH, "from {first}");
    }
}

/// Debug builds begin near the end, so that every test of a layer above crosses the wrap-around.
#[test]
fn begins_where_it_says() {
    let first = IdAllocator::new().unwrap().next();
    assert_eq!(first, if cfg!(debug_assertions) { 0u32.wrapping_sub(4 * BATCH as u32) } else { 1 });
}

/// Property 2: unique across threads and CPUs, never 0, and at most 1,023 per CPU (and one batch left over) not handed
/// out: the ids taken lie in an interval hardly longer than their number.
#[test]
fn stress_unique_and_hardly_any_waste() {
    const THREADS: usize = 4;
    const EACH: usize = 100_000;
    let ids = IdAllocator::starting_at(0u32.wrapping_sub(200_000)).unwrap();
    let mut all: Vec<u32> = thread::scope(|scope| {
        let takers: Vec<_> = (0..THREADS)
            .map(|_| {
                let take = || {
                    (0..EACH)
                        .map(|n| {
                            if n % 5000 == 0 {
                                thread::yield_now();
                            }
                            ids.next().wrapping_add(200_000)
                        })
                        .collect::<Vec<_>>()
                };
                scope.spawn(take)
            })
            .collect();
        takers.into_iter().flat_map(|taker| taker.join().unwrap()).collect()
    });
    assert!(!all.contains(&200_000), "0 is not an id");
    all.sort_unstable();
    let highest = *all.last().unwrap() as usize;
    all.dedup();
    assert_eq!(all.len(), THREADS * EACH);
    let waste = highest + 1 - all.len();
    assert!(waste <= (BATCH - 1) * (cpu::nr_cpus() + 1) + 1, "{waste} ids wasted");
}
