//! The counts of references to a head, and of heads of one data.
//!
//! # Faults that were planted
//!
//! Each is found by the test that is named. `give_up`: the load relaxed, or the subtraction without its acquire or its release half, or
//! made of a load and a store (`two_references_end`). `put_data_ref`: the same (`two_heads_end`). `is_shared` relaxed (`alone_with_a_head`);
//! `is_cloned` relaxed (`alone_with_data`). `info` or the exchange in `info_or_new` relaxed, or a store instead of the exchange, or
//! a clone counted by a load and a store (`two_clones`). `data_mut` that does not look at references to the head (`alone_with_a_head`); `unshare`
//! that looks at those only (`both_unshare_data`). A destructor that is called after the data was given back (all of these).

use crate::caches;
use crate::packet::{DropReason, Skb, Waitlist};
use crate::world::{World, change, explore, look, mark, on_cpu, watch};

/// Two references to a head end at once: one of them ends the packet, after both have looked at it.
#[test]
fn two_references_end() {
    explore(None, 3, |world| {
        let skb = world.packet(1);
        let other = skb.get();
        let thread = on_cpu(1, move || {
            assert_eq!(look(&other), 1);
            other.consume_skb();
        });
        assert_eq!(look(&skb), 1);
        skb.kfree_skb(DropReason::NoRoute);
        thread.join().unwrap();
        assert_eq!((world.ended(), world.active()), (1, [0, 0]));
    });
}

/// Who finds that nobody else has a reference writes head and data, after all that others did.
#[test]
fn alone_with_a_head() {
    explore(None, 3, |world| {
        let skb = world.packet(1);
        let mut other = skb.get();
        let thread = on_cpu(1, move || {
            if change(&mut other, 2) {
                assert!(mark(&mut other, 7), "there are no more of them");
            } else {
                assert_eq!(look(&other), 1);
            }
            other
        });
        assert_eq!(look(&skb), 1);
        drop(skb);
        let mut other = thread.join().unwrap();
        assert!(mark(&mut other, 8) && change(&mut other, 3));
        drop(other);
        assert_eq!((world.ended(), world.active()), (1, [0, 0]));
    });
}

/// The same of two heads and their data: a head is written by who has it, data by who is alone with it.
#[test]
fn alone_with_data() {
    explore(None, 3, |world| {
        let mut skb = world.packet(1);
        let mut clone = skb.clone_skb().unwrap();
        let thread = on_cpu(1, move || {
            assert!(mark(&mut clone, 6));
            let changed = change(&mut clone, 2);
            (clone, changed)
        });
        assert!(mark(&mut skb, 5));
        assert_eq!(look(&skb), 1);
        drop(skb);
        let (clone, changed) = thread.join().unwrap();
        assert_eq!(look(&clone), 1 + u8::from(changed));
        drop(clone);
        assert_eq!((world.ended(), world.active()), (1, [0, 0]));
    });
}

/// Both heads end at once: the data is given back once, after both have looked at it.
#[test]
fn two_heads_end() {
    explore(None, 3, |world| {
        let skb = world.packet(1);
        let mut clone = skb.clone_skb().unwrap();
        watch(&mut clone);
        let thread = on_cpu(1, move || {
            assert_eq!(look(&clone), 1);
            drop(clone);
        });
        assert_eq!(look(&skb), 1);
        drop(skb);
        thread.join().unwrap();
        assert_eq!((world.ended(), world.active()), (2, [0, 0]));
    });
}

/// A head is cloned by two at once, who make what heads share: it is made once, and counts all three.
#[test]
fn two_clones() {
    explore(Some(3), 50, |world| {
        let skb = world.packet(1);
        let other = skb.get();
        let clone = |skb: Skb<'static>| {
            let mut clone = skb.clone_skb().unwrap();
            watch(&mut clone);
            drop(skb);
            assert_eq!(look(&clone), 1);
            clone
        };
        let thread = on_cpu(1, move || drop(clone(other)));
        let mut left = clone(skb);
        thread.join().unwrap();
        assert_eq!((world.ended(), world.active()), (2, [1, 1]));
        assert!(change(&mut left, 2), "it is alone");
        drop(left);
        assert_eq!((world.ended(), world.active()), (3, [0, 0]));
    });
}

/// Two who share a packet each want one of their own, and get it: with its bytes, and no two the same.
fn both_unshare(share: fn(&Skb<'static>) -> Skb<'static>) {
    explore(Some(4), 10, move |world| {
        let skb = world.packet(1);
        let other = share(&skb);
        let own = |skb: Skb<'static>, byte: u8| {
            let mut skb = skb.unshare().unwrap();
            assert_eq!(look(&skb), 1);
            assert!(mark(&mut skb, byte.into()) && change(&mut skb, byte));
            skb
        };
        let thread = on_cpu(1, move || own(other, 2));
        let one = own(skb, 3);
        let other = thread.join().unwrap();
        assert_eq!([look(&one), look(&other)], [3, 2]);
        assert_eq!(world.active(), [2, 2]);
        drop((one, other));
        assert_eq!((world.ended(), world.active()), (1, [0, 0]));
    });
}

#[test]
fn both_unshare_a_head() {
    both_unshare(Skb::get);
}

#[test]
fn both_unshare_data() {
    both_unshare(|skb| skb.clone_skb().unwrap());
}

/// Many are given back at once, of which another thread has a reference, and a clone.
#[test]
fn a_batch_ends() {
    explore(Some(4), 10, |world| {
        let (one, two) = (world.packet(1), world.packet(2));
        let (reference, clone) = (one.get(), two.clone_skb().unwrap());
        let thread = on_cpu(1, move || {
            assert_eq!([look(&reference), look(&clone)], [1, 2]);
            drop((reference, clone));
        });
        let mut done = Waitlist::<4>::new();
        for skb in [one, two] {
            look(&skb);
            done.add(skb);
        }
        done.flush();
        thread.join().unwrap();
        assert_eq!((world.ended(), world.active()), (2, [0, 0]));
    });
}
