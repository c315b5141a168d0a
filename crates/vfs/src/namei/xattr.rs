//! Extended attributes.

use super::{Caller, is_foreign, ownership, ramfs, time_for};
use crate::abi::{S_ISGID, S_ISUID, S_ISVTX, XATTR_CREATE, XATTR_REPLACE};
use crate::cred::{Capabilities, Cred};
use crate::inode::{Changes, Inode, InodeFlags, InodeGuard};
use crate::notify::{self, Event};
use crate::operations;
use crate::permission::{Mask, permission};
use crate::ramfs::xattr::{Asker, CAPABILITY, Name, SIZE_MAX, Target, Xattrs, check_capability};
use crate::raw::walk_path::PathRef;
use quietline_sync::SpinLock;
use rustix::io::Errno;

fn asker(caller: &Caller<'_, '_>, inode: &Inode) -> (Asker, Target) {
    let admin = caller.cred.has(Capabilities::SYS_ADMIN);
    let target = if inode.is_dir() {
        Target::Directory { sticky: inode.mode() & S_ISVTX != 0 }
    } else if inode.is_file() {
        Target::File
    } else {
        Target::Other
    };
    (Asker { admin, owner: ownership(inode).owned_by(caller.cred) }, target)
}

/// The inode at a place, and the name, if somebody may do `mask` with an attribute of that name.
fn permitted<'s, 'n>(
    caller: &Caller<'_, '_>,
    at: PathRef<'s, '_>,
    name: &'n [u8],
    mask: Mask,
) -> Result<(&'s Inode, Name<'n>), Errno> {
    let inode = at.dentry().inode().ok_or(Errno::NOENT)?;
    let name = match Name::new(name) {
        Ok(name) => name,
        // Nothing is asked for what belongs to the system.
        Err(errno) if name.starts_with(b"system.") => return Err(errno),
        Err(errno) => {
            // A name that ends with its namespace is refused only to who might do this with a longer one.
            let longer = [&b"trusted.?"[..], b"user.?", b"security.?"]
                .into_iter()
                .find(|longer| &longer[..longer.len() - 1] == name);
            permitted_by_name(caller, inode, longer.map(Name::new).transpose()?, mask)?;
            return Err(errno);
        }
    };
    permitted_by_name(caller, inode, Some(name), mask)?;
    Ok((inode, name))
}

/// What the namespace says, and the mode if that is asked; for a name without one, the mode.
fn permitted_by_name(
    caller: &Caller<'_, '_>,
    inode: &Inode,
    name: Option<Name<'_>>,
    mask: Mask,
) -> Result<(), Errno> {
    let Some(name) = name else { return permission(inode, caller.cred, mask) };
    let (asker, target) = asker(caller, inode);
    match mask == Mask::WRITE {
        true => name.check_write(asker, target)?,
        false => name.check_read(asker, target)?,
    }
    if name.asks_mode() { permission(inode, caller.cred, mask) } else { Ok(()) }
}

/// What must be right of a name before anybody looks for a path.
///
/// # Errors
/// `ERANGE`; `EINVAL` for a zero byte, which no program could give to Linux.
pub fn check_xattr_name(name: &[u8]) -> Result<(), Errno> {
    match name {
        [] => Err(Errno::RANGE),
        _ if name.len() > crate::ramfs::xattr::NAME_MAX => Err(Errno::RANGE),
        _ if name.contains(&0) => Err(Errno::INVAL),
        _ => Ok(()),
    }
}

/// What must be right of `setxattr`'s flags and value before anybody looks for a path.
///
/// # Errors
/// `EINVAL`, `E2BIG`.
pub fn check_xattr(name: &[u8], value: &[u8], flags: i32) -> Result<(), Errno> {
    if flags & !(XATTR_CREATE | XATTR_REPLACE) != 0 {
        return Err(Errno::INVAL);
    }
    check_xattr_name(name)?;
    if value.len() > SIZE_MAX { Err(Errno::TOOBIG) } else { Ok(()) }
}

/// Removes what a write takes away from a locked file: `security.capability`, at once, and the
/// set-id bits that are returned, which the caller removes (`file_remove_privs`).
#[inline(always)]
pub(crate) fn drop_privileges(locked: &mut InodeGuard<'_>, cred: &Cred) -> u32 {
    if !locked.inode().flags().intersects(InodeFlags::PRIVILEGED) {
        return 0;
    }
    drop_privileges_slow(locked, cred)
}

#[cold]
#[inline(never)]
fn drop_privileges_slow(locked: &mut InodeGuard<'_>, cred: &Cred) -> u32 {
    let inode = locked.inode();
    drop_capability(locked);
    if inode.mode() & (S_ISUID | S_ISGID) == 0 && !has_capability(inode) {
        locked.set_flags(InodeFlags::empty(), InodeFlags::PRIVILEGED);
    }
    ownership(inode).lost_by_writing(cred)
}

fn has_capability(inode: &Inode) -> bool {
    inode.i_xattrs.get().is_some_and(|xattrs| xattrs.lock().has_capability())
}

/// Removes `security.capability` of a locked file, unless its value is empty.
#[cold]
pub(crate) fn drop_capability(locked: &mut InodeGuard<'_>) {
    let inode = locked.inode();
    if let Some(xattrs) = inode.i_xattrs.get()
        && let Ok(fs) = ramfs(inode.super_block())
    {
        xattrs.lock().drop_capability(fs.limits());
    }
}

/// Whether a name is that of an access control list.
fn is_acl(name: &[u8]) -> bool {
    matches!(name, b"system.posix_acl_access" | b"system.posix_acl_default")
}

/// The inode at a place, if files of its kind can have access control lists.
fn inode_with_acl<'s>(at: PathRef<'s, '_>) -> Result<&'s Inode, Errno> {
    let inode = at.dentry().inode().ok_or(Errno::NOENT)?;
    let can = !inode.is_symlink() && ramfs(inode.super_block()).is_ok();
    if can { Ok(inode) } else { Err(Errno::OPNOTSUPP) }
}

/// Removes an access control list. No file has one: only the permission to remove it is checked,
/// and the time changes.
fn remove_acl(caller: &Caller<'_, '_>, at: PathRef<'_, '_>, name: &[u8]) -> Result<(), Errno> {
    let inode = inode_with_acl(at)?;
    if name.ends_with(b"access") || inode.is_dir() {
        if !ownership(inode).owned_by(caller.cred) {
            return Err(Errno::PERM);
        }
        let mut locked = inode.lock();
        let ctime = Some(time_for(caller.vfs, inode));
        locked.change(&Changes { ctime, ..Changes::default() });
    }
    notify::dentry(caller.vfs, at.dentry(), Event::ATTRIB);
    Ok(())
}

/// Sets an access control list that says nothing, which removes the one that is there. Others are
/// not kept.
///
/// # Errors
/// `EOPNOTSUPP` for a list with entries, or of another version; `EINVAL` for a value that is no
/// list; `EPERM`; `EACCES`.
fn set_acl(
    caller: &Caller<'_, '_>,
    at: PathRef<'_, '_>,
    name: &[u8],
    value: &[u8],
) -> Result<(), Errno> {
    const VERSION: [u8; 4] = 2u32.to_ne_bytes();
    const ENTRY: usize = 8;
    let entries = match value.split_first_chunk() {
        Some((&VERSION, entries)) => entries,
        Some(_) => return Err(Errno::OPNOTSUPP),
        None if value.is_empty() => value,
        None => return Err(Errno::INVAL),
    };
    if entries.len() % ENTRY != 0 {
        return Err(Errno::INVAL);
    }
    let inode = inode_with_acl(at)?;
    match entries {
        [] => remove_acl(caller, at, name),
        _ if name.ends_with(b"default") && !inode.is_dir() => Err(Errno::ACCESS),
        _ if !ownership(inode).owned_by(caller.cred) => Err(Errno::PERM),
        _ => Err(Errno::OPNOTSUPP),
    }
}

/// Whether an embedder's file system has the attributes of an inode.
fn asks(inode: &Inode) -> bool {
    inode.node().is_some_and(is_foreign)
}

/// Sets an extended attribute (`setxattr`).
///
/// # Errors
/// As the system call.
pub fn setxattr(
    caller: &Caller<'_, '_>,
    at: PathRef<'_, '_>,
    name: &[u8],
    value: &[u8],
    flags: i32,
) -> Result<(), Errno> {
    let _leave = at.mount().want_write()?;
    if is_acl(name) {
        return set_acl(caller, at, name, value);
    }
    if name == CAPABILITY && !value.is_empty() {
        check_capability(value, caller.cred.has(Capabilities::SETFCAP))?;
    }
    let bytes = name;
    let (inode, name) = permitted(caller, at, name, Mask::WRITE)?;
    if asks(inode) {
        operations::setxattr(caller, inode, bytes, value, flags)?;
        notify::dentry(caller.vfs, at.dentry(), Event::ATTRIB);
        return Ok(());
    }
    let fs = ramfs(inode.super_block()).map_err(|_| Errno::OPNOTSUPP)?;
    let mut locked = inode.lock();
    let xattrs = inode
        .i_xattrs
        .get_or_make(|| Ok(SpinLock::new(Xattrs::new())))
        .map_err(|_| Errno::NOMEM)?;
    xattrs.lock().set(fs.limits(), name, value, flags)?;
    if name.is_capability() {
        locked.set_flags(InodeFlags::PRIVILEGED, InodeFlags::empty());
    }
    let ctime = Some(time_for(caller.vfs, inode));
    locked.change(&Changes { ctime, ..Changes::default() });
    drop(locked);
    notify::dentry(caller.vfs, at.dentry(), Event::ATTRIB);
    Ok(())
}

/// Removes an extended attribute (`removexattr`).
///
/// # Errors
/// As the system call.
pub fn removexattr(caller: &Caller<'_, '_>, at: PathRef<'_, '_>, name: &[u8]) -> Result<(), Errno> {
    let _leave = at.mount().want_write()?;
    if is_acl(name) {
        return remove_acl(caller, at, name);
    }
    if name == CAPABILITY && !caller.cred.has(Capabilities::SETFCAP) {
        return Err(Errno::PERM);
    }
    let bytes = name;
    let (inode, name) = permitted(caller, at, name, Mask::WRITE)?;
    if asks(inode) {
        operations::removexattr(caller, inode, bytes)?;
        notify::dentry(caller.vfs, at.dentry(), Event::ATTRIB);
        return Ok(());
    }
    let fs = ramfs(inode.super_block()).map_err(|_| Errno::OPNOTSUPP)?;
    let mut locked = inode.lock();
    inode.i_xattrs.get().ok_or(Errno::NODATA)?.lock().remove(fs.limits(), name)?;
    let ctime = Some(time_for(caller.vfs, inode));
    locked.change(&Changes { ctime, ..Changes::default() });
    drop(locked);
    notify::dentry(caller.vfs, at.dentry(), Event::ATTRIB);
    Ok(())
}

/// Reads an extended attribute (`getxattr`): how many bytes; into nothing, only how many there are.
///
/// # Errors
/// As the system call.
pub fn getxattr(
    caller: &Caller<'_, '_>,
    at: PathRef<'_, '_>,
    name: &[u8],
    to: &mut [u8],
) -> Result<usize, Errno> {
    if is_acl(name) {
        return inode_with_acl(at).and(Err(Errno::NODATA));
    }
    let bytes = name;
    let (inode, name) = permitted(caller, at, name, Mask::READ)?;
    if asks(inode) {
        return operations::getxattr(caller, inode, bytes, to);
    }
    inode.i_xattrs.get().ok_or(Errno::NODATA)?.lock().get(name, to)
}

/// Lists the names of extended attributes (`listxattr`): how many bytes; into nothing, only how many there are.
///
/// # Errors
/// As the system call.
pub fn listxattr(
    caller: &Caller<'_, '_>,
    at: PathRef<'_, '_>,
    to: &mut [u8],
) -> Result<usize, Errno> {
    let inode = at.dentry().inode().ok_or(Errno::NOENT)?;
    if asks(inode) {
        return operations::listxattr(caller, inode, to);
    }
    let (asker, _) = asker(caller, inode);
    inode.i_xattrs.get().map_or(Ok(0), |xattrs| xattrs.lock().list(asker.admin, to))
}
