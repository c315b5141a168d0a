//! Addresses as calls give and take them (`sockaddr_in`, `sockaddr_in6`).

use super::address::{any, mapped};
use crate::abi::{AF_INET, AF_INET6, AF_UNSPEC};
use crate::address::SockAddr;
use core::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use rustix::io::Errno;

/// Bytes of a `sockaddr_in`.
const V4: usize = 16;
/// Bytes of a `sockaddr_in6`; its last four, the scope, may be missing.
const V6: usize = 28;
const V6_SHORT: usize = 24;

fn port(bytes: &[u8]) -> u16 {
    u16::from_be_bytes([bytes[2], bytes[3]])
}

/// A `sockaddr_in`'s address, whatever its family says. The caller has looked at the length.
fn v4(bytes: &[u8]) -> SocketAddr {
    let ip = Ipv4Addr::new(bytes[4], bytes[5], bytes[6], bytes[7]);
    SocketAddr::new(ip.into(), port(bytes))
}

fn v6(bytes: &[u8]) -> SocketAddr {
    let ip: [u8; 16] = *bytes[8..].first_chunk().expect("long enough");
    SocketAddr::new(Ipv6Addr::from(ip).into(), port(bytes))
}

/// What `bind` is given.
///
/// # Errors
/// `EINVAL` if it is too short; `EAFNOSUPPORT`.
pub(super) fn to_bind(address: &SockAddr, is_v6: bool) -> Result<SocketAddr, Errno> {
    let bytes = address.bytes();
    if bytes.len() < if is_v6 { V6_SHORT } else { V4 } {
        return Err(Errno::INVAL);
    }
    match (address.family(), is_v6) {
        (AF_INET6, true) => Ok(v6(bytes)),
        (AF_INET, false) => Ok(v4(bytes)),
        // Old programs leave the family of the wildcard out.
        (AF_UNSPEC, false) if v4(bytes).ip() == Ipv4Addr::UNSPECIFIED => Ok(v4(bytes)),
        _ => Err(Errno::AFNOSUPPORT),
    }
}

/// What `connect` is given; none to be disconnected. `datagrams` of version 6 take addresses of version 4.
///
/// # Errors
/// `EINVAL` if it is too short; `EAFNOSUPPORT`.
pub(super) fn to_connect(
    address: &SockAddr,
    is_v6: bool,
    datagrams: bool,
) -> Result<Option<SocketAddr>, Errno> {
    let bytes = address.bytes();
    if bytes.len() < 2 {
        return Err(Errno::INVAL);
    }
    match address.family() {
        AF_UNSPEC => Ok(None),
        AF_INET if is_v6 && datagrams => {
            if bytes.len() < V4 {
                Err(Errno::INVAL)
            } else {
                Ok(Some(v4(bytes)))
            }
        }
        family => {
            if bytes.len() < if is_v6 { V6_SHORT } else { V4 } {
                return Err(Errno::INVAL);
            }
            match (family, is_v6) {
                (AF_INET6, true) => Ok(Some(v6(bytes))),
                (AF_INET, false) => Ok(Some(v4(bytes))),
                _ => Err(Errno::AFNOSUPPORT),
            }
        }
    }
}

/// To whom `sendto` sends a datagram; none if the address says nothing.
///
/// # Errors
/// `EINVAL` if it is too short, or for a wrong family on version 6; `EAFNOSUPPORT`.
pub(super) fn to_send(address: &SockAddr, is_v6: bool) -> Result<Option<SocketAddr>, Errno> {
    let bytes = address.bytes();
    if bytes.is_empty() {
        return Ok(None);
    }
    if !is_v6 {
        return match (bytes.len(), address.family()) {
            (..V4, _) => Err(Errno::INVAL),
            (_, AF_INET | AF_UNSPEC) => Ok(Some(v4(bytes))),
            _ => Err(Errno::AFNOSUPPORT),
        };
    }
    if bytes.len() < 2 {
        return Err(Errno::INVAL);
    }
    match address.family() {
        AF_UNSPEC => Ok(None),
        AF_INET6 if bytes.len() >= V6_SHORT => Ok(Some(v6(bytes))),
        AF_INET if bytes.len() >= V4 => Ok(Some(v4(bytes))),
        _ => Err(Errno::INVAL),
    }
}

/// An address as a socket of the family shows it.
pub(super) fn shown(address: SocketAddr, is_v6: bool) -> SockAddr {
    let mut bytes = [0; V6];
    bytes[2..4].copy_from_slice(&address.port().to_be_bytes());
    let (family, len) = if is_v6 { (AF_INET6, V6) } else { (AF_INET, V4) };
    bytes[..2].copy_from_slice(&(family as u16).to_ne_bytes());
    match if is_v6 { mapped(address.ip()) } else { address.ip() } {
        IpAddr::V4(ip) => bytes[4..8].copy_from_slice(&ip.octets()),
        IpAddr::V6(ip) => bytes[8..24].copy_from_slice(&ip.octets()),
    }
    SockAddr::new(&bytes[..len]).expect("no longer than any address")
}

/// The address of a socket that has none.
pub(super) fn unbound(is_v6: bool, port: u16) -> SockAddr {
    let mut address = any(is_v6);
    address.set_port(port);
    shown(address, is_v6)
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn what_is_shown_is_what_was_bound() {
        for (text, is_v6) in
            [("127.0.0.1:80", false), ("0.0.0.0:65535", false), ("[::1]:1", true), ("[::]:0", true)]
        {
            let address: SocketAddr = text.parse().unwrap();
            let raw = shown(address, is_v6);
            assert_eq!(to_bind(&raw, is_v6), Ok(address));
            assert_eq!(to_connect(&raw, is_v6, false), Ok(Some(address)));
            assert_eq!(to_send(&raw, is_v6), Ok(Some(address)));
            let short = SockAddr::new(&raw.bytes()[..15]).unwrap();
            assert_eq!(to_bind(&short, is_v6), Err(Errno::INVAL));
        }
        let v4 = shown("127.0.0.1:80".parse().unwrap(), false);
        assert_eq!(
            to_bind(&v4, true),
            Err(Errno::INVAL),
            "too short before it is the wrong family"
        );
        assert_eq!(to_connect(&v4, true, true), Ok(Some("127.0.0.1:80".parse().unwrap())));
        let mapped = shown("127.0.0.1:80".parse().unwrap(), true);
        assert_eq!(to_bind(&mapped, true), Ok("[::ffff:127.0.0.1]:80".parse().unwrap()));
    }
}
