//! Idle memory goes back: by decay, under pressure, above a limit. Tests here take turns: they look at the whole process.
#![cfg(not(loom))]

use crate::support::{Parcel, Stop, stress_time};
use quietline_platform::{fault, pages};
use quietline_slab::{
    Entry, Hook, Options, RawCache, decay, memory_used, set_decay_interval, set_memory_limit,
    shrink_all,
};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

const SHORT: Duration = Duration::from_millis(2);

/// Settings as they are at first, also after a test that failed.
struct Settings;

impl Settings {
    fn decay(interval: Duration) -> Self {
        set_decay_interval(interval);
        Self
    }
}

impl Drop for Settings {
    fn drop(&mut self) {
        set_decay_interval(Duration::from_millis(100));
        set_memory_limit(None);
    }
}

fn cache(size: usize) -> RawCache {
    RawCache::new(Options::new("reclaim", size, 8)).unwrap()
}

/// Allocates and frees so many that sheaves, barn and partial list are full.
fn fill(cache: &RawCache, objects: usize) {
    let mut all: Vec<Entry> = vec![None; objects];
    // Not in one bulk: what is larger than a sheaf goes past the barn.
    for some in all.chunks_mut(8) {
        cache.alloc_bulk(some).unwrap();
    }
    for some in all.chunks_mut(8) {
        // SAFETY: allocated above.
        unsafe { cache.free_bulk(some) };
    }
}

fn pair(cache: &RawCache) {
    let object = cache.alloc().unwrap();
    // SAFETY: allocated above.
    unsafe { cache.free(object) };
}

/// Visits the cache's barn, as much as it takes for a look at the clock.
fn visit_barn(cache: &RawCache) {
    let mut objects: Vec<Entry> = vec![None; 3 * cache.tunables().sheaf_capacity];
    for _ in 0..16 {
        for some in objects.chunks_mut(8) {
            cache.alloc_bulk(some).unwrap();
        }
        for some in objects.chunks_mut(8) {
            // SAFETY: allocated above.
            unsafe { cache.free_bulk(some) };
        }
    }
}

/// A cache that nobody uses gives everything back, step by step, while another one is used.
#[test]
fn what_is_idle_decays_by_the_use_of_others() {
    quietline_testing::isolated!();
    let _settings = Settings::decay(SHORT);
    let before = memory_used();
    let (idle, busy) = (cache(256), cache(64));
    fill(&idle, 20_000);
    let full = memory_used();
    assert!(idle.stats().cached > 2000, "{:?}", idle.stats());
    let kept = idle.alloc().unwrap();
    let start = Instant::now();
    let mut steps = vec![(Duration::ZERO, full)];
    while idle.stats().cached > 0 || idle.stats().slabs > 1 {
        visit_barn(&busy);
        if memory_used() < steps.last().unwrap().1 {
            steps.push((start.elapsed(), memory_used()));
        }
        assert!(start.elapsed() < Duration::from_secs(60), "{:?}", idle.stats());
    }
    assert!(steps.len() > 2, "not all at once: {steps:?}");
    assert_eq!(idle.stats().active, 1);
    // It works on.
    pair(&idle);
    // SAFETY: allocated above.
    unsafe { idle.free(kept) };
    drop((idle, busy));
    assert_eq!(memory_used(), before);
}

/// The same without any use: an event loop asks.
#[test]
fn decay_when_asked() {
    quietline_testing::isolated!();
    let _settings = Settings::decay(Duration::ZERO);
    let before = memory_used();
    let cache = cache(192);
    fill(&cache, 30_000);
    let (mut given, mut full) = (0, memory_used() - before);
    assert!(full > 0);
    for _ in 0..30 {
        given += decay();
        assert!(memory_used() - before <= full, "never more");
        full = memory_used() - before;
    }
    assert_eq!((memory_used(), cache.stats().cached, cache.stats().slabs), (before, 0, 0));
    assert!(given > 0);
    assert_eq!(decay(), 0);
    pair(&cache);
}

/// With an interval, what is asked for too early is not due.
#[test]
fn decay_is_due_after_the_interval() {
    quietline_testing::isolated!();
    let _settings = Settings::decay(Duration::from_secs(3600));
    let cache = cache(192);
    fill(&cache, 30_000);
    // The first call finds dates of no time, and begins to measure.
    decay();
    let stats = cache.stats();
    assert!(stats.cached > 0);
    assert_eq!(decay(), 0);
    assert_eq!(cache.stats().cached, stats.cached);
}

/// A cache in use keeps what it uses.
#[test]
fn what_is_used_stays() {
    quietline_testing::isolated!();
    let _settings = Settings::decay(Duration::ZERO);
    let cache = cache(128);
    fill(&cache, 5000);
    for _ in 0..12 {
        visit_barn(&cache);
        decay();
    }
    // Three sheaves' worth went round each time: no more than that is wanted, and most of it is still there.
    let stats = cache.stats();
    assert!(stats.cached >= 2 * stats.tunables.sheaf_capacity, "{stats:?}");
    let refills = stats.refills;
    visit_barn(&cache);
    decay();
    let again = cache.stats().refills - refills;
    assert!(again <= 2, "{again} refills: {:?}", cache.stats());
}

/// Pages that one cache cannot have are found in another one, and where nothing is to be found the error comes.
#[test]
fn pressure_on_one_cache_shrinks_another() {
    quietline_testing::isolated!();
    let _settings = Settings::decay(Duration::ZERO);
    let (rich, poor) =
        (cache(256), RawCache::new(Options { sheaves: false, ..Options::new("poor", 512, 8) }));
    let poor = poor.unwrap();
    fill(&rich, 10_000);
    assert!(rich.stats().cached > 0 && rich.stats().slabs > 0);
    fault::fail_nth(1);
    let first = poor.alloc();
    assert!(!fault::armed(), "the fault has fired");
    assert!(first.is_ok(), "the second try had pages");
    assert_eq!((rich.stats().cached, rich.stats().slabs), (0, 0));
    // Nothing is cached anywhere any more: no second try.
    let mut rest = vec![first.unwrap()];
    while rest.len() < poor.layout().objects {
        rest.push(poor.alloc().unwrap());
    }
    fault::fail_nth(1);
    assert!(poor.alloc().is_err());
    fault::fail_nth(0);
    // The second try may fail as well.
    fill(&rich, 10_000);
    fault::fail_from(1);
    assert!(poor.alloc().is_err());
    fault::fail_nth(0);
    assert_eq!(rich.stats().cached, 0);
    // SAFETY: allocated above.
    rest.into_iter().for_each(|object| unsafe { poor.free(object) });
}

/// A cache's own objects that lie with other CPUs are as good as new ones.
#[test]
fn pressure_finds_objects_of_the_same_cache() {
    quietline_testing::isolated!();
    let _settings = Settings::decay(Duration::ZERO);
    let cache = cache(2048);
    let mut held: Vec<_> =
        (0..4 * cache.layout().objects).map(|_| cache.alloc().unwrap()).collect();
    let parcel = Parcel(held.drain(..8).map(Some).collect());
    thread::scope(|scope| {
        let cache = &cache;
        scope.spawn(move || {
            let mut parcel = parcel;
            // SAFETY: allocated above.
            unsafe { cache.free_bulk(&mut parcel.0) };
        });
    });
    let stats = cache.stats();
    assert!(stats.cached >= 8);
    fault::fail_from(1);
    let more: Vec<_> = core::iter::from_fn(|| cache.alloc().ok()).collect();
    fault::fail_nth(0);
    assert_eq!(more.len(), stats.places - stats.active, "every single one, and none more");
    // SAFETY: allocated above.
    held.iter().chain(&more).for_each(|object| unsafe { cache.free(*object) });
    assert_eq!(cache.stats().active, 0);
}

/// Above the limit caches give up what they keep, and what is in use grows on.
#[test]
fn the_limit_is_soft() {
    quietline_testing::isolated!();
    let _settings = Settings::decay(Duration::ZERO);
    let base = memory_used();
    const MIB: usize = 1 << 20;
    let caches: Vec<_> = (0..8).map(|_| cache(1024)).collect();
    let fill_all = || caches.iter().for_each(|cache| fill(cache, 4096));
    fill_all();
    let unlimited = memory_used() - base;
    shrink_all();
    assert_eq!(memory_used(), base);
    // One cache's worth in use is 4 MiB.
    set_memory_limit(Some(base + 4 * MIB));
    fill_all();
    let limited = memory_used() - base;
    assert!(limited <= 5 * MIB, "{limited} bytes, {unlimited} without a limit");
    // What is held is had, limit or not, and the number of passes is bounded.
    let mut held: Vec<Entry> = vec![None; 16 * 1024];
    held.chunks_mut(8).for_each(|some| caches[0].alloc_bulk(some).unwrap());
    assert!(memory_used() - base >= 16 * MIB);
    // SAFETY: allocated above.
    held.chunks_mut(8).for_each(|some| unsafe { caches[0].free_bulk(some) });
    // Use has fallen, so the limit holds again.
    fill_all();
    fill_all();
    let limited = memory_used() - base;
    assert!(limited <= 6 * MIB, "{limited} bytes");
    drop(caches);
    assert_eq!(memory_used(), base);
}

#[test]
fn shrink_all_empties_every_cache() {
    quietline_testing::isolated!();
    let _settings = Settings::decay(Duration::ZERO);
    let before = memory_used();
    let caches = [cache(64), cache(512), cache(4096)];
    caches.iter().for_each(|cache| fill(cache, 3000));
    let held = memory_used() - before;
    assert_eq!((shrink_all(), memory_used()), (held, before));
    assert!(held > 0);
    assert_eq!(shrink_all(), 0);
    assert_eq!(pages::usage().used, pages::used());
}

/// A destructor that is run by decay may do what any user may: allocate, free, shrink, and ask for decay.
#[test]
fn hooks_come_back() {
    quietline_testing::isolated!();
    let _settings = Settings::decay(Duration::ZERO);
    static OTHER: AtomicPtr<RawCache> = AtomicPtr::new(core::ptr::null_mut());
    static ENDED: AtomicUsize = AtomicUsize::new(0);
    static DECAYING: AtomicBool = AtomicBool::new(false);
    unsafe fn end(_: NonNull<u8>) {
        if ENDED.fetch_add(1, Ordering::Relaxed).is_multiple_of(64) {
            // SAFETY: set below, and not taken away before the caches are gone.
            let other = unsafe { &*OTHER.load(Ordering::Relaxed) };
            visit_barn(other);
            let given = decay();
            assert!(given == 0 || !DECAYING.load(Ordering::Relaxed), "one at a time");
        }
    }
    let other = cache(64);
    OTHER.store((&raw const other).cast_mut(), Ordering::Relaxed);
    let options = Options { dtor: Some(Hook::new(end)), ..Options::new("ends", 256, 8) };
    // SAFETY: the destructor looks at nothing.
    let ends = unsafe { RawCache::with_hooks(options) }.unwrap();
    fill(&ends, 5000);
    let (kept, ended) = (ends.stats().places, ENDED.load(Ordering::Relaxed));
    DECAYING.store(true, Ordering::Relaxed);
    for _ in 0..30 {
        decay();
    }
    DECAYING.store(false, Ordering::Relaxed);
    assert_eq!((ends.stats().slabs, ends.stats().cached), (0, 0));
    let ended = ENDED.load(Ordering::Relaxed) - ended;
    assert!(ended > 64 && ended <= kept, "{ended} of {kept}");
    // Another cache's slow path does not run it.
    fill(&ends, 5000);
    let ended = ENDED.load(Ordering::Relaxed);
    let slabs = ends.stats().slabs;
    set_decay_interval(Duration::from_micros(1));
    for _ in 0..200 {
        visit_barn(&other);
    }
    assert_eq!((ENDED.load(Ordering::Relaxed), ends.stats().slabs), (ended, slabs));
    // Nor does its own.
    for _ in 0..20 {
        visit_barn(&ends);
        thread::sleep(Duration::from_micros(50));
        fill(&ends, 5000);
    }
    assert_eq!(ENDED.load(Ordering::Relaxed), ended);
    drop(ends);
    assert!(ENDED.load(Ordering::Relaxed) > ended);
}

/// Users, decay, pressure, shrinking, new caches and old ones that go, all at once.
#[test]
fn everything_at_once() {
    quietline_testing::isolated!();
    let _settings = Settings::decay(Duration::from_micros(20));
    let before = memory_used();
    let caches = [cache(64), cache(700), cache(5000)];
    set_memory_limit(Some(before + (1 << 20)));
    let stop = AtomicBool::new(false);
    let rounds = AtomicUsize::new(0);
    thread::scope(|scope| {
        let _stop = Stop(&stop);
        for seed in 0..3 {
            let (caches, stop, rounds) = (&caches, &stop, &rounds);
            scope.spawn(move || {
                let mut random = crate::support::Random::new(seed);
                let mut held: Vec<(usize, NonNull<u8>)> = Vec::new();
                while !stop.load(Ordering::Relaxed) {
                    let which = random.below(3);
                    if random.below(50) == 0 {
                        fault::fail_nth(1 + random.below(3) as u64);
                    }
                    if held.len() < 600 && random.below(2) == 0 {
                        if let Ok(object) = caches[which].alloc() {
                            crate::support::fill(object, 64, which as u8);
                            held.push((which, object));
                        }
                    } else if !held.is_empty() {
                        let (which, object) = held.swap_remove(random.below(held.len()));
                        assert!(crate::support::is_filled(object, 64, which as u8));
                        // SAFETY: allocated above.
                        unsafe { caches[which].free(object) };
                    }
                    rounds.fetch_add(1, Ordering::Relaxed);
                }
                fault::fail_nth(0);
                // SAFETY: allocated above.
                held.into_iter().for_each(|(which, object)| unsafe { caches[which].free(object) });
            });
        }
        let start = Instant::now();
        let time = stress_time(1000);
        while start.elapsed() < time || rounds.load(Ordering::Relaxed) <= 10_000 {
            let fresh = cache(100);
            fill(&fresh, 500);
            shrink_all();
            decay();
        }
    });
    for cache in &caches {
        assert_eq!(cache.stats().active, 0);
    }
    shrink_all();
    assert_eq!(memory_used(), before);
}

/// A child forked while others decay and reclaim does so itself.
#[test]
fn a_child_decays() {
    quietline_testing::isolated!();
    let _settings = Settings::decay(Duration::from_micros(10));
    let caches = [cache(64), cache(700)];
    let stop = AtomicBool::new(false);
    thread::scope(|scope| {
        let _stop = Stop(&stop);
        for cache in &caches {
            let stop = &stop;
            scope.spawn(move || {
                while !stop.load(Ordering::Relaxed) {
                    fill(cache, 2000);
                    shrink_all();
                    cache.stats();
                }
            });
        }
        for round in 0..40 {
            // SAFETY: the child calls only what is under test, and leaves by _exit. One that hangs is ended by the alarm.
            let status = unsafe {
                let pid = libc::fork();
                if pid == 0 {
                    libc::alarm(20);
                    set_decay_interval(Duration::ZERO);
                    let mut well = false;
                    if let Ok(fresh) = RawCache::new(Options::new("child", 300, 8)) {
                        fill(&fresh, 3000);
                        (0..30).for_each(|_| _ = decay());
                        well = fresh.stats().slabs == 0;
                    }
                    libc::_exit(i32::from(!well));
                }
                let mut status = 0;
                assert_eq!(libc::waitpid(pid, &mut status, 0), pid);
                status
            };
            assert_eq!(status, 0, "child of round {round}");
        }
    });
}
