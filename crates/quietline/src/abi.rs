//! The numbers of Linux's system call interface that quietline takes, and [`O_ANYFD`].

pub use quietline_net::abi::*;
pub use quietline_vfs::abi::*;
pub use quietline_vfs::eventpoll::{
    EPOLL_CLOEXEC, EPOLL_CTL_ADD, EPOLL_CTL_DEL, EPOLL_CTL_MOD, EPOLLERR, EPOLLET, EPOLLEXCLUSIVE,
    EPOLLHUP, EPOLLIN, EPOLLMSG, EPOLLONESHOT, EPOLLOUT, EPOLLPRI, EPOLLRDBAND, EPOLLRDHUP,
    EPOLLRDNORM, EPOLLWAKEUP, EPOLLWRBAND, EPOLLWRNORM,
};

/// `waitid`: for any child.
pub const P_ALL: i32 = 0;
/// `waitid`: for the child with a number.
pub const P_PID: i32 = 1;
/// `waitid`: for children in a process group.
pub const P_PGID: i32 = 2;
/// `waitid`: for the child of a pidfd.
pub const P_PIDFD: i32 = 3;
/// `waitid`: do not wait if no child has ended.
pub const WNOHANG: i32 = 1;
/// `waitid`: for children that stop. None does here.
pub const WSTOPPED: i32 = 2;
/// `waitid`: for children that end.
pub const WEXITED: i32 = 4;
/// `waitid`: for children that continue. None does here.
pub const WCONTINUED: i32 = 8;
/// `waitid`: the child stays, and can be waited for again.
pub const WNOWAIT: i32 = 0x0100_0000;
/// `waitid`: for children of this thread only. Children are the process's here.
pub const __WNOTHREAD: i32 = 0x2000_0000;
/// `waitid`: for all children, whatever signal tells of their end.
pub const __WALL: i32 = 0x4000_0000;
/// `waitid`: for children that tell their parent of their end by another signal than SIGCHLD. There
/// are none here.
pub const __WCLONE: i32 = i32::MIN;
/// Code of SIGCHLD and `waitid`: the child has called `exit`.
pub const CLD_EXITED: i32 = 1;
/// Code of SIGCHLD and `waitid`: a signal has ended the child.
pub const CLD_KILLED: i32 = 2;

/// `pidfd_open`: `waitid` does not wait for the process.
pub const PIDFD_NONBLOCK: i32 = O_NONBLOCK;
/// `pidfd_open`: a thread. Numbers are those of processes here, so it changes nothing.
pub const PIDFD_THREAD: i32 = 0o200;
/// `pidfd_send_signal`: to the thread. Signals are the process's here.
pub const PIDFD_SIGNAL_THREAD: u32 = 1;
/// `pidfd_send_signal`: to the process.
pub const PIDFD_SIGNAL_THREAD_GROUP: u32 = 2;
/// `pidfd_send_signal`: to the process group that the process leads.
pub const PIDFD_SIGNAL_PROCESS_GROUP: u32 = 4;

/// The number of limits, which are numbered from 0.
pub const RLIM_NLIMITS: usize = 16;
/// No limit.
pub const RLIM_INFINITY: u64 = u64::MAX;
/// The number after the largest descriptor.
pub const RLIMIT_NOFILE: u32 = 7;
/// The most signals that wait with their [`SigInfo`](crate::SigInfo).
pub const RLIMIT_SIGPENDING: u32 = 11;

/// `unshare`: the root, the working directory and the umask.
pub const CLONE_FS: i32 = 0x200;
/// `unshare`: the descriptors.
pub const CLONE_FILES: i32 = 0x400;
/// `unshare`: the mount namespace.
pub const CLONE_NEWNS: i32 = 0x2_0000;
