//! Checks are switched on and off while threads are everywhere in a cache: nothing is reported that is not so, and nothing
//! is lost.
#![cfg(not(loom))]

use crate::support::{Random, Stop, fill, is_filled, stress_time};
use quietline_slab::{Debug, Entry, Options, RawCache, set_violation_handler};
use std::ptr::NonNull;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

static REPORTS: AtomicUsize = AtomicUsize::new(0);

fn count_reports() {
    set_violation_handler(|violation| {
        if REPORTS.fetch_add(1, Ordering::Relaxed) < 5 {
            eprintln!("{violation}");
        }
    });
}

struct Shared(NonNull<u8>);

// SAFETY: whoever puts an object where others find it gives it away.
unsafe impl Send for Shared {}

/// Allocates, writes, reads, frees, singly, in bulk and for one another, until it is time. Counts
/// its rounds in `done`.
fn churn(
    cache: &RawCache,
    size: usize,
    me: u64,
    passed: &Mutex<Vec<Shared>>,
    done: &AtomicU64,
    stop: &AtomicBool,
) {
    let mut random = Random::new(me);
    let mut mine: Vec<NonNull<u8>> = Vec::new();
    let free = |object: NonNull<u8>, byte: u8| {
        assert!(is_filled(object, size, byte));
        // SAFETY: it is ours.
        unsafe { cache.free(object) };
    };
    while !stop.load(Ordering::Relaxed) {
        done.fetch_add(1, Ordering::Relaxed);
        match random.below(8) {
            0..3 => {
                let object = cache.alloc().unwrap();
                fill(object, size, me as u8);
                mine.push(object);
            }
            3..5 if !mine.is_empty() => free(mine.swap_remove(random.below(mine.len())), me as u8),
            5 => {
                let mut objects: Vec<Entry> = vec![None; random.below(70)];
                cache.alloc_bulk(&mut objects).unwrap();
                objects.iter().flatten().for_each(|object| fill(*object, size, me as u8));
                mine.extend(objects.into_iter().flatten());
            }
            6 => {
                let n = random.below(90).min(mine.len());
                let mut objects: Vec<Entry> = mine.drain(..n).map(Some).collect();
                assert!(objects.iter().flatten().all(|object| is_filled(*object, size, me as u8)));
                // SAFETY: they are ours.
                unsafe { cache.free_bulk(&mut objects) };
            }
            _ => {
                let given = mine.pop().map(|object| {
                    fill(object, size, 0xee);
                    Shared(object)
                });
                let taken = {
                    let mut passed = passed.lock().unwrap();
                    let taken = if passed.len() > 20 { passed.pop() } else { None };
                    passed.extend(given);
                    taken
                };
                if let Some(Shared(object)) = taken {
                    free(object, 0xee);
                }
            }
        }
    }
    for object in mine {
        free(object, me as u8);
    }
}

fn switch_while_churning(time: Duration, options: Options) {
    count_reports();
    let cache = RawCache::new(options).unwrap();
    let (stop, passed) = (AtomicBool::new(false), Mutex::new(Vec::new()));
    let (mut turns, begin) = (0u32, Instant::now());
    let done = [const { AtomicU64::new(0) }; 2];
    thread::scope(|scope| {
        let _stop = Stop(&stop);
        let workers = [1, 2].map(|me| {
            scope.spawn({
                let (c, p, d, s) = (&cache, &passed, &done[me as usize - 1], &stop);
                move || churn(c, options.size, me, p, d, s)
            })
        });
        let mut random = Random::new(9);
        let enough =
            |turns| turns > 20 && done.iter().all(|done| done.load(Ordering::Relaxed) > 100);
        while begin.elapsed() < time || !enough(turns) {
            let debug = Debug::from_bits_truncate(random.next() as u8);
            cache.set_debug(if random.below(3) == 0 { Debug::OFF } else { debug }).unwrap();
            turns += 1;
            match random.below(4) {
                0 => assert_eq!(cache.validate(), 0),
                1 => cache.shrink(),
                2 => thread::sleep(Duration::from_micros(random.below(3000) as u64)),
                _ => thread::yield_now(),
            }
            if workers.iter().any(|worker| worker.is_finished()) {
                break;
            }
        }
        stop.store(true, Ordering::Relaxed);
        workers.into_iter().for_each(|worker| worker.join().unwrap());
    });
    println!("{turns} turns, {done:?} rounds");
    for Shared(object) in passed.into_inner().unwrap() {
        // SAFETY: given away by whoever had it.
        unsafe { cache.free(object) };
    }
    assert_eq!(cache.validate(), 0);
    cache.set_debug(Debug::OFF).unwrap();
    cache.shrink();
    assert_eq!((cache.stats().active, cache.stats().slabs), (0, 0));
    drop(cache);
    assert_eq!(REPORTS.load(Ordering::Relaxed), 0);
}

#[test]
fn nothing_is_found_where_nothing_is_wrong() {
    quietline_testing::isolated!();
    switch_while_churning(stress_time(1000), Options::new("switch", 72, 8));
}

#[test]
fn nor_without_sheaves() {
    quietline_testing::isolated!();
    let options = Options { sheaves: false, ..Options::new("switch", 300, 8) };
    switch_while_churning(stress_time(500), options);
}

/// Two threads at the switch.
#[test]
fn two_at_the_switch() {
    quietline_testing::isolated!();
    count_reports();
    let cache = RawCache::new(Options::new("two", 40, 8)).unwrap();
    thread::scope(|scope| {
        for debug in [Debug::ALL, Debug::RED_ZONE] {
            let cache = &cache;
            scope.spawn(move || {
                for _ in 0..200 {
                    cache.set_debug(debug).unwrap();
                    let object = cache.alloc().unwrap();
                    cache.set_debug(Debug::OFF).unwrap();
                    // SAFETY: allocated above.
                    unsafe { cache.free(object) };
                }
            });
        }
    });
    assert_eq!((cache.debug(), cache.stats().active), (Debug::OFF, 0));
    assert_eq!(REPORTS.load(Ordering::Relaxed), 0);
}

/// A child forked meanwhile uses the cache at once, and its checks.
#[test]
fn fork() {
    quietline_testing::isolated!();
    count_reports();
    let cache = RawCache::new(Options::new("fork", 100, 4)).unwrap();
    let (stop, passed) = (AtomicBool::new(false), Mutex::new(Vec::new()));
    let done = AtomicU64::new(0);
    thread::scope(|scope| {
        let _stop = Stop(&stop);
        let (cache, passed, stop) = (&cache, &passed, &stop);
        let done = &done;
        scope.spawn(move || churn(cache, 100, 1, passed, done, stop));
        scope.spawn(move || {
            while !stop.load(Ordering::Relaxed) {
                cache.set_debug(Debug::ALL).unwrap();
                cache.set_debug(Debug::OFF).unwrap();
            }
        });
        for round in 0..40 {
            // SAFETY: the child calls only what is under test, and leaves by _exit. A child that hangs is ended by the
            // alarm.
            let status = unsafe {
                let pid = libc::fork();
                if pid == 0 {
                    libc::alarm(20);
                    let mut well = true;
                    for debug in [Debug::RED_ZONE, Debug::OFF, Debug::POISON] {
                        cache.set_debug(debug).unwrap();
                        let Ok(object) = cache.alloc() else { libc::_exit(1) };
                        cache.free(object);
                        well &= cache.validate() == 0;
                    }
                    libc::_exit(if well { 0 } else { 2 });
                }
                let mut status = 0;
                assert_eq!(libc::waitpid(pid, &mut status, 0), pid);
                status
            };
            assert_eq!(status, 0, "child of round {round}");
        }
    });
}
