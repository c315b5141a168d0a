//! A forwarder that is given frames, right and wrong ones.
//!
//! Whatever comes in: no panic; what goes out is whole, comes from this station, fits through the interface and has right checksums; no
//! more packets are kept than may wait for neighbours, and in the end none. A packet that went on is what came in, byte for byte, but for
//! what a router changes, or a piece of it, from where it says; what was made here answers something that came, or quotes it; and each packet that came in ends once, and is counted as that. Bytes that others have
//! a part in are not written. Batches are of one packet up to more than two of the forwarder's, alike or not; devices take what they
//! like. Time goes on, routes and neighbours change, and memory fails at times.
//!
//! Three interfaces: one with the usual MTU, one with the least that carries IPv6, and one with less, by which no packet of IPv6 comes in
//! or goes out. Who is told that a packet is too big is told the MTU of one of them, and of IPv6 never one below that least.

mod came;
mod frames;

use crate::input::Input;
use came::Came;
use frames::{LINKS, frame};
use quietline_net::forward::checksum::{Sum, pseudo6};
use quietline_net::forward::header::{
    Arp, BROADCAST, Ethernet, Icmp, Ipv4, Ipv6, Neighbour, ether, is_group, protocol,
};
use quietline_net::forward::{
    ASKED, Count, Counts, Forwarder, Interface, LEAST_MTU6, NextHop, Prefix, TRIES, Via, WAITING,
};
use quietline_net::packet::{DropReason, Frag, Packets, Skb};
use quietline_platform::fault;
use std::net::{Ipv4Addr, Ipv6Addr};
use std::time::Duration;

/// What was done.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Tally {
    /// Frames that came in.
    pub operations: u64,
    /// Packets that were sent on.
    pub forwarded: u64,
    /// Frames that went out, whatever they were.
    pub sent: u64,
}

impl std::ops::AddAssign for Tally {
    fn add_assign(&mut self, other: Self) {
        self.operations += other.operations;
        self.forwarded += other.forwarded;
        self.sent += other.sent;
    }
}

/// A neighbour that is entered by hand.
const STATION: [u8; 6] = [2, 0, 0, 0, 2, 2];
const MTU: [usize; 3] = [1500, LEAST_MTU6, 1000];
const OWN4: [Ipv4Addr; 3] =
    [Ipv4Addr::new(10, 0, 1, 1), Ipv4Addr::new(10, 0, 2, 1), Ipv4Addr::new(10, 0, 3, 1)];
/// Of the interfaces that have any.
const OWN6: [Ipv6Addr; 2] = [
    Ipv6Addr::new(0x2001, 0xdb8, 1, 0, 0, 0, 0, 1),
    Ipv6Addr::new(0x2001, 0xdb8, 2, 0, 0, 0, 0, 1),
];

/// Does what the bytes say, until there are none left.
///
/// # Panics
/// When something went out that must not.
pub fn run(bytes: &[u8]) -> Tally {
    let mut input = Input::new(bytes);
    let packets = Packets::new().expect("there is memory");
    let interface = |i: usize| {
        let interface = Interface::new(LINKS[i], MTU[i]).v4(OWN4[i], 24);
        match OWN6.get(i) {
            Some(own) => interface.v6(*own, 64),
            None => interface,
        }
    };
    let of =
        Forwarder::new(&packets, (0..MTU.len()).map(interface).collect()).expect("there is memory");
    let far4 = Prefix::of(Ipv4Addr::new(192, 0, 2, 0), 24).expect("a prefix");
    let far6 = Prefix::of(Ipv6Addr::new(0x2001, 0xdb8, 0xff, 0, 0, 0, 0, 0), 48).expect("a prefix");
    let mut lane = of.lane().expect("there is memory");
    let (mut now, mut tally) = (Duration::ZERO, Tally::default());
    let (mut came, mut not_sent) = (Came::default(), 0);
    while !input.is_empty() {
        let from = input.below(MTU.len());
        let frames = batch(&mut input, from);
        tally.operations += frames.len() as u64;
        // (Of IPv6 nothing comes in where so much does not fit.)
        let is_taken = |frame: &&Vec<u8>| {
            MTU[from] >= LEAST_MTU6 || frame.get(14).is_none_or(|at| at >> 4 != 6)
        };
        frames.iter().filter(is_taken).for_each(|frame| came.add(frame, &OWN4));
        now += Duration::from_millis(input.pick(&[0, 1, 10, 300, 1500, 40_000]));
        match input.below(20) {
            0 => {
                let hop = NextHop { interface: 1, via: Via::Gateway(Ipv4Addr::new(10, 0, 2, 9)) };
                of.routes4().insert(far4, hop).expect("there is memory");
            }
            1 => drop(of.routes4().remove(far4).is_some()),
            2 => {
                let via = Via::Gateway(Ipv6Addr::new(0x2001, 0xdb8, 2, 0, 0, 0, 0, 9));
                of.routes6().insert(far6, NextHop { interface: 1, via }).expect("there is memory");
            }
            3 => drop(of.routes6().remove(far6).is_some()),
            // By the interface that takes little; which has no IPv6.
            7 => {
                let hop = NextHop { interface: 2, via: Via::Gateway(Ipv4Addr::new(10, 0, 3, 9)) };
                of.routes4().insert(far4, hop).expect("there is memory");
            }
            8 => {
                let via = Via::Gateway(Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, 9));
                let via = input.pick(&[via, Via::Link]);
                of.routes6().insert(far6, NextHop { interface: 2, via }).expect("there is memory");
            }
            9 => {
                of.set_neighbour4(2, Ipv4Addr::new(10, 0, 3, 9), STATION).expect("there is memory");
                let neighbour = Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, 9);
                of.set_neighbour6(2, neighbour, STATION).expect("there is memory");
            }
            // One that names no interface.
            4 => {
                let hop = NextHop { interface: 9, via: Via::Link };
                of.routes4().insert(far4, hop).expect("there is memory");
            }
            5 => of
                .set_neighbour4(1, Ipv4Addr::new(10, 0, 2, input.pick(&[9, 77])), STATION)
                .expect("there is memory"),
            6 => {
                let host = input.pick(&[9, 77]);
                let neighbour = Ipv6Addr::new(0x2001, 0xdb8, 2, 0, 0, 0, 0, host);
                of.set_neighbour6(1, neighbour, STATION).expect("there is memory");
            }
            _ => {}
        }
        // Those of which others have a part, and what is to stay in them.
        let mut others = Vec::new();
        let mut batch: Vec<Option<Skb<'_>>> = frames
            .iter()
            .map(|bytes| Some(packet(&mut input, &packets, bytes, &mut others)))
            .collect();
        // A device takes all, nothing, or one of some.
        let takes = input.pick(&[1, 1, 1, 1, 0, 2, 3, 40]);
        let (mut sent, mut left) = (0, 0);
        if input.one_in(12) {
            fault::fail_nth(1 + input.below(4) as u64);
        }
        of.handle(&mut lane, from as u32, &mut batch, now, &mut |interface, batch| {
            for (i, place) in batch.iter_mut().enumerate() {
                let skb = place.as_ref().expect("no place is empty");
                check(interface as usize, &all_of(skb), &came);
                if takes > 0 && i % takes == 0 {
                    drop(place.take());
                    sent += 1;
                } else {
                    left += 1;
                }
            }
        });
        fault::fail_nth(0);
        tally.sent += sent;
        assert!(batch.iter().all(Option::is_none), "all were taken");
        for (skb, before) in others {
            assert!(skb.data() == before, "nobody else's bytes are written");
        }
        let waits = of.waiting();
        assert_eq!(packets.head_stats().active, waits, "what is kept waits");
        assert!(waits <= 2 * ASKED * WAITING, "what waits is bounded");
        not_sent += left;
        let counts = of.counts();
        assert_eq!((counts[Count::NotSent], counts[DropReason::QueueFull]), (not_sent, not_sent));
        assert!((0..=waits as i64).contains(&not_ended(&counts)), "{counts:?}");
    }
    // Until who does not answer is given up, and then who does not hear of that.
    for _ in 0..2 * (TRIES + 2) {
        now += Duration::from_millis(1001);
        of.handle(&mut lane, 0, &mut [], now, &mut |_, batch| batch.fill_with(|| None));
    }
    let counts = of.counts();
    tally.forwarded = counts[Count::Forwarded4] + counts[Count::Forwarded6];
    assert_eq!((counts[Count::Received], of.waiting()), (tally.operations, 0));
    assert_eq!(not_ended(&counts), 0, "each packet ends once: {counts:?}");
    drop((lane, of));
    assert_eq!(packets.head_stats().active, 0, "no packet is left");
    tally
}

/// What came in, less all ways in which it may have ended: packets that wait, but for those that were made by the forwarder.
fn not_ended(counts: &Counts) -> i64 {
    let ended = [
        Count::OtherStation,
        Count::Forwarded4,
        Count::Forwarded6,
        Count::Echoes,
        Count::Neighbours,
    ];
    let ended: u64 = ended.iter().map(|count| counts[*count]).sum();
    let dropped = counts.dropped() as i64 - counts[Count::OwnDropped] as i64;
    counts[Count::Received] as i64 - ended as i64 - dropped
}

/// Frames that come together: a few, each several times, at times one after the other, at times in disorder.
fn batch(input: &mut Input<'_>, from: usize) -> Vec<Vec<u8>> {
    let few: Vec<Vec<u8>> = (0..1 + input.below(4)).map(|_| frame(input, from)).collect();
    let len = if input.one_in(2) { 1 + input.below(130) } else { few.len() };
    let each = len.div_ceil(few.len());
    let way = input.below(3);
    (0..len)
        .map(|i| match way {
            0 => few[i % few.len()].clone(),
            1 => few[i / each].clone(),
            _ => few[input.below(few.len())].clone(),
        })
        .collect()
}

/// A packet of these bytes: alone, in pieces, or one that others have a part in.
fn packet<'n>(
    input: &mut Input<'_>,
    packets: &'n Packets,
    bytes: &[u8],
    others: &mut Vec<(Skb<'n>, Vec<u8>)>,
) -> Skb<'n> {
    let way = input.below(12);
    let first =
        if way == 1 && bytes.len() > 14 { 14 + input.below(bytes.len() - 14) } else { bytes.len() };
    let mut skb = packets.alloc_skb(first).expect("there is memory");
    skb.put_data(&bytes[..first]).expect("there is room");
    if first < bytes.len() {
        let rest = Frag::copy_of(&bytes[first..]).expect("there is memory");
        skb.add_frag(rest).expect("there is room");
    }
    match way {
        2 => others.push((skb.get(), bytes.to_vec())),
        3 => others.push((skb.clone_skb().expect("there is memory"), bytes.to_vec())),
        _ => {}
    }
    skb
}

/// A packet's bytes, also of one in pieces.
fn all_of(skb: &Skb<'_>) -> Vec<u8> {
    skb.frags().fold(skb.data().to_vec(), |mut bytes, frag| {
        bytes.extend_from_slice(frag.bytes());
        bytes
    })
}

/// Looks at a frame that went out.
fn check(interface: usize, bytes: &[u8], came: &Came) {
    let (ethernet, rest) = Ethernet::of(bytes).expect("an Ethernet header");
    assert_eq!(ethernet.source, LINKS[interface], "it comes from here");
    match ethernet.protocol.get() {
        ether::IPV4 => {
            let (ip, _) = Ipv4::of(rest).expect("a header");
            assert!(Sum::default().with(&rest[..ip.header_len()]).is_right(), "a right checksum");
            assert_eq!(usize::from(ip.total.get()), rest.len(), "all of it, and no more");
            assert!(rest.len() <= MTU[interface] && ip.ttl > 0);
            assert!(!is_group(ethernet.destination), "to one station");
            if OWN4.contains(&ip.source()) {
                made_here4(ip, rest, MTU[interface], came);
            } else {
                let is_piece = || came.is_piece(rest, MTU[interface]);
                assert!(
                    came.has_passed(rest) || is_piece(),
                    "it came in, or a packet of which it is a piece"
                );
            }
        }
        ether::IPV6 => {
            assert!(MTU[interface] >= LEAST_MTU6, "by an interface that has no IPv6");
            let (ip, message) = Ipv6::of(rest).expect("a header");
            assert_eq!(usize::from(ip.payload.get()), message.len(), "all of it, and no more");
            assert!(rest.len() <= MTU[interface] && ip.hops > 0);
            if !came.has_passed(rest) {
                made_here6(ip, rest, message, came);
            }
        }
        ether::ARP => {
            let (arp, behind) = Arp::of(rest).expect("all of it");
            let kind = (arp.hardware.get(), arp.protocol.get(), arp.link_len, arp.len);
            assert_eq!((kind, behind.len()), ((1, ether::IPV4, 6, 4), 0));
            assert_eq!((arp.sender_link, arp.sender), (LINKS[interface], OWN4[interface].octets()));
            match arp.operation.get() {
                1 => {
                    assert!(ethernet.destination == BROADCAST || !is_group(ethernet.destination));
                    assert_eq!(
                        (arp.target_link, &arp.target[..3]),
                        ([0; 6], &arp.sender[..3]),
                        "on the link"
                    );
                }
                2 => {
                    assert_eq!(ethernet.destination, arp.target_link);
                    assert!(came.has_asked(arp), "an answer to nobody");
                }
                other => panic!("{other} is no operation"),
            }
        }
        other => panic!("{other:#x} went out"),
    }
}

/// Looks at a packet of IPv4 that comes from this station, by an interface with this MTU.
fn made_here4(ip: &Ipv4, packet: &[u8], mtu: usize, came: &Came) {
    let message = &packet[ip.header_len()..];
    assert_eq!((ip.protocol, ip.ttl), (protocol::ICMP, 64), "not as if it came from here");
    if ip.is_fragment() {
        return assert!(came.is_answer4(packet, mtu), "a piece of no answer");
    }
    assert!(Sum::default().with(message).is_right(), "a right checksum of ICMP");
    let (icmp, quoted) = Icmp::of(message).expect("a message");
    match icmp.kind {
        0 => assert!(came.is_answer4(packet, mtu), "an answer to nobody"),
        3 | 11 | 12 => {
            let of = Ipv4::of(quoted).expect("a header at least").0;
            assert_eq!(of.source, ip.destination, "it is told to the sender");
            assert!(packet.len() <= 576 && came.is_quoted(quoted), "what is quoted came in");
            if let [3, 4, _, _, _, _, high, low, ..] = *message {
                let told = usize::from(u16::from_be_bytes([high, low]));
                assert!(MTU.contains(&told), "too big for {told}");
            }
        }
        kind => panic!("a message of kind {kind}"),
    }
}

/// The same of IPv6.
fn made_here6(ip: &Ipv6, packet: &[u8], message: &[u8], came: &Came) {
    let own = OWN6.contains(&ip.source()) || ip.source().is_unicast_link_local();
    assert!(own && ip.next == protocol::ICMPV6, "it came in, or was made here");
    let sum = pseudo6(&ip.source, &ip.destination, message.len() as u32, protocol::ICMPV6);
    assert!(sum.with(message).is_right(), "a right checksum");
    let (icmp, body) = Icmp::of(message).expect("a message");
    match icmp.kind {
        1..=4 => {
            let of = Ipv6::of(body).expect("a header at least").0;
            assert_eq!((of.source, ip.hops), (ip.destination, 64), "it is told to the sender");
            assert!(packet.len() <= 1280 && came.is_quoted(body), "what is quoted came in");
            if let [2, _, _, _, a, b, c, d, ..] = *message {
                let told = u32::from_be_bytes([a, b, c, d]) as usize;
                assert!(MTU.contains(&told) && told >= LEAST_MTU6, "too big for {told}");
            }
        }
        129 => assert!(came.is_answer6(packet), "an answer to nobody"),
        135 | 136 => {
            let (about, behind) = Neighbour::of(body).expect("one option");
            assert_eq!((ip.hops, about.option_len, behind.len()), (255, 1, 0));
            // A solicitation has the source's link, an advertisement the target's, which it is from.
            assert_eq!(about.option, icmp.kind - 134);
            assert!(LINKS.contains(&about.link), "our own");
            assert!(icmp.kind == 135 || about.target == ip.source);
        }
        kind => panic!("a message of kind {kind}"),
    }
}
