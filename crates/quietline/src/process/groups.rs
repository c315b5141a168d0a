//! Process groups and sessions.

use crate::{Errno, Process};

impl Process {
    /// The number itself, or that of the process for 0.
    fn own_if_zero(&self, pid: i32) -> i32 {
        if pid == 0 { self.getpid() } else { pid }
    }

    /// The process group of a process; 0 is the caller.
    ///
    /// # Errors
    /// `ESRCH`.
    pub fn getpgid(&self, pid: i32) -> Result<i32, Errno> {
        self.inner().processes.group(self.own_if_zero(pid))
    }

    /// The session of a process; 0 is the caller.
    ///
    /// # Errors
    /// `ESRCH`.
    pub fn getsid(&self, pid: i32) -> Result<i32, Errno> {
        self.inner().processes.session(self.own_if_zero(pid))
    }

    /// Moves the caller (0) or a child to a process group of its session, or to a new one with its
    /// own number (0).
    ///
    /// # Errors
    /// As `setpgid(2)`: `EINVAL` for a negative group, `ESRCH` for a process that is neither the
    /// caller nor a child, `EACCES` for a child that has called [`exec`](Self::exec), `EPERM` for
    /// the leader of a session, a process of another session, or a group that is not in the
    /// session.
    pub fn setpgid(&self, pid: i32, group: i32) -> Result<(), Errno> {
        let pid = self.own_if_zero(pid);
        let group = if group == 0 { pid } else { group };
        if group < 0 {
            return Err(Errno::INVAL);
        }
        self.inner().processes.set_group(self.getpid(), pid, group)
    }

    /// Makes the process the leader of a new session and of a new process group. Returns their
    /// number, which is the process's.
    ///
    /// A process that [`Kernel::process`](crate::Kernel::process) made leads a session already.
    ///
    /// # Errors
    /// `EPERM` if there is a process group with its number.
    pub fn setsid(&self) -> Result<i32, Errno> {
        self.inner().processes.new_session(self.getpid()).map(|()| self.getpid())
    }
}
