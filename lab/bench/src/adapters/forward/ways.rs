//! The ways in which packets are made and freed.

mod qmempool;
mod slub;

use std::marker::PhantomData;
use std::mem;
use std::sync::Arc;

use quietline_net::device::{BUDGET, Batch, Generator, NetDevice, Sink};
use quietline_net::packet::{self, PacketError, Packets, Skb, WAITLIST, Waitlist};
use quietline_slab::Tunables;

use super::counts::Slow;
use super::world::World;
use crate::harness::{Fault, Seat};
pub(super) use qmempool::Pool;
pub(super) use slub::{BULK, LIST, OnSlub, SINGLE};

type Made = Result<usize, PacketError>;

/// What the seed's author wrote into the files of the kernel's cache of heads.
pub(super) const CPU_PARTIAL: usize = 256;
pub(super) const MIN_PARTIAL: usize = 9;

/// How packets are made and freed, by one thread.
pub(super) trait Buffers: Sized + 'static {
    /// The column's name.
    const NAME: &'static str;
    /// One line on what it is.
    const SAYS: &'static str;
    /// Whether it is the slab of packets whose slow paths count.
    const OF_SLAB: bool = true;

    /// What all threads share.
    type Common: Common;

    /// Makes packets that nobody has used what this way wants of them; the world puts tunables back.
    fn prepare(_packets: &Packets) -> Result<(), Fault> {
        Ok(())
    }

    fn new(packets: &'static Packets, world: &Arc<World<Self>>, seat: Seat) -> Result<Self, Fault>;

    /// Appends up to `n` packets of the generator.
    fn make(&mut self, from: &mut Generator<'static>, n: usize, out: &mut Batch<'static>) -> Made;

    /// Frees up to [`BUDGET`] packets that the sink is done with: how many.
    fn free(&mut self, to: &mut Sink<'static>) -> usize;

    /// Gives back what this thread keeps for itself.
    fn flush(&mut self) {}

    /// What it has counted itself, until now. What the slab of packets counts is not among it.
    fn slow(&self) -> Slow {
        Slow::default()
    }
}

/// What the threads of an arena share.
pub(super) trait Common: Sized + Send + Sync {
    fn new(threads: usize) -> Result<Self, Fault>;

    /// Packets that may be out while no thread runs.
    fn kept(&self) -> usize {
        0
    }

    /// Nothing is missing while no thread runs.
    fn settle(&self) -> Result<(), Fault> {
        Ok(())
    }
}

impl Common for () {
    fn new(_threads: usize) -> Result<(), Fault> {
        Ok(())
    }
}

/// Made one by one, and ended as `E` does.
pub(super) struct OneByOne<E: End> {
    packets: &'static Packets,
    of: PhantomData<E>,
}

/// A way in which completed packets end.
pub(super) trait End: 'static {
    const NAME: &'static str;
    const SAYS: &'static str;

    fn prepare(_packets: &Packets) -> Result<(), Fault> {
        Ok(())
    }

    fn end(to: &mut Sink<'static>) -> usize;
}

/// One by one.
pub(super) struct Alone;

impl End for Alone {
    const NAME: &'static str = "quietline-single";
    const SAYS: &'static str = "packets made and freed one by one";

    #[inline(always)]
    fn end(to: &mut Sink<'static>) -> usize {
        to.complete_with(BUDGET, drop)
    }
}

/// By a waitlist of `N`.
pub(super) struct Listed<const N: usize>;

impl<const N: usize> End for Listed<N> {
    const NAME: &'static str = match N {
        8 => "quietline-waitlist-8",
        16 => "quietline-waitlist-16",
        32 => "quietline-waitlist-32",
        64 => "quietline-waitlist-64",
        _ => panic!("a waitlist that has no name"),
    };
    const SAYS: &'static str = match N {
        8 => "made one by one, freed by a waitlist of 8",
        16 => "made one by one, freed by a waitlist of 16",
        32 => "made one by one, freed by a waitlist of 32",
        _ => "made one by one, freed by a waitlist of 64",
    };

    #[inline(always)]
    fn end(to: &mut Sink<'static>) -> usize {
        let mut done = Waitlist::<N>::new();
        to.complete_with(BUDGET, |skb| done.add(skb))
    }
}

/// By a waitlist of the usual size, on a cache of heads with the tunables of the seed.
pub(super) struct Tuned;

impl End for Tuned {
    const NAME: &'static str = "quietline-tuned";
    const SAYS: &'static str =
        "as quietline-waitlist-32, with cpu_partial 256 and min_partial 9 for the cache of heads";

    fn prepare(packets: &Packets) -> Result<(), Fault> {
        let heads = packets.head_cache();
        let tuned =
            Tunables { cpu_partial: CPU_PARTIAL, min_partial: MIN_PARTIAL, ..heads.tunables() };
        heads
            .set_tunables(tuned)
            .map_err(|e| Fault::new(format!("cannot tune the cache of heads: {e}")))?;
        Fault::unless(heads.tunables() == tuned, || format!("{:?} are in force", heads.tunables()))
    }

    #[inline(always)]
    fn end(to: &mut Sink<'static>) -> usize {
        Listed::<WAITLIST>::end(to)
    }
}

impl<E: End> Buffers for OneByOne<E> {
    const NAME: &'static str = E::NAME;
    const SAYS: &'static str = E::SAYS;

    type Common = ();

    fn prepare(packets: &Packets) -> Result<(), Fault> {
        E::prepare(packets)
    }

    fn new(
        packets: &'static Packets,
        _world: &Arc<World<Self>>,
        _seat: Seat,
    ) -> Result<Self, Fault> {
        Ok(Self { packets, of: PhantomData })
    }

    #[inline(always)]
    fn make(&mut self, from: &mut Generator<'static>, n: usize, out: &mut Batch<'static>) -> Made {
        from.poll_with(n, out, |len| self.packets.alloc_skb(len))
    }

    #[inline(always)]
    fn free(&mut self, to: &mut Sink<'static>) -> usize {
        E::end(to)
    }
}

/// From a stack of the thread's own, and back to it; with `HOME`, what other CPUs have made is sent home to them.
pub(super) struct Napi<const HOME: bool>(packet::Napi<'static>);

impl<const HOME: bool> Buffers for Napi<HOME> {
    const NAME: &'static str = if HOME { "quietline-napi-home" } else { "quietline-napi" };
    const SAYS: &'static str = if HOME {
        "by a stack of the poller's own, which sends home what other CPUs made"
    } else {
        "made and freed by a stack of the poller's own"
    };

    type Common = Homebound<HOME>;

    fn new(
        packets: &'static Packets,
        _world: &Arc<World<Self>>,
        _seat: Seat,
    ) -> Result<Self, Fault> {
        Ok(Self(packets.napi().sends_home(HOME)))
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

/// Made one by one, and sent home, as many at a time as a device is done with: a thread ends what was sent to its CPU before it makes more.
pub(super) struct Deferred(&'static Packets);

/// Packets that may be on their way home, if any are sent there.
pub(super) struct Homebound<const ANY: bool>;

impl<const ANY: bool> Common for Homebound<ANY> {
    fn new(_threads: usize) -> Result<Self, Fault> {
        Ok(Self)
    }

    fn kept(&self) -> usize {
        if ANY { packet::DEFER_MAX as usize * quietline_platform::cpu::nr_cpus() } else { 0 }
    }
}

impl Buffers for Deferred {
    const NAME: &'static str = "quietline-deferred";
    const SAYS: &'static str = "made one by one, sent home together to the CPU that made them";

    type Common = Homebound<true>;

    fn new(
        packets: &'static Packets,
        _world: &Arc<World<Self>>,
        _seat: Seat,
    ) -> Result<Self, Fault> {
        Ok(Self(packets))
    }

    #[inline(always)]
    fn make(&mut self, from: &mut Generator<'static>, n: usize, out: &mut Batch<'static>) -> Made {
        self.0.take_deferred();
        from.poll_with(n, out, |len| self.0.alloc_skb(len))
    }

    #[inline(always)]
    fn free(&mut self, to: &mut Sink<'static>) -> usize {
        let mut done = [const { None }; BUDGET];
        let mut free = done.iter_mut();
        let n = to.complete_with(BUDGET, |skb| {
            let place = free.next().expect("no more than were asked for");
            // The place is free.
            mem::forget(place.replace(skb));
        });
        self.0.defer_free_bulk(&mut done[..n]);
        n
    }

    fn flush(&mut self) {
        self.0.take_deferred();
    }
}

/// As the devices of quietline do it themselves: made in bulk, freed by a waitlist.
pub(super) struct Bulk;

const _: () = assert!(WAITLIST == 32, "as the columns say");

impl Buffers for Bulk {
    const NAME: &'static str = "quietline";
    const SAYS: &'static str = "made in bulk, freed by a waitlist of 32";

    type Common = ();

    fn new(
        _packets: &'static Packets,
        _world: &Arc<World<Self>>,
        _seat: Seat,
    ) -> Result<Self, Fault> {
        Ok(Self)
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

/// A packet that was used, as the slab would give it: every field that `alloc_skb` writes and a user may have changed. `cb` is what its
/// forty bytes are to be.
#[inline(always)]
fn as_new(mut skb: Skb<'static>, cb: [u64; 5]) -> Result<Skb<'static>, PacketError> {
    skb.trim(0)?;
    skb.set_protocol(0)?;
    skb.set_device(0)?;
    skb.set_mark(0)?;
    skb.set_hash(0)?;
    skb.set_timestamp(0)?;
    skb.set_cb(cb)?;
    skb.set_destructor(None)?;
    Ok(skb)
}
