//! Calls on open files of embedders' file systems. The caller holds no lock, and has no read-side
//! critical section open.

use super::{ForeignNode, foreign};
use crate::abi::MAX_RW_COUNT;
use crate::file::dirent::{Dirent, Dirents};
use crate::file::{FileMode, dots, dt, in_range, tell_read};
use crate::inode::{Inode, Node, NodeEntry};
use crate::namei::Caller;
use crate::ramfs::dirlog::FIRST;
use crate::raw::handle::FileHandle;
use crate::raw::opened::Opened;
use rustix::io::Errno;

/// Places of names are below this.
const MAX_PLACE: u64 = 1 << 62;

/// The number of an inode that is not known (`FUSE_UNKNOWN_INO`).
const UNKNOWN_INO: u64 = u32::MAX as u64;

fn node_of(file: Opened<'_>) -> Result<(&Inode, &ForeignNode), Errno> {
    let inode = file.inode().ok_or(Errno::INVAL)?;
    Ok((inode, inode.node().and_then(Node::foreign).ok_or(Errno::INVAL)?))
}

/// Reads into buffers, one after the other: at an offset, or from the file's own on, which moves
/// on. Returns the number of bytes.
///
/// # Errors
/// `EBADF`, `EISDIR`, `EINVAL`; `EIO` if the method says that it has read more than there was room
/// for; the method's.
pub fn read(
    caller: &Caller<'_, '_>,
    file: &FileHandle<'_>,
    offset: Option<i64>,
    buffers: &mut [&mut [u8]],
) -> Result<usize, Errno> {
    let opened = file.opened();
    if !opened.mode().contains(FileMode::READ) {
        return Err(Errno::BADF);
    }
    let (inode, node) = node_of(opened)?;
    if inode.is_dir() {
        return Err(Errno::ISDIR);
    }
    let start = match offset {
        Some(offset) => u64::try_from(offset).map_err(|_| Errno::INVAL)?,
        None => file.position().offset(),
    };
    in_range(start, buffers.iter().map(|buffer| buffer.len()).sum())?;
    let requester = caller.requester();
    let who = requester.caller()?;
    let mut done = 0;
    for buffer in buffers.iter_mut().filter(|buffer| !buffer.is_empty()) {
        let room = buffer.len().min(MAX_RW_COUNT - done);
        let to = &mut buffer[..room];
        let read = node.with_file(opened.id(), |own| own.read_at(&who, to, start + done as u64));
        match foreign(read) {
            Ok(n) if n > room => return Err(Errno::IO),
            Ok(n) => {
                done += n;
                if n < room || done == MAX_RW_COUNT {
                    break;
                }
            }
            Err(errno) if done == 0 => return Err(errno),
            Err(_) => break,
        }
    }
    if offset.is_none() {
        file.position().hold().at = start + done as u64;
    }
    if done > 0 {
        tell_read(opened, caller.vfs);
    }
    Ok(done)
}

/// Fills a buffer with the entries of a directory from where the file stands, which moves on.
/// Returns the number of bytes; 0 at the end.
///
/// # Errors
/// As [`file::list`](crate::file::list); `EIO` for a name that no directory can have, and for
/// places that do not grow; the method's.
pub fn list(
    caller: &Caller<'_, '_>,
    file: &FileHandle<'_>,
    buffer: &mut [u8],
) -> Result<usize, Errno> {
    let opened = file.opened();
    let (inode, node) = node_of(opened)?;
    let dir = file.place().ok_or(Errno::NOTDIR)?.to_path();
    let requester = caller.requester();
    let who = requester.caller()?;
    let mut out = Dirents::new(buffer);
    let mut at = dots(file, caller.vfs, inode, file.position().offset(), &mut out);
    let mut wrong = false;
    if !out.is_full() {
        let mut each = |entry: NodeEntry<'_>| {
            let from = at.max(FIRST) - FIRST;
            if wrong || entry.place < from || entry.place >= MAX_PLACE || !is_name(entry.name) {
                wrong = true;
                return false;
            }
            let known = || {
                let name = caller.vfs.name(entry.name).ok()?;
                Some(dir.dentry().lookup(&name)?.inode()?.ino())
            };
            let ino = match entry.ino {
                0 => known().unwrap_or(UNKNOWN_INO),
                ino => ino,
            };
            let place = entry.place + FIRST;
            let next = place as i64 + 1;
            let fits = out.push(Dirent { ino, next, kind: dt(entry.mode), name: entry.name });
            if fits {
                at = place + 1;
            }
            fits
        };
        let from = file.position().offset().max(FIRST) - FIRST;
        let read = foreign(node.with_file(opened.id(), |own| own.read_dir(&who, from, &mut each)));
        let read = if wrong { Err(Errno::IO) } else { read };
        // What has been listed is told first, as on Linux.
        if let Err(errno) = read
            && out.filled() == 0
        {
            return Err(errno);
        }
    }
    file.position().hold().at = at;
    tell_read(opened, caller.vfs);
    if out.filled() == 0 && out.is_full() {
        return Err(Errno::INVAL);
    }
    Ok(out.filled())
}

/// Whether a directory can have a name.
fn is_name(name: &[u8]) -> bool {
    (1..=crate::NAME_MAX).contains(&name.len())
        && !matches!(name, b"." | b"..")
        && !name.iter().any(|byte| matches!(byte, 0 | b'/'))
}
