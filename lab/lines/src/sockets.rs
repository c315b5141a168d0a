//! Bytes through sockets, and connections: each CPU with sockets of its own, in a process of its own or all in one.

use crate::operation::{Allowance, Operation, Period, Scene, Worker};
use crate::slab::RCU_LINES;
use quietline::abi::{AF_INET, AF_UNIX, O_ANYFD, SOCK_DGRAM, SOCK_SEQPACKET, SOCK_STREAM};
use quietline::{Config, Kernel, Process};
use std::sync::Arc;

pub(crate) fn operations() -> Vec<Operation> {
    let through = |name, says, whose, make: fn(&Process) -> [i32; 2]| {
        Operation::new(name, says, Allowance::Never, move |_| scene(whose, move |p| bytes(p, make)))
    };
    // What nobody has used by a descriptor is freed at once; what was, waits for a grace period, and comes home with its state.
    let made = |name, says, allowance, make: fn(Arc<Process>, usize) -> Worker| Operation {
        period: Period::Graces,
        ..Operation::new(name, says, allowance, move |_| scene_of(Whose::Own, make))
    };
    let used = Allowance::Batch {
        lines: RCU_LINES,
        ops: USED / 2.0,
        says: "13 of cache and domain, for 341 used sockets, of which there are two",
    };
    vec![
        through(
            "unix-stream",
            "a byte through an own pair, each CPU in a process of its own",
            Whose::Own,
            |p| pair(p, SOCK_STREAM),
        ),
        through("unix-stream-one", "the same, all CPUs in one process", Whose::One, |p| {
            pair(p, SOCK_STREAM)
        }),
        through(
            "unix-dgram",
            "a datagram through an own pair, each CPU in a process of its own",
            Whose::Own,
            |p| pair(p, SOCK_DGRAM),
        ),
        through("unix-dgram-one", "the same, all CPUs in one process", Whose::One, |p| {
            pair(p, SOCK_DGRAM)
        }),
        through(
            "unix-seqpacket-one",
            "a message through an own pair, all CPUs in one process",
            Whose::One,
            |p| pair(p, SOCK_SEQPACKET),
        ),
        through(
            "tcp",
            "a byte through an own connection, each CPU in a process of its own",
            Whose::Own,
            tcp_pair,
        ),
        through("tcp-one", "the same, all CPUs in one process", Whose::One, tcp_pair),
        through(
            "udp",
            "a datagram between own connected sockets, each CPU in a process of its own",
            Whose::Own,
            udp_pair,
        ),
        through("udp-one", "the same, all CPUs in one process", Whose::One, udp_pair),
        made(
            "socketpairs",
            "socketpair and two closes, each CPU in a process of its own",
            Allowance::Batch {
                lines: 2.0,
                ops: 1024.0,
                says: "the pool of inode numbers, of which it takes two",
            },
            socketpair,
        ),
        made(
            "unix-connect",
            "connect to an own listener, accept, two closes, each CPU in a process of its own",
            used,
            unix_connect,
        ),
        made("tcp-connect", "the same over TCP", used, tcp_connect),
    ]
}

/// Sockets that wait for a grace period together.
const USED: f64 = 341.0;

/// Whether CPUs have a process each, or all the same.
#[derive(Clone, Copy)]
enum Whose {
    Own,
    One,
}

fn scene(whose: Whose, make: impl Fn(Arc<Process>) -> Worker + Sync + 'static) -> Scene {
    scene_of(whose, move |process, _| make(process))
}

fn scene_of(whose: Whose, make: impl Fn(Arc<Process>, usize) -> Worker + Sync + 'static) -> Scene {
    let kernel = Kernel::boot(Config::default()).expect("a kernel");
    let one = Arc::new(kernel.process().expect("a process"));
    Box::new(move |cpu| match whose {
        Whose::Own => make(Arc::new(kernel.process().expect("a process")), cpu),
        Whose::One => make(Arc::clone(&one), cpu),
    })
}

fn pair(process: &Process, ty: i32) -> [i32; 2] {
    process.socketpair(AF_UNIX, ty | O_ANYFD, 0).expect("a pair")
}

/// An IPv4 address of this machine.
fn loopback(port: [u8; 2]) -> [u8; 16] {
    let mut address = [0; 16];
    address[..2].copy_from_slice(&(AF_INET as u16).to_ne_bytes());
    address[2..4].copy_from_slice(&port);
    address[4..8].copy_from_slice(&[127, 0, 0, 1]);
    address
}

/// A socket that is bound to a port of its own; its address.
fn bound(process: &Process, ty: i32) -> (i32, [u8; 16]) {
    let fd = process.socket(AF_INET, ty | O_ANYFD, 0).expect("a socket");
    process.bind(fd, &loopback([0; 2])).expect("there are ports");
    let name = process.getsockname(fd).expect("it has a name");
    (fd, loopback([name.bytes()[2], name.bytes()[3]]))
}

fn tcp_pair(process: &Process) -> [i32; 2] {
    let (listener, address) = bound(process, SOCK_STREAM);
    process.listen(listener, 1).expect("it is bound");
    let client = process.socket(AF_INET, SOCK_STREAM | O_ANYFD, 0).expect("a socket");
    process.connect(client, &address).expect("it listens");
    let (server, _) = process.accept4(listener, O_ANYFD).expect("it is there");
    process.close(listener).expect("it is open");
    [client, server]
}

fn udp_pair(process: &Process) -> [i32; 2] {
    let ((one, of_one), (two, of_two)) = (bound(process, SOCK_DGRAM), bound(process, SOCK_DGRAM));
    process.connect(one, &of_two).expect("it is there");
    process.connect(two, &of_one).expect("it is there");
    [one, two]
}

/// A byte there, and no more.
fn bytes(process: Arc<Process>, make: fn(&Process) -> [i32; 2]) -> Worker {
    let [to, from] = make(&process);
    let mut sent = 0_u8;
    Box::new(move || {
        sent = sent.wrapping_add(1);
        let mut got = [0; 8];
        assert_eq!(process.write(to, &[sent]), Ok(1));
        assert_eq!(process.read(from, &mut got), Ok(1));
        assert_eq!(got[0], sent);
    })
}

fn socketpair(process: Arc<Process>, _cpu: usize) -> Worker {
    Box::new(move || {
        for fd in process.socketpair(AF_UNIX, SOCK_STREAM, 0).expect("a pair") {
            process.close(fd).expect("it is open");
        }
    })
}

/// A client and what the listener has for it; both are closed.
fn connect(process: &Process, family: i32, listener: i32, address: &[u8]) {
    let client = process.socket(family, SOCK_STREAM, 0).expect("a socket");
    process.connect(client, address).expect("it listens");
    let (server, _) = process.accept(listener).expect("it is there");
    process.close(client).expect("it is open");
    assert_eq!(process.read(server, &mut [0]), Ok(0));
    process.close(server).expect("it is open");
}

fn unix_connect(process: Arc<Process>, cpu: usize) -> Worker {
    let address = [&(AF_UNIX as u16).to_ne_bytes()[..], b"\0lines", &[b'a' + cpu as u8]].concat();
    let listener = process.socket(AF_UNIX, SOCK_STREAM, 0).expect("a socket");
    process.bind(listener, &address).expect("the name is its own");
    process.listen(listener, 1).expect("it is bound");
    Box::new(move || connect(&process, AF_UNIX, listener, &address))
}

fn tcp_connect(process: Arc<Process>, _cpu: usize) -> Worker {
    let (listener, address) = bound(&process, SOCK_STREAM);
    process.listen(listener, 1).expect("it is bound");
    Box::new(move || connect(&process, AF_INET, listener, &address))
}
