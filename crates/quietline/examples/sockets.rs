//! What calls on local sockets cost, beside the same calls on the host: `cargo run --release -p quietline --example sockets`.
//!
//! One thread's own time; both kernels in turn, the medians of seven rounds. Each round checks what it has moved. With the
//! beginning of a row's name as an argument: that row alone.

use quietline::abi::{AF_UNIX, SCM_RIGHTS, SOCK_NONBLOCK, SOCK_STREAM, SOL_SOCKET};
use quietline::{Config, Kernel, Process, RecvMsg, SendMsg};
use std::hint::black_box;

const ROUNDS: usize = 7;

/// A row: what is done once, here and on the host.
struct Row<'a> {
    name: &'static str,
    /// A target, in ns.
    target: u64,
    ours: Box<dyn FnMut() + 'a>,
    host: Box<dyn FnMut() + 'a>,
}

/// ns for one of `times`.
fn measure(times: u32, f: &mut dyn FnMut()) -> f64 {
    let start = host::cpu_time();
    for _ in 0..times {
        f();
    }
    (host::cpu_time() - start) as f64 / f64::from(times)
}

fn median(mut of: Vec<f64>) -> f64 {
    of.sort_by(f64::total_cmp);
    of[of.len() / 2]
}

fn cmsg(fd: i32) -> [u8; 24] {
    let mut bytes = [0; 24];
    bytes[..8].copy_from_slice(&20u64.to_ne_bytes());
    bytes[8..12].copy_from_slice(&SOL_SOCKET.to_ne_bytes());
    bytes[12..16].copy_from_slice(&SCM_RIGHTS.to_ne_bytes());
    bytes[16..20].copy_from_slice(&fd.to_ne_bytes());
    bytes
}

fn fd_in(cmsg: &[u8; 24]) -> i32 {
    i32::from_ne_bytes(*cmsg[16..].first_chunk().unwrap())
}

fn name() -> Vec<u8> {
    let mut name = 1u16.to_ne_bytes().to_vec();
    name.extend(format!("\0ql-example-{}", std::process::id()).into_bytes());
    name
}

fn rows(p: &Process) -> Vec<Row<'_>> {
    let stream = SOCK_STREAM | SOCK_NONBLOCK;
    let [a, b] = p.socketpair(AF_UNIX, stream, 0).unwrap();
    let [c, d] = host::pair();
    let address = name();
    let listener = p.socket(AF_UNIX, SOCK_STREAM, 0).unwrap();
    p.bind(listener, &address).unwrap();
    p.listen(listener, 5).unwrap();
    let theirs = host::listener(&address);
    let (ours_address, host_address) = (address.clone(), address);
    let [passed, _] = p.socketpair(AF_UNIX, SOCK_STREAM, 0).unwrap();
    let event = p.eventfd(0, 0).unwrap();
    let round = move |len: usize| {
        let (from, mut to) = (vec![7; len], vec![0; len]);
        move || {
            assert_eq!(p.write(a, &from), Ok(len));
            assert_eq!(p.read(b, &mut to), Ok(len));
            assert_eq!(to[len - 1], 7);
        }
    };
    let host_round = move |len: usize| {
        let (from, mut to) = (vec![7; len], vec![0; len]);
        move || {
            assert_eq!(host::write(c, &from), len);
            assert_eq!(host::read(d, &mut to), len);
            assert_eq!(to[len - 1], 7);
        }
    };
    let pass = move |fd: i32| {
        move || {
            assert_eq!(
                p.sendmsg(
                    a,
                    &SendMsg { buffers: &[b"x"], control: &cmsg(fd), ..SendMsg::default() },
                    0
                ),
                Ok(1)
            );
            let (mut byte, mut control) = ([0], [0; 24]);
            let buffers: &mut [&mut [u8]] = &mut [&mut byte];
            let mut message = RecvMsg { buffers, control: &mut control, ..RecvMsg::default() };
            assert_eq!(p.recvmsg(b, &mut message, 0), Ok(1));
            p.close(fd_in(&control)).unwrap();
        }
    };
    let host_pass = move |fd: i32| move || host::close(host::pass(c, d, fd));
    vec![
        Row {
            name: "socketpair + 2 close, handles",
            target: 80,
            ours: Box::new(move || {
                drop(black_box(p.socketpair_files(AF_UNIX, stream, 0).unwrap()))
            }),
            host: Box::new(|| host::pair().map(host::close).into_iter().collect()),
        },
        Row {
            name: "socketpair + 2 close",
            target: 80,
            ours: Box::new(move || {
                for fd in p.socketpair(AF_UNIX, stream, 0).unwrap() {
                    p.close(fd).unwrap();
                }
            }),
            host: Box::new(|| host::pair().map(host::close).into_iter().collect()),
        },
        Row {
            name: "stream write + read, 1 byte",
            target: 60,
            ours: Box::new(round(1)),
            host: Box::new(host_round(1)),
        },
        Row {
            name: "stream write + read, 4 KiB",
            target: 0,
            ours: Box::new(round(4096)),
            host: Box::new(host_round(4096)),
        },
        Row {
            name: "stream send + recv, 1 byte",
            target: 60,
            ours: Box::new(move || {
                let mut byte = [0];
                assert_eq!(p.send(a, &[9], 0), Ok(1));
                assert_eq!(p.recv(b, &mut byte, 0), Ok(1));
                assert_eq!(byte, [9]);
            }),
            host: Box::new(host_round(1)),
        },
        Row {
            name: "socket + connect + accept + 2 close",
            target: 300,
            ours: Box::new(move || {
                let client = p.socket(AF_UNIX, SOCK_STREAM, 0).unwrap();
                p.connect(client, &ours_address).unwrap();
                let (server, _) = p.accept(listener).unwrap();
                p.close(client).unwrap();
                p.close(server).unwrap();
            }),
            host: Box::new(move || {
                let [client, server] = host::connect_accept(theirs, &host_address);
                host::close(client);
                host::close(server);
            }),
        },
        Row {
            name: "SCM_RIGHTS round, an eventfd",
            target: 150,
            ours: Box::new(pass(event)),
            host: Box::new(host_pass(host::eventfd())),
        },
        Row {
            name: "SCM_RIGHTS round, a local socket",
            target: 150,
            ours: Box::new(pass(passed)),
            host: Box::new(host_pass(host::pair()[0])),
        },
    ]
}

fn main() {
    let kernel = Kernel::boot(Config::default()).unwrap();
    let process = kernel.process().unwrap();
    println!("{:40} {:>8} {:>8} {:>8} {:>6}", "ns", "here", "host", "target", "ratio");
    let wanted = std::env::args().nth(1).unwrap_or_default();
    for mut row in rows(&process).into_iter().filter(|row| row.name.starts_with(&wanted)) {
        let (mut ours, mut host) = (Vec::new(), Vec::new());
        for _ in 0..ROUNDS {
            ours.push(measure(200_000, &mut row.ours));
            host.push(measure(10_000, &mut row.host));
        }
        let (ours, host) = (median(ours), median(host));
        println!("{:40} {ours:8.1} {host:8.0} {:8} {:6.1}", row.name, row.target, host / ours);
    }
}

/// The host's calls.
// SAFETY, of all blocks here: the pointers are to values that live during the call, with their sizes.
#[allow(unsafe_code, clippy::undocumented_unsafe_blocks)]
mod host {
    use super::{cmsg, fd_in};

    /// What the calling thread has used, in ns.
    pub(crate) fn cpu_time() -> i64 {
        let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
        assert_eq!(unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &mut time) }, 0);
        time.tv_sec * 1_000_000_000 + time.tv_nsec
    }

    pub(crate) fn pair() -> [i32; 2] {
        let mut fds = [0; 2];
        let ty = libc::SOCK_STREAM | libc::SOCK_NONBLOCK;
        assert_eq!(unsafe { libc::socketpair(libc::AF_UNIX, ty, 0, fds.as_mut_ptr()) }, 0);
        fds
    }

    pub(crate) fn close(fd: i32) {
        assert_eq!(unsafe { libc::close(fd) }, 0);
    }

    pub(crate) fn eventfd() -> i32 {
        unsafe { libc::eventfd(0, 0) }
    }

    pub(crate) fn write(fd: i32, from: &[u8]) -> usize {
        unsafe { libc::write(fd, from.as_ptr().cast(), from.len()) as usize }
    }

    pub(crate) fn read(fd: i32, to: &mut [u8]) -> usize {
        unsafe { libc::read(fd, to.as_mut_ptr().cast(), to.len()) as usize }
    }

    pub(crate) fn listener(address: &[u8]) -> i32 {
        unsafe {
            let fd = libc::socket(libc::AF_UNIX, libc::SOCK_STREAM, 0);
            assert_eq!(libc::bind(fd, address.as_ptr().cast(), address.len() as u32), 0);
            assert_eq!(libc::listen(fd, 5), 0);
            fd
        }
    }

    pub(crate) fn connect_accept(listener: i32, address: &[u8]) -> [i32; 2] {
        unsafe {
            let client = libc::socket(libc::AF_UNIX, libc::SOCK_STREAM, 0);
            assert_eq!(libc::connect(client, address.as_ptr().cast(), address.len() as u32), 0);
            [client, libc::accept(listener, core::ptr::null_mut(), core::ptr::null_mut())]
        }
    }

    pub(crate) fn pass(from: i32, to: i32, fd: i32) -> i32 {
        let (mut control, mut room, mut byte) = (cmsg(fd), [0; 24], [7u8]);
        let mut iov = libc::iovec { iov_base: byte.as_mut_ptr().cast(), iov_len: 1 };
        unsafe {
            let mut message: libc::msghdr = core::mem::zeroed();
            message.msg_iov = &mut iov;
            message.msg_iovlen = 1;
            message.msg_control = control.as_mut_ptr().cast();
            message.msg_controllen = 24 as _;
            assert_eq!(libc::sendmsg(from, &message, 0), 1);
            message.msg_control = room.as_mut_ptr().cast();
            assert_eq!(libc::recvmsg(to, &mut message, 0), 1);
        }
        fd_in(&room)
    }
}
