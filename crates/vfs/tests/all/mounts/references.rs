//! Property 4: a mount's count is never zero by mistake, and one put is the last.

use quietline_vfs::Mount;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed, Ordering::SeqCst};
use std::sync::{Barrier, mpsc};

/// Keeps the calling thread on one CPU, if there is one of that number.
fn pin(cpu: usize) {
    let mut set = rustix::thread::CpuSet::new();
    set.set(cpu % std::thread::available_parallelism().map_or(1, |n| n.get()));
    // A machine that does not let us leaves the thread where it is: the test is weaker then, not wrong.
    let _ = rustix::thread::sched_setaffinity(None, &set);
}

#[test]
fn an_internal_mount_is_not_counted() {
    let mount = Mount::internal("sockfs");
    mount.get();
    assert!(mount.is_internal() && mount.references() == 0);
    assert!(!mount.put() && !mount.detach());
}

#[test]
fn the_last_put_is_told() {
    let mount = Mount::ordinary("ramfs");
    assert_eq!((mount.is_internal(), mount.references()), (false, 1));
    mount.get();
    assert!(!mount.put(), "the tree has one");
    mount.get();
    assert!(!mount.detach(), "the file has one");
    assert!(!mount.detach(), "and it is detached already");
    assert_eq!(mount.references(), 1);
    assert!(mount.put());
    assert!(!mount.detach());
    let unused = Mount::ordinary("ramfs");
    assert!(unused.detach());
}

/// A reference is taken on one CPU and given back on another, over and over, and at some time in between the mount is
/// detached. The destroyer must find nobody left.
#[test]
fn references_that_cross_cpus() {
    for round in 0..quietline_testing::scaled(30) {
        let mount = Mount::ordinary("ramfs");
        let (held, destroyed, start) = (AtomicU64::new(0), AtomicU32::new(0), Barrier::new(4));
        // Who is told that it was the last put checks that nobody holds a reference.
        let put = || {
            held.fetch_sub(1, SeqCst);
            if mount.put() {
                assert_eq!(held.load(SeqCst), 0, "destroyed while it was held");
                destroyed.fetch_add(1, Relaxed);
            }
        };
        let get = || {
            held.fetch_add(1, SeqCst);
            mount.get();
        };
        std::thread::scope(|s| {
            let (there, from_here) = mpsc::channel();
            let (back, from_there) = mpsc::channel();
            // Before the mount is detached each thread has a reference from which it takes others.
            (0..3).for_each(|_| get());
            s.spawn(|| {
                let there = there;
                pin(0);
                start.wait();
                for _ in 0..200 {
                    get();
                    there.send(()).unwrap();
                }
                put();
                drop(there);
                from_there.into_iter().for_each(|()| put());
            });
            s.spawn(|| {
                let back = back;
                pin(1);
                start.wait();
                for () in from_here {
                    get();
                    put();
                    // Another for this one: more are always coming than going.
                    get();
                    put();
                    back.send(()).unwrap();
                }
                put();
            });
            s.spawn(|| {
                start.wait();
                for _ in 0..100 {
                    get();
                    std::thread::yield_now();
                    put();
                }
                put();
            });
            start.wait();
            for _ in 0..round {
                std::thread::yield_now();
            }
            if mount.detach() {
                assert_eq!(held.load(SeqCst), 0, "destroyed while it was held");
                destroyed.fetch_add(1, Relaxed);
            }
        });
        assert_eq!((destroyed.load(Relaxed), mount.references()), (1, 0), "round {round}");
    }
}

/// One reference, always held by somebody: handed from CPU to CPU, with a new one taken there before the old one is
/// put here. The sums are never equal until the end.
#[test]
fn a_reference_that_wanders() {
    for _ in 0..quietline_testing::scaled(4) {
        let mount = Mount::ordinary("ramfs");
        mount.get();
        assert!(!mount.detach());
        let turn = AtomicU64::new(0);
        const TURNS: u64 = 300;
        std::thread::scope(|s| {
            for me in 0..2 {
                let (mount, turn) = (&mount, &turn);
                s.spawn(move || {
                    pin(me as usize);
                    loop {
                        match turn.load(SeqCst) {
                            TURNS => return,
                            now if now % 2 == me => {
                                mount.get();
                                assert!(!mount.put(), "the wanderer is still there");
                                turn.store(now + 1, SeqCst);
                            }
                            _ => std::thread::yield_now(),
                        }
                    }
                });
            }
        });
        assert_eq!(mount.references(), 1);
        assert!(mount.put());
    }
}
