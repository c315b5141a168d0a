//! Numbers of the socket interface, as Linux has them.

/// Local sockets.
pub const AF_UNIX: i32 = 1;
/// Internet, version 4.
pub const AF_INET: i32 = 2;
/// Internet, version 6.
pub const AF_INET6: i32 = 10;
/// Packets from devices; what `SOCK_PACKET` on `AF_INET` has long meant.
pub const AF_PACKET: i32 = 17;
/// Families that Linux numbers: others are out of range.
pub(crate) const AF_MAX: i32 = 46;

/// A stream of bytes.
pub const SOCK_STREAM: i32 = 1;
/// Datagrams.
pub const SOCK_DGRAM: i32 = 2;
/// Packets with their headers.
pub const SOCK_RAW: i32 = 3;
/// Reliable datagrams.
pub const SOCK_RDM: i32 = 4;
/// A stream of packets.
pub const SOCK_SEQPACKET: i32 = 5;
/// Obsolete.
pub const SOCK_PACKET: i32 = 10;
/// Types that Linux numbers: others are out of range.
pub(crate) const SOCK_MAX: i32 = 11;
/// The bits of the type; the rest are flags.
pub(crate) const SOCK_TYPE_MASK: i32 = 0xf;
/// Close on exec.
pub const SOCK_CLOEXEC: i32 = quietline_vfs::abi::O_CLOEXEC;
/// Fail rather than wait.
pub const SOCK_NONBLOCK: i32 = quietline_vfs::abi::O_NONBLOCK;

/// Any protocol.
pub const IPPROTO_IP: i32 = 0;
/// Control messages, here: echo sockets.
pub const IPPROTO_ICMP: i32 = 1;
/// The transmission control protocol.
pub const IPPROTO_TCP: i32 = 6;
/// User datagrams.
pub const IPPROTO_UDP: i32 = 17;
/// Control messages, version 6.
pub const IPPROTO_ICMPV6: i32 = 58;
/// Datagrams with partial checksums.
pub const IPPROTO_UDPLITE: i32 = 136;
/// Protocols that Linux numbers: others are out of range.
pub(crate) const IPPROTO_MAX: i32 = 263;
