//! Packets that are handed over together.

use crate::packet::{DropReason, Skb, are_none, kfree_skb_bulk, kfree_skb_bulk_reason};
use core::fmt;
use core::mem::{self, ManuallyDrop};

/// Packets that a batch has room for: a device's budget.
pub const BATCH: usize = super::BUDGET;

/// Up to [`BATCH`] packets in order, on the stack of whoever moves them. Those that are in it when it is dropped are freed, in bulk.
pub struct Batch<'n> {
    /// Of these only those from `first` to `end` are there: so only they are looked at when it is dropped.
    packets: ManuallyDrop<[Option<Skb<'n>>; BATCH]>,
    /// The first packet's place; 0 while there is none.
    first: usize,
    /// Behind the last one.
    end: usize,
}

impl<'n> Batch<'n> {
    /// An empty one.
    #[inline(always)]
    pub const fn new() -> Self {
        Self { packets: ManuallyDrop::new([const { None }; BATCH]), first: 0, end: 0 }
    }

    /// Packets in it.
    #[inline(always)]
    pub fn len(&self) -> usize {
        self.end - self.first
    }

    /// Whether there are none.
    #[inline(always)]
    pub fn is_empty(&self) -> bool {
        self.first == self.end
    }

    /// Packets that it has room for.
    #[inline(always)]
    pub fn room(&self) -> usize {
        BATCH - self.len()
    }

    /// Appends a packet.
    ///
    /// # Errors
    /// Gives it back if there are [`BATCH`].
    #[inline(always)]
    pub fn push(&mut self, skb: Skb<'n>) -> Result<(), Skb<'n>> {
        if self.end == BATCH {
            if self.first == 0 {
                return Err(skb);
            }
            self.move_down();
        }
        put(&mut self.packets[self.end], skb);
        self.end += 1;
        Ok(())
    }

    /// Takes the first packet out.
    #[inline(always)]
    pub fn pop(&mut self) -> Option<Skb<'n>> {
        if self.is_empty() {
            return None;
        }
        let skb = self.packets[self.first].take();
        self.first += 1;
        if self.first == self.end {
            (self.first, self.end) = (0, 0);
        }
        skb
    }

    /// The first packet.
    #[inline(always)]
    pub fn first(&self) -> Option<&Skb<'n>> {
        self.iter().next()
    }

    /// The packets, first to last.
    pub fn iter(&self) -> impl Iterator<Item = &Skb<'n>> {
        self.packets[self.first..self.end].iter().flatten()
    }

    /// The packets, to be changed.
    pub fn iter_mut(&mut self) -> impl Iterator<Item = &mut Skb<'n>> {
        self.packets[self.first..self.end].iter_mut().flatten()
    }

    /// Appends up to `n` packets that `fill` puts into places that are all free, first to last; of places that it leaves free
    /// the batch takes no notice, nor of those behind them. How many.
    ///
    /// # Errors
    /// What `fill` says; then nothing is appended.
    #[inline]
    pub(super) fn fill<E>(
        &mut self,
        n: usize,
        fill: impl FnOnce(&mut [Option<Skb<'n>>]) -> Result<(), E>,
    ) -> Result<usize, E> {
        if self.first > 0 {
            self.move_down();
        }
        let places = &mut self.packets[self.end..];
        let n = n.min(places.len());
        if let Err(error) = fill(&mut places[..n]) {
            places[..n].fill_with(|| None);
            return Err(error);
        }
        let filled = places[..n].iter().position(Option::is_none).unwrap_or(n);
        places[filled..n].fill_with(|| None);
        self.end += filled;
        Ok(filled)
    }

    /// Takes packets out of an array, as far as there is room for them: how many. Their places are free after.
    #[inline]
    pub fn take_from(&mut self, packets: &mut [Option<Skb<'n>>]) -> usize {
        if self.first > 0 {
            self.move_down();
        }
        let before = self.end;
        let all = packets.iter().fold(true, |all, place| all & place.is_some());
        if all && packets.len() <= BATCH - before {
            self.end += packets.len();
            packets.swap_with_slice(&mut self.packets[before..self.end]);
            return packets.len();
        }
        for place in packets {
            if self.end == BATCH {
                break;
            }
            if let Some(skb) = place.take() {
                put(&mut self.packets[self.end], skb);
                self.end += 1;
            }
        }
        self.end - before
    }

    /// Puts its first packets into places, which are free, as many as there are.
    #[inline(always)]
    pub(super) fn give_to(&mut self, places: &mut [Option<Skb<'n>>]) {
        let first = &mut self.packets[self.first..self.end];
        let n = places.len().min(first.len());
        first[..n].swap_with_slice(&mut places[..n]);
        self.first += n;
        if self.first == self.end {
            (self.first, self.end) = (0, 0);
        }
    }

    /// Gives all packets to `take`, first to last, in an array; what it leaves there ends.
    #[inline]
    pub fn hand_over<R>(&mut self, take: impl FnOnce(&mut [Option<Skb<'n>>]) -> R) -> R {
        let taken = take(&mut self.packets[self.first..self.end]);
        self.consume();
        taken
    }

    /// Drops all packets, for a reason, in bulk: how many.
    pub fn kfree(&mut self, reason: DropReason) -> usize {
        self.end(|packets| kfree_skb_bulk_reason(packets, reason))
    }

    /// Frees all packets, which were used, in bulk: how many.
    pub fn consume(&mut self) -> usize {
        self.end(kfree_skb_bulk)
    }

    #[inline(always)]
    fn end(&mut self, free: impl FnOnce(&mut [Option<Skb<'n>>])) -> usize {
        let n = self.len();
        let packets = &mut self.packets[self.first..self.end];
        if !are_none(packets) {
            free(packets);
        }
        (self.first, self.end) = (0, 0);
        n
    }

    #[cold]
    fn move_down(&mut self) {
        self.packets.rotate_left(self.first);
        self.end -= self.first;
        self.first = 0;
    }
}

/// Puts a packet into a place that is free.
#[inline(always)]
fn put<'n>(place: &mut Option<Skb<'n>>, skb: Skb<'n>) {
    let free = place.replace(skb);
    debug_assert!(free.is_none(), "the place is free");
    mem::forget(free);
}

impl Default for Batch<'_> {
    fn default() -> Self {
        Self::new()
    }
}

impl Drop for Batch<'_> {
    #[inline]
    fn drop(&mut self) {
        if !self.is_empty() {
            self.consume();
        }
    }
}

impl fmt::Debug for Batch<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.iter()).finish()
    }
}
