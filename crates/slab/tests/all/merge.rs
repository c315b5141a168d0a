//! Caches that are alike are one if that is asked for. Tests here take turns: `set_merging` is the whole process's.
#![cfg(not(loom))]

use crate::support::Stop;
use quietline_slab::{
    Cache, Entry, Hook, Merge, Options, RawCache, Tunables, Typesafe, TypesafeCache, each_cache,
    memory_used, set_merging,
};
use quietline_sync::rcu;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

fn options(name: &'static str, size: usize) -> Options {
    Options { merge: Merge::Always, ..Options::new(name, size, 8) }
}

fn cache(name: &'static str, size: usize) -> RawCache {
    RawCache::new(options(name, size)).unwrap()
}

/// Whether two caches are one: what one takes, the other one counts.
fn merged(one: &RawCache, other: &RawCache) -> bool {
    let before = other.stats().active;
    let object = one.alloc().unwrap();
    let after = other.stats().active;
    // SAFETY: allocated above.
    unsafe { one.free(object) };
    assert!(after == before || after == before + 1);
    after > before
}

#[test]
fn caches_that_are_alike_share_slabs_and_sheaves() {
    quietline_testing::isolated!();
    let before = memory_used();
    let (one, other) = (cache("one", 200), cache("other", 200));
    assert!(merged(&one, &other));
    // The same stride, but checks would lay its objects out otherwise.
    let shorter = cache("shorter", 196);
    assert_eq!(shorter.layout(), one.layout());
    assert!(!merged(&one, &shorter));
    drop(shorter);
    let mut count = 0;
    each_cache(|stats| {
        count += 1;
        assert_eq!((&*stats.name, stats.aliases), ("one", 1));
    });
    assert_eq!(count, 1);
    assert_eq!(other.stats(), one.stats());
    // An object of one may be freed by the other, and is what it gets next.
    let object = one.alloc().unwrap();
    let block = memory_used();
    // SAFETY: allocated above; both are handles of the same cache.
    unsafe { other.free(object) };
    let again = other.alloc().unwrap();
    assert_eq!((again, memory_used()), (object, block));
    // SAFETY: as above.
    unsafe { one.free(again) };
    let third = cache("third", 200);
    assert_eq!(one.stats().aliases, 2);
    drop((one, other, third));
    assert_eq!(memory_used(), before);
}

#[test]
fn one_handle_less_leaves_the_others() {
    quietline_testing::isolated!();
    let before = memory_used();
    let (one, other) = (cache("one", 64), cache("other", 64));
    let mut objects: [Entry; 100] = [None; 100];
    one.alloc_bulk(&mut objects).unwrap();
    objects.iter().flatten().for_each(|object| crate::support::fill(*object, 64, 7));
    drop(one);
    let stats = other.stats();
    assert_eq!((&*stats.name, stats.aliases, stats.active), ("one", 0, 100));
    assert!(objects.iter().flatten().all(|object| crate::support::is_filled(*object, 64, 7)));
    let fourth = cache("again", 64);
    assert!(merged(&fourth, &other));
    drop(other);
    // SAFETY: allocated above, from the same cache.
    unsafe { fourth.free_bulk(&mut objects) };
    assert_eq!(fourth.stats().active, 0);
    drop(fourth);
    assert_eq!(memory_used(), before);
}

/// Each of these differs from the first in one thing.
#[test]
fn what_is_not_alike_stays_apart() {
    quietline_testing::isolated!();
    unsafe fn hook(_: NonNull<u8>) {}
    let plain = cache("plain", 64);
    let domain = rcu::global().unwrap();
    let differ = [
        Options { merge: Merge::Never, ..options("never", 64) },
        Options { merge: Merge::Default, ..options("default", 64) },
        options("size", 72),
        Options { align: 128, ..options("align", 64) },
        Options { link_offset: Some(8), ..options("link", 64) },
        Options { min_objects: 200, ..options("objects", 64) },
        Options { min_partial: 1, ..options("partial", 64) },
        Options { cpu_partial: 13, ..options("cpu", 64) },
        Options { sheaf_capacity: 13, ..options("sheaf", 64) },
        Options { look_ahead: 1, ..options("look", 64) },
        Options { sheaves: false, ..options("bare", 64) },
        Options { rcu: Some(domain), ..options("rcu", 64) },
        Options { typesafe: Some(domain), ..options("typesafe", 64) },
        Options { ctor: Some(Hook::new(hook)), ..options("ctor", 64) },
        Options { dtor: Some(Hook::new(hook)), ..options("dtor", 64) },
        Options { release: Some(Hook::new(hook)), ..options("release", 64) },
    ];
    for options in differ {
        // SAFETY: the hook does nothing.
        let [one, other] = [(); 2].map(|()| unsafe { RawCache::with_hooks(options) }.unwrap());
        assert!(!merged(&one, &plain), "{}", options.name);
        let with_itself = matches!(
            &*options.name,
            "size" | "align" | "link" | "objects" | "partial" | "cpu" | "sheaf" | "look" | "rcu"
        );
        assert_eq!(merged(&one, &other), with_itself, "{}", options.name);
    }
    assert!(merged(&plain, &cache("twin", 64)));
}

#[test]
fn the_setting_is_for_those_who_leave_it_open() {
    quietline_testing::isolated!();
    struct Off;
    impl Drop for Off {
        fn drop(&mut self) {
            set_merging(false);
        }
    }
    let _off = Off;
    let open = |name| RawCache::new(Options::new(name, 320, 8)).unwrap();
    let early = open("early");
    assert!(!merged(&early, &open("early too")), "off at first");
    set_merging(true);
    let (one, other) = (open("one"), open("other"));
    assert!(merged(&one, &other));
    let never =
        RawCache::new(Options { merge: Merge::Never, ..Options::new("never", 320, 8) }).unwrap();
    assert!(!merged(&never, &one));
    assert!(!merged(&one, &never));
    set_merging(false);
    assert!(!merged(&open("late"), &one));
}

/// Tunables are those of all handles; a cache that was tuned is alike only to what is asked to be the same.
#[test]
fn tunables_are_shared() {
    quietline_testing::isolated!();
    let (one, other) = (cache("one", 96), cache("other", 96));
    one.set_tunables(Tunables { sheaf_capacity: 20, ..one.tunables() }).unwrap();
    assert_eq!(other.tunables().sheaf_capacity, 20);
    let untuned = cache("untuned", 96);
    assert!(!merged(&untuned, &one));
    let tuned = RawCache::new(Options { sheaf_capacity: 20, ..options("tuned", 96) });
    let tuned = tuned.unwrap();
    assert_eq!(merged(&tuned, &one), tuned.tunables() == one.tunables());
}

/// What merging is for: see docs/adr/0010-merging-is-asked-for.md.
#[test]
fn caches_of_few_objects_take_few_slabs() {
    quietline_testing::isolated!();
    let taken = |merge| {
        let before = memory_used();
        let caches: Vec<_> = (0..20)
            .map(|_| RawCache::new(Options { merge, ..options("few", 192) }).unwrap())
            .collect();
        let objects: Vec<_> =
            (0..10).flat_map(|_| caches.iter().map(|cache| cache.alloc().unwrap())).collect();
        let taken = memory_used() - before;
        for (i, object) in objects.into_iter().enumerate() {
            // SAFETY: allocated above.
            unsafe { caches[i % 20].free(object) };
        }
        drop(caches);
        assert_eq!(memory_used(), before);
        taken
    };
    let (apart, merged) = (taken(Merge::Never), taken(Merge::Always));
    assert!(merged * 5 < apart, "{merged} bytes merged, {apart} apart");
}

#[test]
fn typed_caches_of_different_types() {
    quietline_testing::isolated!();
    let open = |name| options(name, 24);
    let numbers = Cache::<[u64; 3]>::with_options(open("numbers")).unwrap();
    let texts = Cache::<String>::with_options(open("texts")).unwrap();
    let number = numbers.alloc([1, 2, 3]).unwrap();
    let text = texts.alloc("four".repeat(100)).unwrap();
    assert_eq!((numbers.stats().active, texts.stats().active), (2, 2));
    assert_eq!((*number, text.len()), ([1, 2, 3], 400));
    drop((number, text));
    assert_eq!(texts.stats().active, 0);
}

#[test]
fn typesafe_caches_never_merge() {
    quietline_testing::isolated!();
    struct Thing(AtomicUsize);
    // SAFETY: there is no LINK_OFFSET.
    unsafe impl Typesafe for Thing {
        fn construct() -> Self {
            Thing(AtomicUsize::new(5))
        }
    }
    set_merging(true);
    let domain = rcu::global().unwrap();
    let one = TypesafeCache::<Thing>::new("one", domain).unwrap();
    let other = TypesafeCache::<Thing>::new("other", domain).unwrap();
    set_merging(false);
    let thing = one.alloc().unwrap();
    // SAFETY: allocated above.
    assert_eq!(unsafe { thing.as_ref() }.0.load(Ordering::Relaxed), 5);
    assert_eq!((one.stats().active, other.stats().active), (1, 0));
    // SAFETY: as above.
    unsafe { one.free(thing) };
}

/// Handles on one cache, or on several if they come just too late, made and dropped on all sides.
#[test]
fn alike_caches_come_and_go() {
    quietline_testing::isolated!();
    let before = memory_used();
    let stop = AtomicBool::new(false);
    let (made, aliases) = (AtomicUsize::new(0), AtomicUsize::new(0));
    thread::scope(|scope| {
        for byte in 1..4u8 {
            let (stop, made, aliases) = (&stop, &made, &aliases);
            scope.spawn(move || {
                while !stop.load(Ordering::Relaxed) {
                    let mine = cache("alike", 136);
                    let mut objects: [Entry; 40] = [None; 40];
                    mine.alloc_bulk(&mut objects).unwrap();
                    objects
                        .iter()
                        .flatten()
                        .for_each(|object| crate::support::fill(*object, 136, byte));
                    aliases.fetch_add(mine.stats().aliases, Ordering::Relaxed);
                    let second = cache("alike", 136);
                    assert!(
                        objects
                            .iter()
                            .flatten()
                            .all(|object| crate::support::is_filled(*object, 136, byte))
                    );
                    // SAFETY: allocated above. While one handle lives, all that are made are handles on the same cache.
                    unsafe { second.free_bulk(&mut objects) };
                    made.fetch_add(2, Ordering::Relaxed);
                }
            });
        }
        let _stop = Stop(&stop);
        let (start, enough) = (Instant::now(), || {
            made.load(Ordering::Relaxed) > 1000 && aliases.load(Ordering::Relaxed) > 10
        });
        while !enough() && start.elapsed() < Duration::from_secs(60) {
            thread::yield_now();
        }
        each_cache(|stats| assert_eq!(stats.name, "alike"));
    });
    let mut left = 0;
    each_cache(|_| left += 1);
    assert_eq!((left, memory_used()), (0, before));
    assert!(made.load(Ordering::Relaxed) > 1000 && aliases.load(Ordering::Relaxed) > 10);
}
