//! Sockets as files (`net/socket.c` of 2.6.27). What a protocol does is left out: it is the same on every
//! rung.

use crate::atomic::Ordering;
use crate::dcache::d_alloc_pseudo;
use crate::errno::Errno;
use crate::fdtable::FilesStruct;
use crate::file::{File, FileOperations, get_empty_filp, init_file, put_filp};
use crate::inode::{Inode, iput, iput_single, new_pseudo_inode};
use crate::percpu::Current;

const S_IFSOCK: u32 = 0o140_000;

/// `sys_socket()`: a new socket's inode, file, dentry and descriptor.
///
/// # Errors
///
/// `EMFILE`, `ENFILE`, `ENOMEM`; then nothing is left behind.
#[inline]
pub(crate) fn sys_socket<'a>(current: Current<'a>, files: &'a FilesStruct) -> Result<i32, Errno> {
    let inode = sock_alloc(current)?;
    sock_map_fd(current, files, inode).inspect_err(|_| {
        sock_close(current);
        put_pseudo_inode(current, inode);
    })
}

/// `sock_alloc()`: a socket's inode.
fn sock_alloc(current: Current<'_>) -> Result<&Inode, Errno> {
    let inode = new_pseudo_inode(current, &current.globals.sock_fs.sb, S_IFSOCK | 0o777)?;
    sockets_in_use_add(current, 1);
    Ok(inode)
}

/// `sock_map_fd()`: a descriptor and a file for the socket. The file takes over the inode's reference.
fn sock_map_fd<'a>(
    current: Current<'a>,
    files: &'a FilesStruct,
    inode: &'a Inode,
) -> Result<i32, Errno> {
    let fd = files.alloc_fd()?;
    let file = get_empty_filp(current).inspect_err(|_| files.put_unused_fd(fd))?;
    sock_attach_fd(current, inode, file).inspect_err(|_| {
        put_filp(current, file);
        files.put_unused_fd(fd);
    })?;
    files.fd_install(fd, file);
    Ok(fd)
}

/// `sock_attach_fd()`: the dentry between the file and the inode.
fn sock_attach_fd<'a>(current: Current<'a>, inode: &'a Inode, file: &'a File) -> Result<(), Errno> {
    let fs = &current.globals.sock_fs;
    let dentry = d_alloc_pseudo(current, &fs.sb, inode)?;
    init_file(file, &fs.mnt, dentry, FileOperations::Socket);
    Ok(())
}

/// `sock_close()`: the socket goes; its inode goes with the dentry.
pub(crate) fn sock_close(current: Current<'_>) {
    sockets_in_use_add(current, -1);
}

/// Gives up a pseudo inode that has no dentry yet.
#[cold]
pub(crate) fn put_pseudo_inode<'a>(current: Current<'a>, inode: &'a Inode) {
    if current.globals.build.patches.single_inode {
        iput_single(current, inode);
    } else {
        iput(current, inode);
    }
}

fn sockets_in_use_add(current: Current<'_>, amount: i64) {
    let own = &current.cpu.sockets_in_use;
    // Relaxed: only this CPU writes its count.
    own.store(own.load(Ordering::Relaxed) + amount, Ordering::Relaxed);
}
