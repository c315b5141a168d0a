//! The host kernel, by real system calls.
//!
//! `host` gives every thread a descriptor table of its own (`unshare(CLONE_FILES)`), which is the shape of
//! the seed's benchmark, whose workers are processes. `host-shared` leaves the threads on the one table of
//! the program.

use std::fs;
use std::sync::Arc;

use rustix::event::{EventfdFlags, eventfd};
use rustix::fd::{AsRawFd, OwnedFd};
use rustix::io;
use rustix::net::{AddressFamily, SocketType, socket};
use rustix::pipe::{PipeFlags, pipe_with};
use rustix::time::{TimerfdClockId, TimerfdFlags, timerfd_create};

use super::descriptors;
use super::probe::{self, failed};
use super::table::{Numbers, RULE};
use crate::harness::{Arena, Column, Fault, Seat, Shape, Unfit, Worker, looped};
use crate::raw;
use crate::workloads::{Domain, Job, Object};

/// `host` and `host-shared`.
pub fn columns() -> Vec<Arc<dyn Column>> {
    vec![
        Arc::new(Host { name: "host", shape: Shape::Processes }),
        Arc::new(Host { name: "host-shared", shape: Shape::OneProcess }),
    ]
}

struct Host {
    name: &'static str,
    shape: Shape,
}

impl Column for Host {
    fn name(&self) -> &str {
        self.name
    }

    fn says(&self) -> &str {
        match self.shape {
            Shape::OneProcess => "the kernel of this machine, all threads on one descriptor table",
            _ => "the kernel of this machine, by system calls, a descriptor table per thread",
        }
    }

    fn shape(&self) -> Shape {
        self.shape
    }

    fn does(&self, job: Job) -> bool {
        match job {
            Job::OpenClose(_) => true,
            Job::Descriptor(_) => self.shape == Shape::Processes,
            Job::Primitive(_)
            | Job::Slab(_)
            | Job::Dcache(_)
            | Job::Open(_)
            | Job::Unlink(_)
            | Job::Watched
            | Job::Forward(_)
            | Job::PingPong(_)
            | Job::Throughput(_)
            | Job::Connections(_)
            | Job::Events(_) => false,
        }
    }

    fn open(&self, job: Job, _threads: usize) -> Result<Arc<dyn Arena>, Unfit> {
        match job {
            Job::OpenClose(object) => Ok(Arc::new(HostArena { object, shape: self.shape })),
            Job::Descriptor(call) => Ok(descriptors::host(call)),
            Job::Primitive(_)
            | Job::Slab(_)
            | Job::Dcache(_)
            | Job::Open(_)
            | Job::Unlink(_)
            | Job::Watched
            | Job::Forward(_)
            | Job::PingPong(_)
            | Job::Throughput(_)
            | Job::Connections(_)
            | Job::Events(_) => {
                Err(Unfit::Missing("a column of descriptors has no such job".to_owned()))
            }
        }
    }
}

struct HostArena {
    object: Object,
    shape: Shape,
}

impl Arena for HostArena {
    fn worker(&self, seat: Seat) -> Result<Box<dyn Worker>, Fault> {
        if self.shape == Shape::Processes {
            raw::own_descriptor_table().map_err(|e| {
                Fault::new(format!("cannot give a thread its own descriptor table: {e}"))
            })?;
        }
        let opener =
            Opener { shape: self.shape, open_at_once: seat.threads * self.object.descriptors() };
        match self.object {
            Object::Socket(domain) => {
                let family = match domain {
                    Domain::Inet => AddressFamily::INET,
                    Domain::Inet6 => AddressFamily::INET6,
                    Domain::Unix => AddressFamily::UNIX,
                };
                opener.single("socket:[", move || socket(family, SocketType::STREAM, None))
            }
            Object::Pipe => opener.pair("pipe:[", || pipe_with(PipeFlags::empty())),
            Object::Eventfd => {
                opener.single("anon_inode:[eventfd]", || eventfd(0, EventfdFlags::empty()))
            }
            Object::Timerfd => opener.single("anon_inode:[timerfd]", || {
                timerfd_create(TimerfdClockId::Monotonic, TimerfdFlags::empty())
            }),
            Object::Signalfd => opener.single("anon_inode:[signalfd]", raw::signalfd),
        }
    }

    /// The kernel's own counters are the whole machine's. That nothing is left behind is seen from the
    /// numbers: each descriptor that stayed open would push the lowest free number up, and the workers check
    /// every number.
    fn settle(&self) -> Result<(), Fault> {
        Ok(())
    }
}

/// Makes workers and knows which numbers they will see.
struct Opener {
    shape: Shape,
    /// How many descriptors the arena holds at most at one time.
    open_at_once: usize,
}

/// How many descriptors the rest of the program may have open beside the arena: its own files and, in a test
/// run, those of other tests.
const OTHERS: i32 = 256;

impl Opener {
    /// A worker that opens one descriptor and closes it.
    fn single<O>(&self, name: &str, mut open: O) -> Result<Box<dyn Worker>, Fault>
    where
        O: FnMut() -> io::Result<OwnedFd> + 'static,
    {
        is_named(&open().map_err(failed)?, name)?;
        let numbers = self.numbers(&mut open)?;
        Ok(looped(RULE, move || {
            let fd = open()?;
            let right = numbers.hold(&[fd.as_raw_fd()]);
            drop(fd);
            Ok::<_, io::Errno>(right)
        }))
    }

    /// A worker that opens two descriptors and closes both.
    fn pair<O>(&self, name: &str, mut open: O) -> Result<Box<dyn Worker>, Fault>
    where
        O: FnMut() -> io::Result<(OwnedFd, OwnedFd)> + 'static,
    {
        let (reader, writer) = open().map_err(failed)?;
        is_named(&reader, name)?;
        is_named(&writer, name)?;
        drop((reader, writer));
        let numbers = self.numbers(|| open().map(|(reader, _)| reader))?;
        Ok(looped(RULE, move || {
            let (reader, writer) = open()?;
            let right = numbers.hold(&[reader.as_raw_fd(), writer.as_raw_fd()]);
            drop(reader);
            drop(writer);
            Ok::<_, io::Errno>(right)
        }))
    }

    /// The numbers that an operation may see, where `open` opens one descriptor: one each in a table that
    /// only this thread uses.
    fn numbers(&self, mut open: impl FnMut() -> io::Result<OwnedFd>) -> Result<Numbers, Fault> {
        if self.shape == Shape::Processes {
            let close = |fd| {
                drop(fd);
                Ok(())
            };
            return Ok(Numbers::exactly(probe::lowest(open, AsRawFd::as_raw_fd, close)?));
        }
        let highest = open().map_err(failed)?.as_raw_fd() + OTHERS + self.open_at_once as i32;
        Ok(Numbers::up_to(highest))
    }
}

/// Fails unless the kernel calls the file behind `fd` something that starts with `name`.
fn is_named(fd: &OwnedFd, name: &str) -> Result<(), Fault> {
    let link = format!("/proc/thread-self/fd/{}", fd.as_raw_fd());
    let target =
        fs::read_link(&link).map_err(|e| Fault::new(format!("cannot read {link}: {e}")))?;
    Fault::unless(target.to_string_lossy().starts_with(name), || {
        format!("opened {}, expected {name}", target.display())
    })
}
