//! Packets that go home: ended on one CPU, freed on the one that made them.
//!
//! A receiver that frees what an interrupt on another CPU has made drains that CPU's memory into its own, and misses on
//! every line of it. So it puts the packet into a list of the CPU that made it, which frees it with its own next batch:
//! `skb_attempt_defer_free`, worth half of a UDP test's rate on a large machine in 2022.

use super::listeners::Event;
use super::raw::{AWAY, Away, Packets, Skb};
use super::{NoBulk, kfree_skb_bulk};
use quietline_platform::cpu;

/// Packets that may wait for a CPU; what comes on top is freed where it is.
pub const DEFER_MAX: u32 = if cfg!(loom) { 2 } else { 128 };

impl Packets {
    /// Ends a reference to a packet that was used: if it was made on another CPU, and the reference is the only one, by sending it
    /// there. Its end comes when that CPU [takes](Self::take_deferred) what was sent to it, when a [poller](super::Napi) there needs
    /// memory, when somebody calls [`shrink`](Self::shrink), or when the packets end: [`DEFER_MAX`] wait for a CPU that does nothing of
    /// this.
    ///
    /// Writes the other CPU's list: two locked instructions on its line. Of many packets, [`defer_free_bulk`](Self::defer_free_bulk) needs them
    /// once.
    pub fn defer_free<'n>(&'n self, skb: Skb<'n>) {
        if !self.is_away(&skb, cpu::current()) {
            return drop(skb);
        }
        let mut away = Away::<1>::new();
        match away.add(skb, Event::Consumed) {
            Ok(_) => away.send(self, |skb, _| drop(skb)),
            Err(shared) => drop(shared),
        }
    }

    /// The same of many packets: those that are to be sent to one CPU go together, up to 32 at a time; those that are to end here end
    /// [in bulk](kfree_skb_bulk), but for those that there is no room for at home. The entries are `None` after; those that are `None` before are skipped.
    ///
    /// Writes other CPUs' lists: for each, and for each 32 packets, two locked instructions on its line.
    pub fn defer_free_bulk<'n>(&'n self, packets: &mut [Option<Skb<'n>>]) {
        let mut away = Away::<AWAY>::new();
        let cpu = cpu::current();
        let mut end = |skb: Skb<'n>, _| drop(skb);
        for place in packets.iter_mut() {
            let Some(skb) = place.take_if(|skb| self.is_away(skb, cpu)) else { continue };
            match away.add(skb, Event::Consumed) {
                Ok(false) => {}
                Ok(true) => away.send(self, &mut end),
                Err(shared) => *place = Some(shared),
            }
        }
        away.send(self, end);
        kfree_skb_bulk(packets);
    }

    /// Whether a packet is one of these, and has been made on another CPU.
    fn is_away(&self, skb: &Skb<'_>, cpu: usize) -> bool {
        skb.cpu() != cpu && core::ptr::eq(skb.packets(), self)
    }

    /// Ends the packets that were sent to this CPU, in bulk, and those that were put off (see [`NoBulk`](super::NoBulk)): how many.
    pub fn take_deferred(&self) -> usize {
        if NoBulk::is_entered() {
            return 0;
        }
        self.free_put_off() + self.end_deferred(cpu::current())
    }
}
