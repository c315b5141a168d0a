//! What a packet's buffers cost: nanoseconds for each packet made and freed, way by way, interleaved; medians with the least and
//! the most. `cargo run --release -p quietline-net --example skb [BYTES]`; packets of 64 bytes and of 1,500 if none are named.

use quietline_net::packet::{NAPI_BULK, Packets, Skb, Waitlist, kfree_skb_bulk_heads};
use std::time::Instant;

/// Packets of a burst: a device's budget.
const BURST: usize = 64;
const BURSTS: usize = 4_000;
const ROUNDS: usize = 15;

type Way = (&'static str, fn(&Packets, usize));

fn singles(packets: &Packets, len: usize) {
    let mut ring: [Option<Skb<'_>>; BURST] = [const { None }; BURST];
    for _ in 0..BURSTS {
        ring.fill_with(|| packets.alloc_skb(len).ok());
        ring.fill_with(|| None);
    }
}

fn heads_in_bulk(packets: &Packets, len: usize) {
    let mut ring: [Option<Skb<'_>>; BURST] = [const { None }; BURST];
    for _ in 0..BURSTS {
        ring.fill_with(|| packets.alloc_skb(len).ok());
        ring.chunks_mut(32).for_each(kfree_skb_bulk_heads);
    }
}

fn waitlist<const N: usize>(packets: &Packets, len: usize) {
    let mut ring: [Option<Skb<'_>>; BURST] = [const { None }; BURST];
    for _ in 0..BURSTS {
        ring.fill_with(|| packets.alloc_skb(len).ok());
        let mut done = Waitlist::<N>::new();
        ring.iter_mut().filter_map(Option::take).for_each(|skb| done.add(skb));
    }
}

fn bulk_both_ways<const N: usize>(packets: &Packets, len: usize) {
    let mut ring: [Option<Skb<'_>>; BURST] = [const { None }; BURST];
    for _ in 0..BURSTS {
        for part in ring.chunks_mut(N) {
            packets.alloc_skb_bulk(len, part).expect("memory");
        }
        let mut done = Waitlist::<N>::new();
        ring.iter_mut().filter_map(Option::take).for_each(|skb| done.add(skb));
    }
}

fn napi(packets: &Packets, len: usize) {
    let mut napi = packets.napi();
    let mut ring: [Option<Skb<'_>>; BURST] = [const { None }; BURST];
    for _ in 0..BURSTS {
        ring.fill_with(|| napi.alloc_skb(len).ok());
        ring.iter_mut().filter_map(Option::take).for_each(|skb| napi.consume_skb(skb));
    }
}

fn measure(len: usize) {
    let ways: [Way; 10] = [
        ("one by one", singles),
        ("heads in bulk, as in 2015", heads_in_bulk),
        ("waitlist of 8", waitlist::<8>),
        ("waitlist of 16", waitlist::<16>),
        ("waitlist of 32", waitlist::<32>),
        ("waitlist of 64", waitlist::<64>),
        ("made and freed by 16", bulk_both_ways::<16>),
        ("made and freed by 32", bulk_both_ways::<32>),
        ("made and freed by 64", bulk_both_ways::<64>),
        ("napi stack", napi),
    ];
    let packets = Packets::new().expect("memory");
    let mut samples = ways.map(|_| Vec::new());
    for _ in 0..ROUNDS {
        for ((_, way), samples) in ways.iter().zip(&mut samples) {
            let start = Instant::now();
            way(&packets, len);
            samples.push(start.elapsed().as_nanos() as f64 / (BURST * BURSTS) as f64);
            assert_eq!(packets.head_stats().active, 0, "all were freed");
        }
    }
    println!(
        "a packet of {len} bytes, made and freed in bursts of {BURST} (refill by {NAPI_BULK}), ns: median (least to most)"
    );
    for ((name, _), mut samples) in ways.iter().zip(samples) {
        samples.sort_by(f64::total_cmp);
        println!(
            "{name:28} {:6.2} ({:.2} to {:.2})",
            samples[ROUNDS / 2],
            samples[0],
            samples[ROUNDS - 1]
        );
    }
}

fn main() {
    match std::env::args().nth(1) {
        Some(len) => measure(len.parse().expect("a number of bytes")),
        None => [64, 1500].into_iter().for_each(measure),
    }
}
