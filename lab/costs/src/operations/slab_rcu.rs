//! Slab caches: objects that readers find without a reference.

use crate::operations::primitives::run_share;
use crate::operations::slab::Object;
use crate::processes::{leak, of_objects};
use crate::raw::Session;
use crate::{Operation, Scene, Sharing};
use quietline_slab::{Held, Place, RcuCache, TypesafeCache, TypesafePlace, Unlinked};
use quietline_sync::rcu::{self, Domain};

/// Objects that wait for a grace period together.
const SHEAF: usize = 341;

pub(super) fn operations() -> Vec<Operation> {
    let of = |name, about, scene| Operation::new("slab-rcu", name, about, scene);
    vec![
        of("slab-rcu-free", "RcuCache::alloc, and drop as Unlinked: freed by RCU", free),
        of(
            "slab-rcu-free-341",
            "a sheaf's worth of objects allocated and freed by RCU, one by one",
            free_many,
        )
        .repeats(SHEAF),
        of("slab-rcu-load", "Place::load in a read-side critical section", load),
        of("slab-rcu-replace", "Place::replace: the old object is freed by RCU", replace),
        of("slab-typesafe", "Held::new in a TypesafeCache and drop", typesafe),
        of("slab-typesafe-get", "TypesafePlace::get and drop", typesafe_get),
        of("slab-typesafe-read", "TypesafePlace::candidate and read", typesafe_read),
    ]
}

fn domain() -> &'static Domain {
    rcu::global().expect("memory for a domain")
}

fn cache() -> RcuCache<Object> {
    RcuCache::new("costs", domain()).expect("memory for a cache")
}

fn free(sharing: Sharing) -> Scene {
    of_objects(sharing, cache, |cache, _| {
        Box::new(move || {
            let object = Unlinked::from(cache.alloc([7; 24]).expect("an object"));
            assert_eq!(object[0], 7);
            drop(object);
            run_share(cache.domain());
        })
    })
}

fn free_many(sharing: Sharing) -> Scene {
    of_objects(sharing, cache, |cache, _| {
        Box::new(move || {
            for _ in 0..SHEAF {
                let object = Unlinked::from(cache.alloc([7; 24]).expect("an object"));
                assert_eq!(object[0], 7);
            }
            run_share(cache.domain());
        })
    })
}

/// A place with an object in it.
fn place() -> (&'static RcuCache<Object>, Place<'static, Object>) {
    let cache = leak(cache());
    let place = Place::empty(cache);
    drop(place.replace(cache.alloc([7; 24]).expect("an object")));
    (cache, place)
}

fn load(sharing: Sharing) -> Scene {
    of_objects(sharing, place, |shared, _| {
        Box::new(move || {
            let (cache, place) = &*shared;
            let section = cache.domain().read();
            assert_eq!(place.load(&section).expect("an object")[0], 7);
        })
    })
}

fn replace(sharing: Sharing) -> Scene {
    of_objects(sharing, place, |shared, _| {
        Box::new(move || {
            let (cache, place) = &*shared;
            let old = place.replace(cache.alloc([7; 24]).expect("an object"));
            assert_eq!(old.expect("an object")[0], 7);
            run_share(cache.domain());
        })
    })
}

fn typesafe_cache() -> TypesafeCache<Session> {
    TypesafeCache::new("costs", domain()).expect("memory for a cache")
}

fn typesafe(sharing: Sharing) -> Scene {
    of_objects(sharing, typesafe_cache, |cache, _| {
        Box::new(move || drop(Held::new(&cache, |_| ()).expect("an object")))
    })
}

/// A place with a counted object in it.
fn typesafe_place() -> (&'static Domain, TypesafePlace<'static, Session>) {
    let cache = leak(typesafe_cache());
    let place = TypesafePlace::empty(cache);
    drop(place.replace(Held::new(cache, |_| ()).expect("an object")));
    (cache.domain(), place)
}

fn typesafe_get(sharing: Sharing) -> Scene {
    of_objects(sharing, typesafe_place, |shared, _| {
        Box::new(move || {
            let (domain, place) = &*shared;
            let section = domain.read();
            drop(place.get(&section).expect("an object"));
        })
    })
}

fn typesafe_read(sharing: Sharing) -> Scene {
    of_objects(sharing, typesafe_place, |shared, _| {
        Box::new(move || {
            let (domain, place) = &*shared;
            let section = domain.read();
            let candidate = place.candidate(&section).expect("an object");
            assert_eq!(candidate.read(|_| 7), Some(7));
        })
    })
}
