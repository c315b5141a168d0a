//! The peer's router does as quietline's, and its checks find out when it does not.

use super::*;
use crate::workloads::forward::FORWARD;

const ROUTED: Forward = Forward { size: 64, way: Way::Routed, in_flight: RING };

/// A packet of the generator's, numbered 0.
fn packet() -> Vec<u8> {
    let mut run = Run::new(ROUTED).expect("it is long enough");
    run.make(1);
    run.batch.pop_front().expect("one was made")
}

#[test]
fn it_has_three_cases() {
    let cases = FORWARD.cases.iter().filter(|case| (column().does)(case.job)).map(|case| case.name);
    assert_eq!(cases.collect::<Vec<_>>(), ["direct-64", "ring-64", "routed-64"]);
}

/// As quietline's generator and router make them, byte for byte.
#[test]
fn packets_are_those_of_quietline() {
    use quietline_net::device::{Batch, Ends, Generator, NetDevice, Traffic};
    use quietline_net::packet::Packets;

    let packets = Box::leak(Box::new(Packets::new().expect("caches")));
    let traffic = Traffic { size: 64, ends: Ends::TEST_V4, ..Traffic::default() };
    let mut generator = Generator::new(packets, &traffic).expect("a generator");
    let mut batch = Batch::new();
    generator.poll(1, &mut batch).expect("a packet");
    let ours = batch.iter().next().expect("one was made").data().to_vec();
    assert_eq!(packet(), ours);

    let router = crate::adapters::forward::router::router(packets).expect("a router");
    let mut lane = router.lane().expect("a lane");
    let mut out = Vec::new();
    let mut keep = |_port: u32, packets: &mut [Option<_>]| {
        let mut batch = Batch::new();
        batch.take_from(packets);
        out.extend(batch.iter().map(|skb| skb.data().to_vec()));
    };
    let now = quietline_platform::clock::monotonic();
    batch.hand_over(|packets| router.handle(&mut lane, 0, packets, now, &mut keep));
    let mut theirs = packet();
    assert!(Router::new().forward(&mut theirs));
    assert_eq!(out, [theirs]);
}

#[test]
fn what_does_not_go_on() {
    let mut router = Router::new();
    // Another station's, ARP, another version, a longer header than there is, a wrong sum.
    for (at, byte) in [(5, 9), (13, 6), (14, 0x65), (14, 0x4f), (24, 0)] {
        let mut other = packet();
        assert_ne!(std::mem::replace(&mut other[at], byte), byte);
        assert!(!router.forward(&mut other), "{byte} at {at}");
    }
    // With a sum that is right: the last hop, to nobody's network, to an unknown neighbour, to the router, from a loopback.
    for (at, bytes) in [
        (22, &[1][..]),
        (30, &[10, 0, 0, 1]),
        (30, &[198, 19, 0, 2]),
        (30, &[198, 19, 255, 254]),
        (26, &[127, 0, 0, 1]),
    ] {
        let mut other = packet();
        other[at..at + bytes.len()].copy_from_slice(bytes);
        Ipv4Packet::new_unchecked(&mut other[14..]).fill_checksum();
        assert!(!router.forward(&mut other), "{bytes:?} at {at}");
    }
    assert_eq!(router.forwarded, 0);
}

#[test]
fn a_packet_that_does_not_come_is_found_out() {
    let mut run = Run::new(ROUTED).expect("it is long enough");
    assert_eq!(run.run(1000, &AtomicBool::new(false)), Ok(1000));
    assert_eq!((run.check(), run.came), (Ok(()), 1000));
    run.make(2);
    run.batch.pop_front();
    run.pass_on();
    assert!(run.check().is_err());
}
