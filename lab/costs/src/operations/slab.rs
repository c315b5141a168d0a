//! Slab caches: objects with one owner.

use crate::processes::{leak, of_objects};
use crate::{Operation, Scene, Sharing};
use quietline_slab::{Cache, Slot};
use quietline_sync::SpinLock;

/// Object of 192 bytes, as in the benchmarks.
pub(super) type Object = [u64; 24];

/// Objects that a flood allocates: more than the sheaves of a CPU hold.
const FLOOD: usize = 1000;

pub(super) fn operations() -> Vec<Operation> {
    let of = |name, about, scene| Operation::new("slab", name, about, scene);
    vec![
        of("slab-alloc-free", "Cache::alloc and drop of an object of 192 bytes", pair),
        of("slab-alloc-with", "Cache::alloc_with and drop of an object of 192 bytes", pair_with),
        of("slab-bulk-8", "alloc_bulk and free_bulk of 8 objects", bulk::<8>),
        of("slab-bulk-32", "alloc_bulk and free_bulk of 32 objects", bulk::<32>),
        of("slab-bulk-250", "alloc_bulk and free_bulk of 250 objects", bulk::<250>).repeats(250),
        of("slab-remote-free", "alloc; drop of the object of a CPU before it", remote_free),
        of("slab-burst-200", "200 objects allocated, then freed", burst::<200>).repeats(200),
        of(
            "slab-flood-1000",
            "1,000 objects allocated, then freed: more than a CPU's sheaves hold",
            burst::<FLOOD>,
        )
        .repeats(FLOOD),
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

fn pair_with(sharing: Sharing) -> Scene {
    of_objects(sharing, cache, |cache, _| {
        Box::new(move || assert_eq!(cache.alloc_with(|| [7; 24]).expect("an object")[0], 7))
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

fn burst<const N: usize>(sharing: Sharing) -> Scene {
    of_objects(sharing, cache, |cache, _| {
        Box::new(move || {
            let mut slots = [const { None }; N];
            for slot in &mut slots {
                *slot = Some(cache.alloc([7; 24]).expect("an object"));
            }
            let freed = slots.iter_mut().filter_map(Option::take).map(drop).count();
            assert_eq!(freed, N);
        })
    })
}

/// Two CPUs exchange objects through a locked slot: each frees what the other has allocated. A CPU
/// without a neighbour frees its own last object.
fn remote_free(sharing: Sharing) -> Scene {
    /// Exchange slots of pairs of CPUs, with a cache for all.
    struct Exchange {
        cache: &'static Cache<Object>,
        slots: [SpinLock<Option<Slot<'static, Object>>>; 64],
    }
    let create =
        || Exchange { cache: leak(cache()), slots: core::array::from_fn(|_| SpinLock::new(None)) };
    of_objects(sharing, create, |exchange, cpu| {
        Box::new(move || {
            let new = exchange.cache.alloc([7; 24]).expect("an object");
            let old = exchange.slots[cpu / 2 % 64].with(|slot| slot.replace(new));
            assert!(old.is_none_or(|object| object[0] == 7));
        })
    })
}
