//! `ql forward` beside floods, on the wire: each echo request is sent once and answered, each
//! packet that is too big is told of.
//!
//! A flood goes out in parts that fit into the queue of the device, and the next one when a
//! question behind the last one is answered: so nothing is lost for want of room there.

use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::time::Instant;

use rustix::net::sockopt;

use crate::wire::echo::{Listener, ping_once};
use crate::wire::{Forward, Host, PATIENCE, inside, ip};

const ECHO: [u8; 2] = [0, 0];
const NEAR: [&str; 2] = ["10.0.1.2/24", "fd00:1::2/64"];
const GATEWAYS: [&str; 2] = ["10.0.1.1", "fd00:1::1"];

/// A router between two hosts; the second link has 65,536 addresses, and fits 1,300 bytes.
fn between() -> (Forward, Host, Host) {
    ip("tuntap add dev qa mode tap");
    ip("tuntap add dev qb mode tap");
    ip("link set qb mtu 1300");
    let forward = Forward::start(
        "--in tap:qa=10.0.1.1/24,fd00:1::1/64 --out tap:qb=10.2.0.1/16,fd00:2::1/64",
    );
    let (a, b) = (Host::new(), Host::new());
    a.plug("qa", &NEAR, &GATEWAYS);
    b.plug("qb", &["10.2.0.2/16", "fd00:2::2/64"], &["10.2.0.1", "fd00:2::1"]);
    (forward, a, b)
}

fn send(socket: &UdpSocket, to: SocketAddr) {
    let begun = Instant::now();
    // An error of a packet before is told by the next call.
    while socket.send_to(b"flood", to).is_err() {
        assert!(begun.elapsed() < PATIENCE, "cannot send to {to}");
    }
}

/// A sweep over a /16, and beside it echo requests, 256 in all: to 32 hosts that are not known yet,
/// and again to those that are.
#[test]
fn a_sweep_beside_pinged_hosts() {
    if !inside("forward_floods::a_sweep_beside_pinged_hosts", &[]) {
        return;
    }
    let (forward, a, b) = between();
    let hosts: Vec<_> = (0..32).map(|n| Ipv4Addr::new(10, 2, 1, n + 1)).collect();
    for host in &hosts {
        b.ip(&format!("addr add {host}/32 dev qb"));
    }
    a.on(|| {
        let listener = Listener::open(true);
        let socket = UdpSocket::bind("0.0.0.0:0").unwrap();
        // (An address of the link's own, or of a host, is not swept.)
        let mut unused = (0u16..=u16::MAX)
            .map(|n| Ipv4Addr::from_bits(0x0a02_0000 | u32::from(n)))
            .filter(|to| !matches!(to.octets()[2..], [0, 0..=2] | [1, _] | [255, 255]));
        for (number, host) in (0..256).zip(hosts.iter().cycle()) {
            for to in unused.by_ref().take(256) {
                send(&socket, SocketAddr::from((to, 9)));
            }
            let answer = ping_once(&listener, *host, 56, number, ECHO);
            assert_eq!(answer.from, *host, "{number}");
        }
        assert_eq!(unused.next(), None, "all are swept");
    });
    let said = forward.end();
    assert!(said.contains("neighbours asked for: "), "{said}");
}

/// Packets that are too big, behind 120 packets each whose hops are used up.
#[test]
fn path_mtu_discovery_beside_expiring_packets() {
    if !inside("forward_floods::path_mtu_discovery_beside_expiring_packets", &[]) {
        return;
    }
    let (forward, a, _b) = between();
    a.on(|| {
        for (far, any, kind) in
            [("10.2.0.2:9", "0.0.0.0:0", [3, 4]), ("[fd00:2::2]:9", "[::]:0", [2, 0])]
        {
            let far: SocketAddr = far.parse().unwrap();
            let listener = Listener::open(far.is_ipv4());
            let socket = UdpSocket::bind(any).unwrap();
            if far.is_ipv4() {
                socket.set_ttl(1).unwrap();
            } else {
                sockopt::set_ipv6_unicast_hops(&socket, Some(1)).unwrap();
            }
            for number in 0..50 {
                (0..120).for_each(|_| send(&socket, far));
                let answer = ping_once(&listener, far.ip(), 1400, number, kind);
                let mtu = answer.word;
                assert_eq!(mtu, 1300, "{number} of {far}");
            }
        }
    });
    let said = forward.end();
    for count in ["ICMP errors limited: ", "IP_TTL_EXPIRED: 12000", "PKT_TOO_BIG: 100"] {
        assert!(said.contains(count), "{count} in {said}");
    }
}
