//! Columns made for tests: they count, and some of them are wrong on purpose.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use quietline_bench::harness::{Arena, Column, Fault, Seat, Shape, Unfit, Worker};
use quietline_bench::workloads::Job;

/// In which way a column is wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Flaw {
    None,
    /// Has no such job.
    Absent,
    /// Cannot even open.
    Opening,
    /// No worker can be made.
    Hiring,
    /// An operation fails in the third sample.
    Operation,
    /// Something is left open after the third sample.
    Leak,
    /// Operations never end from the third sample on.
    Stuck,
    /// The worker of the last thread panics in the third sample.
    Panic,
}

/// What every worker did: the column's name and the CPU it ran on, per sample.
pub(crate) type Log = Arc<Mutex<Vec<(String, usize, Option<usize>)>>>;

/// A column that adds numbers.
pub(crate) struct Toy {
    pub(crate) name: &'static str,
    pub(crate) flaw: Flaw,
    pub(crate) log: Log,
    /// The jobs it is there for.
    pub(crate) does: fn(Job) -> bool,
}

impl Toy {
    pub(crate) fn column(name: &'static str, flaw: Flaw) -> Arc<dyn Column> {
        Arc::new(Self { name, flaw, log: Log::default(), does: |_| true })
    }

    pub(crate) fn limited(name: &'static str, does: fn(Job) -> bool) -> Arc<dyn Column> {
        Arc::new(Self { name, flaw: Flaw::None, log: Log::default(), does })
    }

    pub(crate) fn logged(name: &'static str, log: &Log) -> Arc<dyn Column> {
        Arc::new(Self { name, flaw: Flaw::None, log: log.clone(), does: |_| true })
    }
}

impl Column for Toy {
    fn name(&self) -> &str {
        self.name
    }

    fn says(&self) -> &str {
        "adds numbers"
    }

    fn shape(&self) -> Shape {
        Shape::NoTable
    }

    fn does(&self, job: Job) -> bool {
        (self.does)(job)
    }

    fn open(&self, _job: Job, _threads: usize) -> Result<Arc<dyn Arena>, Unfit> {
        match self.flaw {
            Flaw::Absent => Err(Unfit::Missing("it only adds".to_owned())),
            Flaw::Opening => Err(Unfit::Broken(Fault::new("cannot open"))),
            flaw => {
                let log = self.log.clone();
                Ok(Arc::new(ToyArena { name: self.name, flaw, log, settled: AtomicU64::new(0) }))
            }
        }
    }
}

struct ToyArena {
    name: &'static str,
    flaw: Flaw,
    log: Log,
    settled: AtomicU64,
}

impl Arena for ToyArena {
    fn worker(&self, seat: Seat) -> Result<Box<dyn Worker>, Fault> {
        Fault::unless(self.flaw != Flaw::Hiring, || "no worker".to_owned())?;
        let flaw = if seat.thread + 1 == seat.threads { self.flaw } else { Flaw::None };
        Ok(Box::new(Adder {
            name: self.name,
            flaw,
            seat,
            log: self.log.clone(),
            samples: 0,
            sum: 0,
        }))
    }

    fn settle(&self) -> Result<(), Fault> {
        // Once after muster, then once per sample.
        let settled = self.settled.fetch_add(1, Ordering::Relaxed);
        Fault::unless(self.flaw != Flaw::Leak || settled < 3, || "3 files left open".to_owned())
    }
}

struct Adder {
    name: &'static str,
    flaw: Flaw,
    seat: Seat,
    log: Log,
    samples: u64,
    sum: u64,
}

impl Worker for Adder {
    fn run(&mut self, ops: u64, stop: &AtomicBool) -> Result<u64, Fault> {
        self.samples += 1;
        let cpu = Some(rustix::thread::sched_getcpu());
        self.log.lock().expect("not poisoned").push((self.name.to_owned(), self.seat.thread, cpu));
        if self.samples == 3 {
            assert!(self.flaw != Flaw::Panic, "panics on purpose");
            Fault::unless(self.flaw != Flaw::Operation, || "operation 7 failed".to_owned())?;
        }
        let mut done = 0;
        while done < ops && (done == 0 || !stop.load(Ordering::Relaxed)) {
            // The operations of a stuck column last until someone stops them.
            let waits = self.flaw == Flaw::Stuck && self.samples >= 3;
            while waits && !stop.load(Ordering::Relaxed) {
                std::thread::yield_now();
            }
            self.sum = std::hint::black_box(self.sum.wrapping_mul(31).wrapping_add(done));
            done += 1;
        }
        Ok(done)
    }
}
