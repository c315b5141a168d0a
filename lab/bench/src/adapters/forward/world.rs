//! What the threads of one arena share: the packets, the lanes from each to the next, and what was counted.

use std::sync::{Arc, Mutex, PoisonError};

use quietline_net::device::Pair;
use quietline_platform::atomic::{AtomicU64, Ordering};

use super::counts::{self, Slow, SlowPaths};
use super::pool::Borrowed;
use super::router::Router;
use super::run::Run;
use super::ways::{Buffers, Common};
use crate::harness::{Arena, Fault, Seat, Worker};
use crate::workloads::forward::FORWARD;
use crate::workloads::{Forward, Job, Way};

pub(super) struct World<B: Buffers> {
    pub(super) forward: Forward,
    pub(super) router: Option<Router>,
    pub(super) packets: Borrowed,
    pub(super) common: B::Common,
    /// Runs of threads that are over: each thread's first, second, and so on.
    pub(super) over: AtomicU64,
    /// Ends of lanes that their threads have not yet taken: what this one sends to, what it receives from.
    lanes: Mutex<Vec<[Option<Pair<'static>>; 2]>>,
    threads: usize,
    /// Of each thread, what it has made and counted until now.
    told: Mutex<Vec<(u64, Slow)>>,
    /// What the packets' slab had counted before.
    before: Slow,
    /// Whether it has a row in the table of slow paths.
    shown: bool,
}

impl<B: Buffers> World<B> {
    /// One whose slow paths are shown when it is gone.
    pub(super) fn shown(forward: Forward, threads: usize) -> Result<Self, Fault> {
        let mut world = Self::new(forward, threads)?;
        world.shown = true;
        counts::enter();
        Ok(world)
    }

    pub(super) fn new(forward: Forward, threads: usize) -> Result<Self, Fault> {
        let mut lanes: Vec<_> = (0..threads).map(|_| [None, None]).collect();
        if has_lanes(forward) {
            for from in 0..threads {
                let to = if forward.way == Way::Across { (from + 1) % threads } else { from };
                let [near, far] = pair()?;
                (lanes[from][0], lanes[to][1]) = (Some(near), Some(far));
            }
        }
        let (packets, common) = (Borrowed::new()?, B::Common::new(threads)?);
        B::prepare(packets.0)?;
        let before = Slow::of(packets.0);
        let router = Router::of(forward.way, packets.0)?;
        let (over, lanes) = (AtomicU64::new(0), Mutex::new(lanes));
        let told = Mutex::new(vec![Default::default(); threads]);
        Ok(Self {
            forward,
            router,
            packets,
            common,
            over,
            lanes,
            threads,
            told,
            before,
            shown: false,
        })
    }

    /// What a thread has made and counted until now.
    pub(super) fn tell(&self, seat: Seat, made: u64, slow: Slow) {
        self.told.lock().unwrap_or_else(PoisonError::into_inner)[seat.thread] = (made, slow);
    }

    /// What all threads have made and counted until now, and the slab for them.
    pub(super) fn count(&self) -> (u64, Slow) {
        let told = self.told.lock().unwrap_or_else(PoisonError::into_inner);
        let (made, of_ways) = told
            .iter()
            .fold((0, Slow::default()), |(sum, all), (made, slow)| (sum + made, all.and(*slow)));
        let of_slab =
            if B::OF_SLAB { Slow::of(self.packets.0) - self.before } else { Slow::default() };
        (made, of_slab.and(of_ways))
    }

    fn has_lanes(&self) -> bool {
        has_lanes(self.forward)
    }

    /// Whether all threads have ended their run of this number, counted from 1.
    pub(super) fn is_over(&self, run: u64) -> bool {
        // ORDERING: Acquire pairs with the release in `end_run`: what the others sent before is in the lanes.
        self.over.load(Ordering::Acquire) >= run * self.threads as u64
    }

    /// A thread has sent all that it will send in this run.
    pub(super) fn end_run(&self) {
        // ORDERING: Release pairs with the acquire in `is_over`.
        self.over.fetch_add(1, Ordering::Release);
    }
}

impl<B: Buffers> Drop for World<B> {
    fn drop(&mut self) {
        if !self.shown {
            return;
        }
        let job = Job::Forward(self.forward);
        let case = FORWARD.cases.iter().find(|case| case.job == job).map_or("?", |case| case.name);
        let (packets, slow) = self.count();
        counts::leave(SlowPaths { case, threads: self.threads, column: B::NAME, packets, slow });
    }
}

fn has_lanes(forward: Forward) -> bool {
    matches!(forward.way, Way::Pair | Way::Across)
}

fn pair() -> Result<[Pair<'static>; 2], Fault> {
    Pair::new(1024).map_err(|e| Fault::new(format!("cannot make a pair of devices: {e}")))
}

/// A world, as its workers have it.
pub(super) struct Shared<B: Buffers>(pub(super) Arc<World<B>>);

impl<B: Buffers> Arena for Shared<B> {
    fn worker(&self, seat: Seat) -> Result<Box<dyn Worker>, Fault> {
        let mut lanes = self.0.lanes.lock().unwrap_or_else(PoisonError::into_inner);
        let ends = core::mem::take(&mut lanes[seat.thread]);
        let there = ends.iter().all(Option::is_some) == self.0.has_lanes();
        Fault::unless(there, || "a thread has had this seat before, and its lanes".to_owned())?;
        Ok(Box::new(Run::new(self.0.clone(), seat, ends)?))
    }

    fn settle(&self) -> Result<(), Fault> {
        let (active, kept) = (self.0.packets.active(), self.0.common.kept());
        Fault::unless(active <= kept, || format!("{active} packets are out, {kept} may be"))?;
        self.0.common.settle()
    }
}
