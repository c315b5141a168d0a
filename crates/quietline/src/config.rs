//! How a kernel shall be.

use quietline_net::FIRST_UNPRIVILEGED;
use quietline_vfs::abi::NR_OPEN;
use quietline_vfs::cred::{Capabilities, Cred};

/// What [`Kernel::boot`](crate::Kernel::boot) is told.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Config {
    /// Files that may be open at once in all processes together (`/proc/sys/fs/file-max`); `ENFILE` beyond.
    /// Default: no limit.
    pub file_max: u64,
    /// Descriptors of a process are below this (`RLIMIT_NOFILE`); `EMFILE` beyond. At most, and by default, 1,048,576.
    pub nofile: usize,
    /// Processes and zombies that there may be at once; `EAGAIN` beyond (`pids.max` of a control
    /// group). A number that only a process group or a session has counts, too. A zombie takes some
    /// 200 bytes of the heap, which are not charged to [`memory`](Self::memory). Default: no limit
    /// but that there are 4,194,303 numbers.
    pub pids_max: usize,
    /// Whether user 0 has all capabilities. Without, it lacks `CAP_NET_ADMIN`,
    /// `CAP_NET_BIND_SERVICE`, `CAP_NET_RAW` and `CAP_WAKE_ALARM`, `CAP_SYS_ADMIN` does not lift
    /// `file_max`, and `CAP_SYS_RESOURCE` raises no hard limit. Other users have no capability.
    /// Default: no.
    pub privileged: bool,
    /// The first port that a process may bind without `CAP_NET_BIND_SERVICE`
    /// (`/proc/sys/net/ipv4/ip_unprivileged_port_start`). Default: 1,024.
    pub unprivileged_port_start: u16,
    /// User and group of the first processes, and of the root directory. Default: 0 and 0 if `privileged`, else 1000 and 1000.
    pub owner: Option<[u32; 2]>,
    /// Bytes that the root filesystem may hold (`ENOSPC` beyond), and as many that all files of
    /// [`memfd_create`](crate::Process::memfd_create) together may. Default: no limit.
    pub fs_size: Option<u64>,
    /// Files that the root filesystem may hold, each further link counted as one, as tmpfs does,
    /// and as many of [`memfd_create`](crate::Process::memfd_create) with their root. Default: no
    /// limit.
    pub fs_inodes: Option<u64>,
    /// Bytes that the kernel's slab caches may take: see [`Memory`](crate::Memory). Default: no
    /// limit.
    pub memory: Option<usize>,
    /// Mounts that there may be (`/proc/sys/fs/mount-max`), at least 1; `ENOSPC` beyond. Default:
    /// 100,000.
    pub mount_max: u32,
    /// Locks that a file may have: record locks and those of `flock`; `ENOLCK` beyond. Default:
    /// 65,536.
    pub file_locks: usize,
    /// Pages of a user's pipes beyond which a pipe has two pages, and none can be enlarged
    /// (`EPERM`) (`/proc/sys/fs/pipe-user-pages-soft`). User 0 is spared. Default: 16,384. 0: no
    /// limit.
    pub pipe_user_pages_soft: u64,
    /// Pages that a user's pipes may have (`/proc/sys/fs/pipe-user-pages-hard`); a pipe that would
    /// have more takes no page (`ENOMEM`), and cannot be enlarged (`EPERM`). User 0 is spared.
    /// Default: 0, which is no limit.
    pub pipe_user_pages_hard: u64,
    /// Pages that the queues of all TCP sockets may have: the third number of
    /// `/proc/sys/net/ipv4/tcp_mem`. Beyond it, a queue that holds bytes takes no more memory.
    /// Default: about a tenth of the machine's memory, as on Linux.
    pub tcp_mem: Option<u64>,
    /// Permissions of the root directory. Default: 0o755.
    pub root_mode: u32,
    /// Whether the kernel begins with `/proc` and `/sys`. Default: no: [`mount`](crate::Process::mount) does it later.
    pub proc: bool,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            file_max: u64::MAX,
            nofile: NR_OPEN,
            pids_max: usize::MAX,
            privileged: false,
            unprivileged_port_start: FIRST_UNPRIVILEGED,
            owner: None,
            fs_size: None,
            fs_inodes: None,
            memory: None,
            mount_max: 100_000,
            file_locks: 1 << 16,
            pipe_user_pages_soft: 16_384,
            pipe_user_pages_hard: 0,
            tcp_mem: None,
            root_mode: 0o755,
            proc: false,
        }
    }
}

impl Config {
    /// With another [`file_max`](Self::file_max).
    pub fn file_max(self, file_max: u64) -> Self {
        Self { file_max, ..self }
    }

    /// With another [`nofile`](Self::nofile).
    pub fn nofile(self, nofile: usize) -> Self {
        Self { nofile, ..self }
    }

    /// With or without [all capabilities for user 0](Self::privileged).
    pub fn privileged(self, privileged: bool) -> Self {
        Self { privileged, ..self }
    }

    /// With a limit on [processes and zombies](Self::pids_max).
    pub fn pids_max(self, pids_max: usize) -> Self {
        Self { pids_max, ..self }
    }

    /// With another [`unprivileged_port_start`](Self::unprivileged_port_start).
    pub fn unprivileged_port_start(self, port: u16) -> Self {
        Self { unprivileged_port_start: port, ..self }
    }

    /// With another [`owner`](Self::owner).
    pub fn owner(self, uid: u32, gid: u32) -> Self {
        Self { owner: Some([uid, gid]), ..self }
    }

    /// With a limit on [what the root filesystem holds](Self::fs_size), in bytes.
    pub fn fs_size(self, bytes: u64) -> Self {
        Self { fs_size: Some(bytes), ..self }
    }

    /// With a limit on [the root filesystem's files](Self::fs_inodes).
    pub fn fs_inodes(self, inodes: u64) -> Self {
        Self { fs_inodes: Some(inodes), ..self }
    }

    /// With a limit on [the memory of the kernel's objects](Self::memory), in bytes.
    pub fn memory(self, bytes: usize) -> Self {
        Self { memory: Some(bytes), ..self }
    }

    /// With another [`mount_max`](Self::mount_max).
    pub fn mount_max(self, mounts: u32) -> Self {
        Self { mount_max: mounts.max(1), ..self }
    }

    /// With another limit on [the locks of a file](Self::file_locks).
    pub fn file_locks(self, locks: usize) -> Self {
        Self { file_locks: locks, ..self }
    }

    /// With other limits on the pages of a user's pipes: see
    /// [`pipe_user_pages_soft`](Self::pipe_user_pages_soft) and
    /// [`pipe_user_pages_hard`](Self::pipe_user_pages_hard).
    pub fn pipe_user_pages(self, soft: u64, hard: u64) -> Self {
        Self { pipe_user_pages_soft: soft, pipe_user_pages_hard: hard, ..self }
    }

    /// With a limit on [the queues of TCP](Self::tcp_mem), in pages.
    pub fn tcp_mem(self, pages: u64) -> Self {
        Self { tcp_mem: Some(pages), ..self }
    }

    /// With another [`root_mode`](Self::root_mode).
    pub fn root_mode(self, mode: u32) -> Self {
        Self { root_mode: mode & 0o7777, ..self }
    }

    /// With or without [`/proc` and `/sys`](Self::proc).
    pub fn proc(self, proc: bool) -> Self {
        Self { proc, ..self }
    }

    /// User and group of the first processes.
    pub(crate) fn first_user(&self) -> [u32; 2] {
        self.owner.unwrap_or(if self.privileged { [0, 0] } else { [1000, 1000] })
    }

    /// Credentials of the first processes.
    pub(crate) fn first_cred(&self) -> Cred {
        let [uid, gid] = self.first_user();
        let bound = if self.privileged { Capabilities::all() } else { Capabilities::UNPRIVILEGED };
        Cred::bounded(uid, gid, bound)
    }
}
