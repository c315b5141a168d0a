//! Sockets, pipes and anonymous descriptors: opened and closed by each CPU, in a process of its own or in one.

use crate::gate::CPUS;
use crate::operation::{Allowance, Operation, Scene};
use quietline::abi::F_GETFL;
use quietline::{Config, Kernel};
use quietline_costs::Sharing;
use quietline_platform::atomic::{AtomicU64, Ordering};
use std::sync::Arc;

pub(crate) fn operations() -> Vec<Operation> {
    let quiet = Allowance::Never;
    let number = Allowance::batch(1024, "the pool of inode numbers, once in a batch of 1,024");
    let own = |name, ledger, allowance| {
        Operation::of_ledger(name, ledger, Sharing::OwnProcesses, allowance)
    };
    let one = |name, ledger, allowance| {
        Operation::of_ledger(name, ledger, Sharing::OneProcess, allowance)
    };
    vec![
        own("sockets", "socket-lowest", number),
        one("sockets-anyfd", "socket-anyfd", number),
        one("sockets-handle", "socket-handle", number),
        // A lock by contract.
        one("sockets-lowestfd", "socket-lowest", Allowance::Any),
        own("pipes", "pipe-lowest", number),
        one("pipes-anyfd", "pipe-anyfd", number),
        one("pipes-handle", "pipe-handle", number),
        own("eventfds", "eventfd-lowest", quiet),
        one("eventfds-anyfd", "eventfd-anyfd", quiet),
        one("eventfds-handle", "eventfd-handle", quiet),
        own("timerfds", "timerfd-lowest", quiet),
        own("signalfds", "signalfd-lowest", quiet),
        own("dup", "dup-lowest", quiet),
        one("fd-lookup", "fd-lookup", quiet),
        one("fcntl-getfl", "fcntl-getfl", quiet),
        Operation::new(
            "planted-global",
            "socket and close in own processes, with a global counter put back: a mistake, for the gate to find",
            Allowance::Any,
            |_| planted_global(),
        ),
        Operation::new(
            "fcntl-shared",
            "F_GETFL of one descriptor by all CPUs: readers only",
            quiet,
            |_| getfl_shared(),
        ),
    ]
}

fn getfl_shared() -> Scene {
    let kernel = Kernel::boot(Config::default()).expect("a kernel");
    let process = Arc::new(kernel.process().expect("a process"));
    let fd = process.eventfd(0, 0).expect("an eventfd");
    Box::new(move |_| {
        let process = Arc::clone(&process);
        Box::new(move || assert!(process.fcntl(fd, F_GETFL, 0).expect("it is open") >= 0))
    })
}

fn planted_global() -> Scene {
    let sockets =
        Operation::of_ledger("sockets", "socket-lowest", Sharing::OwnProcesses, Allowance::Any);
    let sockets = (sockets.scene)(CPUS);
    let nr_sockets = Arc::new(AtomicU64::new(0));
    quietline_platform::sim::name(nr_sockets.as_ptr().addr(), 8, "planted nr_sockets");
    Box::new(move |cpu| {
        let mut open_and_close = sockets(cpu);
        let nr_sockets = Arc::clone(&nr_sockets);
        Box::new(move || {
            // Relaxed: a count that orders nothing.
            nr_sockets.fetch_add(1, Ordering::Relaxed);
            open_and_close();
        })
    })
}
