//! Forwarding of packets from a generator to a sink.

use crate::processes::{leak, of_objects};
use crate::{Operation, Scene, Sharing};
use core::net::{Ipv4Addr, Ipv6Addr};
use core::time::Duration;
use quietline_net::device::{BUDGET, Batch, Ends, Generator, NetDevice, Sink, Traffic};
use quietline_net::forward::{Forwarder, Interface};
use quietline_net::packet::{Packets, Skb};

/// Packets that the ring of the sink holds.
const RING: usize = 512;

pub(super) fn operations() -> Vec<Operation> {
    let of = |name, about, scene| Operation::new("forward", name, about, scene);
    vec![
        of("forward-ipv4", "one packet of 64 bytes from link to link, IPv4", v4::<1>),
        of("forward-ipv6", "one packet of 78 bytes from link to link, IPv6", v6::<1>),
        of("forward-ipv4-64", "64 packets of 64 bytes, IPv4", v4::<BUDGET>).repeats(BUDGET),
        of("forward-ipv6-64", "64 packets of 78 bytes, IPv6", v6::<BUDGET>).repeats(BUDGET),
    ]
}

/// Link address by its last byte.
fn link(n: u8) -> [u8; 6] {
    [2, 0, 0, 0, 0, n]
}

/// A router between the networks of the generators and of the sinks.
fn router() -> (&'static Packets, Forwarder<'static>) {
    let packets = leak(Packets::new().expect("memory for caches"));
    let v4 = |third| Ipv4Addr::new(198, third, 255, 254);
    let v6 = |net| Ipv6Addr::new(0x2001, 2, 0, net, 0, 0, 0, 0xfffe);
    let interface =
        |n: u8, third, net| Interface::new(link(n), 1500).v4(v4(third), 16).v6(v6(net), 64);
    let interfaces = vec![interface(2, 18, 0), interface(3, 19, 1)];
    let router = Forwarder::new(packets, interfaces).expect("a router");
    let [Ends::V4([_, sink4]), Ends::V6([_, sink6])] = [Ends::TEST_V4, Ends::TEST_V6] else {
        unreachable!("a constant of each family")
    };
    router.set_neighbour4(1, sink4, link(4)).expect("a neighbour");
    router.set_neighbour6(1, sink6, link(4)).expect("a neighbour");
    (packets, router)
}

/// Scene that forwards `N` packets and frees the packets that were sent before them.
fn forward<const N: usize>(sharing: Sharing, ends: Ends, size: usize) -> Scene {
    of_objects(sharing, router, move |shared, _| {
        let packets = shared.0;
        let traffic = Traffic { size, ends, ..Traffic::default() };
        let mut generator = Generator::new(packets, &traffic).expect("a generator");
        let mut sink = Sink::new(2 * RING, 1).expect("a sink");
        let mut lane = shared.1.lane().expect("a lane");
        let mut batch = Batch::new();
        Box::new(move || {
            assert_eq!(generator.poll(N, &mut batch), Ok(N));
            let mut out = |_port: u32, packets: &mut [Option<Skb<'static>>]| {
                let mut going = Batch::new();
                going.take_from(packets);
                sink.xmit(&mut going);
            };
            let now = Duration::from_secs(1);
            batch.hand_over(|came| shared.1.handle(&mut lane, 0, came, now, &mut out));
            assert_eq!(sink.complete(N), N);
            assert!(sink.tally().is_exactly(generator.made()));
        })
    })
}

fn v4<const N: usize>(sharing: Sharing) -> Scene {
    forward::<N>(sharing, Ends::TEST_V4, 64)
}

fn v6<const N: usize>(sharing: Sharing) -> Scene {
    forward::<N>(sharing, Ends::TEST_V6, 78)
}
