//! The router of [`Way::Routed`](crate::workloads::Way::Routed).

use quietline_net::device::{Batch, NetDevice, Sink};
use quietline_net::forward::{Count, Forwarder, Interface, Lane};
use quietline_net::packet::Packets;
use quietline_platform::clock;

use crate::harness::Fault;

/// What the generator sends to, and what the sink is told to be.
const LINKS: [[u8; 6]; 2] = [[2, 0, 0, 0, 0, 2], [2, 0, 0, 0, 0, 4]];

/// A router between the networks of the generator and of the sink.
pub(super) fn router(packets: &'static Packets) -> Result<Forwarder<'static>, Fault> {
    let [near, far, sink] = [[198, 18, 255, 254], [198, 19, 255, 254], [198, 19, 0, 1]].map(Into::into);
    let interface = |link, address| Interface::new(link, 1500).v4(address, 16);
    let interfaces = vec![interface(LINKS[0], near), interface([2, 0, 0, 0, 0, 3], far)];
    let says = |e| Fault::new(format!("cannot make a router: {e}"));
    let router = Forwarder::new(packets, interfaces).map_err(says)?;
    router.set_neighbour4(1, sink, LINKS[1]).map_err(says)?;
    Ok(router)
}

/// Sends packets by the router to the sink.
#[inline(always)]
pub(super) fn route(
    router: &Forwarder<'static>,
    lane: &mut Lane<'static>,
    batch: &mut Batch<'static>,
    sink: &mut Sink<'static>,
) {
    let mut out = |_port: u32, packets: &mut [Option<_>]| {
        let mut batch = Batch::new();
        batch.take_from(packets);
        sink.xmit(&mut batch);
    };
    let now = clock::monotonic();
    batch.hand_over(|packets| router.handle(lane, 0, packets, now, &mut out));
}

/// Packets that it has sent on.
pub(super) fn forwarded(router: &Forwarder<'static>) -> u64 {
    router.counts()[Count::Forwarded4]
}
