//! Limits of a process (`RLIMIT_*`).
//!
//! Two are obeyed: `RLIMIT_NOFILE` and `RLIMIT_SIGPENDING`. The others are kept for the program.

use super::Task;
use crate::abi::{NR_OPEN, RLIM_INFINITY, RLIM_NLIMITS, RLIMIT_NOFILE, RLIMIT_SIGPENDING};
use crate::kernel::Inner;
use crate::{Errno, Process};
use quietline_platform::AllocError;
use quietline_platform::fork::{Rank, Registered};
use quietline_sync::{LazyBox, SpinLock};
use quietline_vfs::cred::{Capabilities, Cred};
use quietline_vfs::signalfd::MOST;

/// A limit (`struct rlimit64`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rlimit {
    /// The limit that is obeyed (`rlim_cur`).
    pub soft: u64,
    /// The largest soft limit that can be set (`rlim_max`).
    pub hard: u64,
}

/// All limits of a process, made when one is first set.
pub(crate) type Limits = LazyBox<AllLimits>;

/// The lock is held across forks of the host.
type AllLimits = Registered<SpinLock<[Rlimit; RLIM_NLIMITS]>>;

impl Rlimit {
    const fn both(limit: u64) -> Self {
        Self { soft: limit, hard: limit }
    }
}

fn make(limits: [Rlimit; RLIM_NLIMITS]) -> Result<AllLimits, AllocError> {
    Registered::new(Rank::Object, SpinLock::new(limits))
}

/// The limits of a first process.
fn first(k: &Inner) -> [Rlimit; RLIM_NLIMITS] {
    let mut limits = [Rlimit::both(RLIM_INFINITY); RLIM_NLIMITS];
    limits[RLIMIT_NOFILE as usize] = Rlimit::both(k.config.nofile.min(NR_OPEN) as u64);
    limits[RLIMIT_SIGPENDING as usize] = Rlimit::both(MOST as u64);
    limits
}

impl Task {
    /// Gives a new process its parent's limits but that on descriptors, which its table has.
    ///
    /// # Errors
    /// `ENOMEM`.
    pub(super) fn inherit_limits(&self, parent: &Self) -> Result<(), Errno> {
        if let Some(limits) = parent.limits.get() {
            let copy = *limits.lock();
            self.limits.get_or_make(|| make(copy)).map_err(|_| Errno::NOMEM)?;
            self.signals.set_most(copy[RLIMIT_SIGPENDING as usize].soft);
        }
        Ok(())
    }

    /// Returns a limit, and sets it if `new` is one (`do_prlimit`).
    fn prlimit(
        &self,
        k: &Inner,
        resource: u32,
        new: Option<Rlimit>,
        may_raise: bool,
    ) -> Result<Rlimit, Errno> {
        let at = Some(resource as usize).filter(|at| *at < RLIM_NLIMITS).ok_or(Errno::INVAL)?;
        let now = |limit: Rlimit| match resource {
            RLIMIT_NOFILE => Rlimit { soft: self.table.limit() as u64, ..limit },
            _ => limit,
        };
        let Some(new) = new else {
            let limit = self.limits.get().map(|limits| limits.lock()[at]);
            return Ok(now(limit.unwrap_or_else(|| first(k)[at])));
        };
        if new.soft > new.hard {
            return Err(Errno::INVAL);
        }
        if resource == RLIMIT_NOFILE && new.hard > NR_OPEN as u64 {
            return Err(Errno::PERM);
        }
        let limits = self.limits.get_or_make(|| make(first(k)));
        let mut limits = limits.map_err(|_| Errno::NOMEM)?.lock();
        let old = now(limits[at]);
        if new.hard > old.hard && !may_raise {
            return Err(Errno::PERM);
        }
        limits[at] = new;
        match resource {
            RLIMIT_NOFILE => self.table.set_limit(new.soft as usize),
            RLIMIT_SIGPENDING => self.signals.set_most(new.soft),
            _ => {}
        }
        Ok(old)
    }
}

impl Process {
    /// Returns a limit of the process: `RLIMIT_NOFILE` and so on.
    ///
    /// # Errors
    /// `EINVAL` for a limit that Linux does not have.
    pub fn getrlimit(&self, resource: u32) -> Result<Rlimit, Errno> {
        self.task.prlimit(self.inner(), resource, None, false)
    }

    /// Sets a limit of the process. Descriptors that are open, and signals that wait, stay.
    ///
    /// [`RLIMIT_NOFILE`] and [`RLIMIT_SIGPENDING`] are obeyed. The others are kept, inherited and
    /// returned.
    ///
    /// # Errors
    /// As `setrlimit(2)`: `EINVAL`; `EPERM` for a higher hard limit without `CAP_SYS_RESOURCE` in a
    /// [privileged](crate::Config::privileged) kernel, and for more than 1,048,576 descriptors;
    /// `ENOMEM`.
    pub fn setrlimit(&self, resource: u32, limit: Rlimit) -> Result<(), Errno> {
        self.prlimit(0, resource, Some(limit)).map(drop)
    }

    /// Returns a limit of a process (0: the caller), and sets it if `new` is one.
    ///
    /// # Errors
    /// As [`setrlimit`](Self::setrlimit); `ESRCH`; `EPERM` for a process with another user or
    /// group, without `CAP_SYS_RESOURCE`.
    pub fn prlimit(&self, pid: i32, resource: u32, new: Option<Rlimit>) -> Result<Rlimit, Errno> {
        let k = self.inner();
        let section = self.cred.section();
        let cred = self.cred.load(&section);
        let privileged = cred.has(Capabilities::SYS_RESOURCE);
        let may_raise = privileged && k.config.privileged;
        if pid == 0 || pid == self.getpid() {
            return self.task.prlimit(k, resource, new, may_raise);
        }
        let done = k.processes.with(pid, |task| {
            if !privileged && !is_like(cred, task.cred.load(&section)) {
                return Err(Errno::PERM);
            }
            task.prlimit(k, resource, new, may_raise)
        });
        done.ok_or(Errno::SRCH)?
    }

    /// Sets `RLIMIT_NOFILE` for the program, whatever the capabilities of the process, to 1,048,576
    /// at most: the soft limit, and the hard one if that is lower. Descriptors that are open stay
    /// open.
    ///
    /// # Errors
    /// `EPERM` above 1,048,576 (`/proc/sys/fs/nr_open`); `ENOMEM`.
    pub fn set_nofile(&self, limit: usize) -> Result<(), Errno> {
        let soft = limit as u64;
        let hard = self.getrlimit(RLIMIT_NOFILE)?.hard.max(soft);
        if hard == first(self.inner())[RLIMIT_NOFILE as usize].hard && self.limits.is_empty() {
            // The limits need not be made.
            self.table.set_limit(limit);
            return Ok(());
        }
        self.task.prlimit(self.inner(), RLIMIT_NOFILE, Some(Rlimit { soft, hard }), true).map(drop)
    }
}

/// Whether a process may change another one's limits: all ids of that are the real ones of this.
fn is_like(cred: &Cred, other: &Cred) -> bool {
    other.uids() == [cred.uids()[0]; 3] && other.gids() == [cred.gids()[0]; 3]
}
