//! IPv4: what goes on, and what not.

use super::checksum::{Sum, checksum, update};
use super::forwarder::{Forwarder, Pass};
use super::header::{Ethernet, Ipv4, Link, ether};
use super::icmp4;
use super::neighbour::Neighbours;
use super::next::Family;
use super::options::{Refused, blank_options, fill_in, look};
use super::routes::{NextHop, Routes, Via};
use super::statistics::Count;
use crate::packet::{DropReason, Skb};
use core::net::Ipv4Addr;
use zerocopy::IntoBytes;

/// Whether no station can have an address: this network's, loopback, multicast, reserved, broadcast.
#[inline(always)]
pub(super) fn is_no_station(address: Ipv4Addr) -> bool {
    let first = address.octets()[0];
    first.wrapping_sub(1) >= 223 || first == 127
}

/// 169.254.0.0/16, which is not forwarded (RFC 3927, section 2.7).
#[inline(always)]
pub(super) fn is_link_local(address: Ipv4Addr) -> bool {
    address.to_bits() >> 16 == 0xa9fe
}

/// The header's bytes in a packet, options included.
fn header_bytes<'s>(skb: &'s Skb<'_>, header: &Ipv4) -> Option<&'s [u8]> {
    skb.data().get(Ethernet::LEN..Ethernet::LEN + header.header_len())
}

/// Why a packet's header is not one; else the header.
#[inline(always)]
fn parse(skb: &Skb<'_>) -> Result<Ipv4, DropReason> {
    let bytes = skb.data().get(Ethernet::LEN..).ok_or(DropReason::PacketTooSmall)?;
    let &header = Ipv4::of(bytes).ok_or(DropReason::PacketTooSmall)?.0;
    let (len, total) = (header.header_len(), usize::from(header.total.get()));
    if header.version >> 4 != 4 || len < Ipv4::LEN || total < len {
        return Err(DropReason::BadHeader);
    }
    if Ethernet::LEN + total > skb.len() {
        return Err(DropReason::PacketTooSmall);
    }
    let sum = if len == Ipv4::LEN {
        Sum::default().with(header.as_bytes())
    } else {
        Sum::default().with(header_bytes(skb, &header).ok_or(DropReason::PacketTooSmall)?)
    };
    if sum.is_right() { Ok(header) } else { Err(DropReason::BadChecksum) }
}

impl Family for Ipv4Addr {
    #[inline(always)]
    fn neighbours<'f, 'n>(of: &'f Forwarder<'n>) -> &'f Neighbours<'n, Self> {
        &of.neighbours4
    }

    #[inline(always)]
    fn routes<'f>(of: &'f Forwarder<'_>) -> &'f Routes<Self> {
        &of.routes4
    }

    fn ask(pass: &mut Pass<'_, '_>, interface: u32, target: Self, link: Option<Link>) {
        pass.ask4(interface, target, link);
    }

    fn tell_unreachable<'n>(pass: &mut Pass<'_, 'n>, skb: &Skb<'n>) {
        if let Ok(header) = parse(skb) {
            pass.error4(skb, &header, icmp4::UNREACHABLE, icmp4::HOST, [0; 4]);
        }
    }
}

impl<'n> Pass<'_, 'n> {
    pub(super) fn ipv4(&mut self, skb: Skb<'n>, group: bool) {
        let header = match parse(&skb) {
            Ok(header) => header,
            Err(reason) => return self.drop(skb, reason),
        };
        let (source, destination) = (header.source(), header.destination());
        if is_no_station(source) || is_no_station(destination) {
            return self.odd4(skb, source, destination);
        }
        if self.of.own4.has(source) {
            return self.drop(skb, DropReason::Martian);
        }
        let len = Ethernet::LEN + usize::from(header.total.get());
        // An Ethernet's least size may have added some.
        let Some(skb) = self.cut(skb, len) else { return };
        let hop = self.of.routes4.lookup(self.guard, destination);
        let Some(hop @ NextHop { interface, via: Via::Link | Via::Gateway(_) }) = hop else {
            return self.not_on4(skb, &header, hop, group);
        };
        if group || is_link_local(source) || is_link_local(destination) {
            return self.drop(skb, DropReason::Martian);
        }
        if header.ttl <= 1 {
            self.error4(&skb, &header, icmp4::TIME_EXCEEDED, 0, [0; 4]);
            return self.drop(skb, DropReason::TtlExpired);
        }
        let Some(mtu) = self.mtu(interface) else { return self.drop(skb, DropReason::NoRoute) };
        let mut record = None;
        if header.header_len() > Ipv4::LEN {
            match look(header_bytes(&skb, &header).unwrap_or_default()) {
                Ok(at) => record = at.zip(self.own4_toward(hop, destination)),
                Err(refused) => return self.refuse4(skb, &header, refused),
            }
        }
        let before = u16::from_be_bytes([header.ttl, header.protocol]);
        let skb = self.write(skb, |data| {
            let data = &mut data[Ethernet::LEN..];
            if let Some((at, own)) = record {
                fill_in(&mut data[..header.header_len()], at, own);
            }
            if let Some((header, _)) = Ipv4::of_mut(data) {
                header.ttl -= 1;
                header.checksum = update(header.checksum.get(), before, before - 0x100).into();
            }
        });
        let Some(skb) = skb else { return };
        if usize::from(header.total.get()) > mtu {
            return self.too_big4(skb, header, hop, mtu);
        }
        self.send_next(skb, hop, destination);
    }

    /// Our address, as a packet that goes on may say it.
    #[cold]
    fn own4_toward(&self, hop: NextHop<Ipv4Addr>, destination: Ipv4Addr) -> Option<Ipv4Addr> {
        let target = if let Via::Gateway(gateway) = hop.via { gateway } else { destination };
        let there = self.of.interfaces.get(hop.interface as usize);
        self.source4(there.and_then(|interface| interface.toward4(target)))
    }

    #[cold]
    fn refuse4(&mut self, skb: Skb<'n>, header: &Ipv4, refused: Refused) {
        if let Refused::Wrong(at) = refused {
            self.error4(&skb, header, icmp4::BAD_PARAMETER, 0, [at, 0, 0, 0]);
        }
        self.drop(skb, DropReason::BadHeader);
    }

    /// A source or a destination that is no station's.
    #[cold]
    fn odd4(&mut self, skb: Skb<'n>, source: Ipv4Addr, destination: Ipv4Addr) {
        // What is for all on the link, or for a group, is right, but nobody here listens.
        let for_all = destination.is_broadcast() || destination.is_multicast();
        let from_one = !is_no_station(source) || source.is_unspecified();
        let reason =
            if for_all && from_one { DropReason::UnhandledProtocol } else { DropReason::Martian };
        self.drop(skb, reason);
    }

    /// A destination that packets do not go on to.
    #[cold]
    fn not_on4(
        &mut self,
        skb: Skb<'n>,
        header: &Ipv4,
        hop: Option<NextHop<Ipv4Addr>>,
        group: bool,
    ) {
        match hop.map(|hop| hop.via) {
            Some(Via::Local) if !group => self.local4(skb, header),
            Some(Via::Local | Via::Broadcast) => self.drop(skb, DropReason::UnhandledProtocol),
            _ => {
                if !group {
                    let code = if hop.is_some() { icmp4::HOST } else { icmp4::NET };
                    self.error4(&skb, header, icmp4::UNREACHABLE, code, [0; 4]);
                }
                self.drop(skb, DropReason::NoRoute);
            }
        }
    }

    /// Sends a packet that was made here, its destination in its header.
    pub(super) fn output4(&mut self, skb: Skb<'n>, destination: Ipv4Addr) {
        let hop = self.of.routes4.lookup(self.guard, destination);
        let Some(hop @ NextHop { interface, via: Via::Link | Via::Gateway(_) }) = hop else {
            return self.drop(skb, DropReason::NoRoute);
        };
        match (self.mtu(interface), parse(&skb)) {
            (None, _) => self.drop(skb, DropReason::NoRoute),
            (_, Err(reason)) => self.drop(skb, reason),
            (Some(mtu), Ok(header)) if usize::from(header.total.get()) > mtu => {
                self.too_big4(skb, header, hop, mtu);
            }
            _ => self.send_next(skb, hop, destination),
        }
    }

    /// A packet that is larger than the link allows: cut, or, if that is forbidden, told of, unless it was made here.
    #[cold]
    fn too_big4(&mut self, skb: Skb<'n>, header: Ipv4, hop: NextHop<Ipv4Addr>, mtu: usize) {
        let Some(skb) = self.whole(skb) else { return };
        let room = mtu.saturating_sub(header.header_len()) & !7;
        if header.fragment.get() & Ipv4::DONT != 0 || room == 0 {
            if !self.own {
                let [high, low] = (mtu.min(u16::MAX.into()) as u16).to_be_bytes();
                self.error4(&skb, &header, icmp4::UNREACHABLE, icmp4::TOO_BIG, [0, 0, high, low]);
            }
            return self.drop(skb, DropReason::PacketTooBig);
        }
        let (head, body) = skb.data()[Ethernet::LEN..].split_at(header.header_len());
        let offset = header.fragment.get() & Ipv4::OFFSET;
        // No packet is as long as what this is said to be a piece of, and where its own pieces are could not be said.
        if usize::from(offset) * 8 + body.len() > usize::from(u16::MAX) {
            return self.drop(skb, DropReason::BadHeader);
        }
        let pieces = body.len().div_ceil(room);
        for (i, piece) in body.chunks(room).enumerate() {
            let last = i + 1 == pieces;
            let more = !last || header.fragment.get() & Ipv4::MORE != 0;
            let made =
                self.fresh(head.len() + piece.len(), ether::IPV4).and_then(|mut fragment| {
                    fragment.put_data(head).ok()?;
                    fragment.put_data(piece).ok()?;
                    let bytes = fragment.data_mut().ok()?.get_mut(Ethernet::LEN..)?;
                    if offset != 0 || i > 0 {
                        blank_options(bytes.get_mut(Ipv4::LEN..head.len())?);
                    }
                    let (new, _) = Ipv4::of_mut(bytes)?;
                    new.total = ((head.len() + piece.len()) as u16).into();
                    let flag = if more { Ipv4::MORE } else { 0 };
                    new.fragment = ((offset + (i * room / 8) as u16) | flag).into();
                    new.checksum = 0.into();
                    let sum = checksum(&bytes[..head.len()]);
                    let (new, _) = Ipv4::of_mut(bytes)?;
                    new.checksum = u16::from_be_bytes(sum).into();
                    Some(fragment)
                });
            match made {
                Some(fragment) => {
                    self.count(Count::Fragments);
                    let send =
                        |pass: &mut Self| pass.send_next(fragment, hop, header.destination());
                    // The last one stands for the packet.
                    if last { send(self) } else { self.made_here(send) }
                }
                // The others are of no use without it.
                None => return self.drop(skb, DropReason::NoMemory),
            }
        }
        skb.consume_skb();
    }
}
