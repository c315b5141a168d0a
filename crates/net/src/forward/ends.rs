//! How packets end, and as what they are counted: each that came in as one thing only.
//!
//! Packets that are made here take the same ways, and may be dropped there as well: of all that is sent it is known whether it was made
//! here, also of what waits, where the packet's device says so.
//!
//! A packet is counted as sent on when it is ready to go. Of those that a device leaves, which are few, that is taken back.

use super::forwarder::{Forwarder, Pass};
use super::header::{Link, ether};
use super::neighbour::Waiting;
use super::statistics::{Count, Counts};
use crate::packet::{DropReason, Skb, are_none};

/// Packets that were counted as sent on, and that a device has left, of each family.
#[derive(Default)]
pub(super) struct Left {
    v4: u64,
    v6: u64,
}

impl Left {
    /// Takes them back.
    #[inline(always)]
    pub(super) fn take_from(&mut self, counts: &mut Counts) {
        let Self { v4, v6 } = core::mem::take(self);
        counts.take_back(Count::Forwarded4, v4);
        counts.take_back(Count::Forwarded6, v6);
    }
}

/// As the device of a packet that waits, of one that was made here. (There is no interface of this number.)
const OWN: u32 = u32::MAX;

impl<'n> Pass<'_, 'n> {
    /// Drops a packet, for a reason that is counted.
    #[cold]
    pub(super) fn drop(&mut self, skb: Skb<'n>, reason: DropReason) {
        self.lane.counts.drop(reason);
        if self.own {
            self.count(Count::OwnDropped);
        }
        skb.kfree_skb(reason);
    }

    /// Sends something that was made here.
    pub(super) fn made_here(&mut self, send: impl FnOnce(&mut Self)) {
        self.with_own(true, send);
    }

    fn with_own(&mut self, own: bool, work: impl FnOnce(&mut Self)) {
        let before = core::mem::replace(&mut self.own, own);
        work(self);
        self.own = before;
    }

    /// Writes down what is to be known of a packet that is going to wait: by which interface it came, or that it was made here.
    /// (One that others have a part in was made a packet of ours before.)
    pub(super) fn note(&self, skb: &mut Skb<'n>) {
        let noted = skb.set_device(if self.own { OWN } else { self.input });
        debug_assert!(noted.is_ok(), "a packet that may be written");
    }

    /// Drops a packet that has waited in vain. `tell` is called before, with the interface by which the packet came, unless it was
    /// made here.
    pub(super) fn drop_waited(&mut self, skb: Skb<'n>, tell: impl FnOnce(&mut Self, &Skb<'n>)) {
        let own = skb.device() == OWN;
        if !own && (skb.device() as usize) < self.of.interfaces.len() {
            let input = core::mem::replace(&mut self.input, skb.device());
            tell(self, &skb);
            self.input = input;
        }
        self.with_own(own, |pass| pass.drop(skb, DropReason::NeighbourFailed));
    }

    /// Sends what has waited for a neighbour.
    pub(super) fn send_waiting(&mut self, waiting: Waiting<'n>, interface: u32, to: Link) {
        for skb in waiting.into_iter().flatten() {
            self.with_own(skb.device() == OWN, |pass| pass.send(skb, interface, to));
        }
    }
}

pub(super) fn is_ipv6(skb: &Skb<'_>) -> bool {
    skb.data().get(12..14) == Some(&ether::IPV6.to_be_bytes())
}

/// Drops packets that a device has left; bit `i` of `own` is set for those that were made here.
#[inline(always)]
pub(super) fn drop_left(
    packets: &mut [Option<Skb<'_>>],
    own: u64,
    counts: &mut Counts,
    left: &mut Left,
) {
    if !are_none(packets) {
        drop_some(packets, own, counts, left);
    }
}

#[cold]
fn drop_some(packets: &mut [Option<Skb<'_>>], own: u64, counts: &mut Counts, left: &mut Left) {
    for (i, place) in packets.iter_mut().enumerate() {
        let Some(skb) = place.take() else { continue };
        counts.add(Count::NotSent);
        counts.drop(DropReason::QueueFull);
        if own >> i & 1 != 0 {
            counts.add(Count::OwnDropped);
        } else {
            *if is_ipv6(&skb) { &mut left.v6 } else { &mut left.v4 } += 1;
        }
        skb.kfree_skb(DropReason::QueueFull);
    }
}

impl Drop for Forwarder<'_> {
    fn drop(&mut self) {
        let end = |skb: Skb<'_>| skb.kfree_skb(DropReason::NeighbourFailed);
        self.neighbours4.end(end);
        self.neighbours6.end(end);
    }
}
