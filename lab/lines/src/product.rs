//! The primitives, and mounts.

use crate::operation::{Allowance, Operation, Scene};
use quietline_costs::Sharing;
use quietline_sync::Counter;
use quietline_vfs::Mount;
use std::sync::Arc;

pub(crate) fn operations() -> Vec<Operation> {
    let own =
        |name, ledger| Operation::of_ledger(name, ledger, Sharing::OwnProcesses, Allowance::Never);
    let one =
        |name, ledger| Operation::of_ledger(name, ledger, Sharing::OneProcess, Allowance::Never);
    let mounts = |name, says, scene: fn() -> Scene| {
        Operation::new(name, says, Allowance::Never, move |_| scene())
    };
    vec![
        one("counter", "counter-inc-dec"),
        Operation::new(
            "counter-up",
            "Counter::inc for ever: a fold once in a batch",
            Allowance::batch(
                32,
                "the counter's shared line, once in a batch of 32 (up to 16 CPUs)",
            ),
            |_| counter_up(),
        ),
        one("counter-limited", "counter-limited"),
        one("counter-read", "counter-read"),
        Operation::of_ledger(
            "ids",
            "ids-next",
            Sharing::OneProcess,
            Allowance::batch(1024, "the pool's line, once in a batch of 1,024"),
        ),
        one("rcu-read", "rcu-read"),
        one("rcu-read-nested", "rcu-read-nested"),
        one("seqcount-read", "seqcount-read"),
        own("spinlock-own", "spinlock"),
        own("wake", "wake-nobody"),
        one("wake-shared", "wake-nobody"),
        own("lockref", "lockref-get-put"),
        own("file-ref", "file-ref-get-put"),
        mounts("mount", "get and put of one mount by all CPUs, while it is mounted", mount),
        mounts(
            "mount-internal",
            "get and put of a mount that lives as long as its kernel",
            mount_internal,
        ),
    ]
}

fn counter_up() -> Scene {
    let counter = Arc::new(Counter::new().expect("a counter"));
    Box::new(move |_| {
        let counter = Arc::clone(&counter);
        Box::new(move || counter.inc())
    })
}

fn mount() -> Scene {
    mounted(Mount::ordinary("lines"))
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
