//! What is done with a batch of packets.

use super::ends::{Left, drop_left, is_ipv6};
use super::header::{Ethernet, Link, ether, is_group};
use super::interface::Interface;
use super::limiter::Limiter;
use super::neighbour::{HashKeys, Neighbours};
use super::own::Own;
use super::routes::{NextHop, Prefix, Routes4, Routes6, Via};
use super::statistics::{Count, Counts, Statistics};
use super::usual::{Port, Steps};
use crate::packet::{DropReason, PacketError, Packets, Skb};
use core::fmt;
use core::net::{Ipv4Addr, Ipv6Addr};
use core::time::Duration;
use quietline_platform::{AllocError, heap};
use quietline_sync::rcu::{self, Domain, Guard};
use rustix::io::Errno;

/// Packets that are given to a device at a time.
pub const BATCH: usize = 64;
/// Neighbours of each family and interface that are known at a time.
pub const NEIGHBOURS: u32 = 8192;

/// A router's forwarding path: see the [module](super).
pub struct Forwarder<'n> {
    pub(super) packets: &'n Packets,
    domain: &'static Domain,
    pub(super) interfaces: Vec<Interface>,
    /// What usual packets need of these.
    pub(super) ports: Box<[Port]>,
    /// Their addresses, from which nothing comes in.
    pub(super) own4: Own,
    pub(super) routes4: Routes4,
    pub(super) routes6: Routes6,
    pub(super) neighbours4: Neighbours<'n, Ipv4Addr>,
    pub(super) neighbours6: Neighbours<'n, Ipv6Addr>,
    pub(super) limiter: Limiter,
    statistics: Statistics,
}

/// What a thread that forwards has of its own: packets on their way out, by interface, and what it has counted.
pub struct Lane<'n> {
    queues: Box<[Queue<'n>]>,
    pub(super) counts: Counts,
    left: Left,
    /// Of the usual packets at hand: what one step of their way has found out for the next.
    pub(super) steps: Steps,
}

struct Queue<'n> {
    packets: [Option<Skb<'n>>; BATCH],
    n: usize,
    /// Bit `i` is set if packet `i` was made here.
    own: u64,
}

const _: () = assert!(BATCH <= u64::BITS as usize);

/// Where packets go out: called with the number of an interface and packets for it. What it leaves is dropped.
pub type Transmit<'t, 'n> = dyn FnMut(u32, &mut [Option<Skb<'n>>]) + 't;

impl<'n> Forwarder<'n> {
    /// A forwarder between interfaces, which are numbered from 0 on in this order. It knows the routes to their own addresses
    /// and to the links that they are on, and no others.
    ///
    /// # Errors
    /// `ENOMEM`; the error of `getrandom`; `EINVAL` for more than 65,535 interfaces, an address
    /// that no station may have, or more bits than it has, or
    /// an address of IPv6 on an interface that [has none](Interface::has_ipv6).
    pub fn new(packets: &'n Packets, interfaces: Vec<Interface>) -> Result<Self, Errno> {
        let keys = HashKeys::draw()
            .map_err(|error| Errno::from_io_error(&error).unwrap_or(Errno::NOSYS))?;
        let made =
            Self::without_routes(packets, interfaces, keys).map_err(|AllocError| Errno::NOMEM)?;
        if made.interfaces.len() > usize::from(u16::MAX) {
            return Err(Errno::INVAL);
        }
        for (number, interface) in (0..).zip(&made.interfaces) {
            made.enter(number, interface)?;
        }
        Ok(made)
    }

    fn without_routes(
        packets: &'n Packets,
        interfaces: Vec<Interface>,
        keys: HashKeys,
    ) -> Result<Self, AllocError> {
        if interfaces.iter().any(|interface| interface.incomplete) {
            return Err(AllocError);
        }
        let domain = rcu::global()?;
        let ports = heap::try_boxed_slice(interfaces.len(), |i| {
            Port::new(interfaces[i].link, interfaces[i].mtu)
        })?;
        Ok(Self {
            packets,
            domain,
            own4: Own::new(&interfaces)?,
            routes4: Routes4::new()?,
            routes6: Routes6::new()?,
            neighbours4: Neighbours::new(domain, keys, ports.len(), NEIGHBOURS)?,
            neighbours6: Neighbours::new(domain, keys, ports.len(), NEIGHBOURS)?,
            limiter: Limiter::new()?,
            statistics: Statistics::new()?,
            interfaces,
            ports,
        })
    }

    /// Enters the routes of an interface's addresses.
    fn enter(&self, number: u32, interface: &Interface) -> Result<(), Errno> {
        for &(address, bits) in &interface.v4 {
            if super::ipv4::is_no_station(address) {
                return Err(Errno::INVAL);
            }
            let hop = |via| NextHop { interface: number, via };
            let link = Prefix::of(address, bits)?;
            self.routes4.insert(link, hop(Via::Link))?;
            if bits <= 30 {
                let last = Ipv4Addr::from_bits(link.address().to_bits() | u32::MAX >> bits);
                for all in [link.address(), last] {
                    self.routes4.insert(Prefix::new(all, 32)?, hop(Via::Broadcast))?;
                }
            }
            self.routes4.insert(Prefix::new(address, 32)?, hop(Via::Local))?;
        }
        for &(address, bits) in &interface.v6 {
            let no_station =
                address.is_multicast() || address.is_unspecified() || address.is_loopback();
            if no_station || !interface.has_ipv6() {
                return Err(Errno::INVAL);
            }
            let hop = |via| NextHop { interface: number, via };
            self.routes6.insert(Prefix::of(address, bits)?, hop(Via::Link))?;
            self.routes6.insert(Prefix::new(address, 128)?, hop(Via::Local))?;
        }
        Ok(())
    }

    /// Its interfaces, by number.
    pub fn interfaces(&self) -> &[Interface] {
        &self.interfaces
    }

    /// Routes of IPv4: to be changed at any time.
    pub fn routes4(&self) -> &Routes4 {
        &self.routes4
    }

    /// Routes of IPv6: to be changed at any time.
    pub fn routes6(&self) -> &Routes6 {
        &self.routes6
    }

    /// Enters a neighbour's link address for good. Packets that have waited for it go out when packets are [handled](Self::handle) next.
    ///
    /// # Errors
    /// `ENODEV` if there is no such interface; `ENOMEM`, also if as many of it were entered so as
    /// may be.
    pub fn set_neighbour4(
        &self,
        interface: u32,
        address: Ipv4Addr,
        link: Link,
    ) -> Result<(), Errno> {
        self.neighbours4.set(interface, address, link)
    }

    /// The same for IPv6.
    ///
    /// # Errors
    /// As there.
    pub fn set_neighbour6(
        &self,
        interface: u32,
        address: Ipv6Addr,
        link: Link,
    ) -> Result<(), Errno> {
        self.neighbours6.set(interface, address, link)
    }

    /// Neighbours that are known, of each family.
    pub fn neighbours(&self) -> [usize; 2] {
        [self.neighbours4.len(), self.neighbours6.len()]
    }

    /// Packets that wait for neighbours, those that were made here among them. They end with this, as
    /// [`NeighbourFailed`](DropReason::NeighbourFailed), and are counted nowhere else. Takes two
    /// locks of each interface.
    pub fn waiting(&self) -> usize {
        self.neighbours4.waiting() + self.neighbours6.waiting()
    }

    /// What has been counted, on all CPUs together. Exact when nobody forwards. O(CPUs).
    pub fn counts(&self) -> Counts {
        self.statistics.sum()
    }

    /// What has been counted on each CPU, by the number of the CPU.
    pub fn counts_by_cpu(&self) -> impl Iterator<Item = Counts> {
        (0..self.statistics.cpus()).map(|cpu| self.statistics.of_cpu(cpu))
    }

    /// What a thread needs to [handle](Self::handle) packets. 3.5 KiB, and 512 bytes for each interface.
    ///
    /// # Errors
    /// `ENOMEM`.
    pub fn lane(&self) -> Result<Lane<'n>, Errno> {
        let queue = |_| Queue { packets: [const { None }; BATCH], n: 0, own: 0 };
        let queues =
            heap::try_boxed_slice(self.interfaces.len(), queue).map_err(|_| Errno::NOMEM)?;
        Ok(Lane { queues, counts: Counts::default(), left: Left::default(), steps: Steps::new() })
    }

    /// Takes packets that came in by an interface, the Ethernet header first; none are left in `batch`. What goes out is given to `out`,
    /// up to [`BATCH`] at a time, before this returns; what that leaves in its place is dropped as
    /// [`QueueFull`](DropReason::QueueFull). `now` is the time since any moment, the same for all threads. To be called once
    /// a second at least, if need be without packets: for neighbours that have not answered.
    ///
    /// One read section. A packet that goes on, its neighbour being known, takes no lock and writes no shared line but the packet's
    /// own. `out` is called inside the section: it must not wait for a grace period, nor change routes.
    ///
    /// # Panics
    /// If there is no such interface.
    pub fn handle(
        &self,
        lane: &mut Lane<'n>,
        input: u32,
        batch: &mut [Option<Skb<'n>>],
        now: Duration,
        out: &mut Transmit<'_, 'n>,
    ) {
        assert!((input as usize) < self.interfaces.len(), "there is no interface {input}");
        let guard = self.domain.read();
        let mut pass = Pass { of: self, lane, guard: &guard, input, now, own: false, out };
        // What has waited goes before what comes behind it.
        if self.neighbours4.is_urgent() && self.neighbours4.is_time(now) {
            pass.look::<Ipv4Addr>();
        }
        if self.neighbours6.is_urgent() && self.neighbours6.is_time(now) {
            pass.look::<Ipv6Addr>();
        }
        batch.chunks_mut(BATCH).for_each(|batch| pass.batch(batch));
        if self.neighbours4.is_time(now) {
            pass.look::<Ipv4Addr>();
        }
        if self.neighbours6.is_time(now) {
            pass.look::<Ipv6Addr>();
        }
        pass.flush();
        drop(guard);
        lane.left.take_from(&mut lane.counts);
        self.statistics.add(&mut lane.counts);
    }
}

/// A batch on its way through.
pub(super) struct Pass<'a, 'n> {
    pub(super) of: &'a Forwarder<'n>,
    pub(super) lane: &'a mut Lane<'n>,
    pub(super) guard: &'a Guard<'a>,
    /// The interface by which the packet at hand came.
    pub(super) input: u32,
    pub(super) now: Duration,
    /// Whether the packet that is sent at the moment was made here.
    pub(super) own: bool,
    out: &'a mut Transmit<'a, 'n>,
}

impl<'a, 'n> Pass<'a, 'n> {
    /// Takes a packet of any kind.
    #[inline(never)]
    pub(super) fn receive(&mut self, skb: Skb<'n>) {
        self.count(Count::Received);
        let Some((header, _)) = Ethernet::of(skb.data()) else {
            return self.drop(skb, DropReason::PacketTooSmall);
        };
        let group = is_group(header.destination);
        if !group && header.destination != self.interface().link {
            self.count(Count::OtherStation);
            return skb.kfree_skb(DropReason::NotSpecified);
        }
        match header.protocol.get() {
            ether::IPV4 => self.ipv4(skb, group),
            ether::IPV6 if self.interface().has_ipv6() => self.ipv6(skb, group),
            ether::ARP => self.arp(skb),
            _ => self.drop(skb, DropReason::UnhandledProtocol),
        }
    }

    /// The interface by which the packet at hand came.
    #[inline(always)]
    pub(super) fn interface(&self) -> &'a Interface {
        &self.of.interfaces[self.input as usize]
    }

    #[inline(always)]
    pub(super) fn count(&mut self, count: Count) {
        self.lane.counts.add(count);
    }

    /// The packet with its bytes written: itself, or, if others have a part in it, a copy. Dropped without memory for that.
    #[inline(always)]
    pub(super) fn write(&mut self, mut skb: Skb<'n>, write: impl Fn(&mut [u8])) -> Option<Skb<'n>> {
        match skb.data_mut() {
            Ok(data) => write(data),
            Err(_) => {
                skb = self.copied(skb)?;
                // Nobody else has a copy that was just made.
                write(skb.data_mut().ok()?);
            }
        }
        Some(skb)
    }

    #[cold]
    fn copied(&mut self, skb: Skb<'n>) -> Option<Skb<'n>> {
        match skb.copy() {
            Ok(copy) => Some(copy),
            Err(error) => {
                let reason = match error {
                    PacketError::BadLength => DropReason::PacketTooBig,
                    PacketError::NoMemory | PacketError::Shared => DropReason::NoMemory,
                };
                self.drop(skb, reason);
                None
            }
        }
    }

    /// The packet in one piece that may be written.
    pub(super) fn whole(&mut self, skb: Skb<'n>) -> Option<Skb<'n>> {
        let alone = skb.data_len() == 0 && !skb.is_shared() && !skb.is_cloned();
        if alone { Some(skb) } else { self.copied(skb) }
    }

    /// The packet, cut to `len` bytes if it has more; a copy, if it cannot be cut itself.
    #[inline(always)]
    pub(super) fn cut(&mut self, mut skb: Skb<'n>, len: usize) -> Option<Skb<'n>> {
        if skb.len() > len && skb.trim(len).is_err() {
            skb = self.copied(skb)?;
            // One that was just made is in one piece.
            skb.trim(len).ok()?;
        }
        Some(skb)
    }

    /// A packet made here: with room for `len` bytes behind the Ethernet header, of which that is written, but for the stations.
    pub(super) fn fresh(&mut self, len: usize, protocol: u16) -> Option<Skb<'n>> {
        let mut skb = self.of.packets.alloc_skb(Ethernet::LEN + len).ok()?;
        let header = Ethernet { destination: [0; 6], source: [0; 6], protocol: protocol.into() };
        skb.put_data(zerocopy::IntoBytes::as_bytes(&header)).ok()?;
        Some(skb)
    }

    /// Sends a packet to a station on the link of an interface, and counts it as sent on, if it was not made here.
    #[inline(always)]
    pub(super) fn send(&mut self, skb: Skb<'n>, interface: u32, to: Link) {
        let source = self.of.interfaces[interface as usize].link;
        let skb = self.write(skb, |data| {
            if let Some((header, _)) = Ethernet::of_mut(data) {
                (header.destination, header.source) = (to, source);
            }
        });
        let Some(skb) = skb else { return };
        if self.own {
            let queue = &mut self.lane.queues[interface as usize];
            queue.own |= 1 << queue.n;
        } else {
            self.count(if is_ipv6(&skb) { Count::Forwarded6 } else { Count::Forwarded4 });
        }
        self.queue(interface, skb);
    }

    /// Puts a packet, ready, behind those that are to go out by an interface.
    #[inline(always)]
    pub(super) fn queue(&mut self, interface: u32, skb: Skb<'n>) {
        let queue = &mut self.lane.queues[interface as usize];
        queue.packets[queue.n] = Some(skb);
        queue.n += 1;
        if queue.n == BATCH {
            self.transmit_queued(interface);
        }
    }

    /// Whether no packet waits to go out by an interface.
    #[inline(always)]
    pub(super) fn is_nothing_queued(&self, interface: u32) -> bool {
        self.lane.queues[interface as usize].n == 0
    }

    /// Gives the packets that are queued for an interface to the caller.
    fn transmit_queued(&mut self, interface: u32) {
        let Lane { queues, counts, left, .. } = &mut *self.lane;
        let queue = &mut queues[interface as usize];
        let (n, own) = (core::mem::take(&mut queue.n), core::mem::take(&mut queue.own));
        let packets = &mut queue.packets[..n];
        (self.out)(interface, packets);
        drop_left(packets, own, counts, left);
    }

    /// Gives packets that are sent on, up to [`BATCH`], to the caller.
    pub(super) fn transmit(&mut self, interface: u32, packets: &mut [Option<Skb<'n>>]) {
        (self.out)(interface, packets);
        drop_left(packets, 0, &mut self.lane.counts, &mut self.lane.left);
    }

    fn flush(&mut self) {
        for interface in 0..self.lane.queues.len() {
            if self.lane.queues[interface].n > 0 {
                self.transmit_queued(interface as u32);
            }
        }
    }

    /// Whether an interface that a route names is there, and lets so many bytes through.
    #[inline(always)]
    pub(super) fn mtu(&self, interface: u32) -> Option<usize> {
        Some(self.of.interfaces.get(interface as usize)?.mtu)
    }

    /// The same of packets of IPv6, if the interface has that.
    #[inline(always)]
    pub(super) fn mtu6(&self, interface: u32) -> Option<usize> {
        Some(
            self.of
                .interfaces
                .get(interface as usize)
                .filter(|interface| interface.has_ipv6())?
                .mtu,
        )
    }
}

impl fmt::Debug for Forwarder<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Forwarder")
            .field("interfaces", &self.interfaces)
            .field("routes4", &self.routes4)
            .field("routes6", &self.routes6)
            .finish_non_exhaustive()
    }
}

impl fmt::Debug for Lane<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Lane").field("interfaces", &self.queues.len()).finish_non_exhaustive()
    }
}
