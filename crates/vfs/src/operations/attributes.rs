//! Attributes of embedders' files, extended ones too: how they change.

use super::names::change;
use super::{Caller, ForeignNode, foreign};
use crate::cred::Capabilities;
use crate::inode::{Changes, Inode, Node};
use crate::namei::{self, time_for};
use crate::ramfs::xattr::{NAME_MAX, SIZE_MAX};
use rustix::io::Errno;

/// The most bytes of a list of names (`XATTR_LIST_MAX`).
const LIST_MAX: usize = 65_536;

/// Calls a method of an inode.
fn ask<R>(
    caller: &namei::Caller<'_, '_>,
    inode: &Inode,
    method: impl FnOnce(&ForeignNode, &Caller<'_>) -> Result<R, Errno>,
) -> Result<R, Errno> {
    let node = inode.node().and_then(Node::foreign).ok_or(Errno::PERM)?;
    let requester = caller.requester();
    foreign(method(node, &requester.caller()?))
}

/// Changes attributes that the caller may change, and the time of the last change with them.
///
/// # Errors
/// The method's.
pub(crate) fn setattr(
    caller: &namei::Caller<'_, '_>,
    inode: &Inode,
    changes: &Changes,
) -> Result<(), Errno> {
    let told = Changes { ctime: Some(caller.vfs.clock.now()), ..*changes };
    ask(caller, inode, |node, who| node.ops().setattr(who, &told))?;
    change(inode, |_| Changes { ctime: Some(time_for(caller.vfs, inode)), ..*changes });
    Ok(())
}

/// Changes the time of the last change in memory.
fn touch(caller: &namei::Caller<'_, '_>, inode: &Inode) {
    change(inode, |_| Changes { ctime: Some(time_for(caller.vfs, inode)), ..Changes::default() });
}

/// Sets an extended attribute.
///
/// # Errors
/// The method's.
pub(crate) fn setxattr(
    caller: &namei::Caller<'_, '_>,
    inode: &Inode,
    name: &[u8],
    value: &[u8],
    flags: i32,
) -> Result<(), Errno> {
    ask(caller, inode, |node, who| node.ops().setxattr(who, name, value, flags))?;
    touch(caller, inode);
    Ok(())
}

/// Removes an extended attribute.
///
/// # Errors
/// The method's.
pub(crate) fn removexattr(
    caller: &namei::Caller<'_, '_>,
    inode: &Inode,
    name: &[u8],
) -> Result<(), Errno> {
    ask(caller, inode, |node, who| node.ops().removexattr(who, name))?;
    touch(caller, inode);
    Ok(())
}

/// Reads an extended attribute. Returns the number of bytes; into nothing, only that number.
///
/// # Errors
/// The method's; `ERANGE`; `EIO` for a value that is too long.
pub(crate) fn getxattr(
    caller: &namei::Caller<'_, '_>,
    inode: &Inode,
    name: &[u8],
    to: &mut [u8],
) -> Result<usize, Errno> {
    let value = ask(caller, inode, |node, who| node.ops().getxattr(who, name))?;
    if value.len() > SIZE_MAX {
        return Err(Errno::IO);
    }
    if !to.is_empty() {
        to.get_mut(..value.len()).ok_or(Errno::RANGE)?.copy_from_slice(&value);
    }
    Ok(value.len())
}

/// Lists the names of extended attributes, each with a zero behind it. Returns the number of bytes;
/// into nothing, only that number.
///
/// # Errors
/// The method's; `ERANGE`; `E2BIG` for more than a list can have; `EIO` for a name that no attribute
/// can have.
pub(crate) fn listxattr(
    caller: &namei::Caller<'_, '_>,
    inode: &Inode,
    to: &mut [u8],
) -> Result<usize, Errno> {
    let sees_trusted = caller.cred.has(Capabilities::SYS_ADMIN);
    let (mut done, mut wrong) = (0_usize, None);
    let mut each = |name: &[u8]| {
        if wrong.is_some() || name.starts_with(b"trusted.") && !sees_trusted {
            return;
        }
        if name.is_empty() || name.len() > NAME_MAX || name.contains(&0) {
            wrong = Some(Errno::IO);
            return;
        }
        let end = done + name.len() + 1;
        if end > LIST_MAX {
            wrong = Some(Errno::TOOBIG);
            return;
        }
        if !to.is_empty() {
            match to.get_mut(done..end) {
                Some(to) => {
                    to[..name.len()].copy_from_slice(name);
                    to[name.len()] = 0;
                }
                None => wrong = Some(Errno::RANGE),
            }
        }
        done = end;
    };
    ask(caller, inode, |node, who| node.ops().listxattr(who, &mut each))?;
    wrong.map_or(Ok(done), Err)
}
