//! Local datagrams: a sender who lacks a place with the receiver, or room of his own, is told of it.
//!
//! Found here, in an earlier form: one who was woken for a place, had no room of his own by then, and went on waiting for the place. (Who
//! waits for a place has room since, as on Linux.)

use crate::abi::*;
use crate::world::{Fd, World, bounded, spawn};

fn name(of: u8) -> [u8; 4] {
    let [low, high] = (AF_UNIX as u16).to_ne_bytes();
    [low, high, 0, of]
}

/// Two threads send from one socket: one to a receiver who has no place, the other all that the socket has room for to another.
/// Then both receivers read.
#[test]
fn a_place_against_room() {
    bounded(3, 3800, || {
        let world = World::new();
        let receivers = [1, 2].map(|of| {
            let receiver = world.socket(AF_UNIX, SOCK_DGRAM);
            receiver.bind(&name(of));
            receiver
        });
        let [fill, one] = [(); 2].map(|()| world.socket(AF_UNIX, SOCK_DGRAM));
        while fill.send_to(&name(1), &[1], MSG_DONTWAIT).is_ok() {}
        one.option(SO_SNDBUF, 1);
        let two: Fd = one.clone();
        let sender = spawn(move || assert_eq!(one.send_to(&name(1), &[9], 0), Ok(1)));
        assert_eq!(two.send_to(&name(2), &[7; 4000], MSG_DONTWAIT), Ok(4000));
        let mut room = [0; 4000];
        assert_eq!(receivers[0].receive(&mut room, MSG_DONTWAIT), Ok(1));
        assert_eq!(receivers[1].receive(&mut room, MSG_DONTWAIT), Ok(4000));
        sender.join().unwrap();
    });
}
