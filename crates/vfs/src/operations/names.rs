//! Names of embedders' files: what makes, removes and renames them.
//!
//! A method decides, without any lock of the kernel. The dentry cache follows under the locks of the
//! directories. Another thread may have looked the name up between the two, or changed it again: an
//! answer that may be older than a change is kept, but [asked about](ForeignNode::begin_question)
//! once more by the next walk.

use super::node::{Asked, check};
use super::{Entry, ForeignNode, NewFile, foreign};
use crate::abi::{S_IFDIR, S_IFMT};
use crate::dcache::name::Name;
use crate::inode::{Attributes, Changes, Inode, InodeFlags, InodeGuard, Node};
use crate::namei::{Caller, New, inode_of, proposed, time_for};
use crate::raw::dcache::refs::DentryRef;
use rustix::io::Errno;

/// The inode of a directory, and its node.
///
/// # Errors
/// `ENOENT` for a directory that has been removed from the tree.
fn directory<'d>(dir: &'d DentryRef<'_>) -> Result<(&'d Inode, &'d ForeignNode), Errno> {
    let inode = inode_of(dir)?;
    if !dir.is_hashed() {
        return Err(Errno::NOENT);
    }
    Ok((inode, inode.node().and_then(Node::foreign).ok_or(Errno::PERM)?))
}

/// Changes the attributes of an inode of any kind in memory.
pub(super) fn change(inode: &Inode, changes: impl FnOnce(&mut InodeGuard<'_>) -> Changes) {
    match inode.node().and_then(Node::foreign) {
        Some(node) => node.changed(inode, changes),
        None => {
            let mut locked = inode.lock();
            let changes = changes(&mut locked);
            locked.change(&changes);
        }
    }
}

/// Changes the attributes of a directory in memory after names came or went.
fn touch(caller: &Caller<'_, '_>, dir: &Inode, subdirs: i32) {
    change(dir, |_| {
        let time = Some(time_for(caller.vfs, dir));
        let nlink = (subdirs != 0).then(|| dir.nlink().saturating_add_signed(subdirs));
        Changes { nlink, mtime: time, ctime: time, ..Changes::default() }
    });
}

/// Changes the attributes of an inode in memory after a name of it has gone.
fn lose_link(caller: &Caller<'_, '_>, inode: &Inode) {
    change(inode, |locked| {
        let mut left = inode.nlink().saturating_sub(1);
        if inode.is_dir() {
            locked.set_flags(InodeFlags::DEAD, InodeFlags::empty());
            left = 0;
        }
        let ctime = Some(time_for(caller.vfs, inode));
        Changes { nlink: Some(left), ctime, ..Changes::default() }
    });
}

/// A file that a method has made, and that is not in the dentry cache yet.
pub(crate) struct Made {
    entry: Entry,
    asked: Asked,
}

impl Made {
    /// Puts the file into the dentry cache. Returns the dentry of the name, and whether it is that
    /// of the new file: another thread may have looked the name up.
    ///
    /// # Errors
    /// `ENOENT` if the directory has been removed; `ENOMEM`.
    pub(crate) fn enter<'k>(
        self,
        dir: &DentryRef<'k>,
        name: &Name<'_>,
    ) -> Result<(DentryRef<'k>, bool), Errno> {
        directory(dir)?.1.enter(dir, name, self.entry, self.asked)
    }
}

/// Makes a file in a directory that has no such name.
///
/// # Errors
/// The method's; `EIO` for an entry of another type.
pub(crate) fn create(
    caller: &Caller<'_, '_>,
    dir: &DentryRef<'_>,
    name: &Name<'_>,
    new: New<'_>,
) -> Result<Made, Errno> {
    let (inode, node) = directory(dir)?;
    let requester = caller.requester();
    let who = requester.caller()?;
    let now = caller.vfs.clock.now();
    let of = proposed(caller, inode, new, now);
    let target = if let New::Symlink(target) = new { target } else { &[] };
    let attributes = Attributes {
        ino: 0,
        mode: of.mode,
        nlink: of.nlink,
        uid: of.uid,
        gid: of.gid,
        rdev: of.rdev,
        size: target.len() as u64,
        blocks: 0,
        atime: now,
        mtime: now,
        ctime: now,
        btime: now,
    };
    let asked = node.begin_question(name);
    let entry = foreign(node.ops().create(&who, name.bytes(), &NewFile { attributes, target }))?;
    check(&entry.attributes)?;
    let kind = entry.attributes.mode & S_IFMT;
    if kind != of.mode & S_IFMT {
        return Err(Errno::IO);
    }
    touch(caller, inode, i32::from(kind == S_IFDIR));
    Ok(Made { entry, asked })
}

/// Gives a file other than a directory another name.
///
/// # Errors
/// The method's; `EPERM` for an inode without a node.
pub(crate) fn link<'k>(
    caller: &Caller<'_, 'k>,
    dir: &DentryRef<'k>,
    name: &Name<'_>,
    old: &DentryRef<'k>,
) -> Result<(), Errno> {
    let (inode, node) = directory(dir)?;
    let of = inode_of(old)?;
    let target = of.node().and_then(Node::foreign).ok_or(Errno::PERM)?;
    let requester = caller.requester();
    let who = requester.caller()?;
    let asked = node.begin_question(name);
    foreign(node.ops().link(&who, name.bytes(), target.ops()))?;
    change(of, |_| {
        let nlink = Some(of.nlink().saturating_add(1));
        Changes { nlink, ctime: Some(time_for(caller.vfs, of)), ..Changes::default() }
    });
    touch(caller, inode, 0);
    if let Some(of) = old.inode_ref() {
        // Without memory for a dentry, the name is looked up.
        let _ = node.enter_inode(dir, name, of, asked);
    }
    Ok(())
}

/// Removes a name that `victim` has had: of an empty directory, or of another file.
///
/// # Errors
/// The method's.
pub(crate) fn remove<'k>(
    caller: &Caller<'_, 'k>,
    dir: &DentryRef<'k>,
    name: &Name<'_>,
    victim: &DentryRef<'k>,
) -> Result<(), Errno> {
    let (inode, node) = directory(dir)?;
    let of = inode_of(victim)?;
    let requester = caller.requester();
    let who = requester.caller()?;
    foreign(match of.is_dir() {
        true => node.ops().rmdir(&who, name.bytes()),
        false => node.ops().unlink(&who, name.bytes()),
    })?;
    // Otherwise the name has been given to another file meanwhile.
    if node.forget(dir, name).is_some_and(|gone| gone.same(victim)) {
        lose_link(caller, of);
    }
    touch(caller, inode, if of.is_dir() { -1 } else { 0 });
    Ok(())
}

/// A name in a directory.
pub(crate) type Place<'x, 'k> = (&'x DentryRef<'k>, &'x [u8]);

/// Asks a directory to rename an entry.
///
/// # Errors
/// The method's.
pub(crate) fn rename(
    caller: &Caller<'_, '_>,
    from: Place<'_, '_>,
    to: Place<'_, '_>,
    flags: u32,
) -> Result<(), Errno> {
    let (old, new) = (directory(from.0)?.1, directory(to.0)?.1);
    let requester = caller.requester();
    let who = requester.caller()?;
    foreign(old.ops().rename(&who, from.1, new.ops(), to.1, flags))
}

/// Notes that a name of a locked directory has changed.
pub(crate) fn name_changed(locked: &InodeGuard<'_>, name: &Name<'_>) {
    if let Some(node) = locked.inode().node().and_then(Node::foreign) {
        node.name_changed(locked, name);
    }
}

/// Changes attributes in memory after a rename: of the moved file, of the replaced one, and of
/// the directories.
pub(crate) fn renamed(
    caller: &Caller<'_, '_>,
    [from, to]: [&Inode; 2],
    source: &Inode,
    replaced: Option<&Inode>,
    exchanged: bool,
) {
    let dirs = |inode: Option<&Inode>| i32::from(inode.is_some_and(Inode::is_dir));
    let (comes, goes) = (dirs(Some(source)), dirs(replaced));
    let apart = !from.same(to);
    for inode in [Some(source), replaced.filter(|_| exchanged)].into_iter().flatten() {
        change(inode, |_| Changes {
            ctime: Some(time_for(caller.vfs, inode)),
            ..Changes::default()
        });
    }
    if let Some(replaced) = replaced.filter(|_| !exchanged) {
        lose_link(caller, replaced);
    }
    match (apart, exchanged) {
        (false, true) => touch(caller, from, 0),
        (false, false) => touch(caller, from, -goes),
        (true, true) => {
            touch(caller, from, goes - comes);
            touch(caller, to, comes - goes);
        }
        (true, false) => {
            touch(caller, from, -comes);
            touch(caller, to, comes - goes);
        }
    }
}

/// Takes a name out of the dentry cache that a method has changed.
pub(crate) fn forget(dir: &DentryRef<'_>, name: &Name<'_>) {
    if let Ok((_, node)) = directory(dir) {
        drop(node.forget(dir, name));
    }
}
