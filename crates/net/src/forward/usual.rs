//! Usual packets, a batch at a time: IPv4 without options, in one piece, that goes on to a neighbour who is known.
//!
//! # The problem
//!
//! Nearly all packets are like that. What each of them needs is a few loads and comparisons; what makes it dear is to ask for each
//! of them all that might be otherwise, and to wait for its memory.
//!
//! # Our way
//!
//! ```text
//!   batch ── look at headers ──> destinations ── routes ──> hops ── neighbours ──> ways ── write headers ──> runs for one interface
//!              │ one that is not usual ends the run                   │ none                 │ too big          │
//!              v                                                      v                      v                  v
//!            one by one, after those before it                       one by one, in its place                 out, or its queue
//! ```
//!
//! Each step is made for all packets before the next one: a packet's own steps wait for each other's loads, those of different
//! packets do not. Nothing is changed before the last step. A packet that is found to be of another kind is left as it came, and
//! takes the way of [`Pass::receive`], which finds out anew what there is to it, after all packets before it and before all behind
//! it: so packets keep their order, and what becomes of each does not depend on which way it took.
//!
//! A run of [`DIRECT`] packets or more for one interface, before which none waits in its queue, is given to the caller where it
//! lies; shorter ones are queued.

use super::checksum::Sum;
use super::forwarder::{BATCH, Forwarder, Pass};
use super::header::{Link, ether};
use super::ipv4::{is_link_local, is_no_station};
use super::neighbour::seconds;
use super::own::Own;
use super::statistics::Count;
use crate::packet::Skb;
use core::net::Ipv4Addr;
use quietline_platform::hint;

/// Packets for one interface, in a row, that are not worth to be queued.
const DIRECT: usize = 32;
const _: () = assert!(DIRECT <= BATCH);
/// How many packets ahead memory is fetched.
const AHEAD: usize = 4;

/// The headers: an Ethernet's, and IPv4's without options. Words of them are taken as they lie, first byte lowest.
type Headers = [u8; 34];

const PROTOCOL: usize = 12;
const VERSION: usize = 14;
const TOTAL: usize = 16;
const TTL: usize = 22;
const CHECKSUM: usize = 24;
const SOURCE: usize = 26;
const DESTINATION: usize = 30;

/// What usual packets need of an interface.
#[derive(Debug, Clone, Copy)]
pub(super) struct Port {
    /// Its link address, and behind it IPv4 in the place of the protocol: what a packet that goes out has from byte 6 on.
    from: u64,
    /// Bytes behind the Ethernet header.
    mtu: u16,
}

impl Port {
    pub(super) fn new(link: Link, mtu: usize) -> Self {
        Self { from: word_of(link) | 0x0008 << 48, mtu: mtu.min(u16::MAX.into()) as u16 }
    }
}

/// A link's address as a word, the first byte lowest.
#[inline(always)]
fn word_of([a, b, c, d, e, f]: Link) -> u64 {
    u64::from_le_bytes([a, b, c, d, e, f, 0, 0])
}

#[inline(always)]
fn bytes<const N: usize>(headers: &Headers, at: usize) -> [u8; N] {
    core::array::from_fn(|i| headers[at + i])
}

#[inline(always)]
fn put<const N: usize>(headers: &mut Headers, at: usize, value: [u8; N]) {
    headers[at..at + N].copy_from_slice(&value);
}

/// Bytes of the packet of IPv4.
#[inline(always)]
fn total(headers: &Headers) -> u16 {
    u16::from_be_bytes(bytes(headers, TOTAL))
}

/// Where a usual packet goes that came in by a port; none for another one. Changes nothing.
#[inline(always)]
fn destination(skb: &Skb<'_>, port: Port, own: &Own) -> Option<Ipv4Addr> {
    let data = skb.data();
    let headers: &Headers = data.first_chunk()?;
    let for_us = u32::from_le_bytes(bytes(headers, 0)) == port.from as u32
        && u16::from_le_bytes(bytes(headers, 4)) == (port.from >> 32) as u16;
    let is_ipv4 = u16::from_be_bytes(bytes(headers, PROTOCOL)) == ether::IPV4 && headers[VERSION] == 0x45;
    let total = usize::from(total(headers));
    let [source, to] =
        [SOURCE, DESTINATION].map(|at| Ipv4Addr::from_bits(u32::from_be_bytes(bytes(headers, at))));
    let stations = !is_no_station(source) && !is_no_station(to);
    let usual = for_us
        && is_ipv4
        && total >= 20
        && 14 + total <= data.len()
        && headers[TTL] > 1
        && stations
        && !own.may_have(source)
        && !is_link_local(source)
        && !is_link_local(to)
        && Sum::default().with(&headers[14..]).is_right();
    usual.then_some(to)
}

/// What each step leaves for the next one, of a batch.
pub(super) struct Steps {
    destinations: [Ipv4Addr; BATCH],
    /// Numbers of next hops.
    hops: [u32; BATCH],
    ways: [Way; BATCH],
}

impl Steps {
    pub(super) fn new() -> Self {
        Self { destinations: [Ipv4Addr::UNSPECIFIED; BATCH], hops: [0; BATCH], ways: [Way::OTHER; BATCH] }
    }
}

/// How a packet goes on: the next station's link address, and behind it the number of the interface.
#[derive(Debug, Clone, Copy)]
struct Way(u64);

impl Way {
    /// Not at all, or not without more ado. (There is no interface of this number.)
    const OTHER: Self = Self(u64::MAX);

    #[inline(always)]
    fn find(of: &Forwarder<'_>, hop: u32, to: Ipv4Addr, second: u32) -> Self {
        let Some((interface, target)) = of.routes4.onward(hop, to) else { return Self::OTHER };
        match of.neighbours4.way(interface, target, second) {
            Some(link) => Self(link | u64::from(interface) << 48),
            None => Self::OTHER,
        }
    }

    #[inline(always)]
    fn interface(self) -> u32 {
        (self.0 >> 48) as u32
    }
}

/// Makes a packet that was [looked at](destination) one that goes out this way; false, and nothing is changed, if there is more to
/// it.
#[inline(always)]
fn write(skb: &mut Skb<'_>, way: Way, ports: &[Port]) -> bool {
    let Some(port) = ports.get(way.interface() as usize) else { return false };
    let Some(headers) = skb.data().first_chunk::<34>() else { return false };
    let total = total(headers);
    if total > port.mtu {
        return false;
    }
    // An Ethernet's least size may have added some.
    let Some(headers) = skb.sole(14 + usize::from(total)).and_then(|data| data.first_chunk_mut::<34>())
    else {
        return false;
    };
    // In this order: the first one is two bytes too long.
    put(headers, 0, way.0.to_le_bytes());
    put(headers, 6, port.from.to_le_bytes());
    headers[TTL] -= 1;
    let checksum = u16::from_be_bytes(bytes(headers, CHECKSUM));
    put(headers, CHECKSUM, update_ttl(checksum).to_be_bytes());
    true
}

impl<'n> Pass<'_, 'n> {
    /// Takes a batch of up to [`BATCH`] packets; none are left.
    pub(super) fn batch(&mut self, batch: &mut [Option<Skb<'n>>]) {
        let mut at = 0;
        while at < batch.len() {
            let end = at + self.look_at(&batch[at..]);
            self.usual(&mut batch[at..end]);
            // What ended the run.
            if let Some(skb) = batch.get_mut(end).and_then(Option::take) {
                self.receive(skb);
            }
            at = end + 1;
        }
    }

    /// How many packets from the first on are usual; where they go is written down.
    #[inline(always)]
    fn look_at(&mut self, batch: &[Option<Skb<'n>>]) -> usize {
        let port = self.of.ports[self.input as usize];
        // Of an interface that is called like a group nothing is for this station alone.
        if port.from & 1 != 0 {
            return 0;
        }
        let mut n = 0;
        for (skb, place) in batch.iter().zip(&mut self.lane.steps.destinations) {
            if let Some(Some(later)) = batch.get(n + AHEAD) {
                hint::prefetch(later.data().as_ptr());
            }
            let Some(to) = skb.as_ref().and_then(|skb| destination(skb, port, &self.of.own4)) else { break };
            self.of.routes4.prefetch(to);
            *place = to;
            n += 1;
        }
        n
    }

    /// Takes packets that have been [looked at](Self::look_at).
    #[inline(always)]
    fn usual(&mut self, batch: &mut [Option<Skb<'n>>]) {
        let Steps { destinations, hops, ways } = &mut self.lane.steps;
        let (of, second) = (self.of, seconds(self.now));
        for ((to, hop), _) in destinations.iter().zip(&mut *hops).zip(&*batch) {
            *hop = of.routes4.hop(self.guard, *to);
        }
        for (((to, hop), way), _) in destinations.iter().zip(hops).zip(ways).zip(&*batch) {
            *way = Way::find(of, *hop, *to, second);
        }
        let (mut start, mut interface, mut others) = (0, 0, 0);
        for at in 0..batch.len() {
            let way = self.lane.steps.ways[at];
            let goes = batch[at].as_mut().is_some_and(|skb| write(skb, way, &of.ports));
            if !goes || way.interface() != interface {
                self.give(interface, &mut batch[start..at]);
                start = at;
                interface = way.interface();
                if !goes {
                    start += 1;
                    others += 1;
                    if let Some(skb) = batch[at].take() {
                        self.receive(skb);
                    }
                }
            }
        }
        self.give(interface, &mut batch[start..]);
        let forwarded = batch.len() as u64 - others;
        self.lane.counts.add_n(Count::Received, forwarded);
        self.lane.counts.add_n(Count::Forwarded4, forwarded);
    }

    /// Gives a run of packets to an interface.
    #[inline(always)]
    fn give(&mut self, interface: u32, run: &mut [Option<Skb<'n>>]) {
        if run.len() >= DIRECT && self.is_nothing_queued(interface) {
            return self.transmit(interface, run);
        }
        run.iter_mut().filter_map(Option::take).for_each(|skb| self.queue(interface, skb));
    }
}

/// The checksum after a time to live has become one less: as [`update`](super::checksum::update) has it, whatever it was.
#[inline(always)]
fn update_ttl(checksum: u16) -> u16 {
    // !before + (before - 0x100), of the word that begins with it.
    let sum = u32::from(!checksum) + 0xfeff;
    !((sum >> 16) + sum) as u16
}

#[cfg(test)]
mod tests {
    use super::super::checksum::update;
    use super::*;

    #[test]
    fn a_time_to_live_less() {
        for checksum in 0..=u16::MAX {
            for before in [0x0111, 0x4011, 0xff06, 0x02ff, 0x8000] {
                assert_eq!(
                    update_ttl(checksum),
                    update(checksum, before, before - 0x100),
                    "{checksum:#x} {before:#x}"
                );
            }
        }
    }
}
