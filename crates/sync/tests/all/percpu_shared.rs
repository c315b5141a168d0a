//! [`PerCpuShared`].
#![cfg(not(loom))]

use quietline_platform::fault;
use quietline_sync::{PerCpuOwner, PerCpuShared};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Barrier};
use std::thread;

/// Counts how often it is dropped.
struct Value(Arc<AtomicUsize>);

impl Drop for Value {
    fn drop(&mut self) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

fn value() -> (PerCpuShared<Value>, Arc<AtomicUsize>) {
    let drops = Arc::new(AtomicUsize::new(0));
    (PerCpuShared::new(Value(drops.clone())).unwrap(), drops)
}

#[test]
fn the_last_owner_drops_the_value() {
    let (first, drops) = value();
    let (one, other) = (first.share().unwrap(), first.share().unwrap());
    drop(one);
    drop(first);
    assert_eq!(drops.load(Ordering::Relaxed), 0);
    drop(other);
    assert_eq!(drops.load(Ordering::Relaxed), 1);
    let (first, drops) = value();
    drop(first.share().unwrap());
    assert_eq!(drops.load(Ordering::Relaxed), 0);
    drop(first);
    assert_eq!(drops.load(Ordering::Relaxed), 1);
}

/// Threads meet at the first use, when the counts are made; owners end on other threads than
/// they began, and after the first owner.
#[test]
fn threads_share_for_the_first_time_at_once() {
    const THREADS: usize = 4;
    for _ in 0..quietline_testing::scaled(500) {
        let (first, drops) = value();
        let barrier = Barrier::new(THREADS);
        let owners: Vec<PerCpuOwner<Value>> = thread::scope(|scope| {
            let share = || {
                barrier.wait();
                (first.share().unwrap(), drop(first.share().unwrap())).0
            };
            let threads: Vec<_> = (0..THREADS).map(|_| scope.spawn(share)).collect();
            threads.into_iter().map(|thread| thread.join().unwrap()).collect()
        });
        drop(first);
        thread::scope(|scope| {
            owners.into_iter().for_each(|owner| drop(scope.spawn(move || drop(owner))));
        });
        assert_eq!(drops.load(Ordering::Relaxed), 1);
    }
}

#[test]
fn each_allocation_may_fail() {
    let mut failures = 0;
    loop {
        let (first, drops) = value();
        fault::fail_nth(failures + 1);
        let owner = first.share();
        let failed = !fault::armed();
        fault::fail_nth(0);
        assert_eq!(owner.is_err(), failed);
        // The next caller makes what is missing.
        let next = first.share().unwrap();
        drop((owner, first));
        assert_eq!(drops.load(Ordering::Relaxed), 0);
        drop(next);
        assert_eq!(drops.load(Ordering::Relaxed), 1);
        if !failed {
            break;
        }
        failures += 1;
    }
    // The table of counts, the owner of the table, and the count of this CPU.
    assert_eq!(failures, 3);
}
