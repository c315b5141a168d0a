//! Files in messages: what somebody can reach is not taken from him, and what nobody can reach ends.

use crate::abi::*;
use crate::world::{Fd, World, bounded, spawn};
use std::sync::Arc;

/// A socket that is in its own queue, and in that of `to`; nobody else has it.
fn in_itself_and_in(world: &Arc<World>, to: &Fd) {
    let [from, lost] = world.pair(SOCK_DGRAM);
    to.pass(&lost).unwrap();
    from.pass(&lost).unwrap();
}

/// What only it holds itself ends with the next close, or with the kernel.
#[test]
fn a_loop_ends() {
    bounded(1, 1, || {
        let world = World::new();
        let [from, lost] = world.pair(SOCK_DGRAM);
        from.pass(&lost).unwrap();
        from.pass(&lost).unwrap();
        drop((from, lost));
        assert_eq!(world.live(), 1, "nobody has looked yet");
        world.collect();
        assert_eq!(world.live(), 0);
    });
}

/// A socket is received while somebody looks for what is lost: its queue is as it was.
#[test]
fn receive_against_the_search() {
    bounded(3, 300, || {
        let world = World::new();
        let [to, from] = world.pair(SOCK_DGRAM);
        in_itself_and_in(&world, &to);
        let receiver = spawn(move || {
            let got = from.take().unwrap();
            let again = got.take().expect("what it held was not taken from it");
            assert!(std::ptr::eq(got.file.socket(), again.file.socket()));
        });
        world.collect();
        receiver.join().unwrap();
        drop(to);
        world.collect();
        assert_eq!(world.live(), 0);
    });
}

/// A socket is passed on, from a descriptor that is closed at once, while somebody looks for what is lost.
#[test]
fn pass_against_the_search() {
    bounded(3, 500, || {
        let world = World::new();
        let [to, from] = world.pair(SOCK_DGRAM);
        let [own, other] = world.pair(SOCK_DGRAM);
        // In its own queue already, so that whoever closes something looks.
        own.pass(&other).unwrap();
        own.pass(&other).unwrap();
        let sender = spawn(move || {
            to.pass(&other).unwrap();
            drop(other);
            to
        });
        world.collect();
        let to = sender.join().unwrap();
        let got = from.take().unwrap();
        got.take().expect("what it held was not taken from it");
        drop((to, from, own, got));
        world.collect();
        assert_eq!(world.live(), 0);
    });
}

/// A connection with a socket in its queue is accepted from a listener that is in flight, while somebody looks for what is lost.
#[test]
fn accept_against_the_search() {
    bounded(2, 100, || {
        let world = World::new();
        let listener = world.listener(AF_UNIX, 1);
        let client = world.socket(AF_UNIX, SOCK_STREAM);
        client.connect(&listener.name()).unwrap();
        let [to, from] = world.pair(SOCK_DGRAM);
        to.pass(&listener).unwrap();
        let [own, other] = world.pair(SOCK_DGRAM);
        own.pass(&other).unwrap();
        client.pass(&other).unwrap();
        drop(other);
        let acceptor = spawn(move || {
            let got = listener.accept().unwrap().take().unwrap();
            got.take().expect("what it held was not taken from it");
        });
        world.collect();
        acceptor.join().unwrap();
        drop((to, from, own, client));
        world.collect();
        assert_eq!(world.live(), 0);
    });
}

/// Two look at once, one by closing the last descriptor: everything ends once.
#[test]
fn search_against_search() {
    bounded(3, 400, || {
        let world = World::new();
        let [from, lost] = world.pair(SOCK_DGRAM);
        from.pass(&lost).unwrap();
        from.pass(&lost).unwrap();
        let other = {
            let world = Arc::clone(&world);
            spawn(move || world.collect())
        };
        drop((from, lost));
        other.join().unwrap();
        world.collect();
        assert_eq!(world.live(), 0);
    });
}
