//! Changing attributes: modes, owners, times, lengths.

use super::{Caller, drop_capability, drop_privileges, inode_of, is_foreign, ownership, time_for};
use crate::abi::{S_IFLNK, S_IFMT, S_IFREG, Timespec};
use crate::attributes::{SetTime, may_set_times};
use crate::inode::{Changes, Content, Inode, InodeFlags};
use crate::notify::{self, Event};
use crate::operations;
use crate::permission::{Mask, permission};
use crate::ramfs::fs::BLOCKS_PER_PAGE;
use crate::raw::walk_path::PathRef;
use crate::walk::How;
use rustix::io::Errno;

/// Whether the file system of a generated file keeps its mode and its owners.
#[inline(always)]
fn keeps_owners(inode: &Inode) -> bool {
    #[cold]
    #[inline(never)]
    fn of_node(inode: &Inode) -> bool {
        inode.super_block().info().keeps_owners()
    }
    inode.flags().contains(InodeFlags::NODE) && of_node(inode)
}

/// Whether an inode is an embedder's, whose times the kernel does not change.
#[inline(always)]
fn keeps_times(inode: &Inode) -> bool {
    inode.node().is_some_and(is_foreign)
}

/// Changes attributes of a generated file, in a file system that keeps them: an embedder's is
/// asked,
/// and others fail with `EPERM`.
#[cold]
#[inline(never)]
fn set_foreign(
    caller: &Caller<'_, '_>,
    at: PathRef<'_, '_>,
    inode: &Inode,
    changes: &Changes,
    event: Event,
) -> Result<(), Errno> {
    operations::setattr(caller, inode, changes)?;
    notify::dentry(caller.vfs, at.dentry(), event);
    Ok(())
}

/// Changes the permissions of what is at a place (`fchmodat2`).
///
/// # Errors
/// `EPERM`, `EROFS`; `EOPNOTSUPP` for a symbolic link.
pub fn chmod(caller: &Caller<'_, '_>, at: PathRef<'_, '_>, mode: u32) -> Result<(), Errno> {
    let _leave = at.mount().want_write()?;
    let inode = at.dentry().inode().ok_or(Errno::NOENT)?;
    if keeps_owners(inode) {
        if inode.is_symlink() && keeps_times(inode) {
            return Err(Errno::OPNOTSUPP);
        }
        let mode = Some(ownership(inode).chmod(caller.cred, mode)?);
        let changes = Changes { mode, ..Changes::default() };
        return set_foreign(caller, at, inode, &changes, Event::ATTRIB);
    }
    let mut locked = inode.lock();
    if inode.mode() & S_IFMT == S_IFLNK {
        return Err(Errno::OPNOTSUPP);
    }
    let mode = ownership(inode).chmod(caller.cred, mode)?;
    let time = time_for(caller.vfs, inode);
    locked.change(&Changes { mode: Some(mode), ctime: Some(time), ..Changes::default() });
    drop(locked);
    notify::dentry(caller.vfs, at.dentry(), Event::ATTRIB);
    Ok(())
}

/// Changes the owner and the group of what is at a place; -1 keeps one (`fchownat`).
///
/// # Errors
/// `EPERM`, `EROFS`.
pub fn chown(
    caller: &Caller<'_, '_>,
    at: PathRef<'_, '_>,
    uid: u32,
    gid: u32,
) -> Result<(), Errno> {
    let _leave = at.mount().want_write()?;
    let given = |id| (id != u32::MAX).then_some(id);
    let inode = at.dentry().inode().ok_or(Errno::NOENT)?;
    if keeps_owners(inode) {
        let (uid, gid) = (given(uid), given(gid));
        let after = ownership(inode).chown(caller.cred, uid, gid)?;
        let mode = (after.mode != inode.mode()).then_some(after.mode);
        // (A call that changes nothing but the time of the last change succeeds.)
        if uid.or(gid).or(mode).is_some() {
            let changes = Changes { mode, uid, gid, ..Changes::default() };
            return set_foreign(caller, at, inode, &changes, Event::ATTRIB);
        }
    }
    let mut locked = inode.lock();
    let after = ownership(inode).chown(caller.cred, given(uid), given(gid))?;
    // Who asks for nothing changes the time alone, which nobody is told.
    let told = given(uid).or(given(gid)).is_some() || after.mode != inode.mode();
    let ctime = Some(time_for(caller.vfs, inode));
    let (mode, uid, gid) = (Some(after.mode), Some(after.uid), Some(after.gid));
    locked.change(&Changes { mode, uid, gid, ctime, ..Changes::default() });
    if !inode.is_dir() && inode.flags().intersects(InodeFlags::PRIVILEGED) {
        drop_capability(&mut locked);
    }
    drop(locked);
    if told {
        notify::dentry(caller.vfs, at.dentry(), Event::ATTRIB);
    }
    Ok(())
}

/// Sets the times of access and of change of what is at a place (`utimensat`).
///
/// # Errors
/// `EINVAL`, `EPERM`, `EACCES`, `EROFS`.
pub fn utimens(
    caller: &Caller<'_, '_>,
    at: PathRef<'_, '_>,
    times: Option<[Timespec; 2]>,
) -> Result<(), Errno> {
    let times = match times {
        None => [SetTime::Now; 2],
        Some([atime, mtime]) => [SetTime::of(atime)?, SetTime::of(mtime)?],
    };
    let _leave = at.mount().want_write()?;
    let inode = at.dentry().inode().ok_or(Errno::NOENT)?;
    // One time alone is taken for a read or a write.
    let event = |atime: Option<Timespec>, mtime: Option<Timespec>| match (atime, mtime) {
        (Some(_), None) => Event::ACCESS,
        (None, Some(_)) => Event::MODIFY,
        _ => Event::ATTRIB,
    };
    if keeps_times(inode) {
        may_set_times(ownership(inode), caller.cred, times)?;
        let [atime, mtime] = times.map(|time| time.resolve(caller.vfs.clock.now()));
        let changes = Changes { atime, mtime, ..Changes::default() };
        return set_foreign(caller, at, inode, &changes, event(atime, mtime));
    }
    let mut locked = inode.lock();
    may_set_times(ownership(inode), caller.cred, times)?;
    let now = time_for(caller.vfs, inode);
    let [atime, mtime] = times.map(|time| time.resolve(now));
    locked.change(&Changes { atime, mtime, ctime: Some(now), ..Changes::default() });
    drop(locked);
    let event = event(atime, mtime);
    notify::dentry(caller.vfs, at.dentry(), event);
    Ok(())
}

/// Sets the length of the regular file at a path (`truncate`).
///
/// # Errors
/// `EINVAL`, `EISDIR`, `EACCES`, `EROFS`, `EFBIG`, and those of the walk.
pub fn truncate(caller: &Caller<'_, '_>, path: &[u8], length: i64) -> Result<(), Errno> {
    let length = u64::try_from(length).map_err(|_| Errno::INVAL)?;
    let at = caller.path(path, How::FOLLOW)?;
    let inode = inode_of(at.dentry())?;
    match inode.mode() & S_IFMT {
        S_IFREG => {}
        crate::abi::S_IFDIR => return Err(Errno::ISDIR),
        _ => return Err(Errno::INVAL),
    }
    let _leave = at.mount().want_write()?;
    permission(inode, caller.cred, Mask::WRITE)?;
    let event = set_length(caller, inode, length, false)?;
    notify::dentry(caller.vfs, at.dentry(), event);
    Ok(())
}

/// Asks an embedder's file system to set the length of a regular file.
#[cold]
fn set_length_foreign(caller: &Caller<'_, '_>, inode: &Inode, length: u64) -> Result<Event, Errno> {
    if !inode.is_file() || !keeps_times(inode) {
        return Err(Errno::INVAL);
    }
    let lost = ownership(inode).lost_by_writing(caller.cred);
    let mtime = Some(caller.vfs.clock.now());
    let mode = (lost != 0).then(|| inode.mode() & !lost);
    let size = Some(length);
    operations::setattr(caller, inode, &Changes { mode, size, mtime, ..Changes::default() })?;
    Ok(if lost == 0 { Event::MODIFY } else { Event::MODIFY | Event::ATTRIB })
}

/// Sets the length of a regular file that the caller may write. Its times change, as on tmpfs, unless it keeps its length and
/// has no page; `touch`: in any case. What to tell those who watch it.
///
/// # Errors
/// `EFBIG`; `EINVAL` for a file without a length; those of an embedder's file system.
pub(crate) fn set_length(
    caller: &Caller<'_, '_>,
    inode: &Inode,
    length: u64,
    touch: bool,
) -> Result<Event, Errno> {
    let (vfs, cred) = (caller.vfs, caller.cred);
    let Content::File(data) = inode.content() else {
        return set_length_foreign(caller, inode, length);
    };
    let mut locked = inode.lock();
    // A file with pages has them looked through even if it keeps its length, and that counts as a change.
    let may_stay = data.pages().size() == length && data.pages().page_count() == 0;
    data.writer(&mut locked).truncate(data.fs().limits(), length)?;
    let lost = drop_privileges(&mut locked, cred);
    let time = (touch || !may_stay).then(|| time_for(vfs, inode));
    locked.change(&Changes {
        mode: (lost != 0).then(|| inode.mode() & !lost),
        size: Some(data.pages().size()),
        blocks: Some(data.pages().page_count() * BLOCKS_PER_PAGE),
        mtime: time,
        ctime: time,
        ..Changes::default()
    });
    Ok(if lost == 0 { Event::MODIFY } else { Event::MODIFY | Event::ATTRIB })
}
