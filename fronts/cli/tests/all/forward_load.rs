//! `ql forward` under load, on the wire: many datagrams, each of which comes once or is counted where it was dropped. A router between
//! namespaces, over TAP devices and over packet sockets on `veth`s.

use std::io::Read;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use quietline_net::packet::DropReason;
use rustix::fs::{Mode, OFlags};
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};

use crate::wire::load::{Arrived, not_sent, udp_load};
use crate::wire::talk::udp;
use crate::wire::{Forward, Host, PATIENCE, inside, ip};

const ROUTED: &str = "=10.0.1.1/24,fd00:1::1/64 --out packet:qb=10.0.2.1/24,fd00:2::1/64";
const ADDRESSES: [[&str; 2]; 2] =
    [["10.0.1.2/24", "fd00:1::2/64"], ["10.0.2.2/24", "fd00:2::2/64"]];
const GATEWAYS: [[&str; 2]; 2] = [["10.0.1.1", "fd00:1::1"], ["10.0.2.1", "fd00:2::1"]];
const V4: [&str; 2] = ["10.0.1.2:4000", "10.0.2.2:4000"];
const V6: [&str; 2] = ["[fd00:1::2]:4000", "[fd00:2::2]:4000"];

/// Two hosts, a router between them, and what the hosts' devices are called.
struct Between {
    forward: Forward,
    hosts: [Host; 2],
    devices: [&'static str; 2],
}

impl Between {
    fn taps() -> Self {
        ip("tuntap add dev qa mode tap");
        ip("tuntap add dev qb mode tap");
        let forward = Forward::start(&format!("--in packet:qa{ROUTED}").replace("packet:", "tap:"));
        Self::new(forward, ["qa", "qb"])
    }

    fn veths() -> Self {
        for (ours, theirs) in [("qa", "ha"), ("qb", "hb")] {
            ip(&format!("link add {ours} type veth peer name {theirs}"));
            // The host of the router says nothing of its own.
            ip(&format!("link set {ours} addrgenmode none"));
            ip(&format!("link set {ours} up"));
        }
        let forward = Forward::start(&format!("--in packet:qa{ROUTED}"));
        Self::new(forward, ["ha", "hb"])
    }

    fn new(forward: Forward, devices: [&'static str; 2]) -> Self {
        let hosts = [Host::new(), Host::new()];
        for ((host, device), (addresses, gateways)) in
            hosts.iter().zip(devices).zip(ADDRESSES.iter().zip(&GATEWAYS))
        {
            host.plug(device, addresses, gateways);
            // No packets in one piece that are longer than the MTU.
            host.ip(&format!("link set {device} gso_max_segs 1"));
        }
        let [a, b] = &hosts;
        for [near, far] in [V4, V6] {
            udp(a, b, [near, far], b"there");
            udp(b, a, [far, near], b"and back");
        }
        // Who is known stays so: nothing but what is counted is sent by A.
        for gateway in GATEWAYS[0] {
            a.ip(&format!("neigh change {gateway} dev {} nud permanent", devices[0]));
        }
        Self { forward, hosts, devices }
    }

    fn load(&self, ends: [&str; 2], count: u64, rate: u64) -> Arrived {
        let [a, b] = &self.hosts;
        let arrived = udp_load(a, b, ends, count, &[18, 8, 1452, 300, 1200, 47, 64], rate);
        eprintln!("{rate} a second: {arrived:?}");
        assert_eq!((arrived.twice, arrived.wrong), (0, 0), "{arrived:?}");
        arrived
    }

    /// What the interfaces on the way have dropped.
    fn not_sent(&self) -> u64 {
        let [a, b] = &self.hosts;
        let [first, _] = self.devices;
        // What the router sends leaves by its own end of a `veth`; a TAP's other end has none.
        let second = if first == "qa" { not_sent(Some(b), "qb") } else { not_sent(None, "qb") };
        not_sent(Some(a), first) + second
    }
}

/// Returns the number of packets that the router and its devices have dropped, without those that
/// no host forwards (packets of hosts that come up).
fn dropped(said: &str) -> u64 {
    let reasons = DropReason::ALL.iter().filter(|reason| **reason != DropReason::UnhandledProtocol);
    reasons.map(|reason| dropped_as(said, reason.name())).sum()
}

/// Returns the number of packets that were dropped for one reason.
fn dropped_as(said: &str, reason: &str) -> u64 {
    let words: Vec<&str> = said.split([' ', ',', '\n']).filter(|word| !word.is_empty()).collect();
    let heading = format!("{reason}:");
    let number = |pair: &[&str]| match pair {
        // Of a device: "57 FULL_RING". Of the router: "NOMEM: 7".
        [number, name] if *name == reason => number.parse::<u64>().ok(),
        [name, number] if *name == heading => number.parse().ok(),
        _ => None,
    };
    words.windows(2).filter_map(number).sum()
}

/// Returns the number of packets that the router has received.
fn received(said: &str) -> u64 {
    let line = said.lines().find_map(|line| line.strip_prefix("received: "));
    line.expect("a line of what was received").trim().parse().expect("a number")
}

#[test]
fn what_is_said_of_drops_is_understood() {
    let said = "qa 5 99 3 9 12 /s 4 FULL_RING, 2 DEV_READY\nqb 1 1 1 1 0 /s 0\nreceived: 9\nNOMEM: 7\nUNHANDLED_PROTO: 3\n";
    assert_eq!(dropped(said), 4 + 2 + 7);
    assert_eq!(received(said), 9);
}

/// Returns the number of datagrams at a time: `QUIETLINE_WIRE_DATAGRAMS`, or the default times
/// `QUIETLINE_TEST_SCALE`, at most 50,000.
fn count() -> u64 {
    quietline_testing::budget("QUIETLINE_WIRE_DATAGRAMS", 10_000).min(50_000)
}

/// Each datagram comes once, or is counted where it was dropped; and nearly all come, if they come no faster than this machine, busy as it
/// may be, can look at them.
fn each_comes_or_is_counted(between: Between) {
    let before = between.not_sent();
    let mut all = Vec::new();
    for (ends, count) in [(V4, count()), (V6, count() / 5)] {
        let enough = [20_000, 8_000, 3_000].into_iter().any(|rate| {
            let arrived = between.load(ends, count, rate);
            // (What the receiver has no room for came as well.)
            let most_came = (arrived.came + arrived.no_room) * 100 >= count * 99;
            all.push(arrived);
            most_came
        });
        assert!(enough, "more than one in a hundred is lost: {all:?}");
    }
    // As fast as it can be sent: then some are dropped, and each of them is counted too.
    all.push(between.load(V4, count(), 0));
    let by_links = between.not_sent() - before;
    let said = between.forward.end();
    let sum = |of: fn(&Arrived) -> u64| all.iter().map(of).sum::<u64>();
    let lost = sum(|arrived| arrived.sent - arrived.came - arrived.no_room);
    let counted = dropped(&said) + by_links;
    // Hosts send packets of their own (neighbour discovery, errors), which may be dropped, too.
    // Packets that a full ring drops on their way in do not count as received. Those that one drops
    // on their way out make the bound looser.
    let sent = sum(|arrived| arrived.sent);
    let looked_at = received(&said) + dropped_as(&said, "FULL_RING");
    let others = looked_at.saturating_sub(sent - by_links.min(sent));
    let told = format!("{by_links} by the links, {all:?}, {others} packets of others, {said}");
    assert!(lost <= counted, "{lost} lost, {counted} counted: {told}");
    assert!(counted <= lost + others, "{lost} lost, {counted} counted: {told}");
    eprintln!("{lost} dropped, {by_links} of them by the links of the host");
}

#[test]
fn datagrams_over_taps() {
    if inside("forward_load::datagrams_over_taps", &["tc"]) {
        each_comes_or_is_counted(Between::taps());
    }
}

#[test]
fn datagrams_over_packet_sockets() {
    if inside("forward_load::datagrams_over_packet_sockets", &["tc"]) {
        each_comes_or_is_counted(Between::veths());
    }
}

/// What iperf3 says of a run, as its client prints it.
fn iperf3([a, b]: &[Host; 2], options: &str) -> serde_json::Value {
    let net = format!("--net={}", b.path());
    let mut server = Command::new("nsenter");
    server
        .args([&net, "iperf3", "-s", "-1", "-B", "10.0.2.2"])
        .stdout(Stdio::null())
        .stderr(Stdio::null());
    let mut server = server.spawn().unwrap();
    // Until the server listens, it is asked again.
    let begun = std::time::Instant::now();
    let said = loop {
        let net = format!("--net={}", a.path());
        let mut client = Command::new("nsenter");
        client.args([&net, "iperf3", "-J", "-c", "10.0.2.2"]).args(options.split(' '));
        let said: serde_json::Value =
            serde_json::from_slice(&client.output().unwrap().stdout).unwrap();
        if said.get("error").is_none() {
            break said;
        }
        assert!(begun.elapsed() < PATIENCE, "{said}");
        thread::sleep(std::time::Duration::from_millis(50));
    };
    let _ = server.kill();
    server.wait().unwrap();
    said
}

fn iperf3_through(between: Between) {
    let said = iperf3(&between.hosts, "-t 2");
    let received = said["end"]["sum_received"]["bytes"].as_u64().unwrap();
    assert!(received > 1 << 20, "{received} bytes by TCP");
    let few_lost = |megabits: u32| {
        let said = iperf3(&between.hosts, &format!("-u -l 1200 -t 2 -b {megabits}M"));
        let of = |name: &str| said["end"]["sum"][name].as_u64().unwrap();
        let (packets, lost) = (of("packets"), of("lost_packets"));
        eprintln!("{megabits} Mbit/s: {packets} packets, {lost} lost");
        assert!(packets > 100, "{packets} packets");
        lost * 100 <= packets
    };
    assert!([100, 30, 10, 3].into_iter().any(few_lost), "more than one in a hundred is lost");
    between.forward.end();
}

#[test]
#[ignore = "soak: iperf3 sends for four seconds and more"]
fn iperf3_over_taps() {
    if inside("forward_load::iperf3_over_taps", &["iperf3", "tc"]) {
        iperf3_through(Between::taps());
    }
}

#[test]
#[ignore = "soak: iperf3 sends for four seconds and more"]
fn iperf3_over_packet_sockets() {
    if inside("forward_load::iperf3_over_packet_sockets", &["iperf3", "tc"]) {
        iperf3_through(Between::veths());
    }
}

/// In a terminal, the line of rates says how many packets the router has dropped.
#[test]
#[ignore = "soak: watches a terminal for six seconds"]
fn a_terminal_shows_what_the_router_drops() {
    if !inside("forward_load::a_terminal_shows_what_the_router_drops", &[]) {
        return;
    }
    ip("tuntap add dev qa mode tap");
    ip("link set qa up");
    let ours = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).unwrap();
    grantpt(&ours).unwrap();
    unlockpt(&ours).unwrap();
    let theirs = ptsname(&ours, Vec::new()).unwrap();
    let theirs =
        rustix::fs::open(theirs.as_c_str(), OFlags::RDWR | OFlags::NOCTTY, Mode::empty()).unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_ql"));
    // Nowhere to go: there is no route. (The second packet follows when nothing waits any more that was made for the first one.)
    command.args(
        "forward --generate --out tap:qa=10.0.0.1/24 --destination 203.0.113.1 --seconds 6"
            .split(' '),
    );
    command.env("TERM", "xterm").stdout(Stdio::null()).stderr(theirs);
    let mut child = command.spawn().unwrap();
    drop(command);
    let ended = AtomicBool::new(false);
    let mut shown = String::new();
    thread::scope(|scope| {
        scope.spawn(|| {
            child.wait().unwrap();
            ended.store(true, Ordering::Relaxed);
        });
        let mut file = std::fs::File::from(ours);
        let mut bytes = [0; 4096];
        // When nobody has the other end any more, there is an error.
        while let Ok(n @ 1..) = file.read(&mut bytes) {
            shown += &String::from_utf8_lossy(&bytes[..n]);
        }
    });
    assert!(ended.load(Ordering::Relaxed));
    let numbers = shown
        .split("dropped ")
        .skip(1)
        .filter_map(|rest| rest.split(|c: char| !c.is_ascii_digit()).next()?.parse::<u64>().ok());
    let most = numbers.max();
    assert!(most.is_some_and(|most| most > 1000), "{shown:?}");
}
