//! Usual packets, a batch at a time: in one piece, IPv4 without options or IPv6, that go on to a neighbour who is known.
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
//! packets do not. Packets to where the one before them (of their family) went are not asked for anew: what comes in together is often
//! of one flow. Nothing is changed before the last step. A packet that is found to be of another kind is left as it came, and
//! takes the way of [`Pass::receive`], which finds out anew what there is to it, after all packets before it and before all behind
//! it: so packets keep their order, and what becomes of each does not depend on which way it took.
//!
//! A run of [`DIRECT`] packets or more for one interface, before which none waits in its queue, is given to the caller where it
//! lies; shorter ones are queued.

mod headers;

pub(super) use headers::Port;

use super::forwarder::{BATCH, Forwarder, Pass};
use super::neighbour::seconds;
use super::next::Family;
use super::statistics::Count;
use crate::packet::Skb;
use core::net::{Ipv4Addr, Ipv6Addr};
use headers::{Goes, Looked, look};
use quietline_platform::hint;
use quietline_sync::rcu::Guard;

/// Packets for one interface, in a row, that are not worth to be queued.
const DIRECT: usize = 32;
const _: () = assert!(DIRECT <= BATCH);
/// How many packets ahead memory is fetched.
const AHEAD: usize = 4;

/// What each step leaves for the next one, of a batch.
pub(super) struct Steps {
    seen: [Seen; BATCH],
    v4: Towards<Ipv4Addr>,
    v6: Towards<Ipv6Addr>,
    /// To destinations of IPv4, and behind them to those of IPv6.
    ways: [Way; 2 * BATCH],
}

/// What is known of a packet that was looked at: below, the number of its way; above, how many bytes it has.
#[derive(Clone, Copy)]
struct Seen(u32);

const _: () = assert!(2 * BATCH <= 256);

impl Seen {
    #[inline(always)]
    fn new(way: usize, len: u32) -> Self {
        Self(len << 8 | way as u32)
    }

    #[inline(always)]
    fn way(self) -> usize {
        self.0 as usize % (2 * BATCH)
    }

    #[inline(always)]
    fn len(self) -> u32 {
        self.0 >> 8
    }
}

/// Destinations of one family, those in a row that are the same once, and the numbers of their next hops.
struct Towards<A> {
    destinations: [A; BATCH],
    hops: [u32; BATCH],
    n: usize,
}

impl<A: Family> Towards<A> {
    const NONE: Self = Self { destinations: [A::ZERO; BATCH], hops: [0; BATCH], n: 0 };

    /// The number of a destination.
    #[inline(always)]
    fn number(&mut self, of: &Forwarder<'_>, to: A) -> usize {
        if self.n == 0 || self.destinations[(self.n - 1) % BATCH] != to {
            A::routes(of).prefetch(to);
            self.destinations[self.n % BATCH] = to;
            self.n += 1;
        }
        self.n - 1
    }

    /// Finds the ways there, and forgets them.
    #[inline(always)]
    fn find(&mut self, of: &Forwarder<'_>, guard: &Guard<'_>, second: u32, ways: &mut [Way]) {
        let n = core::mem::take(&mut self.n).min(BATCH);
        let (destinations, hops) = (&self.destinations[..n], &mut self.hops[..n]);
        for (to, hop) in destinations.iter().zip(&mut *hops) {
            *hop = A::routes(of).hop(guard, *to);
        }
        for ((to, hop), way) in destinations.iter().zip(hops).zip(ways) {
            *way = Way::find(of, *hop, *to, second);
        }
    }
}

impl Steps {
    pub(super) fn new() -> Self {
        Self {
            seen: [Seen(0); BATCH],
            v4: Towards::NONE,
            v6: Towards::NONE,
            ways: [Way::OTHER; 2 * BATCH],
        }
    }
}

/// How a packet goes on: the next station's link address, and behind it the number of the interface.
#[derive(Debug, Clone, Copy)]
struct Way(u64);

impl Way {
    /// Not at all, or not without more ado. (There is no interface of this number.)
    const OTHER: Self = Self(u64::MAX);

    #[inline(always)]
    fn find<A: Family>(of: &Forwarder<'_>, hop: u32, to: A, second: u32) -> Self {
        let Some(next) = A::routes(of).onward(hop, to) else { return Self::OTHER };
        let neighbours = A::neighbours(of);
        let link = match next.remembered {
            Some(remembered) => {
                neighbours.way_again(remembered, next.interface, next.target, second)
            }
            None => neighbours.way(next.interface, next.target, second),
        };
        link.map_or(Self::OTHER, |link| Self(link | u64::from(next.interface) << 48))
    }

    #[inline(always)]
    fn interface(self) -> u32 {
        (self.0 >> 48) as u32
    }
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
        let (of, port) = (self.of, self.of.ports[self.input as usize]);
        if !port.is_station() {
            return 0;
        }
        let Steps { seen, v4, v6, .. } = &mut self.lane.steps;
        let mut n = 0;
        for (skb, place) in batch.iter().zip(seen) {
            if let Some(Some(later)) = batch.get(n + AHEAD) {
                hint::prefetch(later.data().as_ptr());
            }
            *place = match skb.as_ref().and_then(|skb| look(skb.data(), port, &of.own4)) {
                Some(Looked::V4(to, len)) => Seen::new(v4.number(of, to), len),
                Some(Looked::V6(to, len)) => Seen::new(BATCH + v6.number(of, to), len),
                None => break,
            };
            n += 1;
        }
        n
    }

    /// Takes packets that have been [looked at](Self::look_at).
    #[inline(always)]
    fn usual(&mut self, batch: &mut [Option<Skb<'n>>]) {
        let (of, second) = (self.of, seconds(self.now));
        let Steps { v4, v6, ways, .. } = &mut self.lane.steps;
        let (ways4, ways6) = ways.split_at_mut(BATCH);
        v4.find(of, self.guard, second, ways4);
        v6.find(of, self.guard, second, ways6);
        let (mut start, mut interface, mut port) = (0, 0, of.ports[0]);
        let (mut received, mut of_ipv6) = (0, 0);
        for at in 0..batch.len() {
            let seen = self.lane.steps.seen[at % BATCH];
            let way = self.lane.steps.ways[seen.way()];
            if way.interface() != interface {
                self.give(interface, &mut batch[start..at]);
                start = at;
                interface = way.interface();
                port = of.ports.get(interface as usize).copied().unwrap_or(Port::NONE);
            }
            let is_ipv6 = seen.way() >= BATCH;
            if write(&mut batch[at], is_ipv6, seen.len(), way, port) {
                received += 1;
                of_ipv6 += u64::from(is_ipv6);
            } else {
                self.give(interface, &mut batch[start..at]);
                start = at + 1;
                if let Some(skb) = batch[at].take() {
                    self.receive(skb);
                }
            }
        }
        self.give(interface, &mut batch[start..]);
        self.lane.counts.add_n(Count::Received, received);
        self.lane.counts.add_n(Count::Forwarded4, received - of_ipv6);
        self.lane.counts.add_n(Count::Forwarded6, of_ipv6);
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

/// Makes a packet that was looked at one that goes out this way; false, and nothing is changed, if there is more to it.
#[inline(always)]
fn write(place: &mut Option<Skb<'_>>, is_ipv6: bool, len: u32, way: Way, port: Port) -> bool {
    if !port.lets_through(len) || is_ipv6 && !port.has_ipv6() {
        return false;
    }
    // An Ethernet's least size may have added some.
    let Some(headers) = place.as_mut().and_then(|skb| skb.sole(len as usize)) else { return false };
    if is_ipv6 {
        Ipv6Addr::write(headers, way.0, port)
    } else {
        Ipv4Addr::write(headers, way.0, port)
    }
}
