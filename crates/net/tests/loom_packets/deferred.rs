//! Packets that are sent to the CPU that made them.
//!
//! # Faults that were planted
//!
//! `push`: the exchange relaxed (all but `nobody_takes`), a store instead of it, or the link not written anew when it has failed (`two_send`,
//! `one_sends`). `take`: the exchange relaxed (as above), a load and a store instead of it (`two_send`, `one_sends`), the link read after the
//! packet has ended (all). The number not counted down when a list is taken, or when one is refused (`more_than_may_wait`); of a chain that there
//! is not room for, all counted down, or none (`two_are_sent_together_beside_another`). A chain of which the first is linked to what was there, or whose
//! links are written after the exchange (`two_are_sent_together` and that, `a_poller_sends`).
//! `defer_free`: a packet is sent to which there are other references (`two_references_are_sent`).

use crate::packet::{DEFER_MAX, Skb};
use crate::world::{World, change, explore, look, on_cpu};
use quietline_platform::{cpu, thread};

/// Changes a packet, as a receiver does, and sends it home.
fn send(world: World, mut skb: Skb<'static>) {
    assert!(change(&mut skb, 9), "it is alone");
    world.defer_free(skb);
}

/// The same of several, together.
fn send_all(world: World, packets: impl IntoIterator<Item = Skb<'static>>) {
    let mut packets: Vec<_> = packets.into_iter().map(Some).collect();
    for skb in packets.iter_mut().flatten() {
        assert!(change(skb, 9), "it is alone");
    }
    world.defer_free_bulk(&mut packets);
}

/// Takes so often what was sent home to CPU 0, on a thread there: how many.
fn taker(world: World, times: u32) -> thread::JoinHandle<usize> {
    on_cpu(0, move || (0..times).map(|_| world.take_deferred()).sum())
}

/// One sends while the home takes: each ends once, after what was done with it.
#[test]
fn one_sends() {
    explore(None, 10, |world| {
        let packets = [world.packet(1), world.packet(2)];
        let taker = taker(world, 2);
        cpu::migrate(1);
        packets.into_iter().for_each(|skb| send(world, skb));
        let taken = taker.join().unwrap();
        assert_eq!(world.ended(), taken as u32, "those that are sent end at home");
        cpu::migrate(0);
        assert_eq!(world.take_deferred(), 2 - taken);
        assert_eq!(world.ended(), 2);
    });
}

/// Two send at once, and the home takes.
#[test]
fn two_send() {
    explore(Some(3), 100, |world| {
        let [one, two] = [world.packet(1), world.packet(2)];
        let taker = taker(world, 1);
        let other = on_cpu(1, move || send(world, one));
        cpu::migrate(1);
        send(world, two);
        other.join().unwrap();
        let taken = taker.join().unwrap();
        cpu::migrate(0);
        assert_eq!(world.take_deferred(), 2 - taken);
        assert_eq!(world.ended(), 2);
    });
}

/// Two references to one packet are sent home at once: it has one link, and ends once.
#[test]
fn two_references_are_sent() {
    explore(None, 10, |world| {
        let one = world.packet(1);
        let two = one.get();
        let taker = taker(world, 1);
        let send = move |skb: Skb<'static>| {
            assert_eq!(look(&skb), 1);
            world.defer_free(skb);
        };
        let other = on_cpu(1, move || send(one));
        cpu::migrate(1);
        send(two);
        other.join().unwrap();
        let taken = taker.join().unwrap();
        cpu::migrate(0);
        assert!(taken + world.take_deferred() <= 1);
        assert_eq!((world.ended(), world.active()), (1, [0, 0]));
    });
}

/// More are sent than may wait: those end where they are. And there is room again for as many as before.
#[test]
fn more_than_may_wait() {
    explore(Some(3), 10, |world| {
        let packets: Vec<_> = (0..=DEFER_MAX).map(|_| world.packet(1)).collect();
        let taker = taker(world, 1);
        cpu::migrate(1);
        packets.into_iter().for_each(|skb| send(world, skb));
        let taken = taker.join().unwrap();
        cpu::migrate(0);
        let rest = world.take_deferred();
        let here = DEFER_MAX as usize + 1 - taken - rest;
        assert!(
            here <= 1 && taken <= DEFER_MAX as usize,
            "{taken} taken, {rest} left, {here} ended at once"
        );
        assert_eq!(world.ended(), DEFER_MAX + 1);
        let packets: Vec<_> = (0..DEFER_MAX).map(|_| world.packet(1)).collect();
        cpu::migrate(1);
        packets.into_iter().for_each(|skb| send(world, skb));
        assert_eq!(world.ended(), DEFER_MAX + 1, "they wait");
        cpu::migrate(0);
        assert_eq!(world.take_deferred(), DEFER_MAX as usize);
    });
}

/// Two are sent together while the home takes: it finds both or none, and each ends once, after what was done with it.
#[test]
fn two_are_sent_together() {
    explore(None, 5, |world| {
        let packets = [world.packet(1), world.packet(2)];
        let taker = taker(world, 2);
        cpu::migrate(1);
        send_all(world, packets);
        let taken = taker.join().unwrap();
        assert!(taken == 0 || taken == 2, "{taken} of a chain");
        assert_eq!(world.ended(), taken as u32, "those that are sent end at home");
        cpu::migrate(0);
        assert_eq!(world.take_deferred(), 2 - taken);
        assert_eq!((world.ended(), world.active()), (2, [0, 0]));
    });
}

/// Two are sent together, and another one by somebody else, while the home takes: there is room for two, so one or two may end where
/// they are; and there is room for two again.
#[test]
fn two_are_sent_together_beside_another() {
    explore(Some(3), 50, |world| {
        let together = [world.packet(1), world.packet(2)];
        let one = world.packet(3);
        let taker = taker(world, 1);
        let other = on_cpu(1, move || send(world, one));
        cpu::migrate(1);
        send_all(world, together);
        other.join().unwrap();
        let taken = taker.join().unwrap();
        cpu::migrate(0);
        let rest = world.take_deferred();
        assert!(taken + rest >= 2 && taken <= 2 && rest <= 2, "{taken} taken, {rest} left");
        assert_eq!((world.ended(), world.active()), (3, [0, 0]));
        let packets: Vec<_> = (0..DEFER_MAX).map(|_| world.packet(1)).collect();
        cpu::migrate(1);
        send_all(world, packets);
        assert_eq!(world.ended(), 3, "they wait");
        cpu::migrate(0);
        assert_eq!(world.take_deferred(), DEFER_MAX as usize);
    });
}

/// There is room for some of those that are sent together: these wait, and the others end where they are.
#[test]
fn room_for_some() {
    explore(None, 5, |world| {
        let (one, together) = (world.packet(1), [world.packet(2), world.packet(3)]);
        let taker = taker(world, 1);
        cpu::migrate(1);
        send(world, one);
        send_all(world, together);
        let taken = taker.join().unwrap();
        cpu::migrate(0);
        let rest = world.take_deferred();
        let here = 3 - taken - rest;
        assert!(here <= 1, "{taken} taken, {rest} left");
        assert_eq!((world.ended(), world.active()), (3, [0, 0]));
    });
}

/// A poller ends what another CPU made: it goes home when there are as many as go together, or when the stack is flushed.
#[test]
fn a_poller_sends() {
    explore(None, 5, |world| {
        let packets = [world.packet(1), world.packet(2), world.packet(3)];
        let taker = taker(world, 1);
        cpu::migrate(1);
        let mut napi = world.napi().sends_home(true);
        for mut skb in packets {
            assert!(change(&mut skb, 9), "it is alone");
            napi.consume_skb(skb);
        }
        napi.flush();
        drop(napi);
        let taken = taker.join().unwrap();
        cpu::migrate(0);
        let rest = world.take_deferred();
        assert!(taken + rest >= 2, "{taken} taken, {rest} left: there is room for two");
        assert_eq!((world.ended(), world.active()), (3, [0, 0]));
    });
}

/// What comes home to a poller's stack is used for its next packet.
#[test]
fn used_again() {
    explore(None, 5, |world| {
        let skb = world.packet(1);
        let data = skb.data().as_ptr().addr();
        let home = on_cpu(0, move || {
            let mut napi = world.napi();
            let taken = napi.take_deferred();
            // (Of the usual kind, as the first.)
            let mut second = napi.alloc_skb(1500).unwrap();
            second.put_data(&[2]).unwrap();
            // The stack looks again when it is empty.
            let used = second.data().as_ptr().addr() == data;
            assert!(used || taken == 0, "the last in is the first out");
            assert!(change(&mut second, 3) && look(&second) == 3);
            napi.consume_skb(second);
            usize::from(used)
        });
        cpu::migrate(1);
        send(world, skb);
        let taken = home.join().unwrap();
        cpu::migrate(0);
        assert_eq!(world.take_deferred(), 1 - taken);
        assert_eq!((world.ended(), world.active()), (1, [0, 0]));
    });
}

/// What nobody took ends with the packets.
#[test]
fn nobody_takes() {
    explore(None, 1, |world| {
        let skb = world.packet(1);
        on_cpu(1, move || send(world, skb)).join().unwrap();
        cpu::migrate(1);
        assert_eq!(world.take_deferred(), 0, "not at home");
        assert_eq!((world.ended(), world.active()), (0, [1, 1]));
    });
}
