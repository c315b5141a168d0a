//! The ring of packets that a device sends, and its completions.
//!
//! Three cursors go round one ring of slots, as in the rings of usual hardware, which writes into a packet's slot that it
//! is done with it: the part from `cleaned` to `sent` is the completion ring.
//!
//! ```text
//!      cleaned ········ sent ········ filled
//!   free  │  done with   │   to be sent  │  free
//! ```

use super::{Batch, LINK_HEADER, Stats, fits};
use crate::packet::{DropReason, Skb, WAITLIST, Waitlist, kfree_skb_bulk};
use core::fmt;
use quietline_platform::heap;
use rustix::io::Errno;

/// A ring, of one thread. Packets that are in it when it is dropped are freed.
pub struct TxRing<'n> {
    slots: Box<[Option<Skb<'n>>]>,
    // Never masked, so that a full ring differs from an empty one. They wrap.
    filled: u32,
    sent: u32,
    cleaned: u32,
}

/// Where the cursors start: shortly before they wrap, where that is to be found out.
const START: u32 = if cfg!(debug_assertions) { u32::MAX - 100 } else { 0 };

impl<'n> TxRing<'n> {
    /// A ring for so many packets: a power of two, 65,536 at most.
    ///
    /// # Errors
    /// `EINVAL` for another number; `ENOMEM`.
    pub fn new(size: usize) -> Result<Self, Errno> {
        if !size.is_power_of_two() || size > 1 << 16 {
            return Err(Errno::INVAL);
        }
        let slots = heap::try_boxed_slice(size, |_| None).map_err(|_| Errno::NOMEM)?;
        Ok(Self { slots, filled: START, sent: START, cleaned: START })
    }

    /// Packets that it has room for.
    #[inline(always)]
    pub fn room(&self) -> usize {
        self.slots.len() - self.filled.wrapping_sub(self.cleaned) as usize
    }

    /// Packets that are to be sent.
    pub fn pending(&self) -> usize {
        self.filled.wrapping_sub(self.sent) as usize
    }

    /// Packets that are sent and not yet freed.
    pub fn completed(&self) -> usize {
        self.sent.wrapping_sub(self.cleaned) as usize
    }

    #[inline(always)]
    fn slot(&mut self, cursor: u32) -> &mut Option<Skb<'n>> {
        let mask = self.slots.len() - 1;
        &mut self.slots[cursor as usize & mask]
    }

    /// Puts a packet in, to be sent.
    ///
    /// # Errors
    /// Gives it back if there is no room.
    #[inline(always)]
    pub fn put(&mut self, skb: Skb<'n>) -> Result<(), Skb<'n>> {
        if self.room() == 0 {
            return Err(skb);
        }
        *self.slot(self.filled) = Some(skb);
        self.filled = self.filled.wrapping_add(1);
        Ok(())
    }

    /// Takes packets of a batch as long as there is room: how many. Those that are in fragments, that [do not fit](fits), or that are
    /// shorter than a link header, are dropped and counted.
    pub(super) fn take(
        &mut self,
        batch: &mut Batch<'n>,
        max_frame: usize,
        stats: &mut Stats,
    ) -> usize {
        let mut taken = 0;
        while self.room() > 0 {
            let Some(skb) = batch.pop() else { break };
            let wrong = if skb.data_len() > 0 {
                DropReason::DeviceFailed
            } else if skb.len() < LINK_HEADER {
                DropReason::PacketTooSmall
            } else if !fits(skb.data(), max_frame) {
                DropReason::PacketTooBig
            } else {
                taken += usize::from(self.put(skb).is_ok());
                continue;
            };
            skb.kfree_skb(wrong);
            stats.drop_packets(wrong, 1);
        }
        taken
    }

    /// Sends: `each` is given the packets in order, and says of each whether it went. At the first that did not it ends. How many
    /// went.
    #[inline(always)]
    pub fn send(&mut self, mut each: impl FnMut(&Skb<'n>) -> bool) -> usize {
        let start = self.sent;
        while self.sent != self.filled {
            let went = self.slot(self.sent).as_ref().is_none_or(&mut each);
            if !went {
                break;
            }
            self.sent = self.sent.wrapping_add(1);
        }
        self.sent.wrapping_sub(start) as usize
    }

    /// Frees up to `budget` packets that are sent, by a [`Waitlist`]: how many.
    pub fn complete(&mut self, budget: usize) -> usize {
        let mut done = Waitlist::<WAITLIST>::new();
        self.complete_all(budget, |packets| done.add_all(packets))
    }

    /// Hands up to `budget` packets that are sent to `free`: how many.
    #[inline(always)]
    pub fn complete_with(&mut self, budget: usize, mut free: impl FnMut(Skb<'n>)) -> usize {
        let n = self.completed().min(budget);
        for _ in 0..n {
            if let Some(skb) = self.slot(self.cleaned).take() {
                free(skb);
            }
            self.cleaned = self.cleaned.wrapping_add(1);
        }
        n
    }

    /// Frees up to `budget` packets that are sent in bulk, where they lie: how many. For measuring what the waitlist costs.
    pub fn complete_in_place(&mut self, budget: usize) -> usize {
        self.complete_all(budget, kfree_skb_bulk)
    }

    /// Hands up to `budget` packets that are sent to `free`, which takes all that are in an array: how many.
    #[inline(always)]
    fn complete_all(
        &mut self,
        budget: usize,
        mut free: impl FnMut(&mut [Option<Skb<'n>>]),
    ) -> usize {
        let n = self.completed().min(budget);
        self.slots_from(self.cleaned, n).into_iter().for_each(&mut free);
        self.cleaned = self.cleaned.wrapping_add(n as u32);
        n
    }

    /// The slots from a cursor on: those up to the ring's end, and those at its beginning.
    #[inline(always)]
    fn slots_from(&mut self, cursor: u32, n: usize) -> [&mut [Option<Skb<'n>>]; 2] {
        let first = cursor as usize & (self.slots.len() - 1);
        let until_end = n.min(self.slots.len() - first);
        let (beginning, rest) = self.slots.split_at_mut(first);
        [&mut rest[..until_end], &mut beginning[..n - until_end]]
    }

    /// Puts the first `n` packets of a batch in, that are sent already: there is room for them, and none before them is to be sent.
    #[inline(always)]
    pub(super) fn put_sent(&mut self, batch: &mut Batch<'n>, n: usize) {
        debug_assert!(n <= self.room().min(batch.len()) && self.pending() == 0);
        self.slots_from(self.filled, n).into_iter().for_each(|slots| batch.give_to(slots));
        self.filled = self.filled.wrapping_add(n as u32);
        self.sent = self.filled;
    }
}

impl Drop for TxRing<'_> {
    fn drop(&mut self) {
        kfree_skb_bulk(&mut self.slots);
    }
}

impl fmt::Debug for TxRing<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (size, pending, completed) = (self.slots.len(), self.pending(), self.completed());
        write!(f, "TxRing {{ size: {size}, pending: {pending}, completed: {completed} }}")
    }
}
