//! A slab's list of free objects: one packed word, changed by one compare-and-exchange.
//!
//! ```text
//!    63      62..34     33..32   31..16   15..0
//!    unused             state    inuse    head       head: index of the first free object, NONE if there is none
//! ```
//!
//! Links are indices that lie in the free objects themselves. Many may push at any time; only the *owner* pops: the
//! thread that moved the slab to [`State::Frozen`]. A push only puts objects in front, so the owner may walk the
//! list while others push, and its exchange fails exactly if somebody did. For the same reason the word needs no
//! tag against ABA: a head that is equal is the same list, because nobody but the owner can have taken it away.

use quietline_platform::atomic::{AtomicU64, Ordering};

/// No object.
pub(crate) const NONE: u16 = u16::MAX;

/// Who looks after a slab.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum State {
    /// Nobody: every object is out. The next push makes it partial.
    Full = 0,
    /// The partial list.
    Partial = 1,
    /// A thread that pops objects.
    Frozen = 2,
}

/// The packed word, taken apart.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Packed {
    pub(crate) head: u16,
    /// Objects that are not on the list: with users, or in sheaves.
    pub(crate) inuse: u16,
    pub(crate) state: State,
}

impl Packed {
    fn from_bits(bits: u64) -> Self {
        let state = match bits >> 32 {
            0 => State::Full,
            1 => State::Partial,
            _ => State::Frozen,
        };
        Self { head: bits as u16, inuse: (bits >> 16) as u16, state }
    }

    fn bits(self) -> u64 {
        u64::from(self.head) | u64::from(self.inuse) << 16 | (self.state as u64) << 32
    }
}

/// Where links lie.
pub(crate) trait Links {
    /// The index that follows `index`.
    fn next(&self, index: u16) -> u16;
    /// Makes `next` follow `index`, which belongs to the caller.
    fn set_next(&self, index: u16, next: u16);
}

/// Objects of one slab, linked in themselves, that belong to the caller (Brouer's detached freelist).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Detached {
    pub(crate) head: u16,
    pub(crate) tail: u16,
    pub(crate) count: u16,
}

impl Detached {
    /// A list of one.
    pub(crate) fn one(index: u16, links: &impl Links) -> Self {
        links.set_next(index, NONE);
        Self { head: index, tail: index, count: 1 }
    }

    /// Puts one more in front.
    pub(crate) fn push(&mut self, index: u16, links: &impl Links) {
        links.set_next(index, self.head);
        self.head = index;
        self.count += 1;
    }
}

/// Objects that the owner has taken.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Popped {
    /// The first of `listed` objects that are linked.
    pub(crate) head: u16,
    pub(crate) listed: u16,
    /// Objects that were never out, from the first one not constructed on.
    pub(crate) fresh: u16,
    pub(crate) state: State,
}

#[derive(Debug)]
pub(crate) struct Freelist {
    word: AtomicU64,
}

impl Freelist {
    /// An empty list, owned by the thread that makes the slab.
    pub(crate) fn new() -> Self {
        Self { word: AtomicU64::new(Packed { head: NONE, inuse: 0, state: State::Frozen }.bits()) }
    }

    pub(crate) fn load(&self) -> Packed {
        // ORDERING: pairs with the release in `exchange`: the links of a head that is seen are seen. An older head is
        // the tail part of the same list, or makes the exchange fail.
        Packed::from_bits(self.word.load(Ordering::Acquire))
    }

    fn exchange(&self, old: Packed, new: Packed) -> bool {
        // ORDERING: release pairs with the acquire in `load`: who sees the new head sees its links, and what the
        // users of the freed objects did. Acquire on success pairs with it too: who frees the last object and
        // discards the slab has seen every other free. On failure the word is loaded again.
        self.word
            .compare_exchange(old.bits(), new.bits(), Ordering::AcqRel, Ordering::Relaxed)
            .is_ok()
    }

    /// Puts a detached list in front, if `allow` agrees to the change: given the word before and after, it says
    /// whether the caller is in a position to make this transition. One compare-and-exchange when uncontended.
    /// The word before and after, or none if `allow` refused.
    pub(crate) fn push(
        &self,
        list: Detached,
        links: &impl Links,
        mut allow: impl FnMut(Packed, &mut Packed) -> bool,
    ) -> Option<(Packed, Packed)> {
        loop {
            let old = self.load();
            debug_assert!(old.inuse >= list.count, "more objects come back than went out");
            let mut new =
                Packed { head: list.head, inuse: old.inuse - list.count, state: old.state };
            if !allow(old, &mut new) {
                return None;
            }
            links.set_next(list.tail, old.head);
            if self.exchange(old, new) {
                return Some((old, new));
            }
        }
    }

    /// Takes up to `want` of the objects that the list and the rest of `places` have, of which so many are `constructed`, which
    /// means that they have been on the list or out. Calls `construct` with their new number before the exchange: after it, the
    /// slab may be another owner's. If nothing is left, the state is `empty`.
    ///
    /// The whole list is taken without a walk. Its links stay as they are, so the caller may follow them.
    pub(crate) fn pop(
        &self,
        want: u16,
        (constructed, places): (u16, u16),
        empty: State,
        links: &impl Links,
        mut construct: impl FnMut(u16),
    ) -> Popped {
        loop {
            let old = self.load();
            debug_assert_eq!(old.state, State::Frozen, "only the owner pops");
            let listed = (constructed - old.inuse).min(want);
            let fresh = (places - constructed).min(want - listed);
            let inuse = old.inuse + listed + fresh;
            let head = if old.inuse + listed == constructed {
                NONE
            } else {
                (0..listed).fold(old.head, |index, _| links.next(index))
            };
            construct(constructed + fresh);
            let state = if inuse == places { empty } else { State::Frozen };
            let new = Packed { head, inuse, state };
            if new == old || self.exchange(old, new) {
                return Popped { head: old.head, listed, fresh, state };
            }
        }
    }

    /// Changes the state, by whoever is in charge of it.
    pub(crate) fn set_state(&self, state: State) {
        loop {
            let old = self.load();
            if self.exchange(old, Packed { state, ..old }) {
                return;
            }
        }
    }
}
