//! Packet buffers.

use crate::processes::{leak, of_objects};
use crate::{Operation, Scene, Sharing, Worker};
use quietline_net::packet::{Packets, Skb, Waitlist, kfree_skb_bulk};

/// Packets in a batch.
const BATCH: usize = 64;

pub(super) fn operations() -> Vec<Operation> {
    let of = |name, about, scene| Operation::new("packets", name, about, scene);
    vec![
        of("skb-alloc-free-64", "alloc_skb of 64 bytes and consume_skb", pair::<64>),
        of("skb-alloc-free-1514", "alloc_skb of 1,514 bytes and consume_skb", pair::<1514>),
        of("skb-alloc-free-9000", "alloc_skb of 9,000 bytes and consume_skb", pair::<9000>),
        of("skb-get-put", "Skb::get and drop: a reference to the head", get),
        of("skb-clone-free", "clone_skb and drop: another head of the same data", clone),
        of("skb-copy-free", "copy of a packet of 64 bytes and drop", copy),
        of("skb-put-push-pull", "put of 64 bytes, push of a header of 14 and pull", put),
        of("skb-bulk-64", "alloc_skb_bulk and kfree_skb_bulk of 64 packets", bulk).repeats(BATCH),
        of("skb-waitlist-64", "64 packets, freed by a Waitlist of 32", waitlist).repeats(BATCH),
        of("skb-napi", "alloc_skb and consume_skb by a poller's own stack", napi),
    ]
}

fn packets() -> &'static Packets {
    leak(Packets::new().expect("memory for caches"))
}

/// Scene of an operation on packets.
fn scene(sharing: Sharing, make: fn(&'static Packets) -> Worker) -> Scene {
    of_objects(sharing, packets, move |packets, _| make(*packets))
}

fn pair<const SIZE: usize>(sharing: Sharing) -> Scene {
    scene(sharing, |packets| {
        Box::new(move || packets.alloc_skb(SIZE).expect("a packet").consume_skb())
    })
}

/// A packet with 64 bytes in it.
fn packet(packets: &'static Packets) -> Skb<'static> {
    let mut skb = packets.alloc_skb(64).expect("a packet");
    skb.put_data(&[7; 64]).expect("there is room");
    skb
}

fn get(sharing: Sharing) -> Scene {
    scene(sharing, |packets| {
        let skb = packet(packets);
        Box::new(move || assert_eq!(skb.get().len(), 64))
    })
}

fn clone(sharing: Sharing) -> Scene {
    scene(sharing, |packets| {
        let skb = packet(packets);
        Box::new(move || assert_eq!(skb.clone_skb().expect("a head").len(), 64))
    })
}

fn copy(sharing: Sharing) -> Scene {
    scene(sharing, |packets| {
        let skb = packet(packets);
        Box::new(move || assert_eq!(skb.copy().expect("a packet").data()[63], 7))
    })
}

fn put(sharing: Sharing) -> Scene {
    scene(sharing, |packets| {
        let mut skb = packets.alloc_skb(64).expect("a packet");
        Box::new(move || {
            skb.put(64).expect("there is room")[63] = 7;
            skb.push(14).expect("there is headroom")[0] = 7;
            assert_eq!(skb.pull(14).expect("a header of 14 bytes")[63], 7);
            skb.trim(0).expect("there are 64 bytes");
        })
    })
}

fn bulk(sharing: Sharing) -> Scene {
    scene(sharing, |packets| {
        Box::new(move || {
            let mut batch = [const { None }; BATCH];
            packets.alloc_skb_bulk(64, &mut batch).expect("the packets");
            kfree_skb_bulk(&mut batch);
        })
    })
}

fn waitlist(sharing: Sharing) -> Scene {
    scene(sharing, |packets| {
        Box::new(move || {
            let mut batch = [const { None }; BATCH];
            packets.alloc_skb_bulk(64, &mut batch).expect("the packets");
            let mut waitlist: Waitlist<'_> = Waitlist::default();
            batch.iter_mut().filter_map(Option::take).for_each(|skb| waitlist.add(skb));
        })
    })
}

fn napi(sharing: Sharing) -> Scene {
    scene(sharing, |packets| {
        let mut napi = packets.napi();
        Box::new(move || {
            let skb = napi.alloc_skb(64).expect("a packet");
            napi.consume_skb(skb);
        })
    })
}
