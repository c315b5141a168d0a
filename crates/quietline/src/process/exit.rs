//! The end of a process, and the parent that waits for it.

use crate::abi::{
    __WALL, __WCLONE, __WNOTHREAD, O_NONBLOCK, P_ALL, P_PGID, P_PID, P_PIDFD, WCONTINUED, WEXITED,
    WNOHANG, WNOWAIT, WSTOPPED,
};
use crate::processes::Awaited;
use crate::{Errno, FileHandle, Process};
use quietline_platform::atomic::Ordering;
use quietline_vfs::PidFd;
use quietline_vfs::signalfd::{SIGRTMAX, SigInfo};

/// The effect on a process of the end of one of its children.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum SigChld {
    /// The child is gone at once, as after `signal(SIGCHLD, SIG_IGN)`.
    #[default]
    Ignore,
    /// The process is sent SIGCHLD, and the child stays until [`Process::waitid`] has taken it.
    Signal,
}

impl Process {
    /// Ends the process with an exit code, of which the lowest 8 bits count. A process that is
    /// dropped ends with 0.
    pub fn exit(self, code: i32) {
        self.end((code & 0xff) << 8);
    }

    /// Ends the process as a signal would that it does not handle: signals here end no process by
    /// themselves.
    ///
    /// # Panics
    /// If that is no signal.
    pub fn exit_by_signal(self, signo: i32) {
        assert!((1..=SIGRTMAX).contains(&signo), "{signo} is a signal");
        self.end(signo);
    }

    fn end(self, status: i32) {
        // Relaxed: the drop of the process reads it, in the same thread.
        self.status.store(status as u32, Ordering::Relaxed);
    }

    /// Does what `execve` does to the process: closes the descriptors with `FD_CLOEXEC`, the lowest
    /// first. The saved ids and those for files become the effective ones. Without user 0 among the
    /// real and the effective one, all capabilities go. The process is dumpable if its real ids are
    /// its effective ones. Its parent cannot move it to another process group any more. Signals
    /// that wait, limits, the working directory, the umask and
    /// [`set_sigpipe`](Self::set_sigpipe) stay.
    ///
    /// No other thread may use the process meanwhile: `execve` ends them first.
    ///
    /// # Errors
    /// `ENOMEM`; nothing has changed.
    pub fn exec(&self) -> Result<(), Errno> {
        self.exec_cred()?;
        self.inner().processes.exec(self.getpid());
        let mut from = 0;
        while let Some(fd) = self.table.next_cloexec(from) {
            // Only this thread closes descriptors.
            let _ = self.close(fd);
            from = fd as usize + 1;
        }
        self.returning(Ok(()))
    }

    /// The number of the process's parent. That of an orphan is 1, or 0 if the process with number
    /// 1 has ended, too. A process that [`Kernel::process`](crate::Kernel::process) made has none:
    /// 0.
    pub fn getppid(&self) -> i32 {
        self.inner().processes.parent(self.getpid())
    }

    /// Sets the effect of the end of a child. A new process is as its parent, the first one ignores
    /// it.
    pub fn set_sigchld(&self, sigchld: SigChld) {
        self.signals.set_ignores_children(sigchld == SigChld::Ignore);
    }

    /// Waits until a child ends. `which` is one of [`P_ALL`], [`P_PID`], [`P_PGID`] and
    /// [`P_PIDFD`], `options` are [`WEXITED`], [`WNOHANG`] and [`WNOWAIT`]; [`WSTOPPED`] and
    /// [`WCONTINUED`] may be given, and never come true. Returns `None` if none has ended, with
    /// `WNOHANG`.
    ///
    /// ```
    /// use quietline::abi::{P_ALL, WEXITED};
    /// use quietline::{Config, Kernel, SigChld};
    ///
    /// let parent = Kernel::boot(Config::default())?.process()?;
    /// parent.set_sigchld(SigChld::Signal);
    /// let child = parent.fork()?;
    /// let pid = child.getpid();
    /// child.exit(3);
    /// let ended = parent.waitid(P_ALL, 0, WEXITED)?.expect("without WNOHANG a child");
    /// assert_eq!((ended.pid, ended.status), (pid, 3));
    /// # Ok::<(), quietline::Errno>(())
    /// ```
    ///
    /// # Errors
    /// As `waitid(2)`: `ECHILD`, also when the process [ignores](SigChld::Ignore) its children and
    /// all have ended; `EINVAL`; `EBADF`; `EAGAIN` for a pidfd with `PIDFD_NONBLOCK`; `EINTR`.
    pub fn waitid(&self, which: i32, id: i32, options: i32) -> Result<Option<SigInfo>, Errno> {
        let known = WNOHANG | WNOWAIT | WEXITED | WSTOPPED | WCONTINUED;
        let known = known | __WNOTHREAD | __WCLONE | __WALL;
        if options & !known != 0 || options & (WEXITED | WSTOPPED | WCONTINUED) == 0 {
            return Err(Errno::INVAL);
        }
        let nohang = options & WNOHANG != 0;
        match which {
            P_ALL => self.wait_for(Awaited::All, options, nohang),
            P_PID if id > 0 => self.wait_for(Awaited::Pid(id), options, nohang),
            P_PGID if id >= 0 => {
                let group = if id == 0 { self.getpgid(0)? } else { id };
                self.wait_for(Awaited::Group(group), options, nohang)
            }
            P_PIDFD if id >= 0 => {
                let file = self.fget(id)?;
                let process = pidfd_of(&file)?;
                let nonblock = file.flags() & O_NONBLOCK != 0;
                let awaited = Awaited::With(process.signals());
                match self.wait_for(awaited, options, nohang || nonblock) {
                    Ok(None) if !nohang => Err(Errno::AGAIN),
                    waited => waited,
                }
            }
            _ => Err(Errno::INVAL),
        }
    }

    fn wait_for(
        &self,
        awaited: Awaited<'_>,
        options: i32,
        nohang: bool,
    ) -> Result<Option<SigInfo>, Errno> {
        if options & (__WCLONE | __WALL) == __WCLONE {
            return Err(Errno::CHILD);
        }
        let (ends, reaped) = (options & WEXITED != 0, options & WNOWAIT == 0);
        let processes = &self.inner().processes;
        let look = || match processes.look_for_child(self.getpid(), awaited, ends, reaped) {
            Ok(None) if !nohang => None,
            looked => Some(looked),
        };
        self.signals.wait_for_child(look)?
    }
}

/// The process of a pidfd.
///
/// # Errors
/// `EBADF` if the file is none.
pub(super) fn pidfd_of<'f>(file: &'f FileHandle<'_>) -> Result<&'f PidFd, Errno> {
    file.payload::<PidFd>().ok_or(Errno::BADF)
}
