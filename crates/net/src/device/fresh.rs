//! Buffers for packets that are about to come in.
//!
//! A driver that asks the caches for each packet takes two sequences for one; here a ring's worth comes at once, and what is
//! not used stays for the next poll.
//!
//! A refill runs on the CPU of the poll that finds nothing left, in that poll. Its memory is that CPU's, and so is the
//! [home](Skb::cpu) of all that it brings: a loop that moves to another CPU uses up what it has, [`NAPI_BULK`] at most, whose home is the
//! old one, and the next refill is the new one's.

use super::Batch;
use crate::packet::{NAPI_BULK, PacketError, Packets, Skb};
use rustix::io::Errno;

/// Packets without data, of one size: up to [`NAPI_BULK`] of them. Those that are left when it is dropped are freed in bulk.
pub(super) struct Fresh<'n> {
    packets: &'n Packets,
    len: usize,
    spare: Batch<'n>,
}

impl<'n> Fresh<'n> {
    /// None yet, with room for `len` bytes each.
    pub(super) fn new(packets: &'n Packets, len: usize) -> Self {
        Self { packets, len, spare: Batch::new() }
    }

    /// Bytes that one has room for.
    pub(super) fn len(&self) -> usize {
        self.len
    }

    /// One of them; first, if there is none, as many as there may be.
    ///
    /// # Errors
    /// As [`Packets::alloc_skb`].
    #[inline]
    pub(super) fn take(&mut self) -> Result<Skb<'n>, PacketError> {
        match self.spare.pop() {
            Some(skb) => Ok(skb),
            None => self.refill(),
        }
    }

    #[cold]
    fn refill(&mut self) -> Result<Skb<'n>, PacketError> {
        let (packets, len) = (self.packets, self.len);
        let filled = self.spare.fill(NAPI_BULK, |places| packets.alloc_skb_bulk(len, places));
        // Where there is no memory for all there may be some for one.
        filled.ok().and_then(|_| self.spare.pop()).map_or_else(|| packets.alloc_skb(len), Ok)
    }

    /// Takes one back that was not used, if it may: its bytes are forgotten.
    pub(super) fn give_back(&mut self, mut skb: Skb<'n>) {
        if skb.trim(0).is_ok()
            && let Err(skb) = self.spare.push(skb)
        {
            drop(skb);
        }
    }
}

/// What a device says when there is no buffer.
pub(super) fn no_memory(_: PacketError) -> Errno {
    Errno::NOMEM
}

#[cfg(all(test, not(loom)))]
mod tests;
