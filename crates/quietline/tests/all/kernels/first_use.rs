//! A kernel makes caches, per-CPU words, lists and tables when they are first used. Here threads
//! meet there: each use is the first one for all of them at the same time.

use crate::support::assert_nothing_open;
use quietline::abi::*;
use quietline::inotify::IN_CREATE;
use quietline::{Config, EpollEvent, Errno, ItimerSpec, Kernel, Process, SendMsg};
use quietline_platform::fault;
use std::sync::Barrier;
use std::thread;
use std::time::Duration;

const THREADS: usize = 4;

type Call = fn(&Process, usize) -> Result<(), Errno>;

fn socket(p: &Process, any: i32) -> Result<(), Errno> {
    p.close(p.socket(AF_INET, SOCK_STREAM | any, 0)?)
}

fn bound(p: &Process, family: i32, ty: i32, address: &[u8]) -> Result<(), Errno> {
    let fd = p.socket(family, ty, 0)?;
    let bound = p.bind(fd, address);
    p.close(fd)?;
    bound
}

fn pipe(p: &Process) -> Result<(), Errno> {
    let [reader, writer] = p.pipe2(0)?;
    let written = p.write(writer, b"bytes");
    p.close(reader)?;
    p.close(writer)?;
    written.map(drop)
}

/// A file of a name of its own, with a page in it.
fn file(p: &Process, name: &str) -> Result<(), Errno> {
    let fd = p.open(name, O_CREAT | O_RDWR, 0o600)?;
    let written = p.pwrite(fd, b"page", 1 << 20);
    p.close(fd)?;
    p.unlink(name)?;
    written.map(drop)
}

fn timer(p: &Process) -> Result<(), Errno> {
    let fd = p.timerfd_create(CLOCK_MONOTONIC, 0)?;
    let soon = Duration::from_micros(50);
    let spec = ItimerSpec { interval: Duration::ZERO, value: soon };
    let read = p.timerfd_settime(fd, 0, spec).and_then(|_| p.read(fd, &mut [0; 8]));
    p.close(fd)?;
    read.map(drop)
}

fn watch(p: &Process) -> Result<(), Errno> {
    let fd = p.inotify_init1(0)?;
    let added = p.inotify_add_watch(fd, "/", IN_CREATE);
    p.close(fd)?;
    added.map(drop)
}

fn epoll(p: &Process) -> Result<(), Errno> {
    let epoll = p.epoll_create1(0)?;
    let watched = p.eventfd(1, 0).and_then(|fd| {
        let event = EpollEvent { events: 1, data: 7 };
        let added = p.epoll_ctl(epoll, EPOLL_CTL_ADD, fd, &event);
        p.close(fd)?;
        added
    });
    p.close(epoll)?;
    watched
}

/// A file in a message between two sockets.
fn parcel(p: &Process) -> Result<(), Errno> {
    let [a, b] = p.socketpair(AF_UNIX, SOCK_DGRAM, 0)?;
    // SOL_SOCKET and SCM_RIGHTS: the sender is in flight.
    let header =
        [20u64.to_ne_bytes().as_slice(), &1i32.to_ne_bytes(), &1i32.to_ne_bytes()].concat();
    let control = [&header[..], &a.to_ne_bytes(), &[0; 4]].concat();
    let message = SendMsg { buffers: &[b"f"], control: &control, ..SendMsg::default() };
    let sent = p.sendmsg(a, &message, MSG_DONTWAIT);
    p.close(a)?;
    p.close(b)?;
    sent.map(drop)
}

const CALLS: &[Call] = &[
    |p, _| socket(p, 0),
    |p, _| socket(p, O_ANYFD),
    |p, n| bound(p, AF_UNIX, SOCK_STREAM, &[1, 0, 0, b'a' + n as u8]),
    |p, _| bound(p, AF_INET, SOCK_STREAM, &[2, 0, 0, 0, 127, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0]),
    |p, _| bound(p, AF_INET, SOCK_DGRAM, &[2, 0, 0, 0, 127, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0]),
    |p, _| pipe(p),
    |p, n| file(p, &format!("/{n}")),
    |p, n| file(p, &format!("/{:040}", n)),
    |p, n| file(p, &format!("/{:0200}", n)),
    |p, n| p.mkdir(format!("/dir{n}"), 0o700).and_then(|()| p.rmdir(format!("/dir{n}"))),
    |p, _| p.close(p.memfd_create("memory", 0)?),
    |p, _| timer(p),
    |p, _| p.close(p.signalfd(-1, 1, 0)?),
    |p, _| watch(p),
    |p, _| epoll(p),
    |p, _| parcel(p),
    |p, _| p.fork().map(drop),
    |p, _| p.open("/", O_RDONLY, 0).and_then(|fd| p.close(fd)),
];

/// Each call by all threads, and all pairs of neighbouring calls, in a kernel of its own each time.
/// In every other round the allocations of two threads fail, each from another one on, once.
#[test]
fn threads_meet_at_each_first_use() {
    quietline_testing::isolated!();
    let rounds = if cfg!(debug_assertions) { 4 } else { 40 };
    for round in 0..rounds {
        for first in 0..CALLS.len() {
            for step in 0..2 {
                let kernel = Kernel::boot(Config::default().owner(0, 0)).unwrap();
                let process = kernel.process().unwrap();
                let barrier = Barrier::new(THREADS);
                thread::scope(|scope| {
                    for n in 0..THREADS {
                        let (process, barrier) = (&process, &barrier);
                        scope.spawn(move || {
                            let call = CALLS[(first + n * step) % CALLS.len()];
                            let fails = round % 2 == 1 && n % 2 == 0;
                            barrier.wait();
                            fault::fail_nth(if fails { 1 + (round + n) as u64 % 7 } else { 0 });
                            let result = call(process, n);
                            fault::fail_nth(0);
                            let memory = [Err(Errno::NOMEM), Err(Errno::NOBUFS)];
                            assert!(
                                result.is_ok() || fails && memory.contains(&result),
                                "call {first}, step {step}, thread {n}: {result:?}"
                            );
                            // With memory it works, in whatever state the failure has left it.
                            if result.is_err() {
                                call(process, n + THREADS).unwrap();
                            }
                        });
                    }
                });
                process.close_range(0, u32::MAX, 0).unwrap();
                // A call that failed after it had made a name leaves that.
                for n in 0..2 * THREADS {
                    let files = [format!("/{n}"), format!("/{n:040}"), format!("/{n:0200}")];
                    let left = files.iter().filter(|file| process.unlink(*file).is_ok()).count();
                    let left = left + usize::from(process.rmdir(format!("/dir{n}")).is_ok());
                    assert!(left == 0 || round % 2 == 1, "nothing failed");
                }
                // The tree keeps dentries in case that they are looked up again.
                kernel.shrink();
                assert_nothing_open(&kernel);
            }
        }
    }
}

/// A kernel ends that has made some of its parts, and others not.
#[test]
fn kernels_with_some_parts_end() {
    quietline_testing::isolated!();
    for n in 0..CALLS.len() {
        let kernel = Kernel::boot(Config::default()).unwrap();
        let process = kernel.process().unwrap();
        CALLS[n](&process, 0).unwrap();
        CALLS[(n * 7 + 3) % CALLS.len()](&process, 1).unwrap();
        if n % 2 == 0 {
            drop(kernel);
        }
        drop(process);
    }
}
