//! Memory that waits for a grace period: calls that free run callbacks when they return, outside of
//! all locks and read-side critical sections.

use quietline::abi::*;
use quietline::{Config, Kernel, Process};
use quietline_sync::rcu;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

fn process() -> Process {
    Kernel::boot(Config::default()).unwrap().process().unwrap()
}

fn make_and_remove(p: &Process, name: &str) {
    let fd = p.open(name, O_CREAT | O_RDWR, 0o600).unwrap();
    p.close(fd).unwrap();
    p.unlink(name).unwrap();
}

/// Nobody polls: what waits is bounded all the same.
#[test]
fn calls_bound_what_waits() {
    quietline_testing::isolated!();
    let domain = rcu::global().unwrap();
    let p = process();
    let bound = 2 * domain.backlog_limit();
    let (mut most, mut made) = (0, 0);
    // A dentry and an inode each.
    while made < 2 * bound {
        (0..500).for_each(|_| make_and_remove(&p, "/file"));
        made += 500;
        most = most.max(domain.backlog());
    }
    assert!(most <= bound, "{most} objects waited, the bound is {bound}");
}

/// Callbacks of the program run when calls return: they may wait for a grace period of the walks, and
/// call the process that is just returning, in the directory of its call.
#[test]
fn callbacks_run_outside_of_locks_and_sections() {
    quietline_testing::isolated!();
    let domain = rcu::global().unwrap();
    let kernel = Kernel::boot(Config::default().privileged(true)).unwrap();
    let p = Arc::new(kernel.process().unwrap());
    p.mkdir("/dir", 0o700).unwrap();
    let ran = Arc::new(AtomicUsize::new(0));
    let mut queued = 0;
    for round in 0..10_000 {
        if round % 100 == 0 {
            let (p, ran) = (p.clone(), ran.clone());
            let callback = move || {
                domain.synchronize();
                make_and_remove(&p, "/dir/callback");
                ran.fetch_add(1, Relaxed);
            };
            domain.defer(callback).unwrap();
            queued += 1;
        }
        make_and_remove(&p, "/dir/file");
        p.setgroups(&[round]).unwrap();
    }
    assert!(ran.load(Relaxed) > queued / 2, "{} of {queued}", ran.load(Relaxed));
    domain.barrier();
    assert_eq!(ran.load(Relaxed), queued);
}
