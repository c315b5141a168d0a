//! What a directory lists, kept together with what it has.
//!
//! A name is in the list from before it is linked until it is taken out of the directory, all under the directory's lock. The
//! list knows dentries by address; they are pinned by their directory meanwhile, so that the lock's holder may follow it.

use super::dcache::change::Dirs;
use super::dcache::refs::{DentryRef, NewDentry, NewName};
use super::dcache::seen::{Section, Seen};
use crate::dcache::name::NAME_MAX;
use crate::dentry::Dentry;
use crate::inode::{Inode, InodeGuard};
use crate::ramfs::dirlog::DirLog;
use crate::vfs::Vfs;
use core::ptr::NonNull;
use rustix::io::Errno;

/// The names of a directory, in the order in which they came.
#[derive(Debug)]
pub(crate) struct Listing(DirLog<Place>);

#[derive(Debug, Clone, Copy)]
struct Place(NonNull<Dentry>);

// SAFETY: only an address; who follows it says why it may.
unsafe impl Send for Place {}
// SAFETY: as above.
unsafe impl Sync for Place {}

impl Default for Listing {
    fn default() -> Self {
        Self::new()
    }
}

impl Listing {
    /// Nothing. Allocates nothing.
    pub(crate) const fn new() -> Self {
        Self(DirLog::new())
    }

    /// Takes a name out.
    #[inline]
    pub(crate) fn forget(&mut self, offset: u64) {
        self.0.remove(offset);
    }

    /// Names in it.
    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }
}

impl<'k> NewDentry<'k> {
    /// Puts the dentry, which has an inode, into its directory and at the end of its list.
    ///
    /// # Errors
    /// `ENOMEM`; `ENOENT` if the directory has been removed. Then the dentry is freed.
    #[inline]
    pub(crate) fn enlist(self, dir: &mut InodeGuard<'_>) -> Result<(), Errno> {
        let dentry = self.as_ptr();
        let Ok(offset) = dir.listing.0.append(Place(dentry)) else { return Err(Errno::NOMEM) };
        self.dentry().set_offset(offset);
        match self.add_pinned_only(dir) {
            Ok(()) => Ok(()),
            Err(errno) => {
                dir.listing.0.remove(offset);
                Err(errno)
            }
        }
    }

    /// As [`enlist`](Self::enlist); a reference for the caller.
    ///
    /// # Errors
    /// As [`enlist`](Self::enlist).
    #[inline]
    pub(crate) fn enlist_held(self, dir: &mut InodeGuard<'_>) -> Result<DentryRef<'k>, Errno> {
        let dentry = self.as_ptr();
        let Ok(offset) = dir.listing.0.append(Place(dentry)) else { return Err(Errno::NOMEM) };
        self.dentry().set_offset(offset);
        // Each way by itself: a result that is passed on as it is would be copied.
        match self.add_pinned(dir) {
            Ok(dentry) => Ok(dentry),
            Err(errno) => {
                dir.listing.0.remove(offset);
                Err(errno)
            }
        }
    }
}

impl<'k> DentryRef<'k> {
    /// Takes the dentry out of its directory and of its list; the directory's reference, or none if it is not in it. Of a
    /// directory, the caller has the lock, too.
    #[inline]
    pub(crate) fn delist(&self, dir: &mut InodeGuard<'_>) -> Option<DentryRef<'k>> {
        let pin = self.unhash_locked(dir)?;
        dir.listing.0.remove(self.offset());
        Some(pin)
    }

    /// Renames the dentry, and lists it where it comes to. What it replaces is taken out; its pin is the result.
    ///
    /// # Errors
    /// As [`rename`](Self::rename). Then nothing is changed.
    pub(crate) fn relist(
        &self,
        dirs: &mut Dirs<'_, '_>,
        to: &DentryRef<'k>,
        name: NewName<'k>,
        replaced: Option<&DentryRef<'k>>,
    ) -> Result<Option<DentryRef<'k>>, Errno> {
        let place = Place(self.as_ptr());
        let offset = dirs.new_mut().listing.0.append(place).map_err(|_| Errno::NOMEM)?;
        let before = self.offset();
        match self.move_to(dirs, to, name, replaced) {
            Ok(pin) => {
                dirs.old_mut().listing.0.remove(before);
                if let Some(replaced) = replaced {
                    dirs.new_mut().listing.0.remove(replaced.offset());
                }
                self.set_offset(offset);
                Ok(pin)
            }
            Err(errno) => {
                dirs.new_mut().listing.0.remove(offset);
                Err(errno)
            }
        }
    }

    /// Exchanges two dentries, and lists both where they come to, as what came last.
    ///
    /// # Errors
    /// As [`exchange`](Self::exchange). Then nothing is changed.
    pub(crate) fn relist_exchanged(
        &self,
        dirs: &mut Dirs<'_, '_>,
        other: &DentryRef<'k>,
    ) -> Result<(), Errno> {
        let append = |dir: &mut InodeGuard<'_>, dentry: &Self| {
            dir.listing.0.append(Place(dentry.as_ptr())).map_err(|_| Errno::NOMEM)
        };
        let its = append(dirs.old_mut(), other)?;
        let done = append(dirs.new_mut(), self)
            .and_then(|mine| match self.exchange_with(dirs, other) {
                Ok(()) => Ok(mine),
                Err(errno) => {
                    dirs.new_mut().listing.0.remove(mine);
                    Err(errno)
                }
            })
            .inspect_err(|_| {
                dirs.old_mut().listing.0.remove(its);
            });
        let mine = done?;
        dirs.old_mut().listing.0.remove(self.offset());
        dirs.new_mut().listing.0.remove(other.offset());
        self.set_offset(mine);
        other.set_offset(its);
        Ok(())
    }
}

impl InodeGuard<'_> {
    /// The directory lists a dentry no more.
    pub(super) fn forget_listed(&mut self, dentry: &Dentry) {
        if dentry.is_listed() {
            self.listing.0.remove(dentry.offset());
        }
    }

    /// The directory lists nothing.
    pub(super) fn forget_list(&mut self) {
        self.listing = Listing::new();
    }

    /// Calls `each` with the names of the directory that came before a place, the newest first, until it says no.
    pub(crate) fn each_listed(
        &self,
        section: &Section,
        before: u64,
        mut each: impl FnMut(u64, Seen<'_, '_>) -> bool,
    ) {
        self.listing.0.each_before(before, |place, Place(dentry)| {
            // SAFETY: a dentry in the list is pinned by the directory, whose lock is held.
            each(place, unsafe { Seen::new(dentry, section) })
        });
    }
}

/// What `of` says of the directory that a dentry is in, if it is in one, and the dentry's name, copied: as they were at one
/// moment. How long the name is.
pub(crate) fn parent_and_name<R>(
    vfs: &Vfs,
    dentry: &Dentry,
    name: &mut [u8; NAME_MAX],
    of: impl Fn(&Inode) -> Option<R>,
) -> (Option<R>, usize) {
    let section = vfs.read();
    loop {
        // SAFETY: the caller has the dentry alive.
        let seen = unsafe { Seen::new(NonNull::from(dentry), &section) };
        if seen.is_root() {
            return (None, 0);
        }
        let len = seen.name(name);
        if let Some(parent) = seen.parent() {
            return (parent.inode().and_then(&of), len);
        }
    }
}
