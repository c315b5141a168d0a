//! Listeners, of both families: whoever is admitted is accepted or told of the end, and nobody waits for ever.
//!
//! # Faults that were planted
//!
//! Each is found by the test that is named: a local listener's close that does not wake those who wait for a place
//! (`full_backlog_against_close_local`); a TCP listener's close that forgets them (`full_backlog_against_close_tcp`); an accept
//! that calls nobody in (`full_backlog_against_accept_tcp`); a promise that is redeemed by a listener that began after it
//! (`listen_anew_against_connect`, `listen_anew_against_accept`); a place that is promised for another port (`listen_anew_against_connect`); a promise that is given back without a word to those who wait
//! (`no_memory_for_what_was_promised`).
//!
//! # Limits
//!
//! Three threads (`two_accept`) with one forced switch only: with two the model did not end in ten minutes.

use crate::abi::*;
use crate::world::{Fd, World, bounded, spawn};
use quietline_platform::fault;
use rustix::io::Errno;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// A socket that connects to a listener, on a thread of its own, and sends a byte.
fn client(
    world: &Arc<World>,
    family: i32,
    address: Vec<u8>,
) -> impl FnOnce() -> Result<Fd, Errno> + use<> {
    let socket = world.socket(family, SOCK_STREAM);
    move || socket.connect(&address).map(|()| socket)
}

/// A connection works.
fn check(client: &Fd, server: &Fd) {
    let mut byte = [0];
    assert_eq!(client.send(&[5], 0), Ok(1));
    assert_eq!(server.receive(&mut byte, 0), Ok(1));
    assert_eq!(byte, [5]);
}

/// A connect beside an accept that waits.
fn connect_against_accept(family: i32) {
    bounded(3, 200, move || {
        let world = World::new();
        let listener = world.listener(family, 0);
        let connect = client(&world, family, listener.name());
        let acceptor = spawn(move || listener.accept().unwrap());
        let client = connect().unwrap();
        check(&client, &acceptor.join().unwrap());
    });
}

#[test]
fn connect_against_accept_local() {
    connect_against_accept(AF_UNIX);
}

#[test]
fn connect_against_accept_tcp() {
    connect_against_accept(AF_INET);
}

/// A connect beside the close of the listener: it is refused, or the connection is broken off.
fn connect_against_close(family: i32) {
    bounded(3, 500, move || {
        let world = World::new();
        let listener = world.listener(family, 0);
        let connect = client(&world, family, listener.name());
        let connecting = spawn(move || match connect() {
            Ok(client) => {
                let ended = client.receive(&mut [0], 0);
                assert!(matches!(ended, Ok(0) | Err(Errno::CONNRESET)), "{ended:?}");
            }
            Err(errno) => {
                assert!(matches!(errno, Errno::CONNREFUSED | Errno::CONNRESET), "{errno}")
            }
        });
        drop(listener);
        connecting.join().unwrap();
        assert_eq!(world.live(), 0);
    });
}

#[test]
fn connect_against_close_local() {
    connect_against_close(AF_UNIX);
}

#[test]
fn connect_against_close_tcp() {
    connect_against_close(AF_INET);
}

/// A connect that waits for a place in a full backlog gets it from an accept.
fn full_backlog_against_accept(family: i32) {
    bounded(3, 200, move || {
        let world = World::new();
        let listener = world.listener(family, 0);
        let first = client(&world, family, listener.name())().unwrap();
        let connecting = spawn(client(&world, family, listener.name()));
        let served = [listener.accept().unwrap(), listener.accept().unwrap()];
        let second = connecting.join().unwrap().unwrap();
        check(&first, &served[0]);
        check(&second, &served[1]);
    });
}

#[test]
fn full_backlog_against_accept_local() {
    full_backlog_against_accept(AF_UNIX);
}

#[test]
fn full_backlog_against_accept_tcp() {
    full_backlog_against_accept(AF_INET);
}

/// A connect that waits for a place learns that the listener was closed.
fn full_backlog_against_close(family: i32) {
    bounded(4, 400, move || {
        let world = World::new();
        let listener = world.listener(family, 0);
        let first = client(&world, family, listener.name())().unwrap();
        let connect = client(&world, family, listener.name());
        let connecting = spawn(move || connect().map(drop));
        drop(listener);
        let refused = connecting.join().unwrap().unwrap_err();
        assert!(matches!(refused, Errno::CONNREFUSED | Errno::CONNRESET), "{refused}");
        let ended = first.receive(&mut [0], 0);
        assert!(matches!(ended, Ok(0) | Err(Errno::CONNRESET)), "{ended:?}");
    });
}

#[test]
fn full_backlog_against_close_local() {
    full_backlog_against_close(AF_UNIX);
}

#[test]
fn full_backlog_against_close_tcp() {
    full_backlog_against_close(AF_INET);
}

/// An accept that waits learns that the listener takes no more.
fn shutdown_against_accept(family: i32) {
    bounded(4, 200, move || {
        let world = World::new();
        let listener = world.listener(family, 0);
        let other = listener.clone();
        let acceptor = spawn(move || assert_eq!(other.accept().err(), Some(Errno::INVAL)));
        listener.shutdown(SHUT_RD).unwrap();
        acceptor.join().unwrap();
    });
}

#[test]
fn shutdown_against_accept_local() {
    shutdown_against_accept(AF_UNIX);
}

#[test]
fn shutdown_against_accept_tcp() {
    shutdown_against_accept(AF_INET);
}

/// Two accept, two are there: each gets one, though wake-ups are for one.
fn two_accept(family: i32) {
    bounded(1, 20, move || {
        let world = World::new();
        let listener = world.listener(family, 4);
        let connects = [(); 2].map(|()| client(&world, family, listener.name()));
        let acceptors = [(); 2].map(|()| {
            let listener = listener.clone();
            spawn(move || listener.accept().unwrap())
        });
        let clients = connects.map(|connect| connect().unwrap());
        for acceptor in acceptors {
            drop(acceptor.join().unwrap());
        }
        drop(clients);
    });
}

#[test]
fn two_accept_local() {
    two_accept(AF_UNIX);
}

#[test]
fn two_accept_tcp() {
    two_accept(AF_INET);
}

/// A TCP socket that does not wait.
fn hasty(world: &Arc<World>) -> Fd {
    world.socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK)
}

/// A listener that was shut down and has begun to listen anew has the places that it says, and nothing of before.
fn is_new(world: &Arc<World>, listener: &Fd) {
    let client = hasty(world);
    let address = listener.name();
    assert_eq!(client.connect(&address), Err(Errno::INPROGRESS));
    assert_eq!(client.connect(&address), Ok(()), "there is a place");
    let second = hasty(world);
    assert_eq!(second.connect(&address), Err(Errno::INPROGRESS));
    assert_eq!(second.connect(&address), Err(Errno::ALREADY), "and no other one");
    check(&client, &listener.accept().unwrap());
    assert_eq!(second.connect(&address), Ok(()), "until it is free again");
    check(&second, &listener.accept().unwrap());
    assert_eq!(listener.accept().err(), Some(Errno::AGAIN));
}

/// A listener that does not wait, with one place.
fn one_place(world: &Arc<World>) -> Fd {
    let listener = hasty(world);
    let mut loopback = [0; 16];
    loopback[..2].copy_from_slice(&(AF_INET as u16).to_ne_bytes());
    loopback[4..8].copy_from_slice(&[127, 0, 0, 1]);
    listener.bind(&loopback);
    listener.listen(0);
    listener
}

/// A connect beside a shutdown, after which the socket listens anew, at another port: the connection is not the new listener's, whether
/// it was promised a place before or asks for one only then.
#[test]
fn listen_anew_against_connect() {
    bounded(3, 500, || {
        let world = World::new();
        let listener = one_place(&world);
        let (client, address) = (hasty(&world), listener.name());
        let connecting = spawn(move || {
            let begun = client.connect(&address);
            assert_eq!(begun, Err(Errno::INPROGRESS));
            client
        });
        listener.shutdown(SHUT_RD).unwrap();
        listener.listen(0);
        let client = connecting.join().unwrap();
        let ended = client.receive(&mut [0], 0);
        assert!(matches!(ended, Err(Errno::CONNREFUSED | Errno::CONNRESET)), "{ended:?}");
        is_new(&world, &listener);
    });
}

/// The same beside an accept, which calls in one that waits.
#[test]
fn listen_anew_against_accept() {
    bounded(3, 500, || {
        let world = World::new();
        let listener = one_place(&world);
        let [first, waits] = [(); 2].map(|()| {
            let client = hasty(&world);
            assert_eq!(client.connect(&listener.name()), Err(Errno::INPROGRESS));
            client
        });
        let other = listener.clone();
        let acceptor = spawn(move || match other.accept() {
            Ok(server) => check(&first, &server),
            Err(errno) => assert!(matches!(errno, Errno::INVAL | Errno::AGAIN), "{errno}"),
        });
        listener.shutdown(SHUT_RD).unwrap();
        listener.listen(0);
        acceptor.join().unwrap();
        let ended = waits.receive(&mut [0], 0);
        assert!(matches!(ended, Err(Errno::CONNREFUSED | Errno::CONNRESET)), "{ended:?}");
        is_new(&world, &listener);
    });
}

/// One of two that want the only place has no memory for it, sooner or later: then the other one gets it, also if it waits by then.
#[test]
fn no_memory_for_what_was_promised() {
    let outlived = Arc::new(AtomicUsize::new(0));
    // So many allocations there are in the two calls. (The model's threads are one thread of the host's, and count together.)
    for nth in 1..=8 {
        let outlived = Arc::clone(&outlived);
        // (Where it is the very first, nothing comes before it that could be in another order.)
        bounded(2, 1, move || {
            let world = World::new();
            let listener = one_place(&world);
            let [one, two] = [(); 2].map(|()| hasty(&world));
            let [address, again] = [(); 2].map(|()| listener.name());
            fault::fail_nth(nth);
            let connecting = spawn(move || {
                let begun = one.connect(&address);
                (one, begun)
            });
            let other = two.connect(&again);
            let (one, begun) = connecting.join().unwrap();
            fault::fail_nth(0);
            let lives = match [begun, other] {
                [Err(Errno::NOMEM), Err(Errno::INPROGRESS)] => two,
                [Err(Errno::INPROGRESS), Err(Errno::NOMEM)] => one,
                both => return assert_eq!(both, [Err(Errno::INPROGRESS); 2]),
            };
            assert_eq!(lives.connect(&again), Ok(()), "it waits beside a place that is free");
            check(&lives, &listener.accept().unwrap());
            // A count of the test's, of which the model knows nothing.
            outlived.fetch_add(1, Ordering::Relaxed);
        });
    }
    assert!(outlived.load(Ordering::Relaxed) > 100);
}

const TCP_DEFER_ACCEPT: i32 = 9;

/// A listener that defers, and a client that is connected.
fn deferred(world: &Arc<World>) -> (Fd, Fd) {
    let listener = world.listener(AF_INET, 0);
    listener.tcp_option(TCP_DEFER_ACCEPT, 30);
    let client = world.socket(AF_INET, SOCK_STREAM);
    assert_eq!(client.connect(&listener.name()), Ok(()));
    (listener, client)
}

/// The first byte of a deferred connection beside an accept that waits, which finds the byte.
#[test]
fn first_byte_against_accept() {
    bounded(3, 100, || {
        let world = World::new();
        let (listener, client) = deferred(&world);
        let sender = spawn(move || {
            assert_eq!(client.send(&[5], 0), Ok(1));
            client
        });
        let server = listener.accept().unwrap();
        let mut byte = [0];
        assert_eq!(server.receive(&mut byte, MSG_DONTWAIT), Ok(1));
        assert_eq!(byte, [5]);
        drop(sender.join().unwrap());
    });
}

/// The first byte beside the connect itself, from two threads of one socket: the connection is
/// accepted whether the byte comes before it is deferred or after that.
#[test]
fn first_byte_against_connect() {
    bounded(2, 50, || {
        let world = World::new();
        let listener = world.listener(AF_INET, 0);
        listener.tcp_option(TCP_DEFER_ACCEPT, 30);
        let client = hasty(&world);
        let (other, address) = (client.clone(), listener.name());
        let connecting = spawn(move || {
            assert_eq!(other.connect(&address), Err(Errno::INPROGRESS));
        });
        let sent = client.send(&[5], 0);
        connecting.join().unwrap();
        if sent.is_err() {
            assert_eq!(client.send(&[5], 0), Ok(1));
        }
        let server = listener.accept().unwrap();
        assert_eq!(server.receive(&mut [0], MSG_DONTWAIT), Ok(1));
    });
}

/// The first byte beside the close of the listener: the client is told of a reset.
#[test]
fn first_byte_against_close() {
    bounded(3, 100, || {
        let world = World::new();
        let (listener, client) = deferred(&world);
        let sender = spawn(move || {
            let sent = client.send(&[5], 0);
            assert!(matches!(sent, Ok(1) | Err(Errno::CONNRESET)), "{sent:?}");
            if sent.is_ok() {
                assert_eq!(client.receive(&mut [0], 0), Err(Errno::CONNRESET));
            }
        });
        drop(listener);
        sender.join().unwrap();
        assert_eq!(world.live(), 0);
    });
}

/// A client's reset beside the close of the listener: both end, and nothing is left.
#[test]
fn reset_against_close() {
    bounded(3, 50, || {
        let world = World::new();
        let (listener, client) = deferred(&world);
        let resets = spawn(move || {
            client.connect(&[0; 16]).unwrap();
            client
        });
        drop(listener);
        drop(resets.join().unwrap());
        assert_eq!(world.live(), 0);
    });
}
