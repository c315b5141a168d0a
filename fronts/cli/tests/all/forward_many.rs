//! Packets with numbers through the forwarder, in memory, between three threads: none is lost, none comes twice or out of order, none
//! is left behind. How many: `QUIETLINE_FORWARD_PACKETS`.

use std::thread;
use std::time::{Duration, Instant};

use quietline_net::device::{BUDGET, Batch, Ends, Generator, NetDevice, Pair, Sink, Traffic};
use quietline_net::forward::{Count, Forwarder, Interface};
use quietline_net::packet::{DropReason, Packets};

/// The links that the forwarder is on, and who sends and receives there.
const LINKS: [[u8; 6]; 4] =
    [[2, 0, 0, 0, 0, 2], [2, 0, 0, 0, 0, 3], [2, 0, 0, 0, 0, 1], [2, 0, 0, 0, 0, 4]];

fn forwarder(packets: &Packets, ends: Ends) -> Forwarder<'_> {
    let interface = |i: usize, v4: &str, v6: &str| {
        Interface::new(LINKS[i], 1500).v4(v4.parse().unwrap(), 16).v6(v6.parse().unwrap(), 64)
    };
    let near = interface(0, "198.18.255.254", "2001:2::ff");
    let far = interface(1, "198.19.255.254", "2001:2:0:1::ff");
    let forwarder = Forwarder::new(packets, vec![near, far]).unwrap();
    match ends {
        Ends::V4([_, to]) => forwarder.set_neighbour4(1, to, LINKS[3]).unwrap(),
        Ends::V6([_, to]) => forwarder.set_neighbour6(1, to, LINKS[3]).unwrap(),
    }
    forwarder
}

/// A thread that has nothing to do: for a minute and not longer, however many packets there are in all.
struct Idle {
    what: &'static str,
    since: Option<Instant>,
}

impl Idle {
    fn new(what: &'static str) -> Self {
        Self { what, since: None }
    }

    /// After a turn that has moved so many packets.
    fn turn(&mut self, moved: usize) {
        if moved > 0 {
            self.since = None;
            return;
        }
        let since = *self.since.get_or_insert_with(Instant::now);
        assert!(since.elapsed() < Duration::from_secs(60), "{}: nothing for a minute", self.what);
        thread::yield_now();
    }
}

/// All that is to be sent, as there is room.
fn send<'n>(device: &mut Pair<'n>, batch: &mut Batch<'n>, idle: &mut Idle) {
    while !batch.is_empty() {
        idle.turn(device.xmit(batch));
    }
}

fn through(traffic: Traffic) {
    let count = traffic.count.unwrap();
    let packets = &Packets::new().unwrap();
    let [mut out, mut near] = Pair::new(1024).unwrap();
    let [mut far, mut end] = Pair::new(1024).unwrap();
    let forwarder = forwarder(packets, traffic.ends);
    thread::scope(|scope| {
        scope.spawn(move || {
            let mut generator = Generator::new(packets, &traffic).unwrap();
            let (mut batch, mut idle) = (Batch::new(), Idle::new("room in the first device"));
            while !generator.is_done() {
                generator.poll(BUDGET, &mut batch).unwrap();
                send(&mut out, &mut batch, &mut idle);
            }
            assert_eq!(generator.made(), count);
        });
        let forwarder = &forwarder;
        scope.spawn(move || {
            let mut lane = forwarder.lane().unwrap();
            let (mut taken, mut batch) = (0, Batch::new());
            let (mut idle, mut full) =
                (Idle::new("packets to forward"), Idle::new("room in the last device"));
            while taken < count {
                let came = near.poll(BUDGET, &mut batch).unwrap();
                idle.turn(came);
                taken += came as u64;
                let mut out = |interface: u32, packets: &mut [Option<_>]| {
                    assert_eq!(interface, 1);
                    let mut batch = Batch::new();
                    batch.take_from(packets);
                    send(&mut far, &mut batch, &mut full);
                };
                let now = quietline_platform::clock::monotonic();
                batch.hand_over(|packets| forwarder.handle(&mut lane, 0, packets, now, &mut out));
            }
        });
        scope.spawn(move || {
            let mut sink = Sink::new(256, traffic.flows).unwrap();
            sink.check_sums(count < 1_000_000);
            let (mut batch, mut idle) = (Batch::new(), Idle::new("packets for the sink"));
            while sink.stats().tx_packets < count {
                idle.turn(end.poll(BUDGET, &mut batch).unwrap());
                sink.send(&mut batch);
                sink.complete(BUDGET);
            }
            assert!(sink.tally().is_exactly(count), "{:?}", sink.tally());
        });
    });
    let counts = forwarder.counts();
    let forwarded =
        if matches!(traffic.ends, Ends::V4(_)) { Count::Forwarded4 } else { Count::Forwarded6 };
    assert_eq!((counts[forwarded], counts[Count::NotSent]), (count, 0));
    assert!(DropReason::ALL.iter().all(|reason| counts[*reason] == 0));
    drop(forwarder);
    assert_eq!(packets.head_stats().active, 0, "heads");
    assert_eq!(packets.data_stats().map(|stats| stats.active), [0; 4], "data");
}

#[test]
fn each_packet_comes_through_once_and_in_order() {
    quietline_testing::isolated!();
    let default = if cfg!(debug_assertions) { 100_000 } else { 10_000_000 };
    let count = quietline_testing::budget("QUIETLINE_FORWARD_PACKETS", default);
    let usual = Traffic { count: Some(count), ..Traffic::default() };
    through(usual);
    let many =
        Traffic { count: Some(count / 10), flows: 1000, size: 1514, ends: Ends::TEST_V6, ..usual };
    through(many);
}
