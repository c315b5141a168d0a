//! System calls on an open descriptor: the host kernel's and quietline's, by one loop.

use std::fmt::Display;
use std::sync::Arc;

use quietline::abi::{EFD_CLOEXEC, F_GETFD, F_GETFL, FD_CLOEXEC, O_ACCMODE, O_RDWR};
use quietline::{Config, Errno, Kernel, Process};
use rustix::event::{EventfdFlags, eventfd};
use rustix::fd::{AsRawFd, OwnedFd};
use rustix::{fs, io};

use super::probe::{self, failed};
use crate::harness::{Arena, Fault, Seat, Worker, looped};
use crate::raw;
use crate::workloads::Call;

/// The host kernel, a descriptor table for each thread.
pub(super) fn host(call: Call) -> Arc<dyn Arena> {
    Arc::new(Host(call))
}

/// quietline, a process for each of `threads` threads.
///
/// # Errors
///
/// If there is no memory.
pub(super) fn quietline(call: Call, threads: usize) -> Result<Arc<dyn Arena>, Fault> {
    let kernel = Kernel::boot(Config::default()).map_err(failed)?;
    Ok(Arc::new(Quietline { call, kernel, threads }))
}

struct Host(Call);

impl Arena for Host {
    fn worker(&self, _: Seat) -> Result<Box<dyn Worker>, Fault> {
        raw::own_descriptor_table().map_err(failed)?;
        worker(HostFd(eventfd(0, EventfdFlags::CLOEXEC).map_err(failed)?), self.0)
    }

    /// A duplicate left open would have pushed the lowest free number up, and the workers check that.
    fn settle(&self) -> Result<(), Fault> {
        Ok(())
    }
}

struct Quietline {
    call: Call,
    kernel: Kernel,
    threads: usize,
}

impl Arena for Quietline {
    fn worker(&self, _: Seat) -> Result<Box<dyn Worker>, Fault> {
        let process = self.kernel.process().map_err(failed)?;
        let fd = process.eventfd(0, EFD_CLOEXEC).map_err(failed)?;
        worker(QuietlineFd { process, fd }, self.call)
    }

    fn settle(&self) -> Result<(), Fault> {
        let files = self.kernel.nr_files();
        let expected = self.threads as i64;
        Fault::unless(files == expected, || format!("{files} files open, expected {expected}"))
    }
}

/// An open descriptor, as one thread sees it.
trait Descriptor: 'static {
    type Duplicate;
    type Error: Display;

    fn dup(&self) -> Result<Self::Duplicate, Self::Error>;
    fn number(duplicate: &Self::Duplicate) -> i32;
    fn close(&self, duplicate: Self::Duplicate) -> Result<(), Self::Error>;
    /// `O_*`, as a number.
    fn getfl(&self) -> Result<i32, Self::Error>;
    /// `FD_CLOEXEC` or 0.
    fn getfd(&self) -> Result<i32, Self::Error>;
}

/// A worker, once the first calls have given what Linux gives.
fn worker<D: Descriptor>(descriptor: D, call: Call) -> Result<Box<dyn Worker>, Fault> {
    let [lowest, _] = probe::lowest(|| descriptor.dup(), D::number, |copy| descriptor.close(copy))?;
    let (status, flags) =
        (descriptor.getfl().map_err(failed)?, descriptor.getfd().map_err(failed)?);
    Fault::unless(status & O_ACCMODE == O_RDWR && flags == FD_CLOEXEC, || {
        format!("an eventfd made with EFD_CLOEXEC has F_GETFL {status:#o} and F_GETFD {flags}")
    })?;
    Ok(match call {
        Call::Dup => looped("dup gives the lowest free number", move || {
            let copy = descriptor.dup()?;
            let right = D::number(&copy) == lowest;
            descriptor.close(copy)?;
            Ok::<_, D::Error>(right)
        }),
        Call::GetFl => looped("F_GETFL says what it said at first", move || {
            Ok::<_, D::Error>(descriptor.getfl()? == status)
        }),
        Call::GetFd => looped("F_GETFD says FD_CLOEXEC", move || {
            Ok::<_, D::Error>(descriptor.getfd()? == FD_CLOEXEC)
        }),
    })
}

struct HostFd(OwnedFd);

impl Descriptor for HostFd {
    type Duplicate = OwnedFd;
    type Error = io::Errno;

    #[inline(always)]
    fn dup(&self) -> io::Result<OwnedFd> {
        io::dup(&self.0)
    }

    #[inline(always)]
    fn number(duplicate: &OwnedFd) -> i32 {
        duplicate.as_raw_fd()
    }

    #[inline(always)]
    fn close(&self, duplicate: OwnedFd) -> io::Result<()> {
        drop(duplicate);
        Ok(())
    }

    #[inline(always)]
    fn getfl(&self) -> io::Result<i32> {
        fs::fcntl_getfl(&self.0).map(|flags| flags.bits() as i32)
    }

    #[inline(always)]
    fn getfd(&self) -> io::Result<i32> {
        io::fcntl_getfd(&self.0).map(|flags| flags.bits() as i32)
    }
}

struct QuietlineFd {
    process: Process,
    fd: i32,
}

impl Descriptor for QuietlineFd {
    type Duplicate = i32;
    type Error = Errno;

    #[inline(always)]
    fn dup(&self) -> Result<i32, Errno> {
        self.process.dup(self.fd)
    }

    #[inline(always)]
    fn number(duplicate: &i32) -> i32 {
        *duplicate
    }

    #[inline(always)]
    fn close(&self, duplicate: i32) -> Result<(), Errno> {
        self.process.close(duplicate)
    }

    #[inline(always)]
    fn getfl(&self) -> Result<i32, Errno> {
        self.process.fcntl(self.fd, F_GETFL, 0)
    }

    #[inline(always)]
    fn getfd(&self) -> Result<i32, Errno> {
        self.process.fcntl(self.fd, F_GETFD, 0)
    }
}
