//! Frames for the tests of forwarding, and what became of them.

use quietline_net::forward::checksum::{Sum, checksum, pseudo6};
use quietline_net::forward::header::{Ethernet, Icmp, Ipv4, Ipv6, Link, Udp, ether, protocol};
use quietline_net::forward::*;
use quietline_net::packet::{Packets, Skb};
use std::net::{Ipv4Addr, Ipv6Addr};
use std::time::Duration;
use zerocopy::IntoBytes;

pub(crate) const LEFT: Link = [2, 0, 0, 0, 0, 1];
pub(crate) const RIGHT: Link = [2, 0, 0, 0, 0, 2];
/// Stations on the two links.
pub(crate) const A: Link = [2, 0, 0, 0, 1, 1];
pub(crate) const B: Link = [2, 0, 0, 0, 2, 2];
pub(crate) const A4: Ipv4Addr = Ipv4Addr::new(10, 0, 1, 9);
pub(crate) const B4: Ipv4Addr = Ipv4Addr::new(10, 0, 2, 9);
pub(crate) const LEFT4: Ipv4Addr = Ipv4Addr::new(10, 0, 1, 1);
pub(crate) const RIGHT4: Ipv4Addr = Ipv4Addr::new(10, 0, 2, 1);
pub(crate) const FAR4: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 77);
pub(crate) const A6: Ipv6Addr = Ipv6Addr::new(0x2001, 0xdb8, 1, 0, 0, 0, 0, 9);
pub(crate) const B6: Ipv6Addr = Ipv6Addr::new(0x2001, 0xdb8, 2, 0, 0, 0, 0, 9);
pub(crate) const LEFT6: Ipv6Addr = Ipv6Addr::new(0x2001, 0xdb8, 1, 0, 0, 0, 0, 1);
pub(crate) const RIGHT6: Ipv6Addr = Ipv6Addr::new(0x2001, 0xdb8, 2, 0, 0, 0, 0, 1);
pub(crate) const FAR6: Ipv6Addr = Ipv6Addr::new(0x2001, 0xdb8, 0xff, 0, 0, 0, 0, 7);

/// Two links, 1,500 and 1,280 bytes wide, and a way to the far through B.
pub(crate) fn forwarder(packets: &Packets) -> Forwarder<'_> {
    let left = Interface::new(LEFT, 1500).v4(LEFT4, 24).v6(LEFT6, 64);
    let right = Interface::new(RIGHT, 1280).v4(RIGHT4, 24).v6(RIGHT6, 64);
    let forwarder = Forwarder::new(packets, vec![left, right]).unwrap();
    let (far4, far6) = (Prefix::of(FAR4, 24).unwrap(), Prefix::of(FAR6, 48).unwrap());
    forwarder.routes4().insert(far4, NextHop { interface: 1, via: Via::Gateway(B4) }).unwrap();
    forwarder.routes6().insert(far6, NextHop { interface: 1, via: Via::Gateway(B6) }).unwrap();
    forwarder
}

/// Whose neighbours are known.
pub(crate) fn with_neighbours(packets: &Packets) -> Forwarder<'_> {
    let forwarder = forwarder(packets);
    forwarder.set_neighbour4(0, A4, A).unwrap();
    forwarder.set_neighbour4(1, B4, B).unwrap();
    forwarder.set_neighbour6(0, A6, A).unwrap();
    forwarder.set_neighbour6(1, B6, B).unwrap();
    forwarder
}

pub(crate) fn frame(to: Link, from: Link, kind: u16, parts: &[&[u8]]) -> Vec<u8> {
    let ethernet = Ethernet { destination: to, source: from, protocol: kind.into() };
    [&[ethernet.as_bytes()], parts].concat().concat()
}

pub(crate) fn ip4(from: Ipv4Addr, to: Ipv4Addr, protocol: u8, ttl: u8, len: usize) -> Ipv4 {
    let mut ip = Ipv4 {
        version: 0x45,
        tos: 0,
        total: ((Ipv4::LEN + len) as u16).into(),
        id: 0x1234.into(),
        fragment: 0.into(),
        ttl,
        protocol,
        checksum: 0.into(),
        source: from.octets(),
        destination: to.octets(),
    };
    seal(&mut ip);
    ip
}

pub(crate) fn seal(ip: &mut Ipv4) {
    ip.checksum = 0.into();
    ip.checksum = u16::from_be_bytes(checksum(ip.as_bytes())).into();
}

pub(crate) fn udp4(from: Ipv4Addr, to: Ipv4Addr, ttl: u8, payload: &[u8]) -> Vec<u8> {
    let udp = udp(payload.len());
    let ip = ip4(from, to, protocol::UDP, ttl, Udp::LEN + payload.len());
    frame(LEFT, A, ether::IPV4, &[ip.as_bytes(), udp.as_bytes(), payload])
}

pub(crate) fn udp(len: usize) -> Udp {
    Udp {
        source: 7.into(),
        destination: 9.into(),
        len: ((Udp::LEN + len) as u16).into(),
        checksum: 0.into(),
    }
}

pub(crate) fn ip6(from: Ipv6Addr, to: Ipv6Addr, next: u8, hops: u8, len: usize) -> Ipv6 {
    Ipv6 {
        version: Ipv6::VERSION.into(),
        payload: (len as u16).into(),
        next,
        hops,
        source: from.octets(),
        destination: to.octets(),
    }
}

pub(crate) fn udp6(from: Ipv6Addr, to: Ipv6Addr, hops: u8, payload: &[u8]) -> Vec<u8> {
    let ip = ip6(from, to, protocol::UDP, hops, Udp::LEN + payload.len());
    frame(LEFT, A, ether::IPV6, &[ip.as_bytes(), udp(payload.len()).as_bytes(), payload])
}

pub(crate) fn icmp6(
    to_link: Link,
    from: Ipv6Addr,
    to: Ipv6Addr,
    hops: u8,
    kind: u8,
    rest: [u8; 4],
    body: &[u8],
) -> Vec<u8> {
    let ip = ip6(from, to, protocol::ICMPV6, hops, Icmp::LEN + body.len());
    let mut icmp = Icmp { kind, code: 0, checksum: [0; 2], rest };
    let sum =
        pseudo6(&ip.source, &ip.destination, (Icmp::LEN + body.len()) as u32, protocol::ICMPV6);
    icmp.checksum = sum.with(icmp.as_bytes()).with(body).checksum();
    frame(to_link, A, ether::IPV6, &[ip.as_bytes(), icmp.as_bytes(), body])
}

pub(crate) fn skb<'n>(packets: &'n Packets, bytes: &[u8]) -> Skb<'n> {
    let mut skb = packets.alloc_skb(bytes.len()).unwrap();
    skb.put_data(bytes).unwrap();
    skb
}

/// What goes out when frames come in.
pub(crate) fn handle<'n>(
    of: &Forwarder<'n>,
    packets: &'n Packets,
    input: u32,
    frames: &[Vec<u8>],
    now: u64,
) -> Vec<(u32, Vec<u8>)> {
    let mut batch: Vec<_> = frames.iter().map(|frame| Some(skb(packets, frame))).collect();
    pass(of, input, &mut batch, now)
}

pub(crate) fn pass<'n>(
    of: &Forwarder<'n>,
    input: u32,
    batch: &mut [Option<Skb<'n>>],
    now: u64,
) -> Vec<(u32, Vec<u8>)> {
    let mut lane = of.lane().unwrap();
    let mut sent = Vec::new();
    let mut out = |interface: u32, batch: &mut [Option<Skb<'n>>]| {
        assert!(!batch.is_empty() && batch.len() <= BATCH);
        for skb in batch {
            let skb = skb.take().expect("all places have one");
            sent.push((interface, skb.data().to_vec()));
        }
    };
    of.handle(&mut lane, input, batch, Duration::from_millis(now), &mut out);
    assert!(batch.iter().all(Option::is_none), "all are taken");
    sent
}

pub(crate) fn one(sent: Vec<(u32, Vec<u8>)>) -> (u32, Vec<u8>) {
    assert_eq!(sent.len(), 1, "{sent:x?}");
    sent.into_iter().next().unwrap()
}

pub(crate) fn parse4(frame: &[u8]) -> (Ethernet, Ipv4, &[u8]) {
    let (ethernet, rest) = Ethernet::of(frame).unwrap();
    assert_eq!(ethernet.protocol.get(), ether::IPV4);
    let (ip, rest) = Ipv4::of(rest).unwrap();
    assert!(Sum::default().with(ip.as_bytes()).is_right(), "checksum");
    assert_eq!(usize::from(ip.total.get()), Ipv4::LEN + rest.len());
    (*ethernet, *ip, rest)
}

pub(crate) fn parse6(frame: &[u8]) -> (Ethernet, Ipv6, &[u8]) {
    let (ethernet, rest) = Ethernet::of(frame).unwrap();
    assert_eq!(ethernet.protocol.get(), ether::IPV6);
    let (ip, rest) = Ipv6::of(rest).unwrap();
    assert_eq!(usize::from(ip.payload.get()), rest.len());
    (*ethernet, *ip, rest)
}

/// Kind, code, and what depends on them.
pub(crate) type Said = (u8, u8, [u8; 4]);

/// An error, and the quoted packet.
pub(crate) fn error4(frame: &[u8]) -> (Ethernet, Ipv4, Said, &[u8]) {
    let (ethernet, ip, message) = parse4(frame);
    assert_eq!(ip.protocol, protocol::ICMP);
    assert!(Sum::default().with(message).is_right(), "checksum");
    let (icmp, quoted) = Icmp::of(message).unwrap();
    (ethernet, ip, (icmp.kind, icmp.code, icmp.rest), quoted)
}

pub(crate) fn message6(frame: &[u8]) -> (Ethernet, Ipv6, Said, &[u8]) {
    let (ethernet, ip, message) = parse6(frame);
    assert_eq!(ip.next, protocol::ICMPV6);
    let sum = pseudo6(&ip.source, &ip.destination, message.len() as u32, protocol::ICMPV6);
    assert!(sum.with(message).is_right(), "checksum");
    let (icmp, body) = Icmp::of(message).unwrap();
    (ethernet, ip, (icmp.kind, icmp.code, icmp.rest), body)
}
