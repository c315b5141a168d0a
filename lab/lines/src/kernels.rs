//! Contended and uncontended kernels of a few instructions: what the model is held against a real machine with, and
//! mistakes planted for the gate to find.

use crate::operation::{Allowance, Operation, Period, Scene};
use quietline_platform::atomic::{AtomicU64, Ordering};
use quietline_sync::{Lockref, SpinLock};
use std::sync::Arc;

#[repr(align(128))]
struct Apart<T>(T);

pub(crate) fn operations() -> Vec<Operation> {
    let of = |name, says, scene: fn(usize) -> Scene| Operation {
        period: Period::Short,
        ..Operation::new(name, says, Allowance::Any, scene)
    };
    vec![
        of("shared-counter", "one atomic addition to a counter that all share", |_| {
            shared_counter()
        }),
        of("padded-counters", "one atomic addition to a counter of the CPU's own", padded_counters),
        of(
            "neighbour-counters",
            "the same, but the counters lie side by side: false sharing",
            neighbour_counters,
        ),
        of("spinlock", "a critical section under a test-and-set lock", |_| test_and_set()),
        of("queue-lock", "a critical section under quietline's SpinLock", |_| queue_lock()),
        of("lockref-shared", "get and put of one Lockref by all", |_| lockref_shared()),
    ]
}

fn shared_counter() -> Scene {
    let counter = Arc::new(Apart(AtomicU64::new(0)));
    Box::new(move |_| {
        let counter = Arc::clone(&counter);
        Box::new(move || {
            counter.0.fetch_add(1, Ordering::Relaxed);
        })
    })
}

fn padded_counters(cpus: usize) -> Scene {
    let counters: Arc<Vec<_>> = Arc::new((0..cpus).map(|_| Apart(AtomicU64::new(0))).collect());
    Box::new(move |cpu| {
        let counters = Arc::clone(&counters);
        Box::new(move || {
            counters[cpu].0.fetch_add(1, Ordering::Relaxed);
        })
    })
}

fn neighbour_counters(cpus: usize) -> Scene {
    let lines = (0..cpus.div_ceil(8)).map(|_| Apart([const { AtomicU64::new(0) }; 8]));
    let lines: Arc<Vec<Apart<[AtomicU64; 8]>>> = Arc::new(lines.collect());
    for (i, counter) in lines.iter().flat_map(|line| &line.0).enumerate() {
        quietline_platform::sim::name(counter.as_ptr().addr(), 8, format!("planted counters[{i}]"));
    }
    Box::new(move |cpu| {
        let lines = Arc::clone(&lines);
        Box::new(move || {
            lines[cpu / 8].0[cpu % 8].fetch_add(1, Ordering::Relaxed);
        })
    })
}

/// Words that a critical section changes: under the lock, on a line of their own.
struct Guarded {
    lock: Apart<AtomicU64>,
    value: Apart<AtomicU64>,
}

fn test_and_set() -> Scene {
    let guarded =
        Arc::new(Guarded { lock: Apart(AtomicU64::new(0)), value: Apart(AtomicU64::new(0)) });
    Box::new(move |_| {
        let guarded = Arc::clone(&guarded);
        Box::new(move || {
            // ORDERING: Acquire pairs with the release store below: the last holder's value is seen.
            while guarded.lock.0.swap(1, Ordering::Acquire) != 0 {
                while guarded.lock.0.load(Ordering::Relaxed) != 0 {
                    quietline_platform::hint::spin_loop();
                }
            }
            let value = guarded.value.0.load(Ordering::Relaxed);
            guarded.value.0.store(value + 1, Ordering::Relaxed);
            // ORDERING: pairs with the acquire above.
            guarded.lock.0.store(0, Ordering::Release);
        })
    })
}

fn queue_lock() -> Scene {
    let lock = Arc::new((Apart(SpinLock::new(())), Apart(AtomicU64::new(0))));
    Box::new(move |_| {
        let lock = Arc::clone(&lock);
        Box::new(move || {
            let _held = lock.0.0.lock();
            // Relaxed: under the lock.
            let value = lock.1.0.load(Ordering::Relaxed);
            lock.1.0.store(value + 1, Ordering::Relaxed);
        })
    })
}

fn lockref_shared() -> Scene {
    let lockref = Arc::new(Apart(Lockref::new(1)));
    Box::new(move |_| {
        let lockref = Arc::clone(&lockref);
        Box::new(move || {
            lockref.0.get();
            assert!(lockref.0.put_return().is_some_and(|left| left > 0));
        })
    })
}
