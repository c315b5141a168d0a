//! Grace periods while the kernel refuses the barrier of the machine to a thread.
#![cfg(not(loom))]

use quietline_platform::percpu::{self, Body};
use quietline_sync::rcu::{Domain, Stall, set_stall_handler};
use quietline_testing::refuse_membarrier;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

/// Calls `f` in a thread to which the kernel refuses `membarrier`, and returns whether it could be
/// refused.
fn refused(f: impl FnOnce() + Send) -> bool {
    thread::scope(|s| {
        let thread = s.spawn(|| {
            let refused = refuse_membarrier();
            if refused {
                f();
            }
            refused
        });
        thread.join().expect("a refused barrier is no panic")
    })
}

#[test]
fn a_refused_barrier_ends_no_grace_period() {
    quietline_testing::isolated!();
    let domain = Domain::new().unwrap();
    // The choice of the body is made while the kernel allows the barrier.
    let fallible = percpu::active() != Body::Fallback;
    let ran = Arc::new(AtomicUsize::new(0));
    let reader = domain.read();
    let seq = domain.start_poll_synchronize();
    let count = ran.clone();
    domain
        .defer(move || {
            let _ = count.fetch_add(1, Ordering::Relaxed);
        })
        .unwrap();
    let possible = refused(|| {
        for _ in 0..3 {
            domain.poll();
            assert!(!domain.poll_state_synchronize(seq), "a reader is inside");
        }
    });
    if !(possible && fallible) {
        println!("skipped: no barrier that can be refused");
    }
    // A thread to which the barrier is allowed goes on from there, and waits for the reader.
    for _ in 0..100 {
        domain.poll();
        assert!(!domain.poll_state_synchronize(seq), "a reader is inside");
        assert_eq!(ran.load(Ordering::Relaxed), 0, "a reader is inside");
    }
    drop(reader);
    domain.synchronize();
    assert!(domain.poll_state_synchronize(seq));
    domain.barrier();
    assert_eq!(ran.load(Ordering::Relaxed), 1);
    // A grace period that one thread begins and another goes on with is a whole one.
    for _ in 0..10 {
        let reader = domain.read();
        let seq = domain.start_poll_synchronize();
        refused(|| domain.advance());
        for _ in 0..10 {
            domain.advance();
        }
        assert!(!domain.poll_state_synchronize(seq), "a reader is inside");
        drop(reader);
        domain.synchronize();
        assert!(domain.poll_state_synchronize(seq));
    }
    assert_eq!(domain.open_sections(), 0);
}

/// A child process that is forked between the flip and the fence has no reader to wait for, and
/// runs what was queued before.
#[test]
fn a_fork_between_flip_and_fence_loses_no_callback() {
    quietline_testing::isolated!();
    let domain = Domain::new().unwrap();
    let ran = Arc::new(AtomicUsize::new(0));
    let queue = || {
        let ran = ran.clone();
        domain
            .defer(move || {
                let _ = ran.fetch_add(1, Ordering::Relaxed);
            })
            .unwrap();
    };
    let finish = |expected| {
        domain.barrier();
        assert_eq!(ran.load(Ordering::Relaxed), expected);
        assert_eq!(domain.backlog(), 0);
        assert!(!domain.poll());
    };
    queue();
    refused(|| domain.advance());
    queue();
    // SAFETY: the child calls nothing that the parent's other threads could hold a lock of: there
    // are none.
    match unsafe { libc::fork() } {
        0 => {
            queue();
            let done = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| finish(3))).is_ok();
            // SAFETY: ends the child without unwinding into the test harness.
            unsafe { libc::_exit(i32::from(!done)) }
        }
        -1 => panic!("fork: {}", std::io::Error::last_os_error()),
        child => {
            let mut status = -1;
            // SAFETY: waits for the child just made.
            assert_eq!(unsafe { libc::waitpid(child, &mut status, 0) }, child);
            assert_eq!(status, 0, "the child's callbacks");
        }
    }
    finish(2);
}

/// A thread that waits while the barrier is refused to it reports why, and returns when another
/// thread has ended the grace period.
#[test]
fn a_waiter_without_the_barrier_reports_it() {
    quietline_testing::isolated!();
    static REPORTED: AtomicBool = AtomicBool::new(false);
    fn note(stall: &Stall) {
        REPORTED.fetch_or(stall.fence_refused, Ordering::Relaxed);
    }
    let domain = Domain::new().unwrap();
    domain.set_stall_patience(Duration::from_millis(20));
    set_stall_handler(note);
    if percpu::active() == Body::Fallback {
        println!("skipped: no barrier that can be refused");
        return;
    }
    let over = AtomicBool::new(false);
    thread::scope(|s| {
        s.spawn(|| {
            refused(|| domain.synchronize());
            over.store(true, Ordering::Relaxed);
        });
        let start = Instant::now();
        while !REPORTED.load(Ordering::Relaxed) && !over.load(Ordering::Relaxed) {
            assert!(start.elapsed() < Duration::from_secs(60), "no report");
            thread::yield_now();
        }
        // The kernel has no filters, or the waiter still waits.
        domain.synchronize();
    });
}
