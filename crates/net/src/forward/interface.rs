//! What a forwarder knows of a network device.

use super::header::Link;
use core::net::{Ipv4Addr, Ipv6Addr};
use quietline_platform::{AllocError, heap};

/// Bytes behind the Ethernet header that a link has room for if it carries IPv6 (RFC 8200, section 5).
pub const LEAST_MTU6: usize = 1280;

/// A device's addresses and what fits through it. Devices themselves are the caller's: see
/// [`Forwarder::handle`](super::Forwarder::handle).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Interface {
    pub(super) link: Link,
    pub(super) mtu: usize,
    pub(super) local: Ipv6Addr,
    pub(super) v4: Vec<(Ipv4Addr, u32)>,
    pub(super) v6: Vec<(Ipv6Addr, u32)>,
    /// An address is missing, because there was no memory for it: [`Forwarder::new`](super::Forwarder::new) says so.
    pub(super) incomplete: bool,
}

impl Interface {
    /// A device with an address on its link, and with room for so many bytes behind the Ethernet header. Its first
    /// address of IPv6 is the link-local one that follows from the link's. With room for less than [`LEAST_MTU6`] it has no IPv6:
    /// see [`has_ipv6`](Self::has_ipv6).
    pub fn new(link: Link, mtu: usize) -> Self {
        let [a, b, c, d, e, f] = link.map(u16::from);
        let local =
            Ipv6Addr::new(0xfe80, 0, 0, 0, (a ^ 2) << 8 | b, c << 8 | 0xff, 0xfe00 | d, e << 8 | f);
        Self { link, mtu, local, v4: Vec::new(), v6: Vec::new(), incomplete: false }
    }

    /// With an address of IPv4, and how many of its bits all on the link have.
    #[must_use]
    pub fn v4(mut self, address: Ipv4Addr, bits: u32) -> Self {
        self.incomplete |= push(&mut self.v4, (address, bits)).is_err();
        self
    }

    /// With an address of IPv6, and how many of its bits all on the link have. [`Forwarder::new`](super::Forwarder::new) refuses it on a
    /// device that has no IPv6.
    #[must_use]
    pub fn v6(mut self, address: Ipv6Addr, bits: u32) -> Self {
        self.incomplete |= push(&mut self.v6, (address, bits)).is_err();
        self
    }

    /// Its address on the link.
    pub fn link(&self) -> Link {
        self.link
    }

    /// Bytes behind the Ethernet header.
    pub fn mtu(&self) -> usize {
        self.mtu
    }

    /// Whether packets of IPv6 come in and go out by it: not where those of the least size that a link must carry (RFC 8200) do not fit. There
    /// they are dropped, as on Linux, which turns the protocol off on such a device.
    #[inline]
    pub fn has_ipv6(&self) -> bool {
        self.mtu >= LEAST_MTU6
    }

    /// The link-local address of IPv6.
    pub fn link_local(&self) -> Ipv6Addr {
        self.local
    }

    /// What it calls itself in messages of ICMP.
    pub(super) fn first4(&self) -> Option<Ipv4Addr> {
        self.v4.first().map(|(address, _)| *address)
    }

    /// As which it speaks of IPv4 to a station on its link: an address on the same network, if there is one.
    pub(super) fn toward4(&self, to: Ipv4Addr) -> Option<Ipv4Addr> {
        let near = |(own, bits): &&(Ipv4Addr, u32)| {
            super::Prefix::of(*own, *bits).is_ok_and(|link| link.contains(to))
        };
        self.v4.iter().find(near).map(|(address, _)| *address).or(self.first4())
    }

    /// Its first address of IPv6 that is known beyond its link.
    pub(super) fn first6(&self) -> Option<Ipv6Addr> {
        self.v6.iter().map(|(address, _)| *address).find(|address| !address.is_unicast_link_local())
    }

    /// As which it speaks on its link to an address: a global one, if it has one and the other is not link-local.
    pub(super) fn source6(&self, to: Ipv6Addr) -> Ipv6Addr {
        self.first6().filter(|_| !to.is_unicast_link_local()).unwrap_or(self.local)
    }

    pub(super) fn has4(&self, address: Ipv4Addr) -> bool {
        self.v4.iter().any(|(own, _)| *own == address)
    }

    pub(super) fn has6(&self, address: Ipv6Addr) -> bool {
        self.local == address || self.v6.iter().any(|(own, _)| *own == address)
    }

    /// Whether a multicast address is one that it listens to: all nodes, or the solicited node's of one of its own.
    pub(super) fn listens6(&self, group: Ipv6Addr) -> bool {
        let own = self.v6.iter().map(|(own, _)| *own).chain([self.local]);
        group == ALL_NODES || own.into_iter().any(|own| solicited(own) == group)
    }
}

fn push<T>(to: &mut Vec<T>, value: T) -> Result<(), AllocError> {
    heap::try_reserve(to, 1)?;
    to.push(value);
    Ok(())
}

/// All nodes on a link.
pub(super) const ALL_NODES: Ipv6Addr = Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 1);

/// The group to which a neighbour is asked for.
pub(super) fn solicited(of: Ipv6Addr) -> Ipv6Addr {
    let [.., g, h] = of.segments();
    Ipv6Addr::new(0xff02, 0, 0, 0, 0, 1, 0xff00 | g & 0xff, h)
}

/// The link's address of a group.
pub(super) fn group_link(group: Ipv6Addr) -> Link {
    let [.., a, b, c, d] = group.octets();
    [0x33, 0x33, a, b, c, d]
}
