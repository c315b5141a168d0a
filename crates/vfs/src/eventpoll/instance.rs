//! Epolls as files.

use crate::abi::{O_CLOEXEC, O_RDWR};
use crate::file::{FileMode, Files, Io, Ioctl};
use crate::inode::PseudoInode;
use crate::poll::{Events, PollTable};
use crate::raw::eventpoll::{EventPolls, Instance};
use crate::raw::handle::FileHandle;
use crate::raw::pseudo::Payload;
use core::fmt;
use rustix::io::Errno;

/// `epoll_create1`: close on exec.
pub const EPOLL_CLOEXEC: i32 = O_CLOEXEC;

/// What is wanted of a file, and what is told of it (`struct epoll_event`).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct EpollEvent {
    /// `EPOLLIN` and so on.
    pub events: u32,
    /// The caller's own.
    pub data: u64,
}

/// An epoll.
#[derive(Debug)]
pub struct EventPoll {
    pub(crate) inside: Instance,
}

impl Payload for EventPoll {
    const CACHE: &'static str = "eventpoll";
    const READS: bool = false;
    const WRITES: bool = false;
    const SEEKS: bool = true;
    const CLOSES: bool = true;
    /// A walk up finds an epoll by a watched file, and the epoll's own file by the epoll.
    const ENDS_BEFORE_FILE: bool = true;

    fn inode(&self) -> Option<&PseudoInode> {
        None
    }

    fn name(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("anon_inode:[eventpoll]")
    }

    fn poll(&self, _io: Io, table: &mut PollTable<'_>) -> Events {
        let poller = self.inside.poller();
        table.wait_on(poller.pollers());
        if poller.is_readable() { Events::IN | Events::RDNORM } else { Events::empty() }
    }

    fn ioctl(&self, _io: Io, _request: Ioctl) -> Result<i32, Errno> {
        // Linux has questions of its own for epolls, since 6.9, and this for all others.
        Err(Errno::INVAL)
    }

    fn closed(&self, _mode: FileMode) {
        // There is one file on it, ever: nothing opens an epoll by a path.
        self.inside.shut();
    }
}

/// `epoll_create1`, for a user.
///
/// # Errors
/// `EINVAL` for a flag that is unknown; `ENFILE`, `ENOMEM`.
pub fn epoll_create1<'k>(
    all: &'k EventPolls,
    files: &'k Files,
    uid: u32,
    flags: i32,
) -> Result<FileHandle<'k>, Errno> {
    if flags & !EPOLL_CLOEXEC != 0 {
        return Err(Errno::INVAL);
    }
    let mode = FileMode::READ.union(FileMode::WRITE);
    let file = all.fs.open(files, EventPoll { inside: Instance::new(all, uid) }, O_RDWR, mode)?;
    Instance::opened_as(&file);
    Ok(file)
}
