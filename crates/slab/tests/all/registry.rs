//! Every cache of the process is found, and none that is gone. Tests here take turns: they look at the whole process.
#![cfg(not(loom))]

use crate::support::{Stop, each_fault};
use quietline_platform::fault;
use quietline_slab::{Name, Options, RawCache, each_cache, memory_used, shrink_all};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;

fn cache(name: &str, size: usize) -> RawCache {
    RawCache::new(Options::new(name, size, 8)).unwrap()
}

fn names() -> Vec<Name> {
    let mut names = Vec::new();
    each_cache(|stats| names.push(stats.name));
    names
}

#[test]
fn oldest_first_and_none_that_is_gone() {
    quietline_testing::isolated!();
    assert_eq!(names(), Vec::<&str>::new());
    let (a, b, c) = (cache("a", 64), cache("b", 64), cache("c", 64));
    assert_eq!(names(), ["a", "b", "c"]);
    drop(b);
    assert_eq!(names(), ["a", "c"]);
    drop(a);
    let d = cache("d", 64);
    assert_eq!(names(), ["c", "d"]);
    drop(d);
    assert_eq!(names(), ["c"]);
    drop(c);
    assert_eq!(names(), Vec::<&str>::new());
}

/// What is visited may go, and so may its neighbours; what is made meanwhile waits for the next time.
#[test]
fn a_visitor_makes_and_drops_caches() {
    quietline_testing::isolated!();
    let mut old: Vec<_> = ["0", "1", "2", "3", "4", "5"].map(|name| Some(cache(name, 64))).into();
    let mut new = Vec::new();
    let mut seen = Vec::new();
    each_cache(|stats| {
        seen.push(stats.name);
        let at: usize = stats.name.parse().expect("only old ones");
        new.push(cache("new", 128));
        match at {
            // Itself and the next; all before the last but itself.
            0 => old[0..2].fill_with(|| None),
            3 => old[..3].fill_with(|| None),
            4 => old[5] = None,
            _ => {}
        }
    });
    assert_eq!(seen, ["0", "2", "3", "4"]);
    assert_eq!(names(), ["3", "4", "new", "new", "new", "new"]);
    drop((old, new));
    assert_eq!(names(), Vec::<&str>::new());
}

/// Statistics are had when there is no memory.
#[test]
fn needs_no_memory() {
    quietline_testing::isolated!();
    let _cache = cache("memory", 64);
    let mut seen = 0;
    fault::fail_from(1);
    each_cache(|_| seen += 1);
    shrink_all();
    fault::fail_nth(0);
    assert_eq!(seen, 1);
}

/// Whatever fails while a cache is made, it is not there.
#[test]
fn what_cannot_be_made_is_not_there() {
    quietline_testing::isolated!();
    let faults = each_fault(|armed| {
        let made = RawCache::new(Options::new("perhaps", 64, 8));
        let fired = armed && !fault::armed();
        assert!(made.is_ok() != fired);
        assert_eq!(names().len(), usize::from(made.is_ok()));
    });
    assert!(faults >= 2, "{faults}");
}

/// Caches come and go while others look at all of them, and shrink them.
#[test]
fn visitors_beside_makers() {
    quietline_testing::isolated!();
    let before = memory_used();
    let stop = AtomicBool::new(false);
    let (made, seen) = (AtomicUsize::new(0), AtomicUsize::new(0));
    let stays = cache("stays", 64);
    thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                let mut some = Vec::new();
                while !stop.load(Ordering::Relaxed) {
                    let fresh = cache("fleeting", 200);
                    let object = fresh.alloc().unwrap();
                    // SAFETY: allocated above.
                    unsafe { fresh.free(object) };
                    some.push(fresh);
                    if some.len() > 5 {
                        some.remove(made.load(Ordering::Relaxed) % 5);
                    }
                    made.fetch_add(1, Ordering::Relaxed);
                }
            });
        }
        let _stop = Stop(&stop);
        let enough = || made.load(Ordering::Relaxed) > 200 && seen.load(Ordering::Relaxed) > 1000;
        for round in 0.. {
            if round > 300 && enough() {
                break;
            }
            let mut oldest = None;
            each_cache(|stats| {
                oldest = oldest.or(Some(stats.name));
                assert!(
                    matches!((&*stats.name, stats.size), ("stays", 64) | ("fleeting", 200)),
                    "{stats:?}"
                );
                seen.fetch_add(1, Ordering::Relaxed);
            });
            assert_eq!(oldest, Some(Name::new("stays")));
            shrink_all();
        }
    });
    drop(stays);
    assert_eq!((names().len(), memory_used()), (0, before));
}

/// A child forked while caches come and go, and are looked at, makes its own and finds it.
#[test]
fn a_child_looks_at_its_caches() {
    quietline_testing::isolated!();
    let stop = AtomicBool::new(false);
    drop(cache("first", 200));
    thread::scope(|scope| {
        scope.spawn(|| {
            while !stop.load(Ordering::Relaxed) {
                drop(cache("fleeting", 200));
            }
        });
        scope.spawn(|| {
            while !stop.load(Ordering::Relaxed) {
                each_cache(|stats| assert_eq!(stats.active, 0));
            }
        });
        let _stop = Stop(&stop);
        for round in 0..60 {
            // SAFETY: the child calls only what is under test, and leaves by _exit. One that hangs is ended by the alarm.
            let status = unsafe {
                let pid = libc::fork();
                if pid == 0 {
                    libc::alarm(20);
                    let fresh = RawCache::new(Options::new("child", 64, 8));
                    let mut found = false;
                    each_cache(|stats| found |= stats.name == "child");
                    libc::_exit(i32::from(fresh.is_err() || !found));
                }
                let mut status = 0;
                assert_eq!(libc::waitpid(pid, &mut status, 0), pid);
                status
            };
            assert_eq!(status, 0, "child of round {round}");
        }
    });
}
