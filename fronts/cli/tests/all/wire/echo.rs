//! Questions that a message of ICMP answers: echo requests, and others that make an error.
//!
//! A question is asked again until it is answered: the first one may be lost while neighbours are asked for on a busy machine. What
//! answers another question, however late, is passed over.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddrV4, SocketAddrV6};
use std::time::{Duration, Instant};

use rustix::fd::OwnedFd;
use rustix::net::sockopt::{Ipv4PathMtuDiscovery, Ipv6PathMtuDiscovery};
use rustix::net::{self, AddressFamily, RecvFlags, SendFlags, SocketType, ipproto, sockopt};

use super::PATIENCE;

/// Who has answered; type and code; and the second word of the message.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Answer {
    pub(crate) from: IpAddr,
    pub(crate) kind: [u8; 2],
    pub(crate) word: u32,
}

/// A message that has come.
pub(crate) struct Message {
    from: IpAddr,
    bytes: Vec<u8>,
}

impl Message {
    fn kind(&self) -> [u8; 2] {
        [self.bytes[0], self.bytes[1]]
    }

    fn word(&self) -> u32 {
        u32::from_be_bytes(self.bytes[4..8].try_into().unwrap())
    }

    /// Of an error, whose packet it is about: where that was going to, and what stood after the header of IP.
    pub(crate) fn quoted(&self) -> Option<(IpAddr, &[u8])> {
        let packet = &self.bytes[8..];
        let is_error = if self.from.is_ipv4() {
            [3, 11].contains(&self.bytes[0])
        } else {
            self.bytes[0] < 128
        };
        if !is_error {
            None
        } else if self.from.is_ipv4() {
            let to: [u8; 4] = packet.get(16..20)?.try_into().unwrap();
            Some((to.into(), packet.get(usize::from(packet[0] & 15) * 4..)?))
        } else {
            let to: [u8; 16] = packet.get(24..40)?.try_into().unwrap();
            Some((to.into(), &packet[40..]))
        }
    }

    /// Whether it says that a neighbour has not answered the router.
    fn is_given_up(&self) -> bool {
        self.kind() == if self.from.is_ipv4() { [3, 1] } else { [1, 3] }
    }
}

/// A socket that hears all of ICMP that comes to the host; and whether that is IPv4's.
pub(crate) struct Listener(OwnedFd, bool);

impl Listener {
    /// By IPv4, or by IPv6.
    pub(crate) fn open(v4: bool) -> Self {
        let (family, protocol) = if v4 {
            (AddressFamily::INET, ipproto::ICMP)
        } else {
            (AddressFamily::INET6, ipproto::ICMPV6)
        };
        let socket = net::socket(family, SocketType::RAW, Some(protocol)).unwrap();
        let timeout = Some(Duration::from_millis(500));
        sockopt::set_socket_timeout(&socket, sockopt::Timeout::Recv, timeout).unwrap();
        // What is too long for the way is sent all the same, whatever has been heard of it.
        if v4 {
            sockopt::set_ip_mtu_discover(&socket, Ipv4PathMtuDiscovery::PROBE).unwrap();
        } else {
            sockopt::set_ipv6_mtu_discover(&socket, Ipv6PathMtuDiscovery::PROBE).unwrap();
        }
        Self(socket, v4)
    }

    fn next(&self) -> Option<Message> {
        let mut bytes = vec![0; 4096];
        let (len, _, from) = net::recvfrom(&self.0, &mut bytes[..], RecvFlags::empty()).ok()?;
        let from = from.unwrap();
        bytes.truncate(len);
        let from = if self.1 {
            bytes.drain(..usize::from(bytes[0] & 15) * 4);
            IpAddr::V4(*SocketAddrV4::try_from(from).unwrap().ip())
        } else {
            IpAddr::V6(*SocketAddrV6::try_from(from).unwrap().ip())
        };
        (bytes.len() >= 8).then_some(Message { from, bytes })
    }
}

/// Asks until there is an answer of this kind. One that says that a neighbour was given up is passed over, as nothing at all is;
/// any other one is wrong.
pub(crate) fn until_answered(
    listener: &Listener,
    kind: [u8; 2],
    mut ask: impl FnMut(),
    answers: impl Fn(&Message) -> bool,
) -> Answer {
    let begun = Instant::now();
    while begun.elapsed() < PATIENCE {
        ask();
        let asked = Instant::now();
        while asked.elapsed() < Duration::from_millis(500) {
            let Some(message) = listener.next().filter(&answers) else { continue };
            let answer = Answer { from: message.from, kind: message.kind(), word: message.word() };
            if answer.kind == kind {
                return answer;
            }
            assert!(message.is_given_up(), "{answer:?} instead of {kind:?}");
        }
    }
    panic!("nobody answers with {kind:?}");
}

const ID: u8 = 0x51;

/// An echo request of so many bytes, which four bytes tell from others.
struct Question {
    to: IpAddr,
    tag: [u8; 4],
    request: Vec<u8>,
}

impl Question {
    fn new(to: IpAddr, len: usize, tag: [u8; 4]) -> Self {
        let mut request = vec![0x33; 8 + len];
        request[..4].copy_from_slice(&[if to.is_ipv4() { 8 } else { 128 }, 0, 0, 0]);
        request[4..8].copy_from_slice(&tag);
        if to.is_ipv4() {
            // (Of IPv6 the checksum is the host's.)
            let sum = !sum(&request);
            request[2..4].copy_from_slice(&sum.to_be_bytes());
        }
        Self { to, tag, request }
    }

    fn send(&self, listener: &Listener) {
        match self.to {
            IpAddr::V4(to) => send4(listener, &self.request, to),
            IpAddr::V6(to) => send6(listener, &self.request, to),
        }
    }

    /// Whether a message is a reply to it, or an error about it.
    fn is_answered(&self, message: &Message) -> bool {
        let is_reply = message.from == self.to
            && [0, 129].contains(&message.bytes[0])
            && message.bytes[4..8] == self.tag;
        let is_error =
            |(of, rest): (IpAddr, &[u8])| of == self.to && rest.get(4..8) == Some(&self.tag[..]);
        is_reply || message.quoted().is_some_and(is_error)
    }
}

/// What answers an echo request of so many bytes with so many hops, which is to be of this kind: `[0, 0]`, or `[129, 0]` of IPv6, if
/// nothing is in its way.
pub(crate) fn ping(to: impl Into<IpAddr>, len: usize, hops: u8, kind: [u8; 2]) -> Answer {
    let to = to.into();
    let listener = Listener::open(to.is_ipv4());
    // The length and the hops tell the question, and stand in every answer.
    let [high, low] = (len as u16).to_be_bytes();
    let question = Question::new(to, len, [ID, hops, high, low]);
    if to.is_ipv4() {
        sockopt::set_ip_ttl(&listener.0, hops.into()).unwrap();
    } else {
        sockopt::set_ipv6_unicast_hops(&listener.0, Some(hops)).unwrap();
    }
    let is_answered = |message: &Message| question.is_answered(message);
    until_answered(&listener, kind, || question.send(&listener), is_answered)
}

/// As [`ping`], but a request that is sent once: without an answer it fails.
pub(crate) fn ping_once(
    listener: &Listener,
    to: impl Into<IpAddr>,
    len: usize,
    number: u16,
    kind: [u8; 2],
) -> Answer {
    let [high, low] = number.to_be_bytes();
    let question = Question::new(to.into(), len, [ID, 0, high, low]);
    let mut is_sent = false;
    let ask = || {
        if !std::mem::replace(&mut is_sent, true) {
            question.send(listener);
        }
    };
    until_answered(listener, kind, ask, |message| question.is_answered(message))
}

fn send4(listener: &Listener, request: &[u8], to: Ipv4Addr) {
    net::sendto(&listener.0, request, SendFlags::empty(), &SocketAddrV4::new(to, 0)).unwrap();
}

fn send6(listener: &Listener, request: &[u8], to: Ipv6Addr) {
    net::sendto(&listener.0, request, SendFlags::empty(), &SocketAddrV6::new(to, 0, 0, 0)).unwrap();
}

/// The internet's sum of 16-bit words.
pub(crate) fn sum(bytes: &[u8]) -> u16 {
    let words =
        bytes.chunks(2).map(|word| u32::from(word[0]) << 8 | u32::from(*word.get(1).unwrap_or(&0)));
    let sum = words.fold(0, |sum, word| (sum + word) % 0xffff);
    // Of 0 and 0xffff, which are the same to it, 0 is only what is all zeros.
    if sum == 0 && bytes.iter().any(|byte| *byte != 0) { 0xffff } else { sum as u16 }
}
