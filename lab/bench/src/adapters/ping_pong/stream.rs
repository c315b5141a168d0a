//! Blocks of bytes from one thread to another: who writes and who reads them.
//!
//! A block has its number at both ends, and behind the first one a byte that says that it is the last of the sample: so both threads
//! end after the same block, whoever is told to stop. What is between the numbers is looked at once a sample.

use std::sync::Arc;

use parking_lot::Mutex;
use quietline_platform::atomic::{AtomicBool, AtomicU64, Ordering};

use super::system::{Ends, System};
use crate::adapters::implementation::Opened;
use crate::adapters::probe::failed;
use crate::harness::{Arena, Fault, Seat, Unfit, Worker};
use crate::workloads::{BLOCK, Job};

type Block = Box<[u8; BLOCK]>;

/// Where a block says whether it is the last one.
const LAST: usize = 8;
/// Where the bytes between the numbers begin and end.
const MIDDLE: core::ops::Range<usize> = LAST + 1..BLOCK - 8;

/// Blocks between two looks at the stop flag.
const BETWEEN_LOOKS: u64 = 4;

/// What is between the numbers of a block.
fn pattern(at: usize) -> u8 {
    ((at * 31) >> 3) as u8
}

/// An arena for a job: a writer and a reader for each two threads.
pub(super) fn open<S: System>(job: Job, threads: usize) -> Opened {
    let Job::Throughput(route) = job else {
        return Err(Unfit::Missing("it has no such job".to_owned()));
    };
    if !threads.is_multiple_of(2) {
        return Err(Unfit::Missing("it takes pairs of threads".to_owned()));
    }
    let system = S::boot()?;
    let tally = Arc::new(Tally::default());
    let mut sides = Vec::with_capacity(threads);
    for _ in 0..threads / 2 {
        for (writes, ends) in [true, false].into_iter().zip(system.ends(route).map_err(failed)?) {
            let block =
                vec![0; BLOCK].try_into().map_err(|_| Fault::new("a block has another size"))?;
            let (system, tally) = (system.clone(), tally.clone());
            let mut side =
                Side { system, ends: Some(ends), writes, block, number: 0, done: 0, tally };
            if writes {
                MIDDLE.for_each(|at| side.block[at] = pattern(at));
            }
            sides.push(Some(side));
        }
    }
    Ok(Arc::new(Streams { sides: Mutex::new(sides), tally }))
}

struct Streams<S: System> {
    /// By seat, until the thread that sits there takes it.
    sides: Mutex<Vec<Option<Side<S>>>>,
    tally: Arc<Tally>,
}

/// Blocks of all samples, as each side has counted them.
#[derive(Default)]
struct Tally {
    written: AtomicU64,
    read: AtomicU64,
}

impl<S: System> Arena for Streams<S> {
    fn worker(&self, seat: Seat) -> Result<Box<dyn Worker>, Fault> {
        let side = self.sides.lock()[seat.thread].take();
        Ok(Box::new(side.ok_or_else(|| Fault::new("somebody sits there already"))?))
    }

    fn settle(&self) -> Result<(), Fault> {
        // Relaxed, so below: no worker runs.
        let [written, read] =
            [&self.tally.written, &self.tally.read].map(|count| count.load(Ordering::Relaxed));
        Fault::unless(written == read, || format!("{written} blocks were written, and {read} read"))
    }
}

struct Side<S: System> {
    system: S,
    /// None once something went wrong: the other side, which waits, is told by that.
    ends: Option<Ends<S::Fd>>,
    writes: bool,
    block: Block,
    number: u64,
    /// Blocks not in the tally yet.
    done: u64,
    tally: Arc<Tally>,
}

impl<S: System> Worker for Side<S> {
    #[inline(never)]
    fn run(&mut self, ops: u64, stop: &AtomicBool) -> Result<u64, Fault> {
        let Some(ends) = self.ends.take() else { return Err(Fault::new("the way is broken")) };
        let done =
            if self.writes { self.write(&ends.write, ops, stop) } else { self.read(&ends.read) }?;
        // Ends that failed are dropped instead.
        self.ends = Some(ends);
        self.done += done;
        Ok(done)
    }

    fn check(&mut self) -> Result<(), Fault> {
        let count = if self.writes { &self.tally.written } else { &self.tally.read };
        // Relaxed: read when no worker runs.
        count.fetch_add(core::mem::take(&mut self.done), Ordering::Relaxed);
        if self.writes {
            return Ok(());
        }
        let wrong = MIDDLE.into_iter().find(|at| self.block[*at] != pattern(*at));
        // The next sample's blocks must bring it again.
        self.block[MIDDLE].fill(0);
        Fault::unless(wrong.is_none(), || {
            format!("byte {wrong:?} of block {} is another one", self.number)
        })
    }
}

impl<S: System> Side<S> {
    fn write(&mut self, fd: &S::Fd, ops: u64, stop: &AtomicBool) -> Result<u64, Fault> {
        let mut done = 0;
        loop {
            done += 1;
            self.number += 1;
            // Relaxed: nothing is ordered by the flag; a late look costs some operations more.
            let last = done == ops || (done % BETWEEN_LOOKS == 0 && stop.load(Ordering::Relaxed));
            let number = self.number.to_ne_bytes();
            self.block[..LAST].copy_from_slice(&number);
            self.block[LAST] = u8::from(last);
            self.block[MIDDLE.end..].copy_from_slice(&number);
            let mut rest = &self.block[..];
            while !rest.is_empty() {
                let n = self.system.write(fd, rest).map_err(|error| broken("write", error))?;
                rest = &rest[n..];
            }
            if last {
                return Ok(done);
            }
        }
    }

    fn read(&mut self, fd: &S::Fd) -> Result<u64, Fault> {
        let mut done = 0;
        loop {
            done += 1;
            self.number += 1;
            let mut found = 0;
            while found < BLOCK {
                let n = self.system.read(fd, &mut self.block[found..]);
                let n = n.map_err(|error| broken("read", error))?;
                Fault::unless(n > 0, || "the other side has gone".to_owned())?;
                found += n;
            }
            let number = self.number.to_ne_bytes();
            let right = self.block[..LAST] == number && self.block[MIDDLE.end..] == number;
            Fault::unless(right, || format!("block {} is another one", self.number))?;
            if self.block[LAST] != 0 {
                return Ok(done);
            }
        }
    }
}

fn broken(what: &str, error: impl std::fmt::Display) -> Fault {
    Fault::new(format!("cannot {what}: {error}"))
}
