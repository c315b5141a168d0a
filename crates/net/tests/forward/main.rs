//! The forwarding path, packet by packet: what goes on and how, what is answered, what is told, what is dropped and why.

mod advertisements;
mod ends;
mod frames;

use frames::*;
use quietline_net::forward::checksum::{Sum, checksum, update};
use quietline_net::forward::header::{
    Arp, Ethernet, Icmp, Ipv4, Ipv6, Link, Neighbour, Udp, ether, protocol,
};
use quietline_net::forward::*;
use quietline_net::packet::{DropReason, Frag, Packets};
use quietline_platform::fault;
use rustix::io::Errno;
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

/// Packets of all kinds in one batch: each goes where it goes alone, and those of one interface in their order; also those of which
/// others have a part, or that are in pieces, which are not written where they lie.
#[test]
fn all_kinds_in_one_batch() {
    let packets = Packets::new().unwrap();
    let link_local = Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, 9);
    // Who is told of errors is known.
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
            // Extension headers go on as what they are in front of does.
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

/// What is not right is dropped, and nothing is said.
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

#[test]
fn errors_of_ipv4() {
    let packets = Packets::new().unwrap();
    let of = with_neighbours(&packets);
    let host = Prefix::new(Ipv4Addr::new(203, 0, 113, 5), 32).unwrap();
    of.routes4().insert(host, NextHop { interface: 1, via: Via::Unreachable }).unwrap();
    let too_big = {
        let mut ip = ip4(A4, B4, 17, 64, 1400);
        ip.fragment = Ipv4::DONT.into();
        seal(&mut ip);
        frame(LEFT, A, ether::IPV4, &[ip.as_bytes(), &[7; 1400]])
    };
    let cases = [
        (udp4(A4, B4, 1, b"12345678"), (11, 0, [0; 4]), DropReason::TtlExpired),
        (udp4(A4, B4, 0, b""), (11, 0, [0; 4]), DropReason::TtlExpired),
        (udp4(A4, Ipv4Addr::new(8, 8, 8, 8), 64, b""), (3, 0, [0; 4]), DropReason::NoRoute),
        (udp4(A4, host.address(), 64, b""), (3, 1, [0; 4]), DropReason::NoRoute),
        (too_big, (3, 4, [0, 0, 5, 0]), DropReason::PacketTooBig),
        (udp4(A4, LEFT4, 1, b""), (3, 3, [0; 4]), DropReason::UnhandledProtocol),
        (udp4(A4, RIGHT4, 1, b""), (3, 3, [0; 4]), DropReason::UnhandledProtocol),
        (
            frame(LEFT, A, ether::IPV4, &[ip4(A4, LEFT4, 6, 64, 0).as_bytes()]),
            (3, 2, [0; 4]),
            DropReason::UnhandledProtocol,
        ),
    ];
    for (bytes, expected, reason) in &cases {
        let before = of.counts()[*reason];
        let (interface, error) = one(handle(&of, &packets, 0, std::slice::from_ref(bytes), 0));
        let (ethernet, ip, said, quoted) = error4(&error);
        assert_eq!((interface, ethernet.destination, ethernet.source), (0, A, LEFT));
        assert_eq!((ip.source(), ip.destination(), ip.ttl, said), (LEFT4, A4, 64, *expected));
        assert!(ip.total.get() <= 576);
        // But for what forwarding has changed.
        assert_eq!(quoted[9], bytes[14 + 9]);
        assert_eq!(quoted[12..], bytes[14 + 12..14 + quoted.len()]);
        assert_eq!(of.counts()[*reason], before + 1);
    }
    // None about errors, fragments but the first, or what came to more than one.
    let error = |kind, code| {
        let ip = ip4(A4, B4, protocol::ICMP, 1, 8);
        let mut icmp = Icmp { kind, code, checksum: [0; 2], rest: [0; 4] };
        icmp.checksum = checksum(icmp.as_bytes());
        frame(LEFT, A, ether::IPV4, &[ip.as_bytes(), icmp.as_bytes()])
    };
    let mut fragment = ip4(A4, B4, 17, 1, 0);
    fragment.fragment = 100.into();
    seal(&mut fragment);
    let mut to_all = udp4(A4, Ipv4Addr::new(8, 8, 8, 8), 1, b"");
    to_all[..6].copy_from_slice(&[0xff; 6]);
    let silent = [
        error(3, 1),
        error(11, 0),
        error(12, 0),
        frame(LEFT, A, ether::IPV4, &[fragment.as_bytes()]),
        to_all,
    ];
    let sent = handle(&of, &packets, 0, &silent, 0);
    assert!(sent.is_empty(), "{sent:x?}");
    assert_eq!(handle(&of, &packets, 0, &[error(8, 0)], 0).len(), 1, "but about an echo");
    assert_eq!(of.counts()[Count::Errors], cases.len() as u64 + 1);
    assert_eq!(packets.head_stats().active, 0);
}

#[test]
fn errors_of_ipv6() {
    let packets = Packets::new().unwrap();
    let of = with_neighbours(&packets);
    let local: Ipv6Addr = "fe80::9".parse().unwrap();
    of.set_neighbour6(0, local, A).unwrap();
    let cases = [
        (udp6(A6, B6, 1, b"12345678"), (3, 0, 0u32), DropReason::TtlExpired),
        (udp6(A6, "2001:db9::1".parse().unwrap(), 64, b""), (1, 0, 0), DropReason::NoRoute),
        (udp6(A6, B6, 64, &[1; 1300]), (2, 0, 1280), DropReason::PacketTooBig),
        (udp6(A6, LEFT6, 1, b""), (1, 4, 0), DropReason::UnhandledProtocol),
        (udp6(local, LEFT6, 1, b""), (1, 4, 0), DropReason::UnhandledProtocol),
        (udp6(local, B6, 64, b""), (1, 2, 0), DropReason::Martian),
        (
            frame(LEFT, A, ether::IPV6, &[ip6(A6, LEFT6, 6, 64, 0).as_bytes()]),
            (4, 1, 6),
            DropReason::UnhandledProtocol,
        ),
    ];
    for (bytes, (kind, code, rest), reason) in &cases {
        let before = of.counts()[*reason];
        let (interface, error) = one(handle(&of, &packets, 0, std::slice::from_ref(bytes), 0));
        let (ethernet, ip, said, quoted) = message6(&error);
        assert_eq!((interface, ethernet.destination, ethernet.source), (0, A, LEFT));
        let to = Ipv6::of(&bytes[14..]).unwrap().0.source();
        let from = if to == local { of.interfaces()[0].link_local() } else { LEFT6 };
        assert_eq!(
            (ip.source(), ip.destination(), said),
            (from, to, (*kind, *code, rest.to_be_bytes()))
        );
        assert!(error.len() <= 14 + 1280);
        assert_eq!(quoted, &bytes[14..14 + quoted.len()]);
        assert_eq!(of.counts()[*reason], before + 1);
    }
    // None about errors, also behind other headers.
    let plain = icmp6(LEFT, A6, B6, 1, 1, [0; 4], &[0; 40]);
    let body = [&[58, 0, 1, 4, 0, 0, 0, 0][..], &plain[54..]].concat();
    let behind = frame(LEFT, A, ether::IPV6, &[ip6(A6, B6, 60, 1, body.len()).as_bytes(), &body]);
    let sent = handle(&of, &packets, 0, &[plain, behind], 0);
    assert!(sent.is_empty(), "{sent:x?}");
    assert_eq!(of.counts()[Count::Errors], cases.len() as u64);
    assert_eq!(packets.head_stats().active, 0);
}

/// Errors by an interface without an address that is known beyond its link come from another one's, as those of IPv4 do; to the link, and if
/// there is none, from its own.
#[test]
fn errors_of_an_interface_without_a_global_address() {
    let packets = Packets::new().unwrap();
    let local: Ipv6Addr = "fe80::9".parse().unwrap();
    let by_hand: Ipv6Addr = "fe80::1".parse().unwrap();
    let left = || Interface::new(LEFT, 1500).v6(by_hand, 64);
    let right = || Interface::new(RIGHT, 1500).v4(RIGHT4, 24);
    let from = |right: Interface, sender: Ipv6Addr| {
        let of = Forwarder::new(&packets, vec![left(), right]).unwrap();
        let via = Via::Link;
        of.routes6().insert(Prefix::of(A6, 64).unwrap(), NextHop { interface: 0, via }).unwrap();
        of.set_neighbour6(0, sender, A).unwrap();
        let unknown = "2001:db9::1".parse().unwrap();
        let (_, error) = one(handle(&of, &packets, 0, &[udp6(sender, unknown, 64, b"")], 0));
        let (_, ip, _, _) = message6(&error);
        assert_eq!(ip.destination(), sender);
        (ip.source(), of.interfaces()[0].link_local())
    };
    assert_eq!(from(right().v6("fe80::2".parse().unwrap(), 64).v6(RIGHT6, 64), A6).0, RIGHT6);
    let (source, own) = from(right().v6(RIGHT6, 64), local);
    assert_eq!(source, own);
    let (source, own) = from(right(), A6);
    assert_eq!(source, own, "there is none");

    // Echoes to all nodes on the link are answered as errors are.
    let of = Forwarder::new(&packets, vec![left(), right().v6(RIGHT6, 64)]).unwrap();
    of.routes6()
        .insert(Prefix::of(A6, 64).unwrap(), NextHop { interface: 0, via: Via::Link })
        .unwrap();
    of.set_neighbour6(0, A6, A).unwrap();
    let all = "ff02::1".parse().unwrap();
    let echo = icmp6([0x33, 0x33, 0, 0, 0, 1], A6, all, 64, 128, [0, 1, 0, 2], b"echo");
    let (_, answer) = one(handle(&of, &packets, 0, &[echo], 0));
    let (_, ip, said, _) = message6(&answer);
    assert_eq!((ip.source(), ip.destination(), said), (RIGHT6, A6, (129, 0, [0, 1, 0, 2])));
    assert_eq!(packets.head_stats().active, 0);
}

/// A bucket for each CPU: a burst, and then one for each interval.
#[test]
fn errors_are_limited() {
    let packets = Packets::new().unwrap();
    let of = with_neighbours(&packets);
    let frames = vec![udp4(A4, B4, 1, b""); 1000];
    let sent = handle(&of, &packets, 0, &frames, 1_000).len() as u64;
    // (The thread may have been on other CPUs in between.)
    let cpus = of.counts_by_cpu().count() as u64;
    assert!((BURST..=BURST * cpus).contains(&sent), "{sent}");
    let counts = of.counts();
    assert_eq!((counts[Count::Errors], counts[Count::Limited]), (sent, 1000 - sent));
    assert_eq!(counts[DropReason::TtlExpired], 1000);
    let more = handle(&of, &packets, 0, &frames, 1_010).len() as u64;
    assert!((10..=BURST * cpus).contains(&more), "{more}");
    assert_eq!(packets.head_stats().active, 0);
}

#[test]
fn echoes() {
    let packets = Packets::new().unwrap();
    let of = with_neighbours(&packets);
    let message = |kind, payload: &[u8]| {
        let mut icmp = Icmp { kind, code: 0, checksum: [0; 2], rest: [1, 2, 3, 4] };
        icmp.checksum = Sum::default().with(icmp.as_bytes()).with(payload).checksum();
        [icmp.as_bytes(), payload].concat()
    };
    for (to, payload) in [(LEFT4, &b"some bytes"[..]), (RIGHT4, b"odd"), (LEFT4, b"")] {
        let message = message(8, payload);
        let echo =
            frame(LEFT, A, ether::IPV4, &[ip4(A4, to, 1, 1, message.len()).as_bytes(), &message]);
        let (interface, reply) = one(handle(&of, &packets, 0, &[echo], 0));
        let (ethernet, ip, said, body) = error4(&reply);
        assert_eq!(
            (interface, ethernet.destination, ip.source(), ip.destination()),
            (0, A, to, A4)
        );
        assert_eq!((said, body, ip.ttl), ((0, 0, [1, 2, 3, 4]), payload, 64));
    }
    let mut bad = message(8, b"x");
    bad[2] ^= 1;
    let bad = frame(LEFT, A, ether::IPV4, &[ip4(A4, LEFT4, 1, 1, bad.len()).as_bytes(), &bad]);
    let reply = message(0, b"x");
    let reply =
        frame(LEFT, A, ether::IPV4, &[ip4(A4, LEFT4, 1, 1, reply.len()).as_bytes(), &reply]);
    assert!(handle(&of, &packets, 0, &[bad, reply], 0).is_empty());

    let local: Ipv6Addr = "fe80::9".parse().unwrap();
    of.set_neighbour6(0, local, A).unwrap();
    let own = of.interfaces()[0].link_local();
    let all: Ipv6Addr = "ff02::1".parse().unwrap();
    let group = [0x33, 0x33, 0, 0, 0, 1];
    for (link, from, to, answers) in [
        (LEFT, A6, LEFT6, LEFT6),
        (LEFT, A6, RIGHT6, RIGHT6),
        (LEFT, local, own, own),
        (group, local, all, own),
        (group, A6, all, LEFT6),
    ] {
        let (interface, reply) = one(handle(
            &of,
            &packets,
            0,
            &[icmp6(link, from, to, 64, 128, [4, 3, 2, 1], b"hello")],
            0,
        ));
        let (ethernet, ip, said, body) = message6(&reply);
        assert_eq!((interface, ethernet.destination), (0, A));
        assert_eq!((ip.source(), ip.destination()), (answers, from));
        assert_eq!((said, body), ((129, 0, [4, 3, 2, 1]), &b"hello"[..]));
    }
    let counts = of.counts();
    assert_eq!(
        (counts[Count::Echoes], counts[DropReason::BadChecksum], counts.dropped()),
        (8, 1, 2)
    );
    assert_eq!(packets.head_stats().active, 0);
}

/// The answer to an echo that is too long for its way back is cut, of IPv4, whether or not the request might be; of IPv6 it is dropped as what it is.
#[test]
fn echoes_too_long_for_the_way_back() {
    let packets = Packets::new().unwrap();
    let of = with_neighbours(&packets);
    let payload: Vec<u8> = (0..1400u32).map(|i| (i * 7) as u8).collect();
    // From behind the narrow link, by the other one.
    for (rest, dont, number) in
        [([0x12, 0x34, 0, 2], Ipv4::DONT, 0x1236), ([9, 9, 9, 9], 0, 0x4321)]
    {
        let mut icmp = Icmp { kind: 8, code: 0, checksum: [0; 2], rest };
        icmp.checksum = Sum::default().with(icmp.as_bytes()).with(&payload).checksum();
        let mut ip = ip4(FAR4, LEFT4, protocol::ICMP, 64, Icmp::LEN + payload.len());
        (ip.fragment, ip.id) = (dont.into(), if dont == 0 { 0x4321.into() } else { 0.into() });
        seal(&mut ip);
        let echo = frame(LEFT, A, ether::IPV4, &[ip.as_bytes(), icmp.as_bytes(), &payload]);
        let sent = handle(&of, &packets, 0, &[echo], 0);
        let mut answer = Vec::new();
        for (i, (interface, bytes)) in sent.iter().enumerate() {
            let (ethernet, ip, piece) = parse4(bytes);
            assert_eq!((*interface, ethernet.destination, ip.ttl, ip.id.get()), (1, B, 64, number));
            assert_eq!((ip.source(), ip.destination()), (LEFT4, FAR4));
            let more = if i == 0 { Ipv4::MORE } else { 0 };
            assert_eq!(ip.fragment.get(), (answer.len() / 8) as u16 | more);
            assert!(ip.total.get() <= 1280);
            answer.extend_from_slice(piece);
        }
        assert_eq!(sent.len(), 2);
        assert!(Sum::default().with(&answer).is_right());
        let (said, body) = Icmp::of(&answer).unwrap();
        assert_eq!((said.kind, said.rest, body), (0, rest, &payload[..]));
    }
    let echo6 = icmp6(LEFT, FAR6, LEFT6, 64, 128, [0; 4], &payload);
    assert!(handle(&of, &packets, 0, &[echo6], 0).is_empty());
    let counts = of.counts();
    assert_eq!((counts[Count::Echoes], counts[Count::Fragments], counts[Count::Errors]), (3, 4, 0));
    assert_eq!(
        (counts[DropReason::PacketTooBig], counts[Count::OwnDropped], counts.dropped()),
        (1, 1, 1)
    );

    // An error must not be cut, and nobody is told of it.
    let left = Interface::new(LEFT, 1500).v4(LEFT4, 24);
    let of =
        Forwarder::new(&packets, vec![left, Interface::new(RIGHT, 68).v4(RIGHT4, 24)]).unwrap();
    of.set_neighbour4(1, B4, B).unwrap();
    assert!(handle(&of, &packets, 0, &[udp4(B4, LEFT4, 64, &payload)], 0).is_empty());
    let counts = of.counts();
    assert_eq!(
        (counts[Count::Errors], counts[DropReason::PacketTooBig], counts.dropped()),
        (1, 1, 2)
    );
    assert_eq!(packets.head_stats().active, 0);
}

/// What may be cut is, and put together again it is what it was.
#[test]
fn fragments() {
    let packets = Packets::new().unwrap();
    let of = with_neighbours(&packets);
    let payload: Vec<u8> = (0..1472u32).map(|i| (i * 7) as u8).collect();
    let whole = udp4(A4, B4, 64, &payload);
    // In one piece, and with most of it in a fragment of the buffer.
    let mut in_two = skb(&packets, &whole[..60]);
    in_two.add_frag(Frag::copy_of(&whole[60..]).unwrap()).unwrap();
    for packet in [skb(&packets, &whole), in_two] {
        let sent = pass(&of, 1 - 1, &mut [Some(packet)], 0);
        assert_eq!(sent.len(), 2);
        let mut body = vec![0; 1480];
        for (i, (interface, bytes)) in sent.iter().enumerate() {
            let (ethernet, ip, rest) = parse4(bytes);
            assert_eq!((*interface, ethernet.destination, ip.ttl, ip.id.get()), (1, B, 63, 0x1234));
            assert!(ip.total.get() <= 1280);
            assert_eq!(ip.fragment.get() & Ipv4::MORE != 0, i == 0);
            let at = usize::from(ip.fragment.get() & Ipv4::OFFSET) * 8;
            body[at..at + rest.len()].copy_from_slice(rest);
        }
        assert_eq!(body, whole[34..]);
    }
    // A fragment that is cut keeps its place, and that more follow.
    let mut ip = ip4(A4, B4, 17, 64, 1480);
    ip.fragment = (185 | Ipv4::MORE).into();
    seal(&mut ip);
    let sent =
        handle(&of, &packets, 0, &[frame(LEFT, A, ether::IPV4, &[ip.as_bytes(), &[1; 1480]])], 0);
    let flags: Vec<u16> = sent.iter().map(|(_, bytes)| parse4(bytes).1.fragment.get()).collect();
    assert_eq!(flags, [185 | Ipv4::MORE, (185 + 1256 / 8) | Ipv4::MORE]);
    assert_eq!(of.counts()[Count::Fragments], 6);
    assert_eq!(packets.head_stats().active, 0);
}

/// A fragment that would end behind the longest packet is not cut: its pieces would say that they are somewhere else. One that ends just there is.
#[test]
fn fragments_behind_the_end() {
    let packets = Packets::new().unwrap();
    let of = with_neighbours(&packets);
    // Bytes, 1,256 of which fit into the first piece; the place of the fragment; and those of its pieces.
    let pieces = |len: usize, offset: u16| -> Vec<u16> {
        let mut ip = ip4(A4, B4, 17, 64, len);
        ip.fragment = offset.into();
        seal(&mut ip);
        let fragment = frame(LEFT, A, ether::IPV4, &[ip.as_bytes(), &[1; 1480][..len]]);
        let sent = handle(&of, &packets, 0, &[fragment], 0);
        sent.iter().map(|(_, bytes)| parse4(bytes).1.fragment.get()).collect()
    };
    assert_eq!(pieces(1479, 8007), [8007 | Ipv4::MORE, 8007 + 157]);
    let bad = [(1480, 8007), (1264, 8035), (1480, 0x1fff), (1480, 0x1fff | Ipv4::MORE)];
    for (len, offset) in bad {
        assert_eq!(pieces(len, offset), [], "{len} bytes at {offset:#x}");
    }
    let counts = of.counts();
    assert_eq!(
        (counts[Count::Fragments], counts[DropReason::BadHeader], counts.dropped()),
        (2, 4, 4)
    );
    assert_eq!(packets.head_stats().active, 0);
}

/// Nobody else's bytes are written: a packet that others have a reference to goes on as a copy.
#[test]
fn shared_packets() {
    let packets = Packets::new().unwrap();
    let of = with_neighbours(&packets);
    let bytes = udp4(A4, B4, 64, b"payload");
    let original = skb(&packets, &bytes);
    let sent = pass(&of, 0, &mut [Some(original.clone_skb().unwrap()), Some(original.get())], 0);
    assert_eq!(sent.len(), 2);
    assert!(sent.iter().all(|(_, bytes)| parse4(bytes).1.ttl == 63));
    assert_eq!(original.data(), bytes);
    drop(original);
    assert_eq!(packets.head_stats().active, 0);
}

fn arp(operation: u16, sender: (Link, Ipv4Addr), target: (Link, Ipv4Addr)) -> Vec<u8> {
    let arp = Arp {
        hardware: 1.into(),
        protocol: ether::IPV4.into(),
        link_len: 6,
        len: 4,
        operation: operation.into(),
        sender_link: sender.0,
        sender: sender.1.octets(),
        target_link: target.0,
        target: target.1.octets(),
    };
    frame([0xff; 6], sender.0, ether::ARP, &[arp.as_bytes()])
}

/// Waiting for a neighbour, its answer, its getting old, its silence.
#[test]
fn neighbours_of_ipv4() {
    let packets = Packets::new().unwrap();
    let of = forwarder(&packets);
    // Somebody asks for us: it is answered, and known from then on.
    let (interface, reply) = one(handle(&of, &packets, 0, &[arp(1, (A, A4), ([0; 6], LEFT4))], 0));
    assert_eq!((interface, &reply[..6]), (0, &A[..]));
    assert_eq!(reply[14..], arp(2, (LEFT, LEFT4), (A, A4))[14..]);
    assert_eq!(of.neighbours(), [1, 0]);
    // For somebody else, or from elsewhere: nothing.
    let others = [
        arp(1, (B, Ipv4Addr::new(10, 0, 1, 77)), ([0; 6], Ipv4Addr::new(10, 0, 1, 78))),
        arp(1, (B, Ipv4Addr::new(10, 9, 9, 9)), ([0; 6], LEFT4)),
        arp(2, (B, Ipv4Addr::new(10, 0, 1, 79)), (LEFT, LEFT4)),
        arp(1, (B, LEFT4), ([0; 6], LEFT4)),
    ];
    assert!(handle(&of, &packets, 0, &others, 0).is_empty());
    assert_eq!(of.neighbours(), [1, 0]);

    // Five packets to B: three wait, two were pushed out; one question.
    let frames: Vec<_> = (0..5).map(|i| udp4(A4, B4, 64, &[i])).collect();
    let (interface, question) = one(handle(&of, &packets, 0, &frames, 10));
    assert_eq!(interface, 1);
    assert_eq!(question, {
        let mut question = arp(1, (RIGHT, RIGHT4), ([0; 6], B4));
        question[6..12].copy_from_slice(&RIGHT);
        question
    });
    assert_eq!(of.counts()[DropReason::NeighbourFailed], 2);
    assert_eq!(packets.head_stats().active, WAITING);
    // The answer sends the newest three, in order.
    let sent = handle(&of, &packets, 1, &[arp(2, (B, B4), (RIGHT, RIGHT4))], 20);
    let last: Vec<u8> = sent.iter().map(|(_, bytes)| *bytes.last().unwrap()).collect();
    assert_eq!(last, [2, 3, 4]);
    assert!(sent.iter().all(|(interface, bytes)| *interface == 1 && bytes[..6] == B));
    assert_eq!((of.neighbours(), packets.head_stats().active), ([2, 0], 0));

    // After its time it is still used, and asked, itself, once a second; an answer makes it new.
    let old = 20 + u64::from(REACHABLE) * 1000;
    let sent = handle(&of, &packets, 0, &[frames[0].clone(), frames[1].clone()], old);
    let kinds: Vec<u16> =
        sent.iter().map(|(_, bytes)| Ethernet::of(bytes).unwrap().0.protocol.get()).collect();
    assert_eq!(kinds, [ether::ARP, ether::IPV4, ether::IPV4]);
    assert_eq!(sent[0].1[..6], B);
    handle(&of, &packets, 1, &[arp(2, (B, B4), (RIGHT, RIGHT4))], old + 10);
    assert_eq!(handle(&of, &packets, 0, &frames[..1], old + 20_000).len(), 1);
    // It has moved.
    let moved = [2, 9, 9, 9, 9, 9];
    handle(&of, &packets, 1, &[arp(2, (moved, B4), (RIGHT, RIGHT4))], old + 20_010);
    assert_eq!(one(handle(&of, &packets, 0, &frames[..1], old + 20_020)).1[..6], moved);

    // Silence: three questions, then it is forgotten, and packets wait again.
    let mut at = old + 60_000;
    for _ in 0..TRIES {
        assert_eq!(handle(&of, &packets, 0, &frames[..1], at).len(), 2);
        at += 1000;
    }
    assert_eq!(handle(&of, &packets, 0, &frames[..1], at).len(), 1, "the last");
    let sent = handle(&of, &packets, 0, &frames[..1], at + 1);
    assert_eq!(one(sent).1[..6], [0xff; 6], "and another question to all");
    // Two questions more, and then who sent it is told. (A, whose time is over too, is asked whether it is still there.)
    for _ in 1..TRIES {
        at += 1001;
        let sent = handle(&of, &packets, 0, &[], at);
        assert_eq!(one(sent).1[..6], [0xff; 6]);
    }
    let told = handle(&of, &packets, 0, &[], at + 1001);
    let (_, last) =
        told.iter().find(|(_, bytes)| bytes[12..14] == [8, 0]).expect("somebody is told");
    let (ethernet, ip, said, _) = error4(last);
    assert_eq!((ethernet.destination, ip.destination(), said), (A, A4, (3, 1, [0; 4])));
    assert_eq!(of.counts()[DropReason::NeighbourFailed], 3);
}

fn neighbour(link_option: u8, target: Ipv6Addr, link: Link) -> Vec<u8> {
    Neighbour { target: target.octets(), option: link_option, option_len: 1, link }
        .as_bytes()
        .to_vec()
}

/// What a route remembers of its gateway is true: one that moves, gets old, is forgotten, or whose place is another's now, is seen by
/// the next packet.
#[test]
fn a_gateway_that_is_remembered() {
    let packets = Packets::new().unwrap();
    let of = forwarder(&packets);
    let far = |n: u64, at| -> Vec<Vec<u8>> {
        let frames: Vec<_> = (0..n).map(|_| udp4(A4, FAR4, 64, b"far")).collect();
        handle(&of, &packets, 0, &frames, at).into_iter().map(|(_, bytes)| bytes).collect()
    };
    let all_to = |sent: Vec<Vec<u8>>, n, to: Link| {
        sent.len() == n && sent.iter().all(|bytes| bytes[..6] == to)
    };
    let says = |link, at| handle(&of, &packets, 1, &[arp(2, (link, B4), (RIGHT, RIGHT4))], at);
    assert!(all_to(far(1, 0), 1, [0xff; 6]), "it is asked for");
    assert_eq!(says(B, 10).len(), 1);
    assert!(all_to(far(40, 20), 40, B));
    // It moves, again and again; old entries wait for readers, and are used again.
    for round in 0..300u64 {
        let link = [2, 7, 7, 7, 7, round as u8];
        says(link, 30 + round);
        assert!(all_to(far(3, 30 + round), 3, link), "{round}");
    }
    // By hand, and back: who was entered by hand stays.
    of.set_neighbour4(1, B4, A).unwrap();
    assert!(all_to(far(3, 400), 3, A));

    // One that is learned gets old, is asked, and forgotten.
    let of = forwarder(&packets);
    let far = |n: u64, at| -> Vec<Vec<u8>> {
        let frames: Vec<_> = (0..n).map(|_| udp6(A6, FAR6, 64, b"far")).collect();
        handle(&of, &packets, 0, &frames, at).into_iter().map(|(_, bytes)| bytes).collect()
    };
    assert_eq!(far(1, 0).len(), 1, "it is asked for");
    let says = |link, at| {
        let mut answer =
            icmp6(RIGHT, B6, RIGHT6, 255, 136, [0x60, 0, 0, 0], &neighbour(2, B6, link));
        answer[6..12].copy_from_slice(&link);
        handle(&of, &packets, 1, &[answer], at)
    };
    assert_eq!(says(B, 10).len(), 1);
    assert!(all_to(far(40, 20), 40, B));
    let old = 10 + u64::from(REACHABLE) * 1000;
    let sent = far(2, old);
    assert!(all_to(sent, 3, B), "two packets, and the question whether it is there");
    says(B, old + 10);
    assert!(all_to(far(40, old + 20), 40, B));
    // Nobody uses it: it is forgotten, and others come into its place.
    let later = old + 200_000;
    handle(&of, &packets, 0, &[], later);
    assert_eq!(of.neighbours(), [0, 0]);
    let others = |n: u16| Ipv6Addr::new(0x2001, 0xdb8, 2, 0, 0, 0, 1, n);
    for n in 0..200 {
        of.set_neighbour6(1, others(n), [2, 5, 5, 5, 5, n as u8]).unwrap();
    }
    let sent = far(1, later + 1);
    assert_eq!(
        (sent.len(), &sent[0][..2]),
        (1, &[0x33, 0x33][..]),
        "it is asked for, as one that is not known"
    );
    says(A, later + 2);
    assert!(all_to(far(40, later + 3), 40, A));
}

/// Who was entered by hand is where he was entered, whatever the link says, and is never asked for or forgotten.
#[test]
fn entered_for_good() {
    let packets = Packets::new().unwrap();
    let of = with_neighbours(&packets);
    let moved = [2, 9, 9, 9, 9, 9];
    for link in [moved, B] {
        let answer4 = arp(2, (link, B4), (RIGHT, RIGHT4));
        let mut answer6 =
            icmp6(RIGHT, B6, RIGHT6, 255, 136, [0x60, 0, 0, 0], &neighbour(2, B6, link));
        answer6[6..12].copy_from_slice(&link);
        let question4 = arp(1, (link, B4), ([0; 6], RIGHT4));
        handle(&of, &packets, 1, &[answer4, answer6, question4], 1000);
        for frame in [udp4(A4, B4, 64, b""), udp6(A6, B6, 64, b"")] {
            for seconds in [1, 100, 10_000, 100_000] {
                assert_eq!(
                    one(handle(&of, &packets, 0, std::slice::from_ref(&frame), seconds * 1000)).1
                        [..6],
                    B
                );
            }
        }
    }
    assert_eq!((of.neighbours(), of.counts()[Count::Asked]), ([2, 2], 0));
}

#[test]
fn neighbours_of_ipv6() {
    let packets = Packets::new().unwrap();
    let of = forwarder(&packets);
    let group_of = |address: Ipv6Addr| -> (Ipv6Addr, Link) {
        let [.., b, c, d] = address.octets();
        (format!("ff02::1:ff{b:02x}:{c:02x}{d:02x}").parse().unwrap(), [0x33, 0x33, 0xff, b, c, d])
    };
    // Somebody asks for us.
    let (group, link) = group_of(LEFT6);
    let question = icmp6(link, A6, group, 255, 135, [0; 4], &neighbour(1, LEFT6, A));
    let sent = handle(&of, &packets, 0, std::slice::from_ref(&question), 0);
    // Whether he hears us is asked beside it, and said.
    let [(0, asked), (0, answer)] = &sent[..] else { panic!("{sent:x?}") };
    let (ethernet, ip, said, body) = message6(asked);
    assert_eq!((ethernet.destination, ip.destination(), ip.source(), ip.hops), (A, A6, LEFT6, 255));
    assert_eq!((said, body), ((135, 0, [0; 4]), &neighbour(1, A6, LEFT)[..]));
    let hears = icmp6(LEFT, A6, LEFT6, 255, 136, [0x60, 0, 0, 0], &neighbour(2, A6, A));
    assert!(handle(&of, &packets, 0, &[hears], 0).is_empty());
    let (ethernet, ip, said, body) = message6(answer);
    assert_eq!((ethernet.destination, ip.hops), (A, 255));
    assert_eq!((ip.source(), ip.destination(), said), (LEFT6, A6, (136, 0, [0xe0, 0, 0, 0])));
    assert_eq!(body, neighbour(2, LEFT6, LEFT));
    assert_eq!(of.neighbours(), [0, 1]);
    // Whether the address is free: the answer goes to all.
    let free = icmp6(link, Ipv6Addr::UNSPECIFIED, group, 255, 135, [0; 4], &LEFT6.octets());
    let (_, answer) = one(handle(&of, &packets, 0, &[free], 0));
    let (ethernet, ip, said, _) = message6(&answer);
    assert_eq!(
        (ethernet.destination, ip.destination()),
        ([0x33, 0x33, 0, 0, 0, 1], "ff02::1".parse().unwrap())
    );
    assert_eq!(said, (136, 0, [0xa0, 0, 0, 0]));
    // From elsewhere, with a wrong checksum, with options that end nowhere: nothing.
    let mut wrong = question.clone();
    *wrong.last_mut().unwrap() ^= 1;
    let mut endless = neighbour(1, LEFT6, A);
    endless[17] = 0;
    let bad = [
        icmp6(link, A6, group, 254, 135, [0; 4], &neighbour(1, LEFT6, A)),
        wrong,
        icmp6(link, A6, group, 255, 135, [0; 4], &endless),
        icmp6(link, A6, group, 255, 135, [0; 4], &LEFT6.octets()[..15]),
    ];
    let before = of.counts().dropped();
    assert!(handle(&of, &packets, 0, &bad, 0).is_empty());
    assert_eq!(of.counts().dropped(), before + 4);

    // Packets wait, the neighbour is asked for, answers, and they go.
    let frames: Vec<_> = (0..4).map(|i| udp6(A6, FAR6, 64, &[i])).collect();
    let (interface, question) = one(handle(&of, &packets, 0, &frames, 10));
    let (ethernet, ip, said, body) = message6(&question);
    let (group, link) = group_of(B6);
    assert_eq!(
        (interface, ethernet.destination, ip.destination(), ip.source()),
        (1, link, group, RIGHT6)
    );
    assert_eq!((said, body), ((135, 0, [0; 4]), &neighbour(1, B6, RIGHT)[..]));
    let answer = |link, flags| {
        let mut answer =
            icmp6(RIGHT, B6, RIGHT6, 255, 136, [flags, 0, 0, 0], &neighbour(2, B6, link));
        answer[6..12].copy_from_slice(&link);
        answer
    };
    let sent = handle(&of, &packets, 1, &[answer(B, 0x60)], 20);
    let last: Vec<u8> = sent.iter().map(|(_, bytes)| *bytes.last().unwrap()).collect();
    assert_eq!(last, [1, 2, 3]);
    // Another link address only if it is said to replace the one that is known; else that one is asked.
    let moved = [2, 9, 9, 9, 9, 9];
    handle(&of, &packets, 1, &[answer(moved, 0x40)], 30);
    let sent = handle(&of, &packets, 0, &frames[..1], 40);
    assert!(sent.len() == 2 && sent.iter().all(|(_, bytes)| bytes[..6] == B), "{sent:x?}");
    handle(&of, &packets, 1, &[answer(moved, 0x60)], 50);
    assert_eq!(one(handle(&of, &packets, 0, &frames[..1], 60)).1[..6], moved);
    // Who does not answer: the sender is told.
    let nobody: Ipv6Addr = "2001:db8:2::dead".parse().unwrap();
    assert_eq!(handle(&of, &packets, 0, &[udp6(A6, nobody, 64, b"")], 2_000).len(), 1);
    assert_eq!(handle(&of, &packets, 0, &[], 3_100).len(), 1);
    assert_eq!(handle(&of, &packets, 0, &[], 4_200).len(), 1);
    let (_, error) = one(handle(&of, &packets, 0, &[], 5_300));
    assert_eq!(message6(&error).2, (1, 3, [0; 4]));
    assert_eq!(packets.head_stats().active, 0);
}

/// Packets to ever more neighbours do not fill the memory.
#[test]
fn what_waits_is_bounded() {
    let packets = Packets::new().unwrap();
    let of = forwarder(&packets);
    let wide = Prefix::of(Ipv4Addr::new(100, 64, 0, 0), 10).unwrap();
    of.routes4().insert(wide, NextHop { interface: 1, via: Via::Link }).unwrap();
    for i in 0..2000 {
        let to = Ipv4Addr::from_bits(Ipv4Addr::new(100, 64, 0, 1).to_bits() + i);
        handle(&of, &packets, 0, &vec![udp4(A4, to, 64, b""); 4], 0);
    }
    assert_eq!(packets.head_stats().active, ASKED * WAITING);
    let counts = of.counts();
    assert_eq!(counts[DropReason::NeighbourFailed], 8000 - (ASKED * WAITING) as u64);
    drop(of);
    assert_eq!(packets.head_stats().active, 0, "what waits ends with the forwarder");
}

/// Devices that take nothing.
#[test]
fn not_sent() {
    let packets = Packets::new().unwrap();
    let of = with_neighbours(&packets);
    let mut batch: Vec<_> = (0..200).map(|_| Some(skb(&packets, &udp4(A4, B4, 64, b"")))).collect();
    let mut lane = of.lane().unwrap();
    of.handle(&mut lane, 0, &mut batch, Duration::ZERO, &mut |_, _| {});
    let counts = of.counts();
    assert_eq!((counts[Count::NotSent], counts[DropReason::QueueFull]), (200, 200));
    assert_eq!(packets.head_stats().active, 0);
}

/// A link that is too narrow for IPv6 has none, in and out; its IPv4 is as ever.
#[test]
fn a_narrow_link_has_no_ipv6() {
    let packets = Packets::new().unwrap();
    let with = |mtu| {
        let left = Interface::new(LEFT, 1500).v4(LEFT4, 24).v6(LEFT6, 64);
        let of = Forwarder::new(&packets, vec![left, Interface::new(RIGHT, mtu).v4(RIGHT4, 24)])
            .unwrap();
        of.routes6()
            .insert(Prefix::of(B6, 64).unwrap(), NextHop { interface: 1, via: Via::Link })
            .unwrap();
        of.set_neighbour4(1, B4, B).unwrap();
        of.set_neighbour6(0, A6, A).unwrap();
        of.set_neighbour6(1, B6, B).unwrap();
        of
    };
    for mtu in [LEAST_MTU6, LEAST_MTU6 - 1, 68] {
        let narrow = mtu < LEAST_MTU6;
        let v6 = Interface::new(RIGHT, mtu).v6(RIGHT6, 64);
        assert_eq!(v6.has_ipv6(), !narrow);
        let refused = Forwarder::new(&packets, vec![v6]).err();
        assert_eq!(refused, narrow.then_some(Errno::INVAL), "an address");
        let of = with(mtu);
        // Out: whoever sent it is told; never that the link is narrower than it may be.
        let (out, bytes) = one(handle(&of, &packets, 0, &[udp6(A6, B6, 64, b"")], 0));
        assert_eq!(out, u32::from(!narrow));
        if narrow {
            let (_, ip, icmp) = parse6(&bytes);
            assert_eq!((ip.destination(), icmp[0], icmp[1]), (A6, 1, 0), "no route");
            let long = udp6(A6, B6, 64, &[0; 1400]);
            assert_ne!(parse6(&one(handle(&of, &packets, 0, &[long], 10)).1).2[0], 2, "too big");
        }
        // In.
        let mut back = udp6(B6, A6, 64, b"");
        back[..6].copy_from_slice(&RIGHT);
        assert_eq!(handle(&of, &packets, 1, &[back], 20).len(), usize::from(!narrow));
        assert_eq!(of.counts()[DropReason::UnhandledProtocol], u64::from(narrow));
        let (out, _) = one(handle(&of, &packets, 0, &[udp4(A4, B4, 64, b"")], 30));
        assert_eq!(out, 1);
    }
    assert_eq!(packets.head_stats().active, 0);
}

/// Each allocation fails once: packets are lost, never more.
#[test]
fn without_memory() {
    let packets = Packets::new().unwrap();
    let (mut failed, mut whole) = (0, 0);
    for nth in 1..200 {
        fault::fail_nth(nth);
        let made = Forwarder::new(
            &packets,
            vec![
                Interface::new(LEFT, 1500).v4(LEFT4, 24),
                Interface::new(RIGHT, 600).v4(RIGHT4, 24),
            ],
        );
        let Ok(of) = made else {
            failed += 1;
            continue;
        };
        let mut sent = 0;
        let mut lane = match of.lane() {
            Ok(lane) => lane,
            Err(_) => {
                failed += 1;
                continue;
            }
        };
        let mut frames = vec![arp(1, (A, A4), ([0; 6], LEFT4)), arp(1, (B, B4), ([0; 6], RIGHT4))];
        frames.extend((0..3).map(|i| udp4(A4, B4, i, &[0; 1400])));
        for frame in frames {
            // (The packet itself is made in peace.)
            let armed = fault::armed();
            let Ok(mut packet) = packets.alloc_skb(frame.len()) else { continue };
            packet.put_data(&frame).unwrap();
            of.handle(
                &mut lane,
                0,
                &mut [Some(packet)],
                Duration::from_secs(1),
                &mut |_, batch| {
                    sent += batch.iter_mut().filter_map(Option::take).count();
                },
            );
            failed += u64::from(armed && !fault::armed());
        }
        fault::fail_nth(0);
        whole += u64::from(sent >= 3);
        drop((lane, of));
        assert_eq!(packets.head_stats().active, 0);
    }
    fault::fail_nth(0);
    assert!(failed > 20 && whole > 20, "{failed} {whole}");
}

/// Two threads forward while routes and neighbours change: each packet goes out whole by one of the two ways, or is dropped, and all
/// are counted.
#[test]
fn several_threads_beside_changes() {
    let packets = Packets::new().unwrap();
    let of = with_neighbours(&packets);
    let other = Ipv4Addr::new(10, 0, 2, 10);
    of.set_neighbour4(1, other, LEFT).unwrap();
    let (narrow, narrow6) = (Prefix::of(FAR4, 28).unwrap(), Prefix::of(FAR6, 64).unwrap());
    let rounds = if cfg!(debug_assertions) { 300 } else { 3000 };
    let forwarding = |now: u64| {
        let frames: Vec<_> = (0..32)
            .map(|_| udp4(A4, FAR4, 64, b"one"))
            .chain((0..32).map(|_| udp6(A6, FAR6, 64, b"two")))
            .collect();
        let mut sent = 0;
        for _ in 0..rounds {
            for (interface, bytes) in handle(&of, &packets, 0, &frames, now) {
                let (ethernet, _) = Ethernet::of(&bytes).unwrap();
                if ethernet.protocol.get() == ether::IPV4 {
                    assert_eq!(parse4(&bytes).1.ttl, 63);
                } else {
                    assert_eq!(parse6(&bytes).1.hops, 63);
                }
                assert!(interface == 1 && [B, LEFT].contains(&ethernet.destination));
                sent += 1;
            }
        }
        sent
    };
    let sent: u64 = std::thread::scope(|scope| {
        let threads = [scope.spawn(|| forwarding(1)), scope.spawn(|| forwarding(2))];
        while threads.iter().any(|thread| !thread.is_finished()) {
            of.routes4()
                .insert(narrow, NextHop { interface: 1, via: Via::Gateway(other) })
                .unwrap();
            of.routes6().insert(narrow6, NextHop { interface: 1, via: Via::Gateway(B6) }).unwrap();
            of.set_neighbour4(1, other, B).unwrap();
            of.routes4().remove(narrow).unwrap();
            of.routes6().remove(narrow6).unwrap();
            of.set_neighbour4(1, other, LEFT).unwrap();
        }
        threads.into_iter().map(|thread| thread.join().unwrap()).sum()
    });
    let counts = of.counts();
    assert_eq!(sent, 2 * 64 * rounds);
    assert_eq!((counts[Count::Forwarded4], counts[Count::Forwarded6]), (sent / 2, sent / 2));
    assert_eq!((counts.dropped(), packets.head_stats().active), (0, 0));
}
