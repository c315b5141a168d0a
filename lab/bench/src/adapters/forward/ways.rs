//! The ways in which packets are made and freed.

use std::sync::Arc;

use quietline_history::alf_queue::{Local, Qmempool};
use quietline_net::device::{BUDGET, Batch, Generator, NetDevice, Sink};
use quietline_net::packet::{self, PacketError, Packets, Skb, WAITLIST, Waitlist};

use super::run::Buffers;
use super::world::World;
use crate::harness::Fault;

type Made = Result<usize, PacketError>;

/// One by one.
pub(super) struct Single(&'static Packets);

impl Buffers for Single {
    type Shared = ();

    fn shared() -> Result<(), Fault> {
        Ok(())
    }

    fn new(packets: &'static Packets, _world: &Arc<World<Self>>) -> Self {
        Self(packets)
    }

    #[inline(always)]
    fn make(&mut self, from: &mut Generator<'static>, n: usize, out: &mut Batch<'static>) -> Made {
        from.poll_with(n, out, |len| self.0.alloc_skb(len))
    }

    #[inline(always)]
    fn free(&mut self, to: &mut Sink<'static>) -> usize {
        to.complete_with(BUDGET, drop)
    }
}

/// Made one by one, freed by a waitlist of `N`.
pub(super) struct OnWaitlist<const N: usize>(&'static Packets);

impl<const N: usize> Buffers for OnWaitlist<N> {
    type Shared = ();

    fn shared() -> Result<(), Fault> {
        Ok(())
    }

    fn new(packets: &'static Packets, _world: &Arc<World<Self>>) -> Self {
        Self(packets)
    }

    #[inline(always)]
    fn make(&mut self, from: &mut Generator<'static>, n: usize, out: &mut Batch<'static>) -> Made {
        from.poll_with(n, out, |len| self.0.alloc_skb(len))
    }

    #[inline(always)]
    fn free(&mut self, to: &mut Sink<'static>) -> usize {
        let mut done = Waitlist::<N>::new();
        to.complete_with(BUDGET, |skb| done.add(skb))
    }
}

/// From a stack of the thread's own, and back to it.
pub(super) struct Napi(packet::Napi<'static>);

impl Buffers for Napi {
    type Shared = ();

    fn shared() -> Result<(), Fault> {
        Ok(())
    }

    fn new(packets: &'static Packets, _world: &Arc<World<Self>>) -> Self {
        Self(packets.napi())
    }

    #[inline(always)]
    fn make(&mut self, from: &mut Generator<'static>, n: usize, out: &mut Batch<'static>) -> Made {
        from.poll_with(n, out, |len| self.0.alloc_skb(len))
    }

    #[inline(always)]
    fn free(&mut self, to: &mut Sink<'static>) -> usize {
        to.complete_with(BUDGET, |skb| self.0.consume_skb(skb))
    }

    fn flush(&mut self) {
        self.0.flush();
    }
}

/// Made one by one, and sent home: a thread ends what was sent to its CPU before it makes more.
pub(super) struct Deferred(&'static Packets);

impl Buffers for Deferred {
    type Shared = ();

    fn shared() -> Result<(), Fault> {
        Ok(())
    }

    fn new(packets: &'static Packets, _world: &Arc<World<Self>>) -> Self {
        Self(packets)
    }

    #[inline(always)]
    fn make(&mut self, from: &mut Generator<'static>, n: usize, out: &mut Batch<'static>) -> Made {
        self.0.take_deferred();
        from.poll_with(n, out, |len| self.0.alloc_skb(len))
    }

    #[inline(always)]
    fn free(&mut self, to: &mut Sink<'static>) -> usize {
        to.complete_with(BUDGET, |skb| self.0.defer_free(skb))
    }

    fn flush(&mut self) {
        self.0.take_deferred();
    }

    fn kept(_shared: &()) -> usize {
        packet::DEFER_MAX as usize * quietline_platform::cpu::nr_cpus()
    }
}

/// As the devices of quietline do it themselves: made in bulk, freed by a waitlist.
pub(super) struct Bulk;

const _: () = assert!(WAITLIST == 32, "as the column says");

impl Buffers for Bulk {
    type Shared = ();

    fn shared() -> Result<(), Fault> {
        Ok(())
    }

    fn new(_packets: &'static Packets, _world: &Arc<World<Self>>) -> Self {
        Self
    }

    #[inline(always)]
    fn make(&mut self, from: &mut Generator<'static>, n: usize, out: &mut Batch<'static>) -> Made {
        from.poll(n, out).map_err(|_| PacketError::NoMemory)
    }

    #[inline(always)]
    fn free(&mut self, to: &mut Sink<'static>) -> usize {
        to.complete(BUDGET)
    }
}

/// Packets from a pool in front of the slab, as `qmempool` had heads. It has less to do than the others: head and data stay together,
/// as one entry of the pool, and no tracer is told that a packet ends.
pub(super) struct Pool {
    packets: &'static Packets,
    local: Local<Skb<'static>>,
    world: Arc<World<Self>>,
}

impl Buffers for Pool {
    type Shared = Qmempool<Skb<'static>>;

    fn shared() -> Result<Self::Shared, Fault> {
        Qmempool::new(1024).map_err(|e| Fault::new(format!("cannot make a pool: {e}")))
    }

    fn new(packets: &'static Packets, world: &Arc<World<Self>>) -> Self {
        Self { packets, local: Local::default(), world: world.clone() }
    }

    #[inline(always)]
    fn make(&mut self, from: &mut Generator<'static>, n: usize, out: &mut Batch<'static>) -> Made {
        let Self { packets, local, world } = self;
        from.poll_with(n, out, |len| match world.shared.alloc(local) {
            Some(skb) => as_new(skb),
            None => packets.alloc_skb(len),
        })
    }

    #[inline(always)]
    fn free(&mut self, to: &mut Sink<'static>) -> usize {
        let Self { local, world, .. } = self;
        to.complete_with(BUDGET, |skb| world.shared.free(local, skb, drop))
    }

    fn flush(&mut self) {
        self.world.shared.drain(&mut self.local, drop);
    }
}

/// A packet that was used, as the slab would give it: every field that `alloc_skb` writes and a user may have changed.
#[inline(always)]
fn as_new(mut skb: Skb<'static>) -> Result<Skb<'static>, PacketError> {
    skb.trim(0)?;
    skb.set_protocol(0)?;
    skb.set_device(0)?;
    skb.set_mark(0)?;
    skb.set_hash(0)?;
    skb.set_timestamp(0)?;
    skb.set_cb([0; 5])?;
    skb.set_destructor(None)?;
    Ok(skb)
}
