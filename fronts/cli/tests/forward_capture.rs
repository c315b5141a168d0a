//! What `ql forward` puts on the wire, as others read it: captured by tcpdump at the receiving host, and looked at by tshark, packet by
//! packet. Without these programs the tests say that they are skipped.

mod wire;

use std::fs;
use std::io::{Read, Write};
use std::net::{
    Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV4, SocketAddrV6, TcpListener, TcpStream, UdpSocket,
};
use std::path::Path;
use std::thread;
use std::time::Duration;

use rustix::net::{self, AddressFamily, RecvFlags, SendFlags, SocketType, ipproto, sockopt};
use wire::{Capture, Forward, Host, WRONG, frames, inside, ip, until};

const WAIT: Duration = Duration::from_secs(3);

/// An echo request of so many bytes, by IPv4: type and code of what comes back.
fn ping4(to: Ipv4Addr, len: usize, ttl: u32) -> Option<[u8; 2]> {
    let socket = net::socket(AddressFamily::INET, SocketType::RAW, Some(ipproto::ICMP)).unwrap();
    sockopt::set_socket_timeout(&socket, sockopt::Timeout::Recv, Some(WAIT)).unwrap();
    sockopt::set_ip_ttl(&socket, ttl).unwrap();
    let mut request = vec![0x33; 8 + len];
    request[..8].copy_from_slice(&[8, 0, 0, 0, 0x51, 0, 0, 1]);
    let sum = !sum(&request);
    request[2..4].copy_from_slice(&sum.to_be_bytes());
    net::sendto(&socket, &request, SendFlags::empty(), &SocketAddrV4::new(to, 0)).unwrap();
    loop {
        let mut bytes = vec![0; 4096];
        net::recv(&socket, &mut bytes[..], RecvFlags::empty()).ok()?;
        let icmp = &bytes[usize::from(bytes[0] & 15) * 4..];
        if icmp[0] != 8 {
            return Some([icmp[0], icmp[1]]);
        }
    }
}

/// The same by IPv6, whose checksum is the host's. Its neighbours' talk is heard, too, and passed over.
fn ping6(to: Ipv6Addr, len: usize, hops: u8) -> Option<[u8; 2]> {
    let socket = net::socket(AddressFamily::INET6, SocketType::RAW, Some(ipproto::ICMPV6)).unwrap();
    sockopt::set_socket_timeout(&socket, sockopt::Timeout::Recv, Some(WAIT)).unwrap();
    sockopt::set_ipv6_unicast_hops(&socket, Some(hops)).unwrap();
    let mut request = vec![0x33; 8 + len];
    request[..8].copy_from_slice(&[128, 0, 0, 0, 0x51, 0, 0, 1]);
    net::sendto(&socket, &request, SendFlags::empty(), &SocketAddrV6::new(to, 0, 0, 0)).unwrap();
    loop {
        let mut bytes = vec![0; 4096];
        net::recv(&socket, &mut bytes[..], RecvFlags::empty()).ok()?;
        if bytes[0] < 128 || bytes[0] == 129 {
            return Some([bytes[0], bytes[1]]);
        }
    }
}

/// The internet's sum of 16-bit words.
fn sum(bytes: &[u8]) -> u16 {
    let words = bytes.chunks(2).map(|word| u32::from(word[0]) << 8 | u32::from(*word.get(1).unwrap_or(&0)));
    let sum = words.fold(0, |sum, word| (sum + word) % 0xffff);
    // Of 0 and 0xffff, which are the same to it, 0 is only what is all zeros.
    if sum == 0 && bytes.iter().any(|byte| *byte != 0) { 0xffff } else { sum as u16 }
}

/// A megabyte and some by TCP, which is the same there.
fn tcp(from: &Host, to: &Host, address: &str) {
    let bytes: Vec<u8> = (0..3_u32 << 19).map(|i| (i * 7 + i / 251) as u8).collect();
    let listener = to.on(|| TcpListener::bind(address).unwrap());
    let mut stream =
        from.on(|| TcpStream::connect_timeout(&address.parse().unwrap(), Duration::from_secs(10)).unwrap());
    let (mut other, _) = listener.accept().unwrap();
    other.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
    thread::scope(|scope| {
        let sent = &bytes;
        scope.spawn(move || stream.write_all(sent).unwrap());
        let mut came = Vec::new();
        other.read_to_end(&mut came).unwrap();
        assert!(came == bytes, "{} bytes", came.len());
    });
}

/// A datagram, sent until it comes: the first may be what tells the host how wide the way is.
fn udp(from: &Host, to: &Host, [near, far]: [&str; 2], len: usize) {
    let bind = |host: &Host, address: &str| host.on(|| UdpSocket::bind(address).unwrap());
    let (near, other) = (bind(from, near), bind(to, far));
    other.set_read_timeout(Some(Duration::from_millis(300))).unwrap();
    let (sent, mut came) = (vec![0x44; len], vec![0; 4096]);
    until("a datagram", || {
        // An error of before, such as EMSGSIZE, is told at the next one.
        let _ = near.send_to(&sent, far);
        other.recv(&mut came).is_ok_and(|len| came[..len] == sent)
    });
}

/// As traceroute does: a datagram to a port where nobody is, with so many hops.
fn trace(from: &Host, near: &str, far: SocketAddr, hops: u8) {
    let socket = from.on(|| UdpSocket::bind(near).unwrap());
    match far {
        SocketAddr::V4(_) => sockopt::set_ip_ttl(&socket, hops.into()).unwrap(),
        SocketAddr::V6(_) => sockopt::set_ipv6_unicast_hops(&socket, Some(hops)).unwrap(),
    }
    socket.connect(far).unwrap();
    socket.send(b"there?").unwrap();
}

/// No packet is wrong, and the one who looks would see it: with one byte of a payload changed, it does.
fn assert_well_formed(file: &Path) {
    assert_eq!(frames(file, WRONG), [], "in {}", file.display());
    let mut bytes = fs::read(file).unwrap();
    // A file header of 24 bytes; before each packet 16, the lengths in the latter half, in the host's byte order.
    let (mut at, mut number, mut spoiled) = (24, 0, None);
    while at < bytes.len() {
        let len = u32::from_ne_bytes(bytes[at + 8..at + 12].try_into().unwrap()) as usize;
        number += 1;
        let packet = &mut bytes[at + 16..at + 16 + len];
        if len > 200
            && packet[12..15] == [8, 0, 0x45]
            && packet[20] & 0x3f == 0
            && [6, 17].contains(&packet[23])
        {
            packet[150] ^= 0x10;
            spoiled = Some(number);
            break;
        }
        at += 16 + len;
    }
    let other = file.with_extension("spoiled.pcap");
    fs::write(&other, bytes).unwrap();
    assert_eq!(frames(&other, WRONG), [spoiled.expect("a packet to spoil")]);
    fs::remove_file(other).unwrap();
}

fn assert_seen(file: &Path, filters: &[(&str, usize)]) {
    for (filter, least) in filters {
        let n = frames(file, filter).len();
        assert!(n >= *least, "{n} of `{filter}` in {}", file.display());
    }
}

#[test]
#[ignore = "takes its time from the host: fails now and then; run it by `cargo test -p quietline-cli --test forward_capture -- --ignored`"]
fn an_analyser_finds_nothing_wrong() {
    if !inside("an_analyser_finds_nothing_wrong", &["tcpdump", "tshark"]) {
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

    let [far4, nowhere] = [[10, 0, 2, 2], [10, 77, 0, 1]].map(Ipv4Addr::from);
    let far6: Ipv6Addr = "fd00:2::2".parse().unwrap();
    // Echoes, the same with too few hops, what is too large, and what has no way to go.
    for (len, hops, answer) in [(56, 64, [0, 0]), (57, 2, [0, 0]), (1400, 64, [3, 4]), (56, 1, [11, 0])] {
        assert_eq!(a.on(|| ping4(far4, len, hops)), Some(answer), "{len} {hops}");
    }
    assert!(matches!(a.on(|| ping4(nowhere, 56, 64)), Some([3, 0 | 1])));
    for (len, hops, answer) in [(56, 64, [129, 0]), (57, 2, [129, 0]), (1400, 64, [2, 0]), (56, 1, [3, 0])] {
        assert_eq!(a.on(|| ping6(far6, len, hops)), Some(answer), "{len} {hops}");
    }
    for hops in [1, 2] {
        trace(&a, "10.0.1.2:4400", "10.0.2.2:33434".parse().unwrap(), hops);
        trace(&a, "[fd00:1::2]:4400", "[fd00:2::2]:33434".parse().unwrap(), hops);
    }
    for (len, v4, v6) in [(5, 5000, 5001), (1232, 5002, 5003), (1400, 5004, 5005)] {
        udp(&a, &b, [&format!("10.0.1.2:{v4}"), &format!("10.0.2.2:{v4}")], len);
        udp(&a, &b, [&format!("[fd00:1::2]:{v6}"), &format!("[fd00:2::2]:{v6}")], len);
        udp(&b, &a, [&format!("10.0.2.2:{v4}"), &format!("10.0.1.2:{v4}")], len);
        udp(&b, &a, [&format!("[fd00:2::2]:{v6}"), &format!("[fd00:1::2]:{v6}")], len);
    }
    // May be cut on the way: by the router, to whom the way behind it is as narrow.
    a.on(|| fs::write("/proc/sys/net/ipv4/ip_no_pmtu_disc", "1").unwrap());
    udp(&a, &b, ["10.0.1.2:5010", "10.9.9.9:5010"], 1400);
    tcp(&a, &b, "10.0.2.2:4001");
    tcp(&b, &a, "10.0.1.2:4002");
    tcp(&a, &b, "[fd00:2::2]:4003");
    tcp(&b, &a, "[fd00:1::2]:4004");
    let (at_a, at_b) = (at_a.end(), at_b.end());
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
            ("ipv6 && tcp && tcp.len > 0 && ipv6.hlim == 63 && tcp.checksum.status == \"Good\"", 1000),
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
            ("ipv6 && tcp && tcp.len > 0 && ipv6.hlim == 63 && tcp.checksum.status == \"Good\"", 1000),
        ],
    );
    assert_eq!(frames(&at_b, "frame.len > 1314"), [], "wider than the link");
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
    let pseudo = [&frame[addresses..udp], &[0, 17], &(len as u16).to_be_bytes(), &frame[udp..]].concat();
    assert_eq!(sum(&pseudo), 0xffff, "{frame:x?}");
    let said = &frame[udp + 8..];
    assert_eq!(&said[..4], b"QLgn");
    assert!(said[16..].iter().all(|byte| *byte == 0));
    (u32::from_be_bytes(said[4..8].try_into().unwrap()), u64::from_be_bytes(said[8..16].try_into().unwrap()))
}

/// Each packet of a capture.
fn packets(file: &Path) -> Vec<Vec<u8>> {
    let bytes = fs::read(file).unwrap();
    let (mut at, mut all) = (24, Vec::new());
    while at < bytes.len() {
        let len = u32::from_ne_bytes(bytes[at + 8..at + 12].try_into().unwrap()) as usize;
        all.push(bytes[at + 16..at + 16 + len].to_vec());
        at += 16 + len;
    }
    all
}

/// The number in a line that ends with it.
fn told(said: &str, what: &str) -> u64 {
    said.lines().find_map(|line| line.strip_prefix(what)).map_or(0, |number| number.parse().unwrap())
}

#[test]
#[ignore = "takes its time from the host: fails now and then; run it by `cargo test -p quietline-cli --test forward_capture -- --ignored`"]
fn generated_packets_come_out_of_a_tap() {
    if !inside("generated_packets_come_out_of_a_tap", &["tcpdump"]) {
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
        let capture = Capture::start(None, "qg", &format!("generated-{i}"));
        let said = Forward::start(&format!(
            "--generate --out tap:qg --destination {to} --size {size} --flows {flows} --count {count}"
        ));
        let (said, file) = (said.wait(), capture.end());
        let mut next = vec![0; *flows];
        for frame in packets(&file).iter().filter(|frame| frame[..6] == [0xff; 6]) {
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
        const COUNT: u64 = 20_000;
        let capture = Capture::start(None, "qg", &format!("routed-{i}"));
        let forward = Forward::start(&format!(
            "--generate --out tap:qg={ours} --destination {to} --size {size} --count {COUNT}"
        ));
        let (said, file) = (forward.wait(), capture.end());
        let (mut came, mut newest) = (0, None);
        let ttl = if *size == 64 { 22 } else { 21 };
        for frame in packets(&file).iter().filter(|frame| frame.windows(4).any(|word| word == b"QLgn")) {
            let (flow, number) = generated(frame, *size);
            assert!(flow == 0 && newest < Some(number), "{number} after {newest:?}");
            assert_eq!(frame[ttl], 63, "one hop");
            (came, newest) = (came + 1, Some(number));
        }
        let dropped = told(&said, "NEIGH_FAILED: ");
        assert!(came > COUNT / 2 && came + dropped == COUNT, "{came} came: {said}");
        fs::remove_file(file).unwrap();
    }
}
