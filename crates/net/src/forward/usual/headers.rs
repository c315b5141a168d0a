//! The headers of usual packets: whether they are, and what is written into them when they go on.
//!
//! Words are taken as they lie, the first byte lowest.

use crate::forward::header::Link;
use crate::forward::interface::LEAST_MTU6;
use crate::forward::ipv4::{is_link_local, is_no_station};
use crate::forward::ipv6::stays_here;
use crate::forward::own::Own;
use core::net::{Ipv4Addr, Ipv6Addr};

/// Bytes of an Ethernet's header.
const LINK: usize = 14;
/// What one of IPv4 without options has at byte 12, and one of IPv6: protocol and version; and which bits of it say so.
const KIND: usize = 12;
const IPV4: [u32; 2] = [0x45_0008, 0xff_ffff];
const IPV6: [u32; 2] = [0x60_dd86, 0xf0_ffff];

/// What usual packets need of an interface.
#[derive(Debug, Clone, Copy)]
pub(in crate::forward) struct Port {
    /// Its link address, and behind it IPv4 in the place of the protocol: what a packet that goes out has from byte 6 on.
    from: u64,
    /// Bytes of a frame that goes out, at most.
    most: u32,
}

impl Port {
    /// Through which nothing goes.
    pub(super) const NONE: Self = Self { from: 0, most: 0 };

    pub(in crate::forward) fn new([a, b, c, d, e, f]: Link, mtu: usize) -> Self {
        let most = LINK as u32 + mtu.min(u16::MAX.into()) as u32;
        Self { from: u64::from_le_bytes([a, b, c, d, e, f, 0x08, 0x00]), most }
    }

    /// Whether a frame of so many bytes is not too big for it.
    #[inline(always)]
    pub(super) fn lets_through(self, len: u32) -> bool {
        len <= self.most
    }

    /// Whether IPv6 comes and goes by it.
    #[inline(always)]
    pub(super) fn has_ipv6(self) -> bool {
        self.most >= LINK as u32 + LEAST_MTU6 as u32
    }

    /// Whether its address is one that a station may have: for another one, nothing is for this station alone.
    #[inline(always)]
    pub(super) fn is_station(self) -> bool {
        self.from & 1 == 0
    }
}

/// A usual packet that was looked at.
pub(super) enum Looked {
    V4(Ipv4Addr, u32),
    V6(Ipv6Addr, u32),
}

#[inline(always)]
fn bytes<const N: usize>(headers: &[u8], at: usize) -> [u8; N] {
    core::array::from_fn(|i| headers[at + i])
}

#[inline(always)]
fn put<const N: usize>(headers: &mut [u8], at: usize, value: [u8; N]) {
    headers[at..at + N].copy_from_slice(&value);
}

/// Where a usual packet goes that came in by a port, and how many bytes of it; none for another one.
#[inline(always)]
pub(super) fn look(data: &[u8], port: Port, own: &Own) -> Option<Looked> {
    let headers: &[u8; 34] = data.first_chunk()?;
    if u64::from_le_bytes(bytes(headers, 0)) << 16 != port.from << 16 {
        return None;
    }
    let kind = u32::from_le_bytes(bytes(headers, KIND));
    if kind & IPV4[1] == IPV4[0] {
        look4(headers, data.len(), own)
    } else if kind & IPV6[1] == IPV6[0] && port.has_ipv6() {
        look6(data.first_chunk()?, data.len())
    } else {
        None
    }
}

const TOTAL: usize = 16;
const TTL: usize = 22;
const CHECKSUM: usize = 24;
const SOURCE: usize = 26;
const DESTINATION: usize = 30;

/// First bytes of addresses that no station has, or that have to be looked at more closely.
const ODD: [bool; 256] = {
    let mut odd = [false; 256];
    let mut first = 224;
    while first < 256 {
        odd[first] = true;
        first += 1;
    }
    [odd[0], odd[127], odd[169]] = [true; 3];
    odd
};

#[inline(always)]
fn look4(headers: &[u8; 34], there: usize, own: &Own) -> Option<Looked> {
    let frame = LINK as u32 + u32::from(u16::from_be_bytes(bytes(headers, TOTAL)));
    if frame < 34 || frame as usize > there || headers[TTL] <= 1 || !is_right(headers) {
        return None;
    }
    let [source, to] =
        [SOURCE, DESTINATION].map(|at| Ipv4Addr::from_bits(u32::from_be_bytes(bytes(headers, at))));
    let odd = ODD[usize::from(headers[SOURCE])] | ODD[usize::from(headers[DESTINATION])];
    if own.may_have(source) || odd && are_odd([source, to]) {
        return None;
    }
    Some(Looked::V4(to, frame))
}

#[cold]
fn are_odd(addresses: [Ipv4Addr; 2]) -> bool {
    addresses.into_iter().any(|address| is_no_station(address) || is_link_local(address))
}

/// Whether the checksum of IPv4's header is right: as [`Sum`](crate::forward::checksum::Sum) has it, of words twice as long.
#[inline(always)]
fn is_right(headers: &[u8; 34]) -> bool {
    let [first, second] = [14, 22].map(|at| u64::from_le_bytes(bytes(headers, at)));
    let (sum, carry) = first.overflowing_add(second);
    let last = u64::from(u32::from_le_bytes(bytes(headers, 30))) + u64::from(carry);
    let (sum, carry) = sum.overflowing_add(last);
    // (What has just overflowed is small.)
    let sum = sum + u64::from(carry);
    let sum = (sum.wrapping_add(sum.rotate_left(32)) >> 32) as u32;
    sum.wrapping_add(sum.rotate_left(16)) >> 16 == 0xffff
}

const PAYLOAD: usize = 18;
const HOPS: usize = 21;
const SOURCE6: usize = 22;
const DESTINATION6: usize = 38;

#[inline(always)]
fn look6(headers: &[u8; 54], there: usize) -> Option<Looked> {
    let frame = 54 + u32::from(u16::from_be_bytes(bytes(headers, PAYLOAD)));
    let [source, to] = [SOURCE6, DESTINATION6]
        .map(|at| Ipv6Addr::from_bits(u128::from_be_bytes(bytes(headers, at))));
    // All that stays here begins with eight zeroes or ones; so do few others.
    let is_odd = |first: u8| first.wrapping_add(1) < 2 || first == 0xfe;
    let odd = is_odd(headers[SOURCE6]) | is_odd(headers[DESTINATION6]);
    let goes = frame as usize <= there && headers[HOPS] > 1 && !(odd && stay([source, to]));
    goes.then_some(Looked::V6(to, frame))
}

#[cold]
fn stay(addresses: [Ipv6Addr; 2]) -> bool {
    addresses.into_iter().any(|address| address.is_multicast() || stays_here(address))
}

/// What the families write into a packet that goes on.
pub(super) trait Goes {
    /// Makes a packet of which `headers` are the first bytes one that goes out to a station, a link address with the first byte lowest.
    /// False, and nothing is changed, if they are too few.
    fn write(headers: &mut [u8], to: u64, port: Port) -> bool;
}

#[inline(always)]
fn write_link(headers: &mut [u8], to: u64, from: u64) {
    // In this order: the first one is two bytes too long.
    put(headers, 0, to.to_le_bytes());
    put(headers, 6, from.to_le_bytes());
}

impl Goes for Ipv4Addr {
    #[inline(always)]
    fn write(headers: &mut [u8], to: u64, port: Port) -> bool {
        let Some(headers) = headers.first_chunk_mut::<34>() else { return false };
        write_link(headers, to, port.from);
        headers[TTL] -= 1;
        let checksum = u16::from_le_bytes(bytes(headers, CHECKSUM));
        put(headers, CHECKSUM, update_ttl(checksum).to_le_bytes());
        true
    }
}

impl Goes for Ipv6Addr {
    #[inline(always)]
    fn write(headers: &mut [u8], to: u64, port: Port) -> bool {
        let Some(headers) = headers.first_chunk_mut::<54>() else { return false };
        write_link(headers, to, port.from ^ (0x0008 ^ 0xdd86) << 48);
        headers[HOPS] -= 1;
        true
    }
}

/// The checksum after a time to live has become one less: as [`update`](crate::forward::checksum::update) has it, whatever it was.
/// Both words with the first byte lowest, which makes no difference to sums.
#[inline(always)]
fn update_ttl(checksum: u16) -> u16 {
    // !before + (before - 1), of the word that begins with it.
    let sum = u32::from(!checksum) + 0xfffe;
    !((sum >> 16) + sum) as u16
}

#[cfg(test)]
mod tests {
    use super::super::super::checksum::{Sum, update};
    use super::*;

    #[test]
    fn a_time_to_live_less() {
        for checksum in 0..=u16::MAX {
            for before in [0x0111, 0x4011, 0xff06, 0x02ff, 0x8000] {
                assert_eq!(
                    update_ttl(checksum.swap_bytes()).swap_bytes(),
                    update(checksum, before, before - 0x100),
                    "{checksum:#x} {before:#x}"
                );
            }
        }
    }

    /// Sums that carry, that are all ones, and that are zero.
    #[test]
    fn sums_of_headers() {
        let mut state = 1u64;
        for round in 0..20_000u32 {
            let mut headers: [u8; 34] = core::array::from_fn(|_| {
                state = state.wrapping_mul(6364136223846793005).wrapping_add(1);
                let random = (state >> 56) as u8;
                [random, random | 0xf0, 0xff, 0][round as usize % 4]
            });
            for right in [false, true] {
                if right {
                    put(&mut headers, CHECKSUM, [0; 2]);
                    let sum = Sum::default().with(&headers[14..]).checksum();
                    put(&mut headers, CHECKSUM, sum);
                }
                let expected = Sum::default().with(&headers[14..]).is_right();
                assert_eq!(is_right(&headers), expected, "{headers:x?}");
                assert!(expected || !right || headers[14..24] == [0; 10], "{headers:x?}");
            }
        }
    }

    /// What is looked at closely is all that there is.
    #[test]
    fn odd_addresses() {
        for first in 0..=255u8 {
            for second in [0, 1, 253, 254, 255] {
                let address = Ipv4Addr::new(first, second, 3, 4);
                assert!(ODD[usize::from(first)] || !are_odd([address; 2]), "{address}");
                for third in [0, 0x80, 0xfe, 0xff] {
                    let mut octets = [0; 16];
                    (octets[0], octets[1], octets[15]) = (first, second & third, 7);
                    let address = Ipv6Addr::from(octets);
                    let is_odd = first.wrapping_add(1) < 2 || first == 0xfe;
                    assert!(is_odd || !stay([address; 2]), "{address}");
                }
            }
        }
    }
}
