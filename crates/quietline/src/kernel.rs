//! Kernels.

use crate::mounting::Types;
use crate::processes::Processes;
use crate::{Config, Errno, Process};
use core::pin::Pin;
use quietline_net::{Net, Socket};
use quietline_platform::AllocError;
use quietline_platform::atomic::{AtomicU64, Ordering};
use quietline_slab::{Account, LazyCache, RawCache, Stats};
use quietline_sync::{IdAllocator, Shared};
use quietline_vfs::inotify::Inotify;
use quietline_vfs::namei::PSEUDO_DEVICES;
use quietline_vfs::ramfs::new_ramfs;
use quietline_vfs::{
    EventFd, EventPolls, Files, KernMount, Limits, MountFlags, Namespace, PidFd, Pipe, PseudoFs,
    SignalFd, TimerFd, Timers, Vfs,
};

/// Root directories of every kernel: that of the tree, and that of the filesystem of files in memory
/// without a path (`memfd_create`).
const ROOTS: i64 = 2;

/// Numbers of dentries (`/proc/sys/fs/dentry-state`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Dentries {
    /// Dentries that live, without those of the two root directories that every kernel has.
    pub nr_dentry: i64,
}

/// Numbers of inodes (`/proc/sys/fs/inode-nr`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Inodes {
    /// Inodes that live, without the one that all anonymous descriptors share and those of the two
    /// root directories.
    pub nr_inodes: i64,
}

/// The memory of a kernel's objects: of files' pages, dentries, inodes, open files, sockets, pipes,
/// epolls and their items. Bytes of whole slabs, free objects and those that wait for a grace period
/// included: what the kernel takes, not what its processes use.
///
/// At the [limit](Config::memory) a call that needs a further slab fails, as it does where the
/// system has no memory: mostly with `ENOMEM`, with `ENOSPC` where a file grows. Nothing is
/// reclaimed by itself. [`Kernel::shrink`] gives back what is free, and names that no process uses.
///
/// Not counted: memory from the heap, such as tables of descriptors, messages in sockets, extended
/// attributes, locks, and the arrays in which the caches keep free objects.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Memory {
    /// Bytes of all slabs now.
    pub slabs: usize,
    /// The limit on them, or `None`.
    pub limit: Option<usize>,
    /// The number of slabs that were refused because of the limit.
    pub refusals: u64,
}

/// A kernel: files, and what they are made of. Cloning makes another owner of the same kernel.
///
/// Processes are owners, too. Dropping the last owner waits for RCU callbacks; inside a callback it
/// ends the host process with a message.
#[derive(Debug, Clone)]
pub struct Kernel {
    inner: Shared<Inner>,
}

/// What a kernel has. At one address for its life: pseudo objects point to their filesystems.
#[derive(Debug)]
pub(crate) struct Inner {
    /// The filesystem of files in memory without a path, and its only mount. Before the file
    /// systems, as is the namespace, which refers to them too.
    pub(crate) memfds: KernMount<'static>,
    pub(crate) namespace: Namespace<'static>,
    pub(crate) vfs: Pin<Box<Vfs>>,
    pub(crate) config: Config,
    /// All caches charge it.
    account: Account,
    pub(crate) files: Files,
    pub(crate) net: Net,
    pub(crate) sockets: PseudoFs<Socket>,
    pub(crate) pipes: PseudoFs<Pipe>,
    pub(crate) eventfds: PseudoFs<EventFd>,
    pub(crate) timerfds: PseudoFs<TimerFd>,
    /// After those that are in them.
    pub(crate) timers: Timers,
    pub(crate) signalfds: PseudoFs<SignalFd>,
    pub(crate) inotifies: PseudoFs<Inotify>,
    pub(crate) pidfds: PseudoFs<PidFd>,
    pub(crate) epolls: EventPolls,
    pub(crate) last_ino: IdAllocator,
    /// The number of the filesystem that was mounted last. Below it are those of pseudo objects,
    /// of the root and of files in memory without a path.
    pub(crate) last_dev: AtomicU64,
    pub(crate) processes: Processes,
    pub(crate) types: Types,
}

/// Returns the error of a system call that finds no memory.
fn no_memory(_: AllocError) -> Errno {
    Errno::NOMEM
}

impl Inner {
    pub(crate) fn dentries(&self) -> Dentries {
        let k = self;
        let anonymous =
            k.eventfds.live() + k.timerfds.live() + k.signalfds.live() + k.inotifies.live();
        let anonymous = anonymous + k.epolls.live() + k.pidfds.live();
        let tree = k.vfs.dentry_state().nr_dentry - ROOTS;
        Dentries { nr_dentry: k.sockets.live() + k.pipes.live() + anonymous + tree }
    }

    pub(crate) fn inodes(&self) -> Inodes {
        let k = self;
        Inodes { nr_inodes: k.sockets.live() + k.pipes.live() + k.vfs.nr_inodes() - ROOTS }
    }

    /// The kernel's slab caches, in the order of `/proc/slabinfo`.
    pub(crate) fn caches(&self) -> [&LazyCache; 20] {
        let k = self;
        let [dentries, inodes, names, long_names, pages, nodes, pipe_pages] = k.vfs.caches();
        let [epolls, epitems] = k.epolls.caches();
        let [local, streams, datagrams] = k.net.caches();
        [
            k.files.cache(),
            k.sockets.cache(),
            local,
            streams,
            datagrams,
            k.pipes.cache(),
            pipe_pages,
            k.eventfds.cache(),
            k.timerfds.cache(),
            k.signalfds.cache(),
            dentries,
            inodes,
            names,
            long_names,
            pages,
            nodes,
            k.inotifies.cache(),
            epolls,
            epitems,
            k.pidfds.cache(),
        ]
    }

    pub(crate) fn slabinfo(&self) -> [Stats; 20] {
        self.caches().map(LazyCache::stats)
    }
}

impl Drop for Inner {
    /// Objects that wait for a grace period end while all that they refer to is there.
    fn drop(&mut self) {
        self.net.end();
        // Before the others: a socket may have kept files of theirs.
        self.sockets.flush();
        let others = [
            self.pipes.flushed_by_caller(),
            self.eventfds.flushed_by_caller(),
            self.timerfds.flushed_by_caller(),
            self.signalfds.flushed_by_caller(),
            self.inotifies.flushed_by_caller(),
            self.pidfds.flushed_by_caller(),
            self.epolls.flushed_by_caller(),
        ];
        if others.iter().any(|(waits, _)| *waits) {
            RawCache::flush_rcu_alone(&mut others.map(|(_, cache)| cache));
        }
    }
}

impl Kernel {
    /// A kernel without processes, and with an empty filesystem in memory, mounted as the root; with [`Config::proc`], with `/proc`
    /// and `/sys` in it. Some kilobytes; no threads, no open files, no state outside it.
    ///
    /// # Errors
    /// `ENOMEM`; `ENOSPC` if the limits of `config` leave no room for that.
    pub fn boot(config: Config) -> Result<Self, Errno> {
        let files = Files::new(config.file_max).map_err(no_memory)?;
        let sockets = PseudoFs::new("sockfs").map_err(no_memory)?;
        let net = Net::new()?;
        let pipes = PseudoFs::new("pipefs").map_err(no_memory)?;
        let eventfds = PseudoFs::new("anon_inodefs").map_err(no_memory)?;
        let timerfds = PseudoFs::new("anon_inodefs").map_err(no_memory)?;
        let timers = Timers::new().map_err(no_memory)?;
        let signalfds = PseudoFs::new("anon_inodefs").map_err(no_memory)?;
        let inotifies = PseudoFs::new("anon_inodefs").map_err(no_memory)?;
        let pidfds = PseudoFs::new("anon_inodefs").map_err(no_memory)?;
        let epolls = EventPolls::new().map_err(no_memory)?;
        let last_ino = IdAllocator::new().map_err(no_memory)?;
        let processes = Processes::new(config.pids_max).map_err(no_memory)?;
        let account = Account::new(config.memory).map_err(no_memory)?;
        // The tree comes last: from here on the namespace goes before the file systems, whatever fails.
        let vfs = Vfs::new()?;
        vfs.set_mount_max(config.mount_max.max(1));
        vfs.lock_waits().set_file_locks_max(config.file_locks);
        // Relaxed: tunables of a kernel that no other thread has.
        let pipes_of_users = vfs.pipe_limits();
        pipes_of_users.user_pages_soft().store(config.pipe_user_pages_soft, Ordering::Relaxed);
        pipes_of_users.user_pages_hard().store(config.pipe_user_pages_hard, Ordering::Relaxed);
        if let Some(pages) = config.tcp_mem {
            net.memory().set_tcp_mem([pages; 3]);
        }
        let limits = || Limits::new(config.fs_size, config.fs_inodes).map_err(|_| Errno::NOMEM);
        let dev = PSEUDO_DEVICES + 1;
        let sb = new_ramfs(&vfs, dev, limits()?, config.root_mode, config.first_user())?;
        let root = vfs.new_mount(sb, MountFlags::RELATIME)?;
        let namespace = crate::raw::namespace(vfs.new_namespace(root)?);
        // A filesystem of their own: no directory of theirs can be watched or asked for its room.
        let memfds_dev = dev + 1;
        let memfds = new_ramfs(namespace.vfs(), memfds_dev, limits()?, 0, [0, 0])?;
        let memfds = namespace.vfs().kern_mount(memfds)?;
        let inner = Inner {
            memfds,
            namespace,
            vfs,
            files,
            net,
            sockets,
            pipes,
            eventfds,
            timerfds,
            timers,
            signalfds,
            inotifies,
            pidfds,
            epolls,
            last_ino,
            last_dev: AtomicU64::new(memfds_dev),
            processes,
            types: Types::new(),
            account,
            config,
        };
        for cache in inner.caches() {
            cache.charge_to(&inner.account).expect("a kernel boots without slab objects");
        }
        let kernel = Self { inner: Shared::new(inner).map_err(|_| Errno::NOMEM)? };
        if kernel.inner.config.proc {
            crate::mounting::boot(&kernel.inner)?;
        }
        Ok(kernel)
    }

    /// A process without descriptors and without a parent, which leads a session and a process
    /// group of its own.
    ///
    /// # Errors
    /// `ENOMEM`; `EAGAIN` when all numbers have processes, or at [`Config::pids_max`].
    pub fn process(&self) -> Result<Process, Errno> {
        Process::new(self.clone(), None)
    }

    /// As [`process`](Self::process), with a number of the caller's choice.
    ///
    /// # Errors
    /// As [`process`](Self::process); `EINVAL` for a number below 1 or above 4,194,303; `EEXIST` if
    /// a process, a process group or a session has it.
    pub fn process_as(&self, pid: i32) -> Result<Process, Errno> {
        Process::new(self.clone(), Some(pid))
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
        self.inner.dentries()
    }

    /// Inodes that live; exact when nobody opens or closes meanwhile.
    pub fn inodes(&self) -> Inodes {
        self.inner.inodes()
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
    pub fn slabinfo(&self) -> [Stats; 20] {
        self.inner.slabinfo()
    }

    /// Returns the memory of the kernel's objects, and its limit.
    pub fn memory(&self) -> Memory {
        let account = &self.inner.account;
        Memory { slabs: account.used(), limit: account.limit(), refusals: account.refusals() }
    }

    /// Changes the limit on the memory of the kernel's objects; what there is stays.
    pub fn set_memory_limit(&self, bytes: Option<usize>) {
        self.inner.account.set_limit(bytes);
    }

    /// Gives cached memory back to the system; that of files after a grace period. Waits for a grace period.
    pub fn shrink(&self) {
        let caches = self.inner.caches();
        // Ends objects that wait for it, with what they own: pages of pipes, files in messages.
        RawCache::flush_rcu_of(caches.into_iter().filter_map(LazyCache::made));
        self.inner.vfs.shrink();
        caches.into_iter().for_each(LazyCache::shrink);
    }
}
