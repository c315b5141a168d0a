//! Hard links.

use super::{
    Caller, ask_child, inode_of, is_foreign_dir, may_change_names, not_removed, ownership, ramfs,
    time_for_both, touched,
};
use crate::abi::{LINK_MAX, S_ISGID, S_ISUID, S_IXGRP};
use crate::cred::Cred;
use crate::dcache::name::Name;
use crate::dentry::Dentry;
use crate::inode::{Changes, Inode, InodeFlags};
use crate::notify::{self, Event};
use crate::operations;
use crate::permission::Mask;
use crate::raw::dcache::locked::LockedDir;
use crate::raw::dcache::refs::DentryRef;
use crate::raw::mount::TreeMount;
use crate::raw::walk_path::Path;
use crate::walk::{How, Last, LastKind};
use rustix::io::Errno;

/// Gives what is at `old` another name (`linkat`).
///
/// # Errors
/// As the system call.
pub fn link<'k>(caller: &Caller<'_, 'k>, old: &Path<'k>, path: &[u8]) -> Result<(), Errno> {
    let quick = caller.quick_parent(path, |mount, dir, name, slash| {
        not_removed(dir.inode())?;
        link_name(caller, Old::At(old), mount, dir, name, slash, None)
    });
    quick.unwrap_or_else(|| link_odd(caller, old, path))
}

/// Gives what is at the path `old` another name in the same directory, without a reference to it; none, and nothing has been done, if
/// that is not ordinary, or cannot be done.
///
/// # Errors
/// `ENOSPC`, `ENOMEM`.
#[inline]
pub fn link_quickly(caller: &Caller<'_, '_>, old: &[u8], new: &[u8]) -> Option<Result<(), Errno>> {
    caller.quick_parents([old, new], true, |mount, dir, _, [old, new]| {
        not_removed(dir.inode()).ok()?;
        let old = dir.find(old).filter(|old| !old.is_special())?;
        match link_name(caller, Old::In(old), mount, dir, new, false, None) {
            Ok(()) => Some(Ok(())),
            Err(errno @ (Errno::NOSPC | Errno::NOMEM)) => Some(Err(errno)),
            // Whether this is what Linux says first, the other way knows.
            Err(_) => None,
        }
    })
}

/// What gets a name.
enum Old<'x, 'k> {
    /// What somebody has.
    At(&'x Path<'k>),
    /// What the locked directory has, in the mount.
    In(&'x Dentry),
    /// A pseudo object, which is in no mount of a tree.
    Object,
}

/// [`link`] where something is out of the ordinary.
#[cold]
#[inline(never)]
fn link_odd<'k>(caller: &Caller<'_, 'k>, old: &Path<'k>, path: &[u8]) -> Result<(), Errno> {
    let (parent, last) = link_at(caller, Old::At(old), path)?;
    notify::inode(caller.vfs, inode_of(old.dentry())?, Event::ATTRIB);
    notify::name(caller.vfs, &parent, last.bytes(), Event::CREATE, false);
    Ok(())
}

/// Fails as a link to a pseudo object does: no path is in its file system (`linkat`).
///
/// # Errors
/// Those of the path; `EXDEV`.
pub fn link_object(caller: &Caller<'_, '_>, path: &[u8]) -> Result<(), Errno> {
    link_at(caller, Old::Object, path).map(drop)
}

/// Gives a file a name at a path. Returns the directory and the name.
fn link_at<'k, 'p>(
    caller: &Caller<'_, 'k>,
    old: Old<'_, 'k>,
    path: &'p [u8],
) -> Result<(DentryRef<'k>, Last<'p>), Errno> {
    let (place, last) = caller.parent(path, How::NOFOLLOW)?;
    if last.kind() != LastKind::Name {
        return Err(Errno::EXIST);
    }
    if is_foreign_dir(place.dentry()) {
        link_foreign(caller, old, &place, &last)?;
        return Ok((place.into_parts().1, last));
    }
    let (mount, dir) = place.into_parts();
    let leave = mount.want_write();
    let forbidden = leave.as_ref().err().copied();
    let dir = LockedDir::lock(dir)?;
    not_removed(dir.inode())?;
    let name = caller.vfs.name(last.bytes())?;
    link_name(caller, old, &mount, &dir, &name, last.has_slash(), forbidden)?;
    let parent = dir.dir().clone();
    Ok((parent, last))
}

/// Gives a file a name in an embedder's directory.
fn link_foreign<'k>(
    caller: &Caller<'_, 'k>,
    old: Old<'_, 'k>,
    place: &Path<'k>,
    last: &Last<'_>,
) -> Result<(), Errno> {
    let (mount, dir) = (place.mount(), place.dentry());
    let leave = mount.want_write();
    let forbidden = leave.as_ref().err().copied();
    let inode = inode_of(dir)?;
    not_removed(inode)?;
    let name = caller.vfs.name(last.bytes())?;
    let found = ask_child(caller, place, last.bytes())?.is_some();
    let old = match old {
        Old::At(place) => Some(place),
        Old::In(_) | Old::Object => None,
    };
    let dentry = old.filter(|old| old.mount().same(mount)).map(Path::dentry);
    may_link_in(caller, dentry.map(|old| &**old), inode, found, last.has_slash(), forbidden)?;
    let old = dentry.ok_or(Errno::XDEV)?;
    if inode_of(old)?.nlink() == 0 {
        return Err(Errno::NOENT);
    }
    operations::link(caller, dir, &name, old)
}

/// Whether a caller may give a file that is in the same mount another name in a directory, which
/// may have the name.
#[inline(always)]
fn may_link_in(
    caller: &Caller<'_, '_>,
    old: Option<&Dentry>,
    dir: &Inode,
    found: bool,
    slash: bool,
    forbidden: Option<Errno>,
) -> Result<(), Errno> {
    if found {
        return Err(Errno::EXIST);
    }
    if slash {
        return Err(Errno::NOENT);
    }
    forbidden.map_or(Ok(()), Err)?;
    let inode = old.ok_or(Errno::XDEV)?.inode().ok_or(Errno::NOENT)?;
    may_link(inode, caller.cred)?;
    may_change_names(dir, caller.cred)?;
    if inode.is_dir() { Err(Errno::PERM) } else { Ok(()) }
}

/// Gives a file a name in a locked directory, which may be forbidden in the mount.
fn link_name<'k>(
    caller: &Caller<'_, 'k>,
    old: Old<'_, 'k>,
    mount: &TreeMount,
    dir: &LockedDir<'k>,
    name: &Name<'_>,
    slash: bool,
    forbidden: Option<Errno>,
) -> Result<(), Errno> {
    let old: Option<&Dentry> = match old {
        Old::Object => None,
        Old::At(place) => Some(&**place.dentry()).filter(|_| place.mount().same(mount)),
        Old::In(dentry) => Some(dentry),
    };
    may_link_in(caller, old, dir.inode(), dir.find(name).is_some(), slash, forbidden)?;
    let old = old.ok_or(Errno::XDEV)?;
    let inode = old.inode().ok_or(Errno::NOENT)?;
    let fs = ramfs(dir.dir().super_block())?;
    let mut locked = inode.lock();
    let nlink = inode.nlink();
    if nlink == 0 && !inode.flags().contains(InodeFlags::LINKABLE) {
        return Err(Errno::NOENT);
    }
    if nlink == LINK_MAX {
        return Err(Errno::MLINK);
    }
    // The first link of a file that had none was counted when it was made.
    let counts = nlink != 0;
    if counts && !fs.limits().charge_inode() {
        return Err(Errno::NOSPC);
    }
    let linked = dir.alloc(name).and_then(|mut child| {
        child.instantiate(dir.inode_ref(old).ok_or(Errno::NOENT)?);
        dir.enter(child)
    });
    if let Err(errno) = linked {
        if counts {
            fs.limits().uncharge_inode();
        }
        return Err(errno);
    }
    let time = time_for_both(caller.vfs, inode, dir.inode());
    locked.set_flags(InodeFlags::empty(), InodeFlags::LINKABLE);
    locked.change(&Changes { nlink: Some(nlink + 1), ctime: Some(time), ..Changes::default() });
    drop(locked);
    dir.change(&touched(dir.inode(), 1, 0, time));
    Ok(())
}

/// Whether somebody may give a file another name: its owner may; others only what is harmless and theirs to read and write
/// (`fs.protected_hardlinks`).
fn may_link(inode: &Inode, cred: &Cred) -> Result<(), Errno> {
    let of = ownership(inode);
    if of.owned_by(cred) {
        return Ok(());
    }
    let set_id = of.mode & S_ISUID != 0 || of.mode & (S_ISGID | S_IXGRP) == S_ISGID | S_IXGRP;
    let harmless = inode.is_file() && !set_id && of.permits(cred, Mask::READ | Mask::WRITE).is_ok();
    if harmless { Ok(()) } else { Err(Errno::PERM) }
}
