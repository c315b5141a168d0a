//! Removing names.

use super::{
    Caller, ask_child, inode_of, is_foreign_dir, may_delete, not_removed, time_for, time_for_both,
    touched,
};
use crate::abi::Timespec;
use crate::cred::Cred;
use crate::dcache::name::Name;
use crate::dentry::Dentry;
use crate::inode::{Changes, Inode, InodeFlags, InodeGuard};
use crate::notify::{self, Event};
use crate::operations;
use crate::raw::dcache::locked::LockedDir;
use crate::raw::dcache::refs::DentryRef;
use crate::raw::mount::TreeMount;
use crate::raw::walk_path::Path;
use crate::walk::{How, Last, LastKind};
use rustix::io::Errno;

/// Whether something is mounted on what a name in a directory stands for.
pub(super) fn is_mountpoint(caller: &Caller<'_, '_>, mount: &TreeMount, child: &Dentry) -> bool {
    if !crate::walk::maybe_mounted(child) {
        return false;
    }
    let section = caller.vfs.read();
    mount.on(child, section.guard()).is_some()
}

/// Removes a name of what is not a directory (`unlinkat`).
///
/// Writes the lines of the directory and of the file.
///
/// # Errors
/// As the system call.
pub fn unlink(caller: &Caller<'_, '_>, path: &[u8]) -> Result<(), Errno> {
    let quick = caller.quick_parent(path, |mount, dir, name, slash| {
        not_removed(dir.inode())?;
        match unlink_name(caller, dir, name, slash)? {
            None => Ok(None),
            Some(victim) => unlink_held(caller, dir, mount, victim),
        }
    });
    match quick {
        Some(Ok(None)) => Ok(()),
        Some(Ok(Some(held))) => removed(caller, held),
        Some(Err(errno)) => Err(errno),
        None => unlink_odd(caller, path),
    }
}

/// [`unlink`] where something is out of the ordinary.
#[cold]
#[inline(never)]
fn unlink_odd(caller: &Caller<'_, '_>, path: &[u8]) -> Result<(), Errno> {
    let (place, last) = caller.parent(path, How::NOFOLLOW)?;
    if last.kind() != LastKind::Name {
        return Err(Errno::ISDIR);
    }
    if is_foreign_dir(place.dentry()) {
        return remove_foreign(caller, &place, &last, false);
    }
    let (mount, dir) = place.into_parts();
    let _leave = mount.want_write()?;
    unlink_in(caller, &mount, dir, &last, None)
}

/// Removes a name from an embedder's directory.
fn remove_foreign<'k>(
    caller: &Caller<'_, 'k>,
    place: &Path<'k>,
    last: &Last<'_>,
    is_dir: bool,
) -> Result<(), Errno> {
    let (mount, dir) = (place.mount(), place.dentry());
    let _leave = mount.want_write()?;
    let inode = inode_of(dir)?;
    not_removed(inode)?;
    let name = caller.vfs.name(last.bytes())?;
    let victim = ask_child(caller, place, last.bytes())?.ok_or(Errno::NOENT)?;
    let of = inode_of(&victim)?;
    match is_dir {
        true => may_rmdir(inode, of, caller.cred)?,
        false => may_unlink(inode, of, last.has_slash(), caller.cred)?,
    }
    if is_mountpoint(caller, mount, &victim) {
        return Err(Errno::BUSY);
    }
    operations::remove(caller, dir, &name, &victim)?;
    if !is_dir {
        notify::unlinked(caller.vfs, &victim);
    }
    drop(victim);
    notify::name(caller.vfs, dir, last.bytes(), Event::DELETE, is_dir);
    Ok(())
}

/// Whether a name may be removed that is no directory's.
#[inline(always)]
fn may_unlink(dir: &Inode, victim: &Inode, slash: bool, cred: &Cred) -> Result<(), Errno> {
    if slash {
        return Err(if victim.is_dir() { Errno::ISDIR } else { Errno::NOTDIR });
    }
    may_delete(dir, victim, cred)?;
    if victim.is_dir() { Err(Errno::ISDIR) } else { Ok(()) }
}

/// Whether a directory may be removed.
#[inline(always)]
fn may_rmdir(dir: &Inode, victim: &Inode, cred: &Cred) -> Result<(), Errno> {
    may_delete(dir, victim, cred)?;
    if victim.is_dir() { Ok(()) } else { Err(Errno::NOTDIR) }
}

/// Removes a name from a directory, with leave to write in the mount; with `ino`: if the name is of
/// the inode with that number.
pub(super) fn unlink_in<'k>(
    caller: &Caller<'_, 'k>,
    mount: &TreeMount,
    dir: DentryRef<'k>,
    last: &Last<'_>,
    ino: Option<u64>,
) -> Result<(), Errno> {
    let dir = LockedDir::lock(dir)?;
    not_removed(dir.inode())?;
    let name = caller.vfs.name(last.bytes())?;
    let there = || dir.find(&name).and_then(|child| child.inode()).map(Inode::ino);
    if ino.is_some() && there() != ino {
        return Err(Errno::NOENT);
    }
    let Some(victim) = unlink_name(caller, &dir, &name, last.has_slash())? else { return Ok(()) };
    let held = unlink_held(caller, &dir, mount, victim);
    let parent = dir.dir().clone();
    drop(dir);
    let Some(held) = held? else { return Ok(()) };
    if held.pin.is_some() {
        notify::unlinked(caller.vfs, &held.victim);
    }
    removed(caller, held)?;
    notify::name(caller.vfs, &parent, last.bytes(), Event::DELETE, false);
    Ok(())
}

/// What a removed name was of, if others refer to that, and the reference that its directory had: to be given back when no lock is
/// held.
struct Held<'k> {
    victim: DentryRef<'k>,
    pin: Option<DentryRef<'k>>,
}

/// When the directory is unlocked.
#[cold]
#[inline(never)]
fn removed(caller: &Caller<'_, '_>, held: Held<'_>) -> Result<(), Errno> {
    match held.pin {
        Some(_) => {
            caller.vfs.detach_mounts(&held.victim);
            Ok(())
        }
        None => Err(Errno::BUSY),
    }
}

/// Removes a name from a locked directory; or what it is of, if that is for the long way: somebody is to be told of it, has it
/// open, or has mounted something on it.
#[inline(always)]
fn unlink_name<'k>(
    caller: &Caller<'_, 'k>,
    dir: &LockedDir<'k>,
    name: &Name<'_>,
    slash: bool,
) -> Result<Option<DentryRef<'k>>, Errno> {
    let victim = dir.find(name).ok_or(Errno::NOENT)?;
    let inode = victim.inode().ok_or(Errno::NOENT)?;
    may_unlink(dir.inode(), inode, slash, caller.cred)?;
    super::ramfs(dir.dir().super_block())?;
    if notify::is_on(caller.vfs) || !dir.remove_sole(victim) {
        return Ok(Some(dir.hold(victim)));
    }
    // Nobody has the name any more, and nobody gets it.
    let time = if inode.is_sole() {
        // Nor the file.
        inode.lose_last_link();
        time_for(caller.vfs, dir.inode())
    } else {
        lose_link(caller, dir, &mut inode.lock())
    };
    dir.change(&touched(dir.inode(), -1, 0, time));
    Ok(None)
}

/// A file has a name less; at what time.
fn lose_link(
    caller: &Caller<'_, '_>,
    dir: &LockedDir<'_>,
    locked: &mut InodeGuard<'_>,
) -> Timespec {
    let inode = locked.inode();
    let time = time_for_both(caller.vfs, inode, dir.inode());
    let left = inode.nlink().saturating_sub(1);
    locked.change(&Changes { nlink: Some(left), ctime: Some(time), ..Changes::default() });
    if left > 0
        && let Ok(fs) = super::ramfs(dir.dir().super_block())
    {
        // Each link counts against the limit, the first as the file.
        fs.limits().uncharge_inode();
    }
    time
}

/// [`unlink`] of what others refer to, when all has been asked but that. Without the directory's reference, nothing is changed:
/// something is mounted on it.
#[inline(never)]
fn unlink_held<'k>(
    caller: &Caller<'_, 'k>,
    dir: &LockedDir<'k>,
    mount: &TreeMount,
    victim: DentryRef<'k>,
) -> Result<Option<Held<'k>>, Errno> {
    let pin = {
        let inode = inode_of(&victim)?;
        let mut locked = inode.lock();
        // Under the lock: whoever mounts something on it has that.
        if is_mountpoint(caller, mount, &victim) {
            None
        } else {
            let pin = dir.remove(&victim).ok_or(Errno::NOENT)?;
            let time = lose_link(caller, dir, &mut locked);
            dir.change(&touched(dir.inode(), -1, 0, time));
            Some(pin)
        }
    };
    Ok(Some(Held { victim, pin }))
}

/// Removes an empty directory (`rmdir`).
///
/// # Errors
/// As the system call.
pub fn rmdir(caller: &Caller<'_, '_>, path: &[u8]) -> Result<(), Errno> {
    let quick = caller.quick_parent(path, |mount, dir, name, _| {
        not_removed(dir.inode())?;
        rmdir_name(caller, mount, dir, name)
    });
    match quick {
        Some(Ok(None)) => Ok(()),
        Some(Ok(Some(held))) => removed(caller, held),
        Some(Err(errno)) => Err(errno),
        None => rmdir_odd(caller, path),
    }
}

/// [`rmdir`] where something is out of the ordinary.
#[cold]
#[inline(never)]
fn rmdir_odd(caller: &Caller<'_, '_>, path: &[u8]) -> Result<(), Errno> {
    let (place, last) = caller.parent(path, How::NOFOLLOW)?;
    match last.kind() {
        LastKind::Name => {}
        LastKind::Dot => return Err(Errno::INVAL),
        LastKind::DotDot => return Err(Errno::NOTEMPTY),
        LastKind::Root | LastKind::Jumped => return Err(Errno::BUSY),
    }
    if is_foreign_dir(place.dentry()) {
        return remove_foreign(caller, &place, &last, true);
    }
    let (mount, dir) = place.into_parts();
    let _leave = mount.want_write()?;
    let dir = LockedDir::lock(dir)?;
    not_removed(dir.inode())?;
    let name = caller.vfs.name(last.bytes())?;
    let held = rmdir_name(caller, &mount, &dir, &name)?;
    let parent = dir.dir().clone();
    drop(dir);
    let Some(held) = held else { return Ok(()) };
    removed(caller, held)?;
    notify::name(caller.vfs, &parent, last.bytes(), Event::DELETE, true);
    Ok(())
}

/// Removes a directory from a locked directory; it, if others refer to it.
fn rmdir_name<'k>(
    caller: &Caller<'_, 'k>,
    mount: &TreeMount,
    dir: &LockedDir<'k>,
    name: &Name<'_>,
) -> Result<Option<Held<'k>>, Errno> {
    let victim = dir.find(name).ok_or(Errno::NOENT)?;
    let inode = victim.inode().ok_or(Errno::NOENT)?;
    may_rmdir(dir.inode(), inode, caller.cred)?;
    super::ramfs(dir.dir().super_block())?;
    let mut locked = inode.lock();
    // As in `unlink`.
    if is_mountpoint(caller, mount, victim) {
        return Err(Errno::BUSY);
    }
    if locked.listing.len() != 0 {
        return Err(Errno::NOTEMPTY);
    }
    let time = time_for_both(caller.vfs, inode, dir.inode());
    let mut held = None;
    if notify::is_on(caller.vfs) || !dir.remove_sole(victim) {
        let victim = dir.hold(victim);
        held = Some(Held { pin: Some(dir.remove(&victim).ok_or(Errno::NOENT)?), victim });
    }
    locked.set_flags(InodeFlags::DEAD, InodeFlags::empty());
    locked.change(&Changes { nlink: Some(0), ctime: Some(time), ..Changes::default() });
    drop(locked);
    dir.change(&touched(dir.inode(), -1, -1, time));
    Ok(held)
}
