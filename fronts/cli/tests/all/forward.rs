//! `ql forward`: in memory, and on the wire: hosts in network namespaces, joined by TAP devices, as a cable and as a router.

use std::fs;
use std::io::ErrorKind;
use std::net::{Ipv4Addr, Ipv6Addr, UdpSocket};
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

use crate::wire::echo::ping;
use crate::wire::talk::{tcp, udp};
use crate::wire::{Forward, Host, inside, ip, text, until};

fn ql(arguments: &str) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_ql"));
    command.arg("forward").args(arguments.split(' ')).output().expect("ql was built for this test")
}

#[test]
fn generated_packets_end_in_the_sink_each_once() {
    for (arguments, count) in [
        ("--generate --count 200000 --flows 3", 200_000),
        // So many that the low bits of the source wrap, and each flow comes twice.
        if cfg!(debug_assertions) {
            ("--generate --count 66000 --size 1514 --flows 65800", 66_000)
        } else {
            ("--generate --count 140000 --size 1514 --flows 70000", 140_000)
        },
        ("--generate --count 20000 --size 78 --destination 2001:2:0:1::1", 20_000),
    ] {
        let output = ql(arguments);
        let said = text(&output.stdout);
        assert!(output.status.success(), "{arguments}: {output:?}");
        let sink = format!("sink: {count} received, 0 lost, 0 duplicated, 0 reordered, 0 foreign");
        assert!(said.contains(&sink), "{arguments}: {said}");
        let forwarded = if arguments.contains(':') { "forwarded IPv6" } else { "forwarded IPv4" };
        assert!(said.contains(&format!("{forwarded}: {count}\n")), "{arguments}: {said}");
    }
    let output = ql("--generate --seconds 0.1");
    assert!(
        output.status.success() && text(&output.stdout).contains(" 0 lost, 0 dup"),
        "{output:?}"
    );
}

#[test]
fn what_cannot_be_done_is_told() {
    const ONE_SIDED: &str = "give addresses to both devices, or to none";
    for (arguments, says) in [
        ("--generate --size 63", "63 is not in 64..=1514"),
        ("--generate --size 77 --destination ::2", "--size must be 78 at least for IPv6"),
        ("--generate --flows 0", "0 is not in 1..=16777216"),
        ("--generate --seconds=-1", "give seconds from 0"),
        ("--in tap:x --out tap:y --route ::/0=10.0.0.1", "is not a route"),
        ("--in tap:x=10.0.0.1 --out tap:y", "is not an address with its bits"),
        ("--in no/such --out tap:x", "a name has 1 to 15 bytes"),
        ("--in tap:x --out sixteen-bytes-ab", "a name has 1 to 15 bytes"),
        ("--in tap:x=10.0.0.1/24 --out tap:y", ONE_SIDED),
        ("--in no-such-one --out no-such-one=10.0.0.1/24", ONE_SIDED),
        (
            "--in tap:x --out tap:y --route 0.0.0.0/0=10.0.0.1",
            "a route needs devices with addresses",
        ),
        (
            "--in tap:x=10.0.0.1/24 --out tap:y=10.0.1.1/24 --route 0.0.0.0/0=10.0.2.1",
            "the gateway 10.0.2.1 is on no device's link",
        ),
        (
            "--in tap:x=fd00::1/64 --out tap:y=fd00:1::1/64 --route ::/0=fe80::1",
            "as in `fe80::1%y`",
        ),
        (
            "--in tap:x=fd00::1/64 --out tap:y=fd00:1::1/64 --route ::/0=fe80::1%z",
            "on the link of z, which is not one of the devices",
        ),
        (
            "--in tap:x=fd00::1/64 --out tap:y=fd00:1::1/64 --route ::/0=fd00::9%y",
            "the gateway fd00::9 is not on the link of y",
        ),
        (
            "--in tap:x=fd00::1/64 --out tap:y=fd00:1::1/64 --route ::/0=fe80::1%",
            "no device behind the `%`",
        ),
    ] {
        let output = ql(arguments);
        assert!(
            output.status.code() == Some(2) && output.stdout.is_empty(),
            "{arguments}: {output:?}"
        );
        assert!(text(&output.stderr).contains(says), "{arguments}: {output:?}");
    }
    let output = ql("--in no-such-one --out no-such-one");
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    let error = text(&output.stderr);
    assert!(error.contains("no-such-one cannot be used: "), "{error}");
    assert!(
        error.contains("there is no interface of that name") || error.contains("CAP_NET_RAW"),
        "{error}"
    );
}

#[test]
fn nobody_reads_the_counters() {
    let mut command = Command::new(env!("CARGO_BIN_EXE_ql"));
    command
        .args(["forward", "--generate", "--count", "1000"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    drop(child.stdout.take());
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success(), "{output:?}");
}

/// What an echo request is answered with.
const ECHO: [u8; 2] = [0, 0];
const ECHO6: [u8; 2] = [129, 0];
const LEN: usize = 8 << 20;

/// A datagram there, and one back.
fn both_ways(a: &Host, b: &Host, [near, far]: [&str; 2]) {
    udp(a, b, [near, far], b"there");
    udp(b, a, [far, near], b"and back");
}

#[test]
fn a_cable() {
    if !inside("forward::a_cable", &[]) {
        return;
    }
    let forward = Forward::start("--in tap:qa --out tap:qb");
    let (a, b) = (Host::new(), Host::new());
    a.plug("qa", &["10.0.0.1/24", "fd00::1/64"], &[]);
    b.plug("qb", &["10.0.0.2/24", "fd00::2/64"], &[]);
    let far = Ipv4Addr::new(10, 0, 0, 2);
    assert_eq!(a.on(|| ping(far, 56, 64, ECHO)).from, far);
    both_ways(&a, &b, ["[fd00::1]:4000", "[fd00::2]:4000"]);
    tcp(LEN, &a, &b, "10.0.0.2:4000");
    tcp(LEN, &b, &a, "[fd00::1]:4001");
    let said = forward.end();
    for device in ["qa", "qb"] {
        let line =
            said.lines().find(|line| line.trim_start().starts_with(device)).expect("it has a line");
        let received: u64 = line.split_whitespace().nth(1).unwrap().parse().unwrap();
        // What comes before the other host is plugged in has nowhere to go.
        let dropped =
            line.split_whitespace().nth(8) == Some("DEV_READY") || line.trim_end().ends_with(" 0");
        assert!(received > (8 << 20) / 1500 && dropped, "{said}");
    }
}

#[test]
fn a_router() {
    if !inside("forward::a_router", &[]) {
        return;
    }
    ip("tuntap add dev qa mode tap");
    ip("tuntap add dev qb mode tap");
    ip("link set qb mtu 1300");
    let forward = Forward::start(
        "--in tap:qa=10.0.1.1/24,fd00:1::1/64 --out tap:qb=10.0.2.1/24,fd00:2::1/64 --route 10.9.0.0/16=10.0.2.2 \
         --route fd00:9::/32=fe80::77%qb",
    );
    let (a, b) = (Host::new(), Host::new());
    a.plug("qa", &["10.0.1.2/24", "fd00:1::2/64"], &["10.0.1.1", "fd00:1::1"]);
    b.plug("qb", &["10.0.2.2/24", "fd00:2::2/64"], &["10.0.2.1", "fd00:2::1"]);
    b.ip("addr add 10.9.9.9/32 dev lo");
    // Behind an address that is on every link.
    b.ip("addr add fe80::77/64 dev qb nodad");
    b.ip("addr add fd00:9::9/128 dev lo");
    // The host enters the address into its routes a moment later.
    until("an address behind the host", || {
        b.ip("-6 route show table local fd00:9::9").contains("fd00:9::9")
    });
    let behind6: Ipv6Addr = "fd00:9::9".parse().unwrap();
    assert_eq!(a.on(|| ping(behind6, 56, 64, ECHO6)).from, behind6);
    let [router, far, behind] =
        [[10, 0, 1, 1], [10, 0, 2, 2], [10, 9, 9, 9]].map(|[a, b, c, d]| Ipv4Addr::new(a, b, c, d));
    for to in [router, far, behind] {
        assert_eq!(a.on(|| ping(to, 56, 64, ECHO)).from, to);
    }
    // As traceroute: the first hop says that it was the last.
    assert_eq!(a.on(|| ping(far, 56, 1, [11, 0])).from, router);
    assert_eq!(a.on(|| ping(far, 56, 2, ECHO)).from, far);
    // 1,300 bytes fit on the way on, with headers.
    assert_eq!(a.on(|| ping(far, 1272, 64, ECHO)).from, far);
    let too_long = a.on(|| ping(far, 1400, 64, [3, 4]));
    assert!(too_long.from == router && too_long.word == 1300, "{too_long:?}");
    assert_eq!(a.on(|| ping(Ipv4Addr::new(10, 77, 0, 1), 56, 64, [3, 0])).from, router);
    both_ways(&a, &b, ["10.0.1.2:4000", "10.0.2.2:4000"]);
    both_ways(&a, &b, ["[fd00:1::2]:4000", "[fd00:2::2]:4000"]);
    tcp(LEN, &a, &b, "10.0.2.2:4001");
    tcp(LEN, &b, &a, "[fd00:1::2]:4002");
    let said = forward.end();
    for count in [
        "forwarded IPv4: ",
        "forwarded IPv6: ",
        "ICMP errors: ",
        "IP_TTL_EXPIRED: ",
        "PKT_TOO_BIG: ",
    ] {
        assert!(said.contains(count), "{count} in {said}");
    }
}

/// A host's end of a cable; the other is `name`.
fn veth(host: &Host, name: &str, end: &str, addresses: &[&str], gateways: &[&str]) {
    ip(&format!("link add {name} type veth peer name {end}"));
    ip(&format!("link set {name} up"));
    host.plug(end, addresses, gateways);
    // No packets in one piece that are longer than the MTU.
    host.ip(&format!("link set {end} gso_max_segs 1"));
}

#[test]
fn a_cable_between_interfaces_whose_checksums_are_unmade() {
    if !inside("forward::a_cable_between_interfaces_whose_checksums_are_unmade", &[]) {
        return;
    }
    let (a, b) = (Host::new(), Host::new());
    veth(&a, "qa", "ha", &["10.0.0.1/24"], &[]);
    veth(&b, "qb", "hb", &["10.0.0.2/24"], &[]);
    b.ip("addr add fd00::2/64 dev hb nodad");
    a.ip("addr add fd00::1/64 dev ha nodad");
    let forward = Forward::start("--in qa --out qb");
    both_ways(&a, &b, ["10.0.0.1:4000", "10.0.0.2:4000"]);
    tcp(1 << 20, &a, &b, "10.0.0.2:4000");
    tcp(1 << 20, &b, &a, "[fd00::1]:4001");
    let said = forward.end();
    assert!(!said.contains("UNHANDLED_PROTO"), "{said}");
}

#[test]
fn an_interface_that_goes_away_ends_it_with_what_was_counted() {
    if !inside("forward::an_interface_that_goes_away_ends_it_with_what_was_counted", &[]) {
        return;
    }
    ip("link add qa type veth peer name qb");
    ip("link set qa up");
    ip("link set qb up");
    let forward = Forward::start("--in qa --out qb");
    ip("link del qa");
    let (code, said, error) = forward.wait();
    assert!(code == Some(1) && said.contains("received"), "{code:?} {said} {error}");
    assert!(error.contains("no packets from q"), "{error}");
}

/// Packets a second that a device has sent, as it is said.
fn rate(said: &str, device: &str) -> f64 {
    let line =
        said.lines().find(|line| line.trim_start().starts_with(device)).expect("it has a line");
    let words: Vec<&str> = line.split_whitespace().collect();
    let unit = ["/s", "k/s", "M/s"].iter().position(|unit| words[6] == *unit).expect("a unit");
    words[5].parse::<f64>().unwrap() * 1000f64.powi(unit as i32)
}

#[test]
fn generated_packets_wait_for_the_neighbour_and_are_counted() {
    if !inside("forward::generated_packets_wait_for_the_neighbour_and_are_counted", &[]) {
        return;
    }
    ip("tuntap add dev qa mode tap");
    // Nothing of the host's own comes beside what is counted here.
    ip("link set qa addrgenmode none");
    ip("link set qa up");
    ip("addr add 10.0.0.2/24 dev qa");
    ip("route add 198.18.0.0/15 dev qa");
    // A device without a host behind it. Its neighbours are given up while the other runs go on.
    ip("tuntap add dev qb mode tap");
    ip("link set qb up");
    let to_nobody = |amount: &str| {
        let generated = "--generate --out tap:qb=10.0.1.1/24 --destination 10.0.1.77";
        Forward::start(&format!("{generated} {amount}"))
    };
    let given_up = to_nobody("--count 10");
    let socket = UdpSocket::bind("10.0.0.2:9").unwrap();
    socket.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
    // The host is silent until it was asked once, so that there is something to wait for: a second, until it is asked again.
    let came = || -> u64 {
        let devices = fs::read_to_string("/proc/net/dev").unwrap();
        let line =
            devices.lines().find_map(|line| line.trim().strip_prefix("qa:")).expect("it is there");
        line.split_whitespace().nth(1).expect("packets").parse().unwrap()
    };
    // A machine that is busy may hold up who answers, so that the neighbour is given up, or who sends; but not each time.
    let mut rounds = Vec::new();
    loop {
        ip("link set qa arp off");
        let before = came();
        let forward = Forward::start(
            "--generate --out tap:qa=10.0.0.1/24 --destination 10.0.0.2 --count 200",
        );
        until("a question", || came() != before);
        ip("link set qa arp on");
        let (mut bytes, mut answered, mut numbers) = ([0; 100], None, Vec::new());
        while numbers.len() < 200 {
            let (len, from) = match socket.recv_from(&mut bytes) {
                Ok(datagram) => datagram,
                // The others were for the neighbour that was given up.
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                Err(error) => panic!("{numbers:?}: {error}"),
            };
            assert_eq!((len, from), (64 - 42, "198.18.0.1:1024".parse().unwrap()));
            numbers.push(u64::from_be_bytes(bytes[8..16].try_into().unwrap()));
            answered.get_or_insert_with(Instant::now);
        }
        let (code, said, error) = forward.wait();
        assert!(
            code == Some(0) && numbers.is_sorted_by(|a, b| a < b),
            "{numbers:?} {said} {error}"
        );
        // The neighbour has answered: nothing is waited for any more, neither before the others nor behind them.
        let took = answered.map(|answered: Instant| answered.elapsed());
        if numbers.len() == 200 && !said.contains("NEIGH_FAILED") {
            assert!(
                numbers.into_iter().eq(0..200) && said.contains("forwarded IPv4: 200\n"),
                "{said} {error}"
            );
            // Of the time in which they were sent.
            if took.is_some_and(|took| took < Duration::from_secs(3)) && rate(&said, "qa") > 1000.0
            {
                break;
            }
        }
        rounds.push((took, said));
        assert!(rounds.len() < 5, "{rounds:#?}");
    }
    // Nobody is there: all are counted.
    let (code, said, _) = given_up.wait();
    let failed = said
        .lines()
        .find_map(|line| line.trim().strip_prefix("NEIGH_FAILED: ")?.parse::<u32>().ok());
    // And some of the errors, which nobody answers for either.
    assert!(code == Some(0) && failed.is_some_and(|failed| (10..=20).contains(&failed)), "{said}");
    // Told to end before it is known: so are those that wait.
    let (code, said, _) = to_nobody("--seconds 0.5").wait();
    assert!(code == Some(0) && said.contains("waiting for a neighbour: 1\n"), "{said}");
}
