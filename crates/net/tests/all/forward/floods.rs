//! The forwarding path beside floods: sweeps over unused addresses, spoofed senders, expiring
//! packets.

use super::frames::*;
use super::neighbours::{arp, neighbour};
use quietline_net::forward::header::{Ethernet, Link, ether};
use quietline_net::forward::*;
use quietline_net::packet::{DropReason, Packets};
use std::net::{Ipv4Addr, Ipv6Addr};

/// A network of 65,536 addresses on the right, of 256 on the left.
const WIDE: u32 = 0x0a02_0000;

/// Addresses of the wide network that nobody has: none is the router's or a host's.
fn unused(n: u32) -> Ipv4Addr {
    Ipv4Addr::from_bits(WIDE + 0x200 + n % 0xfd00)
}

/// Hosts of the wide network.
fn host(n: u32) -> (Link, Ipv4Addr) {
    ([2, 4, 0, 0, 0, n as u8], Ipv4Addr::from_bits(WIDE + 0x100 + n))
}

fn wide(packets: &Packets) -> Forwarder<'_> {
    let left = Interface::new(LEFT, 1500).v4(LEFT4, 24).v6(LEFT6, 64);
    let right = Interface::new(RIGHT, 1280).v4(Ipv4Addr::from_bits(WIDE + 1), 16).v6(RIGHT6, 64);
    Forwarder::new(packets, vec![left, right]).unwrap()
}

fn answer(of: (Link, Ipv4Addr)) -> Vec<u8> {
    arp(2, of, (RIGHT, Ipv4Addr::from_bits(WIDE + 1)))
}

/// Payloads of the packets, other than questions for neighbours, that went out to a link address.
fn to(sent: &[(u32, Vec<u8>)], link: Link) -> Vec<&[u8]> {
    let is_ip = |bytes: &[u8]| Ethernet::of(bytes).unwrap().0.protocol.get() != ether::ARP;
    let sent = sent.iter().filter(|(_, bytes)| bytes[..6] == link && is_ip(bytes));
    sent.map(|(_, bytes)| &bytes[42..]).collect()
}

/// When [`fill`] has ended, in milliseconds.
const FILLED: u64 = 4000;

/// Resolves addresses of the wide network, one after another, slowly enough for the limit of
/// questions. `B` answers for all.
fn fill<'n>(of: &Forwarder<'n>, packets: &'n Packets, addresses: u32) {
    for n in 0..addresses {
        let at = u64::from(n) / 5;
        handle(of, packets, 0, &[udp4(A4, unused(n), 64, b"")], at);
        let sent = handle(of, packets, 1, &[answer((B, unused(n)))], at);
        assert_eq!(to(&sent, B).len(), 1, "{n}");
    }
}

/// Beside a sweep over a /16, new hosts are found and known ones are reached: each of their packets
/// goes out. Each host answers after 900 further packets of the sweep.
#[test]
fn a_sweep_beside_hosts() {
    let packets = Packets::new().unwrap();
    let of = wide(&packets);
    of.set_neighbour4(0, A4, A).unwrap();
    let mut next = 0;
    let mut sweep = |n: u32, at: u64| {
        for first in (0..n).step_by(50) {
            let frames: Vec<_> = (first..n.min(first + 50)).map(|_| (next, next += 1).0).collect();
            let frames: Vec<_> = frames.into_iter().map(|n| udp4(A4, unused(n), 64, b"")).collect();
            handle(&of, &packets, 0, &frames, at);
        }
    };
    for n in 0..64u32 {
        // 0.1 s for 1,100 packets.
        let at = u64::from(n) * 100;
        let (link, address) = host(n);
        sweep(100, at);
        let asked = handle(&of, &packets, 0, &[udp4(A4, address, 64, &[n as u8])], at);
        assert_eq!(to(&asked, link).len(), 0, "{n} is not known");
        sweep(900, at);
        let sent = handle(&of, &packets, 1, &[answer((link, address))], at);
        assert_eq!(to(&sent, link), [[n as u8]], "{n} has answered");
        sweep(100, at);
        for known in 0..=n {
            let (link, address) = host(known);
            let sent = handle(&of, &packets, 0, &[udp4(A4, address, 64, b"again")], at);
            assert_eq!(to(&sent, link), [b"again"], "{known} is known");
        }
    }
    // The hosts become stale, are asked and answer, beside the sweep.
    let at = (64 + u64::from(REACHABLE) * 10) * 100;
    for n in 0..64 {
        let (link, address) = host(n);
        for again in 0..2 {
            sweep(500, at);
            let sent = handle(&of, &packets, 0, &[udp4(A4, address, 64, b"stale")], at + again);
            assert_eq!(to(&sent, link), [b"stale"], "{n} is stale");
        }
        handle(&of, &packets, 1, &[answer((link, address))], at + 1);
    }
    let counts = of.counts();
    assert_eq!(counts[DropReason::NeighbourFailed] + of.waiting() as u64, u64::from(next));
    drop(of);
    assert_eq!(packets.head_stats().active, 0);
}

/// A sweep to one link takes no room from packets to another link: there a neighbour may take its
/// time to answer.
#[test]
fn a_sweep_of_another_link() {
    let packets = Packets::new().unwrap();
    let of = wide(&packets);
    let back = |source: Ipv4Addr| {
        let mut back = udp4(source, A4, 64, b"back");
        back[..6].copy_from_slice(&RIGHT);
        back
    };
    let sweep = |range: std::ops::Range<u32>| {
        for first in range.step_by(64) {
            let frames: Vec<_> =
                (first..first + 64).map(|n| udp4(A4, unused(n), 64, b"")).collect();
            handle(&of, &packets, 0, &frames, u64::from(first) / 100);
        }
    };
    sweep(0..0x8000);
    let asked = handle(&of, &packets, 1, &[back(host(1).1)], 330);
    assert_eq!(asked.len(), 1, "A is asked for");
    sweep(0x8000..0xfd00);
    let sent = handle(&of, &packets, 0, &[arp(2, (A, A4), (LEFT, LEFT4))], 900);
    assert_eq!(to(&sent, A), [b"back"]);
}

/// Stations that ask for an address of the router's under ever new addresses of theirs displace
/// no neighbour that has answered, and leave room for new ones, on their link and on the other.
#[test]
fn spoofed_senders() {
    let packets = Packets::new().unwrap();
    let of = wide(&packets);
    let own = Ipv4Addr::from_bits(WIDE + 1);
    of.set_neighbour4(0, A4, A).unwrap();
    of.set_neighbour6(0, A6, A).unwrap();
    let v6 = |n: u32| -> Ipv6Addr { (B6.to_bits() + 0x1_0000 + u128::from(n)).into() };
    let advertised = |n: u32| {
        let about = neighbour(2, v6(n), host(n).0);
        let mut frame = icmp6(RIGHT, v6(n), RIGHT6, 255, 136, [0x60, 0, 0, 0], &about);
        frame[6..12].copy_from_slice(&host(n).0);
        frame
    };
    let resolve = |n: u32, at: u64, payload: &[u8]| {
        let (link, address) = host(n);
        let frames = [udp4(A4, address, 64, payload), udp6(A6, v6(n), 64, payload)];
        handle(&of, &packets, 0, &frames, at);
        let sent = handle(&of, &packets, 1, &[answer(host(n)), advertised(n)], at);
        assert_eq!(to(&sent, link).len(), 2, "{n} is resolved at {at}");
    };
    let is_known = |n: u32, at: u64| {
        let frames = [udp4(A4, host(n).1, 64, b""), udp6(A6, v6(n), 64, b"")];
        to(&handle(&of, &packets, 0, &frames, at), host(n).0).len() == 2
    };
    resolve(0, 0, b"first");
    for n in 0..3 * NEIGHBOURS {
        let spoofed = unused(n);
        let from: Ipv6Addr = (RIGHT6.to_bits() + (1 << 40) + u128::from(n)).into();
        let question = icmp6(RIGHT, from, RIGHT6, 255, 135, [0; 4], &neighbour(1, RIGHT6, B));
        handle(&of, &packets, 1, &[arp(1, (B, spoofed), ([0; 6], own)), question], 1);
    }
    let bound = NEIGHBOURS as usize;
    assert!(
        of.neighbours().iter().all(|n| (bound..=bound + 1).contains(n)),
        "{:?}",
        of.neighbours()
    );
    assert!(is_known(0, 2), "it has answered");
    for n in 1..100 {
        resolve(n, 2, b"new");
        assert!(is_known(n, 2), "{n} is entered");
    }
    assert!((0..100).all(|n| is_known(n, 3)));
    // The other link has its own room.
    handle(&of, &packets, 0, &[arp(1, (B, Ipv4Addr::new(10, 0, 1, 77)), ([0; 6], LEFT4))], 4);
    let mut back = udp4(host(1).1, Ipv4Addr::new(10, 0, 1, 77), 64, b"back");
    back[..6].copy_from_slice(&RIGHT);
    assert_eq!(to(&handle(&of, &packets, 1, &[back], 4), B), [b"back"]);
    drop(of);
    assert_eq!(packets.head_stats().active, 0);
}

/// Stations that answer for a whole network take no more entries than a link may have, and new
/// ones are resolved after them.
#[test]
fn answers_for_all_addresses() {
    let packets = Packets::new().unwrap();
    let of = wide(&packets);
    of.set_neighbour4(0, A4, A).unwrap();
    of.set_neighbour4(1, Ipv4Addr::from_bits(WIDE + 9), B).unwrap();
    fill(&of, &packets, 2 * NEIGHBOURS);
    assert_eq!(of.neighbours()[0], NEIGHBOURS as usize + 1);
    let by_hand = udp4(A4, Ipv4Addr::from_bits(WIDE + 9), 64, b"");
    let sent = handle(&of, &packets, 0, &[by_hand], FILLED);
    assert_eq!(to(&sent, B).len(), 1, "entered by hand");
}

/// On a link that is full of stations that have answered, stations that only ask displace none of
/// them. A question under the address of a station that has answered does not make it a stranger.
#[test]
fn questions_beside_answers() {
    let packets = Packets::new().unwrap();
    let of = wide(&packets);
    let own = Ipv4Addr::from_bits(WIDE + 1);
    of.set_neighbour4(0, A4, A).unwrap();
    fill(&of, &packets, NEIGHBOURS);
    let links = |n: u32| {
        let sent = handle(&of, &packets, 0, &[udp4(A4, unused(n), 64, b"")], FILLED);
        [B, host(0).0].map(|link| to(&sent, link).len())
    };
    for n in 0..100 {
        let stranger = (host(1).0, unused(NEIGHBOURS + n));
        handle(&of, &packets, 1, &[arp(1, stranger, ([0; 6], own))], FILLED);
    }
    for n in 0..100 {
        assert_eq!(links(n), [1, 0], "{n} has answered");
    }
    let moved = (host(0).0, unused(50));
    handle(&of, &packets, 1, &[arp(1, moved, ([0; 6], own))], FILLED);
    handle(&of, &packets, 0, &[udp4(A4, host(2).1, 64, b"")], FILLED);
    let sent = handle(&of, &packets, 1, &[answer(host(2))], FILLED);
    assert_eq!(to(&sent, host(2).0).len(), 1, "a station that answers is entered");
    assert_eq!(links(0), [0, 0], "it is the one heard of least recently");
    assert_eq!(links(50), [0, 1], "it has answered, and has moved");
}

/// While a reader stays in its section, entries that strangers have displaced stay too. Those do
/// not take the entries of stations that answer.
#[test]
fn strangers_beside_a_reader() {
    quietline_testing::isolated!();
    let packets = Packets::new().unwrap();
    let of = wide(&packets);
    let own = Ipv4Addr::from_bits(WIDE + 1);
    of.set_neighbour4(0, A4, A).unwrap();
    let section = quietline_sync::rcu::global().unwrap().read();
    for n in 0..3 * NEIGHBOURS {
        handle(&of, &packets, 1, &[arp(1, (B, unused(n)), ([0; 6], own))], 1);
    }
    let reached = (1..=100).filter(|&n| {
        let (link, address) = host(n);
        handle(&of, &packets, 0, &[udp4(A4, address, 64, b"")], 1);
        handle(&of, &packets, 1, &[answer((link, address))], 1);
        to(&handle(&of, &packets, 0, &[udp4(A4, address, 64, b"")], 1), link).len() == 1
    });
    assert_eq!(reached.count(), 100);
    drop(section);
}

/// A sweep faster than the limit of questions: what exceeds the limit is dropped, and displaces no
/// neighbour that is being asked for.
#[test]
fn a_sweep_above_the_limit() {
    let packets = Packets::new().unwrap();
    let of = wide(&packets);
    of.set_neighbour4(0, A4, A).unwrap();
    of.set_neighbour6(0, A6, A).unwrap();
    let v6 = |n: u32| -> Ipv6Addr { (B6.to_bits() + 0x1_0000 + u128::from(n)).into() };
    let sweep = |range: std::ops::Range<u32>, at: u64| -> [usize; 2] {
        let mut asked = [0; 2];
        for first in range.step_by(50) {
            let numbers = first..first + 50;
            let frames: Vec<_> = numbers.clone().map(|n| udp4(A4, unused(n), 64, b"")).collect();
            asked[0] += handle(&of, &packets, 0, &frames, at).len();
            let frames: Vec<_> = numbers.map(|n| udp6(A6, v6(n), 64, b"")).collect();
            asked[1] += handle(&of, &packets, 0, &frames, at).len();
        }
        asked
    };
    assert_eq!(sweep(0..20_000, 1), [QUESTION_BURST as usize; 2]);
    assert_eq!(handle(&of, &packets, 0, &[udp4(A4, host(1).1, 64, b"first")], 1), []);
    handle(&of, &packets, 0, &[udp4(A4, host(2).1, 64, b"second")], 51);
    let allowed = QUESTIONS as usize / 20;
    assert_eq!(sweep(20_000..30_000, 51), [allowed - 1, allowed], "in 50 ms");
    let sent = handle(&of, &packets, 1, &[answer(host(2))], 51);
    assert_eq!(to(&sent, host(2).0), [b"second"], "it is still being asked for");
    let failed = of.counts()[DropReason::NeighbourFailed];
    assert_eq!(failed + of.waiting() as u64, 2 * 30_000 + 1);
    drop(of);
    assert_eq!(packets.head_stats().active, 0);
}

/// Packets that are too big are told of, each, beside a flood of expiring packets, of IPv4 and
/// IPv6.
#[test]
fn path_mtu_discovery_beside_expiring_packets() {
    quietline_testing::isolated!();
    let packets = Packets::new().unwrap();
    let of = with_neighbours(&packets);
    let big4 = {
        let mut big = udp4(A4, B4, 64, &[0; 1400]);
        // "Do not fragment", and the checksum that follows.
        big[20] |= 0x40;
        let sum = u16::from_be_bytes([big[24], big[25]]) - 0x4000;
        big[24..26].copy_from_slice(&sum.to_be_bytes());
        big
    };
    let big6 = udp6(A6, B6, 64, &[0; 1400]);
    for round in 0..200 {
        let mut frames = vec![udp4(A4, B4, 1, b""); 60];
        frames.push(udp6(A6, B6, 1, b""));
        frames.extend([big4.clone(), big6.clone()]);
        let sent = handle(&of, &packets, 0, &frames, 1000 + round);
        let [.., (0, told4), (0, told6)] = &sent[..] else { panic!("{round}: {sent:x?}") };
        assert_eq!(error4(told4).2, (3, 4, [0, 0, 5, 0]), "{round}: 1,280 bytes fit");
        assert_eq!(message6(told6).2, (2, 0, [0, 0, 5, 0]), "{round}");
    }
    assert_eq!(of.counts()[DropReason::PacketTooBig], 400);
    assert!(of.counts()[Count::Limited] > 1000, "the others are limited");
    assert_eq!(packets.head_stats().active, 0);
}
