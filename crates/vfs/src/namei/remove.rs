//! Removing names.

use super::{Caller, inode_of, may_delete, not_removed, time_for_both, touch_dir_at};
use crate::inode::{Changes, InodeFlags};
use crate::notify;
use crate::raw::dcache::refs::DentryRef;
use crate::raw::walk_path::Path;
use crate::walk::{How, LastKind};
use rustix::io::Errno;

/// Whether something is mounted on what a name in a directory stands for.
pub(super) fn is_mountpoint(caller: &Caller<'_, '_>, parent: &Path<'_>, child: &DentryRef<'_>) -> bool {
    if !crate::walk::maybe_mounted(child) {
        return false;
    }
    let section = caller.vfs.read();
    parent.mount().on(child, section.guard()).is_some()
}

/// Removes a name of what is not a directory (`unlinkat`).
///
/// Writes the lines of the directory and of the file.
///
/// # Errors
/// As the system call.
pub fn unlink(caller: &Caller<'_, '_>, path: &[u8]) -> Result<(), Errno> {
    let (parent, last) = caller.parent(path, How::NOFOLLOW)?;
    if last.kind() != LastKind::Name {
        return Err(Errno::ISDIR);
    }
    let _leave = parent.mount().want_write()?;
    let dir = parent.dentry();
    let name = caller.vfs.name(last.bytes())?;
    let mut guard = inode_of(dir)?.lock();
    not_removed(&guard)?;
    let victim = dir.lookup(&name).ok_or(Errno::NOENT)?;
    let mut removing = || {
        let inode = inode_of(&victim)?;
        if last.has_slash() {
            return Err(if inode.is_dir() { Errno::ISDIR } else { Errno::NOTDIR });
        }
        may_delete(&guard, inode, caller.cred)?;
        if inode.is_dir() {
            return Err(Errno::ISDIR);
        }
        super::ramfs(dir.super_block())?;
        let mut locked = inode.lock();
        // Under the lock: whoever mounts something on it has that.
        if is_mountpoint(caller, &parent, &victim) {
            return Err(Errno::BUSY);
        }
        let time = time_for_both(caller.vfs, inode, guard.inode());
        let pin = victim.delist(&mut guard).ok_or(Errno::NOENT)?;
        let left = inode.nlink().saturating_sub(1);
        locked.change(&Changes { nlink: Some(left), ctime: Some(time), ..Changes::default() });
        drop(locked);
        if left > 0 {
            // Each link counts against the limit, the first as the file.
            super::ramfs(dir.super_block())?.limits().uncharge_inode();
        }
        touch_dir_at(&mut guard, -1, 0, time);
        Ok(pin)
    };
    let pin = removing();
    drop(guard);
    let pin = pin?;
    caller.vfs.detach_mounts(&victim);
    notify::removed(caller.vfs, dir, last.bytes(), &victim);
    drop((pin, victim));
    Ok(())
}

/// Removes an empty directory (`rmdir`).
///
/// # Errors
/// As the system call.
pub fn rmdir(caller: &Caller<'_, '_>, path: &[u8]) -> Result<(), Errno> {
    let (parent, last) = caller.parent(path, How::NOFOLLOW)?;
    match last.kind() {
        LastKind::Name => {}
        LastKind::Dot => return Err(Errno::INVAL),
        LastKind::DotDot => return Err(Errno::NOTEMPTY),
        LastKind::Root | LastKind::Jumped => return Err(Errno::BUSY),
    }
    let _leave = parent.mount().want_write()?;
    let dir = parent.dentry();
    let name = caller.vfs.name(last.bytes())?;
    let mut guard = inode_of(dir)?.lock();
    not_removed(&guard)?;
    let victim = dir.lookup(&name).ok_or(Errno::NOENT)?;
    let mut removing = || {
        let inode = inode_of(&victim)?;
        may_delete(&guard, inode, caller.cred)?;
        if !inode.is_dir() {
            return Err(Errno::NOTDIR);
        }
        super::ramfs(dir.super_block())?;
        let mut locked = inode.lock();
        // As in `unlink`.
        if is_mountpoint(caller, &parent, &victim) {
            return Err(Errno::BUSY);
        }
        if locked.listing.len() != 0 {
            return Err(Errno::NOTEMPTY);
        }
        let time = time_for_both(caller.vfs, inode, guard.inode());
        let pin = victim.delist(&mut guard).ok_or(Errno::NOENT)?;
        locked.set_flags(InodeFlags::DEAD, InodeFlags::empty());
        locked.change(&Changes { nlink: Some(0), ctime: Some(time), ..Changes::default() });
        drop(locked);
        touch_dir_at(&mut guard, -1, -1, time);
        Ok(pin)
    };
    let pin = removing();
    drop(guard);
    let pin = pin?;
    caller.vfs.detach_mounts(&victim);
    notify::removed(caller.vfs, dir, last.bytes(), &victim);
    drop((pin, victim));
    Ok(())
}
