//! The routers of [`Way::Routed`] and its relatives.

use std::net::{Ipv4Addr, Ipv6Addr};
use std::ops::Deref;

use quietline_net::device::{Batch, NetDevice, Sink};
use quietline_net::forward::{Count, Forwarder, Interface, Lane};
use quietline_net::packet::Packets;
use quietline_platform::clock;

use super::many::{Aimed, Many};
use crate::harness::Fault;
use crate::workloads::Way;

/// What the generator sends to, and what the sink is told to be.
const LINKS: [[u8; 6]; 2] = [[2, 0, 0, 0, 0, 2], [2, 0, 0, 0, 0, 4]];

/// A world's router.
pub(super) enum Router {
    /// Its own.
    Own(Box<Forwarder<'static>>),
    /// That of all worlds with many routes, which takes long to make.
    Many(&'static Many),
}

impl Router {
    /// The router of a way, if there is one.
    pub(super) fn of(way: Way, packets: &'static Packets) -> Result<Option<Self>, Fault> {
        Ok(match way {
            Way::Routed | Way::Routed6 => Some(Self::Own(Box::new(router(packets)?))),
            Way::RoutedMany => Some(Self::Many(Many::get()?)),
            Way::Direct | Way::Pair | Way::Across => None,
        })
    }

    /// What aims a thread's packets, where they go to many.
    pub(super) fn aimed(&self) -> Option<Aimed> {
        if let Self::Many(many) = self { Some(Aimed::new(many)) } else { None }
    }
}

impl Deref for Router {
    type Target = Forwarder<'static>;

    #[inline(always)]
    fn deref(&self) -> &Forwarder<'static> {
        match self {
            Self::Own(router) => router,
            Self::Many(many) => many.router(),
        }
    }
}

/// A router between the networks of the generator and of the sink.
pub(super) fn router(packets: &'static Packets) -> Result<Forwarder<'static>, Fault> {
    let [near, far, sink] =
        [[198, 18, 255, 254], [198, 19, 255, 254], [198, 19, 0, 1]].map(Into::into);
    let of_ipv6 = |network, last| Ipv6Addr::new(0x2001, 2, 0, network, 0, 0, 0, last);
    let interface = |link, address: Ipv4Addr, network| {
        Interface::new(link, 1500).v4(address, 16).v6(of_ipv6(network, 0xfffe), 64)
    };
    let interfaces = vec![interface(LINKS[0], near, 0), interface([2, 0, 0, 0, 0, 3], far, 1)];
    let says = |e| Fault::new(format!("cannot make a router: {e}"));
    let router = Forwarder::new(packets, interfaces).map_err(says)?;
    router.set_neighbour4(1, sink, LINKS[1]).map_err(says)?;
    router.set_neighbour6(1, of_ipv6(1, 1), LINKS[1]).map_err(says)?;
    Ok(router)
}

/// Sends packets by the router to the sink.
#[inline(always)]
pub(super) fn route(
    router: &Forwarder<'static>,
    lane: &mut Lane<'static>,
    batch: &mut Batch<'static>,
    sink: &mut Sink<'static>,
    aimed: &mut Option<Aimed>,
) {
    let mut out = |_port: u32, packets: &mut [Option<_>]| {
        let mut batch = Batch::new();
        batch.take_from(packets);
        if let Some(aimed) = aimed {
            aimed.came(&batch);
        }
        sink.xmit(&mut batch);
    };
    let now = clock::monotonic();
    batch.hand_over(|packets| router.handle(lane, 0, packets, now, &mut out));
}

/// Packets that it has sent on.
pub(super) fn forwarded(router: &Forwarder<'static>) -> u64 {
    let counts = router.counts();
    counts[Count::Forwarded4] + counts[Count::Forwarded6]
}
