//! Allocations that fail: an error, and nothing changed, lost or left over.

use quietline::abi::{AF_INET, SOCK_DGRAM, SOCK_NONBLOCK, SOCK_STREAM};
use quietline::{Config, Errno, Kernel, Process, SockAddr};
use quietline_platform::fault;

/// Does something with each of its allocations failing in turn, until none does: how many there were. `undo` comes after a
/// success.
fn each_fault<R>(
    mut act: impl FnMut() -> Result<R, Errno>,
    mut failed: impl FnMut(Errno),
    mut undo: impl FnMut(R),
) -> u64 {
    for nth in 1.. {
        fault::fail_nth(nth);
        let result = act();
        let over = fault::armed();
        fault::fail_nth(0);
        match result {
            Ok(done) => undo(done),
            Err(errno) => failed(errno),
        }
        if over {
            return nth - 1;
        }
    }
    unreachable!()
}

fn loopback(port: u16) -> [u8; 16] {
    let mut raw = [0; 16];
    raw[..2].copy_from_slice(&(AF_INET as u16).to_ne_bytes());
    raw[2..4].copy_from_slice(&port.to_be_bytes());
    raw[4..8].copy_from_slice(&[127, 0, 0, 1]);
    raw
}

fn socket(process: &Process, ty: i32) -> i32 {
    process.socket(AF_INET, ty | SOCK_NONBLOCK, 0).unwrap()
}

fn name(process: &Process, fd: i32) -> SockAddr {
    process.getsockname(fd).unwrap()
}

#[test]
fn setting_up_fails_as_a_whole() {
    quietline_testing::isolated!();
    let kernel = Kernel::boot(Config::default().privileged(true)).unwrap();
    let process = kernel.process().unwrap();
    for ty in [SOCK_STREAM, SOCK_DGRAM] {
        let faults = each_fault(
            || {
                let fd = socket(&process, ty);
                let done = process
                    .bind(fd, &loopback(7))
                    .and_then(|()| if ty == SOCK_STREAM { process.listen(fd, 5) } else { Ok(()) });
                let port = process.getsockname(fd).map(|name| name.bytes()[3]);
                if done.is_err() {
                    process.close(fd).unwrap();
                }
                done.map(|()| (fd, port))
            },
            |errno| assert_eq!(errno, Errno::NOMEM),
            |(fd, port)| {
                assert_eq!(port, Ok(7));
                process.close(fd).unwrap();
            },
        );
        // (What its state is made of may be at hand.)
        assert!(faults >= 2, "{faults}");
    }
    // Nothing has kept the port.
    process.bind(socket(&process, SOCK_STREAM), &loopback(7)).unwrap();
    process.bind(socket(&process, SOCK_DGRAM), &loopback(7)).unwrap();
}

#[test]
fn a_connection_is_made_or_not() {
    quietline_testing::isolated!();
    let kernel = Kernel::boot(Config::default().privileged(true)).unwrap();
    let process = kernel.process().unwrap();
    let listener = socket(&process, SOCK_STREAM);
    process.listen(listener, 100).unwrap();
    let to = name(&process, listener);
    let to = loopback(u16::from_be_bytes([to.bytes()[2], to.bytes()[3]]));
    let client = std::cell::Cell::new(socket(&process, SOCK_STREAM));
    let faults = each_fault(
        || match process.connect(client.get(), &to) {
            Err(Errno::INPROGRESS) => Ok(()),
            done => done,
        },
        |errno| {
            assert_eq!(errno, Errno::NOMEM);
            assert_eq!(process.accept(listener).unwrap_err(), Errno::AGAIN, "half a connection");
            assert_eq!(process.getpeername(client.get()).unwrap_err(), Errno::NOTCONN);
        },
        |()| {
            let (server, peer) = process.accept(listener).unwrap();
            assert_eq!(peer, name(&process, client.get()));
            assert_eq!(process.send(client.get(), b"x", 0), Ok(1));
            assert_eq!(process.recv(server, &mut [0; 4], 0), Ok(1));
            process.close(server).unwrap();
            process.close(client.replace(socket(&process, SOCK_STREAM))).unwrap();
        },
    );
    // (So may be what both states are made of.)
    assert!(faults >= 1, "{faults}");
    // The backlog has all of its places.
    for _ in 0..101 {
        let _ = process.connect(socket(&process, SOCK_STREAM), &to);
    }
    let accepted = std::iter::from_fn(|| process.accept(listener).ok()).count();
    assert_eq!(accepted, 101);
    drop(process);
    assert_eq!((kernel.nr_files(), kernel.nr_inodes()), (0, 0));
}

/// The same where nothing is at hand: a kernel of its own for each attempt, whose caches are empty.
#[test]
fn the_first_connection_is_made_or_not() {
    quietline_testing::isolated!();
    for nth in 1.. {
        let kernel = Kernel::boot(Config::default().privileged(true)).unwrap();
        let process = kernel.process().unwrap();
        let listener = socket(&process, SOCK_STREAM);
        process.listen(listener, 100).unwrap();
        let port = name(&process, listener).bytes()[2..4].try_into().unwrap();
        let client = socket(&process, SOCK_STREAM);
        kernel.shrink();
        fault::fail_nth(nth);
        let done = process.connect(client, &loopback(u16::from_be_bytes(port)));
        let over = fault::armed();
        fault::fail_nth(0);
        if done == Err(Errno::NOMEM) {
            assert_eq!(process.accept(listener).unwrap_err(), Errno::AGAIN, "half a connection");
            assert_eq!(process.getpeername(client).unwrap_err(), Errno::NOTCONN);
        } else {
            assert_eq!(done, Err(Errno::INPROGRESS));
            let (server, _) = process.accept(listener).unwrap();
            assert_eq!(process.send(client, b"x", 0), Ok(1));
            assert_eq!(process.recv(server, &mut [0; 4], 0), Ok(1));
        }
        drop(process);
        assert_eq!((kernel.nr_files(), kernel.nr_inodes()), (0, 0));
        if over {
            assert!(nth > 3, "{nth}");
            return;
        }
    }
}

/// One of two that wait for a place cannot be let in: then the other one is, or is told why not.
#[test]
fn a_place_goes_to_the_next_if_there_is_no_memory() {
    quietline_testing::isolated!();
    let mut refused = 0;
    // Until it is the state of what would be accepted that there is no memory for: others take what is at hand.
    let mut tries = (0..300).flat_map(|others| (1..10).map(move |nth| (others, nth)));
    while refused == 0 {
        let (others, nth) = tries.next().expect("it is refused once");
        let kernel = Kernel::boot(Config::default().privileged(true)).unwrap();
        let process = kernel.process().unwrap();
        let listener = socket(&process, SOCK_STREAM);
        process.bind(listener, &loopback(0)).unwrap();
        process.listen(listener, 0).unwrap();
        let address = name(&process, listener);
        let [first, second, third] = [(); 3].map(|()| {
            let client = socket(&process, SOCK_STREAM);
            assert_eq!(process.connect(client, address.bytes()), Err(Errno::INPROGRESS));
            client
        });
        for _ in 0..others {
            process.listen(socket(&process, SOCK_STREAM), 0).unwrap();
        }
        kernel.shrink();
        fault::fail_from(nth);
        let accepted = process.accept(listener);
        fault::fail_nth(0);
        match accepted {
            Ok((_, peer)) => assert_eq!(peer, name(&process, first)),
            // It did not come to that.
            Err(errno) => {
                assert_eq!(errno, Errno::NOMEM);
                continue;
            }
        }
        let mut expected = vec![name(&process, second), name(&process, third)];
        if process.connect(second, address.bytes()) == Err(Errno::CONNREFUSED) {
            refused += 1;
            // There is no memory for it either, or there is again. It is called, and does not wait beside a place that is free.
            let called = process.connect(third, address.bytes());
            assert!(
                matches!(called, Ok(()) | Err(Errno::CONNREFUSED)),
                "nobody has called it: {called:?}"
            );
            expected.drain(..if called.is_ok() { 1 } else { 2 });
        } else {
            assert_eq!(process.connect(third, address.bytes()), Err(Errno::ALREADY));
        }
        let rest = std::iter::from_fn(|| process.accept(listener).ok()).map(|(_, peer)| peer);
        assert_eq!(rest.collect::<Vec<_>>(), expected);
    }
}

#[test]
fn bytes_are_sent_or_not() {
    quietline_testing::isolated!();
    let kernel = Kernel::boot(Config::default().privileged(true)).unwrap();
    let process = kernel.process().unwrap();
    let listener = socket(&process, SOCK_STREAM);
    process.listen(listener, 100).unwrap();
    let port = name(&process, listener).bytes()[2..4].try_into().unwrap();
    let client = socket(&process, SOCK_STREAM);
    let _ = process.connect(client, &loopback(u16::from_be_bytes(port)));
    let (server, _) = process.accept(listener).unwrap();
    let bytes: Vec<u8> = (0..200_000).map(|n: u32| (n % 251) as u8).collect();
    let mut total = 0;
    for len in [1, 4096, 5000, 200_000] {
        let mut faults = 0;
        for nth in 1.. {
            fault::fail_nth(nth);
            let sent = process.send(client, &bytes[..len], 0);
            let over = fault::armed();
            fault::fail_nth(0);
            let sent = match sent {
                Err(errno) => {
                    assert_eq!(errno, Errno::NOMEM);
                    faults += 1;
                    0
                }
                Ok(n) => {
                    faults += u32::from(n < len);
                    n
                }
            };
            // What was said to be sent is there, and nothing else.
            let mut got = vec![0; sent + 1];
            let mut n = 0;
            while let Ok(more @ 1..) = process.recv(server, &mut got[n..], libc::MSG_DONTWAIT) {
                n += more;
            }
            assert_eq!((n, &got[..n]), (sent, &bytes[..sent]));
            if over {
                break;
            }
        }
        total += faults;
    }
    assert!(total >= 4, "{total}");
}

#[test]
fn a_datagram_is_sent_or_not() {
    quietline_testing::isolated!();
    let kernel = Kernel::boot(Config::default().privileged(true)).unwrap();
    let process = kernel.process().unwrap();
    let (sender, receiver) = (socket(&process, SOCK_DGRAM), socket(&process, SOCK_DGRAM));
    process.bind(receiver, &loopback(0)).unwrap();
    process.bind(sender, &loopback(0)).unwrap();
    let to = name(&process, receiver);
    for len in [3, 3000] {
        each_fault(
            || process.sendto(sender, &vec![1; len], 0, to.bytes()),
            |errno| {
                assert_eq!(errno, Errno::NOMEM);
                assert_eq!(process.recv(receiver, &mut [0; 4], 0), Err(Errno::AGAIN));
            },
            |n| {
                assert_eq!(n, len);
                // It may be lost for want of memory at the receiver's; not doubled.
                let _ = process.recv(receiver, &mut vec![0; len], 0);
                assert_eq!(process.recv(receiver, &mut [0; 4], 0), Err(Errno::AGAIN));
            },
        );
    }
}
