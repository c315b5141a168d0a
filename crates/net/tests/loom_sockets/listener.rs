//! Listeners, of both families: whoever is admitted is accepted or told of the end, and nobody waits for ever.
//!
//! # Faults that were planted
//!
//! Each is found by the test that is named: a local listener's close that does not wake those who wait for a place
//! (`full_backlog_against_close_local`); a TCP listener's close that forgets them (`full_backlog_against_close_tcp`); an accept
//! that calls nobody in (`full_backlog_against_accept_tcp`).
//!
//! # Limits
//!
//! Three threads (`two_accept`) with one forced switch only: with two the model did not end in ten minutes.

use crate::abi::*;
use crate::world::{Fd, World, bounded, spawn};
use rustix::io::Errno;
use std::sync::Arc;

/// A socket that connects to a listener, on a thread of its own, and sends a byte.
fn client(world: &Arc<World>, family: i32, address: Vec<u8>) -> impl FnOnce() -> Result<Fd, Errno> + use<> {
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
            Err(errno) => assert!(matches!(errno, Errno::CONNREFUSED | Errno::CONNRESET), "{errno}"),
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
    bounded(2, 200, move || {
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
    bounded(3, 400, move || {
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
    bounded(3, 200, move || {
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
