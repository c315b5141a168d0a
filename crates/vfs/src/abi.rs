//! Numbers of the Linux system call interface, as x86_64 has them, and ours beside them.

mod paths;
mod stat;

pub use paths::*;
pub use stat::*;

/// Open for reading.
pub const O_RDONLY: i32 = 0;
/// Open for writing.
pub const O_WRONLY: i32 = 1;
/// Open for both.
pub const O_RDWR: i32 = 2;
/// The bits of the access mode.
pub const O_ACCMODE: i32 = 3;
/// With `pipe2`: a notification pipe, which quietline has not.
pub const O_NOTIFICATION_PIPE: i32 = 0o200;
/// Append on each write.
pub const O_APPEND: i32 = 0o2000;
/// Fail rather than wait.
pub const O_NONBLOCK: i32 = 0o4000;
/// Send a signal when input or output becomes possible.
pub const O_ASYNC: i32 = 0o20000;
/// With `pipe2`: packets.
pub const O_DIRECT: i32 = 0o40000;
/// No time of access.
pub const O_NOATIME: i32 = 0o1000000;
/// Close the descriptor on exec.
pub const O_CLOEXEC: i32 = 0o2000000;

/// quietline's own: any free descriptor will do, not the lowest. Such descriptors are handed out by each CPU from its
/// own store, so that threads of one process do not meet. Accepted wherever `O_CLOEXEC` is, when a descriptor is made.
pub const O_ANYFD: i32 = 1 << 30;

/// `fcntl`: duplicate to the lowest descriptor not below the argument.
pub const F_DUPFD: i32 = 0;
/// `fcntl`: the descriptor's flags.
pub const F_GETFD: i32 = 1;
/// `fcntl`: set the descriptor's flags.
pub const F_SETFD: i32 = 2;
/// `fcntl`: the file's status flags and access mode.
pub const F_GETFL: i32 = 3;
/// `fcntl`: set the file's status flags.
pub const F_SETFL: i32 = 4;
/// `fcntl`: as `F_DUPFD`, with `FD_CLOEXEC` on the new descriptor.
pub const F_DUPFD_CLOEXEC: i32 = 1030;
/// Descriptor flag: close on exec.
pub const FD_CLOEXEC: i32 = 1;

/// `close_range`: give the caller a table of its own first. (A quietline process shares its table with nobody.)
pub const CLOSE_RANGE_UNSHARE: u32 = 2;
/// `close_range`: set `FD_CLOEXEC` instead of closing.
pub const CLOSE_RANGE_CLOEXEC: u32 = 4;

/// `eventfd2`: reads take one.
pub const EFD_SEMAPHORE: i32 = 1;
/// `eventfd2`: as `O_NONBLOCK`.
pub const EFD_NONBLOCK: i32 = O_NONBLOCK;
/// `eventfd2`: as `O_CLOEXEC`.
pub const EFD_CLOEXEC: i32 = O_CLOEXEC;

/// `timerfd_create`: as `O_NONBLOCK`.
pub const TFD_NONBLOCK: i32 = O_NONBLOCK;
/// `timerfd_create`: as `O_CLOEXEC`.
pub const TFD_CLOEXEC: i32 = O_CLOEXEC;
/// The clock on the wall.
pub const CLOCK_REALTIME: i32 = 0;
/// Time that never goes back.
pub const CLOCK_MONOTONIC: i32 = 1;
/// Monotonic, suspended time included.
pub const CLOCK_BOOTTIME: i32 = 7;
/// The wall clock, waking a suspended system.
pub const CLOCK_REALTIME_ALARM: i32 = 8;
/// Boot time, waking a suspended system.
pub const CLOCK_BOOTTIME_ALARM: i32 = 9;

/// `signalfd4`: as `O_NONBLOCK`.
pub const SFD_NONBLOCK: i32 = O_NONBLOCK;
/// `signalfd4`: as `O_CLOEXEC`.
pub const SFD_CLOEXEC: i32 = O_CLOEXEC;

/// File type of a fifo, in an inode's mode.
pub const S_IFIFO: u32 = 0o010000;
/// File type of a socket.
pub const S_IFSOCK: u32 = 0o140000;

/// Descriptors that a table can have at most (`/proc/sys/fs/nr_open`).
pub const NR_OPEN: usize = 1 << 20;

/// Bytes that are written to a pipe as a whole.
pub const PIPE_BUF: usize = 4096;
/// `fcntl`: how many bytes a pipe has room for is to be this.
pub const F_SETPIPE_SZ: i32 = 1031;
/// `fcntl`: how many bytes a pipe has room for.
pub const F_GETPIPE_SZ: i32 = 1032;
/// `splice`, `tee`, `vmsplice`: the pages may be moved; which they are where they can be.
pub const SPLICE_F_MOVE: u32 = 1;
/// `splice`, `tee`, `vmsplice`: fail rather than wait for a pipe.
pub const SPLICE_F_NONBLOCK: u32 = 2;
/// `splice`: more is to come.
pub const SPLICE_F_MORE: u32 = 4;
/// `vmsplice`: the memory is the pipe's from now on. (It is copied all the same: what can be given is a
/// [`GiftPage`](crate::pipe::GiftPage).)
pub const SPLICE_F_GIFT: u32 = 8;

/// `ioctl`: how many bytes can be read.
pub const FIONREAD: u64 = 0x541b;
/// `ioctl`: set or clear `O_NONBLOCK`.
pub const FIONBIO: u64 = 0x5421;
/// `ioctl`: clear `FD_CLOEXEC`.
pub const FIONCLEX: u64 = 0x5450;
/// `ioctl`: set `FD_CLOEXEC`.
pub const FIOCLEX: u64 = 0x5451;
/// `ioctl`: how many bytes were written that nobody has read (`TIOCOUTQ`).
pub const SIOCOUTQ: u64 = 0x5411;
/// `ioctl`: whether the next byte is urgent.
pub const SIOCATMARK: u64 = 0x8905;
