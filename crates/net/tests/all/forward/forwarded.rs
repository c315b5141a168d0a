//! The forwarding path, packet by packet: forwarded packets and silent drops.

use super::frames::*;
use quietline_net::forward::checksum::{checksum, update};
use quietline_net::forward::header::{Ipv4, Udp, ether, protocol};
use quietline_net::forward::*;
use quietline_net::packet::{DropReason, Packets};
use std::net::{Ipv4Addr, Ipv6Addr};
use std::time::Duration;
use zerocopy::IntoBytes;

#[test]
fn checksums() {
    // RFC 1071, section 3.
    let bytes = [0x00, 0x01, 0xf2, 0x03, 0xf4, 0xf5, 0xf6, 0xf7];
    assert_eq!(checksum(&bytes), (!0xddf2u16).to_be_bytes());
    // RFC 1624, section 4.
    assert_eq!(update(0xdd2f, 0x5555, 0x3285), 0x0000);
    // One at a time, as it is written in the book.
    let mut state = 1u64;
    for len in 0..300 {
        let bytes: Vec<u8> = (0..len)
            .map(|_| {
                state = state.wrapping_mul(6364136223846793005).wrapping_add(1);
                (state >> 56) as u8
            })
            .collect();
        let mut sum = bytes.chunks(2).fold(0u32, |sum, pair| {
            sum + u32::from(pair[0]) * 256 + u32::from(*pair.get(1).unwrap_or(&0))
        });
        while sum >> 16 != 0 {
            sum = (sum & 0xffff) + (sum >> 16);
        }
        assert_eq!(checksum(&bytes), (!(sum as u16)).to_be_bytes(), "{len}");
    }
}

#[test]
fn ipv4_goes_on() {
    let packets = Packets::new().unwrap();
    let of = with_neighbours(&packets);
    for to in [B4, FAR4] {
        let (interface, bytes) = one(handle(&of, &packets, 0, &[udp4(A4, to, 64, b"payload")], 0));
        let (ethernet, ip, rest) = parse4(&bytes);
        assert_eq!(interface, 1);
        assert_eq!((ethernet.destination, ethernet.source), (B, RIGHT));
        assert_eq!((ip.ttl, ip.source(), ip.destination(), ip.id.get()), (63, A4, to, 0x1234));
        assert_eq!(&rest[Udp::LEN..], b"payload");
    }
    // What an Ethernet adds to small packets does not go on.
    let mut padded = udp4(A4, B4, 64, b"");
    padded.resize(60, 0xee);
    assert_eq!(one(handle(&of, &packets, 0, &[padded], 0)).1.len(), 42);
    let counts = of.counts();
    assert_eq!((counts[Count::Received], counts[Count::Forwarded4], counts.dropped()), (3, 3, 0));
    assert_eq!(packets.head_stats().active, 0);
}

/// Any header: the checksum that goes out is right, and is the one that follows.
#[test]
fn all_checksums_and_times_to_live() {
    let packets = Packets::new().unwrap();
    let of = with_neighbours(&packets);
    for ttl in 2..=255u8 {
        let frames: Vec<_> = (0..300u16)
            .map(|i| {
                let mut ip = ip4(A4, B4, (i % 251) as u8, ttl, 0);
                ip.id = (i.wrapping_mul(0x4e35)).into();
                seal(&mut ip);
                frame(LEFT, A, ether::IPV4, &[ip.as_bytes()])
            })
            .collect();
        let sent = handle(&of, &packets, 0, &frames, 0);
        assert_eq!(sent.len(), 300);
        for (_, bytes) in sent {
            assert_eq!(parse4(&bytes).1.ttl, ttl - 1);
        }
    }
}

#[test]
fn ipv6_goes_on() {
    let packets = Packets::new().unwrap();
    let of = with_neighbours(&packets);
    for to in [B6, FAR6] {
        let (interface, bytes) = one(handle(&of, &packets, 0, &[udp6(A6, to, 2, b"payload")], 0));
        let (ethernet, ip, rest) = parse6(&bytes);
        assert_eq!((interface, ethernet.destination, ethernet.source), (1, B, RIGHT));
        assert_eq!((ip.hops, ip.source(), ip.destination()), (1, A6, to));
        assert_eq!(&rest[Udp::LEN..], b"payload");
    }
    assert_eq!(of.counts()[Count::Forwarded6], 2);
}

/// Packets of all kinds in one batch: each goes where it goes alone, and those of one interface in
/// their order; also those of which others have a part, or that are in pieces, which are not
/// written where they lie.
#[test]
fn all_kinds_in_one_batch() {
    let packets = Packets::new().unwrap();
    let link_local = Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, 9);
    // Errors go to the packet's source address.
    let fresh = || {
        let of = with_neighbours(&packets);
        of.set_neighbour6(0, link_local, A).unwrap();
        of
    };
    let (of, alone) = (fresh(), fresh());
    let numbered = |from, to, ttl, number: u32| udp4(from, to, ttl, &number.to_be_bytes());
    let numbered6 = |from, to, hops, number: u32| udp6(from, to, hops, &number.to_be_bytes());
    let mut frames = Vec::new();
    for number in 0..1200u32 {
        // Runs of usual ones, longer and longer, and between them one of another kind.
        let (run, kind) = (number / 7, number % 19 * u32::from(number % (2 + number / 16) == 0));
        frames.push(match kind {
            1 => numbered(A4, Ipv4Addr::new(203, 0, 113, 1), 64, number),
            2 => numbered6(A6, B6, 64, number),
            3 => numbered(A4, B4, 1, number),
            4 => numbered(A4, Ipv4Addr::new(169, 254, 0, 1), 64, number),
            5 => numbered(Ipv4Addr::LOCALHOST, B4, 64, number),
            6 => numbered(A4, B4, 64, number)[..40].to_vec(),
            7 => numbered6(A6, B6, 1, number),
            8 => numbered6(link_local, B6, 64, number),
            9 => numbered6(A6, "ff0e::1".parse().unwrap(), 64, number),
            10 => numbered6(A6, FAR6, 64, number)[..60].to_vec(),
            11 => numbered6(A6, "2001:db8:77::1".parse().unwrap(), 64, number),
            12 => numbered6("::ffff:10.0.1.9".parse().unwrap(), B6, 64, number),
            13 => udp6(A6, FAR6, 64, &[number as u8; 1300]),
            14 => udp4(A4, FAR4, 64, &[number as u8; 1300]),
            // Packets with extension headers are forwarded like packets without.
            15 => {
                let options = [17, 0, 1, 4, 0, 0, 0, number as u8];
                frame(LEFT, A, ether::IPV6, &[ip6(A6, FAR6, 0, 64, 8).as_bytes(), &options])
            }
            // Padded, as an Ethernet does with short ones.
            16 => [numbered(A4, FAR4, 64, number), vec![0xee; 14]].concat(),
            17 => [numbered6(A6, FAR6, 64, number), vec![0xee; 14]].concat(),
            // Of a network that only begins like those that stay here.
            18 => numbered6("fe00::1".parse().unwrap(), B6, 64, number),
            _ if run % 5 == 4 => numbered(B4, A4, 64, number),
            _ if run % 5 == 3 => numbered6(B6, A6, 64, number),
            _ if run % 5 == 2 => numbered6(A6, FAR6, 64, number),
            _ if run % 5 == 1 && number % 2 == 1 => numbered6(A6, B6, 64, number),
            _ => numbered(A4, [FAR4, B4][number as usize / 3 % 2], 64, number),
        });
    }
    // To be sent on one by one, as a batch, and as a batch of which others have a part.
    let singly: Vec<_> = frames
        .iter()
        .flat_map(|f| handle(&alone, &packets, 0, core::slice::from_ref(f), 0))
        .collect();
    let by_interface = |sent: &[(u32, Vec<u8>)], which| -> Vec<Vec<u8>> {
        sent.iter()
            .filter(|(interface, _)| *interface == which)
            .map(|(_, bytes)| bytes.clone())
            .collect()
    };
    for way in 0..3 {
        let of = if way == 0 { &of } else { &fresh() };
        let mut batch: Vec<_> = frames.iter().map(|frame| Some(skb(&packets, frame))).collect();
        let mut others = Vec::new();
        if way > 0 {
            for (i, skb) in batch.iter().flatten().enumerate() {
                match (way, i % 3) {
                    (1, 0) => others.push(skb.clone_skb().unwrap()),
                    (1, 1) | (2, 2) => others.push(skb.get()),
                    _ => {}
                }
            }
        }
        batch.insert(100, None);
        let sent = pass(of, 0, &mut batch, 0);
        assert_eq!(sent.len(), singly.len(), "{way}");
        for interface in [0, 1] {
            let (sent, singly) = (by_interface(&sent, interface), by_interface(&singly, interface));
            assert!(!sent.is_empty() && sent == singly, "{way} {interface}");
        }
        assert_eq!(of.counts(), alone.counts(), "{way}");
        drop(others);
        assert_eq!(packets.head_stats().active, 0);
    }
}

/// What a device does not take of a long run is dropped, as of a short one.
#[test]
fn a_run_that_is_not_taken() {
    let packets = Packets::new().unwrap();
    for n in [1, 31, 32, 64, 65, 200] {
        let of = with_neighbours(&packets);
        let mut lane = of.lane().unwrap();
        let mut batch: Vec<_> =
            (0..n).map(|_| Some(skb(&packets, &udp4(A4, FAR4, 64, b"")))).collect();
        let mut taken = 0;
        let mut out = |_, batch: &mut [Option<_>]| {
            assert!(batch.len() <= BATCH);
            for place in batch.iter_mut().step_by(2) {
                taken += u64::from(place.take().is_some());
            }
        };
        of.handle(&mut lane, 0, &mut batch, Duration::ZERO, &mut out);
        let counts = of.counts();
        assert!(batch.iter().all(Option::is_none));
        assert_eq!((counts[Count::Forwarded4], counts[Count::NotSent]), (taken, n - taken));
        assert_eq!((counts[DropReason::QueueFull], packets.head_stats().active), (n - taken, 0));
    }
}

/// Malformed packets are dropped without an ICMP error.
#[test]
fn dropped_in_silence() {
    let packets = Packets::new().unwrap();
    let of = with_neighbours(&packets);
    let good = udp4(A4, B4, 64, b"payload");
    let with = |change: &dyn Fn(&mut Ipv4)| {
        let mut ip = ip4(A4, B4, protocol::UDP, 64, 0);
        change(&mut ip);
        seal(&mut ip);
        frame(LEFT, A, ether::IPV4, &[ip.as_bytes()])
    };
    let mut wrong_sum = good.clone();
    wrong_sum[24] ^= 1;
    let mut to_all = good.clone();
    to_all[..6].copy_from_slice(&[0xff; 6]);
    let options = |options: [u8; 4]| {
        let mut ip = ip4(A4, B4, 17, 64, 4);
        ip.version = 0x46;
        ip.checksum = 0.into();
        let sum = checksum(&[ip.as_bytes(), &options].concat());
        ip.checksum = u16::from_be_bytes(sum).into();
        frame(LEFT, A, ether::IPV4, &[ip.as_bytes(), &options])
    };
    let cases: Vec<(Vec<u8>, DropReason)> = vec![
        (good[..13].to_vec(), DropReason::PacketTooSmall),
        (good[..33].to_vec(), DropReason::PacketTooSmall),
        (good[..good.len() - 1].to_vec(), DropReason::PacketTooSmall),
        (wrong_sum, DropReason::BadChecksum),
        (with(&|ip| ip.version = 0x55), DropReason::BadHeader),
        (with(&|ip| ip.version = 0x44), DropReason::BadHeader),
        (with(&|ip| ip.version = 0x4f), DropReason::BadHeader),
        (with(&|ip| ip.total = 19.into()), DropReason::BadHeader),
        (options([131, 3, 4, 0]), DropReason::BadHeader),
        (options([1, 137, 3, 4]), DropReason::BadHeader),
        (udp4(Ipv4Addr::LOCALHOST, B4, 64, b""), DropReason::Martian),
        (udp4(Ipv4Addr::new(224, 0, 0, 1), B4, 64, b""), DropReason::Martian),
        (udp4(Ipv4Addr::BROADCAST, B4, 64, b""), DropReason::Martian),
        (udp4(Ipv4Addr::UNSPECIFIED, B4, 64, b""), DropReason::Martian),
        (udp4(A4, Ipv4Addr::new(127, 1, 1, 1), 64, b""), DropReason::Martian),
        (udp4(A4, Ipv4Addr::new(240, 0, 0, 1), 64, b""), DropReason::Martian),
        (udp4(A4, Ipv4Addr::UNSPECIFIED, 64, b""), DropReason::Martian),
        (udp4(Ipv4Addr::new(169, 254, 1, 1), B4, 64, b""), DropReason::Martian),
        (to_all, DropReason::Martian),
        (udp4(A4, Ipv4Addr::BROADCAST, 64, b""), DropReason::UnhandledProtocol),
        (udp4(A4, Ipv4Addr::new(224, 0, 0, 251), 64, b""), DropReason::UnhandledProtocol),
        (udp4(A4, Ipv4Addr::new(10, 0, 2, 255), 64, b""), DropReason::UnhandledProtocol),
        (udp4(A4, Ipv4Addr::new(10, 0, 2, 0), 64, b""), DropReason::UnhandledProtocol),
        (frame(LEFT, A, 0x8100, &[&[0; 50]]), DropReason::UnhandledProtocol),
        (frame(LEFT, A, ether::IPV6, &[&[0x60; 39]]), DropReason::PacketTooSmall),
        (frame(LEFT, A, ether::IPV6, &[&[0x45; 40]]), DropReason::BadHeader),
        (udp6(A6, B6, 64, b"x")[..62].to_vec(), DropReason::PacketTooSmall),
        (udp6(Ipv6Addr::LOCALHOST, B6, 64, b""), DropReason::Martian),
        (udp6(Ipv6Addr::UNSPECIFIED, B6, 64, b""), DropReason::Martian),
        (udp6("ff02::1".parse().unwrap(), B6, 64, b""), DropReason::Martian),
        (udp6("::ffff:10.0.1.9".parse().unwrap(), B6, 64, b""), DropReason::Martian),
        (udp6(A6, Ipv6Addr::LOCALHOST, 64, b""), DropReason::Martian),
        (udp6(A6, Ipv6Addr::UNSPECIFIED, 64, b""), DropReason::Martian),
        (udp6(A6, "fe80::77".parse().unwrap(), 64, b""), DropReason::Martian),
        (udp6(A6, "ff02::fb".parse().unwrap(), 64, b""), DropReason::UnhandledProtocol),
        (frame(LEFT, A, ether::ARP, &[&[0; 27]]), DropReason::PacketTooSmall),
        (frame(LEFT, A, ether::ARP, &[&[0; 28]]), DropReason::BadHeader),
    ];
    let n = cases.len() as u64;
    for (bytes, reason) in cases {
        let before = of.counts();
        let sent = handle(&of, &packets, 0, std::slice::from_ref(&bytes), 0);
        assert!(sent.is_empty(), "{reason:?}: {bytes:x?} gave {sent:x?}");
        let after = of.counts();
        assert_eq!(
            (after[reason], after.dropped()),
            (before[reason] + 1, before.dropped() + 1),
            "{bytes:x?}"
        );
    }
    let mut other = good;
    other[0] = 4;
    assert!(handle(&of, &packets, 0, &[other], 0).is_empty());
    let counts = of.counts();
    assert_eq!((counts[Count::OtherStation], counts.dropped(), counts[Count::Errors]), (1, n, 0));
    assert_eq!(packets.head_stats().active, 0);
}
