//! Packets that end where nothing may be freed.

use crate::packet::{NoBulk, Skb};
use crate::world::{change, explore, look, on_cpu};

/// Ends a packet as a signal handler does, after it has changed it.
fn put_off(mut skb: Skb<'static>) {
    let _here = NoBulk::enter();
    assert!(change(&mut skb, 9), "it is alone");
    drop(skb);
}

/// Two put packets off while a third takes them: each ends once, after what was done with it, and nothing ends where it must not.
#[test]
fn two_put_off() {
    explore(Some(3), 25, |world| {
        let [one, two] = [world.packet(1), world.packet(2)];
        let first = on_cpu(1, move || put_off(one));
        let second = on_cpu(0, move || put_off(two));
        let taken = world.take_deferred();
        assert_eq!(world.ended() as usize, taken);
        first.join().unwrap();
        second.join().unwrap();
        assert_eq!(world.take_deferred(), 2 - taken);
        assert_eq!((world.ended(), world.active()), (2, [0, 0]));
    });
}

/// Two references to one packet end at once, one of them where nothing may be freed: the packet ends once, there or later.
#[test]
fn the_last_may_be_either() {
    explore(None, 3, |world| {
        let one = world.packet(1);
        let two = one.get();
        let handler = on_cpu(1, move || {
            let _here = NoBulk::enter();
            assert_eq!(look(&one), 1);
            drop(one);
        });
        assert_eq!(look(&two), 1);
        drop(two);
        handler.join().unwrap();
        world.take_deferred();
        assert_eq!((world.ended(), world.active()), (1, [0, 0]));
    });
}

/// What nobody takes ends with the packets.
#[test]
fn nobody_takes() {
    explore(None, 1, |world| {
        let skb = world.packet(1);
        on_cpu(1, move || put_off(skb)).join().unwrap();
        assert_eq!((world.ended(), world.active()), (0, [1, 1]));
    });
}
