//! The way of those who change names: to a directory's lock, without a reference to anything.
//!
//! # The problem
//!
//! Who makes, removes or renames a name needs a directory, and the mount that it was found in, for as long as he holds a lock. References
//! to both, up and down, are four operations, of which two lock the bus on a line that all users of the directory write.
//!
//! # Our way
//!
//! The directory is kept by its lock ([`LockedDir`]), the mount by leave to write ([`TreeMount::pass`]). Both are asked for in the walk's own
//! section, and not waited for: who would have to wait, or finds anything that is not ordinary, goes the way of
//! [`parent`](Vfs::parent), which finds the errors, too.
//!
//! By closures, because what is put together in memory and returned in one piece is slow to come back.

use super::{Start, component, fast, last};
use crate::cred::Cred;
use crate::dcache::name::Name;
use crate::raw::dcache::locked::LockedDir;
use crate::raw::dcache::seen::{Section, Seen};
use crate::raw::mount::{Leave, MountRef, TreeMount};
use crate::raw::walk_path::Spot;
use crate::vfs::Vfs;

impl Vfs {
    /// [`parent`](Self::parent), and the directory's lock, where nothing is out of the ordinary: calls `locked` with the mount,
    /// which may be written and stays for so long, the directory, the name, and whether slashes come after it. None, and nothing
    /// has been done, if something is, or somebody is to be told of what happens.
    #[inline(always)]
    pub(crate) fn quick_parent<'k, 'p, T>(
        &'k self,
        start: &Start<'_, 'k>,
        path: &'p [u8],
        cred: &Cred,
        locked: impl FnOnce(&TreeMount, &LockedDir<'k>, &Name<'p>, bool) -> T,
    ) -> Option<T> {
        if component::check(path).is_err() || crate::notify::is_on(self) {
            return None;
        }
        let section = self.read();
        let (at, name, slash) = self.quickly_to_parent(start, path, cred, &section)?;
        // Neither is waited for here: not in the section, nor for leave with the lock in hand, for which others wait who have
        // leave.
        let (mount, dir) = (at.mount.pass(self, section.guard())?, LockedDir::try_lock(at.seen));
        // First of all: what is given back, is so outside.
        drop(section);
        Some(locked(&mount, dir.as_ref()?, &name, slash))
    }

    /// [`quick_parent`](Self::quick_parent) for who keeps the mount: calls `locked` with the directory, leave to write or why there is none,
    /// and the name; and when the directory is unlocked, `unlocked` with the mount and with what came of that. `wanted` may look at
    /// the directory before it is locked, in the section.
    #[inline(always)]
    pub(crate) fn quick_keeping<'k, 'p, T, R>(
        &'k self,
        start: &Start<'_, 'k>,
        path: &'p [u8],
        cred: &Cred,
        wanted: impl FnOnce(Seen<'_, 'k>, &Name<'p>, bool) -> bool,
        locked: impl FnOnce(&LockedDir<'k>, Leave<'_>, &Name<'p>) -> T,
        unlocked: impl FnOnce(MountRef<'k>, T) -> R,
    ) -> Option<R> {
        if component::check(path).is_err() || crate::notify::is_on(self) {
            return None;
        }
        let section = self.read();
        let (at, name, slash) = self.quickly_to_parent(start, path, cred, &section)?;
        if !wanted(at.seen, &name, slash) {
            return None;
        }
        let mount = match MountRef::get_seen(at.mount, self, section.guard()) {
            Ok(mount) => mount,
            Err(doomed) => {
                drop(section);
                drop(doomed);
                return None;
            }
        };
        let done = {
            // As above.
            let (leave, dir) = (mount.try_want_write(), LockedDir::try_lock(at.seen));
            drop(section);
            locked(dir.as_ref()?, leave?, &name)
        };
        Some(unlocked(mount, done))
    }

    /// [`quick_parent`](Self::quick_parent) of two paths that both end with a name, in one filesystem: calls `locked` with both
    /// directories, of which the second is none where it is the first; that it never is if they must be the `same`. Either both are
    /// locked at once or nothing is done, so that it does not matter which one comes first.
    ///
    /// Of two paths that are alike up to the last component, one is walked.
    #[inline(always)]
    pub(crate) fn quick_parents<'k, 'p, T>(
        &'k self,
        start: &Start<'_, 'k>,
        [old, new]: [&'p [u8]; 2],
        cred: &Cred,
        same: bool,
        locked: impl FnOnce(
            &TreeMount,
            &LockedDir<'k>,
            Option<&LockedDir<'k>>,
            [&Name<'p>; 2],
        ) -> Option<T>,
    ) -> Option<T> {
        let checked = component::check(old).and(component::check(new));
        if checked.is_err() || crate::notify::is_on(self) {
            return None;
        }
        let section = self.read();
        let (from, old_name, old_slash) = self.quickly_to_parent(start, old, cred, &section)?;
        let begin = old.len() - old_name.bytes().len();
        let alike = new.get(..begin).is_some_and(|directory| directory == &old[..begin]);
        let name = if alike { self.last_name(new, begin) } else { None };
        let (to, new_name, new_slash) = match name {
            Some(name) => (from, name, false),
            None => self.quickly_to_parent(start, new, cred, &section)?,
        };
        let apart = !from.seen.is(&to.seen);
        if old_slash || new_slash || (apart && same) || !from.mount.same(to.mount) {
            return None;
        }
        let mount = from.mount.pass(self, section.guard())?;
        let first = LockedDir::try_lock(from.seen);
        let second = if apart { Some(LockedDir::try_lock(to.seen)) } else { None };
        // As above.
        drop(section);
        let second = match &second {
            None => None,
            Some(locked) => Some(locked.as_ref()?),
        };
        locked(&mount, first.as_ref()?, second, [&old_name, &new_name])
    }

    /// The name that a path ends with, if all from `begin` on is a name.
    #[inline(always)]
    fn last_name<'p>(&self, path: &'p [u8], begin: usize) -> Option<Name<'p>> {
        let word = component::word_at(path, begin);
        let slashes = component::slashes(word);
        let (name, len) = component::before_slash(word, slashes);
        if slashes != 0 && len != 0 && begin + len == path.len() && name as u8 != b'.' {
            return Some(Name::short(&path[begin..], name, &self.keys));
        }
        match last::alone(path.get(begin..)?)? {
            (bytes, false) => self.name(bytes).ok(),
            _ => None,
        }
    }

    /// The directory of a path's last component, that, and whether slashes come after it, where nothing is out of the ordinary.
    #[inline(always)]
    fn quickly_to_parent<'g, 'k, 'p>(
        &'k self,
        start: &Start<'g, 'k>,
        path: &'p [u8],
        cred: &Cred,
        section: &'g Section,
    ) -> Option<(Spot<'g, 'k>, Name<'p>, bool)> {
        let at = match (path.first(), start.dir) {
            (None, _) => return None,
            (Some(b'/'), _) => start.fs.root(section),
            (_, Some(dir)) => dir.spot(section),
            _ => start.fs.pwd(section),
        };
        fast::to_parent(self, section, cred, at, path)
    }
}
