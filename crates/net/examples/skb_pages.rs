//! Whether packets that are made together lie together, once packets have ended in any order: of each burst of 64, the slabs that heads
//! and data lie in, and how often a slab's word was changed for a packet. `cargo run --release -p quietline-net --example skb_pages`.
//!
//! Counts, no times: a debug build says the same.

use quietline_net::packet::{Napi, Packets, Skb, Waitlist, kfree_skb_bulk};
use std::collections::HashSet;

/// Packets of a burst: a device's budget.
const BURST: usize = 64;
/// Packets that are out, of which a burst ends and is made anew.
const OUT: usize = 4096;
const WARM: usize = 2_000;
const TURNS: usize = 2_000;
const LEN: usize = 1500;

/// A burst that has ended, or is to be made.
type Burst<'n> = [Option<Skb<'n>>; BURST];

trait Way<'n> {
    fn free(&mut self, burst: &mut Burst<'n>);
    fn make(&mut self, burst: &mut Burst<'n>);
}

struct Single<'n>(&'n Packets);

impl<'n> Way<'n> for Single<'n> {
    fn free(&mut self, burst: &mut Burst<'n>) {
        burst.fill_with(|| None);
    }

    fn make(&mut self, burst: &mut Burst<'n>) {
        burst.fill_with(|| self.0.alloc_skb(LEN).ok());
    }
}

/// Made one by one, freed by a waitlist.
struct Listed<'n>(&'n Packets);

impl<'n> Way<'n> for Listed<'n> {
    fn free(&mut self, burst: &mut Burst<'n>) {
        let mut done = Waitlist::<32>::new();
        burst.iter_mut().filter_map(Option::take).for_each(|skb| done.add(skb));
    }

    fn make(&mut self, burst: &mut Burst<'n>) {
        burst.fill_with(|| self.0.alloc_skb(LEN).ok());
    }
}

struct Bulk<'n>(&'n Packets);

impl<'n> Way<'n> for Bulk<'n> {
    fn free(&mut self, burst: &mut Burst<'n>) {
        kfree_skb_bulk(burst);
    }

    fn make(&mut self, burst: &mut Burst<'n>) {
        self.0.alloc_skb_bulk(LEN, burst).expect("memory");
    }
}

impl<'n> Way<'n> for Napi<'n> {
    fn free(&mut self, burst: &mut Burst<'n>) {
        burst.iter_mut().filter_map(Option::take).for_each(|skb| self.consume_skb(skb));
    }

    fn make(&mut self, burst: &mut Burst<'n>) {
        burst.fill_with(|| self.alloc_skb(LEN).ok());
    }
}

/// Which of those that are out end next.
enum Order {
    /// The oldest.
    Oldest,
    /// Any.
    Any(u64),
}

impl Order {
    fn next(&mut self, turn: usize, i: usize) -> usize {
        match self {
            Self::Oldest => (turn * BURST + i) % OUT,
            Self::Any(state) => {
                *state ^= *state << 13;
                *state ^= *state >> 7;
                *state ^= *state << 17;
                *state as usize % OUT
            }
        }
    }
}

/// What was found: slabs of heads and of data in a burst, pages of heads, words for a packet, in the mean.
fn measure<'n>(packets: &'n Packets, way: &mut dyn Way<'n>, mut order: Order) -> [f64; 4] {
    let mut out: Vec<Option<Skb<'n>>> = (0..OUT).map(|_| packets.alloc_skb(LEN).ok()).collect();
    let slab_size = [packets.head_stats().slab_size, packets.data_stats()[1].slab_size];
    let words = || packets.head_stats().slab_syncs + packets.data_stats()[1].slab_syncs;
    let (mut found, mut before) = ([0; 3], 0);
    for turn in 0..WARM + TURNS {
        if turn == WARM {
            before = words();
        }
        let mut burst: Burst<'n> = [const { None }; BURST];
        let mut places = [0; BURST];
        for (i, (place, skb)) in places.iter_mut().zip(&mut burst).enumerate() {
            // One that is not taken yet.
            while skb.is_none() {
                *place = order.next(turn, i);
                *skb = out[*place].take();
            }
        }
        way.free(&mut burst);
        way.make(&mut burst);
        if turn >= WARM {
            let all = || burst.iter().flatten();
            let distinct = |addresses: &mut dyn Iterator<Item = usize>| addresses.collect::<HashSet<_>>().len();
            found[0] += distinct(&mut all().map(|skb| skb.id() / slab_size[0]));
            found[1] += distinct(&mut all().map(|skb| skb.data_ptr().addr() / slab_size[1]));
            found[2] += distinct(&mut all().map(|skb| skb.id() / 4096));
        }
        for (place, skb) in places.into_iter().zip(&mut burst) {
            out[place] = skb.take();
        }
    }
    let [heads, data, pages] = found.map(|n| n as f64 / TURNS as f64);
    [heads, data, pages, (words() - before) as f64 / (TURNS * BURST) as f64]
}

fn main() {
    println!("{:34} {:>10} {:>10} {:>10} {:>14}", "", "slabs", "pages", "slabs", "words changed");
    println!("{:34} {:>10} {:>10} {:>10} {:>14}", "a burst of 64", "of heads", "of heads", "of data", "for a packet");
    for (order, says) in [(false, "oldest first"), (true, "in any order")] {
        for name in ["one by one", "waitlist of 32", "made and freed in bulk", "poller's stack"] {
            let packets = Packets::new().expect("memory");
            let order = if order { Order::Any(0x9e37_79b9_7f4a_7c15) } else { Order::Oldest };
            let mut way: Box<dyn Way<'_>> = match name {
                "one by one" => Box::new(Single(&packets)),
                "waitlist of 32" => Box::new(Listed(&packets)),
                "made and freed in bulk" => Box::new(Bulk(&packets)),
                _ => Box::new(packets.napi()),
            };
            let [heads, data, pages, words] = measure(&packets, &mut *way, order);
            println!("{:34} {heads:10.1} {pages:10.1} {data:10.1} {words:14.4}", format!("{name}, {says}"));
            drop(way);
            assert_eq!(packets.head_stats().active, 0, "all have ended");
        }
    }
}
