//! The calls that a system has, and what its threads do with them.

use std::fmt::Display;
use std::sync::Arc;

use parking_lot::Mutex;
use quietline_platform::atomic::AtomicBool;

use crate::adapters::implementation::Opened;
use crate::adapters::probe::failed;
use crate::harness::{Arena, Fault, Seat, Unfit, Worker, repeat};
use crate::workloads::{Connections, Job};

/// A thread's calls. What a failed call leaves open stays so: the thread ends.
pub(super) trait Calls: Sized + 'static {
    /// An open descriptor.
    type Fd: 'static;
    /// Where one connects to.
    type Listener: 'static;
    /// What a failed call says.
    type Error: Display;

    /// Closes a descriptor.
    fn close(&self, fd: Self::Fd) -> Result<(), Self::Error>;
    /// The two ends of a pipe: where is written, and where is read.
    fn pipe(&self) -> Result<[Self::Fd; 2], Self::Error>;
    /// Two streams of `AF_UNIX` that know each other.
    fn pair(&self) -> Result<[Self::Fd; 2], Self::Error>;
    /// A listener with an abstract name that the system chooses.
    fn unix_listener(&self) -> Result<Self::Listener, Self::Error>;
    /// A listener on the loopback at a port that the system chooses.
    fn tcp_listener(&self) -> Result<Self::Listener, Self::Error>;
    /// A new socket, connected, and the other end, which was accepted.
    fn unix_connect(&self, to: &Self::Listener) -> Result<[Self::Fd; 2], Self::Error>;
    /// The same; if the first one closes first, the connection is reset.
    fn tcp_connect(&self, to: &Self::Listener) -> Result<[Self::Fd; 2], Self::Error>;
    /// Sends a byte with a descriptor from the first end to the second: the new descriptor, if one came.
    fn pass(&self, ends: &[Self::Fd; 2], fd: &Self::Fd) -> Result<Option<Self::Fd>, Self::Error>;
    /// Whether a byte went.
    fn write(&self, fd: &Self::Fd, byte: u8) -> Result<bool, Self::Error>;
    /// Waits for a byte.
    fn read(&self, fd: &Self::Fd) -> Result<u8, Self::Error>;
    /// Descriptors that the thread has open, where only the thread can tell.
    fn open_here(&self) -> Result<Option<usize>, Self::Error>;
}

/// A system with threads.
pub(super) trait System: Send + Sync + Sized + 'static {
    /// What a thread has.
    type Calls: Calls;

    /// A system of one's own.
    fn boot() -> Result<Self, Fault>;
    /// The calls of the thread that asks for them.
    fn enter(&self) -> Result<Self::Calls, Fault>;
    /// Files that are open, where that can be told from outside of the threads.
    fn open_files(&self) -> Option<i64>;
}

/// An arena for a job.
pub(super) fn open<S: System>(job: Job, _threads: usize) -> Opened {
    let Job::Connections(what) = job else {
        return Err(Unfit::Missing("it has no such job".to_owned()));
    };
    Ok(Arc::new(All { system: S::boot()?, what, held: Mutex::new(None) }))
}

struct All<S> {
    system: S,
    what: Connections,
    /// Files that the threads keep open, once they have all come.
    held: Mutex<Option<i64>>,
}

impl<S: System> Arena for All<S> {
    fn worker(&self, _: Seat) -> Result<Box<dyn Worker>, Fault> {
        let calls = self.system.enter()?;
        match self.what {
            Connections::Pair => Joiner::seat(calls, |_| Ok(()), |calls, ()| calls.pair()),
            Connections::Unix => {
                Joiner::seat(calls, S::Calls::unix_listener, S::Calls::unix_connect)
            }
            Connections::Tcp => Joiner::seat(calls, S::Calls::tcp_listener, S::Calls::tcp_connect),
            Connections::PassPipe => Passer::seat(calls, S::Calls::pipe),
            Connections::PassSocket => Passer::seat(calls, S::Calls::pair),
        }
    }

    fn settle(&self) -> Result<(), Fault> {
        let Some(now) = self.system.open_files() else { return Ok(()) };
        let held = *self.held.lock().get_or_insert(now);
        Fault::unless(now == held, || format!("{held} files were open, and now {now}"))
    }
}

/// Whether a byte that is written to the one is read from the other.
fn is_joined<C: Calls>(calls: &C, from: &C::Fd, to: &C::Fd, byte: u8) -> Result<(), Fault> {
    let arrived = calls
        .write(from, byte)
        .and_then(|went| Ok(went && calls.read(to)? == byte))
        .map_err(failed)?;
    Fault::unless(arrived, || format!("byte {byte} was sent, and another one came"))
}

/// That a thread has as many descriptors open as it had.
struct Open(Option<usize>);

impl Open {
    fn as_before<C: Calls>(&self, calls: &C) -> Result<(), Fault> {
        let now = calls.open_here().map_err(failed)?;
        let before = self.0;
        Fault::unless(now == before, || {
            format!("{before:?} descriptors were open, and now {now:?}")
        })
    }
}

/// How two ends are joined.
type Join<C, L> = fn(&C, &L) -> Result<[<C as Calls>::Fd; 2], <C as Calls>::Error>;

/// A thread that joins two ends, and closes them.
struct Joiner<C: Calls, L> {
    calls: C,
    listener: L,
    join: Join<C, L>,
    open: Open,
}

impl<C: Calls, L: 'static> Joiner<C, L> {
    fn seat(
        calls: C,
        listener: fn(&C) -> Result<L, C::Error>,
        join: Join<C, L>,
    ) -> Result<Box<dyn Worker>, Fault> {
        let listener = listener(&calls).map_err(failed)?;
        let open = Open(calls.open_here().map_err(failed)?);
        let mut seated = Self { calls, listener, join, open };
        seated.check()?;
        Ok(Box::new(seated))
    }
}

impl<C: Calls, L> Worker for Joiner<C, L> {
    #[inline(never)]
    fn run(&mut self, ops: u64, stop: &AtomicBool) -> Result<u64, Fault> {
        repeat("sockets join", ops, stop, || {
            let [near, far] = (self.join)(&self.calls, &self.listener)?;
            self.calls.close(near)?;
            self.calls.close(far)?;
            Ok::<_, C::Error>(true)
        })
    }

    /// Both ways are open between the ends of the next one, and the others are gone.
    fn check(&mut self) -> Result<(), Fault> {
        let [near, far] = (self.join)(&self.calls, &self.listener).map_err(failed)?;
        is_joined(&self.calls, &near, &far, 1)?;
        is_joined(&self.calls, &far, &near, 2)?;
        self.calls.close(near).and_then(|()| self.calls.close(far)).map_err(failed)?;
        self.open.as_before(&self.calls)
    }
}

/// How two descriptors are made.
type Make<C> = fn(&C) -> Result<[<C as Calls>::Fd; 2], <C as Calls>::Error>;

/// A thread that sends itself a descriptor.
struct Passer<C: Calls> {
    calls: C,
    /// What it is sent by.
    ends: [C::Fd; 2],
    /// What is sent, and what is at its other end.
    sent: [C::Fd; 2],
    open: Open,
}

impl<C: Calls> Passer<C> {
    fn seat(calls: C, sent: Make<C>) -> Result<Box<dyn Worker>, Fault> {
        let (ends, sent) = (calls.pair().map_err(failed)?, sent(&calls).map_err(failed)?);
        let open = Open(calls.open_here().map_err(failed)?);
        let mut seated = Self { calls, ends, sent, open };
        seated.check()?;
        Ok(Box::new(seated))
    }
}

impl<C: Calls> Worker for Passer<C> {
    #[inline(never)]
    fn run(&mut self, ops: u64, stop: &AtomicBool) -> Result<u64, Fault> {
        repeat("a descriptor comes", ops, stop, || {
            let Some(came) = self.calls.pass(&self.ends, &self.sent[0])? else { return Ok(false) };
            self.calls.close(came)?;
            Ok::<_, C::Error>(true)
        })
    }

    /// What comes is what was sent, and the others are gone.
    fn check(&mut self) -> Result<(), Fault> {
        let came = self.calls.pass(&self.ends, &self.sent[0]).map_err(failed)?;
        let came = came.ok_or_else(|| Fault::new("no descriptor came"))?;
        is_joined(&self.calls, &came, &self.sent[1], 3)?;
        self.calls.close(came).map_err(failed)?;
        self.open.as_before(&self.calls)
    }
}
