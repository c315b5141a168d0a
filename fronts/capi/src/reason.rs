//! Why packets are dropped.

use quietline_net::packet::DropReason;

/// Why a packet was dropped (enum skb_drop_reason). Later versions may have more.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ql_drop_reason {
    /// Nobody said why.
    QL_DROP_NOT_SPECIFIED = 0,
    /// There was no memory.
    QL_DROP_NO_MEMORY = 1,
    /// A ring or a queue was full.
    QL_DROP_QUEUE_FULL = 2,
    /// The packet is shorter than its headers.
    QL_DROP_PACKET_TOO_SMALL = 3,
    /// The header makes no sense.
    QL_DROP_BAD_HEADER = 4,
    /// The header's checksum is wrong.
    QL_DROP_BAD_CHECKSUM = 5,
    /// A source or a destination that may not be forwarded.
    QL_DROP_MARTIAN = 6,
    /// No route leads there.
    QL_DROP_NO_ROUTE = 7,
    /// It has passed as many routers as it may.
    QL_DROP_TTL_EXPIRED = 8,
    /// It is larger than the way on allows, and may not be cut.
    QL_DROP_PACKET_TOO_BIG = 9,
    /// Nobody knows the neighbour's address.
    QL_DROP_NEIGHBOUR_FAILED = 10,
    /// Nobody here speaks the protocol.
    QL_DROP_UNHANDLED_PROTOCOL = 11,
    /// The device could not send it.
    QL_DROP_DEVICE_FAILED = 12,
    /// The device is down.
    QL_DROP_DEVICE_DOWN = 13,
}

macro_rules! same_numbers {
    ($($c:ident $rust:ident)*) => {
        $(const _: () = assert!(ql_drop_reason::$c as usize == DropReason::$rust.number());)*
        const _: () = assert!([$(DropReason::$rust),*].len() == DropReason::ALL.len());
    };
}

same_numbers! {
    QL_DROP_NOT_SPECIFIED NotSpecified
    QL_DROP_NO_MEMORY NoMemory
    QL_DROP_QUEUE_FULL QueueFull
    QL_DROP_PACKET_TOO_SMALL PacketTooSmall
    QL_DROP_BAD_HEADER BadHeader
    QL_DROP_BAD_CHECKSUM BadChecksum
    QL_DROP_MARTIAN Martian
    QL_DROP_NO_ROUTE NoRoute
    QL_DROP_TTL_EXPIRED TtlExpired
    QL_DROP_PACKET_TOO_BIG PacketTooBig
    QL_DROP_NEIGHBOUR_FAILED NeighbourFailed
    QL_DROP_UNHANDLED_PROTOCOL UnhandledProtocol
    QL_DROP_DEVICE_FAILED DeviceFailed
    QL_DROP_DEVICE_DOWN DeviceDown
}

/// The reason of a number; one that is none counts as "not specified".
pub(crate) fn reason(number: u32) -> DropReason {
    DropReason::ALL.get(number as usize).copied().unwrap_or(DropReason::NotSpecified)
}
