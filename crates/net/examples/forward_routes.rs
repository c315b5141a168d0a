//! What forwarding costs: nanoseconds for a lookup in tables of a million routes, and for a packet of 64 bytes that goes through, buffers
//! made and freed; least and median of many rounds. `cargo run --release -p quietline-net --example forward_routes`.

use quietline_net::forward::header::{Ethernet, Ipv4, Ipv6, Link, Udp, ether, protocol};
use quietline_net::forward::{
    Address, Count, Forwarder, Interface, NextHop, Prefix, Routes, Via, checksum,
};
use quietline_net::packet::{Napi, Packets, Skb};
use std::hint::black_box;
use std::net::{Ipv4Addr, Ipv6Addr};
use std::time::{Duration, Instant};
use zerocopy::IntoBytes;

/// Many, and short, so that some meet nobody else on the machine.
const ROUNDS: usize = 1001;
const BURST: usize = 64;
const BURSTS: usize = 32;
const ROUTES: usize = 1_000_000;
const LINKS: [Link; 2] = [[2, 0, 0, 0, 0, 1], [2, 0, 0, 0, 0, 2]];
const STATION: Link = [2, 0, 0, 0, 0, 9];

/// SplitMix64.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ z >> 30).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ z >> 27).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ z >> 31
    }
}

/// Least and median of rounds, in nanoseconds for each of `n`.
fn rounds(n: usize, mut round: impl FnMut() -> Duration) -> (f64, f64) {
    let mut each: Vec<f64> = (0..ROUNDS).map(|_| round().as_nanos() as f64 / n as f64).collect();
    each.sort_by(f64::total_cmp);
    (each[0], each[ROUNDS / 2])
}

fn prefix4(random: &mut Random) -> Prefix<Ipv4Addr> {
    let n = random.next();
    let len = match n % 100 {
        0..=59 => 24,
        60..=94 => 16 + n / 100 % 8,
        95..=98 => 25 + n / 100 % 8,
        _ => 8 + n / 100 % 8,
    };
    Prefix::of(Ipv4Addr::from_bits(random.next() as u32), len as u32).expect("a prefix")
}

fn prefix6(random: &mut Random) -> Prefix<Ipv6Addr> {
    let block = 0x2000 << 112 | u128::from(random.next() % 40_000 * 0x9E3_779B % (1 << 29)) << 96;
    let len = [48, 48, 40, 44, 64, 32, 128][random.next() as usize % 7];
    Prefix::of(Ipv6Addr::from_bits(block | u128::from(random.next()) << 32), len).expect("a prefix")
}

fn table<A: Address>(
    name: &str,
    prefix: fn(&mut Random) -> Prefix<A>,
    inside: impl Fn(Prefix<A>, u64) -> A,
    anywhere: impl Fn(u64) -> A,
) {
    let random = &mut Random(1);
    let routes = Routes::<A>::new().expect("memory");
    let mut prefixes = Vec::new();
    let begun = Instant::now();
    while routes.len() < ROUTES {
        let prefix = prefix(random);
        let via = Via::Link;
        if routes
            .insert(prefix, NextHop { interface: random.next() as u32 % 64, via })
            .expect("memory")
            .is_none()
        {
            prefixes.push(prefix);
        }
    }
    let inserting = begun.elapsed().as_nanos() as f64 / ROUTES as f64;
    let usage = routes.usage();
    println!(
        "{name}: {ROUTES} routes, {} MiB ({} bytes each): {} chunks, {} tails; {inserting:.0} ns to insert one",
        usage.bytes >> 20,
        usage.bytes / ROUTES,
        usage.chunks,
        usage.tails
    );
    const LOOKUPS: usize = 1 << 14;
    let hits: Vec<A> = (0..LOOKUPS)
        .map(|_| inside(prefixes[random.next() as usize % ROUTES], random.next()))
        .collect();
    let any: Vec<A> = (0..LOOKUPS).map(|_| anywhere(random.next())).collect();
    let few: Vec<A> = (0..LOOKUPS).map(|i| hits[i % 64]).collect();
    for (what, addresses) in [("inside prefixes", &hits), ("anywhere", &any), ("64 flows", &few)] {
        let (least, median) = rounds(LOOKUPS, || {
            let begun = Instant::now();
            let guard = routes.domain().read();
            let sum = addresses.iter().filter_map(|address| routes.lookup(&guard, *address));
            black_box(sum.fold(0u32, |sum, hop| sum.wrapping_add(hop.interface)));
            begun.elapsed()
        });
        println!("  lookup, {what:16} {least:6.1} ns (median {median:.1})");
    }
    let begun = Instant::now();
    for prefix in &prefixes {
        assert!(routes.remove(*prefix).is_some());
    }
    println!("  {:.0} ns to remove one", begun.elapsed().as_nanos() as f64 / ROUTES as f64);
    assert_eq!((routes.usage().chunks, routes.usage().tails), (0, 0));
}

/// A frame of 64 bytes (60 without its check sequence).
fn frame4(flow: u32) -> [u8; 60] {
    let mut ip = Ipv4 {
        version: 0x45,
        tos: 0,
        total: 46.into(),
        id: 1.into(),
        fragment: 0.into(),
        ttl: 64,
        protocol: protocol::UDP,
        checksum: 0.into(),
        source: [10, 0, 0, 9],
        destination: (0x0a01_0000 + 2 + flow % 250 + ((flow / 250) << 8)).to_be_bytes(),
    };
    ip.checksum = u16::from_be_bytes(checksum::checksum(ip.as_bytes())).into();
    let udp = Udp { source: 1.into(), destination: 2.into(), len: 26.into(), checksum: 0.into() };
    frame(ether::IPV4, &[ip.as_bytes(), udp.as_bytes()])
}

fn frame6(flow: u32) -> [u8; 60] {
    let mut destination = [0x20, 1, 0xd, 0xb8, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
    destination[12..].copy_from_slice(&(flow + 2).to_be_bytes());
    let source = [0x20, 1, 0xd, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 9];
    let ip = Ipv6 {
        version: Ipv6::VERSION.into(),
        payload: 6.into(),
        next: 59,
        hops: 64,
        source,
        destination,
    };
    frame(ether::IPV6, &[ip.as_bytes()])
}

fn frame(kind: u16, parts: &[&[u8]]) -> [u8; 60] {
    let ethernet = Ethernet { destination: LINKS[0], source: STATION, protocol: kind.into() };
    let mut frame = [0; 60];
    let bytes = [&[ethernet.as_bytes()], parts].concat().concat();
    frame[..bytes.len()].copy_from_slice(&bytes);
    frame
}

fn fill<'n>(napi: &mut Napi<'n>, ring: &mut [Option<Skb<'n>>], frames: &[[u8; 60]], at: usize) {
    for (i, place) in ring.iter_mut().enumerate() {
        let mut skb = napi.alloc_skb(60).expect("memory");
        skb.put_data(&frames[(at + i) % frames.len()]).expect("room");
        *place = Some(skb);
    }
}

/// A packet from one device to the other: its buffer made and filled, forwarded, and freed by who sends.
fn through<'n>(of: &Forwarder<'n>, packets: &'n Packets, what: &str, frames: &[[u8; 60]]) {
    let mut lane = of.lane().expect("memory");
    let (mut with, mut without) = (Vec::new(), Vec::new());
    for _ in 0..ROUNDS {
        let mut napi = packets.napi();
        let mut ring: [Option<Skb<'_>>; BURST] = [const { None }; BURST];
        let begun = Instant::now();
        for burst in 0..BURSTS {
            fill(&mut napi, &mut ring, frames, burst * BURST);
            ring.iter_mut()
                .filter_map(Option::take)
                .for_each(|skb| napi.consume_skb(black_box(skb)));
        }
        without.push(begun.elapsed().as_nanos() as f64 / (BURST * BURSTS) as f64);
        let begun = Instant::now();
        let mut sent = 0;
        for burst in 0..BURSTS {
            fill(&mut napi, &mut ring, frames, burst * BURST);
            let napi = &mut napi;
            of.handle(&mut lane, 0, &mut ring, Duration::from_secs(1), &mut |interface, batch| {
                assert_eq!(interface, 1);
                sent += batch.len();
                batch.iter_mut().filter_map(Option::take).for_each(|skb| napi.consume_skb(skb));
            });
        }
        with.push(begun.elapsed().as_nanos() as f64 / (BURST * BURSTS) as f64);
        assert_eq!(sent, BURST * BURSTS, "all went through");
    }
    for times in [&mut with, &mut without] {
        times.sort_by(f64::total_cmp);
    }
    println!(
        "{what:28} {:5.1} ns a packet (median {:.1}), of which buffers made, filled and freed {:.1} ({:.1})",
        with[0],
        with[ROUNDS / 2],
        without[0],
        without[ROUNDS / 2]
    );
}

fn main() {
    let packets = Packets::new().expect("memory");
    let left = Interface::new(LINKS[0], 1500)
        .v4(Ipv4Addr::new(10, 0, 0, 1), 16)
        .v6("2001:db8::1".parse().expect("an address"), 64);
    let right = Interface::new(LINKS[1], 1500)
        .v4(Ipv4Addr::new(10, 1, 0, 1), 16)
        .v6("2001:db8:1::1".parse().expect("an address"), 64);
    let of = Forwarder::new(&packets, vec![left, right]).expect("memory");
    let flows = |n: u32, frame: fn(u32) -> [u8; 60]| (0..n).map(frame).collect::<Vec<_>>();
    for n in [1, 64, 4096] {
        for flow in flows(n, frame4) {
            let to: [u8; 4] = flow[30..34].try_into().expect("four");
            of.set_neighbour4(1, to.into(), STATION).expect("memory");
        }
        through(&of, &packets, &format!("IPv4, 64 bytes, {n} flows"), &flows(n, frame4));
    }
    for n in [1, 64, 4096] {
        for flow in flows(n, frame6) {
            let to: [u8; 16] = flow[38..54].try_into().expect("sixteen");
            of.set_neighbour6(1, to.into(), STATION).expect("memory");
        }
        through(&of, &packets, &format!("IPv6, 64 bytes, {n} flows"), &flows(n, frame6));
    }
    let counts = of.counts();
    let all = 3 * (ROUNDS * BURST * BURSTS) as u64;
    assert_eq!(
        (counts[Count::Forwarded4], counts[Count::Forwarded6], counts.dropped()),
        (all, all, 0)
    );

    table::<Ipv4Addr>(
        "IPv4",
        prefix4,
        |prefix, n| {
            let host = (n as u32).checked_shr(prefix.len()).unwrap_or(0);
            Ipv4Addr::from_bits(prefix.address().to_bits() | host)
        },
        |n| Ipv4Addr::from_bits(n as u32),
    );
    table::<Ipv6Addr>(
        "IPv6",
        prefix6,
        |prefix, n| {
            let host = (u128::from(n) << 64 | u128::from(n)).checked_shr(prefix.len()).unwrap_or(0);
            Ipv6Addr::from_bits(prefix.address().to_bits() | host)
        },
        |n| Ipv6Addr::from_bits(0x2000 << 112 | u128::from(n) << 48),
    );
}
