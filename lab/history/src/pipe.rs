//! Pipes as files (`fs/pipe.c` of 2.6.27): one inode and one dentry behind two files.

use crate::atomic::Ordering;
use crate::dcache::{d_alloc_pseudo, dget, dput};
use crate::errno::Errno;
use crate::fdtable::FilesStruct;
use crate::file::{File, FileOperations, alloc_file, fput};
use crate::inode::{Inode, new_pseudo_inode};
use crate::percpu::Current;
use crate::socket::put_pseudo_inode;

const S_IFIFO: u32 = 0o010_000;

/// `do_pipe()`: the descriptors of a new pipe's read and write end.
///
/// # Errors
///
/// `EMFILE`, `ENFILE`, `ENOMEM`; then nothing is left behind.
#[inline]
pub(crate) fn do_pipe<'a>(current: Current<'a>, files: &'a FilesStruct) -> Result<[i32; 2], Errno> {
    let write = create_write_pipe(current)?;
    let read = create_read_pipe(current, write).inspect_err(|_| fput(current, write))?;
    let put_files = |_: &Errno| {
        fput(current, read);
        fput(current, write);
    };
    let read_fd = files.alloc_fd().inspect_err(put_files)?;
    let write_fd =
        files.alloc_fd().inspect_err(|_| files.put_unused_fd(read_fd)).inspect_err(put_files)?;
    files.fd_install(read_fd, read);
    files.fd_install(write_fd, write);
    Ok([read_fd, write_fd])
}

fn create_write_pipe(current: Current<'_>) -> Result<&File, Errno> {
    let fs = &current.globals.pipe_fs;
    let inode = get_pipe_inode(current)?;
    let dentry =
        d_alloc_pseudo(current, &fs.sb, inode).inspect_err(|_| put_pseudo_inode(current, inode))?;
    alloc_file(current, &fs.mnt, dentry, FileOperations::WritePipe)
        .inspect_err(|_| dput(current, dentry))
}

fn create_read_pipe<'a>(current: Current<'a>, write: &'a File) -> Result<&'a File, Errno> {
    let dentry = dget(write.f_dentry.load().expect("an open file has a dentry"));
    alloc_file(current, &current.globals.pipe_fs.mnt, dentry, FileOperations::ReadPipe)
        .inspect_err(|_| dput(current, dentry))
}

fn get_pipe_inode(current: Current<'_>) -> Result<&Inode, Errno> {
    let inode = new_pseudo_inode(current, &current.globals.pipe_fs.sb, S_IFIFO | 0o600)?;
    // Relaxed: the inode is not published yet.
    inode.readers.store(1, Ordering::Relaxed);
    inode.writers.store(1, Ordering::Relaxed);
    Ok(inode)
}

/// `pipe_release()`: one end less. Writes the inode's line.
pub(crate) fn pipe_release(inode: &Inode, end: FileOperations) {
    let _guard = inode.i_mutex.lock();
    let ends = if end == FileOperations::ReadPipe { &inode.readers } else { &inode.writers };
    // Relaxed: under `i_mutex`.
    ends.store(ends.load(Ordering::Relaxed) - 1, Ordering::Relaxed);
}
