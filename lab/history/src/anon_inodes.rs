//! Anonymous descriptors: eventfd and its kin (`fs/anon_inodes.c` of 2.6.27).
//!
//! All of them share one inode, so there is no `new_inode()` here; but that inode's count is one more
//! contended line, and below [`Rung::SingleDentry`](crate::Rung::SingleDentry) its alias list another.

use crate::atomic::Ordering;
use crate::dcache::{d_alloc_pseudo, dput};
use crate::errno::Errno;
use crate::fdtable::FilesStruct;
use crate::file::{FileOperations, alloc_file};
use crate::percpu::Current;
use crate::socket::put_pseudo_inode;

/// `anon_inode_getfd()`: a descriptor of a new file on the shared inode. Writes the line of that inode's
/// count.
///
/// # Errors
///
/// `EMFILE`, `ENFILE`, `ENOMEM`; then nothing is left behind.
#[inline]
pub(crate) fn anon_inode_getfd<'a>(
    current: Current<'a>,
    files: &'a FilesStruct,
    f_op: FileOperations,
) -> Result<i32, Errno> {
    let globals = current.globals;
    let fs = &globals.anon_inode_fs;
    let inode = globals.anon_inode_inode();
    let fd = files.alloc_fd()?;
    // Relaxed: the kernel keeps a reference of its own, so the count is not zero.
    inode.i_count.fetch_add(1, Ordering::Relaxed);
    let file = d_alloc_pseudo(current, &fs.sb, inode)
        .inspect_err(|_| put_pseudo_inode(current, inode))
        .and_then(|dentry| {
            alloc_file(current, &fs.mnt, dentry, f_op).inspect_err(|_| dput(current, dentry))
        })
        .inspect_err(|_| files.put_unused_fd(fd))?;
    files.fd_install(fd, file);
    Ok(fd)
}
