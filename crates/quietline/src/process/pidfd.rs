//! Descriptors of processes.

use super::exit::pidfd_of;
use crate::abi::{
    O_ANYFD, O_CLOEXEC, PIDFD_NONBLOCK, PIDFD_SIGNAL_PROCESS_GROUP, PIDFD_SIGNAL_THREAD,
    PIDFD_SIGNAL_THREAD_GROUP, PIDFD_THREAD,
};
use crate::process::opened;
use crate::{Errno, FileHandle, Process};

impl Process {
    /// Makes a descriptor of a process, with `FD_CLOEXEC`. It can be read, as `poll` tells, when
    /// the process has ended; it is hung up when its parent has waited for it, too. Flags:
    /// [`PIDFD_NONBLOCK`], [`PIDFD_THREAD`], [`O_ANYFD`].
    ///
    /// # Errors
    /// `EINVAL` for an unknown flag, or for a number below 1; `ESRCH`; `EMFILE`, `ENFILE`,
    /// `ENOMEM`.
    pub fn pidfd_open(&self, pid: i32, flags: i32) -> Result<i32, Errno> {
        let file = opened!(self, self.pidfd_file(pid, flags & !O_ANYFD));
        let file = file.map_err(|errno| self.descriptors_first(errno))?;
        self.install(file, O_CLOEXEC | flags & O_ANYFD)
    }

    /// Makes a pidfd without a descriptor.
    ///
    /// # Errors
    /// As [`pidfd_open`](Self::pidfd_open), but for `EMFILE`.
    pub fn pidfd_file(&self, pid: i32, flags: i32) -> Result<FileHandle<'_>, Errno> {
        if flags & !(PIDFD_NONBLOCK | PIDFD_THREAD) != 0 || pid <= 0 {
            return Err(Errno::INVAL);
        }
        let k = self.inner();
        let signals = k.processes.signals(pid)?;
        quietline_vfs::pidfd(&k.pidfds, &k.files, signals, pid, flags)
    }

    /// Sends a signal to the process of a pidfd, or with [`PIDFD_SIGNAL_PROCESS_GROUP`] to the
    /// group that it leads. [`PIDFD_SIGNAL_THREAD`] and [`PIDFD_SIGNAL_THREAD_GROUP`] change
    /// nothing.
    ///
    /// # Errors
    /// `EINVAL` for an unknown flag, for two, or for a number that is no signal; `EBADF` if it is
    /// no pidfd; `ESRCH` if the process was waited for; `EPERM` as [`kill`](Self::kill).
    pub fn pidfd_send_signal(&self, fd: i32, signo: i32, flags: u32) -> Result<(), Errno> {
        let known = PIDFD_SIGNAL_THREAD | PIDFD_SIGNAL_THREAD_GROUP | PIDFD_SIGNAL_PROCESS_GROUP;
        if flags & !known != 0 || flags.count_ones() > 1 {
            return Err(Errno::INVAL);
        }
        let file = self.fget(fd)?;
        let process = pidfd_of(&file)?;
        let to = (process.pid(), process.signals());
        let to_group = flags == PIDFD_SIGNAL_PROCESS_GROUP;
        self.inner().processes.kill_with(&self.sender(), to, to_group, signo)
    }
}
