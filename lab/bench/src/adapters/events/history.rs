//! The nested epolls of Linux 4.13, and of the patches of 2017.

use std::convert::Infallible;
use std::sync::Arc;

use quietline_history::NestedWay;
use quietline_history::eventpoll::Mesh;
use quietline_platform::atomic::{AtomicBool, AtomicU64, Ordering};

use crate::adapters::implementation::Opened;
use crate::adapters::probe::failed;
use crate::harness::{Arena, Fault, Seat, Unfit, Worker, repeat};
use crate::workloads::{Events, GROUPS, Job, Peers};

/// An arena for the mesh.
pub(super) fn open(way: NestedWay, job: Job, threads: usize) -> Opened {
    if job != Job::Events(Events::Mesh) {
        return Err(Unfit::Missing("it is nested epolls alone".to_owned()));
    }
    let cores = quietline_platform::cpu::nr_cpus().max(threads);
    let mesh = Mesh::new(way, threads, GROUPS, cores).map_err(failed)?;
    Ok(Arc::new(World(Arc::new(Shared {
        mesh,
        threads,
        sent: AtomicU64::new(0),
        taken: AtomicU64::new(0),
    }))))
}

struct Shared {
    mesh: Mesh,
    threads: usize,
    sent: AtomicU64,
    taken: AtomicU64,
}

struct World(Arc<Shared>);

impl Arena for World {
    fn worker(&self, seat: Seat) -> Result<Box<dyn Worker>, Fault> {
        let peers = Peers::new(seat.thread, seat.threads);
        Ok(Box::new(Process { shared: self.0.clone(), me: seat.thread, peers, sent: 0, taken: 0 }))
    }

    fn settle(&self) -> Result<(), Fault> {
        let found: u64 = (0..self.0.threads).map(|me| self.0.mesh.drain(me)).sum();
        // Relaxed: no worker runs.
        let taken = self.0.taken.fetch_add(found, Ordering::Relaxed) + found;
        let sent = self.0.sent.load(Ordering::Relaxed);
        Fault::unless(sent == taken, || format!("{sent} messages were sent, and {taken} came"))
    }
}

struct Process {
    shared: Arc<Shared>,
    me: usize,
    peers: Peers,
    sent: u64,
    taken: u64,
}

impl Worker for Process {
    #[inline(never)]
    fn run(&mut self, ops: u64, stop: &AtomicBool) -> Result<u64, Fault> {
        let Self { shared, me, peers, sent, taken } = self;
        repeat("a byte goes into a pipe", ops, stop, || {
            let turn = shared.mesh.turn(*me, peers.next_peer());
            *sent += turn.sent;
            *taken += turn.taken;
            Ok::<_, Infallible>(turn.sent == 1)
        })
    }

    fn check(&mut self) -> Result<(), Fault> {
        // Relaxed: counts, which are compared when no worker runs.
        self.shared.sent.fetch_add(core::mem::take(&mut self.sent), Ordering::Relaxed);
        self.shared.taken.fetch_add(core::mem::take(&mut self.taken), Ordering::Relaxed);
        Ok(())
    }
}
