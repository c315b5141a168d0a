//! Numbers of the socket interface, as Linux has them.

/// No family.
pub const AF_UNSPEC: i32 = 0;
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

/// Bytes of the longest address.
pub const SOCKADDR_MAX: usize = 128;
/// The longest queue of connections that `listen` takes (`net.core.somaxconn`).
pub const SOMAXCONN: i32 = 4096;

/// Urgent data.
pub const MSG_OOB: i32 = 0x1;
/// Look, and leave it there.
pub const MSG_PEEK: i32 = 0x2;
/// Not through a gateway.
pub const MSG_DONTROUTE: i32 = 0x4;
/// Control messages were cut short.
pub const MSG_CTRUNC: i32 = 0x8;
/// The message was cut short; in a call: tell its whole length.
pub const MSG_TRUNC: i32 = 0x20;
/// Fail rather than wait.
pub const MSG_DONTWAIT: i32 = 0x40;
/// The end of a record.
pub const MSG_EOR: i32 = 0x80;
/// Wait until the buffer is full.
pub const MSG_WAITALL: i32 = 0x100;
/// The path has been confirmed.
pub const MSG_CONFIRM: i32 = 0x800;
/// From the queue of errors.
pub const MSG_ERRQUEUE: i32 = 0x2000;
/// No `SIGPIPE`.
pub const MSG_NOSIGNAL: i32 = 0x4000;
/// More will follow.
pub const MSG_MORE: i32 = 0x8000;
/// `recvmmsg`: do not wait after the first.
pub const MSG_WAITFORONE: i32 = 0x10000;
/// Descriptors that arrive are closed on exec.
pub const MSG_CMSG_CLOEXEC: i32 = 0x4000_0000;
/// They take any free number, as those that are made with `O_ANYFD` (whose own bit has a meaning here already). Not Linux's.
pub const MSG_CMSG_ANYFD: i32 = 0x1000_0000;

/// No more reading.
pub const SHUT_RD: i32 = 0;
/// No more writing.
pub const SHUT_WR: i32 = 1;
/// Neither.
pub const SHUT_RDWR: i32 = 2;

/// Options of all sockets.
pub const SOL_SOCKET: i32 = 1;
/// Control messages: descriptors.
pub const SCM_RIGHTS: i32 = 1;
/// Control messages: who has sent it.
pub const SCM_CREDENTIALS: i32 = 2;
/// Descriptors in one message at most.
pub const SCM_MAX_FD: usize = 253;

/// Accepted.
pub const SO_DEBUG: i32 = 1;
/// Addresses in use may be used again.
pub const SO_REUSEADDR: i32 = 2;
/// The type; read only.
pub const SO_TYPE: i32 = 3;
/// What went wrong; reading it clears it.
pub const SO_ERROR: i32 = 4;
/// Accepted.
pub const SO_DONTROUTE: i32 = 5;
/// Accepted.
pub const SO_BROADCAST: i32 = 6;
/// Room for what is sent.
pub const SO_SNDBUF: i32 = 7;
/// Room for what is received.
pub const SO_RCVBUF: i32 = 8;
/// Accepted.
pub const SO_KEEPALIVE: i32 = 9;
/// Accepted.
pub const SO_OOBINLINE: i32 = 10;
/// Accepted.
pub const SO_NO_CHECK: i32 = 11;
/// Accepted.
pub const SO_PRIORITY: i32 = 12;
/// Whether `close` waits for what was sent.
pub const SO_LINGER: i32 = 13;
/// Accepted.
pub const SO_BSDCOMPAT: i32 = 14;
/// Several sockets on one address.
pub const SO_REUSEPORT: i32 = 15;
/// Who has sent a message comes with it.
pub const SO_PASSCRED: i32 = 16;
/// Who is at the other end.
pub const SO_PEERCRED: i32 = 17;
/// Bytes that a receiver waits for.
pub const SO_RCVLOWAT: i32 = 18;
/// 1.
pub const SO_SNDLOWAT: i32 = 19;
/// How long a receiver waits.
pub const SO_RCVTIMEO: i32 = 20;
/// How long a sender waits.
pub const SO_SNDTIMEO: i32 = 21;
/// When a packet came.
pub const SO_TIMESTAMP: i32 = 29;
/// Whether it listens; read only.
pub const SO_ACCEPTCONN: i32 = 30;
/// Security label of the other end; there is none.
pub const SO_PEERSEC: i32 = 31;
/// [`SO_SNDBUF`] beyond the limit.
pub const SO_SNDBUFFORCE: i32 = 32;
/// [`SO_RCVBUF`] beyond the limit.
pub const SO_RCVBUFFORCE: i32 = 33;
/// The protocol; read only.
pub const SO_PROTOCOL: i32 = 38;
/// The family; read only.
pub const SO_DOMAIN: i32 = 39;
/// Where `MSG_PEEK` looks.
pub const SO_PEEK_OFF: i32 = 42;
/// Groups of the other end.
pub const SO_PEERGROUPS: i32 = 59;

/// Bytes of the buffers of a new socket that is none of TCP (`net.core.wmem_default`,
/// `rmem_default`).
pub const SOCKET_BUFFER: u32 = 212_992;
