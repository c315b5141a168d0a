//! Which sockets there are: the switch from family, type and protocol to an implementation.

use crate::abi::*;
use crate::caller::{Caller, Right};
use crate::socket::{Protocol, ProtocolWord};
use rustix::io::Errno;

/// The type and protocol of a socket to be made (`__sock_create` and each family's create).
///
/// # Errors
/// `EAFNOSUPPORT`, `ESOCKTNOSUPPORT`, `EPROTONOSUPPORT`, `EINVAL`, `EPERM`, `EACCES`.
#[inline]
pub(crate) fn resolve(
    family: i32,
    ty: i32,
    protocol: i32,
    who: &dyn Caller,
) -> Result<(i32, ProtocolWord), Errno> {
    // Streams without a named protocol, which servers make by the million, need no table.
    if ty == SOCK_STREAM && protocol == 0 {
        match family {
            AF_INET | AF_INET6 => return Ok((SOCK_STREAM, ProtocolWord::TCP)),
            AF_UNIX => return Ok((SOCK_STREAM, ProtocolWord::UNIX)),
            _ => {}
        }
    }
    resolve_any(family, ty, protocol, who)
}

#[inline(never)]
fn resolve_any(
    family: i32,
    ty: i32,
    protocol: i32,
    who: &dyn Caller,
) -> Result<(i32, ProtocolWord), Errno> {
    if !(0..AF_MAX).contains(&family) {
        return Err(Errno::AFNOSUPPORT);
    }
    if !(0..SOCK_MAX).contains(&ty) {
        return Err(Errno::INVAL);
    }
    let resolved = match family {
        AF_UNIX => unix(ty, protocol),
        // SOCK_PACKET on AF_INET means AF_PACKET, which is not here.
        AF_INET if ty == SOCK_PACKET => Err(Errno::AFNOSUPPORT),
        AF_INET => inet(ty, protocol, who, IPPROTO_ICMP),
        AF_INET6 => inet(ty, protocol, who, IPPROTO_ICMPV6),
        _ => Err(Errno::AFNOSUPPORT),
    };
    resolved.map(|(ty, protocol)| (ty, ProtocolWord::new(protocol)))
}

fn unix(ty: i32, protocol: i32) -> Result<(i32, Protocol), Errno> {
    if protocol != 0 && protocol != AF_UNIX {
        return Err(Errno::PROTONOSUPPORT);
    }
    match ty {
        SOCK_STREAM | SOCK_DGRAM | SOCK_SEQPACKET => Ok((ty, Protocol::Unix)),
        // As Linux has always taken it.
        SOCK_RAW => Ok((SOCK_DGRAM, Protocol::Unix)),
        _ => Err(Errno::SOCKTNOSUPPORT),
    }
}

fn inet(ty: i32, protocol: i32, who: &dyn Caller, icmp: i32) -> Result<(i32, Protocol), Errno> {
    if !(0..IPPROTO_MAX).contains(&protocol) {
        return Err(Errno::INVAL);
    }
    match ty {
        SOCK_STREAM if matches!(protocol, IPPROTO_IP | IPPROTO_TCP) => Ok((ty, Protocol::Tcp)),
        SOCK_DGRAM if matches!(protocol, IPPROTO_IP | IPPROTO_UDP) => Ok((ty, Protocol::Udp)),
        SOCK_DGRAM if protocol == IPPROTO_UDPLITE => Ok((ty, Protocol::UdpLite)),
        // Echo sockets, which no group may use by default.
        SOCK_DGRAM if protocol == icmp => Err(Errno::ACCESS),
        // A raw socket takes any protocol but must name one.
        SOCK_RAW if protocol == IPPROTO_IP => Err(Errno::PROTONOSUPPORT),
        SOCK_RAW if !who.may(Right::NetRaw) => Err(Errno::PERM),
        SOCK_RAW => Ok((ty, Protocol::Raw(protocol as u16))),
        SOCK_STREAM | SOCK_DGRAM => Err(Errno::PROTONOSUPPORT),
        _ => Err(Errno::SOCKTNOSUPPORT),
    }
}
