//! Where packets go next, each written once however many routes lead there.

use super::entry::MOST_HOPS;
use crate::forward::address::Sealed;
use crate::forward::pool::{Lack, Pool};
use crate::forward::words::Words;
use quietline_platform::atomic::{AtomicU32, Ordering};
use quietline_platform::{AllocError, fault};
use quietline_sync::rcu::Domain;
use std::collections::HashMap;

/// How a packet goes on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Via<A> {
    /// To a router.
    Gateway(A),
    /// To its destination: it is on the link.
    Link,
    /// Not at all: it has arrived.
    Local,
    /// To all on a link, which is not done for others.
    Broadcast,
    /// Not at all: nothing may go there.
    Unreachable,
}

/// Where a route leads.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct NextHop<A> {
    /// The number of the interface.
    pub interface: u32,
    /// How.
    pub via: Via<A>,
}

/// Words of a next hop: interface, kind, address, and what users remember of the gateway.
const WORDS: usize = 8;
const ADDRESS: usize = 2;
const REMEMBERED: usize = 6;

/// The kinds' numbers.
const GATEWAY: u32 = 0;
const LINK: u32 = 1;
const LOCAL: u32 = 2;
const BROADCAST: u32 = 3;
const UNREACHABLE: u32 = 4;

/// Where a packet goes on, as its forwarder sees it.
pub(in crate::forward) struct Onward<'h, A> {
    /// The number of the interface.
    pub(in crate::forward) interface: u32,
    /// The next station there.
    pub(in crate::forward) target: A,
    /// If that is the same for all packets by this hop: a word for what readers want to remember of it, 0 in the beginning.
    pub(in crate::forward) remembered: Option<&'h AtomicU32>,
}

/// What readers look at. Numbers begin at 1, as 0 is none.
pub(super) struct Hops(Words);

impl Hops {
    /// The next hop of this number; for the reader, in the read section in which it found the number.
    #[inline(always)]
    pub(super) fn get<A: Sealed>(&self, hop: u32) -> Option<NextHop<A>> {
        let words = self.0.array::<WORDS>(hop.checked_sub(1)? as usize * WORDS)?;
        // Relaxed: written before a route named it, which the reader has seen by an acquire.
        let word = |word: &AtomicU32| word.load(Ordering::Relaxed);
        let via = match word(&words[1]) {
            LINK => Via::Link,
            GATEWAY => Via::Gateway(A::from_words(|i| word(&words[ADDRESS + i]))),
            LOCAL => Via::Local,
            BROADCAST => Via::Broadcast,
            _ => Via::Unreachable,
        };
        Some(NextHop { interface: word(&words[0]), via })
    }

    /// As [`get`](Self::get), of a hop by which packets go on: the next station of those to `to`.
    #[inline(always)]
    pub(super) fn onward<A: Sealed>(&self, hop: u32, to: A) -> Option<Onward<'_, A>> {
        let words = self.0.array::<WORDS>(hop.checked_sub(1)? as usize * WORDS)?;
        // Relaxed: as in `get`.
        let word = |word: &AtomicU32| word.load(Ordering::Relaxed);
        let (target, remembered) = match word(&words[1]) {
            LINK => (to, None),
            GATEWAY => (A::from_words(|i| word(&words[ADDRESS + i])), Some(&words[REMEMBERED])),
            _ => return None,
        };
        Some(Onward { interface: word(&words[0]), target, remembered })
    }

    pub(super) fn bytes(&self) -> usize {
        self.0.bytes()
    }
}

/// The writers' half.
pub(super) struct HopPool<A> {
    pool: Pool,
    numbers: HashMap<NextHop<A>, u32>,
}

impl<A: Sealed> HopPool<A> {
    pub(super) fn new(domain: &'static Domain) -> Result<(Self, Hops), AllocError> {
        let (pool, words) = Pool::new(domain, WORDS, MOST_HOPS - 1)?;
        Ok((Self { pool, numbers: HashMap::new() }, Hops(words)))
    }

    /// The number of a next hop, for one route more.
    pub(super) fn get(&mut self, hops: &Hops, hop: NextHop<A>) -> Result<u32, Lack> {
        if let Some(&number) = self.numbers.get(&hop) {
            *self.pool.uses(number - 1) += 1;
            return Ok(number);
        }
        try_reserve(&mut self.numbers)?;
        let object = self.pool.alloc(&hops.0)?;
        *self.pool.uses(object) = 1;
        let (kind, address) = match hop.via {
            Via::Gateway(address) => (GATEWAY, address),
            Via::Link => (LINK, A::ZERO),
            Via::Local => (LOCAL, A::ZERO),
            Via::Broadcast => (BROADCAST, A::ZERO),
            Via::Unreachable => (UNREACHABLE, A::ZERO),
        };
        let words = hops.0.array::<WORDS>(object as usize * WORDS).expect("made with it");
        let values = [hop.interface, kind].into_iter().chain(address.to_words());
        for (word, value) in words.iter().zip(values) {
            // Relaxed: the entry that will name it publishes it.
            word.store(value, Ordering::Relaxed);
        }
        words[REMEMBERED].store(0, Ordering::Relaxed);
        self.numbers.insert(hop, object + 1);
        Ok(object + 1)
    }

    /// One route less leads there.
    pub(super) fn put(&mut self, hops: &Hops, number: u32) {
        if self.put_use(hops, number) {
            self.pool.retire(number - 1);
        }
    }

    /// Undoes a [`get`](Self::get) whose number no reader has seen since: if it was the first, nobody has to be waited for.
    pub(super) fn unget(&mut self, hops: &Hops, number: u32) {
        if self.put_use(hops, number) {
            self.pool.free_unseen(number - 1);
        }
    }

    /// Whether that was the last.
    fn put_use(&mut self, hops: &Hops, number: u32) -> bool {
        let uses = self.pool.uses(number - 1);
        *uses -= 1;
        let last = *uses == 0;
        if last {
            let hop = hops.get(number).expect("made with it");
            self.numbers.remove(&hop);
        }
        last
    }

    pub(super) fn used(&self) -> usize {
        self.pool.used()
    }
}

/// Makes room in a map for one more.
pub(super) fn try_reserve<K: Eq + std::hash::Hash, V>(
    map: &mut HashMap<K, V>,
) -> Result<(), AllocError> {
    if map.len() == map.capacity() {
        fault::check()?;
        map.try_reserve(1).map_err(|_| AllocError)?;
    }
    Ok(())
}
