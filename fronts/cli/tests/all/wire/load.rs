//! Many numbered datagrams, at a rate that is told, and what became of each of them.

use std::collections::HashSet;
use std::net::{SocketAddr, UdpSocket};
use std::thread;
use std::time::{Duration, Instant};

use rustix::net::sockopt;

use super::{Host, run};

/// What became of datagrams.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Arrived {
    pub(crate) sent: u64,
    /// Different ones that came.
    pub(crate) came: u64,
    pub(crate) twice: u64,
    /// Those whose bytes are not what was sent.
    pub(crate) wrong: u64,
    /// Those for which the socket of the receiver had no room, as its host has counted them.
    pub(crate) no_room: u64,
}

/// The length of a datagram, of those that are sent in turn.
fn len(number: u64, sizes: &[usize]) -> usize {
    sizes[number as usize % sizes.len()]
}

/// What a datagram says: its number, and bytes that follow from it.
fn said(number: u64, len: usize) -> Vec<u8> {
    let rest = (8..len).map(|i| (number as usize + i * 7) as u8);
    number.to_be_bytes().into_iter().chain(rest).collect()
}

/// Datagrams that are sent at a time.
const BURST: u64 = 16;

/// Sends so many datagrams, of these lengths in turn, so many a second (as fast as it can, for 0), and counts what comes until nothing has
/// come for a second.
pub(crate) fn udp_load(
    from: &Host,
    to: &Host,
    [near, far]: [&str; 2],
    count: u64,
    sizes: &[usize],
    rate: u64,
) -> Arrived {
    let bind = |host: &Host, address: &str| host.on(|| UdpSocket::bind(address).unwrap());
    let (near, other) = (bind(from, near), bind(to, far));
    let far: SocketAddr = far.parse().unwrap();
    near.connect(far).unwrap();
    // More than the host lets others have, if we may.
    let _ = sockopt::set_socket_recv_buffer_size_force(&other, 16 << 20);
    other.set_read_timeout(Some(Duration::from_secs(1))).unwrap();
    let before = no_room(to);
    let (came, twice, wrong) = thread::scope(|scope| {
        let receiver = scope.spawn(|| {
            let (mut came, mut twice, mut wrong) = (HashSet::new(), 0, 0);
            let mut bytes = vec![0; 1 << 16];
            while let Ok(n) = other.recv(&mut bytes) {
                let number =
                    bytes[..n].first_chunk().map_or(u64::MAX, |number| u64::from_be_bytes(*number));
                if number >= count || bytes[..n] != said(number, len(number, sizes)) {
                    wrong += 1;
                } else {
                    twice += u64::from(!came.insert(number));
                }
            }
            (came.len() as u64, twice, wrong)
        });
        let begun = Instant::now();
        for number in 0..count {
            if rate > 0 && number % BURST == 0 {
                let due = Duration::from_nanos(number * 1_000_000_000 / rate);
                thread::sleep(due.saturating_sub(begun.elapsed()));
            }
            let datagram = said(number, len(number, sizes));
            assert_eq!(near.send(&datagram).unwrap(), datagram.len());
        }
        receiver.join().unwrap()
    });
    Arrived { sent: count, came, twice, wrong, no_room: no_room(to) - before }
}

/// Datagrams of either family that the sockets of a host had no room for.
fn no_room(host: &Host) -> u64 {
    let [v4, v6] = ["snmp", "snmp6"].map(|file| host.run("cat", &format!("/proc/self/net/{file}")));
    let lines: Vec<Vec<&str>> = v4
        .lines()
        .filter(|line| line.starts_with("Udp: "))
        .map(|line| line.split(' ').collect())
        .collect();
    let column = lines[0].iter().position(|name| *name == "RcvbufErrors").unwrap();
    let of6 = v6.lines().find_map(|line| line.strip_prefix("Udp6RcvbufErrors")).unwrap();
    lines[1][column].parse::<u64>().unwrap() + of6.trim().parse::<u64>().unwrap()
}

/// What an interface, and its queue, has dropped of what was to be sent by it: of ours, or of a host's.
pub(crate) fn not_sent(host: Option<&Host>, device: &str) -> u64 {
    let run = |program: &str, words: &str| match host {
        Some(host) => host.run(program, words),
        None => run(program, &words.split(' ').collect::<Vec<_>>()),
    };
    let link = run("ip", &format!("-s link show dev {device}"));
    // A line of names, and one of numbers: bytes, packets, errors, dropped.
    let sent =
        link.lines().skip_while(|line| !line.trim_start().starts_with("TX:")).nth(1).unwrap();
    let of_link: u64 = sent.split_whitespace().nth(3).unwrap().parse().unwrap();
    let queue = run("tc", &format!("-s qdisc show dev {device}"));
    let dropped = queue.lines().find_map(|line| line.split_once("(dropped ")?.1.split_once(','));
    of_link + dropped.map_or(0, |(n, _)| n.parse::<u64>().unwrap())
}
