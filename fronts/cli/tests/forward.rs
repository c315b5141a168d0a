//! `ql forward`: in memory, and on the wire: hosts in network namespaces, joined by TAP devices, as a cable and as a router.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4, TcpListener, TcpStream, UdpSocket};
use std::process::{Child, Command, Output, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use rustix::net::{self, AddressFamily, RecvFlags, SendFlags, SocketType, ipproto, sockopt};
use rustix::process::{Pid, Signal, kill_process};

fn ql(arguments: &str) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_ql"));
    command.arg("forward").args(arguments.split(' ')).output().expect("ql was built for this test")
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
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
    assert!(output.status.success() && text(&output.stdout).contains(" 0 lost, 0 dup"), "{output:?}");
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
        ("--in tap:x --out tap:y --route 0.0.0.0/0=10.0.0.1", "a route needs devices with addresses"),
        (
            "--in tap:x=10.0.0.1/24 --out tap:y=10.0.1.1/24 --route 0.0.0.0/0=10.0.2.1",
            "the gateway 10.0.2.1 is on no device's link",
        ),
    ] {
        let output = ql(arguments);
        assert!(output.status.code() == Some(2) && output.stdout.is_empty(), "{arguments}: {output:?}");
        assert!(text(&output.stderr).contains(says), "{arguments}: {output:?}");
    }
    let output = ql("--in no-such-one --out no-such-one");
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    let error = text(&output.stderr);
    assert!(error.contains("no-such-one cannot be used: "), "{error}");
    assert!(error.contains("there is no interface of that name") || error.contains("CAP_NET_RAW"), "{error}");
}

#[test]
fn nobody_reads_the_counters() {
    let mut command = Command::new(env!("CARGO_BIN_EXE_ql"));
    command.args(["forward", "--generate", "--count", "1000"]).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    drop(child.stdout.take());
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success(), "{output:?}");
}

const INSIDE: &str = "QUIETLINE_TEST_INSIDE";

/// True in a network namespace of the test's own, with TAP devices. Outside of one, runs the test again there, or says why not.
fn inside(test: &str) -> bool {
    if std::env::var_os(INSIDE).is_some() {
        return true;
    }
    let try_it = ["-n", "ip", "tuntap", "add", "dev", "qx", "mode", "tap"];
    match Command::new("unshare").args(try_it).output() {
        Ok(output) if output.status.success() => {}
        other => {
            eprintln!("skipped: no network namespace with a TAP device can be made here: {other:?}");
            return false;
        }
    }
    let mut command = Command::new("unshare");
    command.arg("-n").arg(std::env::current_exe().unwrap()).args(["--exact", test, "--nocapture"]);
    let output = command.env(INSIDE, "1").output().unwrap();
    let (said, error) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    eprint!("{said}{error}");
    // A name that is no test's any more would pass without it.
    let ran = said.contains("test result: ok. 1 passed");
    assert!(output.status.success() && ran, "{test} fails inside the namespace");
    false
}

fn run(program: &str, words: &[&str]) {
    let output = Command::new(program).args(words).output().unwrap();
    assert!(output.status.success(), "{program} {words:?}: {}", text(&output.stderr));
}

fn ip(words: &str) {
    run("ip", &words.split(' ').collect::<Vec<_>>());
}

fn until(what: &str, mut done: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !done() {
        assert!(begun.elapsed() < Duration::from_secs(20), "in vain: {what}");
        thread::sleep(Duration::from_millis(10));
    }
}

/// A network namespace of its own, as long as this lives.
struct Host(Child);

impl Host {
    fn new() -> Self {
        let own = std::fs::read_link("/proc/self/ns/net").unwrap();
        let host = Self(Command::new("unshare").args(["-n", "sleep", "600"]).spawn().unwrap());
        until("a namespace", || std::fs::read_link(host.path()).is_ok_and(|other| other != own));
        host.ip("link set lo up");
        host
    }

    fn path(&self) -> String {
        format!("/proc/{}/ns/net", self.0.id())
    }

    fn ip(&self, words: &str) {
        let net = format!("--net={}", self.path());
        run("nsenter", &[net.as_str(), "ip"].into_iter().chain(words.split(' ')).collect::<Vec<_>>());
    }

    /// Gives it a device, with an address and a gateway.
    fn plug(&self, device: &str, addresses: &[&str], gateways: &[&str]) {
        ip(&format!("link set {device} netns {}", self.0.id()));
        self.ip(&format!("link set {device} up"));
        for address in addresses {
            let nodad = if address.contains(':') { " nodad" } else { "" };
            self.ip(&format!("addr add {address} dev {device}{nodad}"));
        }
        for gateway in gateways {
            self.ip(&format!("route add default via {gateway}"));
        }
    }

    /// Does something on a thread that is there.
    fn on<R: Send>(&self, work: impl FnOnce() -> R + Send) -> R {
        let namespace = std::fs::File::open(self.path()).unwrap();
        thread::scope(|scope| {
            let inside = scope.spawn(move || {
                let kind = Some(rustix::thread::LinkNameSpaceType::Network);
                rustix::thread::move_into_link_name_space(rustix::fd::AsFd::as_fd(&namespace), kind).unwrap();
                work()
            });
            inside.join().unwrap()
        })
    }
}

impl Drop for Host {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// `ql forward` at work.
struct Forward(Child);

impl Forward {
    fn start(arguments: &str) -> Self {
        let mut command = Command::new(env!("CARGO_BIN_EXE_ql"));
        command.arg("forward").args(arguments.split(' ')).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let mut line = String::new();
        BufReader::new(child.stderr.as_mut().unwrap()).read_line(&mut line).unwrap();
        assert!(line.starts_with("forwarding: "), "{line}");
        Self(child)
    }

    /// Waits until it ends of itself: how, and what it printed.
    fn wait(mut self) -> (Option<i32>, String, String) {
        until("the end", || self.0.try_wait().unwrap().is_some());
        let (mut said, mut error) = (String::new(), String::new());
        self.0.stdout.take().unwrap().read_to_string(&mut said).unwrap();
        self.0.stderr.take().unwrap().read_to_string(&mut error).unwrap();
        (self.0.wait().unwrap().code(), said, error)
    }

    /// Ends it as Ctrl-C does: what it printed.
    fn end(mut self) -> String {
        kill_process(Pid::from_child(&self.0), Signal::INT).unwrap();
        let mut said = String::new();
        self.0.stdout.take().unwrap().read_to_string(&mut said).unwrap();
        assert!(self.0.wait().unwrap().success());
        said
    }
}

impl Drop for Forward {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Who answers an echo request of so many bytes; and type, code, and the second word of the message.
type Answer = Option<(Ipv4Addr, u8, u8, u32)>;

/// What answers an echo request, one of several: on a machine that is busy, a neighbour may be given up before it has answered.
fn ping(to: Ipv4Addr, len: usize, ttl: u32) -> Answer {
    (0..5).find_map(|_| ping_once(to, len, ttl))
}

fn ping_once(to: Ipv4Addr, len: usize, ttl: u32) -> Answer {
    let socket = net::socket(AddressFamily::INET, SocketType::RAW, Some(ipproto::ICMP)).unwrap();
    sockopt::set_socket_timeout(&socket, sockopt::Timeout::Recv, Some(Duration::from_secs(3))).unwrap();
    sockopt::set_ip_ttl(&socket, ttl).unwrap();
    let mut request = vec![0; 8 + len];
    (request[0], request[4], request[7]) = (8, 0x51, 1);
    request[8..].fill(0x33);
    let mut sum: u32 = request.chunks(2).map(|word| u32::from(word[0]) << 8 | u32::from(word[1])).sum();
    sum = (sum >> 16) + (sum & 0xffff);
    request[2..4].copy_from_slice(&(!((sum >> 16) + sum) as u16).to_be_bytes());
    net::sendto(&socket, &request, SendFlags::empty(), &SocketAddrV4::new(to, 0)).unwrap();
    loop {
        let mut bytes = vec![0; 4096];
        let (len, _) = net::recv(&socket, &mut bytes[..], RecvFlags::empty()).ok()?;
        let from = Ipv4Addr::new(bytes[12], bytes[13], bytes[14], bytes[15]);
        let icmp = &bytes[usize::from(bytes[0] & 15) * 4..len];
        // Not our own request, where we are the one who answers.
        if icmp[0] != 8 {
            let word = u32::from_be_bytes(icmp[4..8].try_into().unwrap());
            return Some((from, icmp[0], icmp[1], word));
        }
    }
}

const ECHO: u32 = 0x5100_0001;

/// Bytes by TCP, from one host to the other, which are the same there.
fn tcp(from: &Host, to: &Host, address: &str) {
    tcp_of(LEN, from, to, address);
}

const LEN: usize = 8 << 20;

fn tcp_of(len: usize, from: &Host, to: &Host, address: &str) {
    let byte = |i: usize| (i * 7 + i / 251) as u8;
    let listener = to.on(|| TcpListener::bind(address).unwrap());
    let mut stream = from.on(|| {
        let timeout = Duration::from_secs(10);
        TcpStream::connect_timeout(&address.parse::<SocketAddr>().unwrap(), timeout).unwrap()
    });
    let (mut other, _) = listener.accept().unwrap();
    other.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    thread::scope(|scope| {
        stream.set_write_timeout(Some(Duration::from_secs(60))).unwrap();
        scope.spawn(move || {
            let bytes: Vec<u8> = (0..len).map(byte).collect();
            stream.write_all(&bytes).unwrap();
        });
        let mut bytes = Vec::new();
        other.read_to_end(&mut bytes).unwrap();
        assert!(
            bytes.len() == len && bytes.iter().enumerate().all(|(i, b)| *b == byte(i)),
            "{}",
            bytes.len()
        );
    });
}

/// One datagram there, and one back.
fn udp(from: &Host, to: &Host, [near, far]: [&str; 2]) {
    let [a, b] =
        [(from, near), (to, far)].map(|(host, address)| host.on(|| UdpSocket::bind(address).unwrap()));
    for (sender, receiver, at) in [(&a, &b, far), (&b, &a, near)] {
        receiver.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
        sender.send_to(b"there", at).unwrap();
        let mut bytes = [0; 100];
        assert_eq!(receiver.recv(&mut bytes).unwrap(), 5);
    }
}

#[test]
fn a_cable() {
    if !inside("a_cable") {
        return;
    }
    let forward = Forward::start("--in tap:qa --out tap:qb");
    let (a, b) = (Host::new(), Host::new());
    a.plug("qa", &["10.0.0.1/24", "fd00::1/64"], &[]);
    b.plug("qb", &["10.0.0.2/24", "fd00::2/64"], &[]);
    let far = Ipv4Addr::new(10, 0, 0, 2);
    assert_eq!(a.on(|| ping(far, 56, 64)), Some((far, 0, 0, ECHO)));
    udp(&a, &b, ["[fd00::1]:4000", "[fd00::2]:4000"]);
    tcp(&a, &b, "10.0.0.2:4000");
    tcp(&b, &a, "[fd00::1]:4001");
    let said = forward.end();
    for device in ["qa", "qb"] {
        let line = said.lines().find(|line| line.trim_start().starts_with(device)).expect("it has a line");
        let received: u64 = line.split_whitespace().nth(1).unwrap().parse().unwrap();
        // What comes before the other host is plugged in has nowhere to go.
        let dropped = line.split_whitespace().nth(8) == Some("DEV_READY") || line.trim_end().ends_with(" 0");
        assert!(received > (8 << 20) / 1500 && dropped, "{said}");
    }
}

#[test]
fn a_router() {
    if !inside("a_router") {
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
    let [router, far, behind] =
        [[10, 0, 1, 1], [10, 0, 2, 2], [10, 9, 9, 9]].map(|[a, b, c, d]| Ipv4Addr::new(a, b, c, d));
    for to in [router, far, behind] {
        assert_eq!(a.on(|| ping(to, 56, 64)), Some((to, 0, 0, ECHO)), "{to}");
    }
    // As traceroute: the first hop says that it was the last.
    assert_eq!(a.on(|| ping(far, 56, 1)), Some((router, 11, 0, 0)));
    assert_eq!(a.on(|| ping(far, 56, 2)), Some((far, 0, 0, ECHO)));
    // 1,300 bytes fit on the way on, with headers.
    assert_eq!(a.on(|| ping(far, 1272, 64)), Some((far, 0, 0, ECHO)));
    assert_eq!(a.on(|| ping(far, 1400, 64)), Some((router, 3, 4, 1300)));
    let nowhere = a.on(|| ping(Ipv4Addr::new(10, 77, 0, 1), 56, 64));
    assert!(matches!(nowhere, Some((from, 3, 0 | 1, _)) if from == router), "{nowhere:?}");
    udp(&a, &b, ["10.0.1.2:4000", "10.0.2.2:4000"]);
    udp(&a, &b, ["[fd00:1::2]:4000", "[fd00:2::2]:4000"]);
    tcp(&a, &b, "10.0.2.2:4001");
    tcp(&b, &a, "[fd00:1::2]:4002");
    let said = forward.end();
    for count in
        ["forwarded IPv4: ", "forwarded IPv6: ", "ICMP errors: ", "IP_TTL_EXPIRED: ", "PKT_TOO_BIG: "]
    {
        assert!(said.contains(count), "{count} in {said}");
    }
}

/// A host's end of a cable; the other is `name`.
fn veth(host: &Host, name: &str, end: &str, address: &str) {
    ip(&format!("link add {name} type veth peer name {end}"));
    ip(&format!("link set {name} up"));
    host.plug(end, &[address], &[]);
    // No packets in one piece that are longer than the MTU.
    host.ip(&format!("link set {end} gso_max_segs 1"));
}

#[test]
fn a_cable_between_interfaces_whose_checksums_are_unmade() {
    if !inside("a_cable_between_interfaces_whose_checksums_are_unmade") {
        return;
    }
    let (a, b) = (Host::new(), Host::new());
    veth(&a, "qa", "ha", "10.0.0.1/24");
    veth(&b, "qb", "hb", "10.0.0.2/24");
    b.ip("addr add fd00::2/64 dev hb nodad");
    a.ip("addr add fd00::1/64 dev ha nodad");
    let forward = Forward::start("--in qa --out qb");
    udp(&a, &b, ["10.0.0.1:4000", "10.0.0.2:4000"]);
    tcp_of(1 << 20, &a, &b, "10.0.0.2:4000");
    tcp_of(1 << 20, &b, &a, "[fd00::1]:4001");
    let said = forward.end();
    assert!(!said.contains("UNHANDLED_PROTO"), "{said}");
}

#[test]
fn an_interface_that_goes_away_ends_it_with_what_was_counted() {
    if !inside("an_interface_that_goes_away_ends_it_with_what_was_counted") {
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

#[test]
fn generated_packets_wait_for_the_neighbour_and_are_counted() {
    if !inside("generated_packets_wait_for_the_neighbour_and_are_counted") {
        return;
    }
    ip("tuntap add dev qa mode tap");
    // Nothing of the host's own comes beside what is counted here.
    ip("link set qa addrgenmode none");
    ip("link set qa up");
    ip("addr add 10.0.0.2/24 dev qa");
    ip("route add 198.18.0.0/15 dev qa");
    let socket = UdpSocket::bind("10.0.0.2:9").unwrap();
    socket.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
    let to = |destination: &str, count: u32| {
        let generated = "--generate --out tap:qa=10.0.0.1/24";
        Forward::start(&format!("{generated} --destination {destination} --count {count}")).wait()
    };
    let (code, said, error) = to("10.0.0.2", 10);
    assert!(code == Some(0) && said.contains("forwarded IPv4: 10\n"), "{said} {error}");
    let mut bytes = [0; 100];
    for number in 0..10u64 {
        let (len, from) = socket.recv_from(&mut bytes).unwrap_or_else(|e| panic!("{number}: {e} {said}"));
        assert_eq!((len, from), (64 - 42, "198.18.0.1:1024".parse().unwrap()));
        assert_eq!(bytes[8..16], number.to_be_bytes());
    }
    // Nobody is there: all are counted.
    let (code, said, _) = to("10.0.0.77", 10);
    let failed =
        said.lines().find_map(|line| line.trim().strip_prefix("NEIGH_FAILED: ")?.parse::<u32>().ok());
    // And some of the errors, which nobody answers for either.
    assert!(code == Some(0) && failed.is_some_and(|failed| (10..=20).contains(&failed)), "{said}");
    // Told to end before it is known: so are those that wait.
    let forward = Forward::start("--generate --out tap:qa=10.0.0.1/24 --destination 10.0.0.77 --seconds 0.5");
    let (code, said, _) = forward.wait();
    assert!(code == Some(0) && said.contains("waiting for a neighbour: 1\n"), "{said}");
}
