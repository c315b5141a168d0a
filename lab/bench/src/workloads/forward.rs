//! Packets that come from one device, go to another, and are freed when that one says that they are sent.

use super::{Case, Job, Shown, Workload};

/// The experiment of 2015: a forwarder, with single free beside bulk.
///
/// Every packet is written, headers, checksums and payload, by the generator, and looked at by the sink, which knows at the end that
/// it had each once, and in order. Columns differ in how a packet's memory is got and given back.
pub static FORWARD: Workload = Workload {
    name: "forward",
    says: "packets made by a generator, passed on, and freed by the completions of a sink, in turns of 64",
    operation: "packet",
    cases: &[
        case("direct-64", 64, Way::Direct, 0),
        case("ring-64", 64, Way::Direct, RING),
        case("ring-1514", 1514, Way::Direct, RING),
        case("pair-64", 64, Way::Pair, RING),
        case("across-64", 64, Way::Across, RING),
        case("routed-64", 64, Way::Routed, RING),
        case("routed-64-many", 64, Way::RoutedMany, RING),
        case("routed6-78", 78, Way::Routed6, RING),
    ],
    shown: Shown::Everything,
};

/// Packets that a device's TX ring holds: that of the seed's driver.
pub const RING: usize = 512;

const fn case(name: &'static str, size: usize, way: Way, in_flight: usize) -> Case {
    Case { name, job: Job::Forward(Forward { size, way, in_flight }), by_default: true }
}

/// Packets on their way. An operation is one packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Forward {
    /// Bytes of a frame.
    pub size: usize,
    /// What is between the generator and the sink.
    pub way: Way,
    /// So many packets stay in the sink's ring, sent and not freed, from turn to turn: so that what is freed is cold, and its slab
    /// not one that is allocated from.
    pub in_flight: usize,
}

/// What is between the generator and the sink.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Way {
    /// Nothing.
    Direct,
    /// A pair of devices in memory, both ends of the same thread.
    Pair,
    /// The same, but what a thread makes goes to the next thread's sink; with one thread, to its own.
    Across,
    /// A router of IPv4, that all threads share: a route to the sink's network, and a neighbour that is known.
    Routed,
    /// The same, with a route from among more than a hundred thousand for each of 65,536 destinations, which come in no order, and
    /// one of 64 gateways at its end. The destination is put into packets that the generator has made.
    RoutedMany,
    /// As [`Routed`](Self::Routed), of IPv6. (78 bytes are the least in which a packet of IPv6 can say what the sink wants to know.)
    Routed6,
}

impl Way {
    /// Whether there is a router.
    pub fn is_routed(self) -> bool {
        matches!(self, Self::Routed | Self::RoutedMany | Self::Routed6)
    }
}
