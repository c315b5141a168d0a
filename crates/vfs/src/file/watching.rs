//! inotify instances as files.

use super::{Direction, FileMode, Files, Io, Ioctl, Sink};
use crate::abi::{O_CLOEXEC, O_NONBLOCK, O_RDONLY};
use crate::inode::PseudoInode;
use crate::inotify::Inotify;
use crate::poll::{Events, PollTable};
use crate::raw::handle::FileHandle;
use crate::raw::pseudo::{Payload, PseudoFs};
use crate::vfs::Vfs;
use core::fmt;
use quietline_sync::WaitQueue;
use rustix::io::Errno;

impl Payload for Inotify {
    const CACHE: &'static str = "inotify_inode_cache";
    const WRITES: bool = false;
    const SEEKS: bool = true;
    const CLOSES: bool = true;
    // Dropping it closes it.
    const CLOSES_ALONE: bool = false;

    fn inode(&self) -> Option<&PseudoInode> {
        None
    }

    fn name(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("anon_inode:inotify")
    }

    fn try_read(&self, _io: Io, to: &mut Sink<'_, '_>) -> Result<usize, Errno> {
        self.take(to)
    }

    fn poll(&self, _io: Io, table: &mut PollTable<'_>) -> Events {
        table.wait_on(self.readers());
        if self.is_readable() { Events::IN | Events::RDNORM } else { Events::empty() }
    }

    fn waiters(&self, what: Direction) -> Option<&WaitQueue> {
        (what == Direction::Read).then(|| self.readers())
    }

    fn ioctl(&self, _io: Io, request: Ioctl) -> Result<i32, Errno> {
        match request {
            Ioctl::Readable => Ok(self.readable_bytes().try_into().unwrap_or(i32::MAX)),
            _ => Err(Errno::NOTTY),
        }
    }

    fn closed(&self, _mode: FileMode) {
        self.close();
    }
}

/// `inotify_init1`.
///
/// # Errors
/// `EINVAL` for a flag that is unknown; `EMFILE` for too many instances of a user; `ENFILE`, `ENOMEM`.
pub fn inotify_init1<'k>(
    fs: &'k PseudoFs<Inotify>,
    files: &'k Files,
    vfs: &Vfs,
    uid: u32,
    flags: i32,
) -> Result<FileHandle<'k>, Errno> {
    if flags & !(O_CLOEXEC | O_NONBLOCK) != 0 {
        return Err(Errno::INVAL);
    }
    fs.open(
        files,
        Inotify::new(&vfs.inotify_limits, uid)?,
        O_RDONLY | (flags & O_NONBLOCK),
        FileMode::READ,
    )
}
