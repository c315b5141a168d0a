//! Dentries, inodes, files and descriptor tables.
//!
//! # The problem
//!
//! A million rounds of `close(socket(AF_INET, SOCK_STREAM, 0));` on each of eight CPUs took 17.6 times as long as on
//! one in 2008, though no two of those sockets had anything to do with each other: each was an inode on two global lists, a dentry in a
//! tree, a reference to a mount, a number from a counter, four counts.
//!
//! # The contended way
//!
//! Two global locks, taken at open and at close, two lists, a tree, a mount's count and four counters: what each step
//! wrote is in `docs/life-of-a-socket.md`.
//!
//! # Our way
//!
//! Nothing that a pseudo file is made of is shared unless somebody shares it:
//!
//! ```text
//!   open                                                 close
//!   ─────────────────────────────────────────            ──────────────────────────────────────────
//!   number for the inode      CPU's batch of 1,024       slot emptied        lock, or CAS if any fd
//!   object: dentry+inode      CPU's sheaf                number given back   bitmap, or CPU's store
//!   file                      CPU's sheaf                file count → dead   one CAS
//!   count of files            CPU's word, folded         object              CPU's sheaf
//!                                                        file                CPU's sheaf, CPU's word
//!   mount                     internal: not counted      mount               internal: not counted
//!   descriptor                lock, or CPU's store
//! ```
//!
//! # Guarantees
//!
//! * A pseudo dentry is its own parent, in no hash and on no list, and is freed at once, unless a call by descriptor has looked at
//!   its object without a reference; then after a grace period (docs/adr/0015).
//! * A file found at a descriptor was there at one moment during the call, and stays open while the handle lives.
//! * Descriptors follow POSIX's lowest-number rule unless `O_ANYFD` is asked for.
//! * Limits and errors are those of Linux.
//!
//! # Limits
//!
//! Each module says what of its subject is not here. A pollable object has two wait queues at most.
//!
//! # Who holds what, and lock order
//!
//! ```text
//!   FdTable ─ slot ─ File ─ Dentry (+ Inode, + state: one allocation)
//!                     └─── Mount (internal: not counted)            FileHandle ─ File ...
//!
//!   SuperBlock ─ root Dentry        Dentry ─ Inode, parent Dentry        directory's table ─ pinned Dentry
//!   DentryRef  ─ Dentry             Section ─ nothing: what it finds is freed after it
//! ```
//!
//! A table's lock; inside it a parent's before its child's (`fork`), then the locks of the slab caches' slow paths.
//! Files are closed when no lock is held.
//!
//! In a tree: a superblock's lock of renames (`lock_renames`), inodes' locks (directories first, ancestors before
//! descendants, else by address; in any order by who only tries), the superblock's lock of moves, one dentry's `d_lockref`, an LRU's list.

// Slabs are native; what the model checker can see, its tests take in by path.
#![cfg(not(loom))]

pub mod abi;
pub mod attributes;
mod cold_result;
pub mod cred;
mod dcache;
mod dentry;
mod event_counts;
mod eventfd;
pub mod eventpoll;
mod fdtable;
pub mod file;
pub mod generated;
mod inode;
pub mod inotify;
pub mod locks;
mod mount;
pub mod namei;
mod namespace;
mod notify;
mod numbers;
mod open;
pub mod operations;
pub mod permission;
mod pidfd;
pub mod pipe;
mod poll;
pub mod ramfs;
mod raw;
pub mod select;
pub mod signalfd;
mod status;
mod super_block;
pub mod timerfd;
mod vfs;
mod walk;

pub use cold_result::ColdResult;
pub use dcache::name::{Keys as NameKeys, NAME_MAX, Name};
pub use dcache::path::PathBuffer;
pub use dentry::{Dentry, DentryFlags, PseudoDentry};
pub use eventfd::{EventFd, eventfd};
pub use fdtable::{FdFlags, FdTable, UnusedFd};
pub use file::{Direction, File, FileMode, Files, Io, Ioctl, Sink, Source};
pub use inode::{
    Attributes, Changes, Content, Inode, InodeFlags, InodeGuard, InodeRef, Locked, NewInode, Node,
    NodeEntry, NodeLink, Owner, OwnerCell, PseudoInode, Requester,
};
pub use mount::{Got, Mount};
pub use namespace::{KernMount, MountFlags, MountInfo, Namespace, UmountFlags};
pub use open::{
    FifoOpening, OpenHow, OpenResult, Opening, open, open_fast, open_memfd, open_or_create,
};
pub use pidfd::{PidFd, pidfd};
pub use pipe::{Pipe, PipeCore, PipeLimits, pipe2};
pub use poll::{Events, PollTable};
pub use ramfs::{Limits, PAGE, RamFs};
pub use raw::dcache::change::Dirs;
pub use raw::dcache::refs::{DentryRef, NewDentry, NewName};
pub use raw::dcache::seen::{Section, Seen, Step};
pub use raw::eventpoll::EventPolls;
pub use raw::handle::FileHandle;
pub use raw::mount::{MountRef, TreeMount, Writing};
pub use raw::opened::Opened;
pub use raw::pseudo::{Kind, Payload, PseudoFs};
pub use raw::timer::Timers;
pub use raw::walk_fs::FsStruct;
pub use raw::walk_path::{Path, PathRef, Spot};
pub use signalfd::{SignalFd, check_signalfd_flags, set_signals, signalfd};
pub use super_block::{Plain, SuperBlock, SuperFlags, SuperOperations, SuperRef};
pub use timerfd::{TimerFd, timerfd};
pub use vfs::{DentryState, Vfs};
pub use walk::{Found, How, Last, LastKind, Lookup, MAXSYMLINKS, PATH_MAX, Reach, Resolve, Start};
