//! A child process needs no thread of its parent: grace periods end and callbacks run at once.
#![cfg(not(loom))]

use quietline_sync::rcu::{self, BATCH, Domain};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Barrier};
use std::thread;

unsafe extern "C" {
    fn fork() -> i32;
    fn waitpid(pid: i32, status: *mut i32, options: i32) -> i32;
    fn alarm(seconds: u32) -> u32;
    fn _exit(status: i32) -> !;
}

/// Runs `f` in a child process, which ends with it; whether `f` returned true within half a minute.
fn in_child(f: impl FnOnce() -> bool) -> bool {
    // SAFETY: the child calls `f` and leaves without unwinding into the test harness.
    unsafe {
        match fork() {
            0 => {
                alarm(30);
                let ok = std::panic::catch_unwind(std::panic::AssertUnwindSafe(f)).unwrap_or(false);
                _exit(if ok { 0 } else { 1 })
            }
            -1 => panic!("fork: {}", std::io::Error::last_os_error()),
            child => {
                let mut status = -1;
                waitpid(child, &mut status, 0) == child && status == 0
            }
        }
    }
}

fn count(domain: &Domain, n: usize, ran: &Arc<AtomicUsize>) {
    for _ in 0..n {
        let ran = ran.clone();
        domain
            .defer(move || {
                let _ = ran.fetch_add(1, Ordering::Relaxed);
            })
            .unwrap();
    }
}

#[test]
fn a_child_has_no_readers_but_all_callbacks() {
    quietline_testing::isolated!();
    let domain = Domain::new().unwrap();
    let ran = Arc::new(AtomicUsize::new(0));
    let n = 3 * BATCH as usize + 5;
    let (open, close) = (Barrier::new(4), Barrier::new(4));
    thread::scope(|s| {
        for _ in 0..3 {
            s.spawn(|| {
                let _guard = domain.read();
                open.wait();
                close.wait();
            });
        }
        open.wait();
        count(&domain, n, &ran);
        // A grace period is on, and waits for the three.
        domain.poll();
        let mine = domain.read();
        let child = || {
            let none = domain.open_sections() == 0 && domain.backlog() == n as u64;
            domain.synchronize();
            drop(mine);
            let _again = domain.read();
            let one = domain.open_sections() == 1;
            drop(_again);
            domain.barrier();
            let all = ran.load(Ordering::Relaxed) == n && domain.backlog() == 0;
            // A child of the child, and there the same once more.
            let grandchild = || {
                count(&domain, 5, &ran);
                domain.barrier();
                ran.load(Ordering::Relaxed) == n + 5 && domain.open_sections() == 0
            };
            let _held = domain.read();
            none && one && all && in_child(grandchild)
        };
        assert!(in_child(child));
        // The parent is as it was, but for this thread's own guard, which went with the closure.
        assert_eq!(ran.load(Ordering::Relaxed), 0);
        assert_eq!(domain.open_sections(), 3);
        close.wait();
    });
    domain.barrier();
    assert_eq!(ran.load(Ordering::Relaxed), n);
}

/// Children forked while other threads are anywhere inside the machine, and from a callback.
#[test]
fn children_of_a_busy_parent() {
    quietline_testing::isolated!();
    let domain = Domain::leaked().unwrap();
    let stop = AtomicBool::new(false);
    thread::scope(|s| {
        for i in 0..3 {
            let stop = &stop;
            s.spawn(move || {
                while !stop.load(Ordering::Relaxed) {
                    match i {
                        0 => domain.synchronize(),
                        1 => {
                            domain.defer(|| {}).unwrap();
                            if domain.is_pending() {
                                rcu::run_pending(&[domain]);
                            }
                        }
                        _ => drop(domain.read()),
                    }
                }
            });
        }
        for _ in 0..40 {
            assert!(in_child(|| {
                let ran = Arc::new(AtomicUsize::new(0));
                count(domain, 2 * BATCH as usize, &ran);
                domain.barrier();
                ran.load(Ordering::Relaxed) == 2 * BATCH as usize
                    && !domain.poll()
                    && domain.open_sections() == 0
            }));
        }
        stop.store(true, Ordering::Relaxed);
    });

    let (forked, alive) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let ok = forked.clone();
    let fork_here = move || {
        // The barrier would wait for the callback that it is called in; a grace period does not.
        ok.store(
            usize::from(in_child(|| {
                (0..5).all(|_| {
                    domain.synchronize();
                    true
                })
            })),
            Ordering::Relaxed,
        );
    };
    count(domain, 10, &alive);
    domain.defer(fork_here).unwrap();
    count(domain, 10, &alive);
    domain.barrier();
    assert_eq!((forked.load(Ordering::Relaxed), alive.load(Ordering::Relaxed)), (1, 20));
    assert_eq!(domain.backlog(), 0);
}

/// Callbacks do not nest, so a callback cannot wait for others, of any domain. It ends the process
/// and does not unwind: what the caller frees next may be what they need.
#[test]
fn a_barrier_inside_a_callback_ends_the_process() {
    quietline_testing::isolated!();
    const SIGABRT: i32 = 6;
    for same in [true, false] {
        // SAFETY: the child has one thread and does not return.
        let child = unsafe { fork() };
        if child == 0 {
            let domains = [Domain::leaked().unwrap(), Domain::leaked().unwrap()];
            domains[0].defer(move || domains[usize::from(!same)].barrier()).unwrap();
            domains[0].barrier();
            // SAFETY: leaves at once.
            unsafe { _exit(0) };
        }
        let mut status = 0;
        // SAFETY: the child is this process's.
        assert_eq!(unsafe { waitpid(child, &mut status, 0) }, child);
        assert_eq!(status & 0x7f, SIGABRT, "{status:#x}");
    }
}
