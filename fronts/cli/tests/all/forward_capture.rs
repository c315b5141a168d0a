//! What `ql forward` puts on the wire, as others read it: captured by tcpdump at the receiving host, and looked at by tshark, packet by
//! packet. Without these programs the tests say that they are skipped.

use std::fs;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::path::PathBuf;

use rustix::net::sockopt;

use crate::wire::capture::{Capture, assert_seen, assert_well_formed, frames, packets};
use crate::wire::echo::{Listener, ping, sum, until_answered};
use crate::wire::talk::{tcp, udp};
use crate::wire::{Forward, Host, inside, ip};

/// As traceroute does: datagrams to a port where nobody is, with so many hops, until there is an error of this kind about one.
fn trace(from: &Host, near: &str, far: SocketAddr, hops: u8, kind: [u8; 2]) {
    from.on(|| {
        let socket = UdpSocket::bind(near).unwrap();
        match far {
            SocketAddr::V4(_) => sockopt::set_ip_ttl(&socket, hops.into()).unwrap(),
            SocketAddr::V6(_) => sockopt::set_ipv6_unicast_hops(&socket, Some(hops)).unwrap(),
        }
        let port = far.port().to_be_bytes();
        // An error of the one before is told at the next one.
        let ask = || drop(socket.send_to(b"there?", far));
        until_answered(&Listener::open(far.is_ipv4()), kind, ask, |message| {
            let quoted = message.quoted();
            quoted.is_some_and(|(to, rest)| to == far.ip() && rest.get(2..4) == Some(&port))
        });
    });
}

/// The last packet: it comes after everything that has come until now.
const LAST: &[u8] = b"this is the last one, and nothing that comes after it is looked at";

fn is_last(packet: &[u8]) -> bool {
    packet.ends_with(LAST)
}

#[test]
fn an_analyser_finds_nothing_wrong() {
    if !inside("forward_capture::an_analyser_finds_nothing_wrong", &["tcpdump", "tshark"]) {
        return;
    }
    ip("tuntap add dev qa mode tap");
    ip("tuntap add dev qb mode tap");
    ip("link set qb mtu 1300");
    let forward = Forward::start(
        "--in tap:qa=10.0.1.1/24,fd00:1::1/64 --out tap:qb=10.0.2.1/24,fd00:2::1/64 --route 10.9.0.0/16=10.0.2.2",
    );
    let (a, b) = (Host::new(), Host::new());
    a.plug("qa", &["10.0.1.2/24", "fd00:1::2/64"], &["10.0.1.1", "fd00:1::1"]);
    b.plug("qb", &["10.0.2.2/24", "fd00:2::2/64"], &["10.0.2.1", "fd00:2::1"]);
    b.ip("addr add 10.9.9.9/32 dev lo");
    let at_a = Capture::start(Some(&a), "qa", "at-a");
    let at_b = Capture::start(Some(&b), "qb", "at-b");

    let [router4, far4, nowhere] =
        [[10, 0, 1, 1], [10, 0, 2, 2], [10, 77, 0, 1]].map(Ipv4Addr::from);
    let [router6, far6] = ["fd00:1::1", "fd00:2::2"].map(|text| text.parse::<Ipv6Addr>().unwrap());
    // Echoes, the same with too few hops, what is too large, and what has no way to go.
    let asks = |to: IpAddr, router: IpAddr, len, hops, kind: [u8; 2]| {
        let from = if [0, 129].contains(&kind[0]) { to } else { router };
        assert_eq!(a.on(|| ping(to, len, hops, kind)).from, from, "{len} {hops}");
    };
    for (len, hops, kind) in
        [(56, 64, [0, 0]), (57, 2, [0, 0]), (1400, 64, [3, 4]), (56, 1, [11, 0])]
    {
        asks(far4.into(), router4.into(), len, hops, kind);
    }
    asks(nowhere.into(), router4.into(), 56, 64, [3, 0]);
    for (len, hops, kind) in
        [(56, 64, [129, 0]), (57, 2, [129, 0]), (1400, 64, [2, 0]), (56, 1, [3, 0])]
    {
        asks(far6.into(), router6.into(), len, hops, kind);
    }
    for (hops, v4, v6) in [(1, [11, 0], [3, 0]), (2, [3, 3], [1, 4])] {
        trace(&a, "10.0.1.2:4400", "10.0.2.2:33434".parse().unwrap(), hops, v4);
        trace(&a, "[fd00:1::2]:4400", "[fd00:2::2]:33434".parse().unwrap(), hops, v6);
    }
    for (len, v4, v6) in [(5, 5000, 5001), (1232, 5002, 5003), (1400, 5004, 5005)] {
        let (v4, v6) = (
            [format!("10.0.1.2:{v4}"), format!("10.0.2.2:{v4}")],
            [format!("[fd00:1::2]:{v6}"), format!("[fd00:2::2]:{v6}")],
        );
        for [near, far] in [&v4, &v6] {
            udp(&a, &b, [near, far], &vec![0x44; len]);
            udp(&b, &a, [far, near], &vec![0x44; len]);
        }
    }
    // May be cut on the way: by the router, to whom the way behind it is as narrow.
    a.on(|| fs::write("/proc/sys/net/ipv4/ip_no_pmtu_disc", "1").unwrap());
    udp(&a, &b, ["10.0.1.2:5010", "10.9.9.9:5010"], &[0x44; 1400]);
    const LEN: usize = 3 << 19;
    tcp(LEN, &a, &b, "10.0.2.2:4001");
    tcp(LEN, &b, &a, "10.0.1.2:4002");
    tcp(LEN, &a, &b, "[fd00:2::2]:4003");
    tcp(LEN, &b, &a, "[fd00:1::2]:4004");
    udp(&a, &b, ["10.0.1.2:5011", "10.0.2.2:5011"], LAST);
    udp(&b, &a, ["10.0.2.2:5011", "10.0.1.2:5011"], LAST);
    let (at_a, at_b) = (at_a.end(is_last), at_b.end(is_last));
    let said = forward.end();

    assert_seen(
        &at_a,
        &[
            ("arp", 1),
            ("icmpv6.type == 135 || icmpv6.type == 136", 1),
            ("icmp.type == 0 && ip.ttl == 63", 2),
            ("icmp.type == 11 && icmp.code == 0", 2),
            ("icmp.type == 3 && icmp.code == 4 && icmp.mtu == 1300", 1),
            ("icmp.type == 3 && (icmp.code == 0 || icmp.code == 1)", 1),
            ("icmp.type == 3 && icmp.code == 3 && ip.ttl == 63", 1),
            ("icmpv6.type == 129 && ipv6.hlim == 63", 2),
            ("icmpv6.type == 3", 2),
            ("icmpv6.type == 2 && icmpv6.mtu == 1300", 1),
            ("icmpv6.type == 1 && ipv6.hlim == 63", 1),
            ("ip && tcp && tcp.len > 0 && ip.ttl == 63 && tcp.checksum.status == \"Good\"", 1000),
            (
                "ipv6 && tcp && tcp.len > 0 && ipv6.hlim == 63 && tcp.checksum.status == \"Good\"",
                1000,
            ),
            ("ip && udp && !icmp && udp.checksum.status == \"Good\"", 3),
            ("ipv6 && udp && !icmpv6 && udp.checksum.status == \"Good\"", 3),
        ],
    );
    assert_seen(
        &at_b,
        &[
            ("icmp.type == 8 && ip.ttl == 63", 1),
            ("icmp.type == 8 && ip.ttl == 1", 1),
            ("icmpv6.type == 128 && ipv6.hlim == 63", 1),
            // The router's own cuts, of one datagram that was whole, and those of the sender.
            ("ip.flags.mf == 1 && ip.dst == 10.9.9.9", 1),
            ("udp.dstport == 5010 && udp.length == 1408 && udp.checksum.status == \"Good\"", 1),
            ("udp.dstport == 5004 && udp.length == 1408 && udp.checksum.status == \"Good\"", 1),
            ("udp.dstport == 5005 && udp.length == 1408 && udp.checksum.status == \"Good\"", 1),
            ("ip && tcp && tcp.len > 0 && ip.ttl == 63 && tcp.checksum.status == \"Good\"", 1000),
            (
                "ipv6 && tcp && tcp.len > 0 && ipv6.hlim == 63 && tcp.checksum.status == \"Good\"",
                1000,
            ),
        ],
    );
    assert_eq!(frames(&at_b, "frame.len > 1314"), [0u64; 0], "wider than the link");
    for file in [&at_a, &at_b] {
        assert_well_formed(file);
        fs::remove_file(file).unwrap();
    }
    assert!(said.contains("fragments made: ") && said.contains("ICMP errors: "), "{said}");
}

/// A generated packet, as it should be: which flow, and which number.
fn generated(frame: &[u8], size: usize) -> (u32, u64) {
    assert_eq!(frame.len(), size);
    let (udp, addresses) = if frame[12..14] == [8, 0] { (34, 26) } else { (54, 22) };
    if udp == 34 {
        assert_eq!((sum(&frame[14..34]), frame[23]), (0xffff, 17), "{frame:x?}");
    } else {
        assert_eq!((&frame[12..14], frame[20]), (&[0x86, 0xdd][..], 17), "{frame:x?}");
    }
    let len = size - udp;
    assert_eq!(usize::from(u16::from_be_bytes([frame[udp + 4], frame[udp + 5]])), len);
    let pseudo =
        [&frame[addresses..udp], &[0, 17], &(len as u16).to_be_bytes(), &frame[udp..]].concat();
    assert_eq!(sum(&pseudo), 0xffff, "{frame:x?}");
    let said = &frame[udp + 8..];
    assert_eq!(&said[..4], b"QLgn");
    assert!(said[16..].iter().all(|byte| *byte == 0));
    (
        u32::from_be_bytes(said[4..8].try_into().unwrap()),
        u64::from_be_bytes(said[8..16].try_into().unwrap()),
    )
}

/// Packets that the router is given: fewer than [`Capture`] has room for.
const COUNT: u64 = 20_000;
/// Bytes of the frame that ends a capture: no other one has so many.
const END: usize = 99;

fn is_generated(frame: &[u8]) -> bool {
    frame.len() != END && frame.windows(4).any(|word| word == b"QLgn")
}

/// What comes out of the device when packets are generated like this, and what is said of it.
fn captured(name: &str, arguments: &str) -> (String, PathBuf) {
    let capture = Capture::start(None, "qg", name);
    let run = |arguments: &str| {
        let (code, said, error) = Forward::start(&format!("--generate {arguments}")).wait();
        assert_eq!(code, Some(0), "{said} {error}");
        said
    };
    let said = run(arguments);
    // All that it has sent has come to the host; one more, and the file has it.
    run(&format!("--out tap:qg --size {END} --count 1"));
    (said, capture.end(|frame| frame.len() == END))
}

/// The number in a line that ends with it.
fn told(said: &str, what: &str) -> u64 {
    said.lines()
        .find_map(|line| line.trim().strip_prefix(what))
        .map_or(0, |number| number.parse().unwrap())
}

#[test]
fn generated_packets_come_out_of_a_tap() {
    if !inside("forward_capture::generated_packets_come_out_of_a_tap", &["tcpdump"]) {
        return;
    }
    ip("tuntap add dev qg mode tap");
    ip("link set qg up");
    ip("addr add 10.0.2.2/24 dev qg");
    ip("addr add fd00:2::2/64 dev qg nodad");
    // As they were made: each once, and in order.
    for (i, (size, flows, count, to)) in
        [(64, 1, 20_000, "10.0.2.2"), (1514, 7, 3_000, "10.0.2.2"), (78, 3, 9_000, "fd00:2::2")]
            .iter()
            .enumerate()
    {
        let arguments = format!("--destination {to} --size {size} --flows {flows} --count {count}");
        let (said, file) =
            captured(&format!("generated-{i}"), &format!("--out tap:qg {arguments}"));
        let mut next = vec![0; *flows];
        for frame in packets(&file).iter().filter(|frame| is_generated(frame)) {
            let (flow, number) = generated(frame, *size);
            assert_eq!(number, next[flow as usize], "flow {flow}");
            next[flow as usize] += 1;
        }
        assert_eq!(next.iter().sum::<u64>(), *count, "{said}");
        fs::remove_file(file).unwrap();
    }
    // By the router, which asks for the neighbour, and drops what does not fit where packets wait; it says how many.
    for (i, (ours, to, size)) in
        [("10.0.2.1/24", "10.0.2.2", 64), ("fd00:2::1/64", "fd00:2::2", 78)].iter().enumerate()
    {
        let arguments =
            format!("--out tap:qg={ours} --destination {to} --size {size} --count {COUNT}");
        let ttl = if *size == 64 { 22 } else { 21 };
        let routed = || {
            let (said, file) = captured(&format!("routed-{i}"), &arguments);
            let (mut came, mut newest) = (0, None);
            for frame in packets(&file).iter().filter(|frame| is_generated(frame)) {
                let (flow, number) = generated(frame, *size);
                assert!(flow == 0 && newest < Some(number), "{number} after {newest:?}");
                assert_eq!(frame[ttl], 63, "one hop");
                (came, newest) = (came + 1, Some(number));
            }
            fs::remove_file(file).unwrap();
            // Of what is dropped, some are errors about it, which have nowhere to go either.
            let (dropped, errors) = (told(&said, "NEIGH_FAILED: "), told(&said, "ICMP errors: "));
            assert!((COUNT..=COUNT + errors).contains(&(came + dropped)), "{came} came: {said}");
            (dropped == 0).then_some(came)
        };
        // A host that is busy may take longer to answer than the router asks.
        assert_eq!(
            (0..10).find_map(|_| routed()),
            Some(COUNT),
            "all, if the neighbour has answered"
        );
    }
}
