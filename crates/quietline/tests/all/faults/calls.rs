//! Memory that runs out under the calls on sockets, pipes and what waits for them: each allocation of each call fails once, and
//! once all from it on. The call says so or makes do; a call that fails has changed nothing that can be seen; nothing is lost,
//! neither pages nor heap nor files; the call works afterwards.
//!
//! What single calls leave behind when they fail in the middle, with messages of many sizes, is in `sockets_faults.rs` and
//! `inet/faults.rs`; here is every call, in one world.

use crate::support::{alone, pages_used};
use quietline::abi::*;
use quietline::eventpoll::{EPOLL_CTL_ADD, EPOLL_CTL_DEL, EPOLL_CTL_MOD};
use quietline::{
    Config, EpollEvent, Errno, Events, GiftPage, ItimerSpec, Kernel, PollFd, Process, RecvMsg,
    SendMsg, Socket,
};
use quietline_platform::fault;
use std::fmt::Write;
use std::time::Duration;

/// Bytes in pages and on this thread's heap.
fn held() -> (usize, isize) {
    (pages_used(), quietline_testing::heap::bytes_of_thread())
}

// The descriptors of a world, in the order in which they are made.
const STREAM: i32 = 0;
const STREAM_END: i32 = 1;
const DGRAM: i32 = 2;
const DGRAM_END: i32 = 3;
const PACKETS: i32 = 4;
const LOCAL_LISTENER: i32 = 6;
const LOCAL_NEW: i32 = 7;
const LOCAL_DGRAM: i32 = 8;
const TCP_LISTENER: i32 = 9;
const TCP_NEW: i32 = 10;
const TCP: i32 = 11;
const UDP: i32 = 13;
const UDP_NEW: i32 = 14;
const PIPE: i32 = 15;
const PIPE_END: i32 = 16;
const OTHER_PIPE: i32 = 17;
const COUNTER: i32 = 19;
const EPOLL: i32 = 20;
const OUTER_EPOLL: i32 = 21;
const TIMER: i32 = 22;
const SIGNALS: i32 = 23;

fn local(name: &str) -> Vec<u8> {
    [&(AF_UNIX as u16).to_ne_bytes()[..], name.as_bytes()].concat()
}

fn loopback(port: u16) -> [u8; 16] {
    let mut raw = [0; 16];
    raw[..2].copy_from_slice(&(AF_INET as u16).to_ne_bytes());
    raw[2..4].copy_from_slice(&port.to_be_bytes());
    raw[4..8].copy_from_slice(&[127, 0, 0, 1]);
    raw
}

const TCP_PORT: u16 = 2000;
const UDP_PORT: u16 = 2001;

/// A kernel with one of each, all non-blocking.
fn world() -> Process {
    let config = Config::default().privileged(true).fs_size(1 << 20).proc(true);
    let p = Kernel::boot(config).unwrap().process().unwrap();
    for (ty, at) in [(SOCK_STREAM, STREAM), (SOCK_DGRAM, DGRAM), (SOCK_SEQPACKET, PACKETS)] {
        assert_eq!(p.socketpair(AF_UNIX, ty | SOCK_NONBLOCK, 0), Ok([at, at + 1]));
    }
    let socket = |family, ty, at| assert_eq!(p.socket(family, ty | SOCK_NONBLOCK, 0), Ok(at));
    socket(AF_UNIX, SOCK_STREAM, LOCAL_LISTENER);
    p.bind(LOCAL_LISTENER, &local("\0listener")).unwrap();
    p.listen(LOCAL_LISTENER, 5).unwrap();
    socket(AF_UNIX, SOCK_STREAM, LOCAL_NEW);
    socket(AF_UNIX, SOCK_DGRAM, LOCAL_DGRAM);
    p.bind(LOCAL_DGRAM, &local("\0dgram")).unwrap();
    socket(AF_INET, SOCK_STREAM, TCP_LISTENER);
    p.bind(TCP_LISTENER, &loopback(TCP_PORT)).unwrap();
    p.listen(TCP_LISTENER, 5).unwrap();
    socket(AF_INET, SOCK_STREAM, TCP_NEW);
    socket(AF_INET, SOCK_STREAM, TCP);
    connected(p.connect(TCP, &loopback(TCP_PORT))).unwrap();
    assert_eq!(p.accept4(TCP_LISTENER, SOCK_NONBLOCK).unwrap().0, TCP + 1);
    socket(AF_INET, SOCK_DGRAM, UDP);
    p.bind(UDP, &loopback(UDP_PORT)).unwrap();
    socket(AF_INET, SOCK_DGRAM, UDP_NEW);
    assert_eq!(p.pipe2(O_NONBLOCK), Ok([PIPE, PIPE_END]));
    assert_eq!(p.pipe2(O_NONBLOCK), Ok([OTHER_PIPE, OTHER_PIPE + 1]));
    assert_eq!(p.write(OTHER_PIPE + 1, b"abc"), Ok(3));
    assert_eq!(p.eventfd(3, O_NONBLOCK), Ok(COUNTER));
    assert_eq!(p.epoll_create1(0), Ok(EPOLL));
    assert_eq!(p.epoll_create1(0), Ok(OUTER_EPOLL));
    watch(&p, EPOLL, EPOLL_CTL_ADD, OTHER_PIPE, Events::IN).unwrap();
    assert_eq!(p.timerfd_create(CLOCK_MONOTONIC, O_NONBLOCK), Ok(TIMER));
    assert_eq!(p.signalfd(-1, 1, O_NONBLOCK), Ok(SIGNALS));
    p
}

/// A connection that is made at once, or is being made.
fn connected(result: Result<(), Errno>) -> Result<(), Errno> {
    if result == Err(Errno::INPROGRESS) { Ok(()) } else { result }
}

fn watch(p: &Process, epoll: i32, op: i32, fd: i32, events: Events) -> Result<(), Errno> {
    p.epoll_ctl(epoll, op, fd, &EpollEvent { events: events.bits(), data: fd as u64 })
}

/// All that can be seen of the descriptors, and of what is to be received by them.
fn picture(p: &Process) -> String {
    let mut out = String::new();
    for fd in p.open_fds().unwrap() {
        if fd >= PAD {
            continue;
        }
        let mut poll = [PollFd { fd, events: 0x7fff, revents: 0 }];
        p.poll(&mut poll, 0).unwrap();
        let mut readable = 0;
        let readable = p.ioctl(fd, FIONREAD, &mut readable).map(|_| readable);
        let flags = p.fcntl(fd, F_GETFL, 0);
        write!(
            out,
            "{fd}: {} {:x} {readable:?} {flags:?}",
            p.fd_name(fd).unwrap(),
            poll[0].revents
        )
        .unwrap();
        if p.file(fd).unwrap().payload::<Socket>().is_some() {
            let option = |name| {
                let mut value = [0; 4];
                p.getsockopt(fd, SOL_SOCKET, name, &mut value).map(|_| i32::from_ne_bytes(value))
            };
            let options = [SO_SNDBUF, SO_RCVBUF, SO_ACCEPTCONN, SO_REUSEADDR].map(option);
            write!(out, " {:?} {:?} {options:?}", p.getsockname(fd), p.getpeername(fd)).unwrap();
            let mut bytes = [0; 100];
            let peeked = p.recvfrom(fd, &mut bytes, MSG_PEEK | MSG_DONTWAIT);
            write!(out, " {:?}", peeked.map(|(n, from)| (bytes[..n.min(100)].to_vec(), from)))
                .unwrap();
        } else {
            write!(out, " {:?}", p.fcntl(fd, F_GETPIPE_SZ, 0)).unwrap();
        }
        writeln!(out).unwrap();
    }
    for epoll in [EPOLL, OUTER_EPOLL] {
        let mut events = [EpollEvent::default(); 10];
        let n = p.epoll_wait(epoll, &mut events, 0).unwrap();
        let mut got: Vec<_> =
            events[..n].iter().map(|event| ({ event.data }, { event.events })).collect();
        got.sort_unstable();
        writeln!(out, "{epoll}: {got:?}").unwrap();
    }
    out
}

/// Descriptors from here on only take room.
const PAD: i32 = 100;

/// Places for objects of a cache that are free, in slabs and wherever else.
fn free(p: &Process, cache: &str) -> usize {
    let info = p.kernel().slabinfo();
    let stats = info.iter().find(|stats| stats.name == cache).expect("a cache of this name");
    stats.places - stats.active
}

/// In such an order that none is filled with the help of one before it.
const CACHES: [&str; 11] = [
    "eventpoll_epi",
    "unix_sock",
    "tcp_sock",
    "udp_sock",
    "sock_inode_cache",
    "pipe_inode_cache",
    "eventfd_ctx",
    "timerfd_ctx",
    "signalfd_ctx",
    "eventpoll",
    "filp",
];

/// Sees to it that the next object of each of these caches needs a new slab.
fn starve(p: &Process) {
    for cache in CACHES {
        // One at a time out of the slabs: so it is known how many fill them.
        let knob = p.open(format!("/sys/kernel/slab/{cache}/cpu_partial"), O_WRONLY, 0).unwrap();
        p.write(knob, b"1").unwrap();
        p.close(knob).unwrap();
    }
    let anchor = p.fcntl(COUNTER, F_DUPFD, PAD as u64).unwrap();
    assert_eq!(anchor, PAD);
    let keep = |fd: i32| {
        p.fcntl(fd, F_DUPFD, PAD as u64).unwrap();
        p.close(fd).unwrap();
    };
    let watcher = p.epoll_create1(0).unwrap();
    let watcher = {
        let high = p.fcntl(watcher, F_DUPFD, PAD as u64).unwrap();
        p.close(watcher).unwrap();
        high
    };
    for cache in CACHES {
        p.kernel().shrink();
        for _ in 0..free(p, cache) {
            match cache {
                // Has no state before it is used.
                "sock_inode_cache" => keep(p.socket(AF_INET, SOCK_STREAM, 0).unwrap()),
                "unix_sock" => {
                    let fd = p.socket(AF_UNIX, SOCK_STREAM, 0).unwrap();
                    p.bind(fd, &local("")).unwrap();
                    keep(fd);
                }
                "tcp_sock" | "udp_sock" => {
                    let ty = if cache == "tcp_sock" { SOCK_STREAM } else { SOCK_DGRAM };
                    let fd = p.socket(AF_INET, ty, 0).unwrap();
                    p.bind(fd, &loopback(0)).unwrap();
                    keep(fd);
                }
                // Both ends of a pipe are one object, and two files.
                "pipe_inode_cache" => p.pipe2(0).unwrap().into_iter().for_each(keep),
                "timerfd_ctx" => keep(p.timerfd_create(CLOCK_MONOTONIC, 0).unwrap()),
                "signalfd_ctx" => keep(p.signalfd(-1, 1, 0).unwrap()),
                "eventpoll" => keep(p.epoll_create1(0).unwrap()),
                "eventpoll_epi" => {
                    let fd = p.pipe2(0).unwrap()[0];
                    let high = p.fcntl(fd, F_DUPFD, PAD as u64).unwrap();
                    watch(p, watcher, EPOLL_CTL_ADD, high, Events::IN).unwrap();
                    p.close(fd).unwrap();
                    p.close(fd + 1).unwrap();
                }
                "eventfd_ctx" => keep(p.eventfd(0, 0).unwrap()),
                // A file and nothing else.
                _ => keep(p.open("/", 0, 0).unwrap()),
            }
        }
    }
    p.kernel().shrink();
    for cache in CACHES {
        assert_eq!(free(p, cache), 0, "{cache} has room");
    }
}

/// A call, given what was prepared.
type Call = fn(&Process) -> Result<(), Errno>;

struct Step {
    name: &'static str,
    prepare: fn(&Process),
    call: Call,
    /// What it says when there is no memory.
    errno: Errno,
    /// A descriptor that may be changed by a call that has failed, and why is said there.
    but: Option<i32>,
    /// Whether it starts a thread, which frees some of what this one has allocated: then the heap is not counted.
    starts: bool,
}

const fn step(name: &'static str, call: Call) -> Step {
    Step { name, prepare: |_| (), call, errno: Errno::NOMEM, but: None, starts: false }
}

fn opened(p: &Process, fd: Result<i32, Errno>) -> Result<(), Errno> {
    p.close(fd?)
}

fn both(p: &Process, fds: Result<[i32; 2], Errno>) -> Result<(), Errno> {
    fds?.into_iter().try_for_each(|fd| p.close(fd))
}

fn any<T>(result: Result<T, Errno>) -> Result<(), Errno> {
    result.map(drop)
}

/// All of it, or less than all for want of memory.
fn up_to(len: usize, result: Result<usize, Errno>) -> Result<(), Errno> {
    result.map(|n| assert!((1..=len).contains(&n), "{n} of {len}"))
}

/// Files for a message.
fn rights(fds: &[i32]) -> Vec<u8> {
    let mut bytes = (16 + 4 * fds.len() as u64).to_ne_bytes().to_vec();
    bytes.extend(SOL_SOCKET.to_ne_bytes());
    bytes.extend(SCM_RIGHTS.to_ne_bytes());
    bytes.extend(fds.iter().flat_map(|fd| fd.to_ne_bytes()));
    bytes.resize(bytes.len().next_multiple_of(8), 0);
    bytes
}

fn pass(p: &Process, on: i32) -> Result<(), Errno> {
    let control = rights(&[COUNTER, DGRAM_END, STREAM_END]);
    any(p.sendmsg(on, &SendMsg { buffers: &[b"f"], control: &control, ..SendMsg::default() }, 0))
}

/// Receives what [`pass`] has sent; how many files came is told, and they are closed.
fn take(p: &Process, on: i32, flags: i32) -> Result<(), Errno> {
    let (mut byte, mut control) = ([0; 8], [0; 64]);
    let buffers: &mut [&mut [u8]] = &mut [&mut byte];
    let mut message = RecvMsg { buffers, control: &mut control, ..RecvMsg::default() };
    assert_eq!(p.recvmsg(on, &mut message, flags)?, 1);
    let (used, cut) = (message.control_len, message.flags & MSG_CTRUNC != 0);
    let fds = control[..used].get(16..).unwrap_or_default().as_chunks::<4>().0;
    // The length is a multiple of 8.
    let fds: Vec<i32> =
        fds.iter().map(|fd| i32::from_ne_bytes(*fd)).filter(|fd| *fd != 0).collect();
    assert_eq!(fds.len() < 3, cut, "what is not given is told");
    fds.into_iter().try_for_each(|fd| p.close(fd))
}

fn steps() -> Vec<Step> {
    let mut steps = vec![
        step("socket, local", |p| opened(p, p.socket(AF_UNIX, SOCK_STREAM, 0))),
        step("socket, TCP", |p| opened(p, p.socket(AF_INET, SOCK_STREAM, 0))),
        step("socket, UDP", |p| opened(p, p.socket(AF_INET6, SOCK_DGRAM | O_ANYFD, 0))),
        step("socketpair, stream", |p| both(p, p.socketpair(AF_UNIX, SOCK_STREAM, 0))),
        step("socketpair, datagrams", |p| both(p, p.socketpair(AF_UNIX, SOCK_DGRAM, 0))),
        step("bind, a name", |p| p.bind(LOCAL_NEW, &local("\0new"))),
        step("bind, a path", |p| p.bind(LOCAL_NEW, &local("/socket"))),
        step("bind, any name", |p| p.bind(LOCAL_NEW, &local(""))),
        step("bind, a port", |p| p.bind(TCP_NEW, &loopback(0))),
        step("bind, a port of datagrams", |p| p.bind(UDP_NEW, &loopback(0))),
        Step {
            prepare: |p| p.bind(LOCAL_NEW, &local("\0new")).unwrap(),
            ..step("listen, local", |p| p.listen(LOCAL_NEW, 5))
        },
        step("listen, any port", |p| p.listen(TCP_NEW, 5)),
        step("connect, local", |p| p.connect(LOCAL_NEW, &local("\0listener"))),
        Step {
            // The number of the port that was tried is still shown, as on Linux.
            but: Some(TCP_NEW),
            ..step("connect, TCP", |p| connected(p.connect(TCP_NEW, &loopback(TCP_PORT))))
        },
        step("connect, UDP", |p| p.connect(UDP_NEW, &loopback(UDP_PORT))),
        step("connect, local datagrams", |p| p.connect(DGRAM, &local("\0dgram"))),
        Step {
            prepare: |p| p.connect(LOCAL_NEW, &local("\0listener")).unwrap(),
            ..step("accept, local", |p| opened(p, p.accept(LOCAL_LISTENER).map(|(fd, _)| fd)))
        },
        Step {
            prepare: |p| connected(p.connect(TCP_NEW, &loopback(TCP_PORT))).unwrap(),
            ..step("accept, TCP", |p| opened(p, p.accept(TCP_LISTENER).map(|(fd, _)| fd)))
        },
        step("send, a byte", |p| any(p.send(STREAM, b"x", 0))),
        step("send, 200 bytes", |p| any(p.send(STREAM, &[1; 200], 0))),
        step("send, 5000 bytes", |p| up_to(5000, p.send(STREAM, &[1; 5000], 0))),
        step("write, 100,000 bytes", |p| up_to(100_000, p.write(STREAM, &[1; 100_000]))),
        step("send, a datagram", |p| any(p.send(DGRAM, b"x", 0))),
        step("send, a long datagram", |p| any(p.send(DGRAM, &[1; 5000], 0))),
        step("sendto, a datagram", |p| any(p.sendto(DGRAM, &[1; 500], 0, &local("\0dgram")))),
        step("send, a message", |p| any(p.send(PACKETS, &[1; 500], 0))),
        step("send, TCP", |p| any(p.send(TCP, b"x", 0))),
        step("send, TCP, 300,000 bytes", |p| up_to(300_000, p.send(TCP, &[1; 300_000], 0))),
        Step {
            // It is bound before there is a datagram, as on Linux.
            but: Some(UDP_NEW),
            ..step("sendto, UDP", |p| any(p.sendto(UDP_NEW, &[1; 3000], 0, &loopback(UDP_PORT))))
        },
        step("sendmmsg", |p| {
            let one = SendMsg { buffers: &[b"a", b"b"], ..SendMsg::default() };
            any(p.sendmmsg(DGRAM, &mut [one; 3], 0))
        }),
        step("files, over a stream", |p| pass(p, STREAM)),
        step("files, in a datagram", |p| pass(p, DGRAM)),
        Step {
            prepare: |p| pass(p, STREAM).unwrap(),
            ..step("files, looked at", |p| take(p, STREAM_END, MSG_PEEK))
        },
        Step {
            prepare: |p| pass(p, STREAM).unwrap(),
            ..step("files, received", |p| take(p, STREAM_END, 0))
        },
        Step {
            prepare: |p| pass(p, PACKETS).unwrap(),
            ..step("files, received with a message", |p| take(p, PACKETS + 1, 0))
        },
        Step {
            prepare: |p| {
                p.send(TCP, &[7; 50_000], 0).unwrap();
            },
            ..step("recv, TCP", |p| any(p.recv(TCP + 1, &mut [0; 50_000], 0)))
        },
        step("setsockopt", |p| {
            p.setsockopt(LOCAL_NEW, SOL_SOCKET, SO_SNDBUF, &9000_i32.to_ne_bytes())
        }),
        step("setsockopt, TCP", |p| {
            p.setsockopt(TCP_NEW, SOL_SOCKET, SO_REUSEADDR, &1_i32.to_ne_bytes())
        }),
        step("shutdown", |p| p.shutdown(STREAM, SHUT_WR)),
        step("shutdown, TCP", |p| p.shutdown(TCP, SHUT_RDWR)),
        step("shutdown, a listener", |p| p.shutdown(TCP_LISTENER, SHUT_RD)),
    ];
    steps.extend(other_steps());
    steps
}

/// A page with some bytes.
fn gift(p: &Process) -> Result<GiftPage<'_>, Errno> {
    let mut page = p.gift_page()?;
    page.room()[..7].fill(7);
    page.set_len(7);
    Ok(page)
}

fn other_steps() -> Vec<Step> {
    vec![
        step("pipe2", |p| both(p, p.pipe2(0))),
        step("write to a pipe", |p| any(p.write(PIPE_END, b"x"))),
        step("write to a pipe, 60,000 bytes", |p| up_to(60_000, p.write(PIPE_END, &[1; 60_000]))),
        step("F_SETPIPE_SZ", |p| any(p.fcntl(PIPE, F_SETPIPE_SZ, 1 << 18))),
        step("splice", |p| any(p.splice(OTHER_PIPE, None, PIPE_END, None, 3, 0))),
        step("splice to a socket", |p| any(p.splice(OTHER_PIPE, None, STREAM, None, 3, 0))),
        step("tee", |p| any(p.tee(OTHER_PIPE, PIPE_END, 3, 0))),
        step("vmsplice", |p| any(p.vmsplice(PIPE_END, &[&[1; 5000]], 0))),
        step("vmsplice_gift", |p| any(p.vmsplice_gift(PIPE_END, &mut [Some(gift(p)?)], 0))),
        step("vmsplice_gift, behind a few bytes", |p| {
            let mut pages = [Some(gift(p)?)];
            let given = p.vmsplice_gift(OTHER_PIPE + 1, &mut pages, 0);
            assert_eq!(pages[0].is_some(), given.is_err(), "what was not given stays");
            any(given)
        }),
        step("take_pages, of a few bytes", |p| {
            let mut to = [None];
            let taken = p.take_pages(OTHER_PIPE, &mut to, 0);
            assert_eq!(to[0].is_some(), taken.is_ok());
            any(taken)
        }),
        step("eventfd", |p| opened(p, p.eventfd(0, 0))),
        step("write to an eventfd", |p| any(p.write(COUNTER, &1_u64.to_ne_bytes()))),
        step("timerfd_create", |p| opened(p, p.timerfd_create(CLOCK_MONOTONIC, 0))),
        Step {
            starts: true,
            ..step("timerfd_settime", |p| {
                let value = Duration::from_secs(1000);
                any(p.timerfd_settime(TIMER, 0, ItimerSpec { interval: Duration::ZERO, value }))
            })
        },
        step("signalfd", |p| opened(p, p.signalfd(-1, 1, 0))),
        step("a signal", |p| {
            // Without memory it waits without what it is told with. It is read, so that the call can be made again.
            assert_eq!(p.kill(p.getpid(), 1), Ok(()));
            any(p.read(SIGNALS, &mut [0; 128]))
        }),
        step("epoll_create1", |p| opened(p, p.epoll_create1(0))),
        step("EPOLL_CTL_ADD", |p| watch(p, EPOLL, EPOLL_CTL_ADD, PIPE, Events::IN)),
        step("EPOLL_CTL_ADD, of a socket", |p| watch(p, EPOLL, EPOLL_CTL_ADD, TCP_NEW, Events::IN)),
        step("EPOLL_CTL_ADD, of an epoll", |p| {
            watch(p, OUTER_EPOLL, EPOLL_CTL_ADD, EPOLL, Events::IN)
        }),
        step("EPOLL_CTL_MOD", |p| watch(p, EPOLL, EPOLL_CTL_MOD, OTHER_PIPE, Events::OUT)),
        step("EPOLL_CTL_DEL", |p| watch(p, EPOLL, EPOLL_CTL_DEL, OTHER_PIPE, Events::IN)),
        step("epoll_wait", |p| any(p.epoll_wait(EPOLL, &mut [EpollEvent::default(); 4], 0))),
        step("epoll_wait, in vain", |p| {
            any(p.epoll_wait(OUTER_EPOLL, &mut [EpollEvent::default(); 4], 1))
        }),
        step("an event for an epoll", |p| any(p.write(OTHER_PIPE + 1, b"d"))),
        step("poll, in vain", |p| {
            let mut fds: Vec<_> = [PIPE, UDP, SIGNALS, TIMER, LOCAL_LISTENER]
                .map(|fd| PollFd { fd, events: Events::IN.bits() as i16, revents: 0 })
                .repeat(20);
            any(p.poll(&mut fds, 1))
        }),
        step("select, in vain", |p| {
            let mut set = quietline::FdSet::default();
            set.insert(PIPE).and_then(|()| set.insert(UDP))?;
            any(p.select(64, Some(&mut set), None, None, Some(Duration::from_millis(1))))
        }),
    ]
}

/// That a call which failed changed nothing, `but` perhaps one descriptor.
#[track_caller]
fn same(before: &str, after: &str, but: Option<i32>, what: &str) {
    let but = but.map(|fd| format!("{fd}: "));
    let compared = |line: &&str| but.as_ref().is_none_or(|but| !line.starts_with(but));
    let [before, after] =
        [before, after].map(|text| text.lines().filter(compared).collect::<Vec<_>>());
    if let Some((old, new)) = before.iter().zip(&after).find(|(old, new)| old != new) {
        panic!("{what}: a call that failed changed something: {old} became {new}");
    }
    assert_eq!(before.len(), after.len(), "{what}: a call that failed changed something");
}

/// One run of a step: whether the fault was met.
fn run(step: &Step, nth: u64, arm: fn(u64), reported: &mut u64, made_do: &mut u64) -> bool {
    let p = world();
    (step.prepare)(&p);
    starve(&p);
    let before = picture(&p);
    p.kernel().shrink();
    arm(nth);
    let result = (step.call)(&p);
    // One that fails from the nth on stays armed: it is over when the call works without having met it.
    let mut met = !fault::armed();
    fault::fail_nth(0);
    let name = step.name;
    match result {
        Ok(()) => *made_do += u64::from(met),
        Err(errno) => {
            met = true;
            *reported += 1;
            assert_eq!(errno, step.errno, "{name}: allocation {nth} fails");
            same(&before, &picture(&p), step.but, &format!("{name}, allocation {nth}"));
            assert_eq!((step.call)(&p), Ok(()), "{name}: memory is back (allocation {nth})");
        }
    }
    // It still works; and nothing stays open.
    picture(&p);
    p.close_range(0, u32::MAX, 0).unwrap();
    // What was in messages goes when another local socket does.
    both(&p, p.socketpair(AF_UNIX, SOCK_STREAM, 0)).unwrap();
    assert_eq!(p.kernel().nr_files(), 0, "{name}, allocation {nth}: a file is left");
    met
}

#[test]
fn each_allocation_of_each_call() {
    quietline_testing::isolated!();
    quietline_testing::heap::start();
    let _alone = alone();
    // What is made once is made before; the list of those who look after a fork of the host grows with what waits for its end.
    let crowd: Vec<_> = (0..20).map(|_| world()).collect();
    drop(crowd);
    for step in steps() {
        let p = world();
        (step.prepare)(&p);
        starve(&p);
        (step.call)(&p).unwrap_or_else(|errno| panic!("{}: {errno}", step.name));
    }
    let (mut reported, mut made_do, mut silent) = (0, 0, Vec::new());
    for step in steps() {
        let before = held();
        let (mut of_step, mut made) = (0, 0);
        let mut once = |nth, arm| {
            let met = run(&step, nth, arm, &mut of_step, &mut made);
            let now = held();
            let expected = if step.starts { (before.0, now.1) } else { before };
            assert_eq!(now, expected, "{}: pages and heap after allocation {nth}", step.name);
            met
        };
        let end = (1..2000).find(|nth| !once(*nth, fault::fail_nth));
        let end = end.unwrap_or_else(|| panic!("{}: a call has no end of allocations", step.name));
        (1..end).for_each(|nth| {
            once(nth, fault::fail_from);
        });
        if of_step + made == 0 {
            silent.push(step.name);
        }
        reported += of_step;
        made_do += made;
    }
    println!(
        "{reported} failures reported, {made_do} made do with; no memory wanted by {silent:?}"
    );
    assert!(reported > 150, "{reported}");
    assert_eq!(silent, NEED_NONE);
}

/// Calls that need no memory, or have it.
const NEED_NONE: [&str; 15] = [
    "connect, local datagrams",
    "files, received",
    "files, received with a message",
    "recv, TCP",
    "setsockopt",
    "setsockopt, TCP",
    "shutdown",
    "shutdown, TCP",
    "shutdown, a listener",
    "write to a pipe",
    "write to an eventfd",
    "EPOLL_CTL_MOD",
    "epoll_wait",
    "epoll_wait, in vain",
    "an event for an epoll",
];
