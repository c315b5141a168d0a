//! ARP: who has an address of IPv4 on a link.

use super::forwarder::Pass;
use super::header::{Arp, BROADCAST, Ethernet, Link, ether, is_group};
use super::statistics::Count;
use crate::packet::{DropReason, Skb};
use core::net::Ipv4Addr;
use zerocopy::IntoBytes;

const ETHERNET: u16 = 1;
const REQUEST: u16 = 1;
const REPLY: u16 = 2;

impl<'n> Pass<'_, 'n> {
    #[cold]
    pub(super) fn arp(&mut self, skb: Skb<'n>) {
        match skb.data().get(Ethernet::LEN..).and_then(Arp::of) {
            None => self.drop(skb, DropReason::PacketTooSmall),
            Some((&arp, _)) => match self.understand(&arp) {
                Ok(()) => skb.consume_skb(),
                Err(reason) => self.drop(skb, reason),
            },
        }
    }

    fn understand(&mut self, arp: &Arp) -> Result<(), DropReason> {
        let kind = (arp.hardware.get(), arp.protocol.get(), arp.link_len, arp.len);
        if kind != (ETHERNET, ether::IPV4, 6, 4) || is_group(arp.sender_link) {
            return Err(DropReason::BadHeader);
        }
        let (sender, target) = (Ipv4Addr::from(arp.sender), Ipv4Addr::from(arp.target));
        let interface = self.interface();
        let for_us = interface.has4(target);
        let near = |(own, bits): &(Ipv4Addr, u32)| {
            super::Prefix::of(*own, *bits).is_ok_and(|link| link.contains(sender))
        };
        let is_neighbour = interface.v4.iter().any(near) && !interface.has4(sender);
        match arp.operation.get() {
            REQUEST | REPLY if is_neighbour => {
                self.count(Count::Neighbours);
                let create = for_us && arp.operation.get() == REQUEST;
                let link = arp.sender_link;
                let waiting = self.of.neighbours4.learn(self.input, sender, link, create, self.now);
                self.send_waiting(waiting, self.input, link);
            }
            // Somebody looks whether an address is free.
            REQUEST if sender.is_unspecified() => self.count(Count::Neighbours),
            REQUEST | REPLY => return Err(DropReason::Martian),
            _ => return Err(DropReason::BadHeader),
        }
        if for_us && arp.operation.get() == REQUEST {
            self.send_arp(self.input, REPLY, (target, sender), arp.sender_link, arp.sender_link);
        }
        Ok(())
    }

    /// Asks for a neighbour: all stations, or the one that it was.
    #[cold]
    pub(super) fn ask4(&mut self, interface: u32, target: Ipv4Addr, link: Option<Link>) {
        // Who has no address there cannot be answered.
        if let Some(own) = self.of.interfaces[interface as usize].toward4(target) {
            self.count(Count::Asked);
            self.send_arp(interface, REQUEST, (own, target), [0; 6], link.unwrap_or(BROADCAST));
        }
    }

    fn send_arp(
        &mut self,
        interface: u32,
        operation: u16,
        (own, target): (Ipv4Addr, Ipv4Addr),
        target_link: Link,
        to: Link,
    ) {
        let arp = Arp {
            hardware: ETHERNET.into(),
            protocol: ether::IPV4.into(),
            link_len: 6,
            len: 4,
            operation: operation.into(),
            sender_link: self.of.interfaces[interface as usize].link,
            sender: own.octets(),
            target_link,
            target: target.octets(),
        };
        // Without memory it is not sent; who asked asks again.
        if let Some(mut skb) = self.fresh(Arp::LEN, ether::ARP)
            && skb.put_data(arp.as_bytes()).is_ok()
        {
            self.made_here(|pass| pass.send(skb, interface, to));
        }
    }
}
