//! Renaming.
//!
//! Long, because what is checked in which order is most of it.

use super::create::{New, new_inode};
use super::remove::is_mountpoint;
use super::{
    Caller, ask_child, inode_of, is_foreign_dir, later_than_told, may_change_names, may_delete,
    not_removed, ramfs, time_for, time_for_both, touch_dir, touched,
};
use crate::abi::{RENAME_EXCHANGE, RENAME_NOREPLACE, RENAME_WHITEOUT, S_IFCHR};
use crate::dcache::name::Name;
use crate::dentry::Dentry;
use crate::inode::{Changes, Inode, InodeFlags, InodeGuard};
use crate::notify;
use crate::operations;
use crate::permission::{Mask, permission};
use crate::raw::dcache::change::Dirs;
use crate::raw::dcache::locked::LockedDir;
use crate::raw::dcache::refs::{DentryRef, NewName};
use crate::raw::walk_path::Path;
use crate::vfs::Vfs;
use crate::walk::{Last, LastKind};
use rustix::io::Errno;

/// A name in a directory.
type Place<'x, 'k> = (&'x Path<'k>, &'x Last<'x>);

/// Renames what is at one place, which a path's last component is, to another (`renameat2`).
///
/// Writes the lines of both directories and of the file; from one directory to another, the filesystem's lock of renames (but for files if neither
/// directory is locked: they are tried first).
///
/// # Errors
/// As the system call.
pub fn rename<'k>(
    caller: &Caller<'_, 'k>,
    (old_parent, old_last): &(Path<'k>, Last<'_>),
    (new_parent, new_last): &(Path<'k>, Last<'_>),
    flags: u32,
) -> Result<(), Errno> {
    check_rename_flags(flags)?;
    if !old_parent.mount().same(new_parent.mount()) {
        return Err(Errno::XDEV);
    }
    if old_last.kind() != LastKind::Name {
        return Err(Errno::BUSY);
    }
    if new_last.kind() != LastKind::Name {
        return Err(if flags & RENAME_NOREPLACE != 0 { Errno::EXIST } else { Errno::BUSY });
    }
    let _leave = old_parent.mount().want_write()?;
    let (from, to) = ((old_parent, old_last), (new_parent, new_last));
    // What is given back at the end, when no lock is held.
    let mut kept = Kept::default();
    let done = if is_foreign_dir(old_parent.dentry()) {
        rename_foreign(caller, from, to, flags, &mut kept)
    } else {
        with_dirs([old_parent, new_parent].map(Path::dentry), |dirs| {
            locked(caller, dirs, from, to, flags, &mut kept)
        })?
    };
    done.map(|done| done.tell(caller.vfs, from, to, &kept))
}

/// Calls `f` with the locks of the directory that a name leaves and of the one that it comes to.
///
/// # Errors
/// `ENOENT` for a dentry that stands for nothing.
fn with_dirs<R>(
    [old, new]: [&DentryRef<'_>; 2],
    f: impl FnOnce(&mut Dirs<'_, '_>) -> R,
) -> Result<R, Errno> {
    let (from, to) = (inode_of(old)?, inode_of(new)?);
    if from.same(to) {
        return Ok(f(&mut Dirs::Same(&mut from.lock())));
    }
    let _renames = old.super_block().lock_renames();
    let new_first = if old.is_below(new) {
        true
    } else if new.is_below(old) {
        false
    } else {
        core::ptr::from_ref(to) < core::ptr::from_ref(from)
    };
    let (mut first, mut second);
    if new_first {
        second = to.lock();
        first = from.lock();
    } else {
        first = from.lock();
        second = to.lock();
    }
    Ok(f(&mut Dirs::Two(&mut first, &mut second)))
}

/// A rename by an embedder's directory. Its method decides, without a lock. Then the dentries are
/// moved, if they still are where they were. Otherwise both names go out of the cache.
fn rename_foreign<'k>(
    caller: &Caller<'_, 'k>,
    from: Place<'_, 'k>,
    to: Place<'_, 'k>,
    flags: u32,
    kept: &mut Kept<'k>,
) -> Result<Done, Errno> {
    let exchanged = flags & RENAME_EXCHANGE != 0;
    let dirs @ [old_dir, new_dir] = [from.0.dentry(), to.0.dentry()];
    let inodes = [inode_of(old_dir)?, inode_of(new_dir)?];
    let find = |(dir, last): Place<'_, 'k>, _: &Name<'_>| ask_child(caller, dir, last.bytes());
    let names = checked(caller, inodes, from, to, flags, kept, find)?;
    let Some([old_name, new_name]) = names else {
        return Ok(Done { nothing: true, exchanged: false });
    };
    let source = kept.source.clone().ok_or(Errno::NOENT)?;
    let name = source.new_name(&new_name)?;
    operations::rename(caller, (old_dir, from.1.bytes()), (new_dir, to.1.bytes()), flags)?;
    let (expected, mut target) = (kept.target.take(), None);
    let moved = with_dirs(dirs, |dirs| {
        operations::name_changed(dirs.old_mut(), &old_name);
        operations::name_changed(dirs.new_mut(), &new_name);
        let there = old_dir.lookup(&old_name).is_some_and(|there| there.same(&source));
        target = new_dir.lookup(&new_name);
        there && move_dentry(dirs, [old_dir, new_dir], &source, target.as_ref(), name, exchanged)
    });
    if moved != Ok(true) {
        operations::forget(old_dir, &old_name);
        operations::forget(new_dir, &new_name);
    }
    // A name that came to be another file's meanwhile has not been replaced by this call.
    let same = match (&expected, &target) {
        (Some(expected), Some(target)) => expected.same(target),
        (None, None) => true,
        _ => false,
    };
    kept.target = target.filter(|_| same);
    let replaced = kept.target.as_ref().and_then(|target| target.inode());
    operations::renamed(caller, inodes, inode_of(&source)?, replaced, exchanged);
    Ok(Done { nothing: false, exchanged })
}

/// Moves a dentry between locked directories, in place of another one, or exchanges the two.
/// Returns `false` if the tree does not allow it any more, or without memory.
fn move_dentry<'k>(
    dirs: &mut Dirs<'_, '_>,
    [old_dir, new_dir]: [&DentryRef<'k>; 2],
    source: &DentryRef<'k>,
    target: Option<&DentryRef<'k>>,
    name: NewName<'k>,
    exchange: bool,
) -> bool {
    let is_dir = |dentry: &DentryRef<'_>| dentry.inode().is_some_and(Inode::is_dir);
    // A method may permit what makes no tree.
    if is_dir(source) && new_dir.is_below(source) || target.is_some_and(|t| old_dir.is_below(t)) {
        return false;
    }
    match (exchange, target) {
        (true, Some(target)) => source.exchange(dirs, target).is_ok(),
        (true, None) => false,
        (false, target) => source.rename(dirs, new_dir, name, target).is_ok(),
    }
}

/// Renames what is at one path to another, without a reference to anything; none, and nothing has been done, if that is not ordinary
/// (a directory, a mountpoint, a name that is not there), or cannot be done.
///
/// Writes the lines of both directories and of the file. A file cannot become its own ancestor, so no lock of renames is taken.
///
/// # Errors
/// `ENOMEM`.
#[inline]
pub fn rename_quickly(
    caller: &Caller<'_, '_>,
    old: &[u8],
    new: &[u8],
) -> Option<Result<(), Errno>> {
    // What was replaced is given back when no lock is held.
    let done = caller.quick_parents([old, new], false, |_, from, to, names| {
        move_name(caller, from, to, names)
    })?;
    Some(done.map(drop))
}

/// What a name is of that is no directory and that nothing is mounted on.
#[inline]
fn ordinary(dentry: &Dentry) -> Option<&Inode> {
    dentry.inode().filter(|inode| !inode.is_dir() && !crate::walk::maybe_mounted(dentry))
}

/// Renames a file in a locked directory, or from one to another; the reference that the directory had to what was replaced.
fn move_name<'k>(
    caller: &Caller<'_, 'k>,
    from: &LockedDir<'k>,
    to: Option<&LockedDir<'k>>,
    [old_name, new_name]: [&Name<'_>; 2],
) -> Option<Result<Option<DentryRef<'k>>, Errno>> {
    let new_dir = to.unwrap_or(from);
    let source = from.find(old_name)?;
    let inode = ordinary(source)?;
    let target = new_dir.find(new_name);
    let over = match target {
        None => None,
        Some(target) => Some(ordinary(target).filter(|over| !over.same(inode))?),
    };
    may_delete(from.inode(), inode, caller.cred).ok()?;
    match over {
        None if to.is_none() => {}
        None => may_change_names(new_dir.inode(), caller.cred).ok()?,
        Some(over) => may_delete(new_dir.inode(), over, caller.cred).ok()?,
    }
    let fs = ramfs(from.dir().super_block()).ok()?;
    let mut locked = over.map(Inode::lock);
    // Once more, under its lock: whoever mounts something on it has that.
    if target.is_some_and(crate::walk::maybe_mounted) {
        return None;
    }
    let moved =
        from.dir().new_name(new_name).and_then(|name| from.rename(source, to, name, target));
    let pin = match moved {
        Ok(pin) => pin,
        Err(errno) => return Some(Err(errno)),
    };
    if let Some(locked) = &mut locked
        && replaced(caller.vfs, locked) > 0
    {
        fs.limits().uncharge_inode();
    }
    drop(locked);
    let time = {
        let mut locked = inode.lock();
        let time = time_for_both(caller.vfs, inode, from.inode());
        let time =
            if to.is_none() { time } else { later_than_told(caller.vfs, time, new_dir.inode()) };
        locked.change(&Changes { ctime: Some(time), ..Changes::default() });
        time
    };
    let came = i64::from(target.is_none());
    match to {
        None => from.change(&touched(from.inode(), came - 1, 0, time)),
        Some(to) => {
            from.change(&touched(from.inode(), -1, 0, time));
            to.change(&touched(to.inode(), came, 0, time));
        }
    }
    Some(Ok(pin))
}

/// What must be right of `renameat2`'s flags.
///
/// # Errors
/// `EINVAL`.
pub fn check_rename_flags(flags: u32) -> Result<(), Errno> {
    let apart = RENAME_NOREPLACE | RENAME_WHITEOUT;
    let unknown = flags & !(apart | RENAME_EXCHANGE) != 0;
    let contradiction = flags & RENAME_EXCHANGE != 0 && flags & apart != 0;
    if unknown || contradiction { Err(Errno::INVAL) } else { Ok(()) }
}

/// References that are given back when no lock is held.
#[derive(Default)]
struct Kept<'k> {
    source: Option<DentryRef<'k>>,
    target: Option<DentryRef<'k>>,
    whiteout: Option<DentryRef<'k>>,
    pin: Option<DentryRef<'k>>,
}

/// What a rename did.
struct Done {
    /// The two names were for one file: nothing happened.
    nothing: bool,
    exchanged: bool,
}

impl Done {
    /// Tells those who watch.
    fn tell(self, vfs: &Vfs, from: Place<'_, '_>, to: Place<'_, '_>, kept: &Kept<'_>) {
        let Some(source) = kept.source.as_ref().filter(|_| !self.nothing) else { return };
        let target = kept.target.as_ref();
        if !self.exchanged
            && let Some(replaced) = target
        {
            vfs.detach_mounts(replaced);
        }
        let [from, to] = [from, to].map(|(parent, last)| (&**parent.dentry(), last.bytes()));
        notify::moved(vfs, from, to, source, target.filter(|_| !self.exchanged));
        if self.exchanged
            && let Some(target) = target
        {
            notify::moved(vfs, to, from, target, None);
        }
    }
}

/// Finds what the two names of a rename stand for with `find`, and checks it. Returns the names;
/// `None` if both
/// are of one file.
fn checked<'x, 'k>(
    caller: &Caller<'_, 'k>,
    [from_dir, to_dir]: [&Inode; 2],
    from: Place<'x, 'k>,
    to: Place<'x, 'k>,
    flags: u32,
    kept: &mut Kept<'k>,
    find: impl Fn(Place<'_, 'k>, &Name<'_>) -> Result<Option<DentryRef<'k>>, Errno>,
) -> Result<Option<[Name<'x>; 2]>, Errno> {
    let exchange = flags & RENAME_EXCHANGE != 0;
    let (old_dir, new_dir) = (from.0.dentry(), to.0.dentry());
    not_removed(from_dir)?;
    let old_name = caller.vfs.name(from.1.bytes())?;
    kept.source = find(from, &old_name)?;
    let source = kept.source.as_ref().ok_or(Errno::NOENT)?;
    not_removed(to_dir)?;
    let new_name = caller.vfs.name(to.1.bytes())?;
    kept.target = find(to, &new_name)?;
    let target = kept.target.as_ref();
    if flags & RENAME_NOREPLACE != 0 && target.is_some() {
        return Err(Errno::EXIST);
    }
    let inode = inode_of(source)?;
    let over = target.map(inode_of).transpose()?;
    if exchange {
        let over = over.ok_or(Errno::NOENT)?;
        if !over.is_dir() && to.1.has_slash() {
            return Err(Errno::NOTDIR);
        }
    }
    if !inode.is_dir() && (from.1.has_slash() || (!exchange && to.1.has_slash())) {
        return Err(Errno::NOTDIR);
    }
    let apart = !old_dir.same(new_dir);
    if apart {
        // A directory does not become its own descendant, and does not replace its ancestor.
        if inode.is_dir() && new_dir.is_below(source) {
            return Err(Errno::INVAL);
        }
        if target.is_some_and(|target| old_dir.is_below(target)) {
            return Err(if exchange { Errno::INVAL } else { Errno::NOTEMPTY });
        }
    }
    if over.is_some_and(|over| over.same(inode)) {
        return Ok(None);
    }
    permitted(caller, [from_dir, to_dir], inode, over, apart, exchange)?;
    if is_mountpoint(caller, from.0.mount(), source)
        || target.is_some_and(|target| is_mountpoint(caller, to.0.mount(), target))
    {
        return Err(Errno::BUSY);
    }
    Ok(Some([old_name, new_name]))
}

/// The rename, under the locks of the directories.
fn locked<'k>(
    caller: &Caller<'_, 'k>,
    dirs: &mut Dirs<'_, '_>,
    from: Place<'_, 'k>,
    to: Place<'_, 'k>,
    flags: u32,
    kept: &mut Kept<'k>,
) -> Result<Done, Errno> {
    let (old_dir, new_dir) = (from.0.dentry(), to.0.dentry());
    let inodes = [inode_of(old_dir)?, inode_of(new_dir)?];
    let find = |(dir, _): Place<'_, 'k>, name: &Name<'_>| Ok(dir.dentry().lookup(name));
    let names = checked(caller, inodes, from, to, flags, kept, find)?;
    let Some([old_name, new_name]) = names else {
        return Ok(Done { nothing: true, exchanged: false });
    };
    let (source, target) = (kept.source.as_ref().ok_or(Errno::NOENT)?, kept.target.as_ref());
    let (inode, over) = (inode_of(source)?, target.map(inode_of).transpose()?);
    let apart = !old_dir.same(new_dir);
    let fs = ramfs(old_dir.super_block())?;
    let vfs = caller.vfs;
    if flags & RENAME_EXCHANGE != 0 {
        let target = target.ok_or(Errno::NOENT)?;
        source.relist_exchanged(dirs, target)?;
        exchanged(vfs, dirs, inode, over.ok_or(Errno::NOENT)?, apart);
        return Ok(Done { nothing: false, exchanged: true });
    }
    let mut locked = over.map(Inode::lock);
    if let Some(locked) = &locked
        && locked.inode().is_dir()
        && locked.listing.len() != 0
    {
        return Err(Errno::NOTEMPTY);
    }
    // Once more, under its lock: whoever mounts something on it has that.
    if target.is_some_and(|target| is_mountpoint(caller, to.0.mount(), target)) {
        return Err(Errno::BUSY);
    }
    let whiteout = flags & RENAME_WHITEOUT != 0;
    let name = source.new_name(&new_name)?;
    if whiteout {
        kept.whiteout = Some(make_whiteout(caller, dirs.old_mut(), old_dir, &old_name)?);
    }
    match source.relist(dirs, new_dir, name, target) {
        Ok(pin) => kept.pin = pin,
        Err(errno) => {
            kept.pin = kept.whiteout.as_ref().and_then(|whiteout| whiteout.delist(dirs.old_mut()));
            return Err(errno);
        }
    }
    if let Some(locked) = &mut locked {
        let left = replaced(vfs, locked);
        if left > 0 {
            fs.limits().uncharge_inode();
        }
    }
    drop(locked);
    change_ctime(vfs, inode);
    let subdir = i32::from(inode.is_dir());
    let (in_place, whiteouts) = (over.is_some(), i64::from(whiteout));
    match dirs {
        Dirs::Same(dir) => {
            touch_dir(
                vfs,
                dir,
                whiteouts - i64::from(in_place),
                if in_place { -subdir } else { 0 },
            );
        }
        Dirs::Two(old, new) => {
            touch_dir(vfs, old, whiteouts - 1, -subdir);
            touch_dir(vfs, new, i64::from(!in_place), if in_place { 0 } else { subdir });
        }
    }
    Ok(Done { nothing: false, exchanged: false })
}

/// Makes what a rename with `RENAME_WHITEOUT` leaves behind: a character device 0:0 of the name, which stays beside what is to
/// go away until that has gone. So who looks the name up finds one or the other.
fn make_whiteout<'k>(
    caller: &Caller<'_, 'k>,
    dir: &mut InodeGuard<'_>,
    parent: &DentryRef<'k>,
    name: &Name<'_>,
) -> Result<DentryRef<'k>, Errno> {
    let inode =
        new_inode(caller, parent, New::Node(S_IFCHR, 0), time_for(caller.vfs, dir.inode()))?;
    let mut child = parent.alloc(name)?;
    child.instantiate(inode);
    child.enlist_held(dir)
}

/// Whether somebody may rename so (`may_delete`, `may_create` of both directories).
fn permitted(
    caller: &Caller<'_, '_>,
    [from_dir, to_dir]: [&Inode; 2],
    inode: &Inode,
    over: Option<&Inode>,
    apart: bool,
    exchange: bool,
) -> Result<(), Errno> {
    let is_dir = inode.is_dir();
    may_delete(from_dir, inode, caller.cred)?;
    match over {
        None => may_change_names(to_dir, caller.cred)?,
        Some(over) => {
            may_delete(to_dir, over, caller.cred)?;
            match (is_dir, over.is_dir()) {
                (true, false) if !exchange => return Err(Errno::NOTDIR),
                (false, true) if !exchange => return Err(Errno::ISDIR),
                _ => {}
            }
        }
    }
    // Another directory has another `..`, which is written.
    if apart && is_dir {
        permission(inode, caller.cred, Mask::WRITE)?;
    }
    if apart
        && exchange
        && let Some(over) = over.filter(|over| over.is_dir())
    {
        permission(over, caller.cred, Mask::WRITE)?;
    }
    Ok(())
}

/// What was replaced has one name less; how many are left.
fn replaced(vfs: &Vfs, over: &mut InodeGuard<'_>) -> u32 {
    let inode = over.inode();
    let time = time_for(vfs, inode);
    let left = if inode.is_dir() { 0 } else { inode.nlink().saturating_sub(1) };
    if inode.is_dir() {
        over.set_flags(InodeFlags::DEAD, InodeFlags::empty());
    }
    over.change(&Changes { nlink: Some(left), ctime: Some(time), ..Changes::default() });
    left
}

/// After two names have changed places.
fn exchanged(vfs: &Vfs, dirs: &mut Dirs<'_, '_>, inode: &Inode, over: &Inode, apart: bool) {
    change_ctime(vfs, inode);
    change_ctime(vfs, over);
    let moved = i32::from(inode.is_dir()) - i32::from(over.is_dir());
    match dirs {
        Dirs::Same(dir) => touch_dir(vfs, dir, 0, 0),
        Dirs::Two(old, new) => {
            let moved = if apart { moved } else { 0 };
            touch_dir(vfs, old, 0, -moved);
            touch_dir(vfs, new, 0, moved);
        }
    }
}

fn change_ctime(vfs: &Vfs, inode: &Inode) {
    let mut locked = inode.lock();
    locked.change(&Changes { ctime: Some(time_for(vfs, inode)), ..Changes::default() });
}
