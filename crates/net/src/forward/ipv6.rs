//! IPv6: what goes on, and what not.
//!
//! Extension headers are not looked at on the way: a router does nothing with them but with the hop-by-hop options, which it may
//! ignore (RFC 8200, section 4.3).

use super::forwarder::{Forwarder, Pass};
use super::header::{Ethernet, Ipv6, Link};
use super::icmp6;
use super::interface::group_link;
use super::neighbour::Neighbours;
use super::next::Family;
use super::routes::{NextHop, Routes, Via};
use crate::packet::{DropReason, Skb};
use core::net::Ipv6Addr;

/// Why a packet's header is not one; else the header.
#[inline(always)]
fn parse(skb: &Skb<'_>) -> Result<Ipv6, DropReason> {
    let bytes = skb.data().get(Ethernet::LEN..).ok_or(DropReason::PacketTooSmall)?;
    let &header = Ipv6::of(bytes).ok_or(DropReason::PacketTooSmall)?.0;
    if header.version.get() >> 28 != 6 {
        return Err(DropReason::BadHeader);
    }
    if Ethernet::LEN + Ipv6::LEN + usize::from(header.payload.get()) > skb.len() {
        return Err(DropReason::PacketTooSmall);
    }
    Ok(header)
}

/// Whether an address is one that is not forwarded to or from, of those that are not multicast: none, loopback,
/// an IPv4 address in disguise, or link-local.
#[inline(always)]
pub(super) fn stays_here(address: Ipv6Addr) -> bool {
    let bits = address.to_bits();
    bits >> 32 == 0 || bits >> 32 == 0xffff || address.is_unicast_link_local()
}

impl Family for Ipv6Addr {
    #[inline(always)]
    fn neighbours<'f, 'n>(of: &'f Forwarder<'n>) -> &'f Neighbours<'n, Self> {
        &of.neighbours6
    }

    #[inline(always)]
    fn routes<'f>(of: &'f Forwarder<'_>) -> &'f Routes<Self> {
        &of.routes6
    }

    fn ask(pass: &mut Pass<'_, '_>, interface: u32, target: Self, link: Option<Link>) {
        pass.ask6(interface, target, link);
    }

    fn tell_unreachable<'n>(pass: &mut Pass<'_, 'n>, skb: &Skb<'n>) {
        if let Ok(header) = parse(skb) {
            pass.error6(skb, &header, icmp6::UNREACHABLE, icmp6::ADDRESS, 0);
        }
    }
}

impl<'n> Pass<'_, 'n> {
    #[inline(always)]
    pub(super) fn ipv6(&mut self, skb: Skb<'n>, group: bool) {
        let header = match parse(&skb) {
            Ok(header) => header,
            Err(reason) => return self.drop(skb, reason),
        };
        let (source, destination) = (header.source(), header.destination());
        let len = Ethernet::LEN + Ipv6::LEN + usize::from(header.payload.get());
        // An Ethernet's least size may have added some.
        let Some(skb) = self.cut(skb, len) else { return };
        let odd = source.is_multicast() || stays_here(source);
        if odd || destination.is_multicast() || stays_here(destination) {
            return self.near6(skb, &header, group);
        }
        let hop = self.of.routes6.lookup(self.guard, destination);
        let Some(hop @ NextHop { interface, via: Via::Link | Via::Gateway(_) }) = hop else {
            return self.not_on6(skb, &header, hop, group);
        };
        if group {
            return self.drop(skb, DropReason::Martian);
        }
        if header.hops <= 1 {
            self.error6(&skb, &header, icmp6::TIME_EXCEEDED, 0, 0);
            return self.drop(skb, DropReason::TtlExpired);
        }
        let Some(mtu) = self.mtu6(interface) else {
            self.error6(&skb, &header, icmp6::UNREACHABLE, icmp6::NO_ROUTE, 0);
            return self.drop(skb, DropReason::NoRoute);
        };
        if len - Ethernet::LEN > mtu {
            self.error6(&skb, &header, icmp6::TOO_BIG, 0, mtu.min(u32::MAX as usize) as u32);
            return self.drop(skb, DropReason::PacketTooBig);
        }
        let skb = self.write(skb, |data| {
            if let Some((header, _)) = Ipv6::of_mut(&mut data[Ethernet::LEN..]) {
                header.hops -= 1;
            }
        });
        let Some(skb) = skb else { return };
        self.send_next(skb, hop, destination);
    }

    /// A packet that does not leave the link, or should not be there.
    #[cold]
    fn near6(&mut self, skb: Skb<'n>, header: &Ipv6, group: bool) {
        let (source, destination) = (header.source(), header.destination());
        let from_one = source.is_unicast_link_local()
            || !source.is_multicast() && (source.is_unspecified() || !stays_here(source));
        if !from_one || stays_here(destination) && !destination.is_unicast_link_local() {
            return self.drop(skb, DropReason::Martian);
        }
        let interface = self.interface();
        if destination.is_multicast() {
            if !interface.listens6(destination) {
                return self.drop(skb, DropReason::UnhandledProtocol);
            }
            return self.local6(skb, header);
        }
        if !group && interface.has6(destination) {
            return self.local6(skb, header);
        }
        if !group && source.is_unicast_link_local() && !destination.is_unicast_link_local() {
            // To another address of ours, it has arrived; elsewhere it may not go.
            let hop = self.of.routes6.lookup(self.guard, destination);
            if hop.is_some_and(|hop| hop.via == Via::Local) {
                return self.local6(skb, header);
            }
            self.error6(&skb, header, icmp6::UNREACHABLE, icmp6::BEYOND_SCOPE, 0);
        }
        self.drop(skb, DropReason::Martian);
    }

    /// A destination that packets do not go on to.
    #[cold]
    fn not_on6(
        &mut self,
        skb: Skb<'n>,
        header: &Ipv6,
        hop: Option<NextHop<Ipv6Addr>>,
        group: bool,
    ) {
        match hop.map(|hop| hop.via) {
            Some(Via::Local) if !group => self.local6(skb, header),
            Some(Via::Local | Via::Broadcast) => self.drop(skb, DropReason::UnhandledProtocol),
            _ => {
                if !group {
                    self.error6(&skb, header, icmp6::UNREACHABLE, icmp6::NO_ROUTE, 0);
                }
                self.drop(skb, DropReason::NoRoute);
            }
        }
    }

    /// Sends a packet that was made here, its destination in its header: on the link of an interface, if it is for that link.
    pub(super) fn output6(&mut self, skb: Skb<'n>, destination: Ipv6Addr, interface: u32) {
        if destination.is_multicast() {
            return self.send(skb, interface, group_link(destination));
        }
        let hop = if destination.is_unicast_link_local() {
            Some(NextHop { interface, via: Via::Link })
        } else {
            self.of.routes6.lookup(self.guard, destination)
        };
        let Some(hop @ NextHop { interface, via: Via::Link | Via::Gateway(_) }) = hop else {
            return self.drop(skb, DropReason::NoRoute);
        };
        match self.mtu6(interface) {
            None => self.drop(skb, DropReason::NoRoute),
            // An answer to an echo: all else that is made here fits everywhere.
            Some(mtu) if skb.len() - Ethernet::LEN > mtu => {
                self.drop(skb, DropReason::PacketTooBig)
            }
            Some(_) => self.send_next(skb, hop, destination),
        }
    }
}
