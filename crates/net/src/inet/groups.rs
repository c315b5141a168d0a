//! Options that join groups and leave them.
//!
//! No device here has groups, so joining one that is right is `ENODEV`. What Linux checks before it
//! looks for a device is answered as there.

use super::settings::{IPPROTO_IP, IPPROTO_IPV6};
use crate::abi::{AF_INET, AF_INET6};
use core::net::{Ipv4Addr, Ipv6Addr};
use rustix::io::Errno;

const IP_ADD_MEMBERSHIP: i32 = 35;
const IP_DROP_MEMBERSHIP: i32 = 36;
const IP_UNBLOCK_SOURCE: i32 = 37;
const IP_BLOCK_SOURCE: i32 = 38;
const IP_ADD_SOURCE_MEMBERSHIP: i32 = 39;
const IP_DROP_SOURCE_MEMBERSHIP: i32 = 40;
const MCAST_JOIN_GROUP: i32 = 42;
const MCAST_LEAVE_GROUP: i32 = 45;
const IPV6_ADD_MEMBERSHIP: i32 = 20;
const IPV6_DROP_MEMBERSHIP: i32 = 21;

/// Bytes of `struct ip_mreq`, `ip_mreq_source`, `ipv6_mreq` and `group_req`.
const MREQ: usize = 8;
const MREQ_SOURCE: usize = 12;
const MREQ6: usize = 20;
const GROUP_REQ: usize = 136;
/// Where the address of a group begins in a `group_req`.
const GROUP: usize = 8;

/// The error of an option about groups; none if it is another option.
pub(super) fn refuse(level: i32, name: i32, value: &[u8], is_stream: bool) -> Option<Errno> {
    match level {
        IPPROTO_IP => refuse4(name, value, is_stream),
        IPPROTO_IPV6 => refuse6(name, value, is_stream),
        _ => None,
    }
}

fn refuse4(name: i32, value: &[u8], is_stream: bool) -> Option<Errno> {
    let join = |group: Option<Ipv4Addr>| {
        if group.is_some_and(|group| group.is_multicast()) { Errno::NODEV } else { Errno::INVAL }
    };
    Some(match name {
        IP_ADD_MEMBERSHIP | IP_DROP_MEMBERSHIP if is_stream => Errno::PROTO,
        IP_ADD_MEMBERSHIP | IP_DROP_MEMBERSHIP if value.len() < MREQ => Errno::INVAL,
        IP_ADD_MEMBERSHIP => join(v4(value)),
        IP_DROP_MEMBERSHIP => Errno::ADDRNOTAVAIL,
        IP_ADD_SOURCE_MEMBERSHIP if value.len() == MREQ_SOURCE => join(v4(value)),
        // Of a group that was not joined.
        IP_ADD_SOURCE_MEMBERSHIP
        | IP_DROP_SOURCE_MEMBERSHIP
        | IP_BLOCK_SOURCE
        | IP_UNBLOCK_SOURCE => Errno::INVAL,
        MCAST_JOIN_GROUP | MCAST_LEAVE_GROUP
            if value.len() < GROUP_REQ || family(value) != AF_INET =>
        {
            Errno::INVAL
        }
        // A `sockaddr_in` has a family and a port before the address.
        MCAST_JOIN_GROUP => join(v4(&value[GROUP + 4..])),
        MCAST_LEAVE_GROUP => Errno::ADDRNOTAVAIL,
        _ => return None,
    })
}

fn refuse6(name: i32, value: &[u8], is_stream: bool) -> Option<Errno> {
    let is_group = |bytes: &[u8]| v6(bytes).is_some_and(|group| group.is_multicast());
    let absent = |joins| if joins { Errno::NODEV } else { Errno::ADDRNOTAVAIL };
    Some(match name {
        IPV6_ADD_MEMBERSHIP | IPV6_DROP_MEMBERSHIP => match () {
            () if value.len() < MREQ6 => Errno::INVAL,
            () if is_stream => Errno::PROTO,
            () if !is_group(value) => Errno::INVAL,
            () => absent(name == IPV6_ADD_MEMBERSHIP),
        },
        MCAST_JOIN_GROUP | MCAST_LEAVE_GROUP => match () {
            () if value.len() < GROUP_REQ => Errno::INVAL,
            () if family(value) != AF_INET6 => Errno::ADDRNOTAVAIL,
            // A `sockaddr_in6` has a family, a port and a flow before the address.
            () if !is_group(&value[GROUP + 8..]) => Errno::INVAL,
            () => absent(name == MCAST_JOIN_GROUP),
        },
        _ => return None,
    })
}

fn family(value: &[u8]) -> i32 {
    i32::from(u16::from_ne_bytes([value[GROUP], value[GROUP + 1]]))
}

fn v4(bytes: &[u8]) -> Option<Ipv4Addr> {
    bytes.first_chunk::<4>().map(|octets| Ipv4Addr::from(*octets))
}

fn v6(bytes: &[u8]) -> Option<Ipv6Addr> {
    bytes.first_chunk::<16>().map(|octets| Ipv6Addr::from(*octets))
}
