//! The dispatcher of 2017 on any system: pipes from each thread to each, two levels of epoll.

use std::sync::Arc;

use quietline_platform::atomic::{AtomicBool, AtomicU64, Ordering};

use super::system::{Control, MAX_EVENTS, System};
use crate::adapters::probe::failed;
use crate::harness::{Arena, Fault, Seat, Worker, repeat};
use crate::workloads::{Channel, GROUPS, Peers};

/// The arena: all pipes and epolls, and how many messages there were.
pub(super) struct Mesh<S: System>(Arc<Shared<S>>);

struct Shared<S: System> {
    system: S,
    threads: usize,
    /// `reader * threads + writer`: where is read, and where is written.
    pipes: Vec<[Arc<S::Fd>; 2]>,
    /// Each thread's inner epolls.
    inner: Vec<Vec<S::Fd>>,
    /// Each thread's outer epoll.
    outer: Vec<S::Fd>,
    sent: AtomicU64,
    taken: AtomicU64,
}

impl<S: System> Mesh<S> {
    pub(super) fn new(system: S, threads: usize) -> Result<Self, S::Error> {
        let pipes = (0..threads * threads).map(|_| system.channel(Channel::Pipe));
        let pipes = pipes.collect::<Result<Vec<_>, _>>()?;
        let groups = GROUPS.min(threads);
        let (mut inner, mut outer) = (Vec::new(), Vec::new());
        for reader in 0..threads {
            let epolls = (0..groups).map(|_| system.epoll()).collect::<Result<Vec<_>, _>>()?;
            for writer in 0..threads {
                let group = writer * groups / threads;
                let [read, _] = &pipes[reader * threads + writer];
                system.control(&epolls[group], read, Control::Add(writer as u64))?;
            }
            let top = system.epoll()?;
            for (group, epoll) in epolls.iter().enumerate() {
                system.control(&top, epoll, Control::Add(group as u64))?;
            }
            inner.push(epolls);
            outer.push(top);
        }
        let (sent, taken) = (AtomicU64::new(0), AtomicU64::new(0));
        Ok(Self(Arc::new(Shared { system, threads, pipes, inner, outer, sent, taken })))
    }
}

impl<S: System> Shared<S> {
    /// Takes what has come in for a thread, a byte of each pipe that says so: how many.
    #[inline(always)]
    fn take(&self, me: usize) -> Result<u64, S::Error> {
        let (mut groups, mut writers) = ([0; MAX_EVENTS], [0; MAX_EVENTS]);
        let mut taken = 0;
        let n = self.system.wait(&self.outer[me], &mut groups)?;
        for group in &groups[..n] {
            let n = self.system.wait(&self.inner[me][*group as usize], &mut writers)?;
            for writer in &writers[..n] {
                let [read, _] = &self.pipes[me * self.threads + *writer as usize];
                match self.system.read(read, &mut [0]) {
                    Ok(n) => taken += n as u64,
                    // Level-triggered: another event may have been for the same byte.
                    Err(error) if S::would_wait(&error) => {}
                    Err(error) => return Err(error),
                }
            }
        }
        Ok(taken)
    }
}

impl<S: System> Arena for Mesh<S> {
    fn worker(&self, seat: Seat) -> Result<Box<dyn Worker>, Fault> {
        let peers = Peers::new(seat.thread, seat.threads);
        Ok(Box::new(Process { shared: self.0.clone(), me: seat.thread, peers, sent: 0, taken: 0 }))
    }

    /// What was sent was taken, or is found now, by way of the epolls.
    fn settle(&self) -> Result<(), Fault> {
        let shared = &*self.0;
        for me in 0..shared.threads {
            loop {
                let taken = shared.take(me).map_err(failed)?;
                // Relaxed, so below: no worker runs.
                shared.taken.fetch_add(taken, Ordering::Relaxed);
                if taken == 0 {
                    break;
                }
            }
        }
        let [sent, taken] = [&shared.sent, &shared.taken].map(|n| n.load(Ordering::Relaxed));
        Fault::unless(sent == taken, || format!("{sent} messages were sent, and {taken} came"))
    }
}

struct Process<S: System> {
    shared: Arc<Shared<S>>,
    me: usize,
    peers: Peers,
    sent: u64,
    taken: u64,
}

impl<S: System> Worker for Process<S> {
    #[inline(never)]
    fn run(&mut self, ops: u64, stop: &AtomicBool) -> Result<u64, Fault> {
        let Self { shared, me, peers, sent, taken } = self;
        repeat("a byte goes into a pipe", ops, stop, || {
            let [_, write] = &shared.pipes[peers.next_peer() * shared.threads + *me];
            let n = match shared.system.write(write, &[1]) {
                // A pipe that nobody has emptied for long: the reader is off its CPU.
                Err(error) if S::would_wait(&error) => 0,
                n => n?,
            };
            *sent += n as u64;
            *taken += shared.take(*me)?;
            Ok::<_, S::Error>(true)
        })
    }

    fn check(&mut self) -> Result<(), Fault> {
        // Relaxed: counts, which are compared when no worker runs.
        self.shared.sent.fetch_add(core::mem::take(&mut self.sent), Ordering::Relaxed);
        self.shared.taken.fetch_add(core::mem::take(&mut self.taken), Ordering::Relaxed);
        Ok(())
    }
}
