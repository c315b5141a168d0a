//! The primitives, and mounts.

use crate::operation::{Allowance, Operation, Scene};
use quietline_sync::rcu::Domain;
use quietline_sync::{Counter, FileRef, IdAllocator, Lockref, Seqcount, SpinLock, WaitQueue};
use quietline_vfs::Mount;
use std::sync::Arc;

/// A line and its neighbour: what an object that nobody else touches should have to itself.
#[repr(align(128))]
struct Apart<T>(T);

pub(crate) fn operations() -> Vec<Operation> {
    let quiet = |name, says, scene: fn() -> Scene| {
        Operation::new(name, says, Allowance::Never, move |_| scene())
    };
    vec![
        quiet("counter", "Counter::inc and dec", counter_pair),
        Operation::new(
            "counter-up",
            "Counter::inc for ever: a fold once in a batch",
            Allowance::batch(
                32,
                "the counter's shared line, once in a batch of 32 (up to 16 CPUs)",
            ),
            |_| counter_up(),
        ),
        quiet(
            "counter-limited",
            "Counter::limited_add of 1, far from the limit, and dec",
            counter_limited,
        ),
        quiet(
            "counter-read",
            "Counter::read by all, of a counter that nobody changes",
            counter_read,
        ),
        Operation::new(
            "ids",
            "IdAllocator::next",
            Allowance::batch(1024, "the pool's line, once in a batch of 1,024"),
            |_| ids(),
        ),
        quiet("rcu-read", "an empty read section", rcu_read),
        quiet("rcu-read-nested", "a read section inside another", rcu_read_nested),
        quiet(
            "seqcount-read",
            "a read section of a Seqcount that nobody writes, by all",
            seqcount_read,
        ),
        quiet("spinlock-own", "lock and unlock of a SpinLock of the CPU's own", spinlock_own),
        quiet("wake", "WaitQueue::wake of an own queue on which nobody waits", wake_own),
        quiet(
            "wake-shared",
            "WaitQueue::wake of one queue by all, on which nobody waits",
            wake_shared,
        ),
        quiet("lockref", "get and put of a Lockref of the CPU's own", lockref_own),
        quiet("file-ref", "get and put of a FileRef of the CPU's own", file_ref_own),
        quiet("mount", "get and put of one mount by all CPUs, while it is mounted", mount),
        quiet(
            "mount-internal",
            "get and put of a mount that lives as long as its kernel",
            mount_internal,
        ),
    ]
}

fn counter_pair() -> Scene {
    let counter = Arc::new(Counter::new().expect("a counter"));
    Box::new(move |_| {
        let counter = Arc::clone(&counter);
        Box::new(move || {
            counter.inc();
            counter.dec();
        })
    })
}

fn counter_up() -> Scene {
    let counter = Arc::new(Counter::new().expect("a counter"));
    Box::new(move |_| {
        let counter = Arc::clone(&counter);
        Box::new(move || counter.inc())
    })
}

fn counter_limited() -> Scene {
    let counter = Arc::new(Counter::new().expect("a counter"));
    Box::new(move |_| {
        let counter = Arc::clone(&counter);
        Box::new(move || {
            assert!(counter.limited_add(1 << 20, 1));
            counter.dec();
        })
    })
}

fn counter_read() -> Scene {
    let counter = Arc::new(Counter::new().expect("a counter"));
    counter.add(1000);
    Box::new(move |_| {
        let counter = Arc::clone(&counter);
        Box::new(move || assert_eq!(counter.read(), 1000))
    })
}

fn ids() -> Scene {
    let ids = Arc::new(IdAllocator::new().expect("an allocator"));
    Box::new(move |_| {
        let ids = Arc::clone(&ids);
        Box::new(move || assert_ne!(ids.next(), 0))
    })
}

fn rcu_read() -> Scene {
    let domain: Arc<Box<Domain>> = Arc::new(Domain::new().expect("a domain"));
    Box::new(move |_| {
        let domain = Arc::clone(&domain);
        Box::new(move || drop(domain.read()))
    })
}

fn rcu_read_nested() -> Scene {
    let domain: Arc<Box<Domain>> = Arc::new(Domain::new().expect("a domain"));
    Box::new(move |_| {
        let domain = Arc::clone(&domain);
        Box::new(move || {
            let outer = domain.read();
            drop(domain.read());
            drop(outer);
        })
    })
}

fn seqcount_read() -> Scene {
    let count = Arc::new(Apart(Seqcount::new()));
    Box::new(move |_| {
        let count = Arc::clone(&count);
        Box::new(move || {
            let began = count.0.read_begin();
            assert!(!count.0.read_retry(began));
        })
    })
}

fn spinlock_own() -> Scene {
    Box::new(|_| {
        let lock = Box::new(Apart(SpinLock::new(0_u64)));
        Box::new(move || *lock.0.lock() += 1)
    })
}

fn wake_own() -> Scene {
    Box::new(|_| {
        let queue = Box::new(Apart(WaitQueue::new()));
        Box::new(move || assert_eq!(queue.0.wake_all(), 0))
    })
}

fn wake_shared() -> Scene {
    let queue = Arc::new(Apart(WaitQueue::new()));
    Box::new(move |_| {
        let queue = Arc::clone(&queue);
        Box::new(move || assert_eq!(queue.0.wake_all(), 0))
    })
}

fn lockref_own() -> Scene {
    Box::new(|_| {
        let lockref = Box::new(Apart(Lockref::new(1)));
        Box::new(move || {
            lockref.0.get();
            assert_eq!(lockref.0.put_return(), Some(1));
        })
    })
}

fn file_ref_own() -> Scene {
    Box::new(|_| {
        let count = Box::new(Apart(FileRef::dead()));
        count.0.init(1);
        Box::new(move || {
            assert!(count.0.get());
            assert!(!count.0.put());
        })
    })
}

fn mount() -> Scene {
    mounted(Mount::ordinary("lines").expect("a mount"))
}

fn mount_internal() -> Scene {
    mounted(Mount::internal("lines"))
}

fn mounted(mount: Mount) -> Scene {
    let mount = Arc::new(mount);
    Box::new(move |_| {
        let mount = Arc::clone(&mount);
        Box::new(move || {
            mount.get();
            assert!(!mount.put(), "the tree has a reference");
        })
    })
}
