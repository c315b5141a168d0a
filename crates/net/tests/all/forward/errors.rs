//! The forwarding path, packet by packet: ICMP errors, echo replies, fragments.

use super::frames::*;
use quietline_net::forward::checksum::{Sum, checksum};
use quietline_net::forward::header::{Icmp, Ipv4, Ipv6, ether, protocol};
use quietline_net::forward::*;
use quietline_net::packet::{DropReason, Frag, Packets};
use std::net::{Ipv4Addr, Ipv6Addr};
use zerocopy::IntoBytes;

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

/// Errors by an interface without an address that is known beyond its link come from another one's,
/// as those of IPv4 do; to the link, and if there is none, from its own.
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

/// The answer to an echo that is too long for its way back is cut, of IPv4, whether or not the
/// request might be; of IPv6 it is dropped as what it is.
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

/// A fragment that would end behind the longest packet is not cut: its pieces would say that they
/// are somewhere else. One that ends just there is.
#[test]
fn fragments_behind_the_end() {
    let packets = Packets::new().unwrap();
    let of = with_neighbours(&packets);
    // Bytes, 1,256 of which fit into the first piece; the place of the fragment; and those of its
    // pieces.
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
