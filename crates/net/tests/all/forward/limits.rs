//! The forwarding path where it fails: no room, no memory, concurrent changes.

use super::frames::*;
use super::neighbours::arp;
use quietline_net::forward::header::{Ethernet, ether};
use quietline_net::forward::*;
use quietline_net::packet::{DropReason, Packets};
use quietline_platform::fault;
use rustix::io::Errno;
use std::net::Ipv4Addr;
use std::time::Duration;

/// Devices that take nothing.
#[test]
fn not_sent() {
    quietline_testing::isolated!();
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
    quietline_testing::isolated!();
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
        // Out: the sender is told; never that the link is narrower than it may be.
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
    quietline_testing::isolated!();
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

/// Two threads forward while routes and neighbours change: each packet goes out whole by one of the
/// two ways, or is dropped, and all are counted.
#[test]
fn several_threads_beside_changes() {
    quietline_testing::isolated!();
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
