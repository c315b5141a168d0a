//! Open files of the tree: what ends with them.

use super::FileMode;
use crate::notify::{self, Event};
use crate::raw::handle::Opened;
use crate::vfs::Vfs;

/// The last reference to an open file of the tree is gone.
#[inline]
pub(crate) fn closed(file: Opened<'_>, vfs: &Vfs) {
    let Some((mount, dentry)) = file.tree() else { return };
    if file.mode().contains(FileMode::PATH) {
        return;
    }
    if let Some(node) = dentry.inode().and_then(|inode| inode.node()) {
        node.closed(file.id());
    }
    if let Some(fifo) = file.fifo() {
        fifo.closed(file.mode());
    }
    if let Some(locks) = dentry.inode().and_then(|inode| inode.i_flctx.get())
        && !locks.is_unlocked()
    {
        locks.file_ends(&vfs.lock_waits, file.id());
    }
    let writes = file.mode().contains(FileMode::WRITE);
    notify::file(vfs, dentry, if writes { Event::CLOSE_WRITE } else { Event::CLOSE_NOWRITE });
    if writes {
        mount.drop_write();
    }
}
