//! Sockets, pipes and anonymous descriptors: opened and closed by each CPU, in a process of its own or in one.

use crate::operation::{Allowance, Operation, Scene, Worker};
use quietline::abi::{AF_INET, CLOCK_MONOTONIC, F_GETFL, O_ANYFD, SOCK_STREAM};
use quietline::{Config, Kernel, Process};
use quietline_platform::atomic::{AtomicU64, Ordering};
use std::sync::Arc;

pub(crate) fn operations() -> Vec<Operation> {
    let quiet = Allowance::Never;
    let number = Allowance::batch(1024, "the pool of inode numbers, once in a batch of 1,024");
    let own =
        |name, says, allowance, make| Operation::new(name, says, allowance, move |_| own(make));
    let one =
        |name, says, allowance, make| Operation::new(name, says, allowance, move |_| one(make));
    vec![
        own("sockets", "socket and close, each CPU in a process of its own", number, socket),
        one(
            "sockets-anyfd",
            "socket with O_ANYFD and close, all CPUs in one process",
            number,
            socket_any,
        ),
        one(
            "sockets-handle",
            "a socket without a descriptor, all CPUs in one process",
            number,
            socket_handle,
        ),
        one(
            "sockets-lowestfd",
            "socket and close, all CPUs in one process: a lock by contract",
            Allowance::Any,
            socket,
        ),
        own("pipes", "pipe2 and close, each CPU in a process of its own", number, pipe),
        one(
            "pipes-anyfd",
            "pipe2 with O_ANYFD and close, all CPUs in one process",
            number,
            pipe_any,
        ),
        one(
            "pipes-handle",
            "a pipe without descriptors, all CPUs in one process",
            number,
            pipe_handle,
        ),
        own("eventfds", "eventfd and close, each CPU in a process of its own", quiet, eventfd),
        one(
            "eventfds-anyfd",
            "eventfd with O_ANYFD and close, all CPUs in one process",
            quiet,
            eventfd_any,
        ),
        one(
            "eventfds-handle",
            "an eventfd without a descriptor, all CPUs in one process",
            quiet,
            eventfd_handle,
        ),
        own(
            "timerfds",
            "timerfd_create and close, each CPU in a process of its own",
            quiet,
            timerfd,
        ),
        own("signalfds", "signalfd and close, each CPU in a process of its own", quiet, signalfd),
        own("dup", "dup and close of an own file, each CPU in a process of its own", quiet, dup),
        one(
            "fd-lookup",
            "the file behind an own descriptor, all CPUs in one process",
            quiet,
            lookup,
        ),
        one("fcntl-getfl", "F_GETFL of an own descriptor, all CPUs in one process", quiet, getfl),
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

type Make = fn(Arc<Process>) -> Worker;

/// Each CPU in a process of its own.
fn own(make: Make) -> Scene {
    let kernel = Kernel::boot(Config::default()).expect("a kernel");
    Box::new(move |_| make(Arc::new(kernel.process().expect("a process"))))
}

/// All CPUs in one process.
fn one(make: Make) -> Scene {
    let kernel = Kernel::boot(Config::default()).expect("a kernel");
    let process = Arc::new(kernel.process().expect("a process"));
    Box::new(move |_| make(Arc::clone(&process)))
}

fn socket_with(process: Arc<Process>, flags: i32) -> Worker {
    Box::new(move || {
        let fd = process.socket(AF_INET, SOCK_STREAM | flags, 0).expect("a socket");
        process.close(fd).expect("it is open");
    })
}

fn socket(process: Arc<Process>) -> Worker {
    socket_with(process, 0)
}

fn socket_any(process: Arc<Process>) -> Worker {
    socket_with(process, O_ANYFD)
}

fn socket_handle(process: Arc<Process>) -> Worker {
    Box::new(move || drop(process.socket_file(AF_INET, SOCK_STREAM, 0).expect("a socket")))
}

fn pipe_handle(process: Arc<Process>) -> Worker {
    Box::new(move || drop(process.pipe_files(0).expect("a pipe")))
}

fn eventfd_handle(process: Arc<Process>) -> Worker {
    Box::new(move || drop(process.eventfd_file(0, 0).expect("an eventfd")))
}

fn timerfd(process: Arc<Process>) -> Worker {
    Box::new(move || {
        let fd = process.timerfd_create(CLOCK_MONOTONIC, 0).expect("a timerfd");
        process.close(fd).expect("it is open");
    })
}

fn signalfd(process: Arc<Process>) -> Worker {
    Box::new(move || {
        let fd = process.signalfd(-1, 1, 0).expect("a signalfd");
        process.close(fd).expect("it is open");
    })
}

fn pipe_with(process: Arc<Process>, flags: i32) -> Worker {
    Box::new(move || {
        for fd in process.pipe2(flags).expect("a pipe") {
            process.close(fd).expect("it is open");
        }
    })
}

fn pipe(process: Arc<Process>) -> Worker {
    pipe_with(process, 0)
}

fn pipe_any(process: Arc<Process>) -> Worker {
    pipe_with(process, O_ANYFD)
}

fn eventfd_with(process: Arc<Process>, flags: i32) -> Worker {
    Box::new(move || {
        let fd = process.eventfd(0, flags).expect("an eventfd");
        process.close(fd).expect("it is open");
    })
}

fn eventfd(process: Arc<Process>) -> Worker {
    eventfd_with(process, 0)
}

fn eventfd_any(process: Arc<Process>) -> Worker {
    eventfd_with(process, O_ANYFD)
}

fn dup(process: Arc<Process>) -> Worker {
    let file = process.eventfd(0, 0).expect("an eventfd");
    Box::new(move || {
        let fd = process.dup(file).expect("a descriptor");
        process.close(fd).expect("it is open");
    })
}

fn lookup(process: Arc<Process>) -> Worker {
    let fd = process.eventfd(0, O_ANYFD).expect("an eventfd");
    Box::new(move || drop(process.file(fd).expect("it is open")))
}

fn getfl(process: Arc<Process>) -> Worker {
    let fd = process.eventfd(0, O_ANYFD).expect("an eventfd");
    Box::new(move || assert!(process.fcntl(fd, F_GETFL, 0).expect("it is open") >= 0))
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
    let sockets = own(socket);
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
