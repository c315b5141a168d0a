//! Connections, made and closed.

use crate::processes::in_process;
use crate::{Operation, Scene, Sharing};
use quietline::Process;
use quietline::abi::{
    AF_INET, AF_INET6, AF_UNIX, O_ANYFD, SHUT_WR, SO_TYPE, SOCK_DGRAM, SOCK_STREAM, SOL_SOCKET,
};

pub(super) fn operations() -> Vec<Operation> {
    let of = |name, about, scene| Operation::new("connections", name, about, scene);
    vec![
        of("unix-connect", "socket, connect, accept and two closes, AF_UNIX", unix::<O_ANYFD>),
        of("unix-connect-lowest", "the same at the lowest descriptors", unix::<0>),
        of("tcp-connect", "socket, connect, accept and two closes, TCP over IPv4", tcp::<AF_INET>),
        of("tcp6-connect", "the same over IPv6", tcp::<AF_INET6>),
        of("unix-bind", "socket, bind to an abstract name and close", unix_bind),
        of("udp-bind", "socket, bind to a free port and close", udp_bind),
        of("udp-connect", "connect of a bound UDP socket to another", udp_connect),
        of("getsockname", "getsockname of a TCP socket", getsockname),
        of("getsockopt", "getsockopt of SO_TYPE", getsockopt),
        of("shutdown", "socketpair, shutdown of one direction and two closes", shutdown),
    ]
}

/// Address of the loopback with port 0.
fn loopback(family: i32) -> Vec<u8> {
    let mut address = vec![0; if family == AF_INET { 16 } else { 28 }];
    address[..2].copy_from_slice(&(family as u16).to_ne_bytes());
    match family {
        AF_INET => address[4..8].copy_from_slice(&[127, 0, 0, 1]),
        _ => address[23] = 1,
    }
    address
}

/// Makes a socket that is bound to a free port.
pub(super) fn bound(process: &Process, family: i32, ty: i32) -> i32 {
    let fd = process.socket(family, ty | O_ANYFD, 0).expect("a socket");
    process.bind(fd, &loopback(family)).expect("there are ports");
    fd
}

/// Returns the address that a socket is bound to.
pub(super) fn address(process: &Process, fd: i32) -> Vec<u8> {
    process.getsockname(fd).expect("it is bound").bytes().to_vec()
}

/// Abstract name of the CPU's own.
fn abstract_name(cpu: usize) -> Vec<u8> {
    [&(AF_UNIX as u16).to_ne_bytes()[..], format!("\0costs-{cpu}").as_bytes()].concat()
}

/// Scene that connects to a listener and closes both ends.
fn connect<const FLAGS: i32>(
    sharing: Sharing,
    listen: fn(&Process, usize) -> (i32, Vec<u8>),
) -> Scene {
    in_process(sharing, move |process, cpu| {
        let (listener, address) = listen(&process, cpu);
        process.listen(listener, 1).expect("it is bound");
        let family = i32::from(u16::from_ne_bytes([address[0], address[1]]));
        Box::new(move || {
            let client = process.socket(family, SOCK_STREAM | FLAGS, 0).expect("a socket");
            process.connect(client, &address).expect("it listens");
            let (server, _) = process.accept4(listener, FLAGS).expect("a connection");
            process.close(client).expect("it is open");
            process.close(server).expect("it is open");
        })
    })
}

fn unix<const FLAGS: i32>(sharing: Sharing) -> Scene {
    connect::<FLAGS>(sharing, |process, cpu| {
        let listener = process.socket(AF_UNIX, SOCK_STREAM | O_ANYFD, 0).expect("a socket");
        process.bind(listener, &abstract_name(cpu)).expect("the name is the CPU's own");
        (listener, abstract_name(cpu))
    })
}

fn tcp<const FAMILY: i32>(sharing: Sharing) -> Scene {
    connect::<O_ANYFD>(sharing, |process, _| {
        let listener = bound(process, FAMILY, SOCK_STREAM);
        (listener, address(process, listener))
    })
}

fn unix_bind(sharing: Sharing) -> Scene {
    in_process(sharing, |process, cpu| {
        let name = abstract_name(cpu);
        Box::new(move || {
            let fd = process.socket(AF_UNIX, SOCK_STREAM | O_ANYFD, 0).expect("a socket");
            process.bind(fd, &name).expect("the name is the CPU's own");
            process.close(fd).expect("it is open");
        })
    })
}

fn udp_bind(sharing: Sharing) -> Scene {
    in_process(sharing, |process, _| {
        let name = loopback(AF_INET);
        Box::new(move || {
            let fd = process.socket(AF_INET, SOCK_DGRAM | O_ANYFD, 0).expect("a socket");
            process.bind(fd, &name).expect("there are ports");
            process.close(fd).expect("it is open");
        })
    })
}

fn udp_connect(sharing: Sharing) -> Scene {
    in_process(sharing, |process, _| {
        let [one, two] = [(); 2].map(|()| bound(&process, AF_INET, SOCK_DGRAM));
        let name = address(&process, two);
        Box::new(move || process.connect(one, &name).expect("it is bound"))
    })
}

fn getsockname(sharing: Sharing) -> Scene {
    in_process(sharing, |process, _| {
        let fd = bound(&process, AF_INET, SOCK_STREAM);
        Box::new(move || assert_eq!(process.getsockname(fd).expect("a name").bytes().len(), 16))
    })
}

fn getsockopt(sharing: Sharing) -> Scene {
    in_process(sharing, |process, _| {
        let fd = bound(&process, AF_INET, SOCK_STREAM);
        Box::new(move || {
            let mut value = [0; 4];
            let n = process.getsockopt(fd, SOL_SOCKET, SO_TYPE, &mut value);
            assert_eq!((n, i32::from_ne_bytes(value)), (Ok(4), SOCK_STREAM));
        })
    })
}

fn shutdown(sharing: Sharing) -> Scene {
    in_process(sharing, |process, _| {
        Box::new(move || {
            let pair = process.socketpair(AF_UNIX, SOCK_STREAM | O_ANYFD, 0).expect("a pair");
            process.shutdown(pair[0], SHUT_WR).expect("it is connected");
            assert_eq!(process.read(pair[1], &mut [0]), Ok(0));
            pair.into_iter().for_each(|fd| process.close(fd).expect("it is open"));
        })
    })
}
