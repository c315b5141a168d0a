//! The Linux kernel's object layer as a library.
//!
//! ```
//! use quietline::{Config, Kernel, abi::*};
//!
//! let kernel = Kernel::boot(Config::default())?;
//! let process = kernel.process()?;
//! let fd = process.socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)?;
//! assert_eq!(fd, 0); // the lowest free descriptor; a new process has none
//! assert!(process.fd_name(fd)?.starts_with("socket:["));
//! process.close(fd)?;
//! # Ok::<(), quietline::Errno>(())
//! ```
//!
//! # The problem
//!
//! A library OS, a sandbox or a WASI host that serves many threads needs files, pipes, sockets and descriptors that
//! behave as Linux's do. Behind one mutex they do not scale; behind the host's system calls each costs microseconds.
//!
//! # Our way
//!
//! A [`Kernel`] is a value: as many as you like live side by side. A [`Process`] has a descriptor table and one method
//! for each system call; it is shared by as many threads as you like. What two threads do on objects of their own
//! touches no common cache line.
//!
//! ```text
//!   Kernel ── files (limit, cache), sockets, pipes, anonymous descriptors, inode numbers
//!     │ shared by
//!   Process ── descriptor table          FileHandle: a file without a descriptor
//! ```
//!
//! # Which way to open
//!
//! | you want | use | cost |
//! |---|---|---|
//! | what POSIX says: the lowest free descriptor | [`Process::socket`] and so on | a lock, of the process |
//! | a descriptor, from many threads of a process | the same with [`abi::O_ANYFD`] in the flags | no lock |
//! | a file, and no descriptor | [`Process::socket_file`] and so on | no lock, no table |
//!
//! # Guarantees
//!
//! * Results and errors are those of Linux, except that nothing here is ever interrupted.
//! * Dropping a [`Process`] closes its descriptors; dropping the last owner of a [`Kernel`] frees all it had.
//! * After a `fork` of the host process, kernels and processes go on in the child.
//!
//! # Limits
//!
//! Creation, duplication, flags, names and closing; data transfer, paths and polling are not there yet.
//!
//! # Lock order
//!
//! A process's table lock, then locks inside the slab caches. No lock is held when a file is closed.

pub mod abi;
mod config;
mod descriptors;
mod kernel;
#[cfg(feature = "observe")]
pub mod observe;
mod process;
mod raw;

/// Tests that an operation meets no other CPU: only in builds with `--cfg quietline_sim`.
#[cfg(quietline_sim)]
pub use quietline_sim::check as lines;

pub use config::Config;
pub use kernel::{Dentries, Inodes, Kernel};
pub use process::Process;
pub use quietline_net::{Protocol, Socket};
pub use quietline_slab::Stats;
pub use quietline_vfs::{Dentry, DentryFlags, EventFd, FileHandle, FileMode, Inode, Pipe, SignalFd, TimerFd};
pub use rustix::io::Errno;
