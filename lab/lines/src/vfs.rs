//! Sockets, pipes and anonymous descriptors: opened and closed by each CPU, in a process of its own or in one.

use crate::operation::{Operation, Scene, Worker};
use quietline::abi::{AF_INET, F_GETFL, O_ANYFD, SOCK_STREAM};
use quietline::{Config, Kernel, Process};
use std::sync::Arc;

pub(crate) fn operations() -> Vec<Operation> {
    let quiet = Some(0.0);
    // An inode number each: its CPU's batch ends once in 1,024, and with it quietness, for the pool's line.
    let number = Some(2.0 / 1024.0);
    vec![
        operation("sockets", "socket and close, each CPU in a process of its own", number, |_| own(socket)),
        operation("sockets-anyfd", "socket with O_ANYFD and close, all CPUs in one process", number, |_| {
            one(socket_any)
        }),
        operation(
            "sockets-lowestfd",
            "socket and close, all CPUs in one process: a lock by contract",
            None,
            |_| one(socket),
        ),
        operation("sockets-handle", "a socket without a descriptor, all CPUs in one process", number, |_| {
            one(socket_handle)
        }),
        operation("pipes", "pipe2 and close, each CPU in a process of its own", number, |_| own(pipe)),
        operation("pipes-anyfd", "pipe2 with O_ANYFD and close, all CPUs in one process", number, |_| {
            one(pipe_any)
        }),
        operation("eventfds", "eventfd and close, each CPU in a process of its own", quiet, |_| own(eventfd)),
        operation("eventfds-anyfd", "eventfd with O_ANYFD and close, all CPUs in one process", quiet, |_| {
            one(eventfd_any)
        }),
        operation("dup", "dup and close of an own file, each CPU in a process of its own", quiet, |_| {
            own(dup)
        }),
        operation("fd-lookup", "the file behind an own descriptor, all CPUs in one process", quiet, |_| {
            one(lookup)
        }),
        operation("fcntl-getfl", "F_GETFL of an own descriptor, all CPUs in one process", quiet, |_| {
            one(getfl)
        }),
        operation("fcntl-shared", "F_GETFL of one descriptor by all CPUs: readers only", quiet, |_| {
            getfl_shared()
        }),
    ]
}

fn operation(
    name: &'static str,
    says: &'static str,
    allowed: Option<f64>,
    scene: fn(usize) -> Scene,
) -> Operation {
    Operation { name, says, scene, allowed }
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
