//! Files without names: made and closed, by handle, at any descriptor and at the lowest.

use crate::processes::in_process;
use crate::{Operation, Scene, Sharing, Worker};
use quietline::abi::{
    AF_INET, AF_INET6, AF_UNIX, CLOCK_MONOTONIC, F_DUPFD, F_GETFD, F_GETFL, F_SETFL, O_ANYFD,
    O_NONBLOCK, SOCK_STREAM,
};
use quietline::{FileHandle, Process};
use std::sync::Arc;

pub(super) fn operations() -> Vec<Operation> {
    let of = |name, about, scene| Operation::new("descriptors", name, about, scene);
    vec![
        of("socket-handle", "socket_file of AF_INET and drop", socket_handle),
        of("socket-anyfd", "socket of AF_INET with O_ANYFD and close", socket::<AF_INET, O_ANYFD>),
        of("socket-lowest", "socket of AF_INET at the lowest descriptor", socket::<AF_INET, 0>),
        of("socket-unix-anyfd", "socket of AF_UNIX with O_ANYFD", socket::<AF_UNIX, O_ANYFD>),
        of("socket-inet6-anyfd", "socket of AF_INET6 with O_ANYFD", socket::<AF_INET6, O_ANYFD>),
        of("pipe-handle", "pipe_files and drop of both", pipe_handle),
        of("pipe-anyfd", "pipe2 with O_ANYFD and two of close", pipe::<O_ANYFD>),
        of("pipe-lowest", "pipe2 at the lowest descriptors and two of close", pipe::<0>),
        of("socketpair-handle", "socketpair_files of AF_UNIX and drop of both", pair_handle),
        of(
            "socketpair-anyfd",
            "socketpair of AF_UNIX with O_ANYFD and two closes",
            pair::<O_ANYFD>,
        ),
        of("socketpair-lowest", "socketpair of AF_UNIX at the lowest descriptors", pair::<0>),
        of("eventfd-handle", "eventfd_file and drop", eventfd_handle),
        of("eventfd-anyfd", "eventfd with O_ANYFD and close", eventfd::<O_ANYFD>),
        of("eventfd-lowest", "eventfd at the lowest descriptor and close", eventfd::<0>),
        of("timerfd-handle", "timerfd_file and drop", timerfd_handle),
        of("timerfd-anyfd", "timerfd_create with O_ANYFD and close", timerfd::<O_ANYFD>),
        of("timerfd-lowest", "timerfd_create at the lowest descriptor", timerfd::<0>),
        of("signalfd-handle", "signalfd_file and drop", signalfd_handle),
        of("signalfd-anyfd", "signalfd with O_ANYFD and close", signalfd::<O_ANYFD>),
        of("signalfd-lowest", "signalfd at the lowest descriptor and close", signalfd::<0>),
        of("epoll-handle", "epoll_file and drop", epoll_handle),
        of("epoll-anyfd", "epoll_create1 with O_ANYFD and close", epoll::<O_ANYFD>),
        of("epoll-lowest", "epoll_create1 at the lowest descriptor and close", epoll::<0>),
        of("dup-handle", "Process::file, FileHandle::clone and drop of both", dup_handle),
        of("dup-lowest", "dup and close", dup),
        of("dup-anyfd", "install_file with O_ANYFD of a file, and close", dup_any),
        of("dup2", "dup2 over an open descriptor", dup2),
        of("fcntl-dupfd", "F_DUPFD from 100 on, and close", dupfd),
        of("fcntl-getfd", "F_GETFD", fcntl::<F_GETFD, 0>),
        of("fcntl-getfl", "F_GETFL", fcntl::<F_GETFL, 0>),
        of("fcntl-setfl", "F_SETFL of O_NONBLOCK", fcntl::<F_SETFL, { O_NONBLOCK as u64 }>),
        of("fd-lookup", "Process::file and drop", lookup),
    ]
}

/// Scene of an operation without state.
fn repeated(sharing: Sharing, operation: fn(&Process)) -> Scene {
    in_process(sharing, move |process, _| Box::new(move || operation(&process)))
}

fn close<const N: usize>(process: &Process, fds: [i32; N]) {
    fds.into_iter().for_each(|fd| process.close(fd).expect("it is open"));
}

fn socket_handle(sharing: Sharing) -> Scene {
    repeated(sharing, |p| drop(p.socket_file(AF_INET, SOCK_STREAM, 0).expect("a socket")))
}

fn socket<const FAMILY: i32, const FLAGS: i32>(sharing: Sharing) -> Scene {
    repeated(sharing, |p| close(p, [p.socket(FAMILY, SOCK_STREAM | FLAGS, 0).expect("a socket")]))
}

fn pipe_handle(sharing: Sharing) -> Scene {
    repeated(sharing, |p| drop(p.pipe_files(0).expect("a pipe")))
}

fn pipe<const FLAGS: i32>(sharing: Sharing) -> Scene {
    repeated(sharing, |p| close(p, p.pipe2(FLAGS).expect("a pipe")))
}

fn pair_handle(sharing: Sharing) -> Scene {
    repeated(sharing, |p| drop(p.socketpair_files(AF_UNIX, SOCK_STREAM, 0).expect("a pair")))
}

fn pair<const FLAGS: i32>(sharing: Sharing) -> Scene {
    repeated(sharing, |p| {
        close(p, p.socketpair(AF_UNIX, SOCK_STREAM | FLAGS, 0).expect("a pair"));
    })
}

fn eventfd_handle(sharing: Sharing) -> Scene {
    repeated(sharing, |p| drop(p.eventfd_file(0, 0).expect("an eventfd")))
}

fn eventfd<const FLAGS: i32>(sharing: Sharing) -> Scene {
    repeated(sharing, |p| close(p, [p.eventfd(0, FLAGS).expect("an eventfd")]))
}

fn timerfd_handle(sharing: Sharing) -> Scene {
    repeated(sharing, |p| drop(p.timerfd_file(CLOCK_MONOTONIC, 0).expect("a timerfd")))
}

fn timerfd<const FLAGS: i32>(sharing: Sharing) -> Scene {
    repeated(sharing, |p| close(p, [p.timerfd_create(CLOCK_MONOTONIC, FLAGS).expect("a timerfd")]))
}

fn signalfd_handle(sharing: Sharing) -> Scene {
    repeated(sharing, |p| drop(p.signalfd_file(1, 0).expect("a signalfd")))
}

fn signalfd<const FLAGS: i32>(sharing: Sharing) -> Scene {
    repeated(sharing, |p| close(p, [p.signalfd(-1, 1, FLAGS).expect("a signalfd")]))
}

fn epoll_handle(sharing: Sharing) -> Scene {
    repeated(sharing, |p| drop(p.epoll_file(0).expect("an epoll")))
}

fn epoll<const FLAGS: i32>(sharing: Sharing) -> Scene {
    repeated(sharing, |p| close(p, [p.epoll_create1(FLAGS).expect("an epoll")]))
}

/// Scene of an operation on a descriptor of the CPU's own.
fn on_descriptor(sharing: Sharing, operation: fn(&Process, i32)) -> Scene {
    in_process(sharing, move |process: Arc<Process>, _| -> Worker {
        let fd = process.eventfd(0, O_ANYFD).expect("an eventfd");
        Box::new(move || operation(&process, fd))
    })
}

fn dup_handle(sharing: Sharing) -> Scene {
    on_descriptor(sharing, |p, fd| drop(p.file(fd).expect("it is open").clone()))
}

fn dup(sharing: Sharing) -> Scene {
    on_descriptor(sharing, |p, fd| close(p, [p.dup(fd).expect("a descriptor")]))
}

fn dup_any(sharing: Sharing) -> Scene {
    on_descriptor(sharing, |p, fd| {
        let file: FileHandle<'_> = p.file(fd).expect("it is open");
        close(p, [p.install_file(file, O_ANYFD).expect("a descriptor")]);
    })
}

fn dup2(sharing: Sharing) -> Scene {
    in_process(sharing, |process, _| {
        let [fd, over] = [(); 2].map(|()| process.eventfd(0, O_ANYFD).expect("an eventfd"));
        Box::new(move || assert_eq!(process.dup2(fd, over), Ok(over)))
    })
}

fn dupfd(sharing: Sharing) -> Scene {
    on_descriptor(sharing, |p, fd| {
        let new = p.fcntl(fd, F_DUPFD, 100).expect("a descriptor");
        assert!(new >= 100);
        close(p, [new]);
    })
}

fn fcntl<const COMMAND: i32, const ARGUMENT: u64>(sharing: Sharing) -> Scene {
    on_descriptor(sharing, |p, fd| assert!(p.fcntl(fd, COMMAND, ARGUMENT).is_ok_and(|r| r >= 0)))
}

fn lookup(sharing: Sharing) -> Scene {
    on_descriptor(sharing, |p, fd| drop(p.file(fd).expect("it is open")))
}
