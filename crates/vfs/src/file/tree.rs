//! Open files of the tree: what ends with them.

use super::FileMode;
use crate::abi::{S_IFIFO, S_IFMT};
use crate::dentry::Dentry;
use crate::inode::{Inode, InodeFlags};
use crate::notify::{self, Event};
use crate::raw::mount::TreeMount;
use crate::raw::opened::Opened;
use crate::vfs::Vfs;

/// [`closed`] for a generated file, a named pipe, or a file that was ever locked.
#[cold]
#[inline(never)]
fn closed_slow(file: Opened<'_>, inode: &Inode, vfs: &Vfs) {
    if let Some(node) = inode.node() {
        node.closed(file.id());
    }
    if let Some(fifo) = file.fifo() {
        fifo.closed(file.mode());
    }
    if let Some(locks) = inode.i_flctx.get()
        && !locks.is_unlocked()
    {
        locks.file_ends(&vfs.lock_waits, file.id());
    }
}

/// Ends an open file of the tree: tells its filesystem, its locks and its watches. `opened`
/// describes the file.
#[inline(always)]
pub(crate) fn closed<'g>(
    mount: &TreeMount,
    dentry: &Dentry,
    mode: FileMode,
    opened: impl FnOnce() -> Opened<'g>,
    vfs: &Vfs,
) {
    if mode.contains(FileMode::PATH) {
        return;
    }
    if let Some(inode) = dentry.inode()
        && (inode.mode() & S_IFMT == S_IFIFO
            || inode.flags().contains(InodeFlags::NODE)
            || !inode.i_flctx.is_empty())
    {
        closed_slow(opened(), inode, vfs);
    }
    let writes = mode.contains(FileMode::WRITE);
    notify::file(vfs, dentry, if writes { Event::CLOSE_WRITE } else { Event::CLOSE_NOWRITE });
    if writes {
        mount.drop_write();
    }
}
