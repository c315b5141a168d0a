//! Processes: system calls that make things.

mod exit;
mod groups;
mod limits;
mod namespaces;
mod pidfd;

pub use exit::SigChld;
pub use limits::Rlimit;

use crate::abi::{CLOCK_BOOTTIME_ALARM, CLOCK_REALTIME_ALARM, O_ANYFD, SOCK_CLOEXEC};
use crate::kernel::Inner;
use crate::raw::{self, CredPlace};
use crate::{Errno, FileHandle, Kernel};
use core::mem::ManuallyDrop;
use core::ops::Deref;
use limits::Limits;
use namespaces::NamespaceCell;
use quietline_platform::atomic::{AtomicBool, AtomicU32, Ordering};
use quietline_sync::{PerCpuShared, Shared, SpinLock};
use quietline_vfs::cred::Capabilities;
use quietline_vfs::signalfd::Signals;
use quietline_vfs::{ColdResult, FdFlags, FdTable, Files, FsStruct, Owner, OwnerCell};

/// Evaluates an expression that opens files, and once more if the caller is
/// [exempt](Process::open_beyond_max) from the limit that it meets. An expression that fails with
/// `ENFILE` has had no effect. A macro, because a closure that is called twice is not inlined.
macro_rules! opened {
    ($process:expr, $open:expr) => {
        match $open {
            Err($crate::Errno::NFILE) => $process.open_beyond_max(move || $open),
            opened => opened,
        }
    };
}

pub(crate) use opened;

/// A process: descriptors, a place in the tree, and who it is. Share it by reference between as many threads as you like.
/// It is an owner of its [`Kernel`]: see there for where the last one may end.
///
/// Every method that makes a descriptor takes [`O_ANYFD`] among its flags; `recvmsg`, for those that arrive, has
/// [`MSG_CMSG_ANYFD`](crate::abi::MSG_CMSG_ANYFD). Methods that end in `_file` or `_files`
/// make no descriptor at all.
#[derive(Debug)]
#[repr(align(32))] // one cache line
pub struct Process {
    /// The owner of the sockets and pipes that the process makes.
    pub(crate) owner: OwnerCell,
    /// Dropped by the drop of the process, before its parent is told that it has ended.
    pub(crate) task: ManuallyDrop<Shared<Task>>,
    /// Last: the task refers to what it has.
    pub(crate) kernel: Kernel,
}

/// The parts of a process, at one address for its life: `/proc` looks at it. Calls read the first
/// fields; the others are seldom used.
#[derive(Debug)]
#[repr(C)]
pub struct Task {
    pub(crate) table: FdTable,
    pub(crate) fs: FsStruct<'static>,
    pub(crate) cred: CredPlace,
    /// The number that the [list of processes](crate::processes) gave it.
    pub(crate) pid: i32,
    /// Whether it has ever locked bytes of a file.
    pub(crate) locks: AtomicBool,
    /// What it was sent.
    pub(crate) signals: PerCpuShared<Signals>,
    /// Whether a write to what nobody reads sends it a signal.
    pub(crate) sigpipe: AtomicBool,
    /// Whether processes with the same ids may inspect it through `/proc`.
    pub(crate) dumpable: AtomicBool,
    /// Held while the process's owner of new objects follows its credentials.
    pub(crate) owner_lock: SpinLock<()>,
    /// The exit status, as `wait4` returns it.
    pub(crate) status: AtomicU32,
    limits: Limits,
    namespace: NamespaceCell,
}

impl Task {
    fn new(
        table: FdTable,
        fs: FsStruct<'static>,
        cred: CredPlace,
        signals: PerCpuShared<Signals>,
        dumpable: bool,
    ) -> Result<Shared<Self>, Errno> {
        let task = Self {
            table,
            fs,
            cred,
            pid: 0,
            locks: AtomicBool::new(false),
            signals,
            sigpipe: AtomicBool::new(false),
            dumpable: AtomicBool::new(dumpable),
            owner_lock: SpinLock::new(()),
            status: AtomicU32::new(0),
            limits: Limits::new(),
            namespace: NamespaceCell::default(),
        };
        Shared::new(task).map_err(|_| Errno::NOMEM)
    }

    /// Its place in the tree, for a call.
    #[inline(always)]
    pub(crate) fn here(&self) -> &FsStruct<'_> {
        raw::here(&self.fs)
    }
}

impl Deref for Process {
    type Target = Task;

    #[inline(always)]
    fn deref(&self) -> &Task {
        &self.task
    }
}

impl Process {
    /// A process without a parent, with the number `pid` or the next free one.
    pub(crate) fn new(kernel: Kernel, pid: Option<i32>) -> Result<Self, Errno> {
        let k = kernel.inner();
        let table = raw::table(k.config.nofile)?;
        let cred = k.config.first_cred();
        let owner = OwnerCell::new(Owner::of(&cred));
        let cred = CredPlace::new(cred)?;
        let root = k.namespace.root();
        let fs = FsStruct::new(raw::vfs(&k.vfs), root.clone(), root).map_err(|_| Errno::NOMEM)?;
        let fs = raw::place(fs);
        let signals = PerCpuShared::new(Signals::new()).map_err(|_| Errno::NOMEM)?;
        signals.set_ignores_children(true);
        let mut task = Task::new(table, fs, cred, signals, true)?;
        k.processes.enter(&mut task, 0, pid)?;
        Ok(Self { owner, task: ManuallyDrop::new(task), kernel })
    }

    /// The number of the process.
    pub fn getpid(&self) -> i32 {
        self.pid
    }

    /// The kernel.
    pub fn kernel(&self) -> &Kernel {
        &self.kernel
    }

    #[inline(always)]
    pub(crate) fn inner(&self) -> &Inner {
        self.kernel.inner()
    }

    /// Another process with the same files at the same descriptors, in the same place, and with the
    /// same credentials: a child of this one.
    ///
    /// # Errors
    /// `ENOMEM`; `EAGAIN` when all numbers have processes, or at
    /// [`Config::pids_max`](crate::Config::pids_max). After number 4,194,303 come those from 300 on
    /// that are free.
    pub fn fork(&self) -> Result<Process, Errno> {
        self.fork_numbered(None)
    }

    /// As [`fork`](Self::fork). The child gets a number of the caller's choice, as from `clone3`
    /// with `set_tid`.
    ///
    /// # Errors
    /// As [`fork`](Self::fork); `EINVAL` for a number below 1 or above 4,194,303; `EEXIST` if a
    /// process, a process group or a session has it.
    pub fn fork_as(&self, pid: i32) -> Result<Process, Errno> {
        self.fork_numbered(Some(pid))
    }

    fn fork_numbered(&self, pid: Option<i32>) -> Result<Process, Errno> {
        let k = self.inner();
        let mut cred = {
            let section = self.cred.section();
            self.cred.load(&section).duplicate().map_err(|_| Errno::NOMEM)?
        };
        // As on Linux: the parent's files are not opened with the child's credentials.
        cred.renew();
        let owner = OwnerCell::new(Owner::of(&cred));
        let cred = CredPlace::new(cred)?;
        let fs = raw::place(self.fs.duplicate().map_err(|_| Errno::NOMEM)?);
        // A table must be cleared once it has files, so it gets them when nothing but the list can fail.
        let table = raw::table(self.table.limit())?;
        // What waits for the one is nothing to the other.
        let signals = PerCpuShared::new(Signals::new()).map_err(|_| Errno::NOMEM)?;
        signals.set_ignores_children(self.signals.ignores_children());
        let mut task = Task::new(table, fs, cred, signals, self.dumpable())?;
        let new = Shared::get_mut(&mut task).expect("nobody has seen it");
        new.inherit_limits(&self.task)?;
        new.namespace = self.namespace.duplicate()?;
        // Relaxed: a setting.
        new.sigpipe = AtomicBool::new(self.sigpipe.load(Ordering::Relaxed));
        new.table = self.table.duplicate(&k.files).map_err(|_| Errno::NOMEM)?;
        if let Err(errno) = k.processes.enter(&mut task, self.pid, pid) {
            Shared::get_mut(&mut task).expect("nobody has seen it").table.clear(&k.files);
            return Err(errno);
        }
        Ok(Self { owner, task: ManuallyDrop::new(task), kernel: self.kernel.clone() })
    }

    /// Runs the thread's share of RCU callbacks if it has filled a batch, or if too many wait.
    /// Each call that frees objects calls this where it holds no lock and no read-side critical
    /// section is open: at its end, or at its beginning if its last step is a tail call.
    #[inline(always)]
    pub(crate) fn run_share(&self) {
        self.cred.run_share();
    }

    /// Returns `result`, and runs the thread's [share](Self::run_share) of callbacks before.
    #[inline(always)]
    pub(crate) fn returning<R>(&self, result: R) -> R {
        self.run_share();
        result
    }

    #[inline(always)]
    pub(crate) fn install(&self, file: FileHandle<'_>, flags: i32) -> Result<i32, Errno> {
        self.table.install(file, FdFlags::of(flags))
    }

    /// Opens files once more after `ENFILE`: a caller with `CAP_SYS_ADMIN` in a privileged kernel
    /// is exempt from `file_max`.
    #[cold]
    #[inline(never)]
    pub(crate) fn open_beyond_max<R>(
        &self,
        open: impl FnOnce() -> Result<R, Errno>,
    ) -> Result<R, Errno> {
        let exempt =
            self.inner().config.privileged && self.capabilities().contains(Capabilities::SYS_ADMIN);
        if exempt { Files::exempt(open) } else { Err(Errno::NFILE) }
    }

    /// Handles a failure to open a file for a descriptor: opens it beyond the limit if the caller
    /// is exempt.
    #[cold]
    #[inline(never)]
    pub(crate) fn install_beyond_max<'k>(
        &'k self,
        errno: Errno,
        flags: i32,
        open: impl FnOnce() -> Result<FileHandle<'k>, Errno>,
    ) -> Result<i32, Errno> {
        let opened = if errno == Errno::NFILE { self.open_beyond_max(open) } else { Err(errno) };
        self.install(opened.map_err(|errno| self.descriptors_first(errno))?, flags)
    }

    /// As [`install_beyond_max`](Self::install_beyond_max), for two files.
    #[cold]
    #[inline(never)]
    fn install_pair_beyond_max<'k>(
        &'k self,
        errno: Errno,
        flags: i32,
        open: impl FnOnce() -> Result<[FileHandle<'k>; 2], Errno>,
    ) -> ColdResult<[i32; 2]> {
        let opened = if errno == Errno::NFILE { self.open_beyond_max(open) } else { Err(errno) };
        opened.and_then(|ends| self.table.install_pair(ends, FdFlags::of(flags))).into()
    }

    /// When there are neither descriptors nor files left, Linux complains of the descriptors where it takes those
    /// first: `EMFILE` instead of `ENFILE`.
    #[cold]
    pub(crate) fn descriptors_first(&self, errno: Errno) -> Errno {
        if errno == Errno::NFILE && !self.table.has_free() { Errno::MFILE } else { errno }
    }

    /// Makes a socket: `domain` is `AF_INET`, `AF_INET6` or `AF_UNIX`, `ty` a type with `SOCK_CLOEXEC`,
    /// `SOCK_NONBLOCK` and [`O_ANYFD`] in it.
    ///
    /// Writes the table's lock line; with `O_ANYFD`, no shared line.
    ///
    /// # Errors
    /// `EAFNOSUPPORT`, `ESOCKTNOSUPPORT`, `EPROTONOSUPPORT`, `EINVAL`, `EPERM`, `EACCES` as `socket(2)`; `EMFILE`,
    /// `ENFILE`, `ENOMEM`.
    #[inline(always)]
    pub fn socket(&self, domain: i32, ty: i32, protocol: i32) -> Result<i32, Errno> {
        match self.socket_file(domain, ty & !O_ANYFD, protocol) {
            Ok(file) => self.install(file, ty & (SOCK_CLOEXEC | O_ANYFD)),
            Err(errno) => {
                self.install_beyond_max(errno, ty & (SOCK_CLOEXEC | O_ANYFD), move || {
                    self.socket_file(domain, ty & !O_ANYFD, protocol)
                })
            }
        }
    }

    /// Makes a pipe: descriptors to read from and to write to. Flags: `O_CLOEXEC`, `O_NONBLOCK`, `O_DIRECT`,
    /// [`O_ANYFD`].
    ///
    /// # Errors
    /// `EINVAL` for an unknown flag; `ENOPKG` for a notification pipe; `EMFILE`, `ENFILE`, `ENOMEM`. Then there is
    /// neither.
    #[inline(always)]
    pub fn pipe2(&self, flags: i32) -> Result<[i32; 2], Errno> {
        match self.pipe_files(flags & !O_ANYFD) {
            Ok(ends) => self.table.install_pair(ends, FdFlags::of(flags)),
            Err(errno) => {
                let open = move || self.pipe_files(flags & !O_ANYFD);
                self.install_pair_beyond_max(errno, flags, open).into_result()
            }
        }
    }

    /// Makes a pipe without descriptors.
    ///
    /// # Errors
    /// As [`pipe2`](Self::pipe2), but for `EMFILE`.
    #[inline(always)]
    pub fn pipe_files(&self, flags: i32) -> Result<[FileHandle<'_>; 2], Errno> {
        let k = self.inner();
        quietline_vfs::pipe2(&k.pipes, &k.files, &k.vfs, &k.last_ino, self.owner.load(), flags)
    }

    /// Makes an event counter. Flags: `EFD_SEMAPHORE`, `EFD_CLOEXEC`, `EFD_NONBLOCK`, [`O_ANYFD`].
    ///
    /// # Errors
    /// `EINVAL` for an unknown flag; `EMFILE`, `ENFILE`, `ENOMEM`.
    #[inline(always)]
    pub fn eventfd(&self, count: u32, flags: i32) -> Result<i32, Errno> {
        match self.eventfd_file(count, flags & !O_ANYFD) {
            Ok(file) => self.install(file, flags),
            Err(errno) => self.install_beyond_max(errno, flags, move || {
                self.eventfd_file(count, flags & !O_ANYFD)
            }),
        }
    }

    /// Makes an event counter without a descriptor.
    ///
    /// # Errors
    /// As [`eventfd`](Self::eventfd), but for `EMFILE`.
    #[inline(always)]
    pub fn eventfd_file(&self, count: u32, flags: i32) -> Result<FileHandle<'_>, Errno> {
        let k = self.inner();
        quietline_vfs::eventfd(&k.eventfds, &k.files, count, flags)
    }

    /// Makes a timer. Flags: `TFD_CLOEXEC`, `TFD_NONBLOCK`, [`O_ANYFD`].
    ///
    /// # Errors
    /// `EINVAL` for an unknown flag or clock; `EPERM` for a clock that wakes the system, without
    /// `CAP_WAKE_ALARM`; `EMFILE`, `ENFILE`, `ENOMEM`.
    #[inline(always)]
    pub fn timerfd_create(&self, clockid: i32, flags: i32) -> Result<i32, Errno> {
        match self.timerfd_file(clockid, flags & !O_ANYFD) {
            Ok(file) => self.install(file, flags),
            Err(errno) => self.install_beyond_max(errno, flags, move || {
                self.timerfd_file(clockid, flags & !O_ANYFD)
            }),
        }
    }

    /// Makes a timer without a descriptor.
    ///
    /// # Errors
    /// As [`timerfd_create`](Self::timerfd_create), but for `EMFILE`.
    #[inline(always)]
    pub fn timerfd_file(&self, clockid: i32, flags: i32) -> Result<FileHandle<'_>, Errno> {
        if matches!(clockid, CLOCK_REALTIME_ALARM | CLOCK_BOOTTIME_ALARM) {
            return self.alarm_timer(clockid, flags);
        }
        let k = self.inner();
        quietline_vfs::timerfd::timerfd(&k.timerfds, &k.timers, &k.files, clockid, flags, || false)
    }

    #[cold]
    #[inline(never)]
    fn alarm_timer(&self, clockid: i32, flags: i32) -> Result<FileHandle<'_>, Errno> {
        let k = self.inner();
        let may_wake = || self.may_wake_system();
        quietline_vfs::timerfd::timerfd(&k.timerfds, &k.timers, &k.files, clockid, flags, may_wake)
    }

    /// Returns whether the process may use clocks that wake the system.
    pub(crate) fn may_wake_system(&self) -> bool {
        self.capabilities().contains(Capabilities::WAKE_ALARM)
    }

    /// Makes a descriptor for the signals in `mask` (bit n for signal n + 1), or, with `fd` not -1, gives the one
    /// that `fd` is another mask. Flags: `SFD_CLOEXEC`, `SFD_NONBLOCK`, [`O_ANYFD`].
    ///
    /// # Errors
    /// `EINVAL` for an unknown flag, or when `fd` is no signalfd; `EBADF` when it is not open; `EMFILE`, `ENFILE`,
    /// `ENOMEM`.
    #[inline(always)]
    pub fn signalfd(&self, fd: i32, mask: u64, flags: i32) -> Result<i32, Errno> {
        if fd != -1 {
            quietline_vfs::check_signalfd_flags(flags & !O_ANYFD)?;
            quietline_vfs::set_signals(&self.fget(fd)?, mask)?;
            return Ok(fd);
        }
        match self.signalfd_file(mask, flags & !O_ANYFD) {
            Ok(file) => self.install(file, flags),
            Err(errno) => self.install_beyond_max(errno, flags, move || {
                self.signalfd_file(mask, flags & !O_ANYFD)
            }),
        }
    }

    /// Makes a signalfd without a descriptor.
    ///
    /// # Errors
    /// As [`signalfd`](Self::signalfd), but for `EMFILE` and `EBADF`.
    #[inline(always)]
    pub fn signalfd_file(&self, mask: u64, flags: i32) -> Result<FileHandle<'_>, Errno> {
        let k = self.inner();
        quietline_vfs::signalfd::signalfd(&k.signalfds, &k.files, &self.signals, mask, flags)
    }
}
