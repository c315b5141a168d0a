//! The forwarding path, packet by packet: neighbour resolution.

use super::frames::*;
use quietline_net::forward::header::{Arp, Ethernet, Link, Neighbour, ether};
use quietline_net::forward::*;
use quietline_net::packet::{DropReason, Packets};
use std::net::{Ipv4Addr, Ipv6Addr};
use zerocopy::IntoBytes;

pub(super) fn arp(operation: u16, sender: (Link, Ipv4Addr), target: (Link, Ipv4Addr)) -> Vec<u8> {
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
    // A neighbour asks for our address: it is answered, and known from then on.
    let (interface, reply) = one(handle(&of, &packets, 0, &[arp(1, (A, A4), ([0; 6], LEFT4))], 0));
    assert_eq!((interface, &reply[..6]), (0, &A[..]));
    assert_eq!(reply[14..], arp(2, (LEFT, LEFT4), (A, A4))[14..]);
    assert_eq!(of.neighbours(), [1, 0]);
    // A question for another address, or from elsewhere: nothing.
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
    // (A asks for something: else it would be forgotten.)
    handle(&of, &packets, 0, &[arp(1, (A, A4), ([0; 6], LEFT4))], at);
    for _ in 0..TRIES {
        assert_eq!(handle(&of, &packets, 0, &frames[..1], at).len(), 2);
        at += 1000;
    }
    assert_eq!(handle(&of, &packets, 0, &frames[..1], at).len(), 1, "the last");
    let sent = handle(&of, &packets, 0, &frames[..1], at + 1);
    assert_eq!(one(sent).1[..6], [0xff; 6], "and another question to all");
    // Two questions more, and then the sender is told.
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

pub(super) fn neighbour(link_option: u8, target: Ipv6Addr, link: Link) -> Vec<u8> {
    Neighbour { target: target.octets(), option: link_option, option_len: 1, link }
        .as_bytes()
        .to_vec()
}

/// What a route remembers of its gateway is true: one that moves, gets old, is forgotten, or whose
/// place is another's now, is seen by the next packet.
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
    // By hand, and back: a neighbour entered by hand stays.
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
    // An unused neighbour is forgotten, and others take its slot.
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

/// A neighbour entered by hand stays where it was entered, whatever the link says, and is never
/// asked for or forgotten.
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
    // A neighbour asks for our address.
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
    // Another link address only if it is said to replace the one that is known; else that one is
    // asked.
    let moved = [2, 9, 9, 9, 9, 9];
    handle(&of, &packets, 1, &[answer(moved, 0x40)], 30);
    let sent = handle(&of, &packets, 0, &frames[..1], 40);
    assert!(sent.len() == 2 && sent.iter().all(|(_, bytes)| bytes[..6] == B), "{sent:x?}");
    handle(&of, &packets, 1, &[answer(moved, 0x60)], 50);
    assert_eq!(one(handle(&of, &packets, 0, &frames[..1], 60)).1[..6], moved);
    // A neighbour that does not answer: the sender is told.
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
