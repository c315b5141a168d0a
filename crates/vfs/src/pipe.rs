//! Pipes: how they are made. (What goes through them comes with data transfer.)

use crate::abi::{O_CLOEXEC, O_DIRECT, O_NONBLOCK, O_NOTIFICATION_PIPE, O_RDONLY, O_WRONLY, S_IFIFO};
use crate::inode::PseudoInode;
use crate::raw::handle::FileHandle;
use crate::raw::pseudo::{Payload, PseudoFs};
use crate::{FileMode, Files};
use core::fmt;
use quietline_sync::IdAllocator;
use rustix::io::Errno;

/// A pipe.
#[derive(Debug)]
pub struct Pipe {
    inode: PseudoInode,
}

impl Payload for Pipe {
    const CACHE: &'static str = "pipe_inode_cache";

    fn inode(&self) -> Option<&PseudoInode> {
        Some(&self.inode)
    }

    fn name(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "pipe:[{}]", self.inode.i_ino)
    }
}

/// A pipe's two ends: first the one to read from.
///
/// # Errors
/// `EINVAL` for a flag that is unknown; `ENOPKG` for a notification pipe, which needs a queue of kernel events that
/// quietline has not; `ENFILE`, `ENOMEM`.
pub fn pipe2<'k>(
    fs: &'k PseudoFs<Pipe>,
    files: &'k Files,
    last_ino: &IdAllocator,
    flags: i32,
) -> Result<[FileHandle<'k>; 2], Errno> {
    if flags & !(O_CLOEXEC | O_NONBLOCK | O_DIRECT | O_NOTIFICATION_PIPE) != 0 {
        return Err(Errno::INVAL);
    }
    if flags & O_NOTIFICATION_PIPE != 0 {
        return Err(Errno::NOPKG);
    }
    let pipe = Pipe { inode: PseudoInode { i_ino: last_ino.next(), i_mode: S_IFIFO | 0o600 } };
    // Packets are made where they are written: the end to read from does not show O_DIRECT.
    let read = O_RDONLY | (flags & O_NONBLOCK);
    let write = O_WRONLY | (flags & (O_NONBLOCK | O_DIRECT));
    fs.open_pair(files, pipe, [(read, FileMode::READ), (write, FileMode::WRITE)])
}
