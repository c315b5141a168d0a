//! Packets that go home: ended on one CPU, freed on the one that made them.
//!
//! A receiver that frees what an interrupt on another CPU has made drains that CPU's memory into its own, and misses on
//! every line of it. So it puts the packet into a list of the CPU that made it, which frees it with its own next batch:
//! `skb_attempt_defer_free`, worth half of a UDP test's rate on a large machine in 2022.

use super::NoBulk;
use super::listeners::Event;
use super::raw::{Packets, Skb};
use quietline_platform::cpu;

/// Packets that may wait for a CPU; what comes on top is freed where it is.
pub const DEFER_MAX: u32 = if cfg!(loom) { 2 } else { 128 };

impl Packets {
    /// Ends a reference to a packet that was used: if it was made on another CPU, and the reference is the only one, by sending it
    /// there. Its end comes when that CPU [takes](Self::take_deferred) what was sent to it, when a [poller](super::Napi) there needs
    /// memory, when somebody calls [`shrink`](Self::shrink), or when the packets end: [`DEFER_MAX`] wait for a CPU that does nothing of
    /// this.
    ///
    /// Writes the other CPU's list: two locked instructions on its line.
    pub fn defer_free<'n>(&'n self, skb: Skb<'n>) {
        let home = skb.cpu() == cpu::current() || !core::ptr::eq(skb.packets(), self);
        let left = if home { Err(skb) } else { self.send_home(skb, Event::Consumed) };
        if let Err(skb) = left {
            drop(skb);
        }
    }

    /// Sends a packet of these to the CPU that made it; gives it back if others have references to it, or many wait there.
    pub(super) fn send_home<'n>(&self, skb: Skb<'n>, event: Event) -> Result<(), Skb<'n>> {
        // A head has one link, so it must not be sent twice. Whose reference is the only one gains no rival.
        if skb.is_shared() { Err(skb) } else { self.deferred.push(skb, event) }
    }

    /// Ends the packets that were sent to this CPU, in bulk, and those that were put off (see [`NoBulk`](super::NoBulk)): how many.
    pub fn take_deferred(&self) -> usize {
        if NoBulk::is_entered() {
            return 0;
        }
        self.free_put_off() + self.end_deferred(cpu::current())
    }
}
