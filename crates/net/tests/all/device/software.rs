//! Devices: rings and their edges, and packets that are counted at the other end: none lost, none
//! twice, none kept.

use quietline_net::device::*;
use quietline_net::packet::{DropReason, PacketError, Packets, Skb};
use rustix::io::Errno;
use std::thread;
use std::time::{Duration, Instant};

/// Nothing is out.
fn assert_empty(packets: &Packets) {
    assert_eq!(packets.head_stats().active, 0, "heads");
    assert_eq!(packets.data_stats().map(|stats| stats.active), [0; 4], "data");
}

/// A packet of one byte.
fn numbered(packets: &Packets, number: u8) -> Skb<'_> {
    let mut skb = packets.alloc_skb(1).unwrap();
    skb.put_data(&[number]).unwrap();
    skb
}

fn numbers(batch: &Batch<'_>) -> Vec<u8> {
    batch.iter().map(|skb| skb.data()[0]).collect()
}

#[test]
fn batches() {
    let packets = Packets::new().unwrap();
    let mut batch = Batch::new();
    assert!(batch.is_empty() && batch.pop().is_none() && batch.first().is_none());
    for i in 0..BATCH {
        assert_eq!((batch.len(), batch.room()), (i, BATCH - i));
        batch.push(numbered(&packets, i as u8)).unwrap();
    }
    let refused = batch.push(numbered(&packets, 200)).unwrap_err();
    assert_eq!(refused.data(), [200]);
    assert_eq!(batch.pop().unwrap().data(), [0]);
    batch.push(refused).unwrap();
    assert_eq!(batch.first().unwrap().data(), [1]);
    let expected: Vec<u8> = (1..BATCH as u8).chain([200]).collect();
    assert_eq!(numbers(&batch), expected);
    batch.iter_mut().for_each(|skb| skb.set_mark(7).unwrap());
    assert!(batch.iter().all(|skb| skb.mark() == 7));
    let mut from = [Some(numbered(&packets, 70)), None, Some(numbered(&packets, 71))];
    assert_eq!((batch.take_from(&mut from), batch.pop().unwrap().data()), (0, &[1][..]));
    assert_eq!((batch.take_from(&mut from), batch.len()), (1, BATCH));
    assert!(from[0].is_none() && from[2].is_some());
    drop(from);
    let seen = batch.hand_over(|places| {
        assert!(places.iter().all(Option::is_some));
        drop(places[3].take());
        places.len()
    });
    assert_eq!(
        (seen, batch.len(), packets.head_stats().active),
        (BATCH, 0, 0),
        "what is left ends"
    );
    let mut batch_of = (0..BATCH as u8).map(|i| numbered(&packets, i));
    batch_of.try_for_each(|skb| batch.push(skb)).unwrap();
    assert_eq!(batch.consume(), BATCH);
    batch.push(numbered(&packets, 1)).unwrap();
    assert_eq!(batch.kfree(DropReason::NoRoute), 1);
    batch.push(numbered(&packets, 1)).unwrap();
    drop(batch);
    assert_empty(&packets);
}

#[test]
fn rings_and_their_edges() {
    let packets = Packets::new().unwrap();
    for wrong in [0, 3, 1 << 17] {
        assert_eq!(TxRing::new(wrong).unwrap_err(), Errno::INVAL);
        assert_eq!(Pair::new(wrong).unwrap_err(), Errno::INVAL);
    }
    // The cursors wrap on the way, in debug builds.
    let mut ring = TxRing::new(4).unwrap();
    for turn in 0..100u8 {
        assert_eq!((ring.room(), ring.pending(), ring.completed()), (4, 0, 0));
        for i in 0..4 {
            ring.put(numbered(&packets, turn.wrapping_add(i))).unwrap();
        }
        assert!(ring.put(numbered(&packets, 9)).is_err());
        assert_eq!(ring.complete(64), 0, "nothing is sent");
        let mut left = 3;
        let sent = ring.send(|skb| {
            assert_eq!(skb.data()[0], turn.wrapping_add(3 - left));
            left = left.saturating_sub(1);
            left > 0
        });
        assert_eq!((sent, ring.pending(), ring.completed(), ring.room()), (2, 2, 2, 0));
        assert_eq!(ring.complete(1), 1);
        assert_eq!(ring.complete_in_place(64), 1);
        assert_eq!((ring.room(), packets.head_stats().active), (2, 2));
        assert_eq!(ring.send(|_| true), 2);
        let mut seen = Vec::new();
        assert_eq!(ring.complete_with(64, |skb| seen.push(skb.data()[0])), 2);
        assert_eq!(seen, [turn.wrapping_add(2), turn.wrapping_add(3)]);
    }
    ring.put(numbered(&packets, 1)).unwrap();
    assert_eq!(format!("{ring:?}"), "TxRing { size: 4, pending: 1, completed: 0 }");
    drop(ring);
    assert_empty(&packets);
}

#[test]
fn what_has_no_room_is_dropped_and_counted() {
    let packets = Packets::new().unwrap();
    let [mut a, mut b] = Pair::new(4).unwrap();
    let mut lo = Loopback::new(4).unwrap();
    let mut sink = Sink::new(4, 1).unwrap();
    let batch_of = |n: u8| {
        let mut batch = Batch::new();
        (0..n).for_each(|i| batch.push(numbered(&packets, i)).unwrap());
        batch
    };
    for device in [&mut a as &mut dyn NetDevice<'_>, &mut lo] {
        let mut batch = batch_of(6);
        assert_eq!(
            (device.xmit(&mut batch), numbers(&batch)),
            (4, vec![4, 5]),
            "what is left stays"
        );
        assert_eq!((device.send(&mut batch), batch.len()), (0, 0));
        let stats = device.stats();
        assert_eq!(
            (stats.tx_packets, stats.tx_bytes, stats.dropped(DropReason::QueueFull)),
            (4, 4, 2)
        );
        assert_eq!(stats.drops().collect::<Vec<_>>(), [(DropReason::QueueFull, 2)]);
    }
    assert_eq!(packets.head_stats().active, 8);
    let mut batch = batch_of(10);
    assert_eq!(sink.send(&mut batch), 8, "it completes to make room");
    assert_eq!(sink.stats().dropped(DropReason::QueueFull), 2);
    assert_eq!(sink.tally(), Tally { foreign: 8, ..Tally::default() });

    for device in [&mut b as &mut dyn NetDevice<'_>, &mut lo] {
        let mut batch = Batch::new();
        assert_eq!(device.poll(3, &mut batch), Ok(3), "the budget");
        assert_eq!(device.poll(64, &mut batch), Ok(1));
        assert_eq!(device.poll(64, &mut batch), Ok(0));
        assert_eq!(numbers(&batch), [0, 1, 2, 3]);
        assert_eq!((device.stats().rx_packets, device.complete(64)), (4, 0));
    }
    // A full batch takes no more.
    let mut full = batch_of(BATCH as u8);
    lo.send(&mut batch_of(1));
    assert_eq!(lo.poll(64, &mut full), Ok(0));
    // What nobody takes ends with the pair.
    a.send(&mut batch_of(3));
    drop((a, b, lo, sink, full));
    assert_empty(&packets);
}

/// The sum of the words, by a loop that cannot be wrong, over parts that each begin at an even
/// place.
fn check(parts: &[&[u8]]) -> u16 {
    let mut sum = 0u32;
    for part in parts {
        for (i, byte) in part.iter().enumerate() {
            sum += if i % 2 == 0 { u32::from(*byte) << 8 } else { u32::from(*byte) };
            sum = (sum & 0xffff) + (sum >> 16);
        }
    }
    !(sum as u16)
}

#[test]
fn generated_packets_are_well_formed() {
    let packets = Packets::new().unwrap();
    let v4 = Traffic { flows: 70_000, ports: [65_535, 53], ..Traffic::default() };
    let v6 = Traffic { ends: Ends::TEST_V6, ..v4 };
    for (traffic, size) in [(v4, 64), (v4, 65), (v4, 1514), (v6, 78), (v6, 79), (v6, 1514)] {
        let traffic = Traffic { size, ..traffic };
        let mut generator = Generator::new(&packets, &traffic).unwrap();
        let mut batch = Batch::new();
        for n in 0..140_003u32 {
            if batch.is_empty() {
                generator.poll(64, &mut batch).unwrap();
            }
            let skb = batch.pop().unwrap();
            if n % 997 != 0 && n != 65_536 && n < 139_990 {
                continue;
            }
            let frame = skb.data();
            assert_eq!(
                (frame.len(), &frame[..12]),
                (size, &[2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1][..])
            );
            let flow = n % 70_000;
            let (udp, low) = if traffic.ends == Ends::TEST_V4 {
                assert_eq!(frame[12..16], [8, 0, 0x45, 0]);
                assert_eq!(usize::from(u16::from_be_bytes([frame[16], frame[17]])), size - 14);
                assert_eq!((frame[22], frame[23], check(&[&frame[14..34]])), (64, 17, 0));
                assert_eq!(
                    (&frame[26..28], &frame[30..34]),
                    (&[198, 18][..], &[198, 19, 0, 1][..])
                );
                (34, &frame[28..30])
            } else {
                assert_eq!(frame[12..18], [0x86, 0xdd, 0x60, 0, 0, 0]);
                assert_eq!(usize::from(u16::from_be_bytes([frame[18], frame[19]])), size - 54);
                assert_eq!(frame[20..22], [17, 64]);
                (54, &frame[36..38])
            };
            assert_eq!(u16::from_be_bytes([low[0], low[1]]), 1u16.wrapping_add(flow as u16));
            let port = u16::from_be_bytes([frame[udp], frame[udp + 1]]);
            assert_eq!(port, 65_535u16.wrapping_add((flow >> 16) as u16));
            let len = (size - udp) as u16;
            assert_eq!(
                frame[udp + 2..udp + 6],
                [0, 53, len.to_be_bytes()[0], len.to_be_bytes()[1]]
            );
            let addresses = if udp == 34 { 26 } else { 22 };
            assert_ne!(frame[udp + 6..udp + 8], [0, 0]);
            let sums = [&frame[addresses..udp], &[0, 17], &len.to_be_bytes(), &frame[udp..]];
            assert_eq!(check(&sums), 0, "packet {n}");
            assert_eq!(frame[udp + 8..udp + 12], *b"QLgn");
            assert_eq!(frame[udp + 12..udp + 16], flow.to_be_bytes());
            assert_eq!(frame[udp + 16..udp + 24], u64::from(n / 70_000).to_be_bytes());
            assert!(frame[udp + 24..].iter().all(|byte| *byte == 0));
        }
    }
    assert_empty(&packets);
}

#[test]
fn generators_that_cannot_be() {
    let packets = Packets::new().unwrap();
    let usual = Traffic::default();
    for wrong in [
        Traffic { size: 63, ..usual },
        Traffic { size: 1515, ..usual },
        Traffic { size: 77, ends: Ends::TEST_V6, ..usual },
        Traffic { flows: 0, ..usual },
        Traffic { flows: (1 << 24) + 1, ..usual },
    ] {
        assert_eq!(Generator::new(&packets, &wrong).unwrap_err(), Errno::INVAL, "{wrong:?}");
    }
    let mut generator = Generator::new(&packets, &Traffic { count: Some(70), ..usual }).unwrap();
    let mut batch = Batch::new();
    assert_eq!(generator.poll(64, &mut batch), Ok(64));
    assert_eq!(generator.xmit(&mut batch), 0, "it is down in that direction");
    assert_eq!((batch.len(), generator.stats().dropped(DropReason::DeviceDown)), (0, 64));
    let refused = generator.poll_with(64, &mut batch, |_| Err(PacketError::NoMemory));
    assert_eq!((refused, generator.made()), (Err(PacketError::NoMemory), 64));
    assert_eq!(generator.poll_with(64, &mut batch, |len| packets.alloc_skb(len)), Ok(6));
    assert!(generator.is_done() && generator.poll(64, &mut batch) == Ok(0));
    drop(batch);
    assert_empty(&packets);
}

#[test]
fn a_sink_tells_what_is_wrong() {
    let packets = Packets::new().unwrap();
    let mut generator =
        Generator::new(&packets, &Traffic { flows: 2, ..Traffic::default() }).unwrap();
    let mut sink = Sink::new(256, 2).unwrap();
    sink.check_sums(true);
    let mut made = Batch::new();
    generator.poll(64, &mut made).unwrap();
    let mut made: Vec<_> = core::iter::from_fn(|| made.pop()).collect();
    made.swap(10, 12);
    drop(made.remove(30));
    let copy = made[5].copy().unwrap();
    made.insert(7, copy);
    made[3].data_mut().unwrap()[60] ^= 1;
    made[4].data_mut().unwrap()[22] -= 1;
    let mut other_flow = made[0].copy().unwrap();
    other_flow.data_mut().unwrap()[49] = 2;
    made.push(other_flow);
    let mut short = made[0].copy().unwrap();
    short.trim(57).unwrap();
    made.push(short);
    made.push(numbered(&packets, 1));
    for skb in made {
        let mut batch = Batch::new();
        batch.push(skb).unwrap();
        sink.send(&mut batch);
    }
    let expected = Tally {
        received: 64,
        duplicated: 1,
        reordered: 1,
        lost: 1,
        bad_sums: 2,
        foreign: 3,
        late: 0,
    };
    assert_eq!(sink.tally(), expected);
    assert!(!sink.tally().is_exactly(64));
    drop(sink);
    assert_empty(&packets);
}

/// What is not done by then is not done at all.
const LIMIT: Duration = Duration::from_secs(600);

/// Packets of a generator to a sink by way of a pair, a thread at each end.
fn across(packets: &Packets, traffic: &Traffic, ring: usize) {
    let count = traffic.count.unwrap();
    let [mut near, mut far] = Pair::new(ring).unwrap();
    thread::scope(|scope| {
        scope.spawn(move || {
            let mut generator = Generator::new(packets, traffic).unwrap();
            let (mut batch, begun) = (Batch::new(), Instant::now());
            while !generator.is_done() || !batch.is_empty() {
                assert!(begun.elapsed() < LIMIT, "{} made, {:?}", generator.made(), near.stats());
                generator.poll(BUDGET, &mut batch).unwrap();
                if near.xmit(&mut batch) == 0 {
                    thread::yield_now();
                }
            }
            assert_eq!((generator.made(), near.stats().tx_packets), (count, count));
        });
        scope.spawn(move || {
            let mut sink = Sink::new(256, traffic.flows).unwrap();
            sink.check_sums(cfg!(debug_assertions));
            let (mut batch, begun) = (Batch::new(), Instant::now());
            while sink.stats().tx_packets < count {
                assert!(begun.elapsed() < LIMIT, "{:?}", sink.tally());
                if far.poll(BUDGET, &mut batch).unwrap() == 0 {
                    thread::yield_now();
                }
                assert_eq!(
                    sink.send(&mut batch),
                    sink.complete(BUDGET),
                    "as many as are sent are freed"
                );
            }
            assert!(sink.tally().is_exactly(count), "{:?}", sink.tally());
            assert_eq!((sink.stats().drops().count(), far.stats().rx_packets), (0, count));
        });
    });
    assert_empty(packets);
}

#[test]
fn ten_million_packets_none_lost_and_none_twice() {
    let count =
        if cfg!(debug_assertions) { quietline_testing::scaled(100_000) } else { 10_000_000 };
    let packets = Packets::new().unwrap();
    across(&packets, &Traffic { count: Some(count), ..Traffic::default() }, 1024);
    let many = Traffic {
        count: Some(count / 10),
        flows: 1000,
        size: 1514,
        ends: Ends::TEST_V6,
        ..Traffic::default()
    };
    across(&packets, &many, 64);
    across(&packets, &Traffic { count: Some(20_000), ..Traffic::default() }, 1);
}
