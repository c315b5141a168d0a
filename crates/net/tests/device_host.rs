//! Devices of the host, in a network namespace of the test's own. Skipped, and told why, where that cannot be made.

use quietline_net::device::*;
use quietline_net::packet::Packets;
use rustix::io::Errno;
use std::net::{Ipv4Addr, UdpSocket};
use std::process::Command;
use std::thread::sleep;
use std::time::{Duration, Instant};

const INSIDE: &str = "QUIETLINE_TEST_INSIDE";

/// True in a network namespace that has nothing but a loopback device, which is up. Outside of one, runs the test again there.
fn inside(test: &str) -> bool {
    if std::env::var_os(INSIDE).is_some() {
        ip("link set lo up");
        return true;
    }
    if !Command::new("unshare").args(["-n", "ip", "link"]).output().is_ok_and(|made| made.status.success()) {
        eprintln!(
            "skipped: a network namespace cannot be made (`unshare -n ip link`); that needs root and iproute2"
        );
        return false;
    }
    let program = std::env::current_exe().unwrap();
    let run = Command::new("unshare")
        .arg("-n")
        .arg(program)
        .args(["--exact", test, "--nocapture"])
        .env(INSIDE, "1")
        .status();
    assert!(run.unwrap().success(), "{test} fails inside the namespace");
    false
}

fn ip(words: &str) {
    let done = Command::new("ip").args(words.split(' ')).output().unwrap();
    assert!(done.status.success(), "ip {words}: {}", String::from_utf8_lossy(&done.stderr));
}

fn link_of(name: &str) -> [u8; 6] {
    let text = std::fs::read_to_string(format!("/sys/class/net/{name}/address"));
    let text = text.unwrap_or_else(|_| {
        // The mount is of the namespace outside.
        let shown = Command::new("ip").args(["-o", "link", "show", name]).output().unwrap();
        let shown = String::from_utf8(shown.stdout).unwrap();
        shown.split_once("link/ether ").unwrap().1[..17].to_owned()
    });
    let mut bytes = text.trim().split(':').map(|byte| u8::from_str_radix(byte, 16).unwrap());
    core::array::from_fn(|_| bytes.next().unwrap())
}

#[test]
fn what_cannot_be_opened_says_why() {
    let packets = Packets::new().unwrap();
    for name in ["", "sixteen-bytes-ab", "a b", "a/b"] {
        assert_eq!(Tap::open(&packets, name).unwrap_err().errno(), Errno::INVAL);
        assert_eq!(PacketSocket::open(&packets, name).unwrap_err().errno(), Errno::INVAL);
    }
    let error = PacketSocket::open(&packets, "no-such-device").unwrap_err();
    if error.errno() == Errno::NODEV {
        let says = "there is no interface of that name in this network namespace";
        assert!(error.to_string().contains(says), "{error}");
    } else {
        assert_eq!(error.errno(), Errno::PERM, "{error}");
        assert!(error.to_string().contains("CAP_NET_RAW"), "{error}");
    }
    let error = Tap::open(&packets, "lo").unwrap_err();
    assert!(matches!(error.errno(), Errno::INVAL | Errno::PERM | Errno::NOENT | Errno::ACCESS), "{error}");
}

#[test]
fn tap() {
    if !inside("tap") {
        return;
    }
    let packets = Packets::new().unwrap();
    let mut tap = match Tap::open(&packets, "qt0") {
        Ok(tap) => tap,
        Err(error) => return eprintln!("skipped: {error}"),
    };
    assert_eq!((tap.name(), tap.max_frame()), ("qt0", 1514));
    assert_eq!(Tap::open(&packets, "qt0").unwrap_err().errno(), Errno::BUSY);
    let mut batch = Batch::new();
    ip("addr add 10.1.0.1/24 dev qt0");
    ip("link set qt0 up");
    ip("neigh add 10.1.0.2 lladdr 02:00:00:00:00:09 dev qt0");
    let socket = UdpSocket::bind("10.1.0.1:4000").unwrap();
    socket.send_to(b"from the host", "10.1.0.2:9").unwrap();
    let begun = Instant::now();
    let came = loop {
        assert!(begun.elapsed() < Duration::from_secs(10), "nothing came");
        tap.poll(BUDGET, &mut batch).unwrap();
        // The host tells of itself by IPv6 besides.
        let Some(skb) = batch.pop() else { continue };
        if skb.data().ends_with(b"from the host") {
            break skb;
        }
    };
    assert_eq!((came.len(), &came.data()[..6]), (14 + 20 + 8 + 13, &[2, 0, 0, 0, 0, 9][..]));
    drop(came);

    let ends = Ends::V4([Ipv4Addr::new(10, 1, 0, 2), Ipv4Addr::new(10, 1, 0, 1)]);
    let links = [[2, 0, 0, 0, 0, 9], link_of("qt0")];
    let traffic = Traffic { count: Some(20), ends, links, ports: [9, 4000], size: 700, ..Traffic::default() };
    let mut generator = Generator::new(&packets, &traffic).unwrap();
    batch.consume();
    generator.poll(BUDGET, &mut batch).unwrap();
    assert_eq!((tap.send(&mut batch), tap.complete(BUDGET)), (20, 20));
    socket.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
    for number in 0..20u64 {
        let mut bytes = [0; 2000];
        let (len, from) = socket.recv_from(&mut bytes).unwrap();
        assert_eq!((len, from), (700 - 42, "10.1.0.2:9".parse().unwrap()));
        assert_eq!((&bytes[..4], &bytes[8..16]), (&b"QLgn"[..], &number.to_be_bytes()[..]));
    }
    // What is too long is dropped and counted.
    let mut long = packets.alloc_skb(1515).unwrap();
    long.put(1515).unwrap().fill(0);
    batch.push(long).unwrap();
    assert_eq!(tap.send(&mut batch), 0);
    assert_eq!(tap.stats().drops().count(), 1);
    drop((tap, batch, generator));
    assert_eq!(packets.head_stats().active, 0);
}

#[test]
fn packet_sockets() {
    if !inside("packet_sockets") {
        return;
    }
    const COUNT: u64 = 20_000;
    ip("link add va type veth peer name vb");
    ip("link set va up");
    ip("link set vb up");
    let packets = Packets::new().unwrap();
    let mut near = PacketSocket::open(&packets, "va").unwrap();
    let mut far = PacketSocket::open(&packets, "vb").unwrap();
    assert_eq!((near.link(), near.max_frame()), (link_of("va"), 1514));
    let traffic = Traffic { count: Some(COUNT), flows: 7, size: 1514, ..Traffic::default() };
    let mut generator = Generator::new(&packets, &traffic).unwrap();
    let mut sink = Sink::new(256, 7).unwrap();
    sink.check_sums(true);
    let (mut out, mut back) = (Batch::new(), Batch::new());
    let begun = Instant::now();
    while sink.tally().received < COUNT {
        assert!(begun.elapsed() < Duration::from_secs(60), "{:?} {:?}", sink.tally(), near.stats());
        // No more on the way than the receiver's ring has frames.
        if near.stats().tx_packets < sink.tally().received + 256 {
            generator.poll(BUDGET, &mut out).unwrap();
        }
        near.xmit(&mut out);
        near.complete(BUDGET);
        if far.poll(BUDGET, &mut back).unwrap() == 0 {
            sleep(Duration::from_micros(50));
        }
        sink.send(&mut back);
        sink.complete(BUDGET);
    }
    // The host tells of itself by IPv6: those are no generator's.
    let tally = sink.tally();
    assert!(Tally { foreign: 0, ..tally }.is_exactly(COUNT), "{tally:?}");
    assert_eq!((near.stats().tx_packets, near.stats().drops().count()), (COUNT, 0));
    // What the host sends by the interface does not come.
    let mut none = Batch::new();
    assert_eq!(near.poll(BUDGET, &mut none).map(|n| n < 10), Ok(true));
    drop((near, far, generator, sink, out, back, none));
    assert_eq!(packets.head_stats().active, 0);
}
