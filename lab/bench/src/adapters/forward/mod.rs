//! Who makes packets and frees them: the ways of the seed and of its discussion, on the same devices.

mod pool;
mod router;
mod run;
mod ways;
mod world;

use std::sync::Arc;

use quietline_platform::atomic::AtomicBool;

use super::implementation::{Implementation, Opened};
use crate::harness::{Arena, Column, Seat, Shape};
use crate::workloads::Job;
use run::Buffers;
use ways::{Bulk, Deferred, Napi, OnWaitlist, Pool, Single};
use world::{Shared, World};

/// The pool that was set aside, then one by one, with the waitlist of 2015 in four sizes, from a poller's own stack, sent home; then as quietline does it.
pub fn columns() -> Vec<Arc<dyn Column>> {
    let all = vec![
        column(
            "history-alf-queue",
            "a pool of whole packets in front of the slab, on array queues: set aside in 2015",
            open::<Pool>,
        ),
        column("quietline-single", "packets made and freed one by one", open::<Single>),
        column("quietline-waitlist-8", "made one by one, freed by a waitlist of 8", open::<OnWaitlist<8>>),
        column("quietline-waitlist-16", "made one by one, freed by a waitlist of 16", open::<OnWaitlist<16>>),
        column("quietline-waitlist-32", "made one by one, freed by a waitlist of 32", open::<OnWaitlist<32>>),
        column("quietline-waitlist-64", "made one by one, freed by a waitlist of 64", open::<OnWaitlist<64>>),
        column("quietline-napi", "made and freed by a stack of the poller's own", open::<Napi>),
        column("quietline-deferred", "made one by one, sent home to the CPU that made it", open::<Deferred>),
        column("quietline", "made in bulk, freed by a waitlist of 32", open::<Bulk>),
    ];
    all.into_iter().map(|column| Arc::new(column) as Arc<dyn Column>).collect()
}

fn column(name: &'static str, says: &'static str, open: fn(Job, usize) -> Opened) -> Implementation {
    Implementation { name, says, shape: Shape::NoTable, does: |job| matches!(job, Job::Forward(_)), open }
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
    Ok(Arc::new(Shared(Arc::new(World::<B>::new(forward, threads)?))))
}
