//! inotify instances as files.

use super::{FileMode, Files};
use crate::abi::{O_CLOEXEC, O_NONBLOCK, O_RDONLY};
use crate::inode::PseudoInode;
use crate::inotify::Inotify;
use crate::raw::handle::FileHandle;
use crate::raw::pseudo::{Payload, PseudoFs};
use crate::vfs::Vfs;
use core::fmt;
use rustix::io::Errno;

impl Payload for Inotify {
    const CACHE: &'static str = "inotify_inode_cache";

    fn inode(&self) -> Option<&PseudoInode> {
        None
    }

    fn name(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("anon_inode:inotify")
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
    fs.open(files, Inotify::new(&vfs.inotify_limits, uid)?, O_RDONLY | (flags & O_NONBLOCK), FileMode::READ)
}
