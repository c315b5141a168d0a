//! The ladder: Linux 2.6.27 in miniature, one column for each patch of the series of 2008.

use std::sync::Arc;

use quietline_history::sockets::{Process, World};
use quietline_history::{Errno, Rung};

use super::census::Census;
use super::probe::failed;
use super::table::{Calls, Table, opening};
use crate::harness::{Arena, Column, Fault, Seat, Shape, Unfit, Worker};
use crate::workloads::{Domain, Job, Object};

/// `history-RUNG` for every rung, lowest first.
pub fn columns() -> Vec<Arc<dyn Column>> {
    let column = |rung: Rung| History { rung, name: format!("history-{}", rung.name()) };
    Rung::ALL.into_iter().map(|rung| Arc::new(column(rung)) as Arc<dyn Column>).collect()
}

struct History {
    rung: Rung,
    name: String,
}

impl Column for History {
    fn name(&self) -> &str {
        &self.name
    }

    fn says(&self) -> &str {
        self.rung.says()
    }

    fn shape(&self) -> Shape {
        Shape::Processes
    }

    fn does(&self, job: Job) -> bool {
        matches!(job, Job::OpenClose(_))
    }

    fn open(&self, job: Job, threads: usize) -> Result<Arc<dyn Arena>, Unfit> {
        let Job::OpenClose(object) = job else {
            return Err(Unfit::Missing("the miniature only opens and closes".to_owned()));
        };
        let calls = calls(object)?;
        // Every thread has a CPU of the miniature to itself, also where two share one of the machine's.
        let world = World::try_new(self.rung, threads).map_err(failed)?;
        let process = world.try_process().map_err(failed)?;
        let start = census(&world);
        calls.prove(&Caller { process, cpu: 0 }, object, &|| census(&world))?;
        Ok(Arc::new(HistoryArena { calls, world, start }))
    }
}

/// The calls of the miniature, of which it has those that the series is about.
fn calls(object: Object) -> Result<Box<dyn Calls<Caller>>, Unfit> {
    match object {
        Object::Socket(Domain::Inet) => {
            Ok(opening(|on: &Caller| on.process.socket(on.cpu).map(|fd| [fd])))
        }
        Object::Pipe => Ok(opening(|on: &Caller| on.process.pipe(on.cpu))),
        Object::Eventfd => Ok(opening(|on: &Caller| on.process.eventfd(on.cpu).map(|fd| [fd]))),
        Object::Socket(Domain::Inet6 | Domain::Unix) => {
            Err(Unfit::Missing("the miniature has sockets of AF_INET only".to_owned()))
        }
        Object::Timerfd | Object::Signalfd => {
            Err(Unfit::Missing("the miniature has no anonymous descriptor but eventfd".to_owned()))
        }
    }
}

/// A process of the miniature and the CPU on which its one thread is.
struct Caller {
    process: Process,
    cpu: usize,
}

impl Table for Caller {
    type Error = Errno;

    #[inline(always)]
    fn close(&self, fd: i32) -> Result<(), Errno> {
        self.process.close(self.cpu, fd)
    }
}

struct HistoryArena {
    calls: Box<dyn Calls<Caller>>,
    world: World,
    /// What exists while no worker has anything open.
    start: Census,
}

impl Arena for HistoryArena {
    fn worker(&self, seat: Seat) -> Result<Box<dyn Worker>, Fault> {
        let process = self.world.try_process().map_err(failed)?;
        let caller = Caller { process, cpu: seat.thread };
        let numbers = self.calls.lowest(&caller)?;
        Ok(self.calls.worker(caller, numbers))
    }

    fn settle(&self) -> Result<(), Fault> {
        census(&self.world).back_at(self.start)
    }
}

/// The world's counters, when what waits for a grace period is freed too. No thread may be in a call.
fn census(world: &World) -> Census {
    world.quiesce();
    Census { files: world.nr_files(), dentries: world.nr_dentry(), inodes: world.nr_inodes() }
}
