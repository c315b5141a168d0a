//! What an adapter has to be: a column that opens arenas, in which workers do a job.

use std::fmt;
use std::hint::black_box;
use std::sync::Arc;

use quietline_platform::atomic::{AtomicBool, Ordering};

use crate::workloads::Job;

/// A way of doing the jobs: one column of a report.
pub trait Column: Send + Sync {
    /// The name on the command line and in the JSON: `host`, `history-RUNG`, `quietline-VARIANT`,
    /// `peer-NAME`.
    fn name(&self) -> &str;

    /// One line on what it is.
    fn says(&self) -> &str;

    /// How its threads share descriptor tables.
    fn shape(&self) -> Shape;

    /// Whether this column is there for such a job. Where it is not, it is left out without a word; a job that one
    /// could expect of it, but that it lacks, is [`Unfit::Missing`] when it is opened.
    fn does(&self, job: Job) -> bool;

    /// Makes a world of its own in which `threads` threads will do `job`, and proves by one operation that
    /// the job is really done there.
    ///
    /// # Errors
    ///
    /// [`Unfit::Missing`] if this column has no such job, [`Unfit::Broken`] if the operation failed its
    /// checks.
    fn open(&self, job: Job, threads: usize) -> Result<Arc<dyn Arena>, Unfit>;
}

/// How the threads of a column share descriptor tables.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shape {
    /// Every thread is a process with a table of its own.
    Processes,
    /// The threads are one process and share one table.
    OneProcess,
    /// There is no table: objects are held by handle.
    NoTable,
}

impl Shape {
    /// The name in the table and in the JSON.
    pub fn name(self) -> &'static str {
        match self {
            Self::Processes => "processes",
            Self::OneProcess => "one process",
            Self::NoTable => "no table",
        }
    }
}

/// The world in which one column runs one job with a fixed number of threads.
pub trait Arena: Send + Sync {
    /// Makes the worker of one thread. Called on that thread, after it was pinned.
    ///
    /// # Errors
    ///
    /// If the thread cannot be made ready, or its first operations give wrong results.
    fn worker(&self, seat: Seat) -> Result<Box<dyn Worker>, Fault>;

    /// Called between samples, when no worker runs: everything that was opened must be gone again.
    ///
    /// # Errors
    ///
    /// If a counter is not where it was when the arena was opened.
    fn settle(&self) -> Result<(), Fault>;
}

/// One thread's place in an arena.
#[derive(Clone, Copy, Debug)]
pub struct Seat {
    /// The thread's number, from 0; also its number for worlds that are given their CPUs.
    pub thread: usize,
    /// How many threads the arena has.
    pub threads: usize,
}

/// What one thread does during a sample.
pub trait Worker {
    /// Does the job `ops` times, or less often if `stop` is set meanwhile, and says how often: at least once.
    /// The loop is inside, so that the caller's indirect call is paid once a sample.
    ///
    /// # Errors
    ///
    /// If an operation failed or any of them gave a wrong result.
    fn run(&mut self, ops: u64, stop: &AtomicBool) -> Result<u64, Fault>;

    /// Called by the same thread after each sample, outside the time measured: for checks that would cost more than
    /// what they check.
    ///
    /// # Errors
    ///
    /// If a result is wrong.
    fn check(&mut self) -> Result<(), Fault> {
        Ok(())
    }
}

/// Why a result cannot be trusted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fault(String);

impl Fault {
    /// A fault that says `why`.
    pub fn new(why: impl Into<String>) -> Self {
        Self(why.into())
    }

    /// A fault unless `held`.
    ///
    /// # Errors
    ///
    /// If `held` is false.
    pub fn unless(held: bool, why: impl FnOnce() -> String) -> Result<(), Self> {
        if held { Ok(()) } else { Err(Self(why())) }
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Why a column does not run a job.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Unfit {
    /// It has no such job; not a failure.
    Missing(String),
    /// It has, and does it wrong, or cannot be started: a peer that was asked for by a feature of
    /// the build is not left out without an error.
    Broken(Fault),
}

impl From<Fault> for Unfit {
    fn from(fault: Fault) -> Self {
        Self::Broken(fault)
    }
}

/// Operations between two looks at the stop flag: enough that the look costs nothing, few enough that a loop
/// comes to an end even where each operation waits for a thread that is off its CPU.
pub(crate) const BETWEEN_LOOKS: u64 = 64;

/// A worker whose loop is compiled around `cycle` alone.
///
/// `cycle` does the job once and says whether the result obeyed `rule`, or why it failed.
pub fn looped<C, E>(rule: &'static str, cycle: C) -> Box<dyn Worker>
where
    C: FnMut() -> Result<bool, E> + 'static,
    E: fmt::Display,
{
    Box::new(Looped { rule, cycle })
}

struct Looped<C> {
    rule: &'static str,
    cycle: C,
}

impl<C, E> Worker for Looped<C>
where
    C: FnMut() -> Result<bool, E>,
    E: fmt::Display,
{
    #[inline(never)]
    fn run(&mut self, ops: u64, stop: &AtomicBool) -> Result<u64, Fault> {
        repeat(self.rule, ops, stop, &mut self.cycle)
    }
}

/// The loop of [`looped`], for workers that need something around it: does `cycle` `ops` times, or less often if
/// `stop` is set meanwhile, and says how often.
///
/// # Errors
///
/// If an operation failed or any of them broke `rule`.
#[inline(always)]
pub fn repeat<E: fmt::Display>(
    rule: &'static str,
    ops: u64,
    stop: &AtomicBool,
    mut cycle: impl FnMut() -> Result<bool, E>,
) -> Result<u64, Fault> {
    let mut right = true;
    let mut done = 0;
    loop {
        let pause = ops.min(done + BETWEEN_LOOKS);
        while done < pause {
            match cycle() {
                Ok(held) => right &= held,
                Err(error) => {
                    return Err(Fault(format!("operation {done} of {ops} failed: {error}")));
                }
            }
            done += 1;
        }
        // Relaxed: nothing is ordered by the flag; a late look costs some operations more.
        if done == ops || stop.load(Ordering::Relaxed) {
            break;
        }
    }
    Fault::unless(black_box(right), || format!("a result broke the rule: {rule}")).map(|()| done)
}
