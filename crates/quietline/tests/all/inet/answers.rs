//! Answers that differed from the host's: both are asked, in one order.

use super::call::System;
use super::host::Host;
use super::ours::Ours;

const TCP_MAXSEG: i32 = 2;
const TCP_WINDOW_CLAMP: i32 = 10;
const TCP_DEFER_ACCEPT: i32 = 9;

/// What one system answers to everything, a line for each answer.
type Answers = Vec<String>;

/// The same questions to both.
fn same(ask: impl Fn(&mut dyn System, &mut Answers)) {
    let (mut theirs, mut own) = (Answers::new(), Answers::new());
    ask(&mut Host { slow: true }, &mut theirs);
    ask(&mut Ours::new(), &mut own);
    assert_eq!(theirs, own, "the host's, and ours");
    assert!(!own.is_empty());
}

fn loopback(port: u16) -> Vec<u8> {
    let mut address = vec![0; 16];
    address[..2].copy_from_slice(&(libc::AF_INET as u16).to_ne_bytes());
    address[2..4].copy_from_slice(&port.to_be_bytes());
    address[4..8].copy_from_slice(&[127, 0, 0, 1]);
    address
}

/// `socket`, non-blocking.
fn socket(system: &mut dyn System, ty: i32) -> i32 {
    system.socket(libc::AF_INET, ty | libc::SOCK_NONBLOCK).unwrap()
}

/// A listener, a client and the accepted end, each made by `prepare` before it is bound or
/// connected.
fn connection(system: &mut dyn System, prepare: impl Fn(&mut dyn System, i32, bool)) -> [i32; 3] {
    let [listener, client] = [(); 2].map(|()| socket(system, libc::SOCK_STREAM));
    prepare(system, listener, true);
    prepare(system, client, false);
    system.bind(listener, &loopback(0)).unwrap();
    system.listen(listener, 8).unwrap();
    let name = system.name(listener, false).unwrap();
    let _ = system.connect(client, &name);
    // The host's device may be late.
    let begun = std::time::Instant::now();
    let server = loop {
        match system.accept(listener) {
            Ok((server, _)) => break server,
            Err(errno) => assert!(begun.elapsed().as_secs() < 60, "no connection: {errno}"),
        }
    };
    // A `connect` that is over is told of once.
    let _ = system.connect(client, &name);
    [listener, client, server]
}

/// `shutdown` in a wrong direction is `EINVAL` whatever the socket's state.
#[test]
fn shutdown_in_no_direction() {
    same(|system, answers| {
        for ty in [libc::SOCK_STREAM, libc::SOCK_DGRAM] {
            let fd = socket(system, ty);
            answers
                .extend([-1, 3, 1 << 30, 0].map(|how| format!("{:?}", system.shutdown(fd, how))));
            system.close(fd).unwrap();
        }
        let ends = connection(system, |_, _, _| {});
        for fd in ends {
            answers.push(format!("{:?} {:?}", system.shutdown(fd, -1), system.shutdown(fd, 3)));
            system.close(fd).unwrap();
        }
    });
}

/// A datagram socket that is connected to port 0 has no peer's name, sends, is told that nothing
/// is there, and hears all ports of the address.
#[test]
fn datagrams_to_port_zero() {
    same(|system, answers| {
        let [fd, other] = [(); 2].map(|()| socket(system, libc::SOCK_DGRAM));
        system.bind(fd, &loopback(0)).unwrap();
        answers.push(format!("{:?}", system.connect(fd, &loopback(0))));
        answers.push(format!("{:?}", system.name(fd, true)));
        answers.push(format!("{:?}", system.send(fd, b"x", 0, &[])));
        answers.push(format!("{:?}", system.send(fd, b"x", 0, &[])));
        answers.push(format!("{:?}", system.send(fd, b"x", 0, &loopback(0))));
        answers.push(format!("{:?}", system.option(fd, libc::SOL_SOCKET, libc::SO_ERROR)));
        let name = system.name(fd, false).unwrap();
        answers.push(format!("{:?}", system.send(other, b"hello", 0, &name)));
        let came = system.receive(fd, 8, 0).map(|(n, data, _, flags)| (n, data, flags));
        answers.push(format!("{came:?}"));
        answers.push(format!("{:?}", system.shutdown(fd, libc::SHUT_RDWR)));
        answers.push(format!("{:?}", system.send(fd, b"x", libc::MSG_NOSIGNAL, &[])));
        system.close(fd).unwrap();
        system.close(other).unwrap();
    });
}

/// `MSG_PEEK` with `MSG_TRUNC` on a stream counts bytes, which stay, and writes none.
#[test]
fn counting_looks() {
    const COUNTS: i32 = libc::MSG_PEEK | libc::MSG_TRUNC;
    const CALLS: [(i32, usize); 5] =
        [(COUNTS, 4), (COUNTS, 99), (libc::MSG_PEEK, 3), (libc::MSG_TRUNC, 2), (0, 9)];
    let mut system = Ours::new();
    let [_, client, server] = connection(&mut system, |_, _, _| {});
    system.send(client, b"abcdef", 0, &[]).unwrap();
    let ours = CALLS.map(|(flags, len)| {
        let mut data = vec![b'.'; len];
        let n = system.process.recv(server, &mut data, flags).unwrap();
        (n as isize, data)
    });
    let mut system = Host { slow: true };
    let ends = connection(&mut system, |_, _, _| {});
    system.send(ends[1], b"abcdef", 0, &[]).unwrap();
    let theirs = CALLS.map(|(flags, len)| {
        let mut data = vec![b'.'; len];
        // SAFETY: the buffer has as many bytes as are said.
        let n = unsafe { libc::recv(ends[2], data.as_mut_ptr().cast(), len, flags) };
        (n, data)
    });
    for fd in ends {
        system.close(fd).unwrap();
    }
    assert_eq!(theirs, ours);
    assert_eq!(ours[0], (4, b"....".to_vec()), "nothing is written");
}

/// Segments, windows and deferred accepting, before and after a connection.
#[test]
fn numbers_of_streams() {
    same(|system, answers| {
        for (name, on_listener, value) in [
            (TCP_MAXSEG, false, 0),
            (TCP_MAXSEG, false, 88),
            (TCP_MAXSEG, false, 1000),
            (TCP_MAXSEG, true, 1000),
            (TCP_MAXSEG, true, 20_000),
            (TCP_WINDOW_CLAMP, false, 0),
            (TCP_WINDOW_CLAMP, false, 5000),
            (TCP_WINDOW_CLAMP, false, 1 << 30),
            (TCP_WINDOW_CLAMP, true, 1 << 30),
        ] {
            let ends = connection(system, |system, fd, listens| {
                if listens == on_listener && value != 0 {
                    system.set_option(fd, libc::IPPROTO_TCP, name, value).unwrap();
                }
            });
            let read = |system: &mut dyn System| {
                let numbers = ends.map(|fd| {
                    [TCP_MAXSEG, TCP_WINDOW_CLAMP, TCP_DEFER_ACCEPT]
                        .map(|name| system.option(fd, libc::IPPROTO_TCP, name))
                });
                format!("{name} {on_listener} {value}: {numbers:?}")
            };
            answers.push(read(system));
            let set = ends.map(|fd| system.set_option(fd, libc::IPPROTO_TCP, name, 0));
            answers.push(format!("{name}: {set:?}"));
            let _ = system.connect(ends[1], &[0; 16]);
            answers.push(read(system));
            for fd in ends {
                system.close(fd).unwrap();
            }
        }
    });
}
