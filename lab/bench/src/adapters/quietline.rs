//! quietline itself: with the lowest free descriptor, with any free descriptor, and by handle without one.

use std::hint::black_box;
use std::sync::Arc;

use quietline::abi::{AF_INET, AF_INET6, AF_UNIX, CLOCK_MONOTONIC, O_ANYFD, SOCK_STREAM};
use quietline::{Config, Errno, FileHandle, Kernel, Process};

use super::census::Census;
use super::descriptors;
use super::probe::failed;
use super::table::{Calls, Numbers, Table, opening};
use crate::harness::{Arena, Column, Fault, Seat, Shape, Unfit, Worker, looped};
use crate::workloads::{Domain, Job, Object};

/// The columns of quietline.
pub fn columns() -> Vec<Arc<dyn Column>> {
    Variant::ALL.into_iter().map(|variant| Arc::new(variant) as Arc<dyn Column>).collect()
}

/// How a thread comes by its descriptors.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Variant {
    /// The lowest free number of a table of its own.
    LowestFd,
    /// The lowest free number of the table that all threads share.
    LowestFdShared,
    /// Any free number of the table that all threads share.
    AnyFd,
    /// Not at all.
    Handle,
}

impl Variant {
    const ALL: [Self; 4] = [Self::LowestFd, Self::LowestFdShared, Self::AnyFd, Self::Handle];
}

impl Column for Variant {
    fn name(&self) -> &str {
        match self {
            Self::LowestFd => "quietline-lowestfd",
            Self::LowestFdShared => "quietline-lowestfd-shared",
            Self::AnyFd => "quietline-anyfd",
            Self::Handle => "quietline-handle",
        }
    }

    fn says(&self) -> &str {
        match self {
            Self::LowestFd => "the lowest free descriptor, each thread a process",
            Self::LowestFdShared => {
                "the lowest free descriptor, all threads one process, under its lock"
            }
            Self::AnyFd => "any free descriptor (O_ANYFD), all threads one process",
            Self::Handle => {
                "the file by handle, without a descriptor; only the counters after each sample check it"
            }
        }
    }

    fn shape(&self) -> Shape {
        match self {
            Self::LowestFd => Shape::Processes,
            Self::LowestFdShared | Self::AnyFd => Shape::OneProcess,
            Self::Handle => Shape::NoTable,
        }
    }

    fn does(&self, job: Job) -> bool {
        match job {
            Job::OpenClose(_) => true,
            Job::Descriptor(_) => *self == Self::LowestFd,
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

    fn open(&self, job: Job, threads: usize) -> Result<Arc<dyn Arena>, Unfit> {
        let object = match job {
            Job::OpenClose(object) => object,
            Job::Descriptor(call) => return Ok(descriptors::quietline(call, threads)?),
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
                return Err(Unfit::Missing("a column of descriptors has no such job".to_owned()));
            }
        };
        let calls = match self {
            Self::LowestFd | Self::LowestFdShared => by_descriptor(object, 0),
            Self::AnyFd => by_descriptor(object, O_ANYFD),
            Self::Handle => by_handle(object),
        };
        let kernel =
            Kernel::boot(Config::default()).map_err(|e| Fault::new(format!("cannot boot: {e}")))?;
        let shared = Shared(Arc::new(kernel.process().map_err(failed)?));
        let start = census(&kernel);
        calls.prove(&shared, object, &|| census(&kernel))?;
        Ok(Arc::new(QuietlineArena { variant: *self, object, calls, shared, start, kernel }))
    }
}

/// A process, held by each thread that runs in it.
#[derive(Clone)]
struct Shared(Arc<Process>);

impl Table for Shared {
    type Error = Errno;

    #[inline(always)]
    fn close(&self, fd: i32) -> Result<(), Errno> {
        self.0.close(fd)
    }
}

struct QuietlineArena {
    variant: Variant,
    object: Object,
    calls: Box<dyn Calls<Shared>>,
    /// The process of the variants in which all threads are one.
    shared: Shared,
    /// What exists while no worker has anything open.
    start: Census,
    kernel: Kernel,
}

impl Arena for QuietlineArena {
    fn worker(&self, seat: Seat) -> Result<Box<dyn Worker>, Fault> {
        let open_at_once = (seat.threads * self.object.descriptors()) as i32;
        let (process, numbers) = match self.variant {
            Variant::LowestFd => {
                let own = Shared(Arc::new(self.kernel.process().map_err(failed)?));
                let numbers = self.calls.lowest(&own)?;
                (own, numbers)
            }
            Variant::LowestFdShared => (self.shared.clone(), Numbers::up_to(open_at_once - 1)),
            Variant::AnyFd | Variant::Handle => (self.shared.clone(), Numbers::up_to(i32::MAX)),
        };
        Ok(self.calls.worker(process, numbers))
    }

    fn settle(&self) -> Result<(), Fault> {
        census(&self.kernel).back_at(self.start)
    }
}

/// The kernel's counters, by exact sums.
fn census(kernel: &Kernel) -> Census {
    Census { files: kernel.nr_files(), dentries: kernel.nr_dentry(), inodes: kernel.nr_inodes() }
}

fn family(domain: Domain) -> i32 {
    match domain {
        Domain::Inet => AF_INET,
        Domain::Inet6 => AF_INET6,
        Domain::Unix => AF_UNIX,
    }
}

/// The signals of a signalfd: `SIGUSR1`, which is number 10 on every machine that quietline runs on.
const MASK: u64 = 1 << (10 - 1);

/// The system calls that make `object`; `anyfd` is 0 or `O_ANYFD`.
fn by_descriptor(object: Object, anyfd: i32) -> Box<dyn Calls<Shared>> {
    match object {
        Object::Socket(domain) => {
            let (family, kind) = (family(domain), SOCK_STREAM | anyfd);
            opening(move |on: &Shared| on.0.socket(family, kind, 0).map(|fd| [fd]))
        }
        Object::Pipe => opening(move |on: &Shared| on.0.pipe2(anyfd)),
        Object::Eventfd => opening(move |on: &Shared| on.0.eventfd(0, anyfd).map(|fd| [fd])),
        Object::Timerfd => {
            opening(move |on: &Shared| on.0.timerfd_create(CLOCK_MONOTONIC, anyfd).map(|fd| [fd]))
        }
        Object::Signalfd => {
            opening(move |on: &Shared| on.0.signalfd(-1, MASK, anyfd).map(|fd| [fd]))
        }
    }
}

/// The same files without descriptors.
fn by_handle(object: Object) -> Box<dyn Calls<Shared>> {
    match object {
        Object::Socket(domain) => {
            let family = family(domain);
            holding(move |on: &Shared| on.0.socket_file(family, SOCK_STREAM, 0).map(|file| [file]))
        }
        Object::Pipe => holding(|on: &Shared| on.0.pipe_files(0)),
        Object::Eventfd => holding(|on: &Shared| on.0.eventfd_file(0, 0).map(|file| [file])),
        Object::Timerfd => {
            holding(|on: &Shared| on.0.timerfd_file(CLOCK_MONOTONIC, 0).map(|file| [file]))
        }
        Object::Signalfd => holding(|on: &Shared| on.0.signalfd_file(MASK, 0).map(|file| [file])),
    }
}

/// The calls of a job that makes `N` files by `make`; dropping their handles closes them.
fn holding<const N: usize, M>(make: M) -> Box<dyn Calls<Shared>>
where
    M: Fn(&Shared) -> Result<[FileHandle<'_>; N], Errno> + Copy + Send + Sync + 'static,
{
    Box::new(Holding::<N, M>(make))
}

struct Holding<const N: usize, M>(M);

impl<const N: usize, M> Calls<Shared> for Holding<N, M>
where
    M: Fn(&Shared) -> Result<[FileHandle<'_>; N], Errno> + Copy + Send + Sync + 'static,
{
    fn prove(
        &self,
        process: &Shared,
        object: Object,
        census: &dyn Fn() -> Census,
    ) -> Result<(), Fault> {
        let before = census();
        let files = (self.0)(process).map_err(failed)?;
        let during = census();
        drop(files);
        during.holds_one(object, before)?;
        census().back_at(before)
    }

    fn lowest(&self, _: &Shared) -> Result<Numbers, Fault> {
        Err(Fault::new("a handle has no number"))
    }

    fn worker(&self, process: Shared, _: Numbers) -> Box<dyn Worker> {
        let make = self.0;
        looped("none in the loop; only the counters after the sample check handles", move || {
            // Nothing of a handle is used, and the compiler must not notice. So there is nothing to say of a result
            // either: that files were made and went is seen from the counters, before the samples and after each.
            let files = make(&process)?;
            black_box(&files);
            drop(files);
            Ok::<_, Errno>(true)
        })
    }
}
