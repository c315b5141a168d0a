//! A poller's own stack of packets.
//!
//! # The problem
//!
//! A driver's poll loop frees what was sent and allocates for what comes in, over and over, on one CPU. Even a per-CPU
//! sequence for each is more than it needs: the stack is its own as long as it polls.
//!
//! # Our way
//!
//! Two arrays, of heads and of usual data, that belong to the loop: no sequence, no lock, nothing but moves. Empty, it takes
//! [`NAPI_BULK`] from the caches at once; full, it gives as many back. So what is freed is what is allocated next,
//! while it is warm, and of bursts up to the stack's size the caches see nothing.
//!
//! # Source
//! `napi_alloc_cache` of `net/core/skbuff.c`, which is one for each CPU, guarded by the loop's being a soft interrupt;
//! the stack for both directions was proposed in the discussion of 2015.

use super::listeners::Event;
use super::raw::{Packets, Skb, Stack, USUAL, class_of};
use super::{DropReason, HEADROOM, PacketError};
use core::fmt;

/// Packets that a stack holds.
pub const NAPI_SIZE: usize = 128;
/// Packets that are taken or given back at a time.
pub const NAPI_BULK: usize = 32;

/// The stack, of one loop. Made by [`Packets::napi`]; what it holds goes back when it is dropped.
pub struct Napi<'n> {
    stack: Stack<'n, NAPI_SIZE>,
}

impl fmt::Debug for Napi<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [heads, data, away] = self.stack.len();
        let mut f = f.debug_struct("Napi");
        f.field("heads", &heads).field("data", &data).field("away", &away).finish_non_exhaustive()
    }
}

impl Packets {
    /// A stack for a loop that makes and ends packets. It is large (2.5 KiB): make it once.
    pub fn napi(&self) -> Napi<'_> {
        Napi { stack: Stack::new(self, USUAL) }
    }
}

impl<'n> Napi<'n> {
    /// Sets whether packets that other CPUs have made are sent home to them, as by
    /// [`Packets::defer_free_bulk`], or stay here, which is the default. They are sent 32 at a
    /// time. Until then, or until the stack is [flushed](Self::flush), is dropped or has to ask the
    /// caches for more, they wait here, and have not ended. At home their memory is near if the
    /// machine has several nodes (not measured). On one node it takes more time
    /// (docs/bench-forward.md).
    #[must_use]
    pub fn sends_home(mut self, sends_home: bool) -> Self {
        self.stack.set_sends_home(sends_home);
        self
    }

    /// As [`Packets::alloc_skb`], from the stack for packets of the usual size (`napi_alloc_skb`).
    ///
    /// # Errors
    /// As there.
    #[inline(always)]
    pub fn alloc_skb(&mut self, len: usize) -> Result<Skb<'n>, PacketError> {
        match len.checked_add(HEADROOM).map(class_of) {
            Some(Ok(USUAL)) => Ok(self.stack.alloc(NAPI_BULK)?),
            _ => self.stack.packets().alloc_skb(len),
        }
    }

    /// Ends a reference, to a packet that was used; what it leaves stays here (`napi_consume_skb`), unless another CPU has made it
    /// and the stack [sends such home](Self::sends_home): two locked instructions on that CPU's line for up to 32 of them.
    #[inline(always)]
    pub fn consume_skb(&mut self, skb: Skb<'n>) {
        self.stack.end(skb, Event::Consumed, NAPI_BULK);
    }

    /// Ends a reference, to a packet that was dropped; otherwise the same.
    #[inline]
    pub fn kfree_skb(&mut self, skb: Skb<'n>, reason: DropReason) {
        self.stack.end(skb, Event::Dropped(reason), NAPI_BULK);
    }

    /// Ends the packets that other CPUs have sent home to this one: how many. What they leave stays here. The stack does it too when it
    /// is empty, before it asks the caches.
    pub fn take_deferred(&mut self) -> usize {
        self.stack.take_deferred(NAPI_BULK)
    }

    /// Sends home what is to be; gives back what the stack holds, and what other CPUs have sent home to this one.
    pub fn flush(&mut self) {
        // First: a loop that has moved may be where that goes.
        self.stack.send_away(NAPI_BULK);
        self.take_deferred();
        self.stack.give_back();
    }
}
