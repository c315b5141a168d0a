//! Caches that are made with their first object: by many threads at once, without memory, and
//! beside a fork.
#![cfg(not(loom))]

use quietline_platform::atomic::{AtomicU64, Ordering};
use quietline_platform::{AllocError, fault, pages, percpu};
use quietline_slab::{Entry, Hook, LazyCache, Options, Stats, Typesafe, TypesafeCache, each_cache};
use quietline_sync::rcu::{self, Domain};
use quietline_testing::heap;
use std::collections::BTreeSet;
use std::ptr::NonNull;
use std::sync::Barrier;
use std::sync::atomic::AtomicBool;
use std::thread;

const THREADS: usize = 4;
const ROUNDS: usize = if cfg!(miri) { 2 } else { 300 };

fn options(domain: &'static Domain) -> Options {
    Options { rcu: Some(domain), sheaf_capacity: 16, ..Options::new("lazy", 128, 64) }
}

fn cache() -> LazyCache {
    // SAFETY: there is no hook.
    unsafe { LazyCache::new(options, rcu::global().unwrap()) }
}

fn caches(name: &str) -> usize {
    let mut n = 0;
    each_cache(|stats: Stats| n += usize::from(*stats.name == *name));
    n
}

/// What this thread and the library hold: bytes in pages, on the heap, and of per-CPU words.
fn held() -> (usize, isize, usize) {
    rcu::global().unwrap().barrier();
    (pages::usage().used, heap::bytes_of_thread(), percpu::allocated())
}

#[test]
fn a_cache_that_is_not_used_holds_nothing() {
    quietline_testing::isolated!();
    // The list of caches is made with the first one.
    cache().get_or_make().unwrap();
    let before = held();
    let lazy = cache();
    let stats = lazy.stats();
    assert_eq!((stats.id, &*stats.name, stats.size, stats.object_size), (0, "lazy", 128, 128));
    let counts = [stats.slabs, stats.partial_slabs, stats.places, stats.active, stats.cached];
    assert_eq!((counts, stats.waiting, stats.refills), ([0; 5], 0, 0));
    lazy.shrink();
    lazy.flush_rcu();
    assert!(lazy.try_alloc().is_none() && lazy.made().is_none());
    // SAFETY: there is no object.
    unsafe { lazy.free_bulk(&mut [None; 3]) };
    assert_eq!((held(), caches("lazy")), (before, 0));
    let object = lazy.alloc().unwrap();
    assert_eq!((lazy.stats().active, caches("lazy")), (1, 1));
    let used = lazy.stats();
    assert_eq!((stats.tunables, stats.slab_size), (used.tunables, used.slab_size));
    // SAFETY: allocated above.
    unsafe { lazy.free(object) };
    drop(lazy);
    assert_eq!((held(), caches("lazy")), (before, 0));
}

/// Each allocation of the first calls fails once: nothing is lost, and the next call works.
#[test]
fn the_first_use_without_memory_changes_nothing() {
    quietline_testing::isolated!();
    type Call = fn(&LazyCache) -> Result<(), AllocError>;
    let calls: [Call; 3] = [
        |lazy| {
            let object = lazy.alloc()?;
            // SAFETY: allocated above.
            unsafe { lazy.free_rcu(object) };
            Ok(())
        },
        |lazy| {
            let mut objects: [Entry; 5] = [Some(NonNull::dangling()); 5];
            let filled = lazy.alloc_bulk(&mut objects);
            assert_eq!(objects.iter().flatten().count(), if filled.is_ok() { 5 } else { 0 });
            // SAFETY: allocated above.
            unsafe { lazy.free_bulk(&mut objects) };
            filled
        },
        |lazy| {
            // SAFETY: objects have 128 bytes.
            let object = unsafe { lazy.alloc_with(|| 7_u64) }?;
            // SAFETY: as above.
            unsafe {
                assert_eq!(object.read(), 7);
                lazy.free(object.cast());
            }
            Ok(())
        },
    ];
    for call in calls {
        call(&cache()).unwrap();
        let before = held();
        let mut failed = 0;
        for nth in 1.. {
            let lazy = cache();
            fault::fail_nth(nth);
            let result = call(&lazy);
            let over = fault::armed();
            fault::fail_nth(0);
            failed += usize::from(result.is_err());
            call(&lazy).unwrap();
            lazy.flush_rcu();
            assert_eq!(lazy.stats().active, 0, "{nth}");
            drop(lazy);
            assert_eq!(held(), before, "{nth}");
            if over {
                break;
            }
        }
        assert!(failed >= 3, "a cache, its words and a slab: {failed}");
    }
}

/// Calls `f` in threads that begin together. In every third thread of every other round the second
/// allocation from now on fails.
fn meet<R: Send>(round: usize, f: impl Fn(usize) -> R + Sync) -> Vec<R> {
    let barrier = Barrier::new(THREADS);
    let run = |thread: usize| {
        let fails = round % 2 == 1 && thread.is_multiple_of(3);
        barrier.wait();
        fault::fail_nth(if fails { 1 + (round as u64 / 2) % 6 } else { 0 });
        let result = f(thread);
        fault::fail_nth(0);
        result
    };
    thread::scope(|scope| {
        let run = &run;
        let threads: Vec<_> = (0..THREADS).map(|n| scope.spawn(move || run(n))).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    })
}

/// All threads get objects of one cache, each another one, and free them in each way.
#[test]
fn first_objects_meet() {
    quietline_testing::isolated!();
    for round in 0..ROUNDS {
        let lazy = cache();
        let objects = meet(round, |thread| {
            let mut objects: [Entry; 3] = [None; 3];
            match thread {
                0 => lazy.alloc_bulk(&mut objects).unwrap_or(()),
                _ => objects.fill_with(|| lazy.alloc().ok()),
            }
            for object in objects.iter().flatten() {
                // SAFETY: ours, of 128 bytes.
                unsafe { object.write_bytes(thread as u8, 128) };
            }
            objects.map(|object| object.map(|object| object.as_ptr().addr()))
        });
        let objects: Vec<usize> = objects.into_iter().flatten().flatten().collect();
        let distinct: BTreeSet<_> = objects.iter().collect();
        assert_eq!((distinct.len(), caches("lazy")), (objects.len(), 1), "{round}");
        assert_eq!(lazy.stats().active, objects.len(), "{round}");
        // Each is freed by another thread than has allocated it.
        let share = objects.len().div_ceil(THREADS).max(1);
        meet(0, |thread| {
            for &object in objects.chunks(share).nth(thread).unwrap_or(&[]) {
                let object = NonNull::new(std::ptr::with_exposed_provenance_mut(object)).unwrap();
                // SAFETY: allocated above, and freed once.
                unsafe { if thread % 2 == 0 { lazy.free(object) } else { lazy.free_rcu(object) } }
            }
        });
        lazy.flush_rcu();
        assert_eq!(lazy.stats().active, 0, "{round}");
    }
}

struct Session(AtomicU64);

const BORN: u64 = 0x5e55;

// SAFETY: there is no LINK_OFFSET.
unsafe impl Typesafe for Session {
    fn construct() -> Self {
        Self(AtomicU64::new(BORN))
    }
}

/// Objects of a typesafe cache are constructed, whichever thread made the cache.
#[test]
fn first_typesafe_objects_meet() {
    quietline_testing::isolated!();
    for round in 0..ROUNDS {
        let options = |domain| {
            TypesafeCache::<Session>::raw_options(Options::of::<Session>("lazy_session"), domain)
        };
        // SAFETY: the hooks are for sessions.
        let lazy = unsafe { LazyCache::new(options, rcu::global().unwrap()) };
        let made = meet(round, |_| {
            let Ok(session) = lazy.alloc() else { return 0 };
            // SAFETY: a constructed session.
            let value = unsafe { session.cast::<Session>().as_ref() }.0.load(Ordering::Relaxed);
            assert_eq!(value, BORN);
            // SAFETY: allocated above.
            unsafe { lazy.free(session) };
            1
        });
        assert!(made.iter().sum::<usize>() >= THREADS / 2, "{round}");
        assert_eq!(lazy.stats().active, 0);
    }
}

/// Options with a hook have it called for objects of a cache that is made late.
#[test]
fn objects_are_released_after_their_grace_period() {
    quietline_testing::isolated!();
    static RELEASED: AtomicU64 = AtomicU64::new(0);
    fn release(_: NonNull<u8>) {
        RELEASED.fetch_add(1, Ordering::Relaxed);
    }
    let options = |domain| Options { release: Some(Hook::new(release)), ..options(domain) };
    // SAFETY: the hook touches no object.
    let lazy = unsafe { LazyCache::new(options, rcu::global().unwrap()) };
    for _ in 0..40 {
        let object = lazy.alloc().unwrap();
        // SAFETY: allocated above, and seen by no reader.
        unsafe { lazy.free_rcu(object) };
    }
    lazy.flush_rcu();
    assert_eq!((RELEASED.load(Ordering::Relaxed), lazy.stats().active), (40, 0));
}

/// A child that was forked while another thread made the cache makes it, or uses it.
#[test]
fn a_fork_beside_the_first_use() {
    quietline_testing::isolated!();
    for round in 0..100 {
        let (lazy, stop, barrier) = (cache(), AtomicBool::new(false), Barrier::new(2));
        thread::scope(|scope| {
            scope.spawn(|| {
                barrier.wait();
                while !stop.load(Ordering::Relaxed) {
                    let object = lazy.alloc().unwrap();
                    // SAFETY: allocated above.
                    unsafe { lazy.free(object) };
                }
            });
            barrier.wait();
            // SAFETY: the child calls only what is under test, and leaves by _exit. A child that
            // hangs is ended by the alarm.
            let status = unsafe {
                let pid = libc::fork();
                if pid == 0 {
                    libc::alarm(20);
                    let objects: Vec<_> = (0..100).filter_map(|_| lazy.alloc().ok()).collect();
                    let all = objects.len() == 100;
                    objects.into_iter().for_each(|object| lazy.free(object));
                    lazy.shrink();
                    libc::_exit(i32::from(!all));
                }
                let mut status = 0;
                assert_eq!(libc::waitpid(pid, &mut status, 0), pid);
                status
            };
            stop.store(true, Ordering::Relaxed);
            assert_eq!(status, 0, "{round}");
        });
    }
}
