//! The primitives and the slab caches.

use crate::operation::{Operation, Scene};
use quietline_slab::Cache;
use quietline_sync::rcu::Domain;
use quietline_sync::{Counter, FileRef, IdAllocator, Lockref};
use std::sync::Arc;

/// A line and its neighbour: what an object that nobody else touches should have to itself.
#[repr(align(128))]
struct Apart<T>(T);

pub(crate) fn operations() -> Vec<Operation> {
    let of = |name, says, allowed, scene| Operation { name, says, scene, allowed: Some(allowed) };
    vec![
        of("slab-pair", "alloc and free of an object of 192 bytes", 0.0, |_| slab_pair()),
        of("slab-bulk", "alloc_bulk and free_bulk of 32 objects", 0.0, |_| slab_bulk()),
        // Each sheaf that comes from the barn, and each that goes there, meets the barn's lock.
        of("slab-burst", "200 objects allocated, then freed: within what a CPU's sheaves hold", 0.0, |_| {
            slab_burst()
        }),
        of("counter", "Counter::inc and dec", 0.0, |_| counter_pair()),
        // A fold for each batch of 32 to 256.
        of("counter-up", "Counter::inc for ever: a fold once in a batch", 0.2, |_| counter_up()),
        // Once in 1,024, the pool's line.
        of("ids", "IdAllocator::next", 2.0 / 1024.0, |_| ids()),
        of("rcu-read", "an empty read section", 0.0, |_| rcu_read()),
        of("lockref", "get and put of a Lockref of the CPU's own", 0.0, |_| lockref_own()),
        of("file-ref", "get and put of a FileRef of the CPU's own", 0.0, |_| file_ref_own()),
    ]
}

fn slab_pair() -> Scene {
    let cache = Arc::new(Cache::<[u64; 24]>::new("lines-192").expect("a cache"));
    Box::new(move |_| {
        let cache = Arc::clone(&cache);
        Box::new(move || drop(cache.alloc([7; 24]).expect("an object")))
    })
}

fn slab_bulk() -> Scene {
    let cache = Arc::new(Cache::<[u64; 24]>::new("lines-bulk-192").expect("a cache"));
    Box::new(move |_| {
        let cache = Arc::clone(&cache);
        Box::new(move || {
            let slots = cache.alloc_bulk::<32>(|_| [7; 24]).expect("32 objects");
            cache.free_bulk(slots);
        })
    })
}

fn slab_burst() -> Scene {
    let cache = Arc::new(Cache::<[u64; 24]>::new("lines-burst-192").expect("a cache"));
    Box::new(move |_| {
        let cache = Arc::clone(&cache);
        Box::new(move || {
            let objects: Vec<_> = (0..200).map(|_| cache.alloc([7; 24]).expect("an object")).collect();
            drop(objects);
        })
    })
}

fn counter_pair() -> Scene {
    let counter = Arc::new(Counter::new().expect("a counter"));
    Box::new(move |_| {
        let counter = Arc::clone(&counter);
        Box::new(move || {
            counter.inc();
            counter.dec();
        })
    })
}

fn counter_up() -> Scene {
    let counter = Arc::new(Counter::new().expect("a counter"));
    Box::new(move |_| {
        let counter = Arc::clone(&counter);
        Box::new(move || counter.inc())
    })
}

fn ids() -> Scene {
    let ids = Arc::new(IdAllocator::new().expect("an allocator"));
    Box::new(move |_| {
        let ids = Arc::clone(&ids);
        Box::new(move || assert_ne!(ids.next(), 0))
    })
}

fn rcu_read() -> Scene {
    let domain: Arc<Box<Domain>> = Arc::new(Domain::new().expect("a domain"));
    Box::new(move |_| {
        let domain = Arc::clone(&domain);
        Box::new(move || drop(domain.read()))
    })
}

fn lockref_own() -> Scene {
    Box::new(|_| {
        let lockref = Box::new(Apart(Lockref::new(1)));
        Box::new(move || {
            lockref.0.get();
            assert_eq!(lockref.0.put_return(), Some(1));
        })
    })
}

fn file_ref_own() -> Scene {
    Box::new(|_| {
        let count = Box::new(Apart(FileRef::dead()));
        count.0.init(1);
        Box::new(move || {
            assert!(count.0.get());
            assert!(!count.0.put());
        })
    })
}
