//! Neighbours whose link addresses are known: a hash table that readers walk without a lock.
//!
//! An entry is eight words, which do not change while readers may see them but for two: the next entry's number, and until
//! when the neighbour counts as reachable. A neighbour that moves to another link address gets another entry.
//!
//! Readers may remember an entry's number and look there first, in any section: what lies there is whole, and says whose it
//! is and until when. One that is taken out is reachable until 0, which is before all times, until it is used again; that is written last then, and
//! after a grace period, so that nobody takes the words of one neighbour for those of another.

use super::super::address::Sealed;
use super::super::header::Link;
use super::super::pool::Pool;
use super::super::words::Words;
use super::eviction::{Eviction, Origin};
use core::marker::PhantomData;
use quietline_platform::atomic::{AtomicU32, Ordering};
use quietline_platform::{AllocError, heap, random};
use quietline_sync::rcu::Domain;

/// Words of an entry: next, interface and end of the link address, its beginning, until when, and the address.
const WORDS: usize = 8;
const NEXT: usize = 0;
const INTERFACE: usize = 1;
const LINK: usize = 2;
const UNTIL: usize = 3;
const ADDRESS: usize = 4;

/// A neighbour, as readers find it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in super::super) struct Known {
    pub(in super::super) link: Link,
    /// The second until which it counts as reachable.
    pub(in super::super) until: u32,
}

pub(super) struct Table<A> {
    /// The number of each bucket's first entry, plus one; 0 for none.
    buckets: Box<[AtomicU32]>,
    keys: HashKeys,
    words: Words,
    of: PhantomData<A>,
}

/// Random factors of the words of an address and of the interface.
///
/// The sum of the products is a universal hash: a sender that does not know the factors cannot
/// choose addresses that share a bucket.
#[derive(Clone, Copy)]
pub(in super::super) struct HashKeys([u64; 5]);

impl HashKeys {
    /// Factors that differ each time; under loom, whose models must repeat, always the same.
    ///
    /// # Errors
    /// The error of `getrandom`.
    pub(in super::super) fn draw() -> std::io::Result<Self> {
        Ok(Self(if cfg!(loom) { [0x9E37_79B9_7F4A_7C15; 5] } else { random::keys()? }))
    }

    #[inline(always)]
    fn hash<A: Sealed>(&self, interface: u32, address: A) -> usize {
        let [a, b, c, d] = address.to_words();
        let products = [a, b, c, d, interface].into_iter().zip(self.0);
        let sum = products
            .fold(0u64, |sum, (word, key)| sum.wrapping_add(u64::from(word).wrapping_mul(key)));
        // The upper half is the hash. A second round takes the pattern out of addresses in a row.
        ((sum ^ sum >> 32).wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 32) as usize
    }
}

/// The writers' half of the table, under their lock.
pub(super) struct Writer {
    pool: Pool,
    eviction: Eviction,
}

impl Writer {
    /// Entries that are in the table.
    pub(super) fn len(&self) -> usize {
        self.pool.used()
    }

    /// How often a neighbour was asked since its last answer.
    pub(super) fn tries(&mut self, entry: u32) -> &mut u32 {
        self.pool.uses(entry)
    }

    /// Notes that a station was heard of, or asked.
    pub(super) fn renew(&mut self, entry: u32, origin: Origin, now: u32) {
        self.eviction.renew(entry, origin, now);
    }
}

/// Entries beyond those that all links together may have: taken out, and waiting for readers.
/// Strangers use the first half only, so that a flood of them leaves entries for answers.
const SPARE: u32 = if cfg!(loom) { 0 } else { 1024 };
/// Buckets at most.
const MOST_BUCKETS: usize = 1 << 20;

/// An entry's number and the word that leads to it.
struct Found<'a> {
    entry: u32,
    words: &'a [AtomicU32; WORDS],
    from: &'a AtomicU32,
}

impl<A: Sealed> Table<A> {
    /// A table for up to `most` neighbours of each interface, and its writers' half.
    ///
    /// # Errors
    /// [`AllocError`].
    pub(super) fn new(
        domain: &'static Domain,
        keys: HashKeys,
        interfaces: usize,
        most: u32,
    ) -> Result<(Self, Writer), AllocError> {
        let all = most.saturating_mul(interfaces.max(1) as u32).min(u32::MAX / 2);
        let (pool, words) = Pool::new(domain, WORDS, all + SPARE)?;
        let buckets = (all as usize).next_power_of_two().min(MOST_BUCKETS);
        let buckets = heap::try_boxed_slice(buckets, |_| AtomicU32::new(0))?;
        let eviction = Eviction::new(interfaces, most)?;
        Ok((Self { buckets, keys, words, of: PhantomData }, Writer { pool, eviction }))
    }

    #[inline(always)]
    fn bucket(&self, interface: u32, address: A) -> &AtomicU32 {
        &self.buckets[self.keys.hash(interface, address) & (self.buckets.len() - 1)]
    }

    #[inline(always)]
    fn find(&self, interface: u32, address: A) -> Option<Found<'_>> {
        let mut from = self.bucket(interface, address);
        loop {
            // ORDERING: Acquire pairs with the release in `set`: the entry was written before.
            let entry = from.load(Ordering::Acquire).checked_sub(1)?;
            let words = self.words.array::<WORDS>(entry as usize * WORDS)?;
            // Relaxed, so below: written before the entry was published, and not after.
            let its = words[INTERFACE].load(Ordering::Relaxed) >> 16;
            let address_is = A::from_words(|i| words[ADDRESS + i].load(Ordering::Relaxed));
            if its == interface && address_is == address {
                return Some(Found { entry, words, from });
            }
            from = &words[NEXT];
        }
    }

    /// For the reader, in a read section. Writes nothing.
    #[inline(always)]
    pub(super) fn get(&self, interface: u32, address: A) -> Option<Known> {
        let (word, until) = self.get_word(interface, address)?;
        let [a, b, c, d, e, f, ..] = word.to_le_bytes();
        Some(Known { link: [a, b, c, d, e, f], until })
    }

    /// The same, the link address in a word, the first byte lowest; and until when.
    #[inline(always)]
    pub(super) fn get_word(&self, interface: u32, address: A) -> Option<(u64, u32)> {
        let Found { words, .. } = self.find(interface, address)?;
        // Relaxed: as in `find`; and until when is a number that nothing else depends on.
        let [high, low, until] =
            [INTERFACE, LINK, UNTIL].map(|word| words[word].load(Ordering::Relaxed));
        Some((u64::from(low) | u64::from(high & 0xffff) << 32, until))
    }

    /// The number of a neighbour's entry, plus one; 0 if it is not there. For the reader, in a read section.
    pub(super) fn number(&self, interface: u32, address: A) -> u32 {
        self.find(interface, address).map_or(0, |found| found.entry + 1)
    }

    /// As [`get_word`](Self::get_word), by a [number](Self::number) from whenever, or 0; none also if there is another one now, or
    /// none any more. Writes nothing.
    #[inline(always)]
    pub(super) fn get_again(&self, number: u32, interface: u32, address: A) -> Option<(u64, u32)> {
        let words = self.words.array::<WORDS>(number.checked_sub(1)? as usize * WORDS)?;
        // ORDERING: Acquire pairs with the releases in `set` and `set_until`: the other words were written before.
        let until = words[UNTIL].load(Ordering::Acquire);
        // Relaxed: as said, and not changed before this section has ended.
        let [high, low] = [INTERFACE, LINK].map(|word| words[word].load(Ordering::Relaxed));
        let address_is = A::from_words(|i| words[ADDRESS + i].load(Ordering::Relaxed));
        (high >> 16 == interface && address_is == address)
            .then_some((u64::from(low) | u64::from(high & 0xffff) << 32, until))
    }

    // What follows is for the writer, under its lock.

    /// The entry's number, and its words, of which until when may be changed.
    pub(super) fn entry(&self, interface: u32, address: A) -> Option<u32> {
        self.find(interface, address).map(|found| found.entry)
    }

    pub(super) fn set_until(&self, entry: u32, until: u32) {
        if let Some(words) = self.words.array::<WORDS>(entry as usize * WORDS) {
            // ORDERING: Release pairs with the acquire in `get_again`: who sees this time is to see the other words, as by `set`.
            words[UNTIL].store(until, Ordering::Release);
        }
    }

    /// Gives back an entry that was taken out of its bucket.
    fn retire(&self, writer: &mut Writer, entry: u32) {
        // A reader that remembers its number sees that it is gone.
        self.set_until(entry, 0);
        writer.eviction.remove(entry);
        writer.pool.retire(entry);
    }

    /// Enters a neighbour, or replaces its entry. On a link that is full the neighbour displaces
    /// [another one](Eviction::victim).
    ///
    /// # Errors
    /// [`AllocError`], also if it may displace none, and for a stranger if half of the spare
    /// entries wait for readers.
    pub(super) fn set(
        &self,
        writer: &mut Writer,
        (interface, address): (u32, A),
        known: Known,
        (origin, now): (Origin, u32),
    ) -> Result<(), AllocError> {
        if origin == Origin::Stranger && writer.pool.waiting() > SPARE / 2 {
            return Err(AllocError);
        }
        let entry = writer.pool.alloc(&self.words)?;
        if let Err(error) = writer.eviction.reserve(entry) {
            writer.pool.free_unseen(entry);
            return Err(error);
        }
        if writer.eviction.is_full(interface) && self.find(interface, address).is_none() {
            let Some(victim) = writer.eviction.victim(interface, origin) else {
                writer.pool.free_unseen(entry);
                return Err(AllocError);
            };
            self.remove(writer, victim);
        }
        let words = self.words.array::<WORDS>(entry as usize * WORDS).ok_or(AllocError)?;
        let old = self.find(interface, address);
        let from = old.as_ref().map_or(self.bucket(interface, address), |old| old.from);
        let next = old.as_ref().map_or(from, |old| &old.words[NEXT]).load(Ordering::Relaxed);
        let [a, b, c, d, e, f] = known.link;
        let high = interface << 16 | u32::from(u16::from_le_bytes([e, f]));
        let values = [next, high, u32::from_le_bytes([a, b, c, d])];
        let in_order = words[..UNTIL].iter().chain(&words[ADDRESS..]);
        for (word, value) in in_order.zip(values.into_iter().chain(address.to_words())) {
            // Relaxed: published below. (Of `next` only the writer, who is here, writes.)
            word.store(value, Ordering::Relaxed);
        }
        self.set_until(entry, known.until);
        // ORDERING: Release pairs with the acquire in `find`.
        from.store(entry + 1, Ordering::Release);
        let origin = old.as_ref().map_or(origin, |old| writer.eviction.origin(old.entry, origin));
        writer.eviction.enter(entry, interface, origin, now);
        if let Some(old) = old {
            self.retire(writer, old.entry);
        }
        Ok(())
    }

    /// Takes an entry out of the table.
    pub(super) fn remove(&self, writer: &mut Writer, entry: u32) {
        let Some(words) = self.words.array::<WORDS>(entry as usize * WORDS) else { return };
        // Relaxed, so below: written by writers only.
        let interface = words[INTERFACE].load(Ordering::Relaxed) >> 16;
        let address = A::from_words(|i| words[ADDRESS + i].load(Ordering::Relaxed));
        if let Some(found) = self.find(interface, address) {
            let next = found.words[NEXT].load(Ordering::Relaxed);
            // ORDERING: Release, as all stores that `find` acquires; what it leads to was published before.
            found.from.store(next, Ordering::Release);
            self.retire(writer, found.entry);
        }
    }

    /// Takes out neighbours of a link that were not heard of for long, up to `most`. Returns
    /// `false` if there may be more.
    pub(super) fn remove_old(
        &self,
        writer: &mut Writer,
        interface: u32,
        now: u32,
        most: usize,
    ) -> bool {
        for _ in 0..most {
            let Some(entry) = writer.eviction.expired(interface, now) else { return true };
            self.remove(writer, entry);
        }
        false
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use core::net::Ipv6Addr;
    use quietline_sync::rcu;

    /// Addresses that any fixed mixture of their words by rotations and exclusive-ors maps to one
    /// value do not share a bucket.
    #[test]
    fn chains_stay_short() {
        let domain = rcu::global().unwrap();
        let keys = HashKeys::draw().unwrap();
        let (table, mut writer) = Table::<Ipv6Addr>::new(domain, keys, 1, 8192).unwrap();
        let known = Known { link: [2; 6], until: 1 };
        let address =
            |n: u32| Ipv6Addr::from_bits(u128::from(n) << 32 | u128::from(n.rotate_left(7)));
        for n in 1..=4096 {
            table.set(&mut writer, (0, address(n)), known, (Origin::Answer, 0)).unwrap();
        }
        let length = |bucket: &AtomicU32| {
            let mut at = bucket.load(Ordering::Relaxed);
            let next = |at: u32| {
                let words = table.words.array::<WORDS>((at as usize - 1) * WORDS).unwrap();
                words[NEXT].load(Ordering::Relaxed)
            };
            core::iter::from_fn(|| (at != 0).then(|| at = next(at))).count()
        };
        let longest = table.buckets.iter().map(length).max().unwrap();
        assert!(longest <= 64, "{longest} in one bucket");
    }
}
