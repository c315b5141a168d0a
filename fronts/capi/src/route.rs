//! Addresses, prefixes and where they lead, as C has them.

use crate::status::ql_status;
use core::net::{Ipv4Addr, Ipv6Addr};
use quietline_net::forward::{Address, NextHop, Prefix, Via};

/// The first bits of addresses of a family; or an address, with all its bits.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct ql_prefix {
    /// 4 or 6.
    pub family: u32,
    /// How many bits: up to 32 or 128.
    pub bits: u32,
    /// The address, in the order of the wire: four bytes of it or all sixteen. Bits that do not count are ignored.
    pub address: [u8; 16],
}

/// How a packet goes on.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ql_via {
    /// To its destination: it is on the link.
    QL_VIA_LINK = 0,
    /// To a router.
    QL_VIA_GATEWAY = 1,
    /// Not at all: nothing may go there.
    QL_VIA_UNREACHABLE = 2,
    /// Not at all: it has arrived, at an address of the forwarder's own.
    QL_VIA_LOCAL = 3,
    /// To all on a link, which is not done for others.
    QL_VIA_BROADCAST = 4,
}

/// Where a route leads.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct ql_next_hop {
    /// The number of the interface.
    pub interface: u32,
    /// A ql_via.
    pub via: u32,
    /// The router's address, of the route's family, for QL_VIA_GATEWAY; else zero.
    pub gateway: [u8; 16],
}

/// An address of either family, in C's form.
pub(crate) trait Wire: Address {
    /// The bytes of the wire, and zeroes.
    fn bytes(self) -> [u8; 16];
    /// What such bytes say.
    fn of(bytes: [u8; 16]) -> Self;
}

impl Wire for Ipv4Addr {
    fn bytes(self) -> [u8; 16] {
        let mut bytes = [0; 16];
        bytes[..4].copy_from_slice(&self.octets());
        bytes
    }

    fn of([a, b, c, d, ..]: [u8; 16]) -> Self {
        Self::new(a, b, c, d)
    }
}

impl Wire for Ipv6Addr {
    fn bytes(self) -> [u8; 16] {
        self.octets()
    }

    fn of(bytes: [u8; 16]) -> Self {
        bytes.into()
    }
}

/// A prefix of one of the families.
pub(crate) enum Either {
    V4(Prefix<Ipv4Addr>),
    V6(Prefix<Ipv6Addr>),
}

impl ql_prefix {
    /// # Errors
    /// [`ql_status::QL_INVALID`] for another family, or more bits than it has.
    pub(crate) fn either(&self) -> Result<Either, ql_status> {
        match self.family {
            4 => Ok(Either::V4(Prefix::of(Ipv4Addr::of(self.address), self.bits)?)),
            6 => Ok(Either::V6(Prefix::of(Ipv6Addr::of(self.address), self.bits)?)),
            _ => Err(ql_status::QL_INVALID),
        }
    }
}

impl ql_next_hop {
    /// # Errors
    /// [`ql_status::QL_INVALID`] for an interface or a way that is none.
    pub(crate) fn resolve<A: Wire>(&self, interfaces: usize) -> Result<NextHop<A>, ql_status> {
        const LINK: u32 = ql_via::QL_VIA_LINK as u32;
        const GATEWAY: u32 = ql_via::QL_VIA_GATEWAY as u32;
        const UNREACHABLE: u32 = ql_via::QL_VIA_UNREACHABLE as u32;
        const LOCAL: u32 = ql_via::QL_VIA_LOCAL as u32;
        const BROADCAST: u32 = ql_via::QL_VIA_BROADCAST as u32;
        let via = match self.via {
            LINK => Via::Link,
            GATEWAY => Via::Gateway(A::of(self.gateway)),
            UNREACHABLE => Via::Unreachable,
            LOCAL => Via::Local,
            BROADCAST => Via::Broadcast,
            _ => return Err(ql_status::QL_INVALID),
        };
        if self.via != GATEWAY && self.gateway != [0; 16] {
            return Err(ql_status::QL_INVALID);
        }
        if self.interface as usize >= interfaces {
            return Err(ql_status::QL_INVALID);
        }
        Ok(NextHop { interface: self.interface, via })
    }
}

impl<A: Wire> From<NextHop<A>> for ql_next_hop {
    fn from(hop: NextHop<A>) -> Self {
        let (via, gateway) = match hop.via {
            Via::Link => (ql_via::QL_VIA_LINK, [0; 16]),
            Via::Gateway(address) => (ql_via::QL_VIA_GATEWAY, address.bytes()),
            Via::Unreachable => (ql_via::QL_VIA_UNREACHABLE, [0; 16]),
            Via::Local => (ql_via::QL_VIA_LOCAL, [0; 16]),
            Via::Broadcast => (ql_via::QL_VIA_BROADCAST, [0; 16]),
        };
        Self { interface: hop.interface, via: via as u32, gateway }
    }
}
