//! One step of a walk, inside a read section.

use super::mode::{Stop, Type};
use crate::cred::Cred;
use crate::dentry::{Dentry, DentryFlags};
use crate::inode::{Inode, InodeFlags};
use crate::permission::{Mask, Ownership};
use crate::raw::dcache::seen::{Section, Seen, Step};
use crate::raw::walk_path::Spot;
use crate::vfs::Vfs;
use rustix::io::Errno;

/// What an inode is, to a walk.
#[inline(always)]
pub(crate) fn type_of(inode: &Inode) -> Type {
    if inode.is_dir() {
        Type::Directory
    } else if inode.is_symlink() {
        Type::Symlink
    } else {
        Type::Other
    }
}

/// Whether what it stands for is a directory.
#[inline(always)]
pub(crate) fn is_directory(dentry: &Dentry) -> bool {
    dentry.inode().is_some_and(Inode::is_dir)
}

/// What a dentry that stands for something is.
#[inline(always)]
pub(crate) fn kind(dentry: &Dentry) -> Type {
    dentry.inode().map_or(Type::Other, type_of)
}

/// Whether names may be looked up in a directory.
#[inline(always)]
pub(crate) fn may_search(dentry: &Dentry, cred: &Cred) -> Result<(), Stop> {
    let inode = dentry.inode().ok_or(Stop::Errno(Errno::NOENT))?;
    let of = Ownership { mode: inode.mode(), uid: inode.uid(), gid: inode.gid() };
    Ok(of.permits(cred, Mask::EXEC)?)
}

/// Returns `true` if a directory may have rules of its own, beside its mode: see
/// [`Node::permission`](crate::Node::permission). They are not asked in a read section.
#[inline(always)]
pub(crate) fn has_own_rules(dentry: &Dentry) -> bool {
    dentry.is_revalidated()
}

/// Returns `true` if a walk that ends at a directory may have to ask its filesystem about it.
#[inline(always)]
pub(crate) fn is_asked_about(dentry: &Dentry) -> bool {
    dentry.has_flags(DentryFlags::REVALIDATE.union(DentryFlags::TIMED))
}

/// Returns `true` if what a dentry stands for holds for a limited time.
#[inline(always)]
pub(crate) fn is_timed(dentry: &Dentry) -> bool {
    dentry.has_flags(DentryFlags::TIMED)
}

/// Returns `true` if the time for which a dentry holds is over.
#[cold]
#[inline(never)]
pub(crate) fn is_expired(dentry: &Dentry) -> bool {
    is_timed(dentry) && dentry.inode().and_then(Inode::node).is_some_and(|node| !node.is_current())
}

/// Returns `true` if the filesystem must be asked whether a dentry is still right.
#[cold]
#[inline(never)]
fn must_ask(dentry: &Dentry) -> bool {
    dentry.is_revalidated() || is_expired(dentry)
}

/// Checks that a walk's result still holds.
///
/// # Errors
/// [`Stop::Retry`] if the filesystem must be asked.
#[inline]
pub(crate) fn current<'g, 'k>(at: Spot<'g, 'k>) -> Result<Spot<'g, 'k>, Stop> {
    if is_timed(&at.seen) && is_expired(&at.seen) { Err(Stop::Retry) } else { Ok(at) }
}

/// What became of a name.
pub(crate) enum Child<T> {
    Is(T),
    None,
    /// The filesystem must be asked.
    Ask,
}

/// What a name in a directory stands for.
#[inline(always)]
pub(crate) fn child<'g, 'k>(
    vfs: &'k Vfs,
    at: Spot<'g, 'k>,
    name: &[u8],
) -> Result<Child<Spot<'g, 'k>>, Stop> {
    let name = match vfs.name(name) {
        Ok(name) => name,
        Err(errno) => return Err(Stop::Errno(no_name(&at.seen, errno))),
    };
    match at.seen.child(&name) {
        Step::Found(seen) => {
            let asked = DentryFlags::REVALIDATE.union(DentryFlags::TIMED);
            if seen.flags().intersects(asked) && must_ask(&seen) {
                return Ok(Child::Ask);
            }
            Ok(if seen.is_negative() {
                Child::None
            } else {
                Child::Is(Spot { mount: at.mount, seen })
            })
        }
        Step::Missing => {
            let asks =
                at.seen.inode().is_some_and(|inode| inode.flags().contains(InodeFlags::NODE));
            Ok(if asks { Child::Ask } else { Child::None })
        }
        Step::Stale => Err(Stop::Retry),
    }
}

/// What is told of a name that no directory can have: in one that was removed, nobody looks at it.
#[cold]
pub(crate) fn no_name(dir: &Dentry, errno: Errno) -> Errno {
    let removed = dir.inode().is_some_and(|inode| inode.flags().contains(InodeFlags::DEAD));
    if removed { Errno::NOENT } else { errno }
}

/// Onto what is mounted there, if anything is, and what is mounted on that; whether there was anything.
#[inline]
pub(crate) fn cross<'g, 'k>(
    vfs: &'k Vfs,
    at: Spot<'g, 'k>,
    section: &'g Section,
) -> (Spot<'g, 'k>, bool) {
    let (mut at, mut crossed) = (at, false);
    while maybe_mounted(&at.seen)
        && let Some(mount) = at.mount.on(&at.seen, section.guard())
    {
        at = Spot::root_of(mount, vfs, section);
        crossed = true;
    }
    (at, crossed)
}

/// Whether anything is mounted on it, in some namespace.
#[inline(always)]
pub(crate) fn maybe_mounted(dentry: &Dentry) -> bool {
    dentry.flags().contains(DentryFlags::MOUNTED)
}

/// The directory that it is in, which is not above the root of its mount.
#[inline]
pub(crate) fn parent<'g, 'k>(at: Spot<'g, 'k>) -> Result<Spot<'g, 'k>, Stop> {
    let seen = at.seen.parent().ok_or(Stop::Retry)?;
    let root = at.mount.root();
    // Where a part of a filesystem is mounted, a directory may have been moved out of that part.
    if !root.is_root() && !is_below(seen, root)? {
        return Err(Stop::Errno(Errno::NOENT));
    }
    Ok(Spot { mount: at.mount, seen })
}

/// Whether a directory is `above`, or below it, as far as can be seen. O(depth).
#[cold]
fn is_below(seen: Seen<'_, '_>, above: &Dentry) -> Result<bool, Stop> {
    let moves = &seen.super_block().move_seq;
    let began = moves.read_try().ok_or(Stop::Retry)?;
    let mut at = seen;
    let found = loop {
        if at.is(above) {
            break true;
        }
        if at.is_root() {
            break false;
        }
        at = at.parent().ok_or(Stop::Retry)?;
    };
    if moves.read_retry(began) { Err(Stop::Retry) } else { Ok(found) }
}

/// Where the mount whose root this is is mounted; and if that is the root of a mount, where that one is, and so on. None at
/// the top, and where that is `root`.
#[inline]
pub(crate) fn above<'g, 'k>(
    vfs: &'k Vfs,
    at: Spot<'g, 'k>,
    root: Spot<'_, 'k>,
    section: &'g Section,
) -> Result<Option<Spot<'g, 'k>>, Stop> {
    let began = vfs.mounts.seq().read_try().ok_or(Stop::Retry)?;
    let mut at = at;
    let found = loop {
        let Some(place) = Spot::place_of(at.mount, vfs, section) else { break None };
        if same(&place, &root) {
            break None;
        }
        if !place.mount.root().same(&place.seen) {
            break Some(place);
        }
        at = place;
    };
    if vfs.mounts.seq().read_retry(began) { Err(Stop::Retry) } else { Ok(found) }
}

/// Whether both are one place.
#[inline(always)]
pub(crate) fn same(a: &Spot<'_, '_>, b: &Spot<'_, '_>) -> bool {
    a.seen.is(&b.seen) && a.mount.same(b.mount)
}
