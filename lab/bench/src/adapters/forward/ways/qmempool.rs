//! The pool that was set aside in 2015.

use std::sync::Arc;

use quietline_history::alf_queue::{BULK, Local, Qmempool};
use quietline_net::device::{BUDGET, Batch, Generator, Sink};
use quietline_net::packet::{Packets, Skb};

use super::{Buffers, Common, Made, as_new};
use crate::adapters::forward::counts::Slow;
use crate::adapters::forward::world::World;
use crate::harness::{Fault, Seat};

/// Packets from a pool in front of the slab, as `qmempool` had heads. It has less to do than the others: head and data stay together,
/// as one entry of the pool, and no tracer is told that a packet ends.
pub(in crate::adapters::forward) struct Pool {
    packets: &'static Packets,
    local: Local<Skb<'static>>,
    world: Arc<World<Self>>,
    /// Times that this thread was at the shared queue: counted where it is the only one.
    at_queue: Option<u64>,
}

impl Common for Qmempool<Skb<'static>> {
    fn new(_threads: usize) -> Result<Self, Fault> {
        Self::new(1024).map_err(|e| Fault::new(format!("cannot make a pool: {e}")))
    }
}

impl Pool {
    /// What `f` does, with what it changes of the shared queue counted: it goes there for [`BULK`] packets at a time, in turns
    /// that only take or only put.
    #[inline(always)]
    fn counted<R>(&mut self, f: impl FnOnce(&mut Self) -> R) -> R {
        let before = self.world.common.len();
        let done = f(self);
        if let Some(n) = &mut self.at_queue {
            *n += (self.world.common.len().abs_diff(before) / BULK) as u64;
        }
        done
    }
}

impl Buffers for Pool {
    const NAME: &'static str = "history-alf-queue";
    const SAYS: &'static str =
        "a pool of whole packets in front of the slab, on array queues: set aside in 2015";

    type Common = Qmempool<Skb<'static>>;

    fn new(packets: &'static Packets, world: &Arc<World<Self>>, seat: Seat) -> Result<Self, Fault> {
        let at_queue = (seat.threads == 1).then_some(0);
        Ok(Self { packets, local: Local::default(), world: world.clone(), at_queue })
    }

    #[inline(always)]
    fn make(&mut self, from: &mut Generator<'static>, n: usize, out: &mut Batch<'static>) -> Made {
        self.counted(|own| {
            let Self { packets, local, world, .. } = own;
            from.poll_with(n, out, |len| match world.common.alloc(local) {
                Some(skb) => as_new(skb, [0; 5]),
                None => packets.alloc_skb(len),
            })
        })
    }

    #[inline(always)]
    fn free(&mut self, to: &mut Sink<'static>) -> usize {
        self.counted(|own| {
            let Self { local, world, .. } = own;
            to.complete_with(BUDGET, |skb| world.common.free(local, skb, drop))
        })
    }

    fn flush(&mut self) {
        self.world.common.drain(&mut self.local, drop);
    }

    fn slow(&self) -> Slow {
        Slow { queue: self.at_queue, ..Slow::default() }
    }
}
