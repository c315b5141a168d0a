//! Open files of the tree: what ends with them.

use super::FileMode;
use crate::abi::{S_IFCHR, S_IFIFO, S_IFMT};
use crate::dentry::Dentry;
use crate::inode::{Inode, InodeFlags};
use crate::notify::{self, Event};
use crate::raw::mount::TreeMount;
use crate::raw::opened::Opened;
use crate::vfs::Vfs;

/// Whether an open file keeps the leave to write in its mount that its `open` took
/// ([`TreeMount::want_write`]): one that is open for writing, unless it is on a named pipe or a
/// device.
#[cold]
pub(crate) fn keeps_mount_writable(inode: Option<&Inode>, mode: FileMode) -> bool {
    let special = inode.is_some_and(|inode| matches!(inode.mode() & S_IFMT, S_IFIFO | S_IFCHR));
    mode.contains(FileMode::WRITE) && !special
}

/// [`closed`] for a generated file, a named pipe, or a file that was ever locked.
#[cold]
#[inline(never)]
fn closed_slow(mount: &TreeMount, dentry: &Dentry, file: Opened<'_>, inode: &Inode, vfs: &Vfs) {
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
    tell_closed(dentry, file.mode(), vfs);
    if keeps_mount_writable(Some(inode), file.mode()) {
        mount.drop_write();
    }
}

/// Reports a close to the watches of a file.
#[inline(always)]
fn tell_closed(dentry: &Dentry, mode: FileMode, vfs: &Vfs) {
    let writes = mode.contains(FileMode::WRITE);
    notify::file(vfs, dentry, if writes { Event::CLOSE_WRITE } else { Event::CLOSE_NOWRITE });
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
        return closed_slow(mount, dentry, opened(), inode, vfs);
    }
    tell_closed(dentry, mode, vfs);
    if mode.contains(FileMode::WRITE) {
        mount.drop_write();
    }
}
