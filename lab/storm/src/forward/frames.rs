//! Frames, nearly right.

use crate::input::Input;
use quietline_net::forward::checksum::{Sum, checksum, pseudo6};
use quietline_net::forward::header::{
    Arp, Ethernet, Icmp, Ipv4, Ipv6, Link, Neighbour, Udp, ether, protocol,
};
use std::net::{Ipv4Addr, Ipv6Addr};
use zerocopy::IntoBytes;

/// The forwarder's stations, and others.
pub(super) const LINKS: [Link; 3] = [[2, 0, 0, 0, 0, 1], [2, 0, 0, 0, 0, 2], [2, 0, 0, 0, 0, 3]];
const STATIONS: [Link; 4] =
    [[2, 0, 0, 0, 1, 1], [2, 0, 0, 0, 2, 2], [0xff; 6], [0x33, 0x33, 0xff, 0, 0, 1]];

/// Addresses: on the links, the forwarder's, far ones, and odd ones.
const V4: [[u8; 4]; 20] = [
    [10, 0, 1, 9],
    [10, 0, 1, 9],
    [10, 0, 2, 9],
    [10, 0, 2, 9],
    [10, 0, 3, 9],
    [10, 0, 3, 9],
    [10, 0, 1, 1],
    [10, 0, 2, 1],
    [10, 0, 3, 1],
    [10, 0, 2, 77],
    [10, 0, 3, 77],
    [192, 0, 2, 5],
    [203, 0, 113, 1],
    [8, 8, 8, 8],
    [127, 0, 0, 1],
    [255, 255, 255, 255],
    [224, 0, 0, 1],
    [0, 0, 0, 0],
    [10, 0, 2, 255],
    [169, 254, 1, 1],
];

fn v6(input: &mut Input<'_>) -> Ipv6Addr {
    let on = |link, host| Ipv6Addr::new(0x2001, 0xdb8, link, 0, 0, 0, 0, host);
    match input.below(14) {
        0 | 1 => on(1, 9),
        2 | 3 => on(2, 9),
        4 => on(1, 1),
        5 => on(2, 1),
        6 => on(2, 77),
        7 => on(0xff, 5),
        8 => on(0xee, 5),
        9 => Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0xff, 0xfe00, 1),
        10 => Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, 9),
        11 => Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 1),
        12 => Ipv6Addr::new(0xff02, 0, 0, 0, 0, 1, 0xff00, 1),
        _ => input.pick(&[Ipv6Addr::UNSPECIFIED, Ipv6Addr::LOCALHOST]),
    }
}

fn payload(input: &mut Input<'_>) -> Vec<u8> {
    // Round the sizes that interfaces have room for, too.
    let len = match input.below(10) {
        0 => 0,
        1 => 1400 + input.below(200),
        2 => 940 + input.below(80),
        3 => 1200 + input.below(100),
        _ => input.below(64),
    };
    let first = input.byte();
    (0..len).map(|i| (first + i) as u8).collect()
}

/// A frame for an interface: one of those that are understood, and then, at times, something wrong with it.
pub(super) fn frame(input: &mut Input<'_>, interface: usize) -> Vec<u8> {
    let mut frame = right(input, interface);
    if input.one_in(3) {
        for _ in 0..1 + input.below(3) {
            let at = input.below(frame.len().min(96));
            frame[at] = input.byte() as u8;
        }
    }
    if input.one_in(8) {
        let len = input.below(frame.len() + 1);
        frame.truncate(len);
    } else if input.one_in(8) {
        frame.resize(frame.len() + input.below(40), 0);
    }
    frame
}

fn right(input: &mut Input<'_>, interface: usize) -> Vec<u8> {
    let to = if input.one_in(6) { input.pick(&STATIONS) } else { LINKS[interface] };
    let source = STATIONS[input.below(2)];
    let (kind, body) = match input.below(5) {
        0 | 1 => (ether::IPV4, ipv4(input)),
        2 | 3 => (ether::IPV6, ipv6(input)),
        _ => (ether::ARP, arp(input, source)),
    };
    let ethernet = Ethernet { destination: to, source, protocol: kind.into() };
    [ethernet.as_bytes(), &body].concat()
}

fn arp(input: &mut Input<'_>, source: Link) -> Vec<u8> {
    let arp = Arp {
        hardware: 1.into(),
        protocol: ether::IPV4.into(),
        link_len: 6,
        len: 4,
        operation: (1 + input.below(2) as u16).into(),
        sender_link: source,
        sender: input.pick(&V4),
        target_link: [0; 6],
        target: input.pick(&V4),
    };
    arp.as_bytes().to_vec()
}

fn udp(payload: &[u8]) -> Udp {
    Udp {
        source: 7.into(),
        destination: 9.into(),
        len: ((8 + payload.len()) as u16).into(),
        checksum: 0.into(),
    }
}

fn ipv4(input: &mut Input<'_>) -> Vec<u8> {
    let payload = payload(input);
    let (next, message) = match input.below(4) {
        0 | 1 => (protocol::UDP, [udp(&payload).as_bytes(), &payload].concat()),
        2 => {
            let kind = input.pick(&[8, 8, 8, 0, 3, 11]);
            let mut icmp = Icmp { kind, code: 0, checksum: [0; 2], rest: [0, 1, 0, 2] };
            icmp.checksum = Sum::default().with(icmp.as_bytes()).with(&payload).checksum();
            (protocol::ICMP, [icmp.as_bytes(), &payload].concat())
        }
        _ => (input.byte() as u8, payload),
    };
    let options: &[u8] = input.pick(&[
        &[][..],
        &[][..],
        &[][..],
        &[1, 1, 1, 0],
        &[7, 3, 4, 0],
        &[131, 3, 4, 0],
        &[9, 9, 0, 0],
        // Ways to be recorded: with room, with room behind what others have written, with none, with too little.
        &[7, 7, 4, 0, 0, 0, 0, 0],
        &[1, 7, 11, 8, 10, 9, 9, 9, 0, 0, 0, 0],
        &[1, 7, 7, 8, 10, 9, 9, 9],
        &[7, 7, 5, 0, 0, 0, 0, 0],
    ]);
    // The last ones end behind the longest packet, or are near it.
    let (last, more) = (Ipv4::OFFSET, Ipv4::MORE);
    let fragment = input.pick(&[
        0,
        0,
        0,
        Ipv4::DONT,
        more,
        5,
        more | 185,
        more | 185,
        8000,
        8010,
        last,
        last | more,
    ]);
    let mut ip = Ipv4 {
        version: 0x45 + (options.len() / 4) as u8,
        tos: 0,
        total: ((20 + options.len() + message.len()) as u16).into(),
        id: (input.byte() as u16).into(),
        fragment: fragment.into(),
        ttl: input.pick(&[64, 64, 255, 1, 0, 2]),
        protocol: next,
        checksum: 0.into(),
        source: Ipv4Addr::from(input.pick(&V4)).octets(),
        destination: input.pick(&V4),
    };
    ip.checksum = u16::from_be_bytes(checksum(&[ip.as_bytes(), options].concat())).into();
    [ip.as_bytes(), options, &message].concat()
}

fn ipv6(input: &mut Input<'_>) -> Vec<u8> {
    let payload = payload(input);
    let (source, destination) = (v6(input), v6(input));
    let mut hops = input.pick(&[64, 64, 255, 1, 0, 2]);
    let icmp = |kind, body: Vec<u8>| {
        let mut icmp = Icmp { kind, code: 0, checksum: [0; 2], rest: [0x60, 1, 0, 2] };
        let len = (Icmp::LEN + body.len()) as u32;
        let sum = pseudo6(&source.octets(), &destination.octets(), len, protocol::ICMPV6);
        icmp.checksum = sum.with(icmp.as_bytes()).with(&body).checksum();
        [icmp.as_bytes(), &body].concat()
    };
    let (next, message) = match input.below(6) {
        0 => (protocol::UDP, [udp(&payload).as_bytes(), &payload].concat()),
        1 => (protocol::ICMPV6, icmp(input.pick(&[128, 128, 129, 1, 3]), payload)),
        2 | 3 => {
            hops = 255;
            let kind = 135 + input.below(2) as u8;
            let link = STATIONS[input.below(3)];
            let about = Neighbour {
                target: v6(input).octets(),
                option: input.pick(&[1, 2, 3]),
                option_len: input.pick(&[1, 1, 1, 0, 2]),
                link,
            };
            // With the option, or without.
            let len = input.pick(&[Neighbour::LEN, Neighbour::LEN, Neighbour::LEN, 16]);
            (protocol::ICMPV6, icmp(kind, about.as_bytes()[..len].to_vec()))
        }
        4 => {
            let which = input.pick(&[0, 43, 44, 60]);
            let head = [
                input.pick(&[17, 58, 0, 44]),
                input.below(3) as u8,
                0,
                input.byte() as u8,
                0,
                0,
                0,
                0,
            ];
            (which, [&head[..], &payload].concat())
        }
        _ => (input.byte() as u8, payload),
    };
    let ip = Ipv6 {
        version: Ipv6::VERSION.into(),
        payload: (message.len() as u16).into(),
        next,
        hops,
        source: source.octets(),
        destination: destination.octets(),
    };
    [ip.as_bytes(), &message].concat()
}
