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
use core::marker::PhantomData;
use quietline_platform::atomic::{AtomicU32, Ordering};
use quietline_platform::{AllocError, heap};
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
    words: Words,
    of: PhantomData<A>,
}

/// An entry's number and the word that leads to it.
struct Found<'a> {
    entry: u32,
    words: &'a [AtomicU32; WORDS],
    from: &'a AtomicU32,
}

impl<A: Sealed> Table<A> {
    /// A table for up to `most`, and the pool of its entries.
    pub(super) fn new(domain: &'static Domain, most: u32) -> Result<(Self, Pool), AllocError> {
        let buckets = (most.max(1) as usize).next_power_of_two();
        let (pool, words) = Pool::new(domain, WORDS, most)?;
        let buckets = heap::try_boxed_slice(buckets, |_| AtomicU32::new(0))?;
        Ok((Self { buckets, words, of: PhantomData }, pool))
    }

    #[inline(always)]
    fn bucket(&self, interface: u32, address: A) -> &AtomicU32 {
        let [a, b, c, d] = address.to_words();
        // The last bits differ most; a multiplication spreads them into the upper ones.
        let mixed = d
            ^ c.rotate_left(7)
            ^ b.rotate_left(14)
            ^ a.rotate_left(21)
            ^ interface.rotate_left(27);
        let hash = u64::from(mixed).wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 32;
        &self.buckets[hash as usize & (self.buckets.len() - 1)]
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

    // What follows is for the writer, under the lock.

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
    fn retire(&self, pool: &mut Pool, entry: u32) {
        // Who remembers its number sees that it is gone; who comes after the readers, surely.
        self.set_until(entry, 0);
        pool.retire(entry);
    }

    /// Enters a neighbour, in the place of what there is of it.
    pub(super) fn set(
        &self,
        pool: &mut Pool,
        (interface, address): (u32, A),
        known: Known,
    ) -> Result<(), AllocError> {
        let entry = pool.alloc(&self.words)?;
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
        if let Some(old) = old {
            self.retire(pool, old.entry);
        }
        Ok(())
    }

    /// Takes a neighbour out, if it is there.
    pub(super) fn remove(&self, pool: &mut Pool, interface: u32, address: A) {
        if let Some(found) = self.find(interface, address) {
            // Relaxed: written by writers only.
            let next = found.words[NEXT].load(Ordering::Relaxed);
            // ORDERING: Release, as all stores that `find` acquires; what it leads to was published before.
            found.from.store(next, Ordering::Release);
            self.retire(pool, found.entry);
        }
    }

    /// Takes out all that have not been reachable since `before`.
    pub(super) fn remove_old(&self, pool: &mut Pool, before: u32) {
        for bucket in &self.buckets {
            let mut from = bucket;
            // Relaxed, so below: written by writers only.
            while let Some(entry) = from.load(Ordering::Relaxed).checked_sub(1)
                && let Some(words) = self.words.array::<WORDS>(entry as usize * WORDS)
            {
                if words[UNTIL].load(Ordering::Relaxed) < before {
                    let next = words[NEXT].load(Ordering::Relaxed);
                    // ORDERING: as in `remove`.
                    from.store(next, Ordering::Release);
                    self.retire(pool, entry);
                } else {
                    from = &words[NEXT];
                }
            }
        }
    }
}
