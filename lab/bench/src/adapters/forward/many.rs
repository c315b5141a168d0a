//! Many destinations: the routes, the order in which packets go to them, and whether they went there.
//!
//! ```text
//!   seed ──> 131,072 prefixes, of lengths as large tables have them, each with one of 64 gateways ──> router
//!              └─> 65,536 addresses, each inside one of them ──> reference: prefixes of each length in a hash table ──> gateway's link
//! ```
//!
//! A packet's destination is written over the generator's, and its checksums follow (RFC 1624). Of each packet that comes out the link address
//! it goes to is added up; at the end that must be the sum of what the reference says. Gateways' link addresses are of the seed too, so
//! that no two wrongs are likely to add up to a right.

use std::collections::HashMap;
use std::net::Ipv4Addr;
use std::sync::{Mutex, PoisonError};

use quietline_net::device::Batch;
use quietline_net::forward::{Forwarder, NextHop, Prefix, Via};
use quietline_net::packet::{PacketError, Packets};

use super::router;
use crate::harness::Fault;

/// Prefixes that are entered; some are the same.
const ROUTES: usize = 1 << 17;
const DESTINATIONS: usize = 1 << 16;
const GATEWAYS: u64 = 64;
const SEED: u64 = 0x5EED_2015;

/// Where a packet's destination and the checksums of IPv4 and UDP are, and what is written for one that comes out as zero: that of UDP would
/// say that there is none.
const DESTINATION: usize = 30;
const CHECKSUMS: [(usize, u16); 2] = [(24, 0), (40, u16::MAX)];

/// A packet's destination, as it lies in it, and the link address that it is to go to.
#[derive(Clone, Copy)]
struct Aim {
    to: u32,
    link: u64,
}

/// A router, and where packets go by it.
pub(super) struct Many {
    router: Forwarder<'static>,
    aims: Box<[Aim; DESTINATIONS]>,
    /// Of all link addresses together.
    sum: u64,
}

/// xorshift64.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    fn below(&mut self, n: u64) -> u64 {
        (self.next() >> 16) % n
    }

    /// Three of five prefixes have 24 bits; few are longer, and few shorter than 16.
    fn len(&mut self) -> u32 {
        match self.below(100) {
            0..=59 => 24,
            60..=94 => 16 + self.below(8) as u32,
            95..=98 => 25 + self.below(8) as u32,
            _ => 8 + self.below(8) as u32,
        }
    }
}

/// Whether packets go to an address by a route: not to those that none has or that stay on a link, nor to the links' own.
fn is_far(address: u32) -> bool {
    let first = address >> 24;
    (1..224).contains(&first) && ![127, 169, 198].contains(&first)
}

/// The longest of these that an address begins with, as the reference finds it.
fn longest(routes: &HashMap<(u32, u32), usize>, address: u32) -> Option<usize> {
    (8..=32).rev().find_map(|len| routes.get(&(len, first(address, len))).copied())
}

/// The first bits of an address.
fn first(address: u32, len: u32) -> u32 {
    address & u32::MAX << (32 - len)
}

impl Many {
    /// The one that there is.
    pub(super) fn get() -> Result<&'static Self, Fault> {
        static MADE: Mutex<Option<&'static Many>> = Mutex::new(None);
        let mut made = MADE.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(many) = *made {
            return Ok(many);
        }
        let many: &'static Self = Box::leak(Box::new(Self::new()?));
        *made = Some(many);
        Ok(many)
    }

    fn new() -> Result<Self, Fault> {
        let says = |e| Fault::new(format!("cannot make a table of routes: {e}"));
        let packets = Packets::new().map_err(|e| Fault::new(format!("cannot make caches: {e}")))?;
        let router = router::router(Box::leak(Box::new(packets)))?;
        let mut random = Random(SEED);
        let gateway = |number: usize| Ipv4Addr::new(198, 19, 1, number as u8);
        let mut links = Vec::new();
        for number in 0..GATEWAYS as usize {
            let [a, b, c, d, ..] = random.next().to_le_bytes();
            let link = [2, number as u8, a, b, c, d];
            router.set_neighbour4(1, gateway(number), link).map_err(says)?;
            links.push(link);
        }
        let (mut prefixes, mut reference) = (Vec::new(), HashMap::new());
        while prefixes.len() < ROUTES {
            let (len, address) = (random.len(), random.next() as u32);
            let (address, number) = (first(address, len), random.below(GATEWAYS) as usize);
            if !is_far(address) {
                continue;
            }
            let prefix = Prefix::new(Ipv4Addr::from_bits(address), len).map_err(says)?;
            let hop = NextHop { interface: 1, via: Via::Gateway(gateway(number)) };
            router.routes4().insert(prefix, hop).map_err(says)?;
            reference.insert((len, address), number);
            prefixes.push((len, address));
        }
        let mut aims = Vec::new();
        while aims.len() < DESTINATIONS {
            let (len, address) = prefixes[random.below(ROUTES as u64) as usize];
            let address = address | (random.next() as u32).checked_shr(len).unwrap_or(0);
            let number = longest(&reference, address).filter(|_| is_far(address));
            if let Some(number) = number {
                let [a, b, c, d, e, f] = links[number];
                let link = u64::from_le_bytes([a, b, c, d, e, f, 0, 0]);
                aims.push(Aim { to: address.to_be(), link });
            }
        }
        let sum = aims.iter().fold(0u64, |sum, aim| sum.wrapping_add(aim.link));
        let aims = aims.into_boxed_slice().try_into();
        Ok(Self { router, aims: aims.unwrap_or_else(|_| unreachable!("as many as they are")), sum })
    }

    #[inline(always)]
    pub(super) fn router(&self) -> &Forwarder<'static> {
        &self.router
    }
}

/// One thread's packets: how many have an aim, and where they went.
pub(super) struct Aimed {
    many: &'static Many,
    aimed: usize,
    came: u64,
}

impl Aimed {
    pub(super) fn new(many: &'static Many) -> Self {
        Self { many, aimed: 0, came: 0 }
    }

    /// Gives packets of the generator their destinations.
    #[inline(always)]
    pub(super) fn aim(&mut self, batch: &mut Batch<'static>) -> Result<(), PacketError> {
        for skb in batch.iter_mut() {
            let Aim { to, .. } = self.many.aims[self.aimed % DESTINATIONS];
            self.aimed += 1;
            if let Some(headers) = skb.data_mut()?.first_chunk_mut() {
                aim(headers, to);
            }
        }
        Ok(())
    }

    /// Looks at packets that the router has sent on.
    #[inline(always)]
    pub(super) fn came(&mut self, batch: &Batch<'static>) {
        for skb in batch.iter() {
            let word = skb.data().first_chunk().map_or(0, |word| u64::from_le_bytes(*word));
            self.came = self.came.wrapping_add(word << 16 >> 16);
        }
    }

    /// Each packet went where it should.
    pub(super) fn check(&self) -> Result<(), Fault> {
        let (rounds, rest) = (self.aimed / DESTINATIONS, self.aimed % DESTINATIONS);
        let rest = self.many.aims[..rest].iter().fold(0u64, |sum, aim| sum.wrapping_add(aim.link));
        let expected = self.many.sum.wrapping_mul(rounds as u64).wrapping_add(rest);
        Fault::unless(self.came == expected, || {
            format!(
                "{} packets went to {:#x}, added up, and not to {expected:#x}",
                self.aimed, self.came
            )
        })
    }
}

/// Writes a destination over another one. Words as they lie: sums do not mind.
#[inline(always)]
fn aim(headers: &mut [u8; 42], to: u32) {
    let before = headers[DESTINATION..].first_chunk().map_or(0, |word| u32::from_ne_bytes(*word));
    let differs = u64::from(!before) + u64::from(to);
    for (at, zero) in CHECKSUMS {
        let checksum = u16::from_ne_bytes([headers[at], headers[at + 1]]);
        let sum = differs + u64::from(!checksum);
        let sum = (sum & 0xffff_ffff) + (sum >> 32);
        let sum = (sum & 0xffff) + (sum >> 16);
        let sum = (sum & 0xffff) + (sum >> 16);
        let sum = (sum & 0xffff) + (sum >> 16);
        let checksum = if sum == 0xffff { zero } else { !(sum as u16) };
        headers[at..at + 2].copy_from_slice(&checksum.to_ne_bytes());
    }
    headers[DESTINATION..DESTINATION + 4].copy_from_slice(&to.to_ne_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;
    use quietline_net::device::{Generator, NetDevice, Sink, Traffic};

    /// A packet that was aimed is one that the sink, which adds up all of it, finds right, as often as it is aimed anew.
    #[test]
    fn aimed_packets_are_right() {
        let packets = Box::leak(Box::new(Packets::new().expect("caches")));
        let mut generator = Generator::new(packets, &Traffic::default()).expect("a generator");
        let mut sink = Sink::new(1024, 1).expect("a sink");
        sink.check_sums(true);
        let mut random = Random(1);
        for _ in 0..2000 {
            let mut batch = Batch::new();
            generator.poll(8, &mut batch).expect("packets");
            for skb in batch.iter_mut() {
                let headers =
                    skb.data_mut().expect("its own").first_chunk_mut().expect("they are there");
                aim(headers, random.next() as u32);
                aim(headers, [0, u32::MAX, random.next() as u32][random.below(3) as usize]);
            }
            assert_eq!(sink.xmit(&mut batch), 8);
            sink.complete(64);
        }
        assert!(sink.tally().is_exactly(16_000), "{:?}", sink.tally());
    }

    /// One packet that goes elsewhere is found out.
    #[test]
    fn a_wrong_way_is_found_out() {
        let many = Many::get().expect("a table");
        let mut aimed = Aimed::new(many);
        assert!(aimed.check().is_ok());
        aimed.aimed = 3 * DESTINATIONS + 1;
        aimed.came = many.sum.wrapping_mul(3).wrapping_add(many.aims[0].link);
        assert!(aimed.check().is_ok());
        let other =
            many.aims.iter().find(|aim| aim.link != many.aims[0].link).expect("there are 64");
        aimed.came = aimed.came.wrapping_sub(many.aims[0].link).wrapping_add(other.link);
        assert!(aimed.check().is_err());
    }
}
