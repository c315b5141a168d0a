//! A forwarder that is given frames, right and wrong ones.
//!
//! Whatever comes in: no panic; what goes out is whole, comes from this station, fits through the interface and has a right checksum; no
//! more packets are kept than may wait for neighbours, and in the end none. A packet of UDP that went on is
//! what came in, but for what a router changes. Time goes on, routes and neighbours change, and memory fails at times.

mod frames;

use crate::input::Input;
use frames::{LINKS, frame};
use quietline_net::forward::checksum::{Sum, pseudo6};
use quietline_net::forward::header::{Ethernet, Ipv4, Ipv6, ether, protocol};
use quietline_net::forward::{ASKED, Count, Forwarder, Interface, NextHop, Prefix, Via, WAITING};
use quietline_net::packet::{Packets, Skb};
use quietline_platform::fault;
use std::collections::{HashMap, HashSet};
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

const MTU: [usize; 2] = [1500, 1280];
const OWN4: [Ipv4Addr; 2] = [Ipv4Addr::new(10, 0, 1, 1), Ipv4Addr::new(10, 0, 2, 1)];
const OWN6: [Ipv6Addr; 2] =
    [Ipv6Addr::new(0x2001, 0xdb8, 1, 0, 0, 0, 0, 1), Ipv6Addr::new(0x2001, 0xdb8, 2, 0, 0, 0, 0, 1)];

/// Does what the bytes say, until there are none left.
///
/// # Panics
/// When something went out that must not.
pub fn run(bytes: &[u8]) -> Tally {
    let mut input = Input::new(bytes);
    let packets = Packets::new().expect("there is memory");
    let interface = |i: usize| Interface::new(LINKS[i], MTU[i]).v4(OWN4[i], 24).v6(OWN6[i], 64);
    let of = Forwarder::new(&packets, vec![interface(0), interface(1)]).expect("there is memory");
    let far4 = Prefix::of(Ipv4Addr::new(192, 0, 2, 0), 24).expect("a prefix");
    let far6 = Prefix::of(Ipv6Addr::new(0x2001, 0xdb8, 0xff, 0, 0, 0, 0, 0), 48).expect("a prefix");
    let mut lane = of.lane().expect("there is memory");
    let (mut now, mut tally) = (Duration::ZERO, Tally::default());
    let mut came = Came::new();
    while !input.is_empty() {
        let from = input.below(2);
        let frames: Vec<Vec<u8>> = (0..1 + input.below(4)).map(|_| frame(&mut input, from)).collect();
        tally.operations += frames.len() as u64;
        for (packet, hops) in frames.iter().filter_map(|frame| same(frame.get(14..)?)) {
            came.entry(packet).or_default().insert(hops);
        }
        now += Duration::from_millis(input.pick(&[0, 1, 10, 300, 1500, 40_000]));
        match input.below(16) {
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
            // One that names no interface.
            4 => {
                let hop = NextHop { interface: 9, via: Via::Link };
                of.routes4().insert(far4, hop).expect("there is memory");
            }
            _ => {}
        }
        let mut batch: Vec<Option<Skb<'_>>> = frames
            .iter()
            .map(|bytes| {
                let mut skb = packets.alloc_skb(bytes.len()).expect("there is memory");
                skb.put_data(bytes).expect("there is room");
                Some(skb)
            })
            .collect();
        let mut sent = 0;
        if input.one_in(12) {
            fault::fail_nth(1 + input.below(4) as u64);
        }
        of.handle(&mut lane, from as u32, &mut batch, now, &mut |interface, batch| {
            for skb in batch {
                let skb = skb.take().expect("no place is empty");
                check(interface as usize, skb.data(), &came);
                sent += 1;
            }
        });
        fault::fail_nth(0);
        tally.sent += sent;
        assert!(batch.iter().all(Option::is_none), "all were taken");
        assert!(packets.head_stats().active <= 2 * ASKED * WAITING, "what waits is bounded");
    }
    let counts = of.counts();
    tally.forwarded = counts[Count::Forwarded4] + counts[Count::Forwarded6];
    assert_eq!(counts[Count::Received], tally.operations);
    drop((lane, of));
    assert_eq!(packets.head_stats().active, 0, "no packet is left");
    tally
}

/// Packets that came in, without what routers change, and with how many routers they might pass.
type Came = HashMap<Vec<u8>, HashSet<u8>>;

/// A packet without what routers change; and that.
fn same(packet: &[u8]) -> Option<(Vec<u8>, u8)> {
    let (len, at) = match packet.first()? >> 4 {
        4 => (usize::from(Ipv4::of(packet)?.0.total.get()), 8),
        6 => (Ipv6::LEN + usize::from(Ipv6::of(packet)?.0.payload.get()), 7),
        _ => return None,
    };
    let mut same = packet.get(..len)?.to_vec();
    let hops = std::mem::take(same.get_mut(at)?);
    if at == 8 {
        same.get_mut(10..12)?.fill(0);
    }
    Some((same, hops))
}

/// Whether a packet that goes out came in, and has passed one router more.
fn has_passed(came: &Came, packet: &[u8]) -> bool {
    let Some((same, hops)) = same(packet) else { return false };
    came.get(&same).is_some_and(|before| before.contains(&hops.wrapping_add(1)))
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
            // (What was cut is another packet.)
            if ip.protocol == protocol::UDP && ip.fragment.get() & !Ipv4::DONT == 0 {
                assert!(has_passed(came, rest), "it came in");
            }
        }
        ether::IPV6 => {
            let (ip, message) = Ipv6::of(rest).expect("a header");
            assert_eq!(usize::from(ip.payload.get()), message.len(), "all of it, and no more");
            assert!(rest.len() <= MTU[interface] && ip.hops > 0);
            let own = OWN6.contains(&ip.source()) || ip.source().is_unicast_link_local();
            let passed = has_passed(came, rest);
            if ip.next == protocol::ICMPV6 && own && !passed {
                let sum = pseudo6(&ip.source, &ip.destination, message.len() as u32, protocol::ICMPV6);
                assert!(sum.with(message).is_right(), "a right checksum");
            }
            assert!(passed || own && ip.next == protocol::ICMPV6, "it came in, or was made here");
        }
        ether::ARP => assert_eq!(rest.len(), 28),
        other => panic!("{other:#x} went out"),
    }
}
