//! Reading directories.

use super::FileMode;
use super::data::{accessed, tell_read};
use super::dirent::{Dirent, Dirents};
use crate::abi::{DT_BLK, DT_CHR, DT_DIR, DT_FIFO, DT_LNK, DT_REG, DT_SOCK, DT_UNKNOWN};
use crate::abi::{S_IFBLK, S_IFCHR, S_IFDIR, S_IFIFO, S_IFLNK, S_IFMT, S_IFREG, S_IFSOCK};
use crate::dcache::name::NAME_MAX;
use crate::inode::{Content, Inode, InodeFlags};
use crate::operations::RESTART;
use crate::ramfs::dirlog::FIRST;
use crate::raw::handle::FileHandle;
use crate::vfs::Vfs;
use rustix::io::Errno;

/// Where a directory stands that has been read to its end: who asks again gets nothing, whatever came meanwhile.
const END: u64 = i64::MAX as u64;

/// What a directory entry says of a file's type.
fn type_of(inode: &Inode) -> u8 {
    dt(inode.mode())
}

#[inline(always)]
pub(crate) fn dt(mode: u32) -> u8 {
    match mode & S_IFMT {
        S_IFREG => DT_REG,
        S_IFDIR => DT_DIR,
        S_IFLNK => DT_LNK,
        S_IFIFO => DT_FIFO,
        S_IFSOCK => DT_SOCK,
        S_IFCHR => DT_CHR,
        S_IFBLK => DT_BLK,
        _ => DT_UNKNOWN,
    }
}

/// Fills a buffer with the entries of a directory from where the file stands, which moves on (`getdents64`): how many bytes; 0
/// at the end.
///
/// The newest name comes first, as on tmpfs. A place stays what it is whatever comes and goes: who goes on from one sees each
/// name that stayed, once, and none that came meanwhile or was renamed. Holds the directory's lock while the buffer is filled.
///
/// # Errors
/// [`RESTART`] for an embedder's directory; `ENOTDIR`, `EBADF`; `EINVAL` if the first entry does
/// not fit; `ENOENT` for a directory that has been removed.
pub fn list(file: &FileHandle<'_>, vfs: &Vfs, buffer: &mut [u8]) -> Result<usize, Errno> {
    let opened = file.opened();
    if opened.mode().contains(FileMode::PATH) {
        return Err(Errno::BADF);
    }
    let (_, dentry) = opened.tree().ok_or(Errno::NOTDIR)?;
    let inode = dentry.inode().ok_or(Errno::NOTDIR)?;
    let node = match inode.content() {
        Content::Directory => None,
        Content::Node(node) if inode.is_dir() => {
            if node.foreign().is_some() {
                return Err(RESTART);
            }
            Some(node)
        }
        _ => return Err(Errno::NOTDIR),
    };
    let mut held = file.position().hold();
    let mut out = Dirents::new(buffer);
    if inode.flags().contains(InodeFlags::DEAD) {
        return Err(Errno::NOENT);
    }
    held.at = dots(file, vfs, inode, held.at, &mut out);
    if let Some(node) = node {
        let dir = file.place().ok_or(Errno::NOTDIR)?.to_path();
        if !out.is_full() {
            node.entries(dir.dentry(), held.at.max(FIRST) - FIRST, &mut |entry| {
                let place = entry.place + FIRST;
                let told = Dirent {
                    ino: entry.ino,
                    next: place as i64 + 1,
                    kind: dt(entry.mode),
                    name: entry.name,
                };
                let fits = out.push(told);
                if fits {
                    held.at = place + 1;
                }
                fits
            })?;
        }
    } else if !out.is_full() && held.at != END {
        let before = if held.at < FIRST { u64::MAX } else { held.at };
        let mut name = [0; NAME_MAX];
        let locked = inode.lock();
        let section = vfs.read();
        locked.each_listed(&section, before, |place, child| {
            let Some(of) = child.inode() else { return true };
            let len = child.name(&mut name);
            let entry =
                Dirent { ino: of.ino(), next: place as i64, kind: type_of(of), name: &name[..len] };
            let fits = out.push(entry);
            if fits {
                held.at = place;
            }
            fits
        });
        if !out.is_full() {
            held.at = END;
        }
    }
    accessed(opened, vfs, inode);
    tell_read(opened, vfs);
    if out.filled() == 0 && out.is_full() {
        return Err(Errno::INVAL);
    }
    Ok(out.filled())
}

/// Lists `.` and `..`, as far as they come after `at` and there is room. Returns where the listing
/// goes on.
#[inline(always)]
pub(crate) fn dots(
    file: &FileHandle<'_>,
    vfs: &Vfs,
    inode: &Inode,
    at: u64,
    out: &mut Dirents<'_>,
) -> u64 {
    let mut at = at;
    for (place, name) in [(0, &b"."[..]), (1, b"..")] {
        if at == place {
            let ino =
                if place == 0 { inode.ino() } else { parent_ino(file, vfs).unwrap_or(inode.ino()) };
            if out.push(Dirent { ino, next: place as i64 + 1, kind: DT_DIR, name }) {
                at = place + 1;
            }
        }
    }
    at
}

/// The number of the directory that a directory is in.
fn parent_ino(file: &FileHandle<'_>, vfs: &Vfs) -> Option<u64> {
    let section = vfs.read();
    loop {
        // None: it was moved just now.
        if let Some(parent) = file.place()?.spot(&section).seen.parent() {
            return parent.inode().map(Inode::ino);
        }
    }
}
