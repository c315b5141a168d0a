//! Property 8, by `free_rcu`: nothing is anybody else's before its grace period; everything is released once.
#![cfg(not(loom))]

use crate::support::{Random, Stop, each_fault, stress_rounds};
use quietline_platform::{fault, pages};
use quietline_slab::{Debug, Hook, Options, RawCache, Tunables, set_memory_limit};
use quietline_sync::rcu::{self, Domain};
use std::collections::BTreeSet;
use std::ptr::{self, NonNull};
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU64, AtomicUsize, Ordering::*};
use std::thread;

const ALIVE: u64 = 0x6c61_6e64_7065_6f70;
const ENDED: u64 = 0xdead_dead_dead_dead;

static RELEASED: AtomicUsize = AtomicUsize::new(0);

struct Object {
    state: AtomicU64,
    rest: [AtomicU64; 7],
}

impl Object {
    fn begin(memory: NonNull<u8>) -> NonNull<Object> {
        let object = memory.cast::<Object>();
        // SAFETY: callers have allocated it just now, with this size.
        unsafe {
            object.write(Object {
                state: AtomicU64::new(ALIVE),
                rest: [const { AtomicU64::new(ALIVE) }; 7],
            });
        }
        object
    }

    fn check(&self) {
        assert_eq!(self.state.load(Relaxed), ALIVE, "ended before its grace period");
        assert!(self.rest.iter().all(|word| word.load(Relaxed) == ALIVE));
    }

    unsafe fn release(memory: NonNull<u8>) {
        // SAFETY: the cache gives what was given to `free_rcu`.
        let object = unsafe { memory.cast::<Object>().as_ref() };
        assert_eq!(object.state.swap(ENDED, Relaxed), ALIVE, "released twice");
        object.rest.iter().for_each(|word| word.store(ENDED, Relaxed));
        RELEASED.fetch_add(1, Relaxed);
    }
}

fn domain() -> &'static Domain {
    Domain::leaked().unwrap()
}

fn options(domain: &'static Domain) -> Options {
    Options {
        rcu: Some(domain),
        release: Some(Hook::new(Object::release)),
        ..Options::new("rcu", size_of::<Object>(), align_of::<Object>())
    }
}

fn cache(options: Options) -> RawCache {
    // SAFETY: `release` is for objects that have begun, as all that these tests free by RCU have.
    unsafe { RawCache::with_hooks(options) }.unwrap()
}

fn free_rcu(cache: &RawCache, object: NonNull<Object>) {
    // SAFETY: tests free what they have allocated and taken away from readers, once.
    unsafe { cache.free_rcu(object.cast()) };
}

/// What a program does between two pieces of work.
fn run_pending(domain: &Domain) {
    if domain.is_pending() {
        rcu::run_pending(&[domain]);
    }
}

/// The kinds of caches whose objects take different ways.
fn kinds(domain: &'static Domain) -> [Options; 5] {
    let plain = options(domain);
    [
        plain,
        Options { sheaf_capacity: 1, ..plain },
        Options { sheaf_capacity: 7, cpu_partial: 3, ..plain },
        Options { sheaves: false, ..plain },
        Options { debug: Debug::ALL, ..plain },
    ]
}

/// While a section is open, nothing that was freed is released or handed out; then all of it is, once, and comes out of
/// the cache again.
#[test]
fn nothing_is_reused_before_its_grace_period() {
    quietline_testing::isolated!();
    const MANY: usize = 5000;
    for options in kinds(domain()) {
        let domain = options.rcu.unwrap();
        let cache = cache(options);
        let before = RELEASED.load(Relaxed);
        let objects: Vec<_> = (0..MANY).map(|_| Object::begin(cache.alloc().unwrap())).collect();
        let guard = domain.read();
        objects.iter().for_each(|object| free_rcu(&cache, *object));
        for _ in 0..50 {
            domain.poll();
        }
        cache.shrink();
        let stats = cache.stats();
        assert_eq!((stats.active, stats.cached, stats.waiting), (0, 0, MANY), "{stats:?}");
        let freed: BTreeSet<_> = objects.iter().copied().collect();
        let others: Vec<_> = (0..MANY).map(|_| Object::begin(cache.alloc().unwrap())).collect();
        assert!(others.iter().all(|object| !freed.contains(object)));
        // SAFETY: the claim under test: the section began before they were freed.
        objects.iter().for_each(|object| unsafe { object.as_ref() }.check());
        assert_eq!(RELEASED.load(Relaxed), before);
        drop(guard);
        cache.flush_rcu();
        assert_eq!(RELEASED.load(Relaxed), before + MANY);
        let stats = cache.stats();
        assert_eq!((stats.active, stats.waiting), (MANY, 0), "{stats:?}");
        let again: Vec<_> = (0..MANY).map(|_| Object::begin(cache.alloc().unwrap())).collect();
        assert!(again.iter().any(|object| freed.contains(object)), "the memory is used again");
        again.into_iter().chain(others).for_each(|object| free_rcu(&cache, object));
        cache.flush_rcu();
        assert_eq!(RELEASED.load(Relaxed), before + 3 * MANY);
        assert_eq!(cache.stats().active + cache.stats().waiting, 0);
    }
}

/// A thread that runs its share of callbacks brings grace periods about, for some thousand objects
/// each; what waits is bounded; a sheaf is used again whole.
#[test]
fn shares_of_callbacks_make_progress() {
    quietline_testing::isolated!();
    let domain = domain();
    let cache = cache(options(domain));
    let before = RELEASED.load(Relaxed);
    let mut most = 0;
    for round in 0..500_000usize {
        free_rcu(&cache, Object::begin(cache.alloc().unwrap()));
        run_pending(domain);
        if round.is_multiple_of(1000) {
            most = most.max(cache.stats().waiting);
        }
    }
    let released = RELEASED.load(Relaxed) - before;
    let bound = 2 * domain.backlog_limit() as usize;
    assert!(
        released > 500_000 - bound && most <= bound,
        "{released} released, {most} waited at most"
    );
    let stats = cache.stats();
    // What each CPU is still collecting is not among them.
    assert!(stats.rcu_sheaves >= 9 * 500_000 / 512 / 10, "{stats:?}");
    // Sheaves of 512 go round: a slab is visited for few of the objects.
    assert!(stats.slab_syncs < 500_000 / 8, "{stats:?}");
    cache.flush_rcu();
    assert_eq!(RELEASED.load(Relaxed) - before, 500_000);
}

/// A program that sets a limit and never polls: what waits is bounded, and the rest is released
/// before its free returns.
#[test]
fn a_free_at_the_limit_is_synchronous() {
    quietline_testing::isolated!();
    const LIMIT: usize = 500;
    for options in kinds(domain()) {
        let domain = options.rcu.unwrap();
        let cache = cache(options);
        cache.set_rcu_limit(LIMIT);
        let before = RELEASED.load(Relaxed);
        let cpus = quietline_platform::cpu::nr_cpus();
        let bound = LIMIT + (cpus + 1) * cache.tunables().sheaf_capacity;
        let many = 4 * bound;
        for freed in 1..=many {
            free_rcu(&cache, Object::begin(cache.alloc().unwrap()));
            let wait = freed - (RELEASED.load(Relaxed) - before);
            assert!(wait <= bound, "{wait} wait, the bound is {bound}");
        }
        assert!(RELEASED.load(Relaxed) - before >= many - bound);
        domain.poll();
        cache.flush_rcu();
        assert_eq!(RELEASED.load(Relaxed) - before, many);
        assert_eq!(cache.stats().waiting, 0);
    }
}

/// A few thousand objects begin a grace period, not each sheaf of them; and objects count, not sheaves.
#[test]
fn a_backlog_is_counted_in_objects() {
    quietline_testing::isolated!();
    let domain = domain();
    let cache = cache(Options { sheaf_capacity: 100, ..options(domain) });
    let guard = domain.read();
    for _ in 0..1000 {
        free_rcu(&cache, Object::begin(cache.alloc().unwrap()));
    }
    let waiting = cache.stats().rcu_sheaves * 100;
    assert!((900..=1000).contains(&waiting), "full sheaves are sent: {waiting}");
    assert_eq!(domain.backlog(), waiting);
    cache.shrink();
    assert_eq!(domain.backlog(), 1000);
    drop(guard);
    domain.barrier();
    assert_eq!((domain.backlog(), cache.stats().waiting), (0, 0));
}

/// Readers look at objects without owning them while writers replace and free them, while caches are shrunk and their
/// sheaves get another size: no reader ever sees one that has ended.
#[test]
fn readers_beside_writers() {
    quietline_testing::isolated!();
    const PLACES: usize = 32;
    let rounds = stress_rounds(12_000);
    for (number, options) in kinds(domain()).into_iter().enumerate() {
        let domain = options.rcu.unwrap();
        let before = RELEASED.load(Relaxed);
        let cache = cache(options);
        let places: [AtomicPtr<Object>; PLACES] =
            [const { AtomicPtr::new(ptr::null_mut()) }; PLACES];
        let (stop, seen, made) = (AtomicBool::new(false), AtomicUsize::new(0), AtomicUsize::new(0));
        thread::scope(|scope| {
            for _ in 0..2 {
                scope.spawn(|| {
                    let _stop = Stop(&stop);
                    while !stop.load(Relaxed) {
                        let _guard = domain.read();
                        for place in &places {
                            // SAFETY: the claim under test.
                            if let Some(object) = unsafe { place.load(Acquire).as_ref() } {
                                object.check();
                                object.check();
                                seen.fetch_add(1, Relaxed);
                            }
                        }
                    }
                });
            }
            let writers = [1, 2].map(|seed| {
                let (cache, places, stop, made) = (&cache, &places, &stop, &made);
                scope.spawn(move || {
                    let mut random = Random::new(seed + 10 * number as u64);
                    for round in 0..rounds {
                        if stop.load(Relaxed) {
                            break;
                        }
                        let fresh = Object::begin(cache.alloc().unwrap());
                        made.fetch_add(1, Relaxed);
                        let old = places[random.below(PLACES)].swap(fresh.as_ptr(), AcqRel);
                        if let Some(old) = NonNull::new(old) {
                            free_rcu(cache, old);
                            run_pending(domain);
                        }
                        if round % 5000 == 0 {
                            cache.shrink();
                        }
                        if round % 7000 == 0 && number != 1 {
                            let tunables = cache.tunables();
                            let sheaf_capacity = 5 + random.below(200);
                            cache.set_tunables(Tunables { sheaf_capacity, ..tunables }).unwrap();
                        }
                    }
                })
            });
            writers.into_iter().for_each(|writer| writer.join().unwrap());
            while seen.load(Relaxed) < 10_000 && !stop.load(Relaxed) {
                thread::yield_now();
            }
            stop.store(true, Relaxed);
        });
        places
            .iter()
            .filter_map(|place| NonNull::new(place.load(Relaxed)))
            .for_each(|object| free_rcu(&cache, object));
        cache.flush_rcu();
        assert_eq!(RELEASED.load(Relaxed) - before, made.load(Relaxed));
        assert_eq!(cache.stats().active + cache.stats().waiting, 0, "{:?}", cache.stats());
    }
}

/// Each allocation fails in turn: freeing succeeds all the same, and everything is released once.
#[test]
fn every_allocation_fails_once() {
    quietline_testing::isolated!();
    let pages_before = pages::usage().used;
    let domain = domain();
    let mut failed = 0;
    for options in kinds(domain) {
        failed += each_fault(|_| {
            let options = Options { sheaf_capacity: options.sheaf_capacity.max(20), ..options };
            // SAFETY: as in `cache`.
            let Ok(cache) = (unsafe { RawCache::with_hooks(options) }) else { return };
            let before = RELEASED.load(Relaxed);
            let objects: Vec<_> =
                (0..200).filter_map(|_| cache.alloc().ok()).map(Object::begin).collect();
            let n = objects.len();
            assert!(n >= 199);
            objects.into_iter().for_each(|object| free_rcu(&cache, object));
            cache.flush_rcu();
            assert_eq!(RELEASED.load(Relaxed) - before, n);
            assert_eq!((cache.stats().active, cache.stats().waiting), (0, 0));
            drop(cache);
            domain.barrier();
        });
    }
    assert!(failed > 10, "{failed}");
    assert_eq!(pages::usage().used, pages_before);
}

/// With no memory for any sheaf: those that are there are used, and when all of them wait, objects are noted in their slabs. A
/// reader keeps all of it waiting, and may be who frees it.
#[test]
fn without_any_memory() {
    quietline_testing::isolated!();
    for options in kinds(domain()) {
        let domain = options.rcu.unwrap();
        let cache = cache(options);
        let before = RELEASED.load(Relaxed);
        let objects: Vec<_> = (0..3000).map(|_| Object::begin(cache.alloc().unwrap())).collect();
        // Some sheaves that hold objects to hand out.
        let spare: Vec<_> = (0..300).map(|_| cache.alloc().unwrap()).collect();
        // SAFETY: allocated above.
        spare.into_iter().for_each(|object| unsafe { cache.free(object) });
        let (first, second) = objects.split_at(1500);
        for freed in [first, second] {
            let before = RELEASED.load(Relaxed);
            let guard = domain.read();
            fault::fail_from(1);
            freed.iter().for_each(|object| free_rcu(&cache, *object));
            fault::fail_nth(0);
            for _ in 0..20 {
                domain.poll();
            }
            assert_eq!(RELEASED.load(Relaxed), before, "the section is open");
            // SAFETY: the claim under test: the section began before they were freed.
            freed.iter().for_each(|object| unsafe { object.as_ref() }.check());
            if options.debug != Debug::OFF {
                assert_eq!(cache.validate(), 0);
            }
            drop(guard);
        }
        cache.flush_rcu();
        assert_eq!(RELEASED.load(Relaxed) - before, 3000);
        assert_eq!((cache.stats().active, cache.stats().waiting), (0, 0), "{:?}", cache.stats());
        // All of it is there again, once.
        let again: BTreeSet<_> = (0..3300).map(|_| cache.alloc().unwrap()).collect();
        assert_eq!(again.len(), 3300);
        // SAFETY: allocated above.
        again.into_iter().for_each(|object| unsafe { cache.free(object) });
    }
}

/// Batches without memory, one after the other and from several threads, while readers come and go.
#[test]
fn batches_without_memory() {
    quietline_testing::isolated!();
    for options in kinds(domain()) {
        let (domain, cache) = (options.rcu.unwrap(), cache(options));
        let before = RELEASED.load(Relaxed);
        thread::scope(|scope| {
            for _ in 0..3 {
                scope.spawn(|| {
                    for _ in 0..40 {
                        let objects: Vec<_> =
                            (0..100).map(|_| Object::begin(cache.alloc().unwrap())).collect();
                        let guard = domain.read();
                        fault::fail_from(1);
                        objects.iter().for_each(|object| free_rcu(&cache, *object));
                        fault::fail_nth(0);
                        // SAFETY: the claim under test: the section began before they were freed.
                        objects.iter().for_each(|object| unsafe { object.as_ref() }.check());
                        drop(guard);
                    }
                });
            }
        });
        cache.flush_rcu();
        assert_eq!(RELEASED.load(Relaxed) - before, 12_000);
        assert_eq!((cache.stats().active, cache.stats().waiting), (0, 0), "{:?}", cache.stats());
    }
}

/// A cache that is dropped while objects wait goes with the last of them, and gives its memory back then.
#[test]
fn a_cache_outlives_its_handle() {
    quietline_testing::isolated!();
    let pages_before = pages::usage().used;
    for options in kinds(domain()) {
        let domain = options.rcu.unwrap();
        let cache = cache(options);
        let before = RELEASED.load(Relaxed);
        let objects: Vec<_> = (0..3000).map(|_| Object::begin(cache.alloc().unwrap())).collect();
        let guard = domain.read();
        objects.iter().for_each(|object| free_rcu(&cache, *object));
        drop(cache);
        // SAFETY: the claim under test: the section began before they were freed.
        objects.iter().for_each(|object| unsafe { object.as_ref() }.check());
        assert!(pages::usage().used > pages_before);
        drop(guard);
        domain.barrier();
        assert_eq!(RELEASED.load(Relaxed) - before, 3000);
        assert_eq!(pages::usage().used, pages_before);
    }
}

/// A release function that frees by RCU, into its own cache and another: parents end before their children.
#[test]
fn release_may_free_by_rcu() {
    quietline_testing::isolated!();
    static CHILDREN: AtomicPtr<RawCache> = AtomicPtr::new(ptr::null_mut());
    static PARENTS: AtomicUsize = AtomicUsize::new(0);
    unsafe fn release(parent: NonNull<u8>) {
        // SAFETY: a parent holds its child's address; the cache outlives this test.
        unsafe {
            let child = parent.cast::<*mut u8>().read();
            (*CHILDREN.load(Relaxed)).free_rcu(NonNull::new(child).unwrap());
        }
        PARENTS.fetch_add(1, Relaxed);
    }
    let domain = domain();
    let children: &'static RawCache = Box::leak(Box::new(cache(options(domain))));
    CHILDREN.store(ptr::from_ref(children).cast_mut(), Relaxed);
    let parents = Options {
        rcu: Some(domain),
        release: Some(Hook::new(release)),
        ..Options::new("parents", 16, 8)
    };
    // SAFETY: each parent is written before it is freed.
    let parents = unsafe { RawCache::with_hooks(parents) }.unwrap();
    let before = RELEASED.load(Relaxed);
    const MANY: usize = 20_000;
    for _ in 0..MANY {
        let child = Object::begin(children.alloc().unwrap());
        let parent = parents.alloc().unwrap();
        // SAFETY: allocated above, nobody else knows them.
        unsafe {
            parent.cast::<*mut u8>().write(child.as_ptr().cast());
            parents.free_rcu(parent);
        }
    }
    parents.flush_rcu();
    assert_eq!(PARENTS.load(Relaxed), MANY);
    children.flush_rcu();
    assert_eq!(RELEASED.load(Relaxed) - before, MANY);
}

/// Objects of a typesafe cache may be freed by RCU too: then readers keep their very object.
#[test]
fn typesafe_memory_by_rcu() {
    quietline_testing::isolated!();
    let domain = domain();
    let cache =
        RawCache::new(Options { typesafe: Some(domain), ..Options::new("both", 64, 8) }).unwrap();
    let object = Object::begin(cache.alloc().unwrap());
    let guard = domain.read();
    free_rcu(&cache, object);
    cache.shrink();
    domain.poll();
    // SAFETY: the section began before it was freed.
    unsafe { object.as_ref() }.check();
    assert_eq!(cache.stats().waiting, 1);
    drop(guard);
    cache.flush_rcu();
    assert_eq!(cache.stats().waiting, 0);
}

/// Without a domain of its own a cache uses the global one.
#[test]
fn the_global_domain() {
    quietline_testing::isolated!();
    let cache = RawCache::new(Options::new("global", 64, 8)).unwrap();
    let guard = quietline_sync::rcu::global().unwrap().read();
    let object = Object::begin(cache.alloc().unwrap());
    free_rcu(&cache, object);
    cache.shrink();
    // SAFETY: the section began before it was freed.
    unsafe { object.as_ref() }.check();
    drop(guard);
    cache.flush_rcu();
    assert_eq!((cache.stats().active, cache.stats().waiting), (0, 0));
}

/// A flush waits for objects whose sheaf another thread has in hand.
#[test]
fn flush_beside_those_who_send() {
    quietline_testing::isolated!();
    static ENDED_OF_MINE: AtomicUsize = AtomicUsize::new(0);
    unsafe fn release(memory: NonNull<u8>) {
        // SAFETY: every object of this test begins with a number.
        ENDED_OF_MINE.fetch_add(unsafe { memory.cast::<usize>().read() }, SeqCst);
    }
    let domain = domain();
    let cache =
        cache(Options { release: Some(Hook::new(release)), sheaf_capacity: 8, ..options(domain) });
    let free = |mine: usize| {
        let object = cache.alloc().unwrap();
        // SAFETY: the object is ours, and is given up here.
        unsafe {
            object.cast::<usize>().write(mine);
            cache.free_rcu(object);
        }
    };
    let stop = AtomicBool::new(false);
    thread::scope(|scope| {
        let _stop = Stop(&stop);
        for shrinks in [false, true, true] {
            let (stop, cache, free) = (&stop, &cache, &free);
            scope.spawn(move || {
                while !stop.load(Relaxed) {
                    if shrinks {
                        cache.shrink()
                    } else {
                        free(0)
                    }
                    run_pending(domain);
                }
            });
        }
        for round in 1..=stress_rounds(1000) {
            free(1);
            cache.flush_rcu();
            assert_eq!(ENDED_OF_MINE.load(SeqCst), round, "flushed, and not released");
        }
    });
}

/// Who allocates may hold a lock that release functions take: none is run, though sheaves are sent when memory runs short.
#[test]
fn an_allocation_releases_nothing() {
    quietline_testing::isolated!();
    thread_local! { static ALLOCATES: std::cell::Cell<bool> = const { std::cell::Cell::new(false) } }
    static INSIDE: AtomicUsize = AtomicUsize::new(0);
    unsafe fn release(_: NonNull<u8>) {
        INSIDE.fetch_add(usize::from(ALLOCATES.get()), Relaxed);
    }
    let cache = cache(Options { release: Some(Hook::new(release)), ..options(domain()) });
    let other = RawCache::new(Options::new("other", 1024, 8)).unwrap();
    let mut sent = 0;
    for _ in 0..300 {
        for _ in 0..1010 {
            free_rcu(&cache, cache.alloc().unwrap().cast());
        }
        let before = cache.stats().rcu_sheaves;
        set_memory_limit(Some(1));
        ALLOCATES.set(true);
        let objects: Vec<_> = (0..100).map(|_| other.alloc().unwrap()).collect();
        // SAFETY: allocated here, from this cache.
        objects.into_iter().for_each(|object| unsafe { other.free(object) });
        ALLOCATES.set(false);
        set_memory_limit(None);
        sent += cache.stats().rcu_sheaves - before;
        other.shrink();
    }
    assert!(sent > 100, "memory was short, and {sent} sheaves were sent");
    assert_eq!(INSIDE.load(Relaxed), 0);
    cache.flush_rcu();
    assert_eq!(cache.stats().waiting, 0);
}

/// A child has what its parent had: it frees by RCU, and waits, while other threads of the parent did the same.
#[test]
fn child_goes_on() {
    quietline_testing::isolated!();
    let domain = domain();
    let cache = RawCache::new(Options {
        rcu: Some(domain),
        sheaf_capacity: 8,
        ..Options::new("fork", 64, 8)
    })
    .unwrap();
    let stop = AtomicBool::new(false);
    let churn = |rounds: usize| {
        for _ in 0..rounds {
            free_rcu(&cache, Object::begin(cache.alloc()?));
            run_pending(domain);
        }
        Ok::<_, quietline_platform::AllocError>(())
    };
    thread::scope(|scope| {
        let _stop = Stop(&stop);
        scope.spawn(|| {
            while !stop.load(Relaxed) {
                churn(100).unwrap();
            }
        });
        for round in 0..40 {
            // SAFETY: the child calls only what is under test, and leaves by _exit. A child that hangs is ended by the
            // alarm.
            let status = unsafe {
                let pid = libc::fork();
                if pid == 0 {
                    libc::alarm(20);
                    let mut well = churn(10_000).is_ok();
                    cache.flush_rcu();
                    well &= domain.backlog() == 0;
                    libc::_exit(if well { 0 } else { 1 });
                }
                let mut status = 0;
                assert_eq!(libc::waitpid(pid, &mut status, 0), pid);
                status
            };
            assert_eq!(status, 0, "child of round {round}");
        }
    });
    cache.flush_rcu();
    assert_eq!((cache.stats().active, cache.stats().waiting), (0, 0));
}

/// Of the sheaves that come out of a grace period, two at a time here, one stays with the CPU that has run them: only the others
/// go through the barn, whose lock all CPUs share.
#[test]
fn what_comes_back_stays_with_the_cpu() {
    quietline_testing::isolated!();
    let domain = domain();
    let cache = cache(options(domain));
    let sheaf = cache.stats().tunables.sheaf_capacity;
    for _ in 0..100 * sheaf {
        free_rcu(&cache, Object::begin(cache.alloc().unwrap()));
        run_pending(domain);
    }
    let stats = cache.stats();
    assert!(stats.rcu_sheaves >= 99, "{stats:?}");
    // All but the first ten or so went through it before; some more than half may, as the thread may be moved.
    assert!(stats.barn_gets < 70, "{stats:?}");
}
