//! Calls on what a descriptor is open on: a file of the tree, or a pseudo object.
//!
//! Sockets and pipes have attributes that can be changed and no extended attributes that can be
//! set. The inode that anonymous descriptors share cannot be changed.

use super::{Caller, attributes, describe, xattr};
use crate::abi::{
    ANON_INODE_FS_MAGIC, PIPEFS_MAGIC, S_IFMT, S_IFSOCK, SOCKFS_MAGIC, ST_VALID, STATX_BASIC_STATS,
    Stat, StatFs, Statx, Timespec,
};
use crate::attributes::{SetTime, may_set_times};
use crate::cred::Capabilities;
use crate::inode::{PseudoAttributes, PseudoInode, PseudoState};
use crate::permission::{Mask, Ownership};
use crate::ramfs::PAGE;
use crate::raw::handle::FileHandle;
use crate::vfs::Vfs;
use quietline_sync::Shared;
use rustix::io::Errno;

/// The number of the inode that all anonymous descriptors share.
pub const ANON_INO: u64 = 1;

/// The state of the inode of the pseudo object that a file is on, made if there is none.
///
/// # Errors
/// `ENOMEM`.
pub(crate) fn pseudo_state(file: &FileHandle<'_>, vfs: &Vfs) -> Result<Shared<PseudoState>, Errno> {
    if let Some(state) = file.pseudo_state() {
        return Ok(state);
    }
    let state = match file.pseudo_inode() {
        Some(_) => {
            Shared::new(PseudoState::new(vfs.lock_waits.clone())).map_err(|_| Errno::NOMEM)?
        }
        None => vfs.anonymous.clone(),
    };
    file.pseudo_state_or(state)
}

/// Returns the attributes of the pseudo object that a file is on. A socket or a pipe belongs to its
/// maker, until its owner is changed.
fn attributes_of(file: &FileHandle<'_>) -> PseudoAttributes {
    let Some(inode) = file.pseudo_inode() else { return PseudoAttributes::ANONYMOUS };
    let changed = file.pseudo_state().and_then(|state| *state.attributes.lock());
    changed.unwrap_or_else(|| new_attributes(file, inode))
}

fn new_attributes(file: &FileHandle<'_>, inode: &PseudoInode) -> PseudoAttributes {
    PseudoAttributes::new(inode, file.pseudo_mode().unwrap_or(0))
}

/// Returns the mode and the owner of the pseudo object that a file is on.
pub fn ownership_of_object(file: &FileHandle<'_>) -> Ownership {
    attributes_of(file).ownership
}

/// Changes the attributes of the pseudo object that a file is on.
///
/// # Errors
/// `EOPNOTSUPP` for an anonymous one; `ENOMEM`; those of `change`.
fn change_attributes(
    caller: &Caller<'_, '_>,
    file: &FileHandle<'_>,
    change: impl FnOnce(&mut PseudoAttributes, Timespec) -> Result<(), Errno>,
) -> Result<(), Errno> {
    let inode = file.pseudo_inode().ok_or(Errno::OPNOTSUPP)?;
    let state = pseudo_state(file, caller.vfs)?;
    let mut attributes = state.attributes.lock();
    let mut new = attributes.unwrap_or_else(|| new_attributes(file, inode));
    let now = caller.vfs.clock.now();
    change(&mut new, now)?;
    new.ctime = now;
    *attributes = Some(new);
    Ok(())
}

/// Changes the permissions of an open file (`fchmod`).
///
/// # Errors
/// As [`chmod`](super::chmod); `EOPNOTSUPP` for an anonymous descriptor.
pub fn fchmod(caller: &Caller<'_, '_>, file: &FileHandle<'_>, mode: u32) -> Result<(), Errno> {
    if let Some(place) = file.place() {
        return attributes::chmod(caller, place, mode);
    }
    change_attributes(caller, file, |of, _| {
        of.ownership.mode = of.ownership.chmod(caller.cred, mode)?;
        Ok(())
    })
}

/// Changes the owner and the group of an open file; -1 keeps one (`fchown`).
///
/// # Errors
/// As [`chown`](super::chown); `EOPNOTSUPP` for an anonymous descriptor.
pub fn fchown(
    caller: &Caller<'_, '_>,
    file: &FileHandle<'_>,
    uid: u32,
    gid: u32,
) -> Result<(), Errno> {
    if let Some(place) = file.place() {
        return attributes::chown(caller, place, uid, gid);
    }
    let given = |id| (id != u32::MAX).then_some(id);
    change_attributes(caller, file, |of, _| {
        of.ownership = of.ownership.chown(caller.cred, given(uid), given(gid))?;
        Ok(())
    })
}

/// Sets the times of access and of change of an open file (`futimens`).
///
/// # Errors
/// As [`utimens`](super::utimens); `EOPNOTSUPP` for an anonymous descriptor.
pub fn futimens(
    caller: &Caller<'_, '_>,
    file: &FileHandle<'_>,
    times: Option<[Timespec; 2]>,
) -> Result<(), Errno> {
    if let Some(place) = file.place() {
        return attributes::utimens(caller, place, times);
    }
    let times = match times {
        None => [SetTime::Now; 2],
        Some([atime, mtime]) => [SetTime::of(atime)?, SetTime::of(mtime)?],
    };
    change_attributes(caller, file, |of, now| {
        may_set_times(of.ownership, caller.cred, times)?;
        let [atime, mtime] = times.map(|time| time.resolve(now));
        (of.atime, of.mtime) = (atime.unwrap_or(of.atime), mtime.unwrap_or(of.mtime));
        Ok(())
    })
}

/// Describes the pseudo object that a file is on (`fstat`).
pub fn stat_of_object(file: &FileHandle<'_>) -> Stat {
    let PseudoAttributes { ownership, atime, mtime, ctime } = attributes_of(file);
    Stat {
        st_dev: device_of_object(file),
        st_mode: ownership.mode,
        st_ino: file.pseudo_inode().map_or(ANON_INO, |inode| inode.i_ino.into()),
        st_nlink: 1,
        st_uid: ownership.uid,
        st_gid: ownership.gid,
        st_blksize: PAGE as u32,
        st_atim: atime,
        st_mtim: mtime,
        st_ctim: ctime,
        ..Stat::default()
    }
}

/// Describes the pseudo object that a file is on at length (`statx`).
pub fn statx_of_object(file: &FileHandle<'_>) -> Statx {
    let stat = stat_of_object(file);
    Statx { stx_mask: STATX_BASIC_STATS, stat, ..Statx::default() }
}

/// The device numbers of the file systems of pseudo objects are 1 to this.
pub const PSEUDO_DEVICES: u64 = 3;

/// Returns the device number of the file system that the pseudo object of a file is in.
fn device_of_object(file: &FileHandle<'_>) -> u64 {
    file.mount().internal_id()
}

/// Describes the file system that an open file is in (`fstatfs`).
///
/// # Errors
/// Those of an embedder's file system.
pub fn fstatfs(caller: &Caller<'_, '_>, file: &FileHandle<'_>) -> Result<StatFs, Errno> {
    if let Some((mount, _)) = file.opened().tree() {
        return describe::statfs_in(caller, mount);
    }
    let f_type = match file.pseudo_mode().map(|mode| mode & S_IFMT) {
        None => ANON_INODE_FS_MAGIC,
        Some(S_IFSOCK) => SOCKFS_MAGIC,
        Some(_) => PIPEFS_MAGIC,
    };
    let f_bsize = PAGE as i64;
    let dev = device_of_object(file);
    Ok(StatFs {
        f_type,
        f_fsid: [dev as i32, (dev >> 32) as i32],
        f_bsize,
        f_namelen: 255,
        f_frsize: f_bsize,
        f_flags: ST_VALID,
        ..StatFs::default()
    })
}

/// Whether the caller may do all of `mask` with the pseudo object that a file is on, by the real
/// ids unless by those in effect (`faccessat2`).
///
/// # Errors
/// `EACCES`, `ENOMEM`.
pub fn access_object(
    caller: &Caller<'_, '_>,
    file: &FileHandle<'_>,
    mask: Mask,
    effective: bool,
) -> Result<(), Errno> {
    let ownership = attributes_of(file).ownership;
    let real = match effective {
        true => None,
        false => caller.cred.by_real_ids().map_err(|_| Errno::NOMEM)?,
    };
    ownership.permits(real.as_ref().unwrap_or(caller.cred), mask)
}

/// The only extended attribute of a pseudo object: the name of a socket's protocol.
const SOCKET_PROTOCOL: &[u8] = b"system.sockprotoname";

fn is_socket(file: &FileHandle<'_>) -> bool {
    file.pseudo_mode().is_some_and(|mode| mode & S_IFMT == S_IFSOCK)
}

/// Fails as the namespace of an attribute's name does before anything asks a pseudo object.
fn check_object_xattr(
    caller: &Caller<'_, '_>,
    file: &FileHandle<'_>,
    name: &[u8],
    mask: Mask,
) -> Result<(), Errno> {
    let refused = if mask == Mask::WRITE { Errno::PERM } else { Errno::NODATA };
    match name {
        [b's', b'e', b'c', b'u', b'r', b'i', b't', b'y', b'.', ..] => Ok(()),
        [b's', b'y', b's', b't', b'e', b'm', b'.', ..] => Ok(()),
        [b'u', b's', b'e', b'r', b'.', ..] => Err(refused),
        [b't', b'r', b'u', b's', b't', b'e', b'd', b'.', ..] => {
            if caller.cred.has(Capabilities::SYS_ADMIN) { Ok(()) } else { Err(refused) }
        }
        _ => attributes_of(file).ownership.permits(caller.cred, mask),
    }
}

/// Sets an extended attribute of an open file (`fsetxattr`).
///
/// # Errors
/// As [`setxattr`](super::setxattr); a pseudo object has none that can be set.
pub fn fsetxattr(
    caller: &Caller<'_, '_>,
    file: &FileHandle<'_>,
    name: &[u8],
    value: &[u8],
    flags: i32,
) -> Result<(), Errno> {
    if let Some(place) = file.place() {
        return xattr::setxattr(caller, place, name, value, flags);
    }
    check_object_xattr(caller, file, name, Mask::WRITE)?;
    Err(Errno::OPNOTSUPP)
}

/// Removes an extended attribute of an open file (`fremovexattr`).
///
/// # Errors
/// As [`removexattr`](super::removexattr); a pseudo object has none that can be removed.
pub fn fremovexattr(
    caller: &Caller<'_, '_>,
    file: &FileHandle<'_>,
    name: &[u8],
) -> Result<(), Errno> {
    if let Some(place) = file.place() {
        return xattr::removexattr(caller, place, name);
    }
    check_object_xattr(caller, file, name, Mask::WRITE)?;
    let again = is_socket(file) && name.len() > 9 && name.starts_with(b"security.");
    Err(if again { Errno::AGAIN } else { Errno::OPNOTSUPP })
}

/// Reads an extended attribute of an open file, which may be a socket of a named protocol
/// (`fgetxattr`). Returns the number of bytes; into nothing, only that number.
///
/// # Errors
/// As [`getxattr`](super::getxattr).
pub fn fgetxattr(
    caller: &Caller<'_, '_>,
    file: &FileHandle<'_>,
    protocol: Option<&str>,
    name: &[u8],
    to: &mut [u8],
) -> Result<usize, Errno> {
    if let Some(place) = file.place() {
        return xattr::getxattr(caller, place, name, to);
    }
    check_object_xattr(caller, file, name, Mask::READ)?;
    match protocol.filter(|_| name == SOCKET_PROTOCOL) {
        Some(protocol) => put_with_zero(protocol.as_bytes(), to),
        None => Err(Errno::OPNOTSUPP),
    }
}

/// Lists the names of the extended attributes of an open file (`flistxattr`). Returns the number of
/// bytes; into nothing, only that number.
///
/// # Errors
/// As [`listxattr`](super::listxattr).
pub fn flistxattr(
    caller: &Caller<'_, '_>,
    file: &FileHandle<'_>,
    to: &mut [u8],
) -> Result<usize, Errno> {
    match file.place() {
        Some(place) => xattr::listxattr(caller, place, to),
        None if is_socket(file) => put_with_zero(SOCKET_PROTOCOL, to),
        None => Ok(0),
    }
}

/// Copies bytes and a zero byte, unless there is no room at all.
fn put_with_zero(bytes: &[u8], to: &mut [u8]) -> Result<usize, Errno> {
    let len = bytes.len() + 1;
    if to.is_empty() {
        return Ok(len);
    }
    let to = to.get_mut(..len).ok_or(Errno::RANGE)?;
    to[..len - 1].copy_from_slice(bytes);
    to[len - 1] = 0;
    Ok(len)
}
