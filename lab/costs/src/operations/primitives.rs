//! Primitives of `quietline-sync`.

use crate::processes::of_objects;
use crate::{Operation, Scene, Sharing, Worker};
use quietline_sync::rcu::{self, Domain};
use quietline_sync::{
    Counter, FileRef, IdAllocator, Lockref, Seqcount, Shared, SpinLock, WaitQueue,
};
use std::pin::Pin;
use std::sync::Arc;

/// Numbers that a CPU takes at a time.
const IDS: usize = 1024;
/// More increments than a CPU keeps to itself.
const INCREMENTS: usize = 256;

pub(super) fn operations() -> Vec<Operation> {
    let of = |name, about, scene| Operation::new("primitives", name, about, scene);
    vec![
        of("counter-inc-dec", "Counter::inc and dec", counter_pair),
        of("counter-inc-256", "256 of Counter::inc, with the folds", counter_up)
            .repeats(INCREMENTS),
        of("counter-limited", "Counter::limited_add far from the limit, and dec", counter_limited),
        of("counter-read", "Counter::read", counter_read),
        of("ids-next", "IdAllocator::next", ids_next),
        of("ids-next-1024", "1,024 of IdAllocator::next, with a refill", ids_batch).repeats(IDS),
        of("lockref-get-put", "Lockref::get and put_return", lockref),
        of("file-ref-get-put", "FileRef::get and put", file_ref),
        of("shared-clone-drop", "Shared::clone and drop", shared),
        of("seqcount-read", "Seqcount::read_begin and read_retry", seqcount),
        of("spinlock", "SpinLock::lock and unlock", spinlock),
        of("wake-nobody", "WaitQueue::wake_all without a waiter", wake),
        of("rcu-read", "an empty RCU read-side critical section", rcu_read),
        of("rcu-read-nested", "a read-side critical section in another", rcu_read_nested),
        of("rcu-defer", "Domain::defer of a closure of one word", rcu_defer),
    ]
}

/// Object on cache lines of its own.
#[repr(align(128))]
struct Apart<T>(T);

/// Scene of an object on cache lines of its own.
fn apart<T: Send + Sync + 'static>(
    sharing: Sharing,
    create: fn() -> T,
    make: fn(Arc<Apart<T>>) -> Worker,
) -> Scene {
    of_objects(sharing, move || Apart(create()), move |object, _| make(object))
}

fn counter() -> Counter {
    Counter::new().expect("memory for a counter")
}

fn counter_pair(sharing: Sharing) -> Scene {
    of_objects(sharing, counter, |counter, _| {
        Box::new(move || {
            counter.inc();
            counter.dec();
        })
    })
}

fn counter_up(sharing: Sharing) -> Scene {
    of_objects(sharing, counter, |counter, _| {
        Box::new(move || (0..INCREMENTS).for_each(|_| counter.inc()))
    })
}

fn counter_limited(sharing: Sharing) -> Scene {
    of_objects(sharing, counter, |counter, _| {
        Box::new(move || {
            assert!(counter.limited_add(1 << 20, 1));
            counter.dec();
        })
    })
}

fn counter_read(sharing: Sharing) -> Scene {
    let thousand = || {
        let counter = counter();
        counter.add(1000);
        counter
    };
    of_objects(sharing, thousand, |counter, _| Box::new(move || assert_eq!(counter.read(), 1000)))
}

fn ids() -> IdAllocator {
    IdAllocator::new().expect("memory for an allocator")
}

fn ids_next(sharing: Sharing) -> Scene {
    of_objects(sharing, ids, |ids, _| Box::new(move || assert_ne!(ids.next(), 0)))
}

fn ids_batch(sharing: Sharing) -> Scene {
    of_objects(sharing, ids, |ids, _| {
        Box::new(move || (0..IDS).for_each(|_| assert_ne!(ids.next(), 0)))
    })
}

fn lockref(sharing: Sharing) -> Scene {
    apart(
        sharing,
        || Lockref::new(1),
        |lockref| {
            Box::new(move || {
                lockref.0.get();
                assert!(lockref.0.put_return().is_some_and(|left| left >= 1));
            })
        },
    )
}

fn file_ref(sharing: Sharing) -> Scene {
    let create = || {
        let count = FileRef::dead();
        count.init(1);
        count
    };
    apart(sharing, create, |count| {
        Box::new(move || {
            assert!(count.0.get());
            assert!(!count.0.put());
        })
    })
}

fn shared(sharing: Sharing) -> Scene {
    apart(
        sharing,
        || Shared::new(7_u64).expect("memory for it"),
        |shared| Box::new(move || assert_eq!(*shared.0.clone(), 7)),
    )
}

fn seqcount(sharing: Sharing) -> Scene {
    apart(sharing, Seqcount::new, |count| {
        Box::new(move || {
            let began = count.0.read_begin();
            assert!(!count.0.read_retry(began));
        })
    })
}

fn spinlock(sharing: Sharing) -> Scene {
    apart(sharing, || SpinLock::new(0_u64), |lock| Box::new(move || *lock.0.lock() += 1))
}

fn wake(sharing: Sharing) -> Scene {
    apart(sharing, WaitQueue::new, |queue| Box::new(move || assert_eq!(queue.0.wake_all(), 0)))
}

fn domain() -> Pin<Box<Domain>> {
    Domain::new().expect("memory for a domain")
}

fn rcu_read(sharing: Sharing) -> Scene {
    of_objects(sharing, domain, |domain, _| Box::new(move || drop(domain.read())))
}

fn rcu_read_nested(sharing: Sharing) -> Scene {
    of_objects(sharing, domain, |domain, _| {
        Box::new(move || {
            let outer = domain.read();
            drop(domain.read());
            drop(outer);
        })
    })
}

/// Runs the thread's share of callbacks, as programs do between two pieces of work.
#[inline(always)]
pub(super) fn run_share(domain: &Domain) {
    if domain.is_pending() {
        rcu::run_pending(&[domain]);
    }
}

fn rcu_defer(sharing: Sharing) -> Scene {
    // The global domain: the measurement of retained bytes waits for its callbacks.
    let domain = || rcu::global().expect("memory for a domain");
    of_objects(sharing, domain, |domain, _| {
        let mut number = 0_u64;
        Box::new(move || {
            number += 1;
            let last = number;
            domain.defer(move || assert_ne!(last, 0)).expect("memory for a callback");
            run_share(&domain);
        })
    })
}
