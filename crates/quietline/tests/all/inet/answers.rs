//! Answers that differed from the host's: both are asked, in one order.

use super::call::System;
use super::host::Host;
use super::ours::Ours;
use quietline::PollFd;
use std::thread;

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

/// Ways in which the deferral of a connection ends.
#[derive(Debug, Clone, Copy)]
enum Ending {
    Byte,
    Shutdown,
    Close,
    Reset,
    ListenerClose,
    ListenerShutdown,
    /// As `ListenerShutdown`, but the client ends its stream instead of sending.
    ListenerShutdownThenEnd,
    /// The listener's `TCP_DEFER_ACCEPT`, in seconds.
    Time(i32),
    /// The option is taken back.
    Cleared,
}

/// Asks until a descriptor has one of these events. The host's device may be late.
fn until(system: &mut dyn System, fd: i32, events: i16) {
    let begun = std::time::Instant::now();
    while system.poll(&[fd])[0] & events == 0 {
        assert!(begun.elapsed().as_secs() < 60, "no event of {events:#x}");
        std::thread::sleep(std::time::Duration::from_millis(1));
    }
}

/// A listener with `TCP_DEFER_ACCEPT`, its name, and a client that is connected.
fn deferred(system: &mut dyn System, seconds: i32) -> (i32, Vec<u8>, i32) {
    let [listener, client] = [(); 2].map(|()| socket(system, libc::SOCK_STREAM));
    system.set_option(listener, libc::IPPROTO_TCP, TCP_DEFER_ACCEPT, seconds).unwrap();
    system.bind(listener, &loopback(0)).unwrap();
    system.listen(listener, 8).unwrap();
    let name = system.name(listener, false).unwrap();
    let _ = system.connect(client, &name);
    until(system, client, libc::POLLOUT);
    (listener, name, client)
}

/// A connection to a listener with `TCP_DEFER_ACCEPT` is acceptable at its first byte, at the end
/// of its stream, or after the time. The client is connected before that, and a listener that has
/// gone answers its first byte with a reset.
#[test]
fn deferred_connections() {
    use Ending::*;
    const ENDED: i16 = libc::POLLERR | libc::POLLHUP;
    let endings = [
        Byte,
        Shutdown,
        Close,
        Reset,
        ListenerClose,
        ListenerShutdown,
        ListenerShutdownThenEnd,
        Time(1),
        Time(2),
        Cleared,
    ];
    // The endings run side by side, because some take seconds.
    thread::scope(|scope| {
        for ending in endings {
            scope.spawn(move || {
                same(|system, answers| {
                    let begun = std::time::Instant::now();
                    let (listener, name, client) =
                        deferred(system, if let Time(seconds) = ending { seconds } else { 30 });
                    answers.push(format!("{ending:?}: {:?}", system.poll(&[listener, client])));
                    answers.push(format!("{:?}", system.accept(listener).map(|_| ())));
                    answers.push(format!("{:?}", system.connect(client, &name)));
                    answers.push(format!("{:?}", system.receive(client, 4, 0).map(|_| ())));
                    answers.push(format!("{:?}", system.send(client, b"", 0, &[])));
                    answers.push(format!("{:?}", system.poll(&[listener, client])));
                    let peer = system.name(client, true) == Ok(name.clone());
                    answers.push(format!("the listener is the peer: {peer}"));
                    let mut is_open = true;
                    match ending {
                        Byte => answers.push(format!("{:?}", system.send(client, b"x", 0, &[]))),
                        Shutdown => {
                            answers.push(format!("{:?}", system.shutdown(client, libc::SHUT_WR)))
                        }
                        Close => {
                            system.close(client).unwrap();
                            is_open = false;
                        }
                        Reset => answers.push(format!("{:?}", system.connect(client, &[0; 16]))),
                        ListenerClose => {
                            system.close(listener).unwrap();
                        }
                        ListenerShutdown | ListenerShutdownThenEnd => {
                            answers.push(format!("{:?}", system.shutdown(listener, libc::SHUT_RD)))
                        }
                        Time(_) => {}
                        Cleared => {
                            system
                                .set_option(listener, libc::IPPROTO_TCP, TCP_DEFER_ACCEPT, 0)
                                .unwrap();
                            answers.push(format!("{:?}", system.poll(&[listener])));
                        }
                    }
                    match ending {
                        Reset => answers.push(format!("{:?}", system.poll(&[listener]))),
                        ListenerClose | ListenerShutdown | ListenerShutdownThenEnd => {
                            answers.push(format!("{:?}", system.poll(&[client])));
                            if matches!(ending, ListenerShutdownThenEnd) {
                                answers
                                    .push(format!("{:?}", system.shutdown(client, libc::SHUT_WR)));
                            } else {
                                answers.push(format!("{:?}", system.send(client, b"x", 0, &[])));
                            }
                            until(system, client, ENDED);
                            answers.push(format!("{:?}", system.poll(&[client])));
                            let received = system.receive(client, 4, 0).map(|_| ());
                            answers.push(format!("{received:?}"));
                        }
                        _ => {
                            until(system, listener, libc::POLLIN);
                            let waited = begun.elapsed().as_millis();
                            answers.push(match ending {
                                Time(1) | Cleared => format!("a second: {}", waited >= 990),
                                Time(_) => format!("three seconds: {}", waited >= 2990),
                                _ => String::new(),
                            });
                            let (server, _) = system.accept(listener).unwrap();
                            let received =
                                system.receive(server, 4, 0).map(|(n, data, ..)| (n, data));
                            answers.push(format!("{received:?}"));
                            let set = system.option(server, libc::IPPROTO_TCP, TCP_DEFER_ACCEPT);
                            answers.push(format!("{set:?} {:?}", system.poll(&[server])));
                            if is_open {
                                answers.push(format!("{:?}", system.send(client, b"yz", 0, &[])));
                            }
                            system.close(server).unwrap();
                        }
                    }
                    if is_open {
                        system.close(client).unwrap();
                    }
                    if !matches!(ending, ListenerClose) {
                        system.close(listener).unwrap();
                    }
                })
            });
        }
    });
}

/// Deferred connections are accepted in the order of their first bytes.
#[test]
fn the_order_of_deferred_connections() {
    same(|system, answers| {
        let (listener, name, first) = deferred(system, 30);
        let second = socket(system, libc::SOCK_STREAM);
        let _ = system.connect(second, &name);
        until(system, second, libc::POLLOUT);
        system.send(second, b"2", 0, &[]).unwrap();
        until(system, listener, libc::POLLIN);
        system.send(first, b"1", 0, &[]).unwrap();
        for _ in 0..2 {
            until(system, listener, libc::POLLIN);
            let (server, _) = system.accept(listener).unwrap();
            answers.push(format!("{:?}", system.receive(server, 4, 0).map(|came| came.1)));
            system.close(server).unwrap();
        }
        for fd in [listener, first, second] {
            system.close(fd).unwrap();
        }
    });
}

/// The end of the time wakes threads that sleep in `accept` and in `poll`.
#[test]
fn the_end_of_a_deferral_wakes() {
    let mut system = Ours::new();
    for sleeps_in_accept in [true, false] {
        let (listener, _, client) = deferred(&mut system, 1);
        if !sleeps_in_accept {
            let mut fds = [PollFd { fd: listener, events: libc::POLLIN, revents: 0 }];
            assert_eq!(system.process.poll(&mut fds, 60_000), Ok(1));
        } else {
            system.process.fcntl(listener, libc::F_SETFL, libc::O_RDWR as u64).unwrap();
        }
        let (server, _) = system.accept(listener).unwrap();
        for fd in [listener, client, server] {
            system.close(fd).unwrap();
        }
    }
}
