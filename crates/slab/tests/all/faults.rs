//! Memory that runs out: each allocation of a script that covers the whole API fails once, and once all from it on. The call
//! says so or makes do; nothing is lost, neither pages nor heap nor per-CPU words; the cache works on.
#![cfg(not(loom))]

use quietline_platform::{AllocError, fault, pages};
use quietline_slab::{
    Cache, CacheError, Counted, Debug, Entry, Held, Hook, Merge, Options, Place, RawCache,
    RcuCache, Typesafe, TypesafeCache, TypesafePlace,
};
use quietline_sync::{FileRef, rcu};
use quietline_testing::heap;
use std::cell::Cell;
use std::fmt::Write;
use std::ptr::NonNull;

#[global_allocator]
static HEAP: heap::Counting = heap::Counting;

/// What this thread and the library hold: bytes in pages, bytes on the heap, and where the next cache's per-CPU words will be.
fn held() -> (usize, isize, usize) {
    rcu::global().unwrap().barrier();
    let words = RawCache::new(Options::new("probe", 8, 8)).unwrap().percpu_base().addr().get();
    (pages::usage().used, heap::bytes_of_thread(), words)
}

/// Memory ran out, and every call that met it said so.
#[derive(Debug)]
struct Failed;

impl From<AllocError> for Failed {
    fn from(_: AllocError) -> Self {
        Self
    }
}

impl From<CacheError> for Failed {
    fn from(error: CacheError) -> Self {
        assert!(matches!(error, CacheError::Alloc(_)), "{error}");
        Self
    }
}

/// Calls `call`, and once more when it failed: with memory back again it must work.
fn attempt<T, E: Into<Failed>>(mut call: impl FnMut() -> Result<T, E>) -> Result<T, Failed> {
    call().or_else(|error| {
        let error = error.into();
        REPORTED.with(|reported| reported.set(reported.get() + 1));
        if fault::armed() {
            Err(error)
        } else {
            Ok(call().map_err(Into::into).expect("memory is back"))
        }
    })
}

thread_local! {
    static REPORTED: Cell<u64> = const { Cell::new(0) };
}

/// Objects that go back when they are dropped, whatever memory there is.
struct Out<'a>(&'a RawCache, Vec<Entry>);

impl Drop for Out<'_> {
    fn drop(&mut self) {
        // Some one by one, the others at once, with the nulls that the first left.
        for object in self.1.iter_mut().step_by(3).filter_map(Option::take) {
            // SAFETY: allocated by the script, and used no more.
            unsafe { self.0.free(object) };
        }
        // SAFETY: as above.
        unsafe { self.0.free_bulk(&mut self.1) };
        assert!(self.1.iter().all(Option::is_none));
        let stats = self.0.stats();
        assert_eq!(stats.active, 0, "{stats:?}");
    }
}

/// A script: a part of the API, each call of it attempted.
type Script = fn() -> Result<(), Failed>;

/// Runs a script with each of its allocations failing in turn, alone and with all that follow it.
#[track_caller]
fn each_fault(least: u64, script: Script) {
    // What is made once is made before.
    script().expect("there is memory");
    let before = held();
    REPORTED.with(|reported| reported.set(0));
    let mut faults = 0;
    for arm in [fault::fail_nth, fault::fail_from] {
        for nth in 1.. {
            assert!(nth < 10_000, "a script has no end of allocations");
            arm(nth);
            let result = script();
            // One that fails from the nth on stays armed: it is over when the script works without having met it.
            let met = !fault::armed() || result.is_err();
            fault::fail_nth(0);
            assert_eq!(held(), before, "after allocation {nth}: pages, heap, per-CPU words");
            if !met {
                break;
            }
            faults += 1;
        }
    }
    script().expect("there is memory again");
    assert_eq!(held(), before);
    let reported = REPORTED.with(Cell::get);
    println!("{faults} faults injected, {reported} reported");
    assert!(faults >= least && reported >= 1, "{faults} faults, {reported} reported");
}

unsafe fn construct(object: NonNull<u8>) {
    // SAFETY: the cache passes memory of the options' size, which has room for a number.
    unsafe { object.cast::<u64>().write(7) };
}

unsafe fn nothing(_: NonNull<u8>) {}

#[test]
fn caches_are_made() {
    quietline_testing::isolated!();
    each_fault(20, || {
        let domain = rcu::global().unwrap();
        let plain = Options::new("made", 100, 16);
        let kinds = [
            plain,
            Options { sheaves: false, ..plain },
            Options { debug: Debug::ALL, ..plain },
            Options { typesafe: Some(domain), ..plain },
            Options {
                ctor: Some(Hook::new(construct)),
                dtor: Some(Hook::new(nothing)),
                release: Some(Hook::new(nothing)),
                ..plain
            },
        ];
        for options in kinds {
            // SAFETY: the hooks keep to the object.
            let cache = attempt(|| unsafe { RawCache::with_hooks(options) })?;
            let mut out = Out(&cache, Vec::with_capacity(1));
            out.1.push(Some(attempt(|| cache.alloc())?));
        }
        let alike = || RawCache::new(Options { merge: Merge::Always, ..plain });
        let (one, other) = (attempt(alike)?, attempt(alike)?);
        assert_eq!(other.stats().aliases, 1);
        drop(one);
        drop(Out(&other, vec![Some(attempt(|| other.alloc())?)]));
        Ok(())
    });
}

#[test]
fn objects_one_by_one_and_many_at_once() {
    quietline_testing::isolated!();
    each_fault(20, || {
        let options =
            Options { sheaf_capacity: 5, min_partial: 0, ..Options::new("objects", 600, 8) };
        let cache = attempt(|| RawCache::new(options))?;
        let mut out = Out(&cache, Vec::with_capacity(2000));
        for _ in 0..100 {
            out.1.push(Some(attempt(|| cache.alloc())?));
        }
        for n in [1, 2, 3, 5, 40, 300] {
            let mut objects: Vec<Entry> = vec![Some(NonNull::dangling()); n];
            attempt(|| {
                let result = cache.alloc_bulk(&mut objects);
                let there = objects.iter().flatten().count();
                assert_eq!(there, if result.is_ok() { n } else { 0 }, "all or nothing");
                result
            })?;
            out.1.append(&mut objects);
        }
        let mut batch = attempt(|| cache.alloc_batch(100))?;
        out.1.extend(batch.by_ref().take(3).map(Some));
        drop(batch);
        assert_eq!(cache.stats().active, out.1.len());
        Ok(())
    });
}

#[test]
fn settings_change_while_objects_are_out() {
    quietline_testing::isolated!();
    each_fault(15, || {
        let cache = attempt(|| RawCache::new(Options::new("settings", 200, 8)))?;
        let mut out = Out(&cache, Vec::with_capacity(200));
        for turn in 0..6 {
            for _ in 0..20 {
                out.1.push(Some(attempt(|| cache.alloc())?));
            }
            match turn {
                0 => attempt(|| {
                    cache.set_tunables(quietline_slab::Tunables {
                        sheaf_capacity: 2,
                        ..cache.tunables()
                    })
                })?,
                1 => cache.shrink(),
                2 => cache.set_debug(Debug::ALL - Debug::TRACK).unwrap(),
                3 => assert_eq!(cache.validate(), 0),
                4 => cache.set_debug(Debug::OFF).unwrap(),
                _ => drop(quietline_slab::shrink_all()),
            }
            assert_eq!(cache.stats().active, out.1.len());
        }
        drop(out);
        cache.shrink();
        assert_eq!(cache.stats().slabs, 0);
        Ok(())
    });
}

#[test]
fn objects_that_wait_for_a_grace_period() {
    quietline_testing::isolated!();
    each_fault(10, || {
        let options = Options {
            sheaf_capacity: 4,
            release: Some(Hook::new(nothing)),
            ..Options::new("waiting", 64, 8)
        };
        for options in [options, Options { sheaves: false, ..options }] {
            // SAFETY: the hook does nothing.
            let cache = attempt(|| unsafe { RawCache::with_hooks(options) })?;
            for n in 0..30 {
                let object = attempt(|| cache.alloc())?;
                // SAFETY: allocated above, and nobody else knows it.
                unsafe { cache.free_rcu(object) };
                if n == 20 {
                    cache.shrink();
                }
            }
            cache.flush_rcu();
            let stats = cache.stats();
            assert_eq!((stats.active, stats.waiting), (0, 0), "{stats:?}");
        }
        Ok(())
    });
}

struct Session {
    count: FileRef,
}

// SAFETY: there is no LINK_OFFSET.
unsafe impl Typesafe for Session {
    fn construct() -> Self {
        Self { count: FileRef::dead() }
    }
}

// SAFETY: one count, dead at first, touched by nobody else.
unsafe impl Counted for Session {
    fn references(&self) -> &FileRef {
        &self.count
    }
}

#[test]
fn typed_caches() {
    quietline_testing::isolated!();
    each_fault(10, || {
        let domain = rcu::global().unwrap();
        let cache = attempt(|| Cache::<Box<u64>>::new("typed"))?;
        let slot = attempt(|| cache.alloc(Box::new(1)))?;
        let slots = attempt(|| cache.alloc_bulk::<9>(|i| Box::new(i as u64)))?;
        assert_eq!((**slot, **slots[8]), (1, 8));
        cache.free_bulk(slots);
        drop(slot);

        let cache = attempt(|| RcuCache::<Box<u64>>::new("found by readers", domain))?;
        let place = Place::empty(&cache);
        for n in 0..20 {
            drop(place.replace(attempt(|| cache.alloc(Box::new(n)))?));
            assert_eq!(**place.load(&domain.read()).expect("just stored"), n);
        }
        drop(place);
        cache.flush();

        let cache = attempt(|| TypesafeCache::<Session>::new("typesafe", domain))?;
        let place = TypesafePlace::empty(&cache);
        for _ in 0..5 {
            drop(place.replace(attempt(|| Held::new(&cache, |_| ()))?));
        }
        assert!(place.get(&domain.read()).is_some());
        Ok(())
    });
}

/// What needs no memory does not ask for any.
#[test]
fn what_needs_no_memory() {
    quietline_testing::isolated!();
    let cache = RawCache::new(Options::new("quiet", 64, 8)).unwrap();
    let mut objects: Vec<Entry> = vec![None; 3000];
    cache.alloc_bulk(&mut objects).unwrap();
    let mut text = String::with_capacity(1 << 20);
    let before = heap::bytes_of_thread();
    fault::fail_from(1);
    let mut caches = 0;
    quietline_slab::each_cache(|_| caches += 1);
    assert!(caches >= 1 && cache.stats().active == 3000);
    quietline_slab::slabinfo(&mut text).unwrap();
    writeln!(text).unwrap();
    for (n, object) in objects.iter_mut().enumerate().take(1500) {
        let object = object.take().unwrap();
        // SAFETY: allocated above.
        unsafe { if n % 2 == 0 { cache.free(object) } else { cache.free_rcu(object) } };
    }
    // SAFETY: as above.
    unsafe { cache.free_bulk(&mut objects) };
    cache.flush_rcu();
    quietline_slab::decay();
    cache.shrink();
    let stats = cache.stats();
    assert_eq!((stats.active, stats.waiting, stats.slabs), (0, 0, 0), "{stats:?}");
    drop(cache);
    fault::fail_nth(0);
    assert!(heap::bytes_of_thread() <= before);
}
