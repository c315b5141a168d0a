//! Signals: sent, waiting, and read by signalfds. Nobody is interrupted by one.

use crate::{Errno, Interrupt, Process};
use quietline_platform::atomic::Ordering;
use quietline_vfs::cred::Capabilities;
use quietline_vfs::signalfd::{SIGPIPE, SIGRTMAX, SigInfo};

/// What happens to who writes to what nobody reads any more, beside `EPIPE`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum SigPipe {
    /// Nothing, as after `signal(SIGPIPE, SIG_IGN)`.
    #[default]
    Ignore,
    /// The process is sent SIGPIPE, and the calling thread's interrupt is raised.
    Signal,
}

impl Process {
    /// Sends a signal to a process of the same kernel: it waits there until a signalfd reads it. With 0 only says whether it could.
    ///
    /// # Errors
    /// `EINVAL` for a number that is no signal, `ESRCH` for one that is no process (groups are not
    /// offered), `EPERM` for a process of another user, without `CAP_KILL`. None for want of room:
    /// where [`MOST`](quietline_vfs::signalfd::MOST) wait already, or there is no memory, a signal
    /// may wait without being told who sent it, and of those from 32 on one of each.
    pub fn kill(&self, pid: i32, signo: i32) -> Result<(), Errno> {
        if !(0..=SIGRTMAX).contains(&signo) {
            return Err(Errno::INVAL);
        }
        let (own, privileged) = {
            let section = self.cred.section();
            let cred = self.cred.load(&section);
            (cred.uids(), cred.has(Capabilities::KILL))
        };
        let info = SigInfo { signo, code: 0, pid: self.pid, uid: own[0] };
        let signals = self.inner().processes.with(pid, |task| {
            let section = task.cred.section();
            let [real, _, saved] = task.cred.load(&section).uids();
            let same = own[..2].iter().any(|uid| [real, saved].contains(uid));
            if privileged || same { Ok(task.signals.as_shared().clone()) } else { Err(Errno::PERM) }
        });
        let signals = signals.ok_or(Errno::SRCH)??;
        if signo == 0 { Ok(()) } else { signals.send(info) }
    }

    /// The signals that wait: bit n for signal n + 1.
    pub fn sigpending(&self) -> u64 {
        self.signals.pending()
    }

    /// Says what happens to who writes to what nobody reads; a new process is as its parent, the first one ignores it.
    pub fn set_sigpipe(&self, sigpipe: SigPipe) {
        // Relaxed: a setting.
        self.sigpipe.store(sigpipe == SigPipe::Signal, Ordering::Relaxed);
    }

    /// A call has written to what nobody reads any more.
    #[cold]
    pub(crate) fn broken_pipe(&self) {
        // Relaxed: a setting.
        if !self.sigpipe.load(Ordering::Relaxed) {
            return;
        }
        let uid = self.getresuid()[0];
        // As if it had sent it itself. A signal that is one, and sent so, is not refused.
        let _ = self.signals.send(SigInfo { signo: SIGPIPE, code: 0, pid: self.pid, uid });
        if let Some(interrupt) = Interrupt::current() {
            interrupt.raise();
        }
    }
}
