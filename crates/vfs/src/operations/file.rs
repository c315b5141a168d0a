//! Calls on open files of embedders' file systems. The caller holds no lock, and has no read-side
//! critical section open.

use super::{FileOps, ForeignNode, foreign, setattr};
use crate::abi::{MAX_RW_COUNT, O_APPEND};
use crate::file::dirent::{Dirent, Dirents};
use crate::file::{Direction, FileMode, Position, dots, dt, in_range, tell_modified, tell_read};
use crate::inode::{Changes, Inode, Node, NodeEntry};
use crate::namei::{Caller, not_removed, ownership, time_for};
use crate::ramfs::dirlog::FIRST;
use crate::ramfs::pages::MAX_SIZE;
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

/// Calls a method of an open file. If it fails with `EAGAIN`, the call waits for the file's
/// readiness and begins again, unless the file is non-blocking or has no readiness.
fn call<R>(
    node: &ForeignNode,
    opened: Opened<'_>,
    what: Direction,
    mut method: impl FnMut(&dyn FileOps) -> Result<R, Errno>,
) -> Result<R, Errno> {
    node.with_file(opened.id(), |ops, readiness| {
        let waits = opened.io().may_wait();
        loop {
            let seen = readiness.map(|readiness| (readiness, readiness.wakes()));
            match (foreign(method(ops)), seen) {
                (Err(Errno::AGAIN), Some((readiness, seen))) if waits => {
                    readiness.wait(what, seen)?;
                }
                (done, _) => return done,
            }
        }
    })
}

/// Reads into buffers, one after the other: at an offset, or from the file's own on, which moves
/// on. Returns the number of bytes.
///
/// # Errors
/// `EBADF`, `EISDIR`, `EINVAL`; `EIO` if the method says that it has read more than there was room
/// for; `EINTR` for a wait; the method's.
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
        let mut method = |ops: &dyn FileOps| ops.read_at(&who, to, start + done as u64);
        let read = match done {
            0 => call(node, opened, Direction::Read, method),
            // Bytes that were read are reported first.
            _ => node.with_file(opened.id(), |ops, _| foreign(method(ops))),
        };
        match read {
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

/// The range of a file that a write at the file offset has reserved. The offset is at its end, so
/// that writes by other threads go behind it, and is corrected when this is dropped.
struct ReservedRange<'a> {
    position: &'a Position,
    start: u64,
    end: u64,
    /// The end of the written bytes.
    done: u64,
}

impl<'a> ReservedRange<'a> {
    /// # Errors
    /// `EINVAL` beyond the last offset.
    fn new(position: &'a Position, len: usize) -> Result<Self, Errno> {
        let mut held = position.hold();
        let start = held.at;
        in_range(start, len)?;
        held.at += len as u64;
        Ok(Self { position, start, end: held.at, done: start })
    }
}

impl Drop for ReservedRange<'_> {
    fn drop(&mut self) {
        let mut held = self.position.hold();
        if held.at == self.end {
            held.at = self.done;
        }
    }
}

/// Writes buffers, one after the other: at an offset, or from the file's own on, which moves on; at
/// the end with `O_APPEND`. Returns the number of bytes.
///
/// # Errors
/// `EBADF`, `EINVAL`; `EFBIG` at the largest size of a file; `EIO` if the method says that it has
/// written more than it was given; `EINTR` for a wait; the method's.
pub fn write(
    caller: &Caller<'_, '_>,
    file: &FileHandle<'_>,
    offset: Option<i64>,
    buffers: &[&[u8]],
) -> Result<usize, Errno> {
    let opened = file.opened();
    if !opened.mode().contains(FileMode::WRITE) {
        return Err(Errno::BADF);
    }
    let (inode, node) = node_of(opened)?;
    let requester = caller.requester();
    let who = requester.caller()?;
    let all = buffers.iter().map(|buffer| buffer.len()).sum();
    let mut taken = match offset {
        Some(_) => None,
        None => Some(ReservedRange::new(file.position(), all)?),
    };
    let start = match (&taken, offset) {
        (Some(taken), _) => taken.start,
        (None, offset) => u64::try_from(offset.unwrap_or(0)).map_err(|_| Errno::INVAL)?,
    };
    in_range(start, all)?;
    if all == 0 {
        return Ok(0);
    }
    let appends = inode.is_file() && opened.flags() & O_APPEND != 0;
    if appends {
        node.refresh(inode, &requester)?;
    }
    let lost = drop_set_id(caller, inode)?;
    let (mut at, mut done) = (start, 0);
    for buffer in buffers.iter().filter(|buffer| !buffer.is_empty()) {
        let mut piece = &buffer[..buffer.len().min(MAX_RW_COUNT - done)];
        let size = inode.size();
        if appends {
            piece = &piece[..piece.len().min((MAX_SIZE - size) as usize)];
        }
        if piece.is_empty() {
            break;
        }
        let method = |ops: &dyn FileOps| match appends {
            true => ops.append(&who, piece, size),
            false => ops.write_at(&who, piece, at).map(|n| (at, n)),
        };
        let written = match done {
            0 => call(node, opened, Direction::Write, method),
            _ => node.with_file(opened.id(), |ops, _| foreign(method(ops))),
        };
        let written = written.and_then(|(at, n)| match at.checked_add(n as u64) {
            Some(end) if n <= piece.len() && end <= MAX_SIZE => Ok((end, n)),
            _ => Err(Errno::IO),
        });
        match written {
            Ok((end, n)) => {
                (at, done) = (end, done + n);
                if n > 0 && inode.is_file() {
                    wrote(caller, inode, node, end);
                }
                if n < buffer.len() {
                    break;
                }
            }
            Err(errno) if done == 0 => return Err(errno),
            Err(_) => break,
        }
    }
    if done == 0 {
        // All was to go behind the largest size of a file.
        return if appends && inode.size() >= MAX_SIZE { Err(Errno::FBIG) } else { Ok(0) };
    }
    if let Some(taken) = &mut taken {
        taken.done = at;
    }
    tell_modified(opened, caller.vfs, lost, true);
    Ok(done)
}

/// Removes the set-id bits that a write takes away (`file_remove_privs`). Returns whether there were
/// any.
fn drop_set_id(caller: &Caller<'_, '_>, inode: &Inode) -> Result<bool, Errno> {
    let lost = ownership(inode).lost_by_writing(caller.cred);
    if lost != 0 {
        let mode = Some(inode.mode() & !lost);
        setattr(caller, inode, &Changes { mode, ..Changes::default() })?;
    }
    Ok(lost != 0)
}

/// Changes the attributes of a regular file in memory after a write that ended at an offset.
fn wrote(caller: &Caller<'_, '_>, inode: &Inode, node: &ForeignNode, end: u64) {
    node.changed(inode, |_| {
        let time = Some(time_for(caller.vfs, inode));
        let size = Some(inode.size().max(end));
        Changes { size, mtime: time, ctime: time, ..Changes::default() }
    });
}

/// Asks the file system to make written bytes durable (`fsync`, `fdatasync`).
///
/// # Errors
/// `EINVAL` for a file that is no embedder's; the method's.
pub fn fsync(caller: &Caller<'_, '_>, file: &FileHandle<'_>, datasync: bool) -> Result<(), Errno> {
    let (_, node) = node_of(file.opened())?;
    let requester = caller.requester();
    let who = requester.caller()?;
    node.with_file(file.opened().id(), |ops, _| foreign(ops.fsync(&who, datasync)))
}

/// Controls an embedder's open file (`ioctl`).
///
/// # Errors
/// `EINVAL` for a file that is no embedder's; the method's.
pub fn ioctl(
    caller: &Caller<'_, '_>,
    file: &FileHandle<'_>,
    request: u64,
    arg: &mut [u8],
) -> Result<i32, Errno> {
    let (_, node) = node_of(file.opened())?;
    let requester = caller.requester();
    let who = requester.caller()?;
    node.with_file(file.opened().id(), |ops, _| foreign(ops.ioctl(&who, request, arg)))
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
    not_removed(inode)?;
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
        let read =
            foreign(node.with_file(opened.id(), |own, _| own.read_dir(&who, from, &mut each)));
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
