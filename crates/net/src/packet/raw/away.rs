//! Packets that are about to be sent home, so that those of one CPU go together: two locked instructions on that CPU's line for all of
//! them.

use super::{Event, Packets, Skb};

/// Packets that go together, at most.
pub(in super::super) const AWAY: usize = if cfg!(loom) { 2 } else { 32 };

/// Up to `N` packets to each of which this has the only reference, with what is noted in them of how they ended. Those that are in it when it is
/// dropped end there.
pub(in super::super) struct Away<'n, const N: usize = AWAY> {
    packets: [Option<Skb<'n>>; N],
    n: usize,
}

impl<'n, const N: usize> Away<'n, N> {
    /// None yet.
    pub(in super::super) const fn new() -> Self {
        Self { packets: [const { None }; N], n: 0 }
    }

    /// Packets that are in it.
    pub(in super::super) fn len(&self) -> usize {
        self.n
    }

    /// Adds a packet, if the reference is the only one. True if there is no room for another: they are to be [sent](Self::send) then.
    ///
    /// # Errors
    /// Gives it back if others have references: a head has one link, so it must not be sent twice. (Whose reference is the only one
    /// gains no rival.)
    #[inline]
    pub(in super::super) fn add(&mut self, skb: Skb<'n>, event: Event) -> Result<bool, Skb<'n>> {
        if skb.is_shared() {
            return Err(skb);
        }
        skb.note(event);
        self.packets[self.n] = Some(skb);
        self.n += 1;
        Ok(self.n == N)
    }

    /// Sends all home, those of one CPU together; gives those that there is no room for to `end`, with how they ended.
    pub(in super::super) fn send(&mut self, of: &Packets, mut end: impl FnMut(Skb<'n>, Event)) {
        let mut packets = &mut self.packets[..core::mem::take(&mut self.n)];
        while let [Some(first), ..] = packets {
            let cpu = first.cpu();
            // Those of its CPU to the front.
            let mut n = 1;
            for i in 1..packets.len() {
                if packets[i].as_ref().is_some_and(|skb| skb.cpu() == cpu) {
                    packets.swap(i, n);
                    n += 1;
                }
            }
            let (together, others) = core::mem::take(&mut packets).split_at_mut(n);
            packets = others;
            let went = of.deferred.push(cpu, together);
            for skb in together[went..].iter_mut().filter_map(Option::take) {
                let event = skb.noted();
                end(skb, event);
            }
        }
    }
}
