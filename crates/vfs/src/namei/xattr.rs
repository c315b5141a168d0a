//! Extended attributes.

use super::{Caller, ownership, ramfs, time_for};
use crate::abi::{S_ISVTX, XATTR_CREATE, XATTR_REPLACE};
use crate::cred::Capabilities;
use crate::inode::{Changes, Inode};
use crate::notify::{self, Event};
use crate::permission::{Mask, permission};
use crate::ramfs::xattr::{Asker, Name, SIZE_MAX, Target, Xattrs};
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
    let (inode, name) = permitted(caller, at, name, Mask::WRITE)?;
    let fs = ramfs(inode.super_block()).map_err(|_| Errno::OPNOTSUPP)?;
    let mut locked = inode.lock();
    let xattrs = inode
        .i_xattrs
        .get_or_make(|| Ok(SpinLock::new(Xattrs::new())))
        .map_err(|_| Errno::NOMEM)?;
    xattrs.lock().set(fs.limits(), name, value, flags)?;
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
    let (inode, name) = permitted(caller, at, name, Mask::WRITE)?;
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
    let (inode, name) = permitted(caller, at, name, Mask::READ)?;
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
    let (asker, _) = asker(caller, inode);
    inode.i_xattrs.get().map_or(Ok(0), |xattrs| xattrs.lock().list(asker.admin, to))
}
