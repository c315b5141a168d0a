//! Kernels.

use crate::{Config, Errno, Process};
use quietline_net::Socket;
use quietline_slab::{CacheError, Stats};
use quietline_sync::{IdAllocator, Shared};
use quietline_vfs::{EventFd, Files, Pipe, PseudoFs, SignalFd, TimerFd};

/// Numbers of dentries (`/proc/sys/fs/dentry-state`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Dentries {
    /// Dentries that live.
    pub nr_dentry: i64,
}

/// Numbers of inodes (`/proc/sys/fs/inode-nr`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Inodes {
    /// Inodes that live, without the one that all anonymous descriptors share.
    pub nr_inodes: i64,
}

/// A kernel: files, and what they are made of. Cloning makes another owner of the same kernel.
#[derive(Debug, Clone)]
pub struct Kernel {
    inner: Shared<Inner>,
}

/// What a kernel has. At one address for its life: pseudo objects point to their filesystems.
#[derive(Debug)]
pub(crate) struct Inner {
    pub(crate) config: Config,
    pub(crate) files: Files,
    pub(crate) sockets: PseudoFs<Socket>,
    pub(crate) pipes: PseudoFs<Pipe>,
    pub(crate) eventfds: PseudoFs<EventFd>,
    pub(crate) timerfds: PseudoFs<TimerFd>,
    pub(crate) signalfds: PseudoFs<SignalFd>,
    pub(crate) last_ino: IdAllocator,
}

/// The system call's word for what keeps a cache from being made. (Layouts are the crates' own, and fit.)
fn no_memory(_: CacheError) -> Errno {
    Errno::NOMEM
}

impl Kernel {
    /// A kernel without processes. Some kilobytes; no threads, no files, no state outside it.
    ///
    /// # Errors
    /// `ENOMEM`.
    pub fn boot(config: Config) -> Result<Self, Errno> {
        let inner = Inner {
            files: Files::new(config.file_max, config.privileged).map_err(no_memory)?,
            sockets: PseudoFs::new("sockfs").map_err(no_memory)?,
            pipes: PseudoFs::new("pipefs").map_err(no_memory)?,
            eventfds: PseudoFs::new("anon_inodefs").map_err(no_memory)?,
            timerfds: PseudoFs::new("anon_inodefs").map_err(no_memory)?,
            signalfds: PseudoFs::new("anon_inodefs").map_err(no_memory)?,
            last_ino: IdAllocator::new().map_err(|_| Errno::NOMEM)?,
            config,
        };
        Ok(Self { inner: Shared::new(inner).map_err(|_| Errno::NOMEM)? })
    }

    /// A process without descriptors.
    ///
    /// # Errors
    /// `ENOMEM`.
    pub fn process(&self) -> Result<Process, Errno> {
        Process::new(self.clone())
    }

    #[inline(always)]
    pub(crate) fn inner(&self) -> &Inner {
        &self.inner
    }

    /// Files that are open (`/proc/sys/fs/file-nr`, first number); exact when nobody opens or closes meanwhile.
    pub fn nr_files(&self) -> i64 {
        self.inner.files.nr_files()
    }

    /// Files that may be open (`/proc/sys/fs/file-max`).
    pub fn file_max(&self) -> u64 {
        self.inner.files.max_files()
    }

    /// Changes how many files may be open; those that are stay.
    pub fn set_file_max(&self, file_max: u64) {
        self.inner.files.set_max_files(file_max);
    }

    /// Dentries that live; exact when nobody opens or closes meanwhile.
    pub fn dentries(&self) -> Dentries {
        let k = &*self.inner;
        let anonymous = k.eventfds.live() + k.timerfds.live() + k.signalfds.live();
        Dentries { nr_dentry: k.sockets.live() + k.pipes.live() + anonymous }
    }

    /// Inodes that live; exact when nobody opens or closes meanwhile.
    pub fn inodes(&self) -> Inodes {
        Inodes { nr_inodes: self.inner.sockets.live() + self.inner.pipes.live() }
    }

    /// [`Dentries::nr_dentry`].
    pub fn nr_dentry(&self) -> i64 {
        self.dentries().nr_dentry
    }

    /// [`Inodes::nr_inodes`].
    pub fn nr_inodes(&self) -> i64 {
        self.inodes().nr_inodes
    }

    /// The kernel's slab caches (`/proc/slabinfo`).
    pub fn slabinfo(&self) -> [Stats; 6] {
        let k = &*self.inner;
        [
            k.files.stats(),
            k.sockets.stats(),
            k.pipes.stats(),
            k.eventfds.stats(),
            k.timerfds.stats(),
            k.signalfds.stats(),
        ]
    }

    /// Gives cached memory back to the system; that of files after a grace period.
    pub fn shrink(&self) {
        let k = &*self.inner;
        k.files.shrink();
        k.sockets.shrink();
        k.pipes.shrink();
        k.eventfds.shrink();
        k.timerfds.shrink();
        k.signalfds.shrink();
    }
}
