//! Whether packets that are made together lie together, once packets have ended in any order: of 64 made in a row, the slabs that heads
//! and data lie in, and how often a slab's word was changed for a packet. Packets end and are made in turns of 64, and of 2,048, which is more than
//! what a CPU keeps at hand. `cargo run --release -p quietline-net --example skb_pages`.
//!
//! Counts, no times: a debug build says the same.

use quietline_net::packet::{Napi, Packets, Skb, Waitlist, kfree_skb_bulk};
use std::collections::HashSet;

/// Packets of a burst: a device's budget.
const BURST: usize = 64;
/// Packets that are out, of which a burst ends and is made anew.
const OUT: usize = 4096;
/// Packets before counting, and while.
const WARM: usize = 1 << 17;
const COUNTED: usize = 1 << 17;
const LEN: usize = 1500;

/// A burst that has ended, or is to be made.
type Burst<'n> = [Option<Skb<'n>>];

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
    fn next(&mut self, nth: usize) -> usize {
        match self {
            Self::Oldest => nth % OUT,
            Self::Any(state) => {
                *state ^= *state << 13;
                *state ^= *state >> 7;
                *state ^= *state << 17;
                *state as usize % OUT
            }
        }
    }
}

/// What was found, in turns of so many: slabs of heads, their pages, and slabs of data, of 64; words for a packet; in the mean.
fn measure<'n>(
    packets: &'n Packets,
    way: &mut dyn Way<'n>,
    mut order: Order,
    turn: usize,
) -> [f64; 4] {
    let mut out: Vec<Option<Skb<'n>>> = (0..OUT).map(|_| packets.alloc_skb(LEN).ok()).collect();
    let slab_size = [packets.head_stats().slab_size, packets.data_stats()[1].slab_size];
    let words = || packets.head_stats().slab_syncs + packets.data_stats()[1].slab_syncs;
    let (mut found, mut before, mut ended) = ([0; 3], 0, 0);
    while ended < WARM + COUNTED {
        if ended == WARM {
            before = words();
        }
        let mut places = Vec::new();
        let mut burst: Vec<Option<Skb<'n>>> = Vec::new();
        while burst.len() < turn {
            // One that is not taken yet.
            let place = order.next(ended + burst.len());
            if let Some(skb) = out[place].take() {
                burst.push(Some(skb));
                places.push(place);
            }
        }
        burst.chunks_mut(BURST).for_each(|burst| way.free(burst));
        burst.chunks_mut(BURST).for_each(|burst| way.make(burst));
        if ended >= WARM {
            for burst in burst.chunks(BURST) {
                let all = || burst.iter().flatten();
                let distinct = |addresses: &mut dyn Iterator<Item = usize>| {
                    addresses.collect::<HashSet<_>>().len()
                };
                found[0] += distinct(&mut all().map(|skb| skb.id() / slab_size[0]));
                found[1] += distinct(&mut all().map(|skb| skb.id() / 4096));
                found[2] += distinct(&mut all().map(|skb| skb.data_ptr().addr() / slab_size[1]));
            }
        }
        for (place, skb) in places.into_iter().zip(burst) {
            out[place] = skb;
        }
        ended += turn;
    }
    let [heads, pages, data] = found.map(|n| n as f64 * BURST as f64 / COUNTED as f64);
    [heads, pages, data, (words() - before) as f64 / COUNTED as f64]
}

fn main() {
    println!("{:26} {:>10} {:>10} {:>10} {:>14}", "", "slabs", "pages", "slabs", "words changed");
    println!(
        "{:26} {:>10} {:>10} {:>10} {:>14}",
        "of 64 made in a row", "of heads", "of heads", "of data", "for a packet"
    );
    for (turn, any) in [(64, false), (64, true), (2048, false), (2048, true)] {
        println!(
            "turns of {turn}, {}",
            if any { "ended in any order" } else { "the oldest end first" }
        );
        for name in ["one by one", "waitlist of 32", "made and freed in bulk", "poller's stack"] {
            let packets = Packets::new().expect("memory");
            let order = if any { Order::Any(0x9e37_79b9_7f4a_7c15) } else { Order::Oldest };
            let mut way: Box<dyn Way<'_>> = match name {
                "one by one" => Box::new(Single(&packets)),
                "waitlist of 32" => Box::new(Listed(&packets)),
                "made and freed in bulk" => Box::new(Bulk(&packets)),
                _ => Box::new(packets.napi()),
            };
            let [heads, pages, data, words] = measure(&packets, &mut *way, order, turn);
            println!(
                "{:26} {heads:10.1} {pages:10.1} {data:10.1} {words:14.4}",
                format!("  {name}")
            );
            drop(way);
            assert_eq!(packets.head_stats().active, 0, "all have ended");
        }
    }
}
