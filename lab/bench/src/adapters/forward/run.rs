//! One thread's devices, and the loop that moves packets from one to the other.

use std::hint::black_box;
use std::sync::Arc;

use quietline_net::device::{BUDGET, Batch, Ends, Generator, NetDevice, Pair, Sink, Traffic};
use quietline_net::forward::Lane;
use quietline_net::packet::PacketError;
use quietline_platform::atomic::{AtomicBool, Ordering};
use quietline_platform::thread;

use super::many::Aimed;
use super::router::{self, Router};
use super::ways::Buffers;
use super::world::World;
use crate::harness::{Fault, Seat, Worker};
use crate::workloads::Way;
use crate::workloads::forward::RING;

/// A thread with its generator and its sink. What is of packets is above the world, which it ends before.
pub(super) struct Run<B: Buffers> {
    generator: Generator<'static>,
    lanes: [Option<Pair<'static>>; 2],
    /// This thread's part of the router, if there is one.
    routed: Option<Lane<'static>>,
    /// Where its packets go, if that is not the same for all.
    aimed: Option<Aimed>,
    sink: Sink<'static>,
    batch: Batch<'static>,
    buffers: B,
    /// Whether another thread makes what comes here.
    across: bool,
    in_flight: usize,
    /// Runs until now.
    runs: u64,
    seat: Seat,
    world: Arc<World<B>>,
}

impl<B: Buffers> Run<B> {
    pub(super) fn new(
        world: Arc<World<B>>,
        seat: Seat,
        lanes: [Option<Pair<'static>>; 2],
    ) -> Result<Self, Fault> {
        let packets = world.packets.0;
        let says = |e| Fault::new(format!("cannot make a device: {e}"));
        let ends = if world.forward.way == Way::Routed6 { Ends::TEST_V6 } else { Ends::TEST_V4 };
        let traffic = Traffic { size: world.forward.size, ends, ..Traffic::default() };
        Ok(Self {
            generator: Generator::new(packets, &traffic).map_err(says)?,
            lanes,
            routed: world.router.as_ref().map(|router| router.lane()).transpose().map_err(says)?,
            aimed: world.router.as_ref().and_then(Router::aimed),
            sink: Sink::new(2 * RING, 1).map_err(says)?,
            batch: Batch::new(),
            buffers: B::new(packets, &world, seat)?,
            across: world.forward.way == Way::Across,
            in_flight: world.forward.in_flight,
            runs: 0,
            seat,
            world,
        })
    }

    /// Makes up to `n` packets and passes on what there is room for: how many it made.
    #[inline(always)]
    fn out(&mut self, n: u64) -> Result<u64, PacketError> {
        let n = n.min(BUDGET as u64) as usize;
        let made = if self.batch.is_empty() {
            let made = self.buffers.make(&mut self.generator, n, &mut self.batch)?;
            if let Some(aimed) = &mut self.aimed {
                aimed.aim(&mut self.batch)?;
            }
            made
        } else {
            0
        };
        let Self { batch, sink, lanes, routed, aimed, world, .. } = self;
        match (&mut lanes[0], routed, &world.router) {
            (Some(lane), ..) => {
                lane.xmit(batch);
            }
            (None, Some(own), Some(router)) => router::route(router, own, batch, sink, aimed),
            (None, ..) => {
                sink.xmit(batch);
            }
        }
        Ok(made as u64)
    }

    /// Takes what has come into the sink, and frees what it has had for long enough: how many came.
    #[inline(always)]
    fn end(&mut self) -> usize {
        let mut came = 0;
        if let Some(lane) = &mut self.lanes[1] {
            let mut batch = Batch::new();
            came = lane.poll(BUDGET, &mut batch).unwrap_or(0);
            self.sink.xmit(&mut batch);
        }
        while self.sink.completed() > self.in_flight {
            self.buffers.free(&mut self.sink);
        }
        came
    }

    fn turns(&mut self, ops: u64, stop: &AtomicBool) -> Result<u64, PacketError> {
        let mut done = 0;
        while done < ops || !self.batch.is_empty() {
            let made = self.out(ops - done)?;
            let came = self.end();
            if made == 0 && came == 0 {
                thread::yield_now();
            }
            done += made;
            // Relaxed: nothing is ordered by the flag.
            if stop.load(Ordering::Relaxed) && done > 0 && self.batch.is_empty() {
                break;
            }
        }
        Ok(done)
    }
}

impl<B: Buffers> Worker for Run<B> {
    #[inline(never)]
    fn run(&mut self, ops: u64, stop: &AtomicBool) -> Result<u64, Fault> {
        self.runs += 1;
        let done = self.turns(ops, stop);
        self.world.end_run();
        // What is still on its way is part of the work.
        while self.across && !self.world.is_over(self.runs) {
            if self.end() == 0 {
                thread::yield_now();
            }
        }
        while self.end() > 0 {}
        black_box(done).map_err(|e| Fault::new(format!("no packet: {e}")))
    }

    /// All that came is freed; it was each packet once and in order, and as many as were sent.
    fn check(&mut self) -> Result<(), Fault> {
        while self.sink.completed() > 0 {
            self.buffers.free(&mut self.sink);
        }
        self.buffers.flush();
        self.world.tell(self.seat, self.generator.made(), self.buffers.slow());
        let tally = self.sink.tally();
        let received = tally.received;
        Fault::unless(received > 0 && tally.is_exactly(received), || {
            format!("not as sent: {tally:?}")
        })?;
        let made = self.generator.made();
        let all_here = !self.across || self.seat.threads == 1;
        Fault::unless(!all_here || received == made, || {
            format!("{received} of {made} packets came")
        })?;
        if let Some(aimed) = &self.aimed {
            return aimed.check();
        }
        let router = self.world.router.as_ref().filter(|_| self.seat.threads == 1);
        let forwarded = router.map_or(made, |router| router::forwarded(router));
        Fault::unless(forwarded == made, || format!("{forwarded} of {made} packets were routed"))
    }
}
