//! The calls that a system has, and arenas on any system that has them.

use std::fmt::Display;
use std::sync::Arc;

use super::loops::{Subject, worker};
use super::mesh::Mesh;
use super::shared::Shared;
use crate::adapters::implementation::Opened;
use crate::adapters::probe::failed;
use crate::harness::{Arena, Fault, Seat, Unfit, Worker};
use crate::workloads::{Channel, Events, Job};

/// Events that are taken at a time.
pub(super) const MAX_EVENTS: usize = 16;

/// A page of memory.
#[repr(C, align(4096))]
pub(super) struct Page(pub(super) [u8; 4096]);

impl Page {
    /// The numbers at both ends of a page; none of what is not as long.
    #[inline(always)]
    pub(super) fn ends(bytes: &[u8]) -> Option<[u64; 2]> {
        let whole: &[u8; 4096] = bytes.try_into().ok()?;
        let [first, last] = [whole.first_chunk()?, whole.last_chunk()?];
        Some([u64::from_ne_bytes(*first), u64::from_ne_bytes(*last)])
    }

    /// Writes a number to both ends of a page.
    #[inline(always)]
    pub(super) fn mark(bytes: &mut [u8], number: u64) {
        let number = number.to_ne_bytes();
        bytes[..8].copy_from_slice(&number);
        bytes[4088..4096].copy_from_slice(&number);
    }
}

/// What an epoll is told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Control {
    /// Watch it for input, and say so with these data.
    Add(u64),
    /// Say so with other data.
    Modify(u64),
    /// No more.
    Delete,
}

/// A system with descriptors. None of its calls waits, but those on sockets of the internet. Descriptors are closed when they are dropped.
pub(super) trait System: Clone + Send + Sync + Sized + 'static {
    /// An open descriptor.
    type Fd: Send + Sync + 'static;
    /// What a failed call says.
    type Error: Display + 'static;

    /// A system of one's own.
    fn boot() -> Result<Self, Fault>;
    /// Where is read, and where is written.
    fn channel(&self, channel: Channel) -> Result<[Arc<Self::Fd>; 2], Self::Error>;
    fn epoll(&self) -> Result<Self::Fd, Self::Error>;
    fn control(&self, epoll: &Self::Fd, fd: &Self::Fd, what: Control) -> Result<(), Self::Error>;
    /// The data of what is ready; how many.
    fn wait(&self, epoll: &Self::Fd, data: &mut [u64; MAX_EVENTS]) -> Result<usize, Self::Error>;
    /// Whether it can be read.
    fn poll(&self, fd: &Self::Fd) -> Result<bool, Self::Error>;
    fn write(&self, fd: &Self::Fd, bytes: &[u8]) -> Result<usize, Self::Error>;
    fn read(&self, fd: &Self::Fd, bytes: &mut [u8]) -> Result<usize, Self::Error>;
    /// Writes a number to both ends of a page that can be given away, gives it to a pipe, and takes it, or what is in it, out at the
    /// other end: what is at both ends then, if it is a whole page. `memory` is for those whose pages are the caller's: one to
    /// give, one to read to.
    fn give(
        &self,
        ends: [&Self::Fd; 2],
        number: u64,
        memory: &mut [Page; 2],
    ) -> Result<Option<[u64; 2]>, Self::Error>;
    /// Whether that is what a call says that would have to wait.
    fn would_wait(error: &Self::Error) -> bool;
}

/// An arena for a job.
pub(super) fn open<S: System>(job: Job, threads: usize) -> Opened {
    let Job::Events(what) = job else {
        return Err(Unfit::Missing("it has no such job".to_owned()));
    };
    let system = S::boot()?;
    if what == Events::Mesh {
        return Ok(Arc::new(Mesh::new(system, threads).map_err(failed)?));
    }
    if let Events::Shared { asks } = what {
        return Ok(Arc::new(Shared::new(system, threads, asks).map_err(failed)?));
    }
    Ok(Arc::new(Alone { system, what }))
}

/// Threads that have nothing to do with each other.
struct Alone<S> {
    system: S,
    what: Events,
}

impl<S: System> Arena for Alone<S> {
    fn worker(&self, _: Seat) -> Result<Box<dyn Worker>, Fault> {
        worker(Subject::new(self.system.clone(), self.what).map_err(failed)?, self.what)
    }

    /// What a worker leaves behind in its own objects it finds in its next results.
    fn settle(&self) -> Result<(), Fault> {
        Ok(())
    }
}
