//! Reading and writing the regular files of the tree.
//!
//! A read at an offset takes no reference and no lock: it finds the file in its slot, the pages in their tree, and copies, all in
//! one read section, and looks at nothing that others write. A write has the file's inode for itself.

use super::{Direction, FileMode};
use crate::abi::{
    FALLOC_FL_COLLAPSE_RANGE, FALLOC_FL_INSERT_RANGE, FALLOC_FL_KEEP_SIZE, FALLOC_FL_PUNCH_HOLE,
    FALLOC_FL_UNSHARE_RANGE, FALLOC_FL_WRITE_ZEROES, FALLOC_FL_ZERO_RANGE, MAX_RW_COUNT, O_APPEND,
    O_NOATIME, S_IFBLK, S_IFCHR, S_IFDIR, S_IFIFO, S_IFMT, S_IFREG, SEEK_CUR, SEEK_DATA, SEEK_END,
    SEEK_HOLE, SEEK_SET,
};
use crate::attributes::access_counts;
use crate::cred::Cred;
use crate::inode::{Changes, Content, Inode, InodeGuard, Node};
use crate::namei::{Caller, drop_privileges, is_foreign, time_for};
use crate::namespace::MountFlags;
use crate::notify::{self, Event};
use crate::ramfs::PAGE;
use crate::ramfs::fs::BLOCKS_PER_PAGE;
use crate::ramfs::pages::{MAX_SIZE, Seek};
use crate::raw::dcache::seen::Section;
use crate::raw::handle::FileHandle;
use crate::raw::mount::TreeMount;
use crate::raw::opened::Opened;
use crate::raw::ramfs::FileData;
use crate::vfs::Vfs;
use quietline_sync::Interrupt;
use rustix::io::Errno;

/// The bytes of a file that is open for `mode`.
#[inline(always)]
fn data_of<'g>(file: Opened<'g>, mode: FileMode) -> Result<(&'g Inode, &'g FileData), Errno> {
    if !file.mode().contains(mode) {
        return Err(Errno::BADF);
    }
    let inode = file.inode().ok_or(Errno::INVAL)?;
    match inode.content() {
        Content::File(data) => Ok((inode, data)),
        Content::Directory => Err(Errno::ISDIR),
        _ => Err(Errno::INVAL),
    }
}

/// The node of a file that is none in memory, which `data_of` has answered with `errno`.
#[cold]
fn node_of<'g>(file: Opened<'g>, errno: Errno) -> Result<&'g dyn Node, Errno> {
    match file.inode().map(|inode| (inode, inode.content())) {
        Some((inode, Content::Node(_))) if errno == Errno::INVAL && inode.is_dir() => {
            Err(Errno::ISDIR)
        }
        Some((_, Content::Node(node))) if errno == Errno::INVAL => Ok(&**node),
        _ => Err(errno),
    }
}

/// Writes to a file whose filesystem takes what is written at once: several buffers as one.
#[cold]
fn write_node(
    node: &dyn Node,
    vfs: &Vfs,
    to: To,
    buffers: &[&[u8]],
) -> Result<(u64, usize), Errno> {
    let at = if let To::Offset(at) = to { at } else { 0 };
    if buffers.iter().all(|buffer| buffer.is_empty()) {
        return Ok((at, 0));
    }
    if let [one] = buffers {
        return Ok((at, node.write(vfs, at, one)?));
    }
    let mut all = [0; NODE_WRITE];
    let mut len = 0;
    for buffer in buffers {
        let n = buffer.len().min(NODE_WRITE - len);
        all[len..len + n].copy_from_slice(&buffer[..n]);
        len += n;
    }
    Ok((at, node.write(vfs, at, &all[..len])?))
}

/// Bytes that several buffers may have together that are written to a node.
const NODE_WRITE: usize = 4096;

/// `EINVAL` for bytes beyond the last that a file can have.
#[inline(always)]
pub(crate) fn in_range(offset: u64, n: usize) -> Result<(), Errno> {
    if offset.checked_add(n as u64).is_some_and(|end| end <= MAX_SIZE) {
        Ok(())
    } else {
        Err(Errno::INVAL)
    }
}

/// What is told of a file that cannot be read or written: where it should have been comes before what it is.
#[cold]
fn refused<T>(errno: Errno, offset: u64, n: usize) -> Result<T, Errno> {
    if errno != Errno::BADF {
        in_range(offset, n)?;
    }
    Err(errno)
}

/// Reads at an offset (`pread`): how many bytes.
///
/// Writes no shared line, but the inode's when the time of access changes, which is seldom.
///
/// # Errors
/// `EBADF` for a file that is not open for reading, `EISDIR`; `EINVAL`, also for a file that its filesystem makes, which
/// [`read_long`] reads.
#[inline]
pub fn read_at(
    file: Opened<'_>,
    vfs: &Vfs,
    section: &Section,
    offset: i64,
    to: &mut [u8],
) -> Result<usize, Errno> {
    let offset = u64::try_from(offset).map_err(|_| Errno::INVAL)?;
    let (inode, data) =
        data_of(file, FileMode::READ).or_else(|errno| refused(errno, offset, to.len()))?;
    in_range(offset, to.len())?;
    let n = data.pages().read_at(section.guard(), offset, to);
    accessed(file, vfs, inode);
    if n > 0 {
        tell_read(file, vfs);
    }
    Ok(n)
}

/// Reads at an offset, in sections of its own: for more bytes than one section should take.
///
/// # Errors
/// As [`read_at`].
pub fn read_long(
    file: &FileHandle<'_>,
    vfs: &Vfs,
    offset: i64,
    to: &mut [u8],
) -> Result<usize, Errno> {
    let n = read_untold(file, vfs, offset, to)?;
    if n > 0 {
        tell_read(file.opened(), vfs);
    }
    Ok(n)
}

/// [`read_long`] of which nobody is told yet.
fn read_untold(
    file: &FileHandle<'_>,
    vfs: &Vfs,
    offset: i64,
    to: &mut [u8],
) -> Result<usize, Errno> {
    let offset = u64::try_from(offset).map_err(|_| Errno::INVAL)?;
    let file = file.opened();
    let (inode, data) = match data_of(file, FileMode::READ) {
        Err(errno) => {
            let node = node_of(file, errno).or_else(|errno| refused(errno, offset, to.len()))?;
            return node.read(vfs, file.id(), offset, to);
        }
        Ok(data) => data,
    };
    in_range(offset, to.len())?;
    let most = to.len().min(MAX_RW_COUNT);
    let n = data.pages().read(offset, &mut to[..most]);
    accessed(file, vfs, inode);
    Ok(n)
}

/// Notes that a file has been read, if that counts.
#[inline]
pub(crate) fn accessed(file: Opened<'_>, vfs: &Vfs, inode: &Inode) {
    if file.flags() & O_NOATIME == 0
        && let Some((mount, _)) = file.tree()
    {
        touch_access(mount, vfs, inode);
    }
}

/// Tells who watches a file that it has been read: also who wants no time of access to change.
#[inline]
pub(crate) fn tell_read(file: Opened<'_>, vfs: &Vfs) {
    if let Some((_, dentry)) = file.tree() {
        notify::file(vfs, dentry, Event::ACCESS);
    }
}

/// Tells who watches a file that its bytes have changed, if they have, and before that, that it has lost what writers take.
#[inline]
pub(crate) fn tell_modified(file: Opened<'_>, vfs: &Vfs, lost: bool, some: bool) {
    let Some((_, dentry)) = file.tree() else { return };
    if lost {
        notify::dentry(vfs, dentry, Event::ATTRIB);
    }
    if some {
        notify::file(vfs, dentry, Event::MODIFY);
    }
}

/// Notes that bytes went through a named pipe, whose name has times and perhaps watchers.
pub(crate) fn passed(file: Opened<'_>, vfs: &Vfs, what: Direction) {
    let Some(inode) = file.inode() else { return };
    let read_only = file.tree().is_none_or(|(mount, _)| mount.flags().contains(MountFlags::RDONLY));
    if what == Direction::Read {
        accessed(file, vfs, inode);
    } else if !read_only && let Some(mut locked) = inode.try_lock() {
        // Whoever has the lock is not waited for, as in `set_access`: the caller may be in a read section.
        let time = Some(time_for(vfs, inode));
        locked.change(&Changes { mtime: time, ctime: time, ..Changes::default() });
    }
    tell_passed(file, vfs, what);
}

/// Tells who watches a named pipe that bytes went through it: not who watches its directory. Of other files nothing.
pub fn tell_passed(file: Opened<'_>, vfs: &Vfs, what: Direction) {
    if file.fifo().is_some()
        && let Some((_, dentry)) = file.tree()
    {
        let event = if what == Direction::Read { Event::ACCESS } else { Event::MODIFY };
        notify::file_alone(vfs, dentry, event);
    }
}

/// Sets the time of access, if that counts.
#[inline]
pub(crate) fn touch_access(mount: &TreeMount, vfs: &Vfs, inode: &Inode) {
    let [atime, mtime, ctime] = inode.times();
    let now = vfs.clock.now();
    if access_counts(atime, mtime, ctime, now) && atime != now {
        set_access(mount, inode, now);
    }
}

#[cold]
fn set_access(mount: &TreeMount, inode: &Inode, now: crate::abi::Timespec) {
    let none = if inode.is_dir() {
        MountFlags::NOATIME | MountFlags::NODIRATIME
    } else {
        MountFlags::NOATIME
    };
    if mount.flags().intersects(none | MountFlags::RDONLY) {
        return;
    }
    // A lock that somebody has is not waited for: who has it changes the file, and the next read counts.
    if let Some(mut locked) = inode.try_lock() {
        locked.change(&Changes { atime: Some(now), ..Changes::default() });
    }
}

/// Where a write goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum To {
    /// To this offset; to the end, if the file was opened so.
    Offset(u64),
    /// To the end.
    End,
}

/// Writes buffers one after the other: where they began, and how many bytes were written.
///
/// Writes the inode's lines and the pages'.
///
/// # Errors
/// `EBADF`, `EISDIR`, `EINVAL`, `EFBIG`, `ENOSPC`, `ENOMEM`: then nothing was written.
#[inline]
pub fn write(
    file: &FileHandle<'_>,
    vfs: &Vfs,
    cred: &Cred,
    to: To,
    buffers: &[&[u8]],
) -> Result<(u64, usize), Errno> {
    let opened = file.opened();
    let all: usize = buffers.iter().map(|buffer| buffer.len()).sum();
    let (inode, data) = match data_of(opened, FileMode::WRITE) {
        Err(errno) => {
            let node = node_of(opened, errno)?;
            if let To::Offset(offset) = to {
                in_range(offset, all)?;
            }
            let (at, n) = write_node(node, vfs, to, buffers)?;
            tell_modified(opened, vfs, false, n > 0);
            return Ok((at, n));
        }
        Ok(data) => data,
    };
    // Also where it will not go there but to the end.
    if let To::Offset(offset) = to {
        in_range(offset, all)?;
    }
    let to = if opened.flags() & O_APPEND != 0 { To::End } else { to };
    if all == 0 {
        return Ok((if let To::Offset(at) = to { at } else { 0 }, 0));
    }
    let (written, lost) = {
        let mut locked = inode.lock();
        let mode = inode.mode();
        (write_locked(&mut locked, data, vfs, cred, to, buffers), inode.mode() != mode)
    };
    tell_modified(opened, vfs, lost, written.is_ok());
    written
}

fn write_locked(
    locked: &mut InodeGuard<'_>,
    data: &FileData,
    vfs: &Vfs,
    cred: &Cred,
    to: To,
    buffers: &[&[u8]],
) -> Result<(u64, usize), Errno> {
    let limits = data.fs().limits();
    let start = match to {
        To::Offset(offset) => offset,
        // The lock keeps it.
        To::End => data.pages().size(),
    };
    if start >= MAX_SIZE {
        return Err(Errno::FBIG);
    }
    let lost = drop_privileges(locked, cred);
    let mut writer = data.writer(locked);
    let (mut done, mut left, mut failed) = (0, MAX_RW_COUNT, None);
    for buffer in buffers {
        let piece = &buffer[..buffer.len().min(left)];
        match writer.write_at(limits, start + done as u64, piece) {
            Ok(n) => {
                done += n;
                left -= n;
                if n < buffer.len() {
                    break;
                }
            }
            Err(errno) => {
                failed = Some(errno);
                break;
            }
        }
    }
    let size = writer.size();
    drop(writer);
    // Also if nothing came of it, as on Linux, which takes the time first.
    changed(locked, data, vfs, size, lost);
    match failed {
        Some(errno) if done == 0 => Err(errno),
        _ => Ok((start, done)),
    }
}

/// A file's attributes after its bytes have changed.
#[inline]
fn changed(locked: &mut InodeGuard<'_>, data: &FileData, vfs: &Vfs, size: u64, lost: u32) {
    let inode = locked.inode();
    let time = time_for(vfs, inode);
    locked.change(&Changes {
        mode: (lost != 0).then(|| inode.mode() & !lost),
        size: Some(size),
        blocks: Some(data.pages().page_count() * BLOCKS_PER_PAGE),
        mtime: Some(time),
        ctime: Some(time),
        ..Changes::default()
    });
}

/// Fills several buffers, one after the other, from an offset on: how many bytes. All that is asked for must lie where files
/// can be, also what is not there to be read. Who watches the file is told, as by Linux, also if nothing came of it.
///
/// # Errors
/// As [`read_at`]. What cannot be read at all may be read into nothing.
pub fn read_all(
    file: &FileHandle<'_>,
    vfs: &Vfs,
    offset: i64,
    buffers: &mut [&mut [u8]],
) -> Result<usize, Errno> {
    let n = read_each(file, vfs, offset, buffers)?;
    tell_read(file.opened(), vfs);
    Ok(n)
}

fn read_each(
    file: &FileHandle<'_>,
    vfs: &Vfs,
    offset: i64,
    buffers: &mut [&mut [u8]],
) -> Result<usize, Errno> {
    let start = u64::try_from(offset).map_err(|_| Errno::INVAL)?;
    if let Err(errno) = data_of(file.opened(), FileMode::READ)
        && let Err(errno) = node_of(file.opened(), errno)
        && errno != Errno::ISDIR
    {
        return Err(errno);
    }
    let all = buffers.iter().map(|buffer| buffer.len()).sum();
    if all == 0 {
        return Ok(0);
    }
    in_range(start, all)?;
    let mut done = 0;
    for buffer in buffers {
        if buffer.is_empty() {
            continue;
        }
        match read_untold(file, vfs, offset + done as i64, buffer) {
            Ok(n) => {
                done += n;
                if n < buffer.len() {
                    break;
                }
            }
            Err(errno) if done == 0 => return Err(errno),
            Err(_) => break,
        }
    }
    Ok(done)
}

/// [`read_all`] from where the file stands, which moves on (`readv`).
///
/// Writes the file's line.
///
/// # Errors
/// As [`read_all`].
pub fn read_all_on(
    file: &FileHandle<'_>,
    vfs: &Vfs,
    buffers: &mut [&mut [u8]],
) -> Result<usize, Errno> {
    let mut held = file.position().hold();
    let n = read_all(file, vfs, held.at as i64, buffers)?;
    held.at += n as u64;
    Ok(n)
}

/// Reads on from where the file stands, which moves on (`read`).
///
/// Writes the file's line.
///
/// # Errors
/// As [`read_at`].
pub fn read_on(file: &FileHandle<'_>, vfs: &Vfs, to: &mut [u8]) -> Result<usize, Errno> {
    if let Err(errno) = data_of(file.opened(), FileMode::READ)
        && let Err(errno) = node_of(file.opened(), errno)
        && errno != Errno::ISDIR
    {
        return Err(errno);
    }
    let mut held = file.position().hold();
    let n = read_long(file, vfs, held.at as i64, to)?;
    held.at += n as u64;
    Ok(n)
}

/// Writes on from where the file stands, which moves on (`write`).
///
/// # Errors
/// As [`write`](write()).
pub fn write_on(
    file: &FileHandle<'_>,
    vfs: &Vfs,
    cred: &Cred,
    buffers: &[&[u8]],
) -> Result<usize, Errno> {
    if let Err(errno) = data_of(file.opened(), FileMode::WRITE) {
        node_of(file.opened(), errno)?;
    }
    let mut held = file.position().hold();
    let (start, n) = write(file, vfs, cred, To::Offset(held.at), buffers)?;
    if n > 0 {
        held.at = start + n as u64;
    }
    Ok(n)
}

/// Returns the file offset at this moment; 0 for a file that has none. Takes no lock: a file whose
/// text contains offsets is asked for its own offset while it is read.
pub fn offset(file: &FileHandle<'_>) -> u64 {
    match file.opened().inode().map(Inode::content) {
        Some(Content::File(_) | Content::Directory | Content::Node(_)) => file.position().offset(),
        _ => 0,
    }
}

/// Moves where the file stands (`lseek`): where to.
///
/// # Errors
/// `EINVAL`, `EOVERFLOW`; `ENXIO` for data or a hole beyond the end; `ESPIPE` for what has no position; `EBADF`.
pub fn seek(file: &FileHandle<'_>, vfs: &Vfs, offset: i64, whence: i32) -> Result<i64, Errno> {
    let opened = file.opened();
    if opened.mode().contains(FileMode::PATH) {
        return Err(Errno::BADF);
    }
    if !(SEEK_SET..=SEEK_HOLE).contains(&whence) {
        return Err(Errno::INVAL);
    }
    let Some(inode) = opened.inode() else {
        // Some have no position, and do not mind.
        return if opened.seeks() { Ok(0) } else { Err(Errno::SPIPE) };
    };
    let mut held = match inode.content() {
        Content::File(_) | Content::Directory | Content::Node(_) => file.position().hold(),
        _ => return Err(Errno::SPIPE),
    };
    let from = |base: u64| {
        let base = i64::try_from(base).map_err(|_| Errno::OVERFLOW)?;
        base.checked_add(offset).filter(|to| *to >= 0).ok_or(Errno::INVAL)
    };
    let to = match (inode.content(), whence) {
        (_, SEEK_SET) => from(0)?,
        (_, SEEK_CUR) => from(held.at)?,
        (Content::File(data), SEEK_END) => from(data.pages().size())?,
        (Content::Node(node), SEEK_END) if inode.is_file() && is_foreign(&**node) => {
            from(inode.size())?
        }
        (Content::File(data), SEEK_DATA | SEEK_HOLE) => {
            let at = u64::try_from(offset).map_err(|_| Errno::NXIO)?;
            let what = if whence == SEEK_DATA { Seek::Data } else { Seek::Hole };
            let section = vfs.read();
            data.pages().seek(section.guard(), at, what)? as i64
        }
        _ => return Err(Errno::INVAL),
    };
    held.at = to as u64;
    Ok(to)
}

/// Reserves room in a file, or gives it back (`fallocate`).
///
/// # Errors
/// `EINVAL`, `EOPNOTSUPP`, `EBADF`, `ESPIPE`, `EISDIR`, `ENODEV`, `EFBIG`, `ENOSPC`, `ENOMEM`,
/// `EINTR`.
pub fn fallocate(
    file: &FileHandle<'_>,
    vfs: &Vfs,
    cred: &Cred,
    mode: i32,
    offset: i64,
    len: i64,
) -> Result<(), Errno> {
    let opened = file.opened();
    if opened.mode().contains(FileMode::PATH) {
        return Err(Errno::BADF);
    }
    if offset < 0 || len <= 0 {
        return Err(Errno::INVAL);
    }
    let keeps = mode & FALLOC_FL_KEEP_SIZE != 0;
    let makes_sense = match mode & !FALLOC_FL_KEEP_SIZE {
        0 | FALLOC_FL_UNSHARE_RANGE | FALLOC_FL_ZERO_RANGE => true,
        FALLOC_FL_PUNCH_HOLE => keeps,
        FALLOC_FL_COLLAPSE_RANGE | FALLOC_FL_INSERT_RANGE | FALLOC_FL_WRITE_ZEROES => !keeps,
        _ => false,
    };
    if !makes_sense {
        return Err(Errno::OPNOTSUPP);
    }
    if !opened.mode().contains(FileMode::WRITE) {
        return Err(Errno::BADF);
    }
    if opened.pipe().is_some() {
        return Err(Errno::SPIPE);
    }
    let inode = opened.inode().ok_or(Errno::NODEV)?;
    match inode.mode() & S_IFMT {
        S_IFREG => {}
        S_IFIFO => return Err(Errno::SPIPE),
        S_IFDIR => return Err(Errno::ISDIR),
        S_IFBLK | S_IFCHR => return Err(Errno::NODEV),
        _ => return Err(Errno::NODEV),
    }
    let (offset, len) = (offset as u64, len as u64);
    if offset + len > MAX_SIZE {
        return Err(Errno::FBIG);
    }
    // No generated file, and no embedder's, has an operation for it.
    let (inode, data) = data_of(opened, FileMode::WRITE).map_err(|_| Errno::OPNOTSUPP)?;
    let punches = mode & FALLOC_FL_PUNCH_HOLE != 0;
    if mode & !(FALLOC_FL_KEEP_SIZE | FALLOC_FL_PUNCH_HOLE) != 0 {
        // What else Linux knows, a filesystem in memory has not.
        return Err(Errno::OPNOTSUPP);
    }
    let mut locked = if punches {
        let mut locked = inode.lock();
        data.writer(&mut locked).punch_hole(data.fs().limits(), offset, len);
        locked
    } else {
        reserve(vfs, inode, data, offset, len, keeps)?
    };
    let lost = drop_privileges(&mut locked, cred);
    changed(&mut locked, data, vfs, data.pages().size(), lost);
    drop(locked);
    tell_modified(opened, vfs, lost != 0, true);
    Ok(())
}

/// Makes all pages of a part of a file, all or none, and returns its lock. Between two turns the
/// lock is free, and the call can be interrupted.
fn reserve<'i>(
    vfs: &Vfs,
    inode: &'i Inode,
    data: &FileData,
    offset: u64,
    len: u64,
    keeps: bool,
) -> Result<InodeGuard<'i>, Errno> {
    let limits = data.fs().limits();
    let pages = (offset + len).div_ceil(PAGE) - offset / PAGE;
    if !vfs.could_hold(pages) || !limits.could_reserve(pages, || vfs.ramfs_pages()) {
        return Err(Errno::NOSPC);
    }
    let mut reservation = data.writer(&mut inode.lock()).reserve(limits, offset, len)?;
    // Several calls may have found room for one. Counted without the inode's lock, since it takes
    // another.
    let fits = limits.is_within_memory(pages, || vfs.ramfs_pages());
    let mut locked = inode.lock();
    loop {
        let mut writer = data.writer(&mut locked);
        let turn = match fits {
            true => writer.reserve_some(limits, &mut reservation),
            false => Err(Errno::NOSPC),
        };
        if turn == Ok(true) {
            writer.reserved(limits, reservation, keeps);
            drop(writer);
            return Ok(locked);
        }
        drop(writer);
        drop(locked);
        let interrupted = || Interrupt::current().is_some_and(|interrupt| interrupt.is_pending());
        if let Err(errno) = turn.and_then(|_| if interrupted() { Err(Errno::INTR) } else { Ok(()) })
        {
            while !data.writer(&mut inode.lock()).unreserve_some(limits, &mut reservation) {}
            // Counted under the lock: another change may end while this waits for it.
            let mut locked = inode.lock();
            let blocks = Some(data.pages().page_count() * BLOCKS_PER_PAGE);
            locked.change(&Changes { blocks, ..Changes::default() });
            return Err(errno);
        }
        locked = inode.lock();
    }
}

/// Bytes that `copy_file_range` copies while it has the target's lock.
const COPY: usize = 1 << 20;

/// Copies bytes from one file to another (`copy_file_range`): how many.
///
/// # Errors
/// `EBADF`, `EISDIR`, `EINVAL`, `EXDEV`, `EFBIG`, `EOVERFLOW`, `ENOSPC`, `ENOMEM`.
pub fn copy_range(
    from: &FileHandle<'_>,
    start: i64,
    to: &FileHandle<'_>,
    offset: i64,
    len: usize,
    vfs: &Vfs,
    cred: &Cred,
) -> Result<usize, Errno> {
    let (source, target) = (from.opened(), to.opened());
    let kinds = [source, target].map(|file| file.inode().map(|inode| inode.mode() & S_IFMT));
    if kinds.contains(&Some(S_IFDIR)) {
        return Err(Errno::ISDIR);
    }
    if kinds != [Some(S_IFREG); 2] {
        return Err(Errno::INVAL);
    }
    let open = source.mode().contains(FileMode::READ) && target.mode().contains(FileMode::WRITE);
    if !open || target.flags() & O_APPEND != 0 {
        return Err(Errno::BADF);
    }
    let file_systems = [source, target].map(|file| file.inode().map(Inode::super_block));
    if let [Some(from), Some(to)] = file_systems
        && !core::ptr::eq(from, to)
    {
        return Err(Errno::XDEV);
    }
    let (from_inode, from_data) = data_of(source, FileMode::READ)?;
    let (to_inode, to_data) = data_of(target, FileMode::WRITE)?;
    // As Linux does: the sums without sign first, what is negative only after the limits.
    if [start, offset].iter().any(|at| (*at as u64).checked_add(len as u64).is_none()) {
        return Err(Errno::OVERFLOW);
    }
    if offset >= MAX_SIZE as i64 {
        return Err(Errno::FBIG);
    }
    let (Ok(start), Ok(offset)) = (u64::try_from(start), u64::try_from(offset)) else {
        return Err(Errno::INVAL);
    };
    let most = from_data.pages().size().saturating_sub(start).min(MAX_SIZE - offset);
    let len = len.min(usize::try_from(most).unwrap_or(usize::MAX)).min(MAX_RW_COUNT);
    if from_inode.same(to_inode) && start.abs_diff(offset) < len as u64 {
        return Err(Errno::INVAL);
    }
    if len > 0
        && source.flags() & O_NOATIME == 0
        && let Some((mount, _)) = source.tree()
    {
        // Before anything is written: to the same file it would not count any more.
        touch_access(mount, vfs, from_inode);
    }
    let (mut done, mut any_lost) = (0, false);
    while done < len {
        let piece = COPY.min(len - done);
        let mut locked = to_inode.lock();
        let lost = drop_privileges(&mut locked, cred);
        let mut writer = to_data.writer(&mut locked);
        let section = vfs.read();
        let (at, to_at) = (start + done as u64, offset + done as u64);
        let copied = writer.copy_from(
            to_data.fs().limits(),
            from_data.pages(),
            section.guard(),
            at,
            to_at,
            piece,
        );
        let size = writer.size();
        drop(writer);
        any_lost |= lost != 0;
        match copied {
            Ok(n) => {
                changed(&mut locked, to_data, vfs, size, lost);
                done += n;
                if n < piece {
                    break;
                }
            }
            Err(errno) if done == 0 => {
                // Also if nothing came of it, as for a write.
                changed(&mut locked, to_data, vfs, size, lost);
                drop(locked);
                tell_modified(target, vfs, any_lost, false);
                return Err(errno);
            }
            Err(_) => break,
        }
    }
    tell_modified(target, vfs, any_lost, false);
    if done > 0 {
        tell_read(source, vfs);
        tell_modified(target, vfs, false, true);
    }
    Ok(done)
}

/// Sets a file's length (`ftruncate`).
///
/// # Errors
/// `EINVAL` for a file without a length, or not open for writing; `EFBIG`; `EBADF`; those of an
/// embedder's
/// file system.
pub fn set_length(
    caller: &Caller<'_, '_>,
    file: &FileHandle<'_>,
    length: i64,
) -> Result<(), Errno> {
    let opened = file.opened();
    let length = u64::try_from(length).map_err(|_| Errno::INVAL)?;
    if opened.mode().contains(FileMode::PATH) {
        return Err(Errno::BADF);
    }
    let inode = opened.inode().ok_or(Errno::INVAL)?;
    if !opened.mode().contains(FileMode::WRITE) {
        return Err(Errno::INVAL);
    }
    let event = crate::namei::set_length(caller, inode, length, true)?;
    if let Some((_, dentry)) = opened.tree() {
        notify::dentry(caller.vfs, dentry, event);
    }
    Ok(())
}
