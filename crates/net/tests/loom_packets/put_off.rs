//! Packets that end where nothing may be freed.
//!
//! # Faults that were planted
//!
//! `PutOff::take` or `push` relaxed (`another_ends_one`, `another_ends_one_in_bulk`, `a_poller_ends_one`, `another_makes_some_in_bulk`; a load and a
//! store in the exchange's place is found in `deferred`). `end`, `end_all`, `keep` or `alloc_skb_bulk` does not free what was put off (the test of
//! that one of these four).

use crate::packet::{NoBulk, Skb, kfree_skb_bulk};
use crate::world::{World, change, explore_put_off, look, on_cpu};
use quietline_platform::atomic::{AtomicU32, Ordering};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

/// Ends a packet as a signal handler does, after it has changed it.
fn put_off(mut skb: Skb<'static>) {
    let _here = NoBulk::enter();
    assert!(change(&mut skb, 9), "it is alone");
    drop(skb);
}

/// Two put packets off while a third takes them: each ends once, after what was done with it, and nothing ends where it must not.
#[test]
fn two_put_off() {
    explore_put_off(Some(3), 25, |world| {
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
    explore_put_off(None, 3, |world| {
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
    explore_put_off(None, 1, |world| {
        let skb = world.packet(1);
        on_cpu(1, move || put_off(skb)).join().unwrap();
        assert_eq!((world.ended(), world.active()), (0, [1, 1]));
    });
}

/// One is put off while another thread, elsewhere, does what frees what was put off: it does, in some orders, and each packet ends once, after
/// what was done with it. `does` ends the packet that it is given; or it puts that off as well, and one that it makes.
fn beside(ends: bool, does: impl Fn(World, Skb<'static>) + Send + Sync + 'static) {
    let found = Arc::new(AtomicBool::new(false));
    let seen = found.clone();
    explore_put_off(Some(3), 2, move |world| {
        let [one, two] = [world.packet(1), world.packet(2)];
        // Met by both, so that the model tries them in either order: it does not for a look at what another thread looks at before it
        // writes it. Relaxed: nobody sees anything by it.
        let meeting = Arc::new(AtomicU32::new(0));
        let met = meeting.clone();
        let handler = on_cpu(1, move || {
            put_off(one);
            met.fetch_add(1, Ordering::Relaxed);
        });
        meeting.fetch_add(1, Ordering::Relaxed);
        does(world, two);
        let ended = world.ended();
        seen.fetch_or(ended == 1 + u32::from(ends), Relaxed);
        handler.join().unwrap();
        let later = world.take_deferred();
        let all = if ends { 2 } else { 3 };
        assert_eq!((world.ended(), ended as usize + later, world.active()), (2, all, [0, 0]));
    });
    assert!(found.load(Relaxed), "what was put off was never freed there");
}

#[test]
fn another_ends_one() {
    beside(true, |_, skb| drop(skb));
}

#[test]
fn another_ends_one_in_bulk() {
    beside(true, |_, skb| kfree_skb_bulk(&mut [Some(skb)]));
}

#[test]
fn a_poller_ends_one() {
    beside(true, |world, skb| world.napi().consume_skb(skb));
}

#[test]
fn another_makes_some_in_bulk() {
    beside(false, |world, skb| {
        let mut made = [None];
        world.alloc_skb_bulk(1500, &mut made).unwrap();
        // Ended where nothing is looked for.
        let _here = NoBulk::enter();
        drop((skb, made));
    });
}
