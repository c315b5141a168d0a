//! Pipes and fifos.
//!
//! # The problem
//!
//! A pipe is how threads hand each other bytes and wake each other up, a byte or a megabyte at a time. Most calls find what
//! they want and nobody asleep.
//!
//! # The contended way
//!
//! A mutex around all of it, a page from the allocator for each write and back for each read, and two calls to the wait
//! queues, each with its lock.
//!
//! # Our way
//!
//! One spin lock around a ring of buffers, which are parts of pages. The page that was read last is kept for the next write.
//! A few bytes in an empty pipe lie beside the lock, and need no page: one line takes them from the writer to the reader.
//! What [`poll`](crate::Events) says is one word beside it, read without the lock. Wait queues are looked at after the lock
//! is free, by one load while nobody sleeps.
//!
//! ```text
//!   Pipe (an object of its own)  ─┐                   ┌─ few bytes
//!                                 ├─ Core ─ lock ─────┴─ Ring ─ Buffer, Buffer, ...
//!   Fifo (of an inode)           ─┘     └─ two wait queues
//! ```
//!
//! # Guarantees
//!
//! * A write of at most [`PIPE_BUF`](crate::abi::PIPE_BUF) bytes is read as it was written, not mixed with another one.
//! * When a reader or a writer is woken, and how often, is as in Linux, also for those who only learn of it (`epoll` with
//!   edges).
//! * `splice` and `tee` between pipes copy no bytes but the few that lie beside a lock. Pages that were made for it go in and
//!   out without a copy ([`GiftPage`], [`TakenPage`]).
//!
//! # Limits
//!
//! * Bytes that come from a file or from a caller's memory are copied once, also by `splice` and `vmsplice`: memory that is
//!   borrowed cannot be had.
//! * A pipe counts for its user (`pipe-user-pages-soft`, `-hard`) from its first use for more than
//!   a few bytes on, and user 0 is spared, whatever capabilities a process of it has given up.
//!   Where Linux makes no pipe (`ENFILE`), its first use for more than a few bytes finds no memory
//!   (`ENOMEM`).
//!
//! # Lock order
//!
//! A pipe's lock; of two, that with the lower address first. Inside it those of the slab caches'
//! slow paths, and that of the users' pages. Queues are woken when it is free.
//!
//! # Source
//!
//! `fs/pipe.c`, `fs/splice.c`, Linux 6.18.

mod core;
mod few;
mod fifo;
mod gift;
mod limits;
mod now;
mod read;
mod splice;
mod write;

pub use self::core::PipeCore;
pub use fifo::Fifo;
pub use gift::{GiftPage, TakenPage, give_pages};
pub use limits::PipeLimits;
pub use splice::{Stop, Transfer, move_between, share_between, splice_from, splice_to};

use crate::abi::{
    O_CLOEXEC, O_DIRECT, O_NONBLOCK, O_NOTIFICATION_PIPE, O_RDONLY, O_WRONLY, S_IFIFO,
};
use crate::file::{Direction, Io, Ioctl, Sink, Source};
use crate::inode::{Owner, PseudoInode};
use crate::poll::{Events, PollTable};
use crate::raw::handle::FileHandle;
use crate::raw::pseudo::{Payload, PseudoFs};
use crate::vfs::Vfs;
use crate::{FileMode, Files};
use ::core::fmt;
use quietline_sync::{IdAllocator, WaitQueue};
use rustix::io::Errno;

/// A pipe.
#[derive(Debug)]
pub struct Pipe {
    inode: PseudoInode,
    core: PipeCore,
}

impl Pipe {
    /// What goes through it.
    pub fn core(&self) -> &PipeCore {
        &self.core
    }
}

impl Payload for Pipe {
    const CACHE: &'static str = "pipe_inode_cache";
    const MODE: u32 = S_IFIFO | 0o600;
    const CLOSES: bool = true;
    const CLOSES_ALONE: bool = false;

    #[inline(always)]
    fn is_idle(&mut self) -> bool {
        self.core.is_bare()
    }

    fn inode(&self) -> Option<&PseudoInode> {
        Some(&self.inode)
    }

    fn name(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "pipe:[{}]", self.inode.i_ino)
    }

    #[inline]
    fn try_read(&self, io: Io, to: &mut Sink<'_, '_>) -> Result<usize, Errno> {
        self.core.try_read(io, to)
    }

    #[inline]
    fn try_write(&self, io: Io, from: &mut Source<'_, '_>) -> Result<usize, Errno> {
        self.core.try_write(io, from)
    }

    fn poll(&self, io: Io, table: &mut PollTable<'_>) -> Events {
        self.core.poll(io, None, table)
    }

    fn waiters(&self, what: Direction) -> Option<&WaitQueue> {
        Some(self.core.waiters(what))
    }

    fn ioctl(&self, _io: Io, request: Ioctl) -> Result<i32, Errno> {
        self.core.ioctl(request)
    }

    fn opened(&self, mode: FileMode) {
        self.core.opened(mode);
    }

    fn closed(&self, mode: FileMode) {
        self.core.closed(mode);
    }
}

/// Makes a pipe that belongs to a user and a group. Returns its ends: first the one to read from.
///
/// # Errors
/// `EINVAL` for a flag that is unknown; `ENOPKG` for a notification pipe, which needs a queue of kernel events that
/// quietline has not; `ENFILE`, `ENOMEM`.
#[inline(always)]
pub fn pipe2<'k>(
    fs: &'k PseudoFs<Pipe>,
    files: &'k Files,
    vfs: &'k Vfs,
    last_ino: &IdAllocator,
    i_owner: Owner,
    flags: i32,
) -> Result<[FileHandle<'k>; 2], Errno> {
    if flags & !(O_CLOEXEC | O_NONBLOCK | O_DIRECT | O_NOTIFICATION_PIPE) != 0 {
        return Err(Errno::INVAL);
    }
    if flags & O_NOTIFICATION_PIPE != 0 {
        return Err(Errno::NOPKG);
    }
    let inode = PseudoInode { i_ino: last_ino.next(), i_owner };
    let slots = vfs.pipe_pages.of_a_pipe();
    let pipe = || Pipe { inode, core: PipeCore::new(slots, i_owner.uid(), 1, 1) };
    // Packets are made where they are written: the end to read from does not show O_DIRECT.
    let read = O_RDONLY | (flags & O_NONBLOCK);
    let write = O_WRONLY | (flags & (O_NONBLOCK | O_DIRECT));
    fs.open_pair(files, pipe, [(read, FileMode::READ), (write, FileMode::WRITE)])
}
