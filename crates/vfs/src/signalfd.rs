//! Signals as something that can be read and waited for.
//!
//! A process here is interrupted by nothing that it is sent: all signals are, so to say, blocked, and wait in its set of pending
//! ones until somebody reads them by a signalfd. (Who wants to end another thread's wait raises its
//! [`Interrupt`](quietline_sync::Interrupt).)
//!
//! # Guarantees
//!
//! * Of the signals below 32 one of each waits at most, and none of them is refused; of the others all do, in the order in which they
//!   were sent.
//! * Past [`MOST`] that wait, or without memory, a signal waits without what it is told with, as on Linux: that it waits is kept in a bit of
//!   its own. So one of each waits whatever happens. Only who sends more than a signal (`sigqueue`) is refused.
//! * Signals of faults are read first, then the lowest number. A signal that continues a process takes those away that stop it,
//!   and they take it away. What a reader is told is laid out as Linux does.
//!
//! # Limits
//!
//! A signalfd reads the signals of the process that made it, also after a `fork`; in Linux it is those of the one who reads.

use crate::abi::{O_CLOEXEC, O_NONBLOCK, O_RDWR};
use crate::file::{Direction, FileMode, Files, Io, Sink};
use crate::inode::PseudoInode;
use crate::poll::{Events, PollTable};
use crate::raw::handle::FileHandle;
use crate::raw::pseudo::{Payload, PseudoFs};
use core::fmt;
use quietline_platform::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use quietline_platform::fault;
use quietline_sync::{PerCpuOwner, PerCpuShared, SpinLock, Wait, WaitQueue};
use rustix::io::Errno;
use std::collections::VecDeque;

/// A write to what nobody reads any more.
pub const SIGPIPE: i32 = 13;
/// A child has ended.
pub const SIGCHLD: i32 = 17;
/// A stopped process is to go on.
pub const SIGCONT: i32 = 18;
/// Signals are 1 to this.
pub const SIGRTMAX: i32 = 64;
/// Signals from this on are queued.
const SIGRTMIN: i32 = 32;
/// Signals that cannot be waited for: SIGKILL and SIGSTOP.
const UNBLOCKABLE: u64 = 1 << (9 - 1) | 1 << (19 - 1);
/// Those of faults, which are read before others: SIGILL, SIGTRAP, SIGBUS, SIGFPE, SIGSEGV, SIGSYS.
const OF_FAULTS: u64 =
    1 << (4 - 1) | 1 << (5 - 1) | 1 << (7 - 1) | 1 << (8 - 1) | 1 << (11 - 1) | 1 << (31 - 1);
/// SIGCONT.
const CONTINUES: u64 = 1 << (SIGCONT - 1);
/// SIGSTOP, SIGTSTP, SIGTTIN, SIGTTOU.
const STOP: u64 = 1 << (19 - 1) | 1 << (20 - 1) | 1 << (21 - 1) | 1 << (22 - 1);
/// Bytes of what a reader is told of a signal.
const INFO: usize = 128;
/// The most signals of a process that wait with their [`SigInfo`] (`RLIMIT_SIGPENDING`), at first.
/// Signals below 32 that a process sends always have it.
pub const MOST: usize = 4096;

/// A signal that was sent (`siginfo_t`).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct SigInfo {
    /// Which.
    pub signo: i32,
    /// By what: 0 for one process that told another.
    pub code: i32,
    /// Who sent it.
    pub pid: i32,
    /// Whose that was.
    pub uid: u32,
    /// Of SIGCHLD: the exit code of the child, or the signal that ended it.
    pub status: i32,
}

/// The byte of `ssi_status`.
const STATUS: usize = 40;

impl SigInfo {
    fn bytes(self) -> [u8; INFO] {
        let mut bytes = [0; INFO];
        bytes[STATUS..][..4].copy_from_slice(&self.status.to_ne_bytes());
        // ssi_signo, ssi_errno, ssi_code, ssi_pid, ssi_uid.
        let words = [self.signo as u32, 0, self.code as u32, self.pid as u32, self.uid];
        for (at, word) in words.into_iter().enumerate() {
            bytes[at * 4..][..4].copy_from_slice(&word.to_ne_bytes());
        }
        bytes
    }

    fn bit(self) -> u64 {
        1 << (self.signo - 1)
    }

    /// Those that wait no more once this is sent.
    fn ends(self) -> u64 {
        match self.bit() {
            CONTINUES => STOP,
            bit if bit & STOP != 0 => CONTINUES,
            _ => 0,
        }
    }
}

/// What waits for a process.
#[derive(Debug)]
struct Waiting {
    /// Which: bit n for signal n + 1.
    signals: u64,
    /// What they are told with. One that waits and is not here was sent when there was no room.
    infos: VecDeque<SigInfo>,
    /// The most of these (`RLIMIT_SIGPENDING`).
    most: u64,
}

impl Waiting {
    /// No more any of these.
    fn end(&mut self, these: u64) {
        if self.signals & these != 0 {
            self.signals &= !these;
            self.infos.retain(|info| info.bit() & these == 0);
        }
    }

    /// Keeps what a signal is told with.
    fn keep(&mut self, info: SigInfo) -> bool {
        let bounded = info.signo >= SIGRTMIN || info.code < 0;
        if bounded && self.infos.len() as u64 >= self.most
            || fault::check().is_err()
            || self.infos.try_reserve(1).is_err()
        {
            return false;
        }
        self.infos.push_back(info);
        true
    }
}

/// The signals that wait for a process, and how far it has ended. Descriptors of the process and of
/// its signals own this, too, and may outlast the process.
#[derive(Debug)]
pub struct Signals {
    waiting: SpinLock<Waiting>,
    /// The key of a wake-up is any, but for those that a process or its child causes by its end.
    queue: WaitQueue,
    /// One of [`ALIVE`], [`ZOMBIE`] and [`REAPED`].
    phase: AtomicU32,
    /// Whether the process ignores SIGCHLD.
    ignores_children: AtomicBool,
}

/// The process has not ended.
const ALIVE: u32 = 0;
/// The process has ended, and its parent has not waited for it.
const ZOMBIE: u32 = 1;
/// The process has ended, and nothing waits for it any more.
const REAPED: u32 = 2;

/// The key of the wake-up of a parent. It is no event.
const CHILD: u32 = 1 << 20;

impl Default for Signals {
    fn default() -> Self {
        Self::new()
    }
}

impl Signals {
    /// None.
    pub fn new() -> Self {
        let waiting = Waiting { signals: 0, infos: VecDeque::new(), most: MOST as u64 };
        let (phase, ignores_children) = (AtomicU32::new(ALIVE), AtomicBool::new(false));
        Self { waiting: SpinLock::new(waiting), queue: WaitQueue::new(), phase, ignores_children }
    }

    /// Sets how many signals may wait with their [`SigInfo`]. Signals that wait stay.
    pub fn set_most(&self, most: u64) {
        self.waiting.lock().most = most;
    }

    /// Returns whether the process ignores SIGCHLD: then its children are not waited for.
    pub fn ignores_children(&self) -> bool {
        // Relaxed: a setting.
        self.ignores_children.load(Ordering::Relaxed)
    }

    /// Sets whether the process ignores SIGCHLD. One that waits is then forgotten.
    pub fn set_ignores_children(&self, ignores: bool) {
        // Relaxed: a setting.
        self.ignores_children.store(ignores, Ordering::Relaxed);
        if ignores {
            self.waiting.lock().end(1 << (SIGCHLD - 1));
        }
    }

    /// Notes that the process has ended, and whether its parent has waited for it. Drops the
    /// signals that wait, and wakes the callers that poll for the end.
    pub fn set_ended(&self, reaped: bool) {
        // A zombie is to take no memory for them.
        let infos = {
            let mut waiting = self.waiting.lock();
            waiting.signals = 0;
            core::mem::take(&mut waiting.infos)
        };
        drop(infos);
        // ORDERING: release: a caller that finds it finds what the process has done.
        self.phase.store(if reaped { REAPED } else { ZOMBIE }, Ordering::Release);
        self.queue.wake((Events::IN | Events::RDNORM | Events::HUP).bits(), WaitQueue::ALL);
    }

    /// Returns whether the parent has waited for the process, which has ended.
    pub fn is_reaped(&self) -> bool {
        // ORDERING: as in `poll_end`.
        self.phase.load(Ordering::Acquire) == REAPED
    }

    /// Polls for the end of the process.
    pub(crate) fn poll_end(&self, table: &mut PollTable<'_>) -> Events {
        table.wait_on(&self.queue);
        // ORDERING: pairs with the release in `set_ended`.
        match self.phase.load(Ordering::Acquire) {
            ALIVE => Events::empty(),
            ZOMBIE => Events::IN | Events::RDNORM,
            _ => Events::IN | Events::RDNORM | Events::HUP,
        }
    }

    /// Waits until `ready` returns a value. It is called again after each
    /// [`wake_parent`](Self::wake_parent).
    ///
    /// # Errors
    /// `EINTR`.
    pub fn wait_for_child<R>(&self, ready: impl FnMut() -> Option<R>) -> Result<R, Errno> {
        let wait = Wait { key: CHILD, interruptible: true, ..Wait::default() };
        self.queue.wait_until(&wait, ready).map_err(|_| Errno::INTR)
    }

    /// Wakes the threads of the process that wait for a child's end. The caller has changed the
    /// list of processes under its lock, under which they look at it.
    pub fn wake_parent(&self) {
        self.queue.wake_ordered(CHILD, WaitQueue::ALL);
    }

    /// Sends one. A second one of those below 32 is as if it had not been sent. Where there is no room for what it is told with, it waits
    /// without: who reads it is told of no sender.
    ///
    /// # Errors
    /// `EINVAL` for what is no signal. `EAGAIN` where there is no room, for one of 32 and above whose code is not 0.
    pub fn send(&self, info: SigInfo) -> Result<(), Errno> {
        if !(1..=SIGRTMAX).contains(&info.signo) {
            return Err(Errno::INVAL);
        }
        {
            let mut waiting = self.waiting.lock();
            waiting.end(info.ends());
            if info.signo < SIGRTMIN && waiting.signals & info.bit() != 0 {
                return Ok(());
            }
            if !waiting.keep(info) && info.signo >= SIGRTMIN && info.code != 0 {
                return Err(Errno::AGAIN);
            }
            waiting.signals |= info.bit();
        }
        // What readers look at is changed and looked at under the lock. All of them: each has a mask of its own. Whatever they wait
        // for: an epoll tells things in the order in which it was woken for them.
        self.queue.wake_ordered(WaitQueue::ANY, WaitQueue::ALL);
        Ok(())
    }

    /// The signals that wait: bit n for signal n + 1.
    pub fn pending(&self) -> u64 {
        self.waiting.lock().signals
    }

    /// The first of those in `mask`, by number, and of these the oldest.
    fn take(&self, mask: u64) -> Option<SigInfo> {
        let mut waiting = self.waiting.lock();
        let wanted = waiting.signals & mask;
        let first = if wanted & OF_FAULTS != 0 { wanted & OF_FAULTS } else { wanted };
        if first == 0 {
            return None;
        }
        let signo = first.trailing_zeros() as i32 + 1;
        let mut same = waiting.infos.iter().enumerate().filter(|(_, info)| info.signo == signo);
        let at = same.next().map(|(at, _)| at);
        if same.next().is_none() {
            waiting.signals &= !(1 << (signo - 1));
        }
        at.and_then(|at| waiting.infos.remove(at)).or(Some(SigInfo { signo, ..SigInfo::default() }))
    }
}

/// A set of signals to be read.
#[derive(Debug)]
pub struct SignalFd {
    mask: AtomicU64,
    of: PerCpuOwner<Signals>,
}

impl SignalFd {
    /// The signals, bit n for signal n + 1.
    pub fn mask(&self) -> u64 {
        // Relaxed: a set of its own.
        self.mask.load(Ordering::Relaxed)
    }
}

impl Payload for SignalFd {
    const CACHE: &'static str = "signalfd_ctx";
    const WRITES: bool = false;
    const SEEKS: bool = true;

    fn inode(&self) -> Option<&PseudoInode> {
        None
    }

    fn name(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("anon_inode:[signalfd]")
    }

    fn try_read(&self, _io: Io, to: &mut Sink<'_, '_>) -> Result<usize, Errno> {
        if to.left() < INFO {
            return Err(Errno::INVAL);
        }
        let mut done = 0;
        while to.left() >= INFO {
            let Some(info) = self.of.take(self.mask()) else { break };
            done += to.put(&info.bytes());
        }
        if done == 0 { Err(Errno::AGAIN) } else { Ok(done) }
    }

    fn poll(&self, _io: Io, table: &mut PollTable<'_>) -> Events {
        table.wait_on(&self.of.queue);
        if self.of.pending() & self.mask() != 0 { Events::IN } else { Events::empty() }
    }

    fn waiters(&self, what: Direction) -> Option<&WaitQueue> {
        (what == Direction::Read).then(|| &self.of.queue)
    }
}

/// `signalfd4` that makes a new descriptor, for the signals of `of`.
///
/// # Errors
/// `EINVAL` for a flag that is unknown; `ENFILE`, `ENOMEM`.
#[inline]
pub fn signalfd<'k>(
    fs: &'k PseudoFs<SignalFd>,
    files: &'k Files,
    of: &PerCpuShared<Signals>,
    mask: u64,
    flags: i32,
) -> Result<FileHandle<'k>, Errno> {
    check_signalfd_flags(flags)?;
    let of = of.share().map_err(|_| Errno::NOMEM)?;
    let state = SignalFd { mask: AtomicU64::new(mask & !UNBLOCKABLE), of };
    fs.open(files, state, O_RDWR | (flags & O_NONBLOCK), FileMode::READ.union(FileMode::WRITE))
}

/// `signalfd4` on a descriptor that exists.
///
/// # Errors
/// `EINVAL` when the file is no signalfd.
pub fn set_signals(file: &FileHandle<'_>, mask: u64) -> Result<(), Errno> {
    let state = file.payload::<SignalFd>().ok_or(Errno::INVAL)?;
    // Relaxed: a set of its own; whoever sleeps looks at it after the wake-up, which makes the change known.
    state.mask.store(mask & !UNBLOCKABLE, Ordering::Relaxed);
    state.of.queue.wake(WaitQueue::ANY, WaitQueue::ALL);
    Ok(())
}

/// What `signalfd4` says to its flags before anything else.
///
/// # Errors
/// `EINVAL` for a flag that is unknown.
pub fn check_signalfd_flags(flags: i32) -> Result<(), Errno> {
    if flags & !(O_CLOEXEC | O_NONBLOCK) != 0 { Err(Errno::INVAL) } else { Ok(()) }
}
