//! Signals: sent, waiting, and read by signalfds. Nobody is interrupted by one.

use crate::processes::Sender;
use crate::{Errno, Interrupt, Process};
use quietline_platform::atomic::Ordering;
use quietline_vfs::cred::Capabilities;
use quietline_vfs::signalfd::{SIGPIPE, SigInfo};

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
    /// Sends a signal to a process of the same kernel, to the caller's process group (0), to all
    /// processes but the caller and the first (-1), or to the group with the number `-pid`. The
    /// signal waits there until a signalfd reads it. Signal 0 is not sent: the call only returns
    /// whether it would be allowed.
    ///
    /// # Errors
    /// `EINVAL` for a number that is no signal, `ESRCH` for a number that no process or group has,
    /// `EPERM` for a process of another user, without `CAP_KILL`. SIGCONT may be sent to all
    /// processes of the session. Of a group it is enough that one process gets the signal. A full
    /// queue (`RLIMIT_SIGPENDING`) and a lack of memory are no errors: the signal then waits
    /// without its sender, and a signal from 32 on waits only once.
    pub fn kill(&self, pid: i32, signo: i32) -> Result<(), Errno> {
        self.inner().processes.kill(&self.sender(), pid, signo)
    }

    /// The process as the sender of a signal.
    pub(crate) fn sender(&self) -> Sender {
        let section = self.cred.section();
        let cred = self.cred.load(&section);
        let [real, effective, _] = cred.uids();
        let may_send = cred.has(Capabilities::KILL);
        Sender { pid: self.pid, uids: [real, effective], may_send }
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
        let _ =
            self.signals.send(SigInfo { signo: SIGPIPE, pid: self.pid, uid, ..SigInfo::default() });
        if let Some(interrupt) = Interrupt::current() {
            interrupt.raise();
        }
    }
}
