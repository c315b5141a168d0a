//! Devices of the host, in a network namespace of the test's own. Skipped, and told why, where that cannot be made; which is a failure
//! with `QUIETLINE_REQUIRE_WIRE=1`.

use quietline_net::device::*;
use quietline_net::forward::checksum::{Sum, pseudo6};
use quietline_net::packet::{DropReason, NAPI_BULK, Packets, Skb};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use std::net::{Ipv4Addr, TcpStream, UdpSocket};
use std::process::Command;
use std::thread::sleep;
use std::time::{Duration, Instant};

const INSIDE: &str = "QUIETLINE_TEST_INSIDE";
const REQUIRE: &str = "QUIETLINE_REQUIRE_WIRE";

/// Says how `unshare` makes a network namespace here with all that these tests need, or why it makes none. What `.ci/run` asks, too.
const NAMESPACE: &str = include_str!("../../../../../.ci/namespace");

/// True in a network namespace that has nothing but a loopback device, which is up. Outside of one, runs the test again there.
fn inside(test: &str) -> bool {
    if std::env::var_os(INSIDE).is_some() {
        ip("link set lo up");
        return true;
    }
    let asked = Command::new("sh").args(["-c", NAMESPACE]).output().unwrap();
    if !asked.status.success() {
        let required = std::env::var(REQUIRE).unwrap_or_default();
        let why = String::from_utf8_lossy(&asked.stderr);
        assert!(
            matches!(&*required, "" | "0"),
            "{test} must not be skipped ({REQUIRE}={required}): {why}"
        );
        eprintln!("skipped: {test}: {why}");
        return false;
    }
    let way = String::from_utf8_lossy(&asked.stdout);
    let name = format!("device::host::{test}");
    let mut command = Command::new("unshare");
    command.arg(way.trim()).arg(std::env::current_exe().unwrap()).args([
        "--exact",
        &name,
        "--nocapture",
    ]);
    let output = command.env(INSIDE, "1").output().unwrap();
    let (said, error) =
        (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    eprint!("{said}{error}");
    // A name that is no test's any more would pass without it.
    let ran = said.contains("test result: ok. 1 passed");
    assert!(output.status.success() && ran, "{test} fails inside the namespace");
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

/// Two ends of a cable, both up.
fn veth() {
    ip("link add va type veth peer name vb");
    ip("link set va up");
    ip("link set vb up");
}

/// The host at 10.2.0.1 and fd02::1 on `va`, where it knows neighbours that are not.
fn host_at_va() -> UdpSocket {
    ip("addr add 10.2.0.1/24 dev va");
    ip("addr add fd02::1/64 dev va nodad");
    for neighbour in ["10.2.0.2", "fd02::2"] {
        ip(&format!("neigh add {neighbour} lladdr 02:00:00:00:00:09 dev va"));
    }
    UdpSocket::bind("10.2.0.1:4000").unwrap()
}

/// A frame of so many bytes, of a protocol that is for experiments, with a number.
fn numbered<'n>(packets: &'n Packets, number: u16, len: usize) -> Skb<'n> {
    let mut frame = vec![0; len.max(18)];
    frame[..12].copy_from_slice(&[2, 0, 0, 0, 0, 9, 2, 0, 0, 0, 0, 8]);
    frame[12..14].copy_from_slice(&[0x88, 0xb5]);
    frame[14..16].copy_from_slice(&number.to_be_bytes());
    let mut skb = packets.alloc_skb(len).unwrap();
    skb.put_data(&frame[..len]).unwrap();
    skb
}

fn send<'n>(device: &mut impl NetDevice<'n>, frames: impl Iterator<Item = Skb<'n>>) {
    for skb in frames {
        let mut batch = Batch::new();
        batch.push(skb).unwrap();
        device.send(&mut batch);
        device.complete(BUDGET);
    }
}

/// What comes, until it is enough, or until nothing more comes in time.
fn received_within<'n>(
    device: &mut impl NetDevice<'n>,
    time: Duration,
    enough: impl Fn(&[Vec<u8>]) -> bool,
) -> Vec<Vec<u8>> {
    let (begun, mut frames) = (Instant::now(), Vec::new());
    while !enough(&frames) && begun.elapsed() < time {
        let mut batch = Batch::new();
        if device.poll(BUDGET, &mut batch).unwrap() == 0 {
            sleep(Duration::from_micros(200));
        }
        frames.extend(batch.iter().map(|skb| skb.data().to_vec()));
    }
    frames
}

fn received<'n>(
    device: &mut impl NetDevice<'n>,
    enough: impl Fn(&[Vec<u8>]) -> bool,
) -> Vec<Vec<u8>> {
    received_within(device, Duration::from_secs(60), enough)
}

/// The numbers of numbered frames, in order; what the host says of itself left out.
fn numbers(frames: &[Vec<u8>]) -> Vec<u16> {
    let numbered = frames.iter().filter(|frame| frame[12..14] == [0x88, 0xb5]);
    numbered.map(|frame| u16::from_be_bytes([frame[14], frame[15]])).collect()
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
    assert!(
        matches!(error.errno(), Errno::INVAL | Errno::PERM | Errno::NOENT | Errno::ACCESS),
        "{error}"
    );
}

#[test]
fn tap() {
    if !inside("tap") {
        return;
    }
    let packets = Packets::new().unwrap();
    let mut tap = Tap::open(&packets, "qt0").unwrap();
    assert_eq!((tap.name(), tap.max_frame()), ("qt0", 1514));
    assert_eq!(Tap::open(&packets, "qt0").unwrap_err().errno(), Errno::BUSY);
    let mut batch = Batch::new();
    // Buffers are made many at a time, and wait for what is to come.
    assert_eq!(packets.head_stats().active, 0);
    assert_eq!(
        (tap.poll(BUDGET, &mut batch), tap.poll(BUDGET, &mut batch)),
        (Ok(0), Ok(0)),
        "it is down"
    );
    assert_eq!(packets.head_stats().active, NAPI_BULK);
    ip("addr add 10.1.0.1/24 dev qt0");
    ip("link set qt0 up");
    ip("neigh add 10.1.0.2 lladdr 02:00:00:00:00:09 dev qt0");
    let socket = UdpSocket::bind("10.1.0.1:4000").unwrap();
    socket.send_to(b"from the host", "10.1.0.2:9").unwrap();
    let begun = Instant::now();
    let came = loop {
        assert!(begun.elapsed() < Duration::from_secs(60), "nothing came");
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
    let traffic =
        Traffic { count: Some(20), ends, links, ports: [9, 4000], size: 700, ..Traffic::default() };
    let mut generator = Generator::new(&packets, &traffic).unwrap();
    batch.consume();
    generator.poll(BUDGET, &mut batch).unwrap();
    assert_eq!((tap.send(&mut batch), tap.complete(BUDGET)), (20, 20));
    socket.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
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
    veth();
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
        assert!(
            begun.elapsed() < Duration::from_secs(300),
            "{:?} {:?}",
            sink.tally(),
            near.stats()
        );
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
    // What the host sends by the interface comes at the other end, and not here.
    let socket = host_at_va();
    (0..20).for_each(|_| assert_eq!(socket.send_to(b"from the host", "10.2.0.2:9").unwrap(), 13));
    let from_host =
        |frames: &[Vec<u8>]| frames.iter().filter(|f| f.ends_with(b"from the host")).count();
    let there = received(&mut far, |frames| from_host(frames) == 20);
    assert_eq!(from_host(&there), 20);
    assert_eq!(from_host(&received_within(&mut near, Duration::from_millis(300), |_| false)), 0);
    drop((near, far, generator, sink, out, back));
    assert_eq!(packets.head_stats().active, 0);
}

#[test]
fn a_lower_mtu_drops_what_does_not_fit_and_nothing_else() {
    if !inside("a_lower_mtu_drops_what_does_not_fit_and_nothing_else") {
        return;
    }
    veth();
    let packets = Packets::new().unwrap();
    let mut near = PacketSocket::open(&packets, "va").unwrap();
    let mut far = PacketSocket::open(&packets, "vb").unwrap();
    ip("link set va mtu 1000");
    // More than the rings have frames, so that they go round; with frames in a row that do not fit, at both ends of a batch, and one
    // that is no frame.
    let wrong = [(0, 1414), (10, 1414), (63, 1100), (64, 1015), (65, 1200), (700, 1514), (701, 13)];
    let len =
        |number| wrong.iter().find(|(wrong, _)| *wrong == number).map_or(1014, |(_, len)| *len);
    let mut came = Vec::new();
    for first in (0..1280).step_by(BATCH) {
        let mut batch = Batch::new();
        let numbers_now = first..first + BATCH as u16;
        numbers_now.clone().for_each(|i| batch.push(numbered(&packets, i, len(i))).unwrap());
        near.send(&mut batch);
        near.complete(BUDGET);
        let fit = numbers_now.filter(|i| len(*i) == 1014).count();
        came.extend(numbers(&received(&mut far, |frames| numbers(frames).len() == fit)));
    }
    let expected: Vec<u16> = (0..1280).filter(|i| len(*i) == 1014).collect();
    assert_eq!(came, expected);
    assert_eq!((near.stats().tx_packets, near.pending()), (expected.len() as u64, 0));
    let drops: Vec<_> = near.stats().drops().collect();
    assert_eq!(drops, [(DropReason::PacketTooSmall, 1), (DropReason::PacketTooBig, 6)]);
    // And back: the first one tells that more fits again.
    ip("link set va mtu 1500");
    assert_eq!(near.max_frame(), 1014);
    send(&mut near, (2000..2003).map(|i| numbered(&packets, i, 1514)));
    assert_eq!(numbers(&received(&mut far, |frames| numbers(frames).len() == 2)), [2001, 2002]);
    assert_eq!(near.max_frame(), 1514);
}

#[test]
fn what_comes_while_the_ring_is_full_is_counted() {
    if !inside("what_comes_while_the_ring_is_full_is_counted") {
        return;
    }
    veth();
    let packets = Packets::new().unwrap();
    let mut near = PacketSocket::open(&packets, "va").unwrap();
    let mut far = PacketSocket::open(&packets, "vb").unwrap();
    for (round, sent) in [300, 1000, 300, 700].into_iter().enumerate() {
        let (before, dropped) =
            (far.stats().rx_packets, far.stats().dropped(DropReason::QueueFull));
        send(&mut near, (0..sent).map(|i| numbered(&packets, i, 100)));
        let frames = received_within(&mut far, Duration::from_millis(200), |_| false);
        let came = far.stats().rx_packets - before;
        let lost = far.stats().dropped(DropReason::QueueFull) - dropped;
        // (The host says a thing or two of its own.)
        let all = u64::from(sent)..u64::from(sent) + 30;
        assert!(
            came == frames.len() as u64 && all.contains(&(came + lost)),
            "{round}: {came}, {lost} lost"
        );
        assert!((lost > 0) == (sent > 512), "{round}: {lost} lost");
    }
}

#[test]
fn a_tap_passes_on_no_part_of_a_frame() {
    if !inside("a_tap_passes_on_no_part_of_a_frame") {
        return;
    }
    let packets = Packets::new().unwrap();
    let mut tap = Tap::open(&packets, "qt0").unwrap();
    ip("link set qt0 mtu 3000");
    ip("link set qt0 up");
    let mut host = PacketSocket::open(&packets, "qt0").unwrap();
    let frame = |len: usize, is_tagged: bool| {
        let mut skb = numbered(&packets, 1, len);
        if is_tagged {
            skb.data_mut().unwrap()[12..18].copy_from_slice(&[0x81, 0x00, 0, 5, 0x88, 0xb5]);
        }
        skb
    };
    let untagged = [1514, 1515, 1519, 2500].map(|len| (len, false));
    let frames = untagged.into_iter().chain([(1518, true), (1519, true), (60, false)]);
    let lens = |frames: &[Vec<u8>]| {
        let ours = frames.iter().filter(|frame| frame[..6] == [2, 0, 0, 0, 0, 9]);
        ours.map(Vec::len).collect::<Vec<_>>()
    };
    send(&mut host, frames.map(|(len, is_tagged)| frame(len, is_tagged)));
    let came = received(&mut tap, |frames| lens(frames).len() == 3);
    assert_eq!(lens(&came), [1514, 1518, 60]);
    assert_eq!(tap.stats().drops().collect::<Vec<_>>(), [(DropReason::PacketTooBig, 4)]);
    // The other way: a tag more than the MTU says, and no frame that is none.
    send(&mut tap, [60, 1514, 13, 1515].into_iter().map(|len| numbered(&packets, 1, len)));
    send(&mut tap, [frame(1518, true)].into_iter());
    // The host takes tags off, which is no frame for us.
    let came = received(&mut host, |frames| lens(frames).len() == 2);
    assert_eq!((lens(&came), tap.stats().tx_packets), (vec![60, 1514], 3));
    let expected = [(DropReason::PacketTooSmall, 1), (DropReason::PacketTooBig, 5)];
    assert_eq!(tap.stats().drops().collect::<Vec<_>>(), expected);
}

#[test]
fn no_mtu_is_too_large() {
    if !inside("no_mtu_is_too_large") {
        return;
    }
    let packets = Packets::new().unwrap();
    let mut lo = PacketSocket::open(&packets, "lo").unwrap();
    assert!(
        packets.alloc_skb(lo.max_frame() + 5).is_ok()
            && packets.alloc_skb(lo.max_frame() + 6).is_err()
    );
    let socket = UdpSocket::bind("127.0.0.1:4000").unwrap();
    for len in [lo.max_frame() - 42, lo.max_frame() - 41, 20_000, 60_000, 100] {
        socket.send_to(&vec![1; len], "127.0.0.1:4000").unwrap();
    }
    let came = received(&mut lo, |frames| frames.iter().any(|frame| frame.len() == 142));
    assert_eq!(came.iter().map(Vec::len).collect::<Vec<_>>(), [lo.max_frame(), 142]);
    assert_eq!(lo.stats().drops().collect::<Vec<_>>(), [(DropReason::PacketTooBig, 3)]);
    // A TAP device with an MTU that no packet holds.
    if Command::new("ip")
        .args(["tuntap", "add", "dev", "qt0", "mode", "tap"])
        .status()
        .unwrap()
        .success()
    {
        ip("link set qt0 mtu 65521");
        let tap = Tap::open(&packets, "qt0").unwrap();
        assert_eq!(tap.max_frame(), lo.max_frame());
        // What has no link header is no Ethernet.
        ip("tuntap add dev qn mode tun");
        let error = PacketSocket::open(&packets, "qn").unwrap_err();
        assert!(
            error.errno() == Errno::INVAL && error.to_string().contains("as an Ethernet"),
            "{error}"
        );
    }
}

/// What a descriptor is ready for.
fn ready(device: &PacketSocket<'_>) -> PollFlags {
    let mut fds = [PollFd::from_borrowed_fd(device.readiness().unwrap(), PollFlags::IN)];
    poll(&mut fds, Some(&Timespec::default())).unwrap();
    fds[0].revents()
}

#[test]
fn an_interface_goes_down_and_away() {
    if !inside("an_interface_goes_down_and_away") {
        return;
    }
    ip("link add va type veth peer name vb");
    for end in ["va", "vb"] {
        // Nothing of the host's own comes beside what is counted here.
        ip(&format!("link set {end} addrgenmode none"));
        ip(&format!("link set {end} up"));
    }
    let packets = Packets::new().unwrap();
    let mut near = PacketSocket::open(&packets, "va").unwrap();
    let mut far = PacketSocket::open(&packets, "vb").unwrap();
    let shown = Command::new("ip").args(["-d", "link", "show", "va"]).output().unwrap();
    assert!(String::from_utf8_lossy(&shown.stdout).contains(" promiscuity 1 "), "{shown:?}");
    ip("link set va down");
    assert!(ready(&near).contains(PollFlags::ERR), "the host tells of it");
    let mut none = Batch::new();
    (0..1000).for_each(|_| assert!(near.poll(BUDGET, &mut none).is_ok()));
    assert_eq!(ready(&near) & PollFlags::ERR, PollFlags::empty(), "nobody spins");
    // What is sent waits in both rings: 512 and 256; the rest is dropped.
    send(&mut near, (0..800).map(|i| numbered(&packets, i, 100)));
    assert_eq!((near.stats().tx_packets, near.pending()), (0, 768));
    assert_eq!(near.stats().drops().collect::<Vec<_>>(), [(DropReason::QueueFull, 32)]);
    ip("link set va up");
    let begun = Instant::now();
    let mut came = Vec::new();
    while came.len() < 768 {
        assert!(begun.elapsed() < Duration::from_secs(60), "{} came", came.len());
        near.xmit(&mut Batch::new());
        came.extend(numbers(&received_within(&mut far, Duration::from_millis(20), |_| false)));
    }
    assert_eq!(came, (0..768).collect::<Vec<_>>());
    assert_eq!((near.stats().tx_packets, near.pending()), (768, 0));
    ip("link del va");
    let gone = (0..1000).find_map(|_| near.poll(BUDGET, &mut none).err());
    assert_eq!((gone, near.poll(BUDGET, &mut none)), (Some(Errno::NXIO), Err(Errno::NXIO)));
}

/// Whether the transport checksum of a frame is right.
fn is_sum_right(frame: &[u8]) -> bool {
    let v6 = frame[12] == 0x86;
    let (at, protocol) = if v6 { (54, frame[20]) } else { (34, frame[23]) };
    let word = |at: usize| usize::from(u16::from_be_bytes([frame[at], frame[at + 1]]));
    let len = if v6 { word(18) } else { word(16) - 20 };
    let sum = if v6 {
        let address = |at: usize| frame[at..at + 16].try_into().unwrap();
        pseudo6(&address(22), &address(38), len as u32, protocol)
    } else {
        Sum::default().with(&frame[26..34]).with(&[0, protocol]).with(&(len as u16).to_be_bytes())
    };
    sum.with(&frame[at..at + len]).is_right()
}

#[test]
fn sums_that_a_veth_leaves_out_are_made() {
    if !inside("sums_that_a_veth_leaves_out_are_made") {
        return;
    }
    veth();
    let packets = Packets::new().unwrap();
    let mut far = PacketSocket::open(&packets, "vb").unwrap();
    let udp4 = host_at_va();
    let udp6 = UdpSocket::bind("[fd02::1]:4000").unwrap();
    for payload in [&b""[..], b"odd", b"even", &[0x55; 1200]] {
        udp4.send_to(payload, "10.2.0.2:9").unwrap();
        udp6.send_to(payload, "[fd02::2]:9").unwrap();
    }
    for to in ["10.2.0.2:9", "[fd02::2]:9"] {
        // Nobody answers.
        TcpStream::connect_timeout(&to.parse().unwrap(), Duration::from_millis(200)).unwrap_err();
    }
    let ours = |frames: &[Vec<u8>], v6: bool, protocol: u8| {
        let kind = if v6 { [0x86, 0xdd] } else { [0x08, 0x00] };
        let ours = |f: &&Vec<u8>| f[..6] == [2, 0, 0, 0, 0, 9] && f[12..14] == kind;
        let ours: Vec<_> = frames.iter().filter(ours).cloned().collect();
        ours.into_iter().filter(|f| f[if v6 { 20 } else { 23 }] == protocol).collect::<Vec<_>>()
    };
    let all = [(false, 17, 4), (true, 17, 4), (false, 6, 1), (true, 6, 1)];
    let frames =
        received(&mut far, |frames| all.iter().all(|(v6, p, n)| ours(frames, *v6, *p).len() >= *n));
    for (v6, protocol, least) in all {
        let frames = ours(&frames, v6, protocol);
        assert!(frames.len() >= least, "{v6} {protocol}: {}", frames.len());
        assert!(frames.iter().all(|frame| is_sum_right(frame)), "{v6} {protocol}: {frames:x?}");
    }
}

/// Switches the merging of received segments (GRO) of an interface.
#[allow(unsafe_code, reason = "the host's call")]
fn set_gro(name: &str, on: bool) {
    const ETHTOOL_SGRO: u32 = 0x2c;
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    let mut value = [ETHTOOL_SGRO, u32::from(on)];
    // SAFETY: all zeroes are a request.
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    for (to, from) in request.ifr_name.iter_mut().zip(name.bytes()) {
        *to = from as libc::c_char;
    }
    request.ifr_ifru.ifru_data = value.as_mut_ptr().cast();
    // SAFETY: the request points to a command that outlives the call.
    let done = unsafe {
        libc::ioctl(std::os::fd::AsRawFd::as_raw_fd(&socket), libc::SIOCETHTOOL, &raw mut request)
    };
    assert_eq!(done, 0, "{}", std::io::Error::last_os_error());
}

#[test]
fn merged_segments_are_told_of() {
    if !inside("merged_segments_are_told_of") {
        return;
    }
    veth();
    let packets = Packets::new().unwrap();
    let device = PacketSocket::open(&packets, "vb").unwrap();
    for on in [true, false, true] {
        set_gro("vb", on);
        assert_eq!(device.merges_segments(), on);
    }
    ip("link del va");
    assert!(!device.merges_segments(), "the host does not say");
}
