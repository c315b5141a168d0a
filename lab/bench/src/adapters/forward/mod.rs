//! Who makes packets and frees them: the ways of the seed and of its discussion, on the same devices.

mod counts;
mod many;
mod pool;
mod router;
mod run;
#[cfg(feature = "peer-smoltcp")]
mod smoltcp;
#[cfg(test)]
mod tests;
mod ways;
mod world;

use std::sync::Arc;

use quietline_platform::atomic::AtomicBool;

use super::implementation::{Implementation, Opened};
use crate::harness::{Arena, Column, Seat, Shape};
use crate::workloads::{Job, Way};
pub use counts::{Slow, SlowPaths, slow_paths};
use ways::{
    Alone, BULK, Buffers, Bulk, Deferred, LIST, Listed, Napi, OnSlub, OneByOne, Pool, SINGLE, Tuned,
};
use world::{Shared, World};

/// The slab of 2015 as the seed had it, before and after its patches, tuned, not merged, and the pool that was set aside; the peer; then
/// ours one by one, with the waitlist of 2015 in four sizes and tuned as in the seed, from a poller's own stack, sent home by that and by bulk free; then as
/// quietline does it.
pub fn columns() -> Vec<Arc<dyn Column>> {
    let all = vec![
        column::<OnSlub<SINGLE, false, false>>(on_one_cpu),
        column::<OnSlub<BULK, false, false>>(on_one_cpu),
        column::<OnSlub<LIST, false, false>>(on_one_cpu),
        column::<OnSlub<SINGLE, false, true>>(on_one_cpu),
        column::<OnSlub<BULK, false, true>>(on_one_cpu),
        column::<OnSlub<SINGLE, true, false>>(on_one_cpu),
        column::<OnSlub<BULK, true, false>>(on_one_cpu),
        column::<Pool>(everywhere),
        #[cfg(feature = "peer-smoltcp")]
        smoltcp::column(),
        column::<OneByOne<Alone>>(everywhere),
        column::<OneByOne<Listed<8>>>(everywhere),
        column::<OneByOne<Listed<16>>>(everywhere),
        column::<OneByOne<Listed<32>>>(everywhere),
        column::<OneByOne<Listed<64>>>(everywhere),
        column::<OneByOne<Tuned>>(everywhere),
        column::<Napi<false>>(everywhere),
        column::<Napi<true>>(everywhere),
        column::<Deferred>(everywhere),
        column::<Bulk>(everywhere),
    ];
    all.into_iter().map(|column| Arc::new(column) as Arc<dyn Column>).collect()
}

fn column<B: Buffers>(does: fn(Job) -> bool) -> Implementation {
    Implementation { name: B::NAME, says: B::SAYS, shape: Shape::NoTable, does, open: open::<B> }
}

fn everywhere(job: Job) -> bool {
    matches!(job, Job::Forward(_))
}

/// Where a packet ends on the thread that made it, as in the seed.
fn on_one_cpu(job: Job) -> bool {
    matches!(job, Job::Forward(forward) if forward.way != Way::Across)
}

/// Packets that prove a way before it is timed: the ring is filled, and gone round several times.
const PROOF: u64 = 5_000;

fn open<B: Buffers>(job: Job, threads: usize) -> Opened {
    let Job::Forward(forward) = job else { unreachable!("asked for another job than it does") };
    let proof = Shared(Arc::new(World::<B>::new(forward, 1)?));
    let mut worker = proof.worker(Seat { thread: 0, threads: 1 })?;
    worker.run(PROOF, &AtomicBool::new(false))?;
    worker.check()?;
    proof.settle()?;
    drop(worker);
    proof.settle()?;
    Ok(Arc::new(Shared(Arc::new(World::<B>::shown(forward, threads)?))))
}
