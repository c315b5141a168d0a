//! ICMP of IPv6: errors told to senders, and echoes.

use super::checksum::{pseudo6, update};
use super::forwarder::Pass;
use super::header::{Ethernet, Icmp, Ipv6, ether, protocol};
use super::interface::Interface;
use super::statistics::Count;
use crate::packet::{DropReason, Skb};
use core::net::Ipv6Addr;
use zerocopy::IntoBytes;

/// Destination unreachable; its codes follow.
pub(super) const UNREACHABLE: u8 = 1;
pub(super) const NO_ROUTE: u8 = 0;
pub(super) const BEYOND_SCOPE: u8 = 2;
pub(super) const ADDRESS: u8 = 3;
const PORT: u8 = 4;
pub(super) const TOO_BIG: u8 = 2;
pub(super) const TIME_EXCEEDED: u8 = 3;
const BAD_PARAMETER: u8 = 4;
const UNKNOWN_NEXT: u8 = 1;
const ECHO: u8 = 128;
const ECHO_REPLY: u8 = 129;
pub(super) const SOLICITATION: u8 = 135;
pub(super) const ADVERTISEMENT: u8 = 136;
/// Kinds below are errors.
const ASKS: u8 = 128;

/// Extension headers that another header may follow.
const HOP_BY_HOP: u8 = 0;
const ROUTING: u8 = 43;
const FRAGMENT: u8 = 44;
const OPTIONS: u8 = 60;
/// Extension headers of one packet that are looked through.
const CHAIN: usize = 8;

/// What packets that are made here begin with.
const HOPS: u8 = 64;
/// An error is no larger than this (RFC 4443, section 2.4).
const MOST: usize = 1280;

/// What an upper protocol's bytes are, behind extension headers; none if they are not there, or in another fragment.
fn upper<'b>(header: &Ipv6, mut bytes: &'b [u8]) -> Option<(u8, &'b [u8])> {
    let mut next = header.next;
    for _ in 0..CHAIN {
        let len = match next {
            HOP_BY_HOP | ROUTING | OPTIONS => 8 + 8 * usize::from(*bytes.get(1)?),
            FRAGMENT => {
                let offset = u16::from_be_bytes([*bytes.get(2)?, *bytes.get(3)?]);
                if offset & !7 != 0 {
                    return None;
                }
                8
            }
            _ => return Some((next, bytes)),
        };
        next = *bytes.first()?;
        bytes = bytes.get(len..)?;
    }
    None
}

impl<'n> Pass<'_, 'n> {
    /// Tells the sender of a packet what became of it, unless that is not to be told, or too much has been told.
    #[cold]
    pub(super) fn error6(&mut self, skb: &Skb<'n>, header: &Ipv6, kind: u8, code: u8, rest: u32) {
        let to = header.source();
        let bytes = &skb.data()[Ethernet::LEN..];
        // What cannot be looked into is not an error, as far as one can see.
        let of_error = upper(header, &bytes[Ipv6::LEN..]).is_some_and(|(next, message)| {
            next == protocol::ICMPV6 && message.first().is_none_or(|kind| *kind < ASKS)
        });
        if of_error
            || to.is_unspecified()
            || to.is_multicast()
            || header.destination().is_multicast()
        {
            return;
        }
        if !self.may_tell(kind == TOO_BIG) {
            return self.count(Count::Limited);
        }
        let quoted = &bytes[..bytes.len().min(MOST - Ipv6::LEN - Icmp::LEN)];
        let from = self.source6(to);
        if let Some(error) =
            self.message6((from, to), HOPS, (kind, code, rest.to_be_bytes()), quoted)
        {
            self.count(Count::Errors);
            self.made_here(|pass| pass.output6(error, to, pass.input));
        }
    }

    /// As which this station speaks to somebody from whom a packet came: who is beyond the link could answer no address of the link alone, so
    /// where the interface has none but that, another one's stands in.
    fn source6(&self, to: Ipv6Addr) -> Ipv6Addr {
        let own = self.interface().source6(to);
        if to.is_unicast_link_local() || !own.is_unicast_link_local() {
            return own;
        }
        self.of.interfaces.iter().find_map(Interface::first6).unwrap_or(own)
    }

    /// A message of ours. None without memory: then it is not told.
    pub(super) fn message6(
        &mut self,
        (from, to): (Ipv6Addr, Ipv6Addr),
        hops: u8,
        (kind, code, rest): (u8, u8, [u8; 4]),
        body: &[u8],
    ) -> Option<Skb<'n>> {
        let len = Icmp::LEN + body.len();
        let ip = Ipv6 {
            version: Ipv6::VERSION.into(),
            payload: (len as u16).into(),
            next: protocol::ICMPV6,
            hops,
            source: from.octets(),
            destination: to.octets(),
        };
        let mut icmp = Icmp { kind, code, checksum: [0; 2], rest };
        let sum = pseudo6(&ip.source, &ip.destination, len as u32, protocol::ICMPV6);
        icmp.checksum = sum.with(icmp.as_bytes()).with(body).checksum();
        let mut skb = self.fresh(Ipv6::LEN + len, ether::IPV6)?;
        [ip.as_bytes(), icmp.as_bytes(), body]
            .into_iter()
            .try_for_each(|part| skb.put_data(part))
            .ok()?;
        Some(skb)
    }

    /// A packet for an address, or a group, of ours.
    pub(super) fn local6(&mut self, skb: Skb<'n>, header: &Ipv6) {
        match header.next {
            protocol::ICMPV6 => {}
            FRAGMENT => return self.drop(skb, DropReason::UnhandledProtocol),
            next => {
                match next {
                    protocol::UDP => self.error6(&skb, header, UNREACHABLE, PORT, 0),
                    // Where the field is that is not understood.
                    _ => self.error6(&skb, header, BAD_PARAMETER, UNKNOWN_NEXT, 6),
                }
                return self.drop(skb, DropReason::UnhandledProtocol);
            }
        }
        let Some(skb) = self.whole(skb) else { return };
        let bytes = &skb.data()[Ethernet::LEN + Ipv6::LEN..];
        let sum =
            pseudo6(&header.source, &header.destination, bytes.len() as u32, protocol::ICMPV6);
        if !sum.with(bytes).is_right() {
            return self.drop(skb, DropReason::BadChecksum);
        }
        let Some((&icmp, body)) = Icmp::of(bytes) else {
            return self.drop(skb, DropReason::PacketTooSmall);
        };
        match icmp.kind {
            ECHO if header.source().is_unspecified() => self.drop(skb, DropReason::Martian),
            ECHO => self.echo6(skb, header),
            SOLICITATION | ADVERTISEMENT => match self.discovery(header, &icmp, body) {
                Ok(()) => skb.consume_skb(),
                Err(reason) => self.drop(skb, reason),
            },
            // Something else is asked for; or it is an error, to which nobody here listens.
            _ => self.drop(skb, DropReason::UnhandledProtocol),
        }
    }

    fn echo6(&mut self, mut skb: Skb<'n>, header: &Ipv6) {
        let to = header.source();
        // To a group, an address of ours answers.
        let from = if header.destination().is_multicast() {
            self.source6(to)
        } else {
            header.destination()
        };
        let mut done = || {
            let bytes = skb.data_mut().ok()?.get_mut(Ethernet::LEN..)?;
            let (ip, message) = Ipv6::of_mut(bytes)?;
            (ip.source, ip.destination, ip.hops) = (from.octets(), header.source, HOPS);
            let (icmp, _) = Icmp::of_mut(message)?;
            icmp.kind = ECHO_REPLY;
            let mut sum = u16::from_be_bytes(icmp.checksum);
            let word = |kind| u16::from_be_bytes([kind, icmp.code]);
            sum = update(sum, word(ECHO), word(ECHO_REPLY));
            // The two addresses change places, which the sum does not see, unless it was a group.
            if from != header.destination() {
                let pairs = header.destination().segments().into_iter().zip(from.segments());
                sum = pairs.fold(sum, |sum, (old, new)| update(sum, old, new));
            }
            icmp.checksum = sum.to_be_bytes();
            Some(())
        };
        match done() {
            Some(()) => {
                self.count(Count::Echoes);
                self.made_here(|pass| pass.output6(skb, to, pass.input));
            }
            None => self.drop(skb, DropReason::BadHeader),
        }
    }
}
