//! Neighbour discovery: who has an address of IPv6 on a link (RFC 4861).

use super::forwarder::Pass;
use super::header::{Icmp, Ipv6, Link, Neighbour, is_group};
use super::icmp6::{ADVERTISEMENT, SOLICITATION};
use super::interface::{ALL_NODES, group_link, solicited};
use super::neighbour::Advertised;
use super::statistics::Count;
use crate::packet::DropReason;
use core::net::Ipv6Addr;
use zerocopy::IntoBytes;

/// What a message on the link begins with, and nothing from elsewhere can have.
const HOPS: u8 = 255;
/// Options: the sender's link address, the target's.
const SOURCE_LINK: u8 = 1;
const TARGET_LINK: u8 = 2;
/// Flags of an advertisement: from a router, asked for, to replace what is known.
const ROUTER: u8 = 0x80;
const SOLICITED: u8 = 0x40;
const OVERRIDE: u8 = 0x20;
const TARGET_LEN: usize = 16;

/// The link address in an option of a kind; an error if the options make no sense.
fn link_option(mut options: &[u8], kind: u8) -> Result<Option<Link>, DropReason> {
    let mut found = None;
    while let [which, units, ..] = *options {
        let len = usize::from(units) * 8;
        if len == 0 || len > options.len() {
            return Err(DropReason::BadHeader);
        }
        if which == kind {
            // One that no station of an Ethernet has is not the same as none.
            let link = options[2..len].try_into().ok().filter(|link| !is_group(*link));
            found = Some(link.ok_or(DropReason::BadHeader)?);
        }
        options = &options[len..];
    }
    Ok(found)
}

impl Pass<'_, '_> {
    /// A solicitation or an advertisement, whose checksum is right.
    pub(super) fn discovery(
        &mut self,
        header: &Ipv6,
        icmp: &Icmp,
        body: &[u8],
    ) -> Result<(), DropReason> {
        let (source, destination) = (header.source(), header.destination());
        let (target, options) =
            body.split_first_chunk::<TARGET_LEN>().ok_or(DropReason::PacketTooSmall)?;
        let target = Ipv6Addr::from(*target);
        if header.hops != HOPS || icmp.code != 0 || target.is_multicast() {
            return Err(DropReason::BadHeader);
        }
        if icmp.kind == SOLICITATION {
            let link = link_option(options, SOURCE_LINK)?;
            // Without a source somebody looks whether the address is free, and has none to be answered at.
            let free = source.is_unspecified();
            if free && (link.is_some() || !destination.is_multicast()) {
                return Err(DropReason::BadHeader);
            }
            self.count(Count::Neighbours);
            if !self.interface().has6(target) {
                return Ok(());
            }
            if let Some(link) = link
                && self.is_neighbour6(source)
            {
                let waiting = self.of.neighbours6.solicited(self.input, source, link, self.now);
                self.send_waiting(waiting, self.input, link);
            }
            self.advertise(target, if free { ALL_NODES } else { source }, !free);
        } else {
            let flags = icmp.rest[0];
            if destination.is_multicast() && flags & SOLICITED != 0 {
                return Err(DropReason::BadHeader);
            }
            let link = link_option(options, TARGET_LINK)?;
            self.count(Count::Neighbours);
            if self.is_neighbour6(target) {
                let (solicited, replaces) = (flags & SOLICITED != 0, flags & OVERRIDE != 0);
                let says = Advertised { link, solicited, replaces };
                if let Some((link, waiting)) =
                    self.of.neighbours6.advertised(self.input, target, says, self.now)
                {
                    self.send_waiting(waiting, self.input, link);
                }
            }
        }
        Ok(())
    }

    /// Whether an address can be another station's on the link.
    fn is_neighbour6(&self, address: Ipv6Addr) -> bool {
        let interface = self.interface();
        let near = |(own, bits): &(Ipv6Addr, u32)| {
            super::Prefix::of(*own, *bits).is_ok_and(|link| link.contains(address))
        };
        let on_link = address.is_unicast_link_local() || interface.v6.iter().any(near);
        on_link && !interface.has6(address)
    }

    /// Says where an address of ours is.
    fn advertise(&mut self, target: Ipv6Addr, to: Ipv6Addr, asked: bool) {
        let flags = ROUTER | OVERRIDE | if asked { SOLICITED } else { 0 };
        let about = Neighbour {
            target: target.octets(),
            option: TARGET_LINK,
            option_len: 1,
            link: self.interface().link,
        };
        let message = (ADVERTISEMENT, 0, [flags, 0, 0, 0]);
        if let Some(skb) = self.message6((target, to), HOPS, message, about.as_bytes()) {
            self.made_here(|pass| pass.output6(skb, to, pass.input));
        }
    }

    /// Asks for a neighbour: its group, or the station that it was.
    #[cold]
    pub(super) fn ask6(&mut self, interface: u32, target: Ipv6Addr, link: Option<Link>) {
        let device = &self.of.interfaces[interface as usize];
        let group = solicited(target);
        let (to, link) = match link {
            Some(link) => (target, link),
            None => (group, group_link(group)),
        };
        let about = Neighbour {
            target: target.octets(),
            option: SOURCE_LINK,
            option_len: 1,
            link: device.link,
        };
        let from = device.source6(target);
        if let Some(skb) =
            self.message6((from, to), HOPS, (SOLICITATION, 0, [0; 4]), about.as_bytes())
        {
            self.count(Count::Asked);
            self.made_here(|pass| pass.send(skb, interface, link));
        }
    }
}
