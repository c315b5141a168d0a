//! ICMP: errors told to senders, and echoes.

use super::checksum::{Sum, checksum, update};
use super::forwarder::Pass;
use super::header::{Ethernet, Icmp, Ipv4, ether, protocol};
use super::interface::Interface;
use super::statistics::Count;
use crate::packet::{DropReason, Skb};
use core::net::Ipv4Addr;
use zerocopy::IntoBytes;

/// Destination unreachable; its codes follow.
pub(super) const UNREACHABLE: u8 = 3;
pub(super) const NET: u8 = 0;
pub(super) const HOST: u8 = 1;
const PROTOCOL: u8 = 2;
const PORT: u8 = 3;
pub(super) const TOO_BIG: u8 = 4;
pub(super) const TIME_EXCEEDED: u8 = 11;
pub(super) const BAD_PARAMETER: u8 = 12;
const ECHO_REPLY: u8 = 0;
const ECHO: u8 = 8;

/// Kinds that are not answered by errors: those that are errors, and all that are not known (RFC 1812, section 4.3.2.7).
const ASKS: [u8; 6] = [ECHO_REPLY, ECHO, 13, 14, 17, 18];

/// What packets that are made here begin with.
const TTL: u8 = 64;
/// An error is no larger than this (RFC 1812, section 4.3.2.3).
const MOST: usize = 576;

impl<'n> Pass<'_, 'n> {
    /// Tells the sender of a packet what became of it, unless that is not to be told, or too much has been told.
    #[cold]
    pub(super) fn error4(
        &mut self,
        skb: &Skb<'n>,
        header: &Ipv4,
        kind: u8,
        code: u8,
        rest: [u8; 4],
    ) {
        let to = header.source();
        let bytes = &skb.data()[Ethernet::LEN..];
        let of_error = header.protocol == protocol::ICMP
            && bytes.get(header.header_len()).is_none_or(|kind| !ASKS.contains(kind));
        if of_error || header.fragment.get() & Ipv4::OFFSET != 0 {
            return;
        }
        // Who forwards without an address of its own has nothing to sign with.
        let Some(from) = self.source4(self.interface().first4()) else { return };
        if !self.may_tell((kind, code) == (UNREACHABLE, TOO_BIG)) {
            return self.count(Count::Limited);
        }
        let quoted = &bytes[..bytes.len().min(MOST - Ipv4::LEN - Icmp::LEN)];
        let len = Ipv4::LEN + Icmp::LEN + quoted.len();
        let ip = header_from(from, to, len);
        let mut icmp = Icmp { kind, code, checksum: [0; 2], rest };
        icmp.checksum = Sum::default().with(icmp.as_bytes()).with(quoted).checksum();
        let made = self.fresh(len, ether::IPV4).and_then(|mut error| {
            [ip.as_bytes(), icmp.as_bytes(), quoted]
                .into_iter()
                .try_for_each(|part| error.put_data(part))
                .ok()?;
            Some(error)
        });
        // Without memory it is not told.
        if let Some(error) = made {
            self.count(Count::Errors);
            self.made_here(|pass| pass.output4(error, to));
        }
    }

    /// As which this station speaks of itself: by an interface's address, or, where that has none, by another one's.
    pub(super) fn source4(&self, own: Option<Ipv4Addr>) -> Option<Ipv4Addr> {
        own.or_else(|| self.of.interfaces.iter().find_map(Interface::first4))
    }

    /// A packet for an address of ours.
    pub(super) fn local4(&mut self, skb: Skb<'n>, header: &Ipv4) {
        if header.is_fragment() {
            return self.drop(skb, DropReason::UnhandledProtocol);
        }
        if header.protocol != protocol::ICMP {
            let code = if header.protocol == protocol::UDP { PORT } else { PROTOCOL };
            self.error4(&skb, header, UNREACHABLE, code, [0; 4]);
            return self.drop(skb, DropReason::UnhandledProtocol);
        }
        let Some(mut skb) = self.whole(skb) else { return };
        match answer(&mut skb, header) {
            Ok(()) => {
                self.count(Count::Echoes);
                self.made_here(|pass| pass.output4(skb, header.source()));
            }
            Err(reason) => self.drop(skb, reason),
        }
    }
}

/// Makes an echo request the answer, which may be cut on its way, as Linux's may, whatever the request said. One that must not be cut
/// need not have a number of its own (RFC 6864); its answer has one that follows from what tells requests apart.
fn answer(skb: &mut Skb<'_>, header: &Ipv4) -> Result<(), DropReason> {
    let bytes = skb.data_mut().map_err(|_| DropReason::NoMemory)?;
    let bytes = &mut bytes[Ethernet::LEN..];
    let (head, message) = bytes.split_at_mut(header.header_len());
    if !Sum::default().with(message).is_right() {
        return Err(DropReason::BadChecksum);
    }
    let (icmp, _) = Icmp::of_mut(message).ok_or(DropReason::PacketTooSmall)?;
    if icmp.kind != ECHO {
        return Err(DropReason::UnhandledProtocol);
    }
    icmp.kind = ECHO_REPLY;
    let before = u16::from_be_bytes([ECHO, icmp.code]);
    let after = u16::from_be_bytes([ECHO_REPLY, icmp.code]);
    icmp.checksum = update(u16::from_be_bytes(icmp.checksum), before, after).to_be_bytes();
    let [a, b, c, d] = icmp.rest;
    let number = u16::from_be_bytes([a, b]).wrapping_add(u16::from_be_bytes([c, d]));
    let (ip, _) = Ipv4::of_mut(head).ok_or(DropReason::PacketTooSmall)?;
    if header.fragment.get() & Ipv4::DONT != 0 {
        ip.id = number.into();
    }
    ip.fragment = 0.into();
    (ip.source, ip.destination) = (header.destination, header.source);
    (ip.ttl, ip.checksum) = (TTL, 0.into());
    let sum = checksum(head);
    let (ip, _) = Ipv4::of_mut(head).ok_or(DropReason::PacketTooSmall)?;
    ip.checksum = u16::from_be_bytes(sum).into();
    Ok(())
}

/// The header of a message of ours.
fn header_from(from: Ipv4Addr, to: Ipv4Addr, len: usize) -> Ipv4 {
    let mut ip = Ipv4 {
        version: 0x45,
        // Internetwork control, as RFC 1812, section 4.3.2.5, has it.
        tos: 0xc0,
        total: (len as u16).into(),
        id: 0.into(),
        fragment: Ipv4::DONT.into(),
        ttl: TTL,
        protocol: protocol::ICMP,
        checksum: 0.into(),
        source: from.octets(),
        destination: to.octets(),
    };
    ip.checksum = u16::from_be_bytes(checksum(ip.as_bytes())).into();
    ip
}
