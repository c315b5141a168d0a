//! Bytes through sockets, and connections: each CPU with sockets of its own, in a process of its own or all in one.

use crate::operation::{Allowance, Operation, Period, Scene, Worker};
use crate::slab::RCU_LINES;
use quietline::abi::{AF_INET, AF_UNIX, O_ANYFD, SOCK_STREAM};
use quietline::{Config, Kernel, Process};
use quietline_costs::Sharing;
use std::sync::Arc;

pub(crate) fn operations() -> Vec<Operation> {
    let own =
        |name, ledger| Operation::of_ledger(name, ledger, Sharing::OwnProcesses, Allowance::Never);
    let one =
        |name, ledger| Operation::of_ledger(name, ledger, Sharing::OneProcess, Allowance::Never);
    // What nobody has used by a descriptor is freed at once; what was, waits for a grace period, and comes home with its state.
    let made = |name, says, allowance, make: fn(Arc<Process>, usize) -> Worker| Operation {
        period: Period::Graces,
        ..Operation::new(name, says, allowance, move |_| scene(make))
    };
    let used = Allowance::Batch {
        lines: RCU_LINES,
        ops: USED / 2.0,
        says: "13 of cache and domain, for 341 used sockets, of which there are two",
    };
    vec![
        own("unix-stream", "unix-stream-1"),
        one("unix-stream-one", "unix-stream-1"),
        own("unix-dgram", "unix-dgram-1"),
        one("unix-dgram-one", "unix-dgram-1"),
        one("unix-seqpacket-one", "unix-seqpacket-64"),
        own("tcp", "tcp-1"),
        one("tcp-one", "tcp-1"),
        own("udp", "udp-1"),
        one("udp-one", "udp-1"),
        Operation {
            period: Period::Graces,
            ..Operation::of_ledger(
                "socketpairs",
                "socketpair-lowest",
                Sharing::OwnProcesses,
                Allowance::Batch {
                    lines: 2.0,
                    ops: 1024.0,
                    says: "the pool of inode numbers, of which it takes two",
                },
            )
        },
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

/// Each CPU in a process of its own.
fn scene(make: fn(Arc<Process>, usize) -> Worker) -> Scene {
    let kernel = Kernel::boot(Config::default()).expect("a kernel");
    Box::new(move |cpu| make(Arc::new(kernel.process().expect("a process")), cpu))
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
