//! The files of a quietline kernel, mounted through FUSE for every program of the machine.
//!
//! # The problem
//!
//! A program that is not linked with quietline knows files by the host's system calls alone. FUSE hands those calls to a
//! process, one request each, and lets it answer in any order.
//!
//! # The contended way
//!
//! One thread that reads requests, one table of nodes under one lock, an open file for each open, and permissions that the
//! server works out again from a user and a group, without knowing the caller's other groups.
//!
//! # Our way
//!
//! ```text
//!   program ── system call ── host kernel: permissions, locks, cache of names, attributes and pages
//!                                │ /dev/fuse, one descriptor per thread
//!                             Server ─┬─ Nodes: node number ── FileHandle, count of lookups       64 tables
//!                                     ├─ base: the process that reads and changes, with every capability
//!                                     └─ Makers: user, group ── process whose files belong to these
//! ```
//!
//! A node is the inode's number and one open file, whatever the number of its names and of those who have it open: hard
//! links are one node, an unlinked file lives as long as the host knows it, and opening a file costs no request at all.
//! Each request puts the file into a process's table for its own time, by [`O_ANYFD`](quietline::abi::O_ANYFD), which
//! takes no lock.
//!
//! # Guarantees
//!
//! * Permissions are checked by the host, with the caller's groups and capabilities (`default_permissions`, always on); new
//!   files belong to the caller.
//! * What the host caches is right however long it does: nobody but the host changes the files. A change that the host does
//!   not see in its own request (set-id bits lost by a write) is told to it in the answer to the next question for
//!   attributes, as the protocol wants.
//! * Locks (`flock`, POSIX, OFD) are the host's: they wait, are interrupted and find deadlocks as on any filesystem.
//! * When the server ends, by whatever signal, no dead mount stays behind: a [guard] takes it away.
//!
//! # Limits
//!
//! * `O_TMPFILE` is `EOPNOTSUPP`: the crate `fuser` does not know the request. Extended attributes of symbolic links and
//!   special files are not kept.
//! * A read from the host's page cache leaves no time of access.
//!
//! # Lock order
//!
//! A table of nodes, or the table of makers; nothing is called under either but the closing of a file.

mod answer;
pub mod guard;
mod makers;
mod mount;
mod nodes;
mod options;
mod server;

pub use mount::{MountError, Mounted};
pub use options::{Options, OptionsError};
