//! How packets end: each that came in once, and counted as that.

use super::frames::*;
use super::neighbours::arp;
use quietline_net::forward::checksum::{Sum, checksum};
use quietline_net::forward::header::{Ethernet, Icmp, Ipv4, ether, protocol};
use quietline_net::forward::*;
use quietline_net::packet::{DropReason, Event, Frag, Listener, Packets, Skb, listen};
use std::net::Ipv4Addr;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::thread::{self, ThreadId};
use std::time::Duration;
use zerocopy::IntoBytes;

/// What came in, less all ways in which it may have ended: packets that wait, but for those that were made here.
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

/// A packet of so many bytes that may not be cut.
fn uncut(to: Ipv4Addr, len: usize) -> Vec<u8> {
    let mut ip = ip4(A4, to, protocol::UDP, 64, len);
    ip.fragment = Ipv4::DONT.into();
    seal(&mut ip);
    frame(LEFT, A, ether::IPV4, &[ip.as_bytes(), &vec![7; len]])
}

/// A packet with options.
fn with_options(options: &[u8], fragment: u16, len: usize) -> Vec<u8> {
    let mut ip = ip4(A4, B4, protocol::UDP, 64, options.len() + len);
    ip.version = 0x45 + (options.len() / 4) as u8;
    ip.fragment = fragment.into();
    ip.checksum = 0.into();
    ip.checksum = u16::from_be_bytes(checksum(&[ip.as_bytes(), options].concat())).into();
    frame(LEFT, A, ether::IPV4, &[ip.as_bytes(), options, &vec![9; len]])
}

#[test]
fn what_is_dropped_was_not_sent_on() {
    quietline_testing::isolated!();
    let packets = Packets::new().unwrap();
    let of = with_neighbours(&packets);
    handle(&of, &packets, 0, &[uncut(B4, 1380), udp6(A6, B6, 64, &[0; 1300])], 0);
    let counts = of.counts();
    assert_eq!((counts[DropReason::PacketTooBig], counts[Count::Errors]), (2, 2));
    assert_eq!(
        (counts[Count::Forwarded4], counts[Count::Forwarded6], not_ended(&counts)),
        (0, 0, 0)
    );
    // Nobody answers for this neighbour, nor does anybody for the one who asks for ours: his answer is one of our own.
    let (nobody, silent) = (Ipv4Addr::new(10, 0, 2, 66), Ipv4Addr::new(10, 0, 1, 66));
    let mut echo = Icmp { kind: 8, code: 0, checksum: [0; 2], rest: [0; 4] };
    echo.checksum = Sum::default().with(echo.as_bytes()).checksum();
    let ip = ip4(silent, LEFT4, protocol::ICMP, 64, Icmp::LEN);
    let echo = frame(LEFT, A, ether::IPV4, &[ip.as_bytes(), echo.as_bytes()]);
    handle(&of, &packets, 0, &[udp4(A4, nobody, 64, b""), echo], 0);
    assert_eq!((of.waiting(), not_ended(&of.counts())), (2, 1));
    let told: usize = (1..5).map(|i| handle(&of, &packets, 0, &[], i * 1001).len()).sum();
    // Two questions more for each; and A is told of the first, but nobody of an answer of ours.
    assert_eq!(told, 2 * 2 + 1);
    let counts = of.counts();
    assert_eq!((counts[DropReason::NeighbourFailed], counts[Count::OwnDropped]), (2, 1));
    assert_eq!((counts[Count::Forwarded4], counts[Count::Echoes], of.waiting()), (0, 1, 0));
    assert_eq!(not_ended(&counts), 0);
}

/// What a device leaves was not sent on; also of a run that was given to it at once.
#[test]
fn what_is_not_sent_was_not_sent_on() {
    quietline_testing::isolated!();
    let packets = Packets::new().unwrap();
    for n in [1, 20, 64, 150] {
        let of = with_neighbours(&packets);
        let mut lane = of.lane().unwrap();
        let mut batch: Vec<_> =
            (0..n).map(|_| Some(skb(&packets, &udp4(A4, FAR4, 64, b"")))).collect();
        batch.extend((0..n).map(|_| Some(skb(&packets, &udp6(A6, FAR6, 64, b"")))));
        // Answered by us.
        batch.push(Some(skb(&packets, &udp4(A4, B4, 1, b""))));
        let mut taken = [0; 2];
        let mut out = |interface, batch: &mut [Option<Skb<'_>>]| {
            for place in batch.iter_mut().step_by(3).filter(|_| interface == 1) {
                let skb = place.take().unwrap();
                taken[usize::from(skb.data()[12..14] == [0x86, 0xdd])] += 1;
            }
        };
        of.handle(&mut lane, 0, &mut batch, Duration::ZERO, &mut out);
        let counts = of.counts();
        assert_eq!([counts[Count::Forwarded4], counts[Count::Forwarded6]], taken);
        let left = 2 * n as u64 - taken[0] - taken[1] + 1;
        assert_eq!((counts[Count::NotSent], counts[DropReason::QueueFull]), (left, left));
        assert_eq!((counts[Count::OwnDropped], not_ended(&counts)), (1, 0), "{n}");
        assert_eq!(packets.head_stats().active, 0);
    }
}

/// What an Ethernet adds to short packets does not go on, whoever has a part in them.
#[test]
fn what_is_added_to_short_packets() {
    quietline_testing::isolated!();
    let packets = Packets::new().unwrap();
    let of = with_neighbours(&packets);
    for (short, len) in [(udp4(A4, B4, 64, b""), 42), (udp6(A6, B6, 64, b""), 62)] {
        let mut padded = short.clone();
        padded.resize(70, 0xee);
        let others = [skb(&packets, &padded), skb(&packets, &padded)];
        let mut pieces = skb(&packets, &short);
        pieces.add_frag(Frag::copy_of(&padded[len..]).unwrap()).unwrap();
        let batch =
            [skb(&packets, &padded), others[0].get(), others[1].clone_skb().unwrap(), pieces];
        let sent = pass(&of, 0, &mut batch.map(Some), 0);
        assert_eq!(sent.len(), 4);
        assert!(sent.iter().all(|(_, bytes)| bytes.len() == len && bytes[12..20] == short[12..20]));
        assert!(others.iter().all(|other| other.data() == padded));
    }
    assert_eq!((of.counts().dropped(), not_ended(&of.counts())), (0, 0));
    assert_eq!(packets.head_stats().active, 0);
}

struct Random(u64);

impl Random {
    fn below(&mut self, n: usize) -> usize {
        self.0 =
            self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) as usize % n
    }

    fn pick<T: Clone>(&mut self, of: &[T]) -> T {
        of[self.below(of.len())].clone()
    }

    fn frame(&mut self) -> Vec<u8> {
        let near = Ipv4Addr::new(10, 0, 2, self.below(30) as u8);
        let to4 =
            self.pick(&[B4, FAR4, FAR4, near, near, LEFT4, RIGHT4, Ipv4Addr::new(8, 8, 8, 8), A4]);
        let from4 =
            self.pick(&[A4, A4, A4, A4, Ipv4Addr::new(10, 0, 1, 66), RIGHT4, Ipv4Addr::LOCALHOST]);
        let to6 = self.pick(&[
            B6,
            FAR6,
            LEFT6,
            "2001:db8:2::66".parse().unwrap(),
            "ff02::1".parse().unwrap(),
        ]);
        let ttl = self.pick(&[64, 64, 64, 1]);
        let len = self.pick(&[0, 10, 600, 1400]);
        let mut frame = match self.below(12) {
            0..6 => udp4(from4, to4, ttl, &vec![1; len]),
            6 => udp6(A6, to6, ttl, &vec![2; len]),
            7 => icmp6(LEFT, A6, to6, ttl, 128, [0; 4], &vec![2; len]),
            8 => uncut(to4, len + 8),
            9 => with_options(&self.pick(&[[7, 3, 4, 0], [148, 4, 0, 0], [131, 3, 4, 0]]), 0, len),
            10 => arp(1 + self.below(2) as u16, (A, from4), (LEFT, to4)),
            _ => {
                let mut echo = Icmp { kind: 8, code: 0, checksum: [0; 2], rest: [0; 4] };
                echo.checksum = Sum::default().with(echo.as_bytes()).with(&vec![3; len]).checksum();
                let ip = ip4(from4, to4, protocol::ICMP, ttl, Icmp::LEN + len);
                frame(LEFT, A, ether::IPV4, &[ip.as_bytes(), echo.as_bytes(), &vec![3; len]])
            }
        };
        match self.below(20) {
            0 => frame[0] = 4,
            1 => frame.truncate(self.below(40)),
            2 => {
                let at = self.below(frame.len());
                frame[at] ^= 1 << self.below(8);
            }
            _ => {}
        }
        frame
    }
}

/// Packets of all kinds, whole, shared, in pieces; devices that take some; neighbours that answer, are entered, or are silent: each
/// packet that came in has ended once.
#[test]
fn each_packet_ends_once() {
    quietline_testing::isolated!();
    let packets = Packets::new().unwrap();
    let mut random = Random(1);
    let mut seen = [0; 6];
    for _ in 0..if cfg!(debug_assertions) { 30 } else { 300 } {
        let of = forwarder(&packets);
        let mut lane = of.lane().unwrap();
        let (mut now, mut came, mut went) = (0, 0, 0);
        for _ in 0..40 {
            let mut others = Vec::new();
            let run = random.frame();
            let alike = random.below(3) == 0;
            let mut batch: Vec<_> = (0..random.below(130))
                .map(|_| {
                    let frame = if alike { run.clone() } else { random.frame() };
                    let mut packet = if frame.len() > 80 && random.below(8) == 0 {
                        let at = 60 + random.below(20);
                        let mut packet = skb(&packets, &frame[..at]);
                        packet.add_frag(Frag::copy_of(&frame[at..]).unwrap()).unwrap();
                        packet
                    } else {
                        skb(&packets, &frame)
                    };
                    match random.below(16) {
                        0 => others.push(packet.get()),
                        1 => others.push(packet.clone_skb().unwrap()),
                        2 => packet = packet.copy().unwrap(),
                        _ => {}
                    }
                    Some(packet)
                })
                .collect();
            came += batch.len() as u64;
            now += [0, 5, 400, 1100, 35_000][random.below(5)];
            match random.below(8) {
                0 => of
                    .set_neighbour4(1, Ipv4Addr::new(10, 0, 2, random.below(30) as u8), B)
                    .unwrap(),
                1 => of.set_neighbour4(1, B4, B).unwrap(),
                2 => of.set_neighbour6(1, B6, B).unwrap(),
                _ => {}
            }
            let takes = random.pick(&[0, 1, 1, 1, 2, 3]);
            let mut out = |_, batch: &mut [Option<Skb<'_>>]| {
                let places = batch.iter_mut().enumerate();
                let taken = places
                    .filter(|(i, _)| takes > 0 && i % takes == 0)
                    .filter_map(|(_, place)| place.take());
                went += taken.count() as u64;
            };
            of.handle(&mut lane, 0, &mut batch, Duration::from_millis(now), &mut out);
            let (counts, waits) = (of.counts(), of.waiting() as i64);
            assert!((0..=waits).contains(&not_ended(&counts)), "{counts:?}");
            assert_eq!(counts[Count::NotSent], counts[DropReason::QueueFull]);
        }
        // Until all neighbours are given up, and then those of who is told of that.
        for _ in 0..2 * (TRIES + 2) {
            now += 1001;
            of.handle(&mut lane, 0, &mut [], Duration::from_millis(now), &mut |_, batch| {
                went += batch.iter_mut().filter_map(Option::take).count() as u64;
            });
        }
        let counts = of.counts();
        assert_eq!(
            (of.waiting(), counts[Count::Received], not_ended(&counts)),
            (0, came, 0),
            "{counts:?}"
        );
        let on = counts[Count::Forwarded4] + counts[Count::Forwarded6];
        assert!(on <= went, "{on} of {went}");
        for (seen, n) in seen.iter_mut().zip([
            counts[Count::Forwarded4],
            counts[Count::Forwarded6],
            counts[Count::Echoes],
            counts[Count::OwnDropped],
            counts[Count::NotSent],
            counts[DropReason::NeighbourFailed],
        ]) {
            *seen += n;
        }
        assert_eq!(packets.head_stats().active, 0);
    }
    assert!(seen.iter().all(|seen| *seen > 100), "{seen:?}");
}

/// Who waits for a neighbour that is then entered by hand goes, before those that come later.
#[test]
fn what_waits_for_a_neighbour_that_is_entered() {
    quietline_testing::isolated!();
    let packets = Packets::new().unwrap();
    let of = forwarder(&packets);
    let frames = |from: u8| -> Vec<Vec<u8>> {
        let number = |i| {
            if i % 2 == 0 {
                udp4(A4, FAR4, 64, &[from + i])
            } else {
                udp6(A6, FAR6, 64, &[from + i])
            }
        };
        (0..4).map(number).collect()
    };
    assert_eq!(handle(&of, &packets, 0, &frames(0), 10).len(), 2, "two questions");
    assert_eq!(of.waiting(), 4);
    of.set_neighbour4(1, B4, B).unwrap();
    of.set_neighbour6(1, B6, B).unwrap();
    // An answer that comes now changes nothing of that.
    let liar = [2, 9, 9, 9, 9, 9];
    let mut sent = handle(&of, &packets, 1, &[arp(2, (liar, B4), (RIGHT, RIGHT4))], 11);
    assert_eq!((sent.len(), of.waiting()), (4, 0));
    sent.extend(handle(&of, &packets, 0, &frames(4), 12));
    for start in [0, 1] {
        let kind = if start == 0 { ether::IPV4 } else { ether::IPV6 };
        let is_kind = |bytes: &[u8]| Ethernet::of(bytes).unwrap().0.protocol.get() == kind;
        let numbers: Vec<u8> = sent
            .iter()
            .filter(|(_, bytes)| is_kind(bytes))
            .map(|(_, bytes)| *bytes.last().unwrap())
            .collect();
        assert_eq!(numbers, [start, start + 2, start + 4, start + 6]);
    }
    assert!(sent.iter().all(|(interface, bytes)| *interface == 1 && bytes[..6] == B));
    // In the batch that comes next, before it.
    let other = Ipv4Addr::new(10, 0, 2, 50);
    handle(&of, &packets, 0, &[udp4(A4, other, 64, &[0])], 20);
    of.set_neighbour4(1, other, B).unwrap();
    let later = vec![udp4(A4, other, 64, &[1]); 70];
    let sent = handle(&of, &packets, 0, &later, 21);
    assert_eq!((sent.len(), sent[0].1.last(), sent[1].1.last()), (71, Some(&0), Some(&1)));
    let counts = of.counts();
    assert_eq!((counts.dropped(), counts[Count::Forwarded4], not_ended(&counts)), (0, 4 + 71, 0));
}

/// Counts packets that a thread drops because nobody knows their neighbour.
struct Told {
    thread: OnceLock<ThreadId>,
    failed: AtomicUsize,
}

static TOLD: Told = Told { thread: OnceLock::new(), failed: AtomicUsize::new(0) };

impl Listener for Told {
    fn ended(&self, _packet: usize, event: Event) {
        let here = self.thread.get() == Some(&thread::current().id());
        self.failed.fetch_add(
            usize::from(here && event == Event::Dropped(DropReason::NeighbourFailed)),
            Relaxed,
        );
    }
}

/// What waits for a neighbour when the forwarder ends is dropped, and tracers are told.
#[test]
fn what_waits_at_the_end() {
    quietline_testing::isolated!();
    let packets = Packets::new().unwrap();
    let of = forwarder(&packets);
    handle(
        &of,
        &packets,
        0,
        &[udp4(A4, B4, 64, b""), udp6(A6, B6, 64, b""), udp6(A6, B6, 64, b"")],
        0,
    );
    assert_eq!((of.waiting(), not_ended(&of.counts()), packets.head_stats().active), (3, 3, 3));
    TOLD.thread.set(thread::current().id()).unwrap();
    assert!(listen(Some(&TOLD)).is_ok());
    drop(of);
    assert!(listen(None).is_ok());
    assert_eq!((TOLD.failed.load(Relaxed), packets.head_stats().active), (3, 0));
}

/// Options that are to be copied are in each piece of a packet that is cut, the others in the first one only (RFC 791).
#[test]
fn options_of_pieces() {
    quietline_testing::isolated!();
    let packets = Packets::new().unwrap();
    let of = with_neighbours(&packets);
    // Record route, which is for the first piece; security, which is for all; nothing; router alert; time stamps.
    let options = [7, 7, 4, 0, 0, 0, 0, 130, 4, 1, 2, 1, 148, 4, 0, 0, 68, 4, 5, 0];
    let others = [1, 1, 1, 1, 1, 1, 1, 130, 4, 1, 2, 1, 148, 4, 0, 0, 1, 1, 1, 1];
    let pieces = |fragment| -> Vec<Vec<u8>> {
        handle(&of, &packets, 0, &[with_options(&options, fragment, 2500)], 0)
            .into_iter()
            .map(|(_, bytes)| {
                let head = 20 + options.len();
                assert!(Sum::default().with(&bytes[14..14 + head]).is_right(), "checksum");
                assert!(
                    bytes.len() <= 14 + 1280 && bytes[14 + head..].iter().all(|byte| *byte == 9)
                );
                bytes[34..14 + head].to_vec()
            })
            .collect()
    };
    let mut first = options;
    first[2..7].copy_from_slice(&[8, 10, 0, 2, 1]);
    assert_eq!(pieces(0), [&first[..], &others, &others]);
    // A piece that is cut again is not the first.
    assert_eq!(pieces(400), [&others[..], &others, &others]);
    // Behind the end of all options nothing is one.
    let ended = [148, 4, 0, 0, 0, 7, 3, 4];
    let sent = handle(&of, &packets, 0, &[with_options(&ended, 0, 1400)], 0);
    assert_eq!(sent.len(), 2);
    assert!(sent.iter().all(|(_, bytes)| bytes[34..42] == ended));
    let counts = of.counts();
    assert_eq!(
        (counts[Count::Fragments], counts[Count::Forwarded4], not_ended(&counts)),
        (8, 3, 0)
    );
}

/// Who forwards writes his address into a Record Route, where there is room, and nothing else (RFC 791, section 3.1; RFC 1812, section 5.3.13.5).
#[test]
fn ways_that_are_recorded() {
    quietline_testing::isolated!();
    let packets = Packets::new().unwrap();
    let left = Interface::new(LEFT, 1500).v4(LEFT4, 24);
    let right = Interface::new(RIGHT, 1280).v4(Ipv4Addr::new(10, 0, 3, 1), 24).v4(RIGHT4, 24);
    let of = Forwarder::new(&packets, vec![left, right]).unwrap();
    of.set_neighbour4(1, B4, B).unwrap();
    let through = |options: &[u8]| {
        let frame = with_options(options, 0, 30);
        // Also of one that others have a part in, whose bytes stay as they are.
        let mut batch = [Some(skb(&packets, &frame)), Some(skb(&packets, &frame))];
        let other = batch[1].as_ref().unwrap().clone_skb().unwrap();
        let sent = pass(&of, 0, &mut batch, 0);
        assert_eq!(other.data(), frame);
        assert!(sent.len() == 2 && sent[0] == sent[1], "{sent:x?}");
        let bytes = &sent[0].1;
        assert!(Sum::default().with(&bytes[14..34 + options.len()]).is_right(), "checksum");
        assert_eq!((sent[0].0, bytes[22], &bytes[34 + options.len()..]), (1, 63, &[9; 30][..]));
        bytes[34..34 + options.len()].to_vec()
    };
    // The address is that which the next station knows, wherever in a word it lies.
    for nothing in 0..4 {
        for before in 0..3u8 {
            for after in 0..3u8 {
                let addresses = usize::from(before + 1 + after);
                let option = |next: u8| -> Vec<u8> {
                    let head = [7, 3 + 4 * addresses as u8, next];
                    [&[1].repeat(nothing), &head[..], &vec![0xee; 4 * addresses]].concat()
                };
                let mut filled = option(4 * before + 8);
                let at = nothing + 3 + usize::from(before) * 4;
                filled[at..at + 4].copy_from_slice(&RIGHT4.octets());
                let padded = |mut bytes: Vec<u8>| {
                    bytes.resize(bytes.len().next_multiple_of(4), 0);
                    bytes
                };
                assert_eq!(through(&padded(option(4 * before + 4))), padded(filled));
            }
        }
    }
    // Full ones, others, and what is behind the end go on as they came.
    for same in [
        &[7, 7, 8, 1, 2, 3, 4, 0][..],
        &[7, 7, 255, 1, 2, 3, 4, 0],
        &[7, 3, 4, 1],
        &[68, 8, 5, 0, 0, 0, 0, 0],
        &[0, 7, 7, 4, 0, 0, 0, 0],
        &[130, 7, 4, 0, 0, 0, 0, 1],
    ] {
        assert_eq!(through(same), same);
    }
    // A way by which there is no address: any other of ours.
    let none = Interface::new(RIGHT, 1280);
    let of =
        Forwarder::new(&packets, vec![Interface::new(LEFT, 1500).v4(LEFT4, 24), none]).unwrap();
    let b = Prefix::new(B4, 32).unwrap();
    of.routes4().insert(b, NextHop { interface: 1, via: Via::Link }).unwrap();
    of.set_neighbour4(1, B4, B).unwrap();
    let sent = handle(&of, &packets, 0, &[with_options(&[7, 7, 4, 0, 0, 0, 0, 0], 0, 30)], 0);
    assert_eq!(one(sent).1[34..42], [7, 7, 8, 10, 0, 1, 1, 0]);
}

/// Options that make no sense are told to the sender, and where.
#[test]
fn options_that_make_no_sense() {
    quietline_testing::isolated!();
    let packets = Packets::new().unwrap();
    let of = with_neighbours(&packets);
    let cases: [(&[u8], u8); 10] = [
        (&[7, 1, 0, 0], 21),
        (&[7, 5, 0, 0], 21),
        (&[1, 1, 1, 9], 23),
        (&[1, 9, 0, 0], 22),
        (&[7, 2, 1, 1], 21),
        // Pointers: into the option's head; to less room than an address takes.
        (&[7, 7, 3, 0, 0, 0, 0, 0], 22),
        (&[1, 7, 7, 0, 0, 0, 0, 0], 23),
        (&[7, 7, 5, 0, 0, 0, 0, 0], 22),
        (&[7, 6, 4, 0, 0, 0, 0, 0], 22),
        // One more.
        (&[7, 3, 4, 7, 7, 4, 0, 0, 0, 0, 0, 0], 23),
    ];
    for (options, at) in cases {
        let frame = with_options(options, 0, 20);
        let (interface, error) = one(handle(&of, &packets, 0, std::slice::from_ref(&frame), 0));
        let (_, ip, said, quoted) = error4(&error);
        assert_eq!(
            (interface, ip.destination(), said),
            (0, A4, (12, 0, [at, 0, 0, 0])),
            "{options:?}"
        );
        assert_eq!(quoted, &frame[14..], "as it came");
    }
    let counts = of.counts();
    let n = cases.len() as u64;
    assert_eq!(
        (counts[DropReason::BadHeader], counts[Count::Errors], not_ended(&counts)),
        (n, n, 0)
    );
}

/// What says that it is from one of our own addresses is not; as on Linux, whatever is asked of other sources.
#[test]
fn own_addresses_as_sources() {
    quietline_testing::isolated!();
    let packets = Packets::new().unwrap();
    let of = with_neighbours(&packets);
    let mut frames = Vec::new();
    for i in 0..100 {
        frames.push(udp4(A4, FAR4, 64, &[i]));
        if i % 10 == 0 {
            frames.push(udp4(RIGHT4, FAR4, 64, &[i]));
            frames.push(udp4(LEFT4, A4, 64, &[i]));
            frames.push(udp4(LEFT4, LEFT4, 64, &[i]));
            frames.push(udp4(RIGHT4, Ipv4Addr::new(8, 8, 8, 8), 1, &[i]));
        }
    }
    let sent = handle(&of, &packets, 0, &frames, 0);
    assert!(sent.len() == 100 && sent.iter().all(|(_, bytes)| parse4(bytes).1.source() == A4));
    let counts = of.counts();
    assert_eq!(
        (counts[DropReason::Martian], counts[Count::Errors], not_ended(&counts)),
        (40, 0, 0)
    );
    // All others on the same links are.
    for host in 2..=254 {
        let from = Ipv4Addr::new(10, 0, 1, host);
        assert_eq!(handle(&of, &packets, 0, &[udp4(from, FAR4, 64, b"")], 0).len(), 1);
    }
}
