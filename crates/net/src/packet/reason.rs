//! Why packets are dropped.

macro_rules! reasons {
    ($($(#[$doc:meta])* $variant:ident => $name:literal,)*) => {
        /// Why a packet was dropped (`enum skb_drop_reason`).
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        #[non_exhaustive]
        pub enum DropReason {
            $($(#[$doc])* $variant,)*
        }

        impl DropReason {
            /// All reasons, in the order of their numbers.
            pub const ALL: &'static [Self] = &[$(Self::$variant),*];

            /// The name, as tracers and statistics show it.
            pub const fn name(self) -> &'static str {
                match self {
                    $(Self::$variant => $name,)*
                }
            }
        }
    };
}

reasons! {
    /// Nobody said why.
    NotSpecified => "NOT_SPECIFIED",
    /// There was no memory.
    NoMemory => "NOMEM",
    /// A ring or a queue was full.
    QueueFull => "FULL_RING",
    /// The packet is shorter than its headers.
    PacketTooSmall => "PKT_TOO_SMALL",
    /// The header makes no sense.
    BadHeader => "IP_INHDR",
    /// The header's checksum is wrong.
    BadChecksum => "IP_CSUM",
    /// A source or a destination that may not be forwarded.
    Martian => "IP_INVALID_ADDRESS",
    /// No route leads there.
    NoRoute => "IP_OUTNOROUTES",
    /// It has passed as many routers as it may.
    TtlExpired => "IP_TTL_EXPIRED",
    /// It is larger than the way on allows, and may not be cut.
    PacketTooBig => "PKT_TOO_BIG",
    /// Nobody knows the neighbour's address.
    NeighbourFailed => "NEIGH_FAILED",
    /// Nobody here speaks the protocol.
    UnhandledProtocol => "UNHANDLED_PROTO",
    /// The device could not send it.
    DeviceFailed => "DEV_HDR",
    /// The device is down.
    DeviceDown => "DEV_READY",
}

impl DropReason {
    /// The number, from 0 on: where it stands in [`ALL`](Self::ALL).
    pub const fn number(self) -> usize {
        self as usize
    }
}
