//! Property 8: memory stays what it is while a reader may look at it.
#![cfg(not(loom))]

use quietline_platform::pages;
use quietline_slab::{Hook, Options, RawCache, Tunables, Typesafe, TypesafeCache};
use quietline_sync::rcu::Domain;
use std::collections::BTreeMap;
use std::ptr::{self, NonNull};
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU32, AtomicU64, AtomicUsize, Ordering::*};
use std::thread;

const ALIVE: u64 = 0x6c61_6e64_7065_6f70;
const ENDED: u64 = 0xdead_dead_dead_dead;

static CONSTRUCTED: AtomicUsize = AtomicUsize::new(0);
static DROPPED: AtomicUsize = AtomicUsize::new(0);

/// An object that knows whether it is one. `N` tells types apart.
struct Object<const N: u64> {
    magic: AtomicU64,
    /// Set at construction, changed by no user: survives every life.
    serial: u64,
    lives: AtomicU32,
    /// The allocator's, while the object is free.
    link: AtomicU32,
    padding: [u64; 12],
}

// SAFETY: nobody reads `link`.
unsafe impl<const N: u64> Typesafe for Object<N> {
    const LINK_OFFSET: Option<usize> = Some(std::mem::offset_of!(Self, link));

    fn construct() -> Self {
        let serial = CONSTRUCTED.fetch_add(1, Relaxed) as u64;
        Self {
            magic: AtomicU64::new(ALIVE ^ N),
            serial,
            lives: AtomicU32::new(0),
            link: AtomicU32::new(0),
            padding: [serial; 12],
        }
    }
}

impl<const N: u64> Object<N> {
    fn check(&self) {
        assert_eq!(self.magic.load(Relaxed), ALIVE ^ N, "memory of another type, or ended");
        assert_eq!(self.padding, [self.serial; 12]);
    }
}

impl<const N: u64> Drop for Object<N> {
    fn drop(&mut self) {
        self.check();
        self.magic.store(ENDED, Relaxed);
        DROPPED.fetch_add(1, Relaxed);
    }
}

fn domain() -> &'static Domain {
    Domain::leaked().unwrap()
}

/// A constructor runs once for each object, its fields survive reuse, a destructor once.
#[test]
fn constructed_once() {
    quietline_testing::isolated!();
    // Objects in the sheaves of a CPU that the thread has left are not allocated again.
    #[cfg(not(miri))]
    crate::support::pin(crate::support::allowed_cpus()[0]);
    let (made, dropped) = (CONSTRUCTED.load(Relaxed), DROPPED.load(Relaxed));
    let domain = domain();
    let cache = TypesafeCache::<Object<1>>::new("once", domain).unwrap();
    let mut most = 0;
    for round in 0..100u32 {
        let objects: Vec<_> = (0..100 + round as usize).map(|_| cache.alloc().unwrap()).collect();
        most = most.max(objects.len());
        for object in &objects {
            // SAFETY: allocated above.
            let object = unsafe { object.as_ref() };
            object.check();
            object.lives.fetch_add(1, Relaxed);
        }
        // SAFETY: as above.
        objects.into_iter().for_each(|object| unsafe { cache.free(object) });
    }
    let all = CONSTRUCTED.load(Relaxed) - made;
    let stats = cache.stats();
    assert!(all >= most && all <= stats.slabs * stats.objects_per_slab, "{all} made, {stats:?}");
    assert_eq!(stats.object_size, size_of::<Object<1>>(), "the link costs no room");
    // Their lives add up: nothing was reset.
    let again: Vec<_> = (0..all).map(|_| cache.alloc().unwrap()).collect();
    // SAFETY: allocated above.
    let lives: u32 =
        again.iter().map(|object| unsafe { object.as_ref() }.lives.load(Relaxed)).sum();
    assert_eq!(lives, (0..100).map(|round| 100 + round).sum::<u32>());
    // SAFETY: as above.
    again.into_iter().for_each(|object| unsafe { cache.free(object) });
    drop(cache);
    domain.barrier();
    assert_eq!(CONSTRUCTED.load(Relaxed) - made, DROPPED.load(Relaxed) - dropped);
    assert!(DROPPED.load(Relaxed) > dropped);
}

/// Objects that go back to their slabs, not only to a sheaf, come out as they went in.
#[test]
fn slabs_keep_state() {
    quietline_testing::isolated!();
    let domain = domain();
    let cache = TypesafeCache::<Object<5>>::new("state", domain).unwrap();
    let objects: Vec<_> = (0..1000).map(|_| cache.alloc().unwrap()).collect();
    let mut known = BTreeMap::new();
    for (i, object) in objects.iter().enumerate() {
        // SAFETY: allocated above.
        let this = unsafe { object.as_ref() };
        this.lives.store(i as u32 + 1, Relaxed);
        known.insert(*object, (this.serial, i as u32 + 1));
    }
    let (kept, freed): (Vec<_>, Vec<_>) = objects.iter().enumerate().partition(|(i, _)| i % 2 == 0);
    // SAFETY: allocated above.
    freed.into_iter().for_each(|(_, object)| unsafe { cache.free(*object) });
    cache.shrink();
    assert_eq!(cache.stats().cached, 0, "every free object is in its slab");
    let again: Vec<_> = (0..500).map(|_| cache.alloc().unwrap()).collect();
    let mut seen = 0;
    for object in &again {
        // SAFETY: allocated above.
        let this = unsafe { object.as_ref() };
        this.check();
        if let Some(state) = known.get(object) {
            assert_eq!(*state, (this.serial, this.lives.load(Relaxed)));
            seen += 1;
        }
    }
    assert!(seen > 400, "only {seen} of 500 had been in use before");
    let all = kept.into_iter().map(|(_, object)| *object).chain(again);
    // SAFETY: allocated above.
    all.for_each(|object| unsafe { cache.free(object) });
    drop(cache);
    domain.barrier();
}

/// While a reader is in its section, discarded memory is neither given back nor anybody else's, though the cache is
/// gone; then it is given back.
#[test]
fn no_page_reuse_before_a_grace_period() {
    quietline_testing::isolated!();
    let before = pages::usage().used;
    let domain = domain();
    let cache = TypesafeCache::<Object<2>>::new("grace", domain).unwrap();
    let objects: Vec<_> = (0..2000).map(|_| cache.alloc().unwrap()).collect();
    let block = cache.stats().slab_size;
    let slabs = cache.stats().slabs;
    let guard = domain.read();
    // SAFETY: allocated above; the reader looks on by its section.
    objects.iter().for_each(|object| unsafe { cache.free(*object) });
    cache.shrink();
    assert_eq!(cache.stats().slabs, 0);
    let look = || {
        // SAFETY: the claim under test: the section began before they were freed.
        objects.iter().for_each(|object| unsafe { object.as_ref() }.check());
    };
    look();
    for _ in 0..50 {
        domain.poll();
    }
    drop(cache);
    assert_eq!(pages::usage().used, before + slabs * block, "nothing was given back");
    let mut blocks: Vec<_> =
        objects.iter().map(|object| object.addr().get() & !(block - 1)).collect();
    blocks.sort_unstable();
    blocks.dedup();
    let other = RawCache::new(Options::new("other", 100, 4)).unwrap();
    let others: Vec<_> = (0..5000).map(|_| other.alloc().unwrap()).collect();
    for object in &others {
        crate::support::fill(*object, 100, 0xaa);
        assert!(blocks.binary_search(&(object.addr().get() & !(block - 1))).is_err());
    }
    look();
    // SAFETY: allocated above.
    others.into_iter().for_each(|object| unsafe { other.free(object) });
    drop(other);
    drop(guard);
    domain.barrier();
    assert_eq!(pages::usage().used, before);
}

/// Readers that hold no reference look at objects which are freed, reused, discarded and given back under their eyes:
/// what they see is of the type, in this life or another, always.
#[test]
fn readers_beside_reuse() {
    quietline_testing::isolated!();
    const PLACES: usize = 64;
    let domain = domain();
    let cache = TypesafeCache::<Object<3>>::new("readers", domain).unwrap();
    let neighbour = TypesafeCache::<Object<4>>::new("neighbour", domain).unwrap();
    let places: [AtomicPtr<Object<3>>; PLACES] =
        [const { AtomicPtr::new(ptr::null_mut()) }; PLACES];
    let stop = AtomicBool::new(false);
    let seen = AtomicUsize::new(0);
    thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                while !stop.load(Relaxed) {
                    let _guard = domain.read();
                    for place in &places {
                        // SAFETY: the claim under test.
                        if let Some(object) = unsafe { place.load(Acquire).as_ref() } {
                            object.check();
                            seen.fetch_add(1, Relaxed);
                        }
                    }
                }
            });
        }
        scope.spawn(|| {
            for round in 0.. {
                // Until the readers have had their share too.
                if round >= 1500 && seen.load(Relaxed) > 100_000 {
                    break;
                }
                for place in &places {
                    let old = place.swap(cache.alloc().unwrap().as_ptr(), AcqRel);
                    // SAFETY: taken out of its place, so freed once; readers look on by their sections.
                    NonNull::new(old).into_iter().for_each(|old| unsafe { cache.free(old) });
                }
                if round % 5 == 0 {
                    for place in &places {
                        let old = place.swap(ptr::null_mut(), AcqRel);
                        // SAFETY: as above.
                        NonNull::new(old).into_iter().for_each(|old| unsafe { cache.free(old) });
                    }
                    cache.shrink();
                    // The same blocks for another type, once they may be.
                    let objects: Vec<_> = (0..200).map(|_| neighbour.alloc().unwrap()).collect();
                    for object in objects {
                        // SAFETY: allocated above.
                        unsafe {
                            object.as_ref().check();
                            neighbour.free(object);
                        }
                    }
                    neighbour.shrink();
                }
            }
            stop.store(true, Relaxed);
        });
    });
    for place in places {
        // SAFETY: as above; the readers are gone.
        NonNull::new(place.into_inner())
            .into_iter()
            .for_each(|object| unsafe { cache.free(object) });
    }
    assert_eq!(cache.stats().active, 0);
    drop((cache, neighbour));
    domain.barrier();
}

/// A callback that frees into the very cache whose discards ran it, and a destructor that uses its cache: nothing is
/// locked meanwhile.
#[test]
fn hooks_may_use_the_cache() {
    quietline_testing::isolated!();
    static CACHE: AtomicPtr<RawCache> = AtomicPtr::new(ptr::null_mut());
    static ENDS: AtomicUsize = AtomicUsize::new(0);
    unsafe fn use_cache(_: NonNull<u8>) {
        // SAFETY: set before the first object is made, and alive until the last one has gone.
        let cache = unsafe { &*CACHE.load(Relaxed) };
        if ENDS.fetch_add(1, Relaxed).is_multiple_of(16) {
            let object = cache.alloc().unwrap();
            // SAFETY: allocated above.
            unsafe { cache.free(object) };
        }
    }
    let options = Options {
        dtor: Some(Hook::new(use_cache)),
        min_partial: 0,
        sheaf_capacity: 1,
        ..Options::new("hooks", 512, 8)
    };
    // SAFETY: the destructor does not touch the memory.
    let mut cache = Box::new(unsafe { RawCache::with_hooks(options) }.unwrap());
    CACHE.store(&raw mut *cache, Relaxed);
    for _ in 0..20 {
        let objects: Vec<_> = (0..200).map(|_| cache.alloc().unwrap()).collect();
        // SAFETY: allocated above.
        objects.into_iter().for_each(|object| unsafe { cache.free(object) });
        cache.shrink();
    }
    assert!(ENDS.load(Relaxed) > 1000);
    let domain = domain();
    let objects: Vec<usize> = (0..200).map(|_| cache.alloc().unwrap().addr().get()).collect();
    let shared: &'static RawCache = Box::leak(cache);
    // SAFETY: allocated above, each freed once.
    let free =
        move |object: usize| unsafe { shared.free(NonNull::new(object as *mut u8).unwrap()) };
    objects.into_iter().for_each(|object| domain.defer(move || free(object)).unwrap());
    domain.barrier();
    assert_eq!(shared.stats().active, 0);
}

/// A constructor that panics loses the objects that were taken with its own. The others of their
/// slab are allocated later.
#[test]
fn a_panic_in_a_constructor_loses_one_batch() {
    quietline_testing::isolated!();
    static MADE: AtomicUsize = AtomicUsize::new(0);

    struct Brittle(AtomicU64);

    // SAFETY: there is no LINK_OFFSET.
    unsafe impl Typesafe for Brittle {
        fn construct() -> Self {
            assert_ne!(MADE.fetch_add(1, Relaxed), 1, "expected");
            Self(AtomicU64::new(7))
        }
    }

    // One CPU's sheaf has what a batch left over.
    #[cfg(not(miri))]
    crate::support::pin(crate::support::allowed_cpus()[0]);
    let batch = 4;
    let cache = TypesafeCache::<Brittle>::new("brittle", domain()).unwrap();
    cache.set_tunables(Tunables { cpu_partial: batch, ..cache.tunables() }).unwrap();
    let alloc = std::panic::AssertUnwindSafe(|| cache.alloc());
    assert!(std::panic::catch_unwind(alloc).is_err(), "the second construction panics");
    let places = cache.stats().places;
    assert!(places > 2 * batch, "{:?}", cache.stats());
    let objects: Vec<_> = (0..places - batch).map(|_| cache.alloc().unwrap()).collect();
    assert_eq!(cache.stats().slabs, 1, "{:?}", cache.stats());
    for object in objects {
        // SAFETY: allocated above.
        assert_eq!(unsafe { object.as_ref() }.0.load(Relaxed), 7);
        // SAFETY: allocated above, and freed once.
        unsafe { cache.free(object) };
    }
}

/// A destructor that panics ends there: the thread that happens to run it does not unwind, the
/// other objects of the slab end too, and the memory is given back.
#[test]
fn a_panic_in_a_drop_ends_there() {
    quietline_testing::isolated!();
    static MADE: AtomicUsize = AtomicUsize::new(0);
    static ENDED: AtomicUsize = AtomicUsize::new(0);

    struct Fragile(AtomicU64);

    // SAFETY: there is no LINK_OFFSET.
    unsafe impl Typesafe for Fragile {
        fn construct() -> Self {
            Self(AtomicU64::new(MADE.fetch_add(1, Relaxed) as u64))
        }
    }

    impl Drop for Fragile {
        fn drop(&mut self) {
            ENDED.fetch_add(1, Relaxed);
            assert_ne!(*self.0.get_mut() % 3, 0, "expected");
        }
    }

    std::panic::set_hook(Box::new(|info| {
        if !info.to_string().contains("expected") {
            eprintln!("{info}");
        }
    }));
    let domain = domain();
    let cache = TypesafeCache::<Fragile>::new("fragile", domain).unwrap();
    let objects: Vec<_> = (0..1000).map(|_| cache.alloc().unwrap()).collect();
    for object in objects {
        // SAFETY: allocated above, and freed once.
        unsafe { cache.free(object) };
    }
    let before = pages::usage().used;
    let unwound = |f: &dyn Fn()| std::panic::catch_unwind(std::panic::AssertUnwindSafe(f)).is_err();
    assert!(!unwound(&|| cache.shrink()), "shrink unwinds");
    assert!(!unwound(&|| domain.barrier()), "an unrelated wait unwinds");
    assert_eq!(ENDED.load(Relaxed), MADE.load(Relaxed));
    assert!(MADE.load(Relaxed) >= 1000);
    assert!(pages::usage().used < before);
    assert_eq!(cache.stats().slabs, 0);
}
