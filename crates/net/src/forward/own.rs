//! The forwarder's own addresses of IPv4, from which nothing comes in: who has one as a source is not who he says (RFC 1812,
//! section 5.3.7; Linux drops such packets whatever its reverse path filter says).
//!
//! Each packet is looked at. A bitmap says of nearly all addresses that they are not ours, by one load from a line or two that all
//! packets look at; of the others, a sorted array has the answer.

use super::interface::Interface;
use core::net::Ipv4Addr;
use quietline_platform::{AllocError, heap};

pub(super) struct Own {
    /// Bit [`place`](Self::place) of each address is set.
    bitmap: Box<[u64]>,
    /// What is shifted out of a hash.
    shift: u32,
    addresses: Vec<Ipv4Addr>,
}

/// Bits for each address, and of the largest bitmap, as powers of two: of other addresses one in 1,024 is looked at twice.
const EACH: u32 = 10;
const MOST: u32 = 22;

impl Own {
    pub(super) fn new(interfaces: &[Interface]) -> Result<Self, AllocError> {
        let all =
            || interfaces.iter().flat_map(|interface| &interface.v4).map(|(address, _)| *address);
        let mut addresses = Vec::new();
        heap::try_reserve(&mut addresses, all().count())?;
        addresses.extend(all());
        addresses.sort_unstable();
        let bits = (addresses.len().max(1).next_power_of_two().ilog2() + EACH).min(MOST);
        let bitmap = heap::try_boxed_slice(1 << (bits - 6), |_| 0)?;
        let mut own = Self { bitmap, shift: u32::BITS - bits, addresses };
        for address in all() {
            let (word, bit) = own.place(address);
            own.bitmap[word] |= 1 << bit;
        }
        Ok(own)
    }

    /// A word's number, and a bit's in it (Fibonacci hashing).
    #[inline(always)]
    fn place(&self, address: Ipv4Addr) -> (usize, u32) {
        let hash = address.to_bits().wrapping_mul(0x9e37_79b1) >> self.shift;
        ((hash >> 6) as usize, hash & 63)
    }

    /// False if an address is not ours.
    #[inline(always)]
    pub(super) fn may_have(&self, address: Ipv4Addr) -> bool {
        let (word, bit) = self.place(address);
        self.bitmap.get(word).is_none_or(|word| word >> bit & 1 != 0)
    }

    /// Whether an address is ours.
    #[inline]
    pub(super) fn has(&self, address: Ipv4Addr) -> bool {
        self.may_have(address) && self.addresses.binary_search(&address).is_ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn own_and_others() {
        for n in [0u32, 1, 2, 3, 700, 70_000] {
            let address = |i: u32| Ipv4Addr::from_bits(0x0a00_0001 + i * 0x101);
            let interfaces: Vec<_> = (0..n)
                .step_by(2)
                .map(|i| Interface::new([2; 6], 1500).v4(address(i), 24).v4(address(i + 1), 32))
                .collect();
            let own = Own::new(&interfaces).unwrap();
            let n = n.next_multiple_of(2);
            assert!((0..n).all(|i| own.may_have(address(i)) && own.has(address(i))), "{n}");
            let others = || (0..200_000u32).map(|i| Ipv4Addr::from_bits(0xc0a8_0000 + i * 977));
            assert!(!others().any(|other| own.has(other)), "{n}");
            let twice = others().filter(|other| own.may_have(*other)).count();
            assert!(twice <= 200_000 / if n < 1000 { 256 } else { 16 }, "{twice} for {n}");
        }
    }
}
