//! The calls that a system has, and the arena on any system that has them.

use std::fmt::Display;
use std::sync::Arc;

use super::player::{Lane, Pairs};
use crate::adapters::implementation::Opened;
use crate::adapters::probe::failed;
use crate::harness::{Fault, Unfit};
use crate::workloads::{Job, Route};

/// A system with descriptors. Its calls wait. Descriptors are closed when they are dropped.
pub(super) trait System: Clone + Send + Sync + Sized + 'static {
    /// An open descriptor.
    type Fd: Send + Sync + 'static;
    /// What a failed call says.
    type Error: Display + 'static;

    /// A system of one's own.
    fn boot() -> Result<Self, Fault>;
    /// Two ends: what the one writes the other reads.
    fn ends(&self, route: Route) -> Result<[Ends<Self::Fd>; 2], Self::Error>;
    /// An epoll that watches a descriptor for input.
    fn epoll_on(&self, fd: &Self::Fd) -> Result<Self::Fd, Self::Error>;
    /// Waits until there is an event: how many.
    fn wait(&self, epoll: &Self::Fd) -> Result<usize, Self::Error>;
    fn write(&self, fd: &Self::Fd, bytes: &[u8]) -> Result<usize, Self::Error>;
    fn read(&self, fd: &Self::Fd, bytes: &mut [u8]) -> Result<usize, Self::Error>;
}

/// What a thread reads and what it writes: of a socket the same.
pub(super) struct Ends<F> {
    pub(super) read: Arc<F>,
    pub(super) write: Arc<F>,
}

impl<F> Ends<F> {
    /// Of a socket.
    pub(super) fn both(fd: F) -> Self {
        let fd = Arc::new(fd);
        Self { read: fd.clone(), write: fd }
    }

    /// Of two pipes, each its reading and its writing end.
    pub(super) fn crossed([near, far]: [[F; 2]; 2]) -> [Self; 2] {
        let ([near_read, near_write], [far_read, far_write]) =
            (near.map(Arc::new), far.map(Arc::new));
        [Self { read: near_read, write: far_write }, Self { read: far_read, write: near_write }]
    }

    /// Of two objects that are written and read by the same descriptor.
    pub(super) fn counters([near, far]: [Arc<F>; 2]) -> [Self; 2] {
        [Self { read: near.clone(), write: far.clone() }, Self { read: far, write: near }]
    }
}

/// An arena for a job.
pub(super) fn open<S: System>(job: Job, threads: usize) -> Opened {
    let Job::PingPong(what) = job else {
        return Err(Unfit::Missing("it has no such job".to_owned()));
    };
    let system = S::boot()?;
    Pairs::open(threads, || {
        let lanes = system.ends(what.route).map_err(failed)?.map(|ends| {
            let epoll =
                what.epoll.then(|| system.epoll_on(&ends.read)).transpose().map_err(failed)?;
            let counts = what.route == Route::Eventfds;
            Ok::<_, Fault>(Wired { system: system.clone(), ends, epoll, counts })
        });
        let [first, second] = lanes;
        Ok([first?, second?])
    })
}

/// A thread's end of a connection.
struct Wired<S: System> {
    system: S,
    /// Closed first: a file leaves its epoll then.
    ends: Ends<S::Fd>,
    epoll: Option<S::Fd>,
    /// Whether what goes are numbers of eight bytes, one more than the byte.
    counts: bool,
}

impl<S: System> Lane for Wired<S> {
    type Error = S::Error;

    #[inline(always)]
    fn send(&self, byte: u8) -> Result<bool, S::Error> {
        if self.counts {
            return Ok(self
                .system
                .write(&self.ends.write, &(u64::from(byte) + 1).to_ne_bytes())?
                == 8);
        }
        Ok(self.system.write(&self.ends.write, &[byte])? == 1)
    }

    #[inline(always)]
    fn receive(&self) -> Result<Option<u8>, S::Error> {
        if let Some(epoll) = &self.epoll
            && self.system.wait(epoll)? != 1
        {
            return Ok(None);
        }
        if self.counts {
            let mut number = [0; 8];
            let n = self.system.read(&self.ends.read, &mut number)?;
            let byte =
                u64::from_ne_bytes(number).checked_sub(1).and_then(|byte| u8::try_from(byte).ok());
            return Ok(byte.filter(|_| n == 8));
        }
        let mut byte = [0];
        let n = self.system.read(&self.ends.read, &mut byte)?;
        Ok((n == 1).then_some(byte[0]))
    }
}
