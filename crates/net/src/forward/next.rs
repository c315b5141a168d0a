//! The next station: from where a route leads to the packet's Ethernet header, the same for both families.

use super::address::Address;
use super::forwarder::{Forwarder, Pass};
use super::header::Link;
use super::neighbour::{Due, Neighbours, Waits, seconds};
use super::routes::{NextHop, Routes, Via};
use crate::packet::{DropReason, Skb};

/// What the families do each in its way.
pub(super) trait Family: Address {
    /// The neighbours.
    fn neighbours<'f, 'n>(of: &'f Forwarder<'n>) -> &'f Neighbours<'n, Self>;
    /// The routes.
    fn routes<'f>(of: &'f Forwarder<'_>) -> &'f Routes<Self>;
    /// Asks for a neighbour: all stations, or the one that it was.
    fn ask(pass: &mut Pass<'_, '_>, interface: u32, target: Self, link: Option<Link>);
    /// Tells who sent a packet that the next station does not answer.
    fn tell_unreachable<'n>(pass: &mut Pass<'_, 'n>, skb: &Skb<'n>);
}

impl<'n> Pass<'_, 'n> {
    /// Sends a packet to where its route leads.
    #[inline(always)]
    pub(super) fn send_next<A: Family>(&mut self, skb: Skb<'n>, hop: NextHop<A>, destination: A) {
        let target = if let Via::Gateway(gateway) = hop.via { gateway } else { destination };
        match A::neighbours(self.of).get(hop.interface, target) {
            Some(known) => {
                if seconds(self.now) >= known.until {
                    self.stale(hop.interface, target, known.link);
                }
                self.send(skb, hop.interface, known.link);
            }
            None => self.wait(skb, hop.interface, target),
        }
    }

    #[cold]
    fn stale<A: Family>(&mut self, interface: u32, target: A, link: Link) {
        if A::neighbours(self.of).is_to_be_asked(interface, target, self.now) {
            A::ask(self, interface, target, Some(link));
        }
    }

    #[cold]
    fn wait<A: Family>(&mut self, mut skb: Skb<'n>, interface: u32, target: A) {
        // Who is to be told if nobody answers is on the interface by which it came.
        self.note(&mut skb);
        match A::neighbours(self.of).wait(interface, target, skb, self.now) {
            Waits::Known(known, skb) => self.send(skb, interface, known.link),
            Waits::Refused(skb) => self.drop(skb, DropReason::NeighbourFailed),
            Waits::Queued { ask, pushed_out } => {
                for skb in pushed_out.into_iter().flatten() {
                    self.drop_waited(skb, |_, _| {});
                }
                if ask {
                    A::ask(self, interface, target, None);
                }
            }
        }
    }

    /// Asks again for neighbours that have not answered, and gives up some.
    #[cold]
    pub(super) fn look<A: Family>(&mut self) {
        for interface in 0..self.of.interfaces.len() as u32 {
            A::neighbours(self.of).forget(interface, self.now);
            self.look_at_link::<A>(interface);
        }
    }

    fn look_at_link<A: Family>(&mut self, interface: u32) {
        while let Some(due) = A::neighbours(self.of).due(interface, self.now) {
            match due {
                Due::Ask(interface, target) => A::ask(self, interface, target, None),
                Due::Failed(waiting) => {
                    for skb in waiting.into_iter().flatten() {
                        self.drop_waited(skb, |pass, skb| A::tell_unreachable(pass, skb));
                    }
                }
                Due::Known(interface, link, waiting) => self.send_waiting(waiting, interface, link),
            }
        }
    }
}
