//! The same work with the crate smoltcp, which is a stack for hosts and forwards nothing itself: what its types for frames, headers
//! and routes are for, a router made of them.
//!
//! A packet is a `Vec<u8>` from the system's allocator, as in its devices (`phy::Loopback`, `phy::RawSocket`), one for each packet, and goes from
//! hand to hand without being copied, which its tokens would do. All is as good as its interface lets it be: headers are emitted once and
//! copied, only what differs is written and summed up; what is not asked for (fragments, ICMP, statistics) is not there.
//!
//! ```text
//!   generator: headers that smoltcp has emitted, a number, UDP's sum by smoltcp
//!   router:    Ethernet (is it for us?), IPv4 (lengths, version, sum, no martian, TTL), the route with the longest prefix, MTU,
//!              the neighbour, TTL - 1, the sum anew, Ethernet addresses
//!   sink:      a ring of 512, freed 64 at a time; each number is looked at
//! ```
//!
//! Its own table of routes (`iface::Routes`) answers nobody but its own interface: here its `Route`s are in an array, and looked up as there,
//! one by one. There are two, the networks of both links; quietline's router has eight entries for the same, with those
//! of its own addresses, which are compared here. It has no batches, no threads in common and no change of routes while it runs.

#[cfg(test)]
mod tests;

use std::collections::VecDeque;
use std::hint::black_box;
use std::sync::Arc;

use quietline_platform::atomic::{AtomicBool, Ordering};
use smoltcp::iface::Route;
use smoltcp::phy::ChecksumCapabilities;
use smoltcp::wire::{
    EthernetAddress, EthernetFrame, EthernetProtocol, EthernetRepr, IpAddress, IpCidr, IpProtocol,
    Ipv4Address, Ipv4Cidr, Ipv4Packet, Ipv4Repr, UdpPacket, UdpRepr,
};

use super::{Implementation, Opened, PROOF};
use crate::harness::{Arena, Fault, Seat, Shape, Worker};
use crate::workloads::forward::RING;
use crate::workloads::{Forward, Job, Way};

/// Packets of a turn.
const TURN: usize = 64;
/// Before the payload: Ethernet, IPv4 and UDP.
const HEADERS: usize = 14 + 20 + 8;
/// What a payload begins with; then four bytes for the flow, which is 0, and eight for the number.
const MAGIC: [u8; 4] = *b"QLgn";
const SAID: usize = 16;
const MTU: usize = 1500;

const SOURCE: Ipv4Address = Ipv4Address::new(198, 18, 0, 1);
const SINK: Ipv4Address = Ipv4Address::new(198, 19, 0, 1);
const LINKS: [EthernetAddress; 4] = [link(1), link(2), link(3), link(4)];

const fn link(last: u8) -> EthernetAddress {
    EthernetAddress([2, 0, 0, 0, 0, last])
}

/// The column.
pub(super) fn column() -> Implementation {
    Implementation {
        name: "peer-smoltcp",
        says: "the crate smoltcp's types: a Vec for each packet; routed by what its users can write with them",
        shape: Shape::NoTable,
        does: |job| matches!(job, Job::Forward(forward) if does(forward)),
        open,
    }
}

/// Packets of 64 bytes that are made and end on one thread: of longer ones all that would be seen is how it sums up payloads.
fn does(forward: Forward) -> bool {
    forward.size == 64 && matches!(forward.way, Way::Direct | Way::Routed)
}

fn open(job: Job, _threads: usize) -> Opened {
    let Job::Forward(forward) = job else { unreachable!("asked for another job than it does") };
    let mut proof = Run::new(forward)?;
    proof.run(PROOF, &AtomicBool::new(false))?;
    proof.check()?;
    Ok(Arc::new(Threads(forward)))
}

/// Threads with a router each.
struct Threads(Forward);

impl Arena for Threads {
    fn worker(&self, _seat: Seat) -> Result<Box<dyn Worker>, Fault> {
        Ok(Box::new(Run::new(self.0)?))
    }

    /// What a thread has had it has given back when it was checked.
    fn settle(&self) -> Result<(), Fault> {
        Ok(())
    }
}

/// One thread: generator, router and sink.
pub(super) struct Run {
    headers: [u8; HEADERS],
    size: usize,
    made: u64,
    batch: VecDeque<Vec<u8>>,
    router: Option<Router>,
    ring: VecDeque<Vec<u8>>,
    in_flight: usize,
    /// Packets that came as they should, so the number of the next one; and others.
    came: u64,
    wrong: u64,
}

impl Run {
    pub(super) fn new(forward: Forward) -> Result<Self, Fault> {
        Ok(Self {
            headers: headers(forward.size)?,
            size: forward.size,
            made: 0,
            batch: VecDeque::with_capacity(TURN),
            router: (forward.way == Way::Routed).then(Router::new),
            ring: VecDeque::with_capacity(2 * RING),
            in_flight: forward.in_flight,
            came: 0,
            wrong: 0,
        })
    }

    #[inline(always)]
    fn make(&mut self, n: usize) {
        for _ in 0..n {
            let mut packet = Vec::with_capacity(self.size);
            packet.extend_from_slice(&self.headers);
            packet.extend_from_slice(&MAGIC);
            packet.extend_from_slice(&[0; 4]);
            packet.extend_from_slice(&self.made.to_be_bytes());
            packet.resize(self.size, 0);
            let mut udp = UdpPacket::new_unchecked(&mut packet[34..]);
            udp.fill_checksum(&IpAddress::Ipv4(SOURCE), &IpAddress::Ipv4(SINK));
            self.batch.push_back(packet);
            self.made += 1;
        }
    }

    #[inline(always)]
    fn pass_on(&mut self) {
        while let Some(mut packet) = self.batch.pop_front() {
            if let Some(router) = &mut self.router
                && !router.forward(&mut packet)
            {
                continue;
            }
            match said(&packet) {
                Some(number) if number == self.came => self.came += 1,
                _ => self.wrong += 1,
            }
            self.ring.push_back(packet);
        }
        while self.ring.len() > self.in_flight {
            let n = self.ring.len().min(TURN);
            self.ring.drain(..n);
        }
    }
}

impl Worker for Run {
    #[inline(never)]
    fn run(&mut self, ops: u64, stop: &AtomicBool) -> Result<u64, Fault> {
        let mut done = 0;
        while done < ops {
            let n = (ops - done).min(TURN as u64) as usize;
            self.make(n);
            self.pass_on();
            done += n as u64;
            // Relaxed: nothing is ordered by the flag.
            if stop.load(Ordering::Relaxed) {
                break;
            }
        }
        Ok(black_box(done))
    }

    /// All that came is freed; it was each packet once and in order, and as many as were sent.
    fn check(&mut self) -> Result<(), Fault> {
        self.ring.clear();
        let Self { made, came, wrong, .. } = *self;
        Fault::unless(came == made && wrong == 0, || {
            format!("{came} of {made} packets came, {wrong} others")
        })?;
        let forwarded = self.router.as_ref().map_or(made, |router| router.forwarded);
        Fault::unless(forwarded == made, || format!("{forwarded} of {made} packets were routed"))
    }
}

/// The number of a generated packet, of which as much is looked at as the sink of the other columns does; none of another one.
#[inline(always)]
fn said(packet: &[u8]) -> Option<u64> {
    let is_udp = packet.get(12..15)? == [0x08, 0x00, 0x45] && packet.get(23)? == &17;
    let payload = packet.get(HEADERS..HEADERS + SAID)?;
    let number = payload[8..].try_into().ok()?;
    (is_udp && payload[..4] == MAGIC && payload[4..8] == [0; 4]).then(|| u64::from_be_bytes(number))
}

/// Headers of all packets, as smoltcp emits them; UDP's checksum is each packet's own.
fn headers(size: usize) -> Result<[u8; HEADERS], Fault> {
    let len = size.checked_sub(HEADERS).filter(|len| *len >= SAID);
    let len = len.ok_or_else(|| Fault::new(format!("{size} bytes are too few")))?;
    let mut packet = vec![0; size];
    let mut frame = EthernetFrame::new_unchecked(&mut packet[..]);
    let ethernet =
        EthernetRepr { src_addr: LINKS[0], dst_addr: LINKS[1], ethertype: EthernetProtocol::Ipv4 };
    ethernet.emit(&mut frame);
    let ip = Ipv4Repr {
        src_addr: SOURCE,
        dst_addr: SINK,
        next_header: IpProtocol::Udp,
        payload_len: 8 + len,
        hop_limit: 64,
    };
    let sums = ChecksumCapabilities::default();
    let mut ip_packet = Ipv4Packet::new_unchecked(frame.payload_mut());
    ip.emit(&mut ip_packet, &sums);
    let mut udp = UdpPacket::new_unchecked(ip_packet.payload_mut());
    let ends = [SOURCE, SINK].map(IpAddress::Ipv4);
    UdpRepr { src_port: 1024, dst_port: 9 }.emit(&mut udp, &ends[0], &ends[1], len, |_| (), &sums);
    Ok(packet[..HEADERS].try_into().expect("it is longer"))
}

/// A link of the router.
struct Port {
    link: EthernetAddress,
    address: Ipv4Address,
}

/// A router between two networks.
struct Router {
    ports: [Port; 2],
    /// Networks, and the router's own address there.
    routes: [Route; 2],
    neighbours: [(Ipv4Address, EthernetAddress); 1],
    forwarded: u64,
}

impl Router {
    fn new() -> Self {
        let address = |second| Ipv4Address::new(198, second, 255, 254);
        let route = |second| Route {
            cidr: IpCidr::Ipv4(Ipv4Cidr::new(Ipv4Address::new(198, second, 0, 0), 16)),
            via_router: IpAddress::Ipv4(address(second)),
            preferred_until: None,
            expires_at: None,
        };
        // What is only known when it runs.
        black_box(Self {
            ports: [
                Port { link: LINKS[1], address: address(18) },
                Port { link: LINKS[2], address: address(19) },
            ],
            routes: [route(18), route(19)],
            neighbours: [(SINK, LINKS[3])],
            forwarded: 0,
        })
    }

    /// The port to a network: that of the longest prefix.
    #[inline(always)]
    fn route(&self, to: Ipv4Address) -> Option<&Port> {
        let to = IpAddress::Ipv4(to);
        let routes = self
            .routes
            .iter()
            .filter(|route| route.expires_at.is_none() && route.cidr.contains_addr(&to));
        let via = routes.max_by_key(|route| route.cidr.prefix_len())?.via_router;
        self.ports.iter().find(|port| IpAddress::Ipv4(port.address) == via)
    }

    /// Makes a packet that came by the first port what goes out; false if nothing does.
    #[inline(always)]
    fn forward(&mut self, packet: &mut Vec<u8>) -> bool {
        let Some(len) = self.change(packet) else { return false };
        packet.truncate(len);
        self.forwarded += 1;
        true
    }

    /// How long what goes out is.
    #[inline(always)]
    fn change(&self, packet: &mut [u8]) -> Option<usize> {
        let mut frame = EthernetFrame::new_checked(packet).ok()?;
        if frame.dst_addr() != self.ports[0].link || frame.ethertype() != EthernetProtocol::Ipv4 {
            return None;
        }
        let mut ip = Ipv4Packet::new_checked(frame.payload_mut()).ok()?;
        if ip.version() != 4 || !ip.verify_checksum() {
            return None;
        }
        let (source, to, total) = (ip.src_addr(), ip.dst_addr(), usize::from(ip.total_len()));
        if [source, to].into_iter().any(is_martian)
            || self.ports.iter().any(|port| port.address == to)
        {
            return None;
        }
        let port = self.route(to)?;
        let (_, neighbour) = *self.neighbours.iter().find(|(address, _)| *address == to)?;
        let hops = ip.hop_limit();
        if hops <= 1 || total > MTU {
            return None;
        }
        ip.set_hop_limit(hops - 1);
        ip.fill_checksum();
        frame.set_src_addr(port.link);
        frame.set_dst_addr(neighbour);
        Some(EthernetFrame::<&[u8]>::buffer_len(total))
    }
}

/// Whether a packet from or to this address goes nowhere.
#[inline(always)]
fn is_martian(address: Ipv4Address) -> bool {
    address.is_unspecified()
        || address.is_broadcast()
        || address.is_multicast()
        || address.is_loopback()
        || address.is_link_local()
}
