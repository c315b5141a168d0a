//! The slab caches.

use crate::operation::{Allowance, Operation, Period, Scene};
use quietline_costs::Sharing;
use quietline_slab::Cache;
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
    let of = |name, ledger, allowance| {
        Operation::of_ledger(name, ledger, Sharing::OneProcess, allowance)
    };
    let quiet = |name, ledger| of(name, ledger, Allowance::Never);
    // Hundreds of objects in an operation: some of these are enough.
    let many = |operation| Operation { period: Period::Short, ..operation };
    vec![
        quiet("slab-pair", "slab-alloc-free"),
        quiet("slab-bulk-8", "slab-bulk-8"),
        quiet("slab-bulk", "slab-bulk-32"),
        many(quiet("slab-bulk-250", "slab-bulk-250")),
        many(Operation::new(
            "slab-random",
            "alloc_bulk of 250 objects, freed one by one in random order",
            Allowance::Never,
            |_| random(),
        )),
        many(quiet("slab-burst", "slab-burst-200")),
        of(
            "slab-flood",
            "slab-flood-1000",
            Allowance::Batch {
                lines: 1.0 + 2.0 * SHEAF_LINES,
                ops: 1.0,
                says: "the barn's, and 43 each of a full and of an empty sheaf, for 1,000 objects",
            },
        ),
        Operation {
            period: Period::Graces,
            ..of(
                "slab-free-rcu",
                "slab-rcu-free",
                Allowance::Batch {
                    lines: RCU_LINES,
                    ops: SHEAF,
                    says: "13 of cache and domain, once in 341: the sheaf itself comes home",
                },
            )
        },
    ]
}

fn random() -> Scene {
    const N: usize = 250;
    let cache = Arc::new(Cache::<Object>::new("lines-random").expect("a cache"));
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
