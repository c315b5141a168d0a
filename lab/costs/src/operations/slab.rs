//! Slab caches.

use super::row;
use crate::processes::of_objects;
use crate::{Operation, Scene, Sharing};
use quietline_slab::Cache;

/// Object of 192 bytes, as in the benchmarks.
type Object = [u64; 24];

pub(crate) fn operations() -> Vec<Operation> {
    let of = |name, about, scene| row("slab", name, about, scene);
    vec![
        of("slab-alloc-free", "Cache::alloc and drop of an object of 192 bytes", pair),
        of("slab-bulk-32", "alloc_bulk and free_bulk of 32 objects", bulk::<32>),
    ]
}

fn cache() -> Cache<Object> {
    Cache::new("costs").expect("memory for a cache")
}

fn pair(sharing: Sharing) -> Scene {
    of_objects(sharing, cache, |cache, _| {
        Box::new(move || assert_eq!(cache.alloc([7; 24]).expect("an object")[0], 7))
    })
}

fn bulk<const N: usize>(sharing: Sharing) -> Scene {
    of_objects(sharing, cache, |cache, _| {
        Box::new(move || {
            let slots = cache.alloc_bulk::<N>(|_| [7; 24]).expect("the objects");
            assert_eq!(slots[N - 1][0], 7);
            cache.free_bulk(slots);
        })
    })
}
