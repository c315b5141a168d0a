//! Packets that go home: ended on one CPU, freed on the one that made them.
//!
//! A receiver that frees what an interrupt on another CPU has made drains that CPU's memory into its own, and misses on
//! every line of it. So it puts the packet into a list of the CPU that made it, which frees it with its own next batch:
//! `skb_attempt_defer_free`, worth half of a UDP test's rate on a large machine in 2022.

use super::raw::{Packets, Skb};
use quietline_platform::cpu;

/// Packets that may wait for a CPU; what comes on top is freed where it is.
pub const DEFER_MAX: u32 = if cfg!(loom) { 2 } else { 128 };

impl Packets {
    /// Ends a reference to a packet that was used: if it was made on another CPU, and the reference is the only one, by sending it
    /// there. Its end comes when that CPU [takes](Self::take_deferred) what was sent to it, or when the packets end.
    ///
    /// Writes the other CPU's list: two locked instructions on its line.
    pub fn defer_free<'n>(&'n self, skb: Skb<'n>) {
        let home = skb.cpu() == cpu::current() || !core::ptr::eq(skb.packets(), self);
        // A head has one link, so it must not be sent twice. Whose reference is the only one gains no rival.
        if home || skb.is_shared() {
            return drop(skb);
        }
        if let Err(skb) = self.deferred.push(skb) {
            drop(skb);
        }
    }

    /// Ends the packets that were sent to this CPU: how many.
    pub fn take_deferred(&self) -> usize {
        self.each_deferred(drop)
    }
}
