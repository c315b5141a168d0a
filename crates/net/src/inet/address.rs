//! Addresses: what a socket is bound to, and which packets that meets.

use core::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use rustix::io::Errno;

/// A local address as the port tables see it: an IPv4 address is the same whether a socket of version 4 or one of version
/// 6 is bound to it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Local {
    /// All of version 4.
    Any4,
    /// Everything.
    Any,
    /// All of version 6.
    Any6,
    /// One.
    One(IpAddr),
}

impl Local {
    /// What a socket of the family is bound to; `only6` is `IPV6_V6ONLY`.
    pub(super) fn of(ip: IpAddr, only6: bool) -> Self {
        match ip {
            IpAddr::V4(Ipv4Addr::UNSPECIFIED) => Self::Any4,
            IpAddr::V6(Ipv6Addr::UNSPECIFIED) if only6 => Self::Any6,
            IpAddr::V6(Ipv6Addr::UNSPECIFIED) => Self::Any,
            IpAddr::V6(_) => match ip.to_canonical() {
                // A mapped wildcard is the wildcard of version 4.
                IpAddr::V4(Ipv4Addr::UNSPECIFIED) => Self::Any4,
                one => Self::One(one),
            },
            one => Self::One(one),
        }
    }

    /// Whether some packet could be for both.
    pub(super) fn overlaps(self, other: Self) -> bool {
        use Local::*;
        match (self, other) {
            (Any, _) | (_, Any) => true,
            (Any4, Any4) | (Any6, Any6) => true,
            (Any4, Any6) | (Any6, Any4) => false,
            (Any4, One(one)) | (One(one), Any4) => one.is_ipv4(),
            (Any6, One(one)) | (One(one), Any6) => one.is_ipv6(),
            (One(one), One(other)) => one == other,
        }
    }

    /// How well it meets a packet to `ip`, which is canonical: 0 if not at all.
    pub(super) fn meets(self, ip: IpAddr) -> u8 {
        match self {
            Self::One(one) if one == ip => 3,
            Self::Any4 if ip.is_ipv4() => 2,
            Self::Any6 if ip.is_ipv6() => 2,
            Self::Any => 1 + u8::from(ip.is_ipv6()),
            _ => 0,
        }
    }
}

/// What an address is to a machine that has a loopback device and nothing else.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Class {
    /// `0.0.0.0`, `::`.
    Any,
    /// Its own.
    Own,
    /// Of all on the link, or all on the loopback device.
    Broadcast,
    /// Of a group.
    Multicast,
    /// Of the link, which wants to be named.
    Link,
    /// Somebody else's: there is no way to there.
    Foreign,
}

/// Classifies an address; a mapped one as what it maps.
pub(super) fn class(ip: IpAddr) -> Class {
    match ip.to_canonical() {
        ip if ip.is_unspecified() => Class::Any,
        ip if ip.is_multicast() => Class::Multicast,
        IpAddr::V4(ip) => match ip.octets() {
            [255, 255, 255, 255] | [127, 255, 255, 255] => Class::Broadcast,
            [127, ..] => Class::Own,
            _ => Class::Foreign,
        },
        IpAddr::V6(Ipv6Addr::LOCALHOST) => Class::Own,
        IpAddr::V6(ip) if ip.is_unicast_link_local() => Class::Link,
        IpAddr::V6(_) => Class::Foreign,
    }
}

/// An address of version 4 as a socket of version 6 shows it.
pub(super) fn mapped(ip: IpAddr) -> IpAddr {
    match ip {
        IpAddr::V4(ip) => IpAddr::V6(ip.to_ipv6_mapped()),
        v6 => v6,
    }
}

/// The address of the other end, with the wildcard taken for the machine itself; canonical. And the address
/// from which one gets there.
///
/// # Errors
/// `ENETUNREACH`.
pub(super) fn route(to: IpAddr) -> Result<(IpAddr, IpAddr), Errno> {
    const V4: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);
    const V6: IpAddr = IpAddr::V6(Ipv6Addr::LOCALHOST);
    let is_v4 = to.to_canonical().is_ipv4();
    match class(to) {
        Class::Any if is_v4 => Ok((V4, V4)),
        Class::Any => Ok((V6, V6)),
        Class::Own if is_v4 => Ok((to.to_canonical(), V4)),
        Class::Own => Ok((V6, V6)),
        _ => Err(Errno::NETUNREACH),
    }
}

/// The address from which a socket that is bound to `bound` sends to `there`, if it would send from `source` otherwise.
///
/// # Errors
/// `ENETUNREACH`, `EAFNOSUPPORT`: it is bound to an address of the other version.
pub(super) fn source(bound: IpAddr, there: IpAddr, source: IpAddr) -> Result<IpAddr, Errno> {
    let is_any =
        bound == IpAddr::V6(Ipv6Addr::UNSPECIFIED) || bound == IpAddr::V4(Ipv4Addr::UNSPECIFIED);
    let bound = bound.to_canonical();
    match (bound, there) {
        _ if is_any => Ok(source),
        (IpAddr::V4(_), IpAddr::V6(_)) => Err(Errno::AFNOSUPPORT),
        (IpAddr::V6(_), IpAddr::V4(_)) => Err(Errno::NETUNREACH),
        _ if bound.is_unspecified() => Ok(source),
        _ => Ok(bound),
    }
}

/// As [`route`], for a socket that is bound to `bound`: it takes the wildcard for its own address, if that is of version 4.
///
/// # Errors
/// `ENETUNREACH`.
pub(super) fn route_from(bound: Option<IpAddr>, to: IpAddr) -> Result<(IpAddr, IpAddr), Errno> {
    let own = bound.map(|bound| bound.to_canonical()).filter(|own| own.is_ipv4());
    let (there, from) = match (to, own) {
        (IpAddr::V6(Ipv6Addr::UNSPECIFIED), Some(_)) => route(IpAddr::V4(Ipv4Addr::LOCALHOST))?,
        _ => route(to)?,
    };
    match own {
        Some(own)
            if !own.is_unspecified() && to.to_canonical() == IpAddr::V4(Ipv4Addr::UNSPECIFIED) =>
        {
            Ok((own, from))
        }
        _ => Ok((there, from)),
    }
}

/// The wildcard of a family.
pub(super) fn any(v6: bool) -> SocketAddr {
    let ip = if v6 { IpAddr::V6(Ipv6Addr::UNSPECIFIED) } else { IpAddr::V4(Ipv4Addr::UNSPECIFIED) };
    SocketAddr::new(ip, 0)
}

/// Whether a socket may be bound to an address.
///
/// # Errors
/// `EINVAL`, `EADDRNOTAVAIL`.
pub(super) fn check_bind(
    address: SocketAddr,
    is_v6: bool,
    only6: bool,
    free: bool,
) -> Result<(), Errno> {
    if is_v6 && only6 && address.ip().to_canonical().is_ipv4() {
        return Err(Errno::INVAL);
    }
    match (class(address.ip()), address.ip().is_ipv6() && address.ip().to_canonical().is_ipv6()) {
        (Class::Any | Class::Own, _) => Ok(()),
        (Class::Broadcast | Class::Multicast, false) => Ok(()),
        (Class::Link | Class::Multicast, true) => Err(Errno::INVAL),
        _ if free => Ok(()),
        _ => Err(Errno::ADDRNOTAVAIL),
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    fn local(ip: &str, only6: bool) -> Local {
        Local::of(ip.parse().unwrap(), only6)
    }

    #[test]
    fn overlaps_are_those_of_the_packets() {
        let all = [
            local("0.0.0.0", false),
            local("::", false),
            local("::", true),
            local("::1", false),
            local("127.0.0.1", false),
            local("::ffff:127.0.0.1", false),
            local("127.0.0.2", false),
            local("::ffff:0.0.0.0", false),
        ];
        let packets: [IpAddr; 3] =
            ["127.0.0.1".parse().unwrap(), "127.0.0.2".parse().unwrap(), "::1".parse().unwrap()];
        for a in all {
            for b in all {
                let both = packets.iter().any(|&ip| a.meets(ip) > 0 && b.meets(ip) > 0);
                assert_eq!(a.overlaps(b), both, "{a:?} {b:?}");
                assert_eq!(a.overlaps(b), b.overlaps(a));
            }
        }
    }

    #[test]
    fn the_closest_is_met_best() {
        let ip = "127.0.0.1".parse().unwrap();
        let order = [
            local("127.0.0.1", false),
            local("0.0.0.0", false),
            local("::", false),
            local("::", true),
        ];
        assert!(order.windows(2).all(|two| two[0].meets(ip) > two[1].meets(ip)));
        assert_eq!(order[3].meets(ip), 0);
    }

    #[test]
    fn only_the_machine_itself_is_reached() {
        for (to, there, from) in [
            ("0.0.0.0", "127.0.0.1", "127.0.0.1"),
            ("127.1.2.3", "127.1.2.3", "127.0.0.1"),
            ("::", "::1", "::1"),
            ("::ffff:127.0.0.9", "127.0.0.9", "127.0.0.1"),
        ] {
            let want = (there.parse().unwrap(), from.parse().unwrap());
            assert_eq!(route(to.parse().unwrap()), Ok(want), "{to}");
        }
        for to in [
            "10.0.0.1",
            "224.0.0.1",
            "255.255.255.255",
            "127.255.255.255",
            "::2",
            "fe80::1",
            "ff02::1",
        ] {
            assert_eq!(route(to.parse().unwrap()), Err(Errno::NETUNREACH), "{to}");
        }
    }
}
