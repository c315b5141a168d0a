//! The primitives of quietline, each beside the peers that a program would use otherwise: one file for each kind.

mod counts;
mod locks;
mod rcu;
mod references;
mod slab;
mod worker;

use std::sync::Arc;

use crate::harness::{Arena, Column, Fault, Seat, Shape, Unfit, Worker};
use crate::workloads::{Job, Primitive};
use quietline_platform::atomic::AtomicBool;

/// The peers, then `quietline`.
pub fn columns() -> Vec<Arc<dyn Column>> {
    [
        Implementation {
            name: "peer-malloc",
            says: "the heap, by std::alloc, one object at a time",
            opens: &[
                (Primitive::SlabPair, slab::malloc_pair),
                (Primitive::SlabBulk8, slab::malloc_bulk::<8>),
                (Primitive::SlabBulk32, slab::malloc_bulk::<32>),
            ],
        },
        Implementation {
            name: "peer-crossbeam-epoch",
            says: "crossbeam-epoch: pin, and defer_destroy, with a handle per thread",
            opens: &[(Primitive::RcuRead, rcu::epoch_read), (Primitive::RcuCall, rcu::epoch_call)],
        },
        Implementation {
            name: "peer-std-rwlock",
            says: "the read lock of a std::sync::RwLock",
            opens: &[(Primitive::RcuRead, rcu::rwlock_read)],
        },
        Implementation {
            name: "peer-cas-loop",
            says: "lock and count in one word, changed by compare-and-exchange, as in the kernel",
            opens: &[(Primitive::Lockref, references::cas_loop)],
        },
        Implementation {
            name: "peer-arc",
            says: "clone and drop of a std::sync::Arc",
            opens: &[(Primitive::Lockref, references::arc), (Primitive::FileRef, references::arc)],
        },
        Implementation {
            name: "peer-fetch-add",
            says: "one atomic word on a line of its own",
            opens: &[
                (Primitive::Counter, counts::fetch_add_counter),
                (Primitive::Ids, counts::fetch_add_ids),
                (Primitive::FileRef, references::fetch_add),
            ],
        },
        Implementation {
            name: "peer-std-mutex",
            says: "std::sync::Mutex",
            opens: &[(Primitive::SpinLock, locks::std_mutex)],
        },
        Implementation {
            name: "peer-parking-lot",
            says: "parking_lot::Mutex",
            opens: &[(Primitive::SpinLock, locks::parking_lot)],
        },
        Implementation {
            name: "quietline",
            says: "the primitive of quietline",
            opens: &[
                (Primitive::SlabPair, slab::cache_pair),
                (Primitive::SlabBulk8, slab::cache_bulk::<8>),
                (Primitive::SlabBulk32, slab::cache_bulk::<32>),
                (Primitive::Counter, counts::counter),
                (Primitive::Ids, counts::ids),
                (Primitive::RcuRead, rcu::read),
                (Primitive::RcuCall, rcu::call),
                (Primitive::Lockref, references::lockref),
                (Primitive::FileRef, references::file_ref),
                (Primitive::SpinLock, locks::spinlock),
            ],
        },
    ]
    .map(|column| Arc::new(column) as Arc<dyn Column>)
    .to_vec()
}

/// A column: who has which primitives.
struct Implementation {
    name: &'static str,
    says: &'static str,
    opens: &'static [(Primitive, Open)],
}

/// Makes the world of one primitive.
type Open = fn() -> Opened;
type Opened = Result<Arc<dyn Arena>, Fault>;

impl Implementation {
    fn open_of(&self, job: Job) -> Option<Open> {
        self.opens
            .iter()
            .find(|(primitive, _)| Job::Primitive(*primitive) == job)
            .map(|&(_, open)| open)
    }
}

/// Operations that prove a primitive before it is timed: enough to fill and refill what is kept per CPU.
const PROOF: u64 = 5_000;

impl Column for Implementation {
    fn name(&self) -> &str {
        self.name
    }

    fn says(&self) -> &str {
        self.says
    }

    fn shape(&self) -> Shape {
        Shape::NoTable
    }

    fn does(&self, job: Job) -> bool {
        self.open_of(job).is_some()
    }

    fn open(&self, job: Job, threads: usize) -> Result<Arc<dyn Arena>, Unfit> {
        let open = self
            .open_of(job)
            .ok_or_else(|| Unfit::Missing("it has no such primitive".to_owned()))?;
        let arena = open()?;
        arena.worker(Seat { thread: 0, threads })?.run(PROOF, &AtomicBool::new(false))?;
        arena.settle()?;
        Ok(arena)
    }
}

/// What all threads share, how a thread uses it, and what must be true of it when none does.
struct Stage<W> {
    world: Arc<W>,
    hire: Hire<W>,
    settled: fn(&W) -> Result<(), Fault>,
}

/// Makes a thread's worker. Its loop is compiled for the primitive alone.
type Hire<W> = fn(Arc<W>, Seat) -> Result<Box<dyn Worker>, Fault>;

/// An arena of these.
fn stage<W: Send + Sync + 'static>(
    world: W,
    hire: Hire<W>,
    settled: fn(&W) -> Result<(), Fault>,
) -> Arc<dyn Arena> {
    Arc::new(Stage { world: Arc::new(world), hire, settled })
}

impl<W: Send + Sync> Arena for Stage<W> {
    fn worker(&self, seat: Seat) -> Result<Box<dyn Worker>, Fault> {
        (self.hire)(self.world.clone(), seat)
    }

    fn settle(&self) -> Result<(), Fault> {
        (self.settled)(&self.world)
    }
}

/// Marks of a thread's own, each one above the last: what one thread wrote no other takes for its own.
fn marks(seat: Seat) -> impl FnMut() -> u64 {
    let mut mark = (seat.thread as u64 + 1) << 48;
    move || {
        mark += 1;
        mark
    }
}
