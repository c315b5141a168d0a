//! Headers, as views of a packet's bytes: no copy, no alignment, and none without the bytes being there.

use core::net::{Ipv4Addr, Ipv6Addr};
use zerocopy::byteorder::network_endian::{U16, U32};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// The address of a station on an Ethernet.
pub type Link = [u8; 6];

/// All stations.
pub const BROADCAST: Link = [0xff; 6];

/// Whether frames to an address go to more than one station.
#[inline(always)]
pub fn is_group(link: Link) -> bool {
    link[0] & 1 != 0
}

/// Numbers of protocols on an Ethernet.
pub mod ether {
    /// IPv4.
    pub const IPV4: u16 = 0x0800;
    /// ARP.
    pub const ARP: u16 = 0x0806;
    /// IPv6.
    pub const IPV6: u16 = 0x86dd;
}

/// Numbers of protocols in IP.
pub mod protocol {
    /// ICMP.
    pub const ICMP: u8 = 1;
    /// UDP.
    pub const UDP: u8 = 17;
    /// ICMP for IPv6.
    pub const ICMPV6: u8 = 58;
}

macro_rules! headers {
    ($($(#[$doc:meta])* $name:ident $len:literal { $($(#[$field_doc:meta])* $field:ident: $type:ty,)* })*) => {
        $(
            $(#[$doc])*
            #[derive(Debug, Clone, Copy, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
            #[repr(C)]
            pub struct $name {
                $($(#[$field_doc])* pub $field: $type,)*
            }

            impl $name {
                /// Bytes of it.
                pub const LEN: usize = $len;

                /// The header that bytes begin with, and what comes behind it; none if they are too few.
                #[inline(always)]
                pub fn of(bytes: &[u8]) -> Option<(&Self, &[u8])> {
                    Self::ref_from_prefix(bytes).ok()
                }

                /// The same, to be changed.
                #[inline(always)]
                pub fn of_mut(bytes: &mut [u8]) -> Option<(&mut Self, &mut [u8])> {
                    Self::mut_from_prefix(bytes).ok()
                }
            }

            const _: () = assert!(size_of::<$name>() == $len);
        )*
    };
}

headers! {
    /// An Ethernet's.
    Ethernet 14 {
        /// To whom.
        destination: Link,
        /// From whom.
        source: Link,
        /// What is in it: see [`ether`].
        protocol: U16,
    }

    /// Of IPv4, without options.
    Ipv4 20 {
        /// Version, and length in words.
        version: u8,
        /// Class of service.
        tos: u8,
        /// Bytes, header included.
        total: U16,
        /// Which packet fragments are of.
        id: U16,
        /// Flags and offset of a fragment: see [`Ipv4::DONT`].
        fragment: U16,
        /// How many routers it may pass.
        ttl: u8,
        /// What is in it: see [`protocol`].
        protocol: u8,
        /// Of the header.
        checksum: U16,
        /// From whom.
        source: [u8; 4],
        /// To whom.
        destination: [u8; 4],
    }

    /// Of IPv6.
    Ipv6 40 {
        /// Version, class and flow.
        version: U32,
        /// Bytes behind the header.
        payload: U16,
        /// What is in it: see [`protocol`].
        next: u8,
        /// How many routers it may pass.
        hops: u8,
        /// From whom.
        source: [u8; 16],
        /// To whom.
        destination: [u8; 16],
    }

    /// Of UDP.
    Udp 8 {
        /// From which port.
        source: U16,
        /// To which port.
        destination: U16,
        /// Bytes, header included.
        len: U16,
        /// Of a pseudo-header and all bytes; 0 for none.
        checksum: U16,
    }

    /// Of ICMP, for either family.
    Icmp 8 {
        /// What it says.
        kind: u8,
        /// More exactly.
        code: u8,
        /// Of the message, and of a pseudo-header in IPv6.
        checksum: [u8; 2],
        /// What depends on the kind.
        rest: [u8; 4],
    }

    /// ARP, for IPv4 on an Ethernet.
    Arp 28 {
        /// 1: Ethernet.
        hardware: U16,
        /// IPv4.
        protocol: U16,
        /// Bytes of a link's address.
        link_len: u8,
        /// Bytes of an address.
        len: u8,
        /// 1: who has it; 2: an answer.
        operation: U16,
        /// The sender's address on the link.
        sender_link: Link,
        /// The sender's address.
        sender: [u8; 4],
        /// The target's address on the link.
        target_link: Link,
        /// The target's address.
        target: [u8; 4],
    }

    /// What is behind the ICMP header of a neighbour solicitation or advertisement, with one option.
    Neighbour 24 {
        /// Whom it is about.
        target: [u8; 16],
        /// 1: the source's link address; 2: the target's.
        option: u8,
        /// In units of eight bytes.
        option_len: u8,
        /// The address.
        link: Link,
    }
}

impl Ipv4 {
    /// In `fragment`: not to be cut.
    pub const DONT: u16 = 0x4000;
    /// In `fragment`: more follow.
    pub const MORE: u16 = 0x2000;
    /// In `fragment`: where it belongs, in units of eight bytes.
    pub const OFFSET: u16 = 0x1fff;

    /// Bytes of the header, options included, as it says.
    #[inline(always)]
    pub fn header_len(&self) -> usize {
        usize::from(self.version & 15) * 4
    }

    /// From whom.
    #[inline(always)]
    pub fn source(&self) -> Ipv4Addr {
        self.source.into()
    }

    /// To whom.
    #[inline(always)]
    pub fn destination(&self) -> Ipv4Addr {
        self.destination.into()
    }

    /// Whether it is a part of a packet.
    pub fn is_fragment(&self) -> bool {
        self.fragment.get() & (Self::MORE | Self::OFFSET) != 0
    }
}

impl Ipv6 {
    /// The version's field without class and flow.
    pub const VERSION: u32 = 6 << 28;

    /// From whom.
    #[inline(always)]
    pub fn source(&self) -> Ipv6Addr {
        self.source.into()
    }

    /// To whom.
    #[inline(always)]
    pub fn destination(&self) -> Ipv6Addr {
        self.destination.into()
    }
}
