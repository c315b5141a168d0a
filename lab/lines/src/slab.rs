//! The slab caches.

use crate::operation::{Allowance, Operation, Period, Scene};
use quietline_slab::{Cache, RcuCache};
use quietline_sync::rcu::Domain;
use std::sync::Arc;

/// 192 bytes, as in the benches.
type Object = [u64; 24];

/// Objects of that size in a sheaf: 64 KiB of them.
const SHEAF: f64 = 341.0;
/// Lines of a sheaf: so many pointers, and its head.
const SHEAF_LINES: f64 = 43.0;
/// Lines of the cache and of the domain that a sheaf on its way through a grace period costs: who sends it, counts it, begins
/// or ends the grace period, and runs it.
pub(crate) const RCU_LINES: f64 = 13.0;

pub(crate) fn operations() -> Vec<Operation> {
    let quiet = |name, says, scene: fn() -> Scene| {
        Operation::new(name, says, Allowance::Never, move |_| scene())
    };
    // Hundreds of objects in an operation: some of these are enough.
    let many = |name, says, scene| Operation { period: Period::Short, ..quiet(name, says, scene) };
    vec![
        quiet("slab-pair", "alloc and free of an object of 192 bytes", pair),
        quiet("slab-bulk-8", "alloc_bulk and free_bulk of 8 objects", bulk::<8>),
        quiet("slab-bulk", "alloc_bulk and free_bulk of 32 objects", bulk::<32>),
        many("slab-bulk-250", "alloc_bulk and free_bulk of 250 objects", bulk::<250>),
        many("slab-random", "alloc_bulk of 250 objects, freed one by one in random order", random),
        many(
            "slab-burst",
            "200 objects allocated, then freed: within what a CPU's sheaves hold",
            || burst(200),
        ),
        Operation::new(
            "slab-flood",
            "1,000 objects allocated, then freed: more than a CPU's two sheaves hold",
            Allowance::Batch {
                lines: 1.0 + 2.0 * SHEAF_LINES,
                ops: 1.0,
                says: "the barn's, and 43 each of a full and of an empty sheaf, for 1,000 objects",
            },
            |_| burst(1000),
        ),
        Operation {
            period: Period::Graces,
            ..Operation::new(
                "slab-free-rcu",
                "an object allocated, and freed after a grace period",
                Allowance::Batch {
                    lines: RCU_LINES,
                    ops: SHEAF,
                    says: "13 of cache and domain, once in 341: the sheaf itself comes home",
                },
                |_| free_rcu(),
            )
        },
    ]
}

fn cache(name: &'static str) -> Arc<Cache<Object>> {
    Arc::new(Cache::new(name).expect("a cache"))
}

fn pair() -> Scene {
    let cache = cache("lines-pair");
    Box::new(move |_| {
        let cache = Arc::clone(&cache);
        Box::new(move || drop(cache.alloc([7; 24]).expect("an object")))
    })
}

fn bulk<const N: usize>() -> Scene {
    let cache = cache("lines-bulk");
    Box::new(move |_| {
        let cache = Arc::clone(&cache);
        Box::new(move || {
            let slots = cache.alloc_bulk::<N>(|_| [7; 24]).expect("memory for the objects");
            cache.free_bulk(slots);
        })
    })
}

fn random() -> Scene {
    const N: usize = 250;
    let cache = cache("lines-random");
    // 97 and 250 have no common divisor: each place once, none beside the one before.
    Box::new(move |_| {
        let cache = Arc::clone(&cache);
        Box::new(move || {
            let mut slots = cache.alloc_bulk::<N>(|_| [7; 24]).expect("250 objects").map(Some);
            let freed = (0..N).filter_map(|i| slots[i * 97 % N].take()).map(drop).count();
            assert_eq!(freed, N);
        })
    })
}

fn burst(objects: usize) -> Scene {
    let cache = cache("lines-burst");
    Box::new(move |_| {
        let cache = Arc::clone(&cache);
        Box::new(move || {
            let objects: Vec<_> =
                (0..objects).map(|_| cache.alloc([7; 24]).expect("an object")).collect();
            drop(objects);
        })
    })
}

fn free_rcu() -> Scene {
    // Caches name their domain for ever.
    let domain: &'static Domain = Box::leak(Domain::new().expect("a domain"));
    let cache = Arc::new(RcuCache::<Object>::new("lines-rcu", domain).expect("a cache"));
    Box::new(move |_| {
        let cache = Arc::clone(&cache);
        Box::new(move || {
            drop(quietline_slab::Unlinked::from(cache.alloc([7; 24]).expect("an object")))
        })
    })
}
