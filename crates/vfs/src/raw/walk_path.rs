//! Places in the tree: held, borrowed, seen, and where a process has its own.
//!
//! Why a process's root and working directory may be looked at without a reference: they are read in a section, and the
//! sequence count says that both halves of a pair were the process's at one moment inside it. At that moment the process had
//! references; what it gives up later is freed after the section.

use crate::dentry::Dentry;
use crate::raw::dcache::refs::DentryRef;
use crate::raw::dcache::seen::{Section, Seen};
use crate::raw::mount::{Doomed, MountRef, TreeMount};
use crate::vfs::Vfs;
use core::fmt;
use core::marker::PhantomData;
use core::ptr::NonNull;
use quietline_platform::atomic::{AtomicPtr, Ordering};

/// A place: a dentry as it is seen through a mount (`struct path`). Two references.
#[derive(Clone)]
pub struct Path<'k> {
    // In the order in which they are given back.
    dentry: DentryRef<'k>,
    mount: MountRef<'k>,
}

/// A place that somebody else keeps for as long as this lives.
pub struct PathRef<'s, 'k> {
    mount: &'s TreeMount,
    dentry: &'s Dentry,
    of: PhantomData<&'k Vfs>,
}

/// A place that was found in a section, and that nobody need keep.
#[derive(Clone, Copy)]
pub struct Spot<'g, 'k> {
    pub(crate) mount: &'g TreeMount,
    pub(crate) seen: Seen<'g, 'k>,
}

/// What is left of attempts to take references, until the section is closed.
#[derive(Debug, Default)]
pub(crate) struct Debris {
    doomed: Option<Doomed>,
}

impl<'k> Path<'k> {
    /// A place of these two.
    #[inline]
    pub fn new(mount: MountRef<'k>, dentry: DentryRef<'k>) -> Self {
        Self { dentry, mount }
    }

    /// The root of a mount.
    pub fn root_of(mount: MountRef<'k>) -> Self {
        let root: DentryRef<'k> = mount.root_ref().clone();
        Self { dentry: root, mount }
    }

    /// The dentry.
    #[inline(always)]
    pub fn dentry(&self) -> &DentryRef<'k> {
        &self.dentry
    }

    /// The mount.
    #[inline(always)]
    pub fn mount(&self) -> &MountRef<'k> {
        &self.mount
    }

    /// Both.
    #[inline]
    pub fn into_parts(self) -> (MountRef<'k>, DentryRef<'k>) {
        (self.mount, self.dentry)
    }

    /// The place, borrowed.
    #[inline(always)]
    pub fn borrow(&self) -> PathRef<'_, 'k> {
        PathRef { mount: &self.mount, dentry: &self.dentry, of: PhantomData }
    }

    /// Whether both are one place.
    pub fn same(&self, other: &Path<'k>) -> bool {
        self.mount.same(&other.mount) && self.dentry.same(&other.dentry)
    }

    /// Whether it is the root of its mount.
    pub fn is_mount_root(&self) -> bool {
        self.mount.root().same(&self.dentry)
    }

    /// The place as it is now, for a walk inside a section.
    #[inline]
    pub fn spot<'g>(&'g self, section: &'g Section) -> Spot<'g, 'k> {
        Spot { mount: &self.mount, seen: self.dentry.seen(section) }
    }
}

impl Clone for PathRef<'_, '_> {
    fn clone(&self) -> Self {
        *self
    }
}

impl Copy for PathRef<'_, '_> {}

impl<'s, 'k> PathRef<'s, 'k> {
    /// What a file is open on, for instance.
    ///
    /// # Safety
    /// Somebody has references to both for `'s`; their kernel lives for `'k`.
    pub(crate) unsafe fn new(mount: &'s TreeMount, dentry: &'s Dentry) -> Self {
        Self { mount, dentry, of: PhantomData }
    }

    /// The mount.
    #[inline(always)]
    pub fn mount(self) -> &'s TreeMount {
        self.mount
    }

    /// The dentry.
    #[inline(always)]
    pub fn dentry(self) -> &'s Dentry {
        self.dentry
    }

    /// One more reference to each.
    pub fn to_path(self) -> Path<'k> {
        self.dentry.d_lockref.get();
        // SAFETY: somebody has references to both, and one was just taken.
        unsafe {
            let dentry = DentryRef::from_raw(NonNull::from(self.dentry));
            Path { dentry, mount: MountRef::again(self.mount) }
        }
    }

    /// The place as it is now, for a walk inside a section.
    #[inline(always)]
    pub fn spot<'g>(self, section: &'g Section) -> Spot<'g, 'k>
    where
        's: 'g,
    {
        // SAFETY: somebody has a reference for 's, which is longer than the section's borrow.
        Spot { mount: self.mount, seen: unsafe { Seen::new(NonNull::from(self.dentry), section) } }
    }
}

impl<'g, 'k> Spot<'g, 'k> {
    /// The root of a mount that was found in the section.
    #[inline]
    pub(crate) fn root_of(mount: &'g TreeMount, _vfs: &'k Vfs, section: &'g Section) -> Self {
        // SAFETY: found in the section, so the mount had a reference to its root then; dentries are freed by RCU.
        Self { mount, seen: unsafe { Seen::new(NonNull::from(mount.root()), section) } }
    }

    /// Where a mount that was found in the section is mounted: a pair only if the mounts' sequence count has not moved.
    #[inline]
    pub(crate) fn place_of(
        mount: &'g TreeMount,
        _vfs: &'k Vfs,
        section: &'g Section,
    ) -> Option<Self> {
        let (mount, dentry) = mount.place(section.guard())?;
        // SAFETY: found in the section as a place that the book of mounts had a reference to.
        Some(Self { mount, seen: unsafe { Seen::new(NonNull::from(dentry), section) } })
    }

    /// Takes references, if the place is still what was seen (`legitimize_path`): the mount first, and it must be mounted; then
    /// the dentry, and it must be where it was. Leaks none if that fails.
    #[inline]
    pub(crate) fn acquire(
        self,
        vfs: &'k Vfs,
        section: &Section,
        debris: &mut Debris,
    ) -> Option<Path<'k>> {
        match MountRef::get_seen(self.mount, vfs, section.guard()) {
            Ok(mount) => match self.seen.acquire() {
                Some(dentry) => Some(Path { dentry, mount }),
                None => {
                    // The mount's reference is put here, inside the section, like any other.
                    debris.put(mount);
                    None
                }
            },
            Err(doomed) => {
                debris.keep(doomed);
                None
            }
        }
    }

    /// Takes references to a place whose mount somebody keeps, `kept`: then it need not be mounted any more.
    #[inline]
    pub(crate) fn acquire_within(self, kept: &MountRef<'k>) -> Option<Path<'k>> {
        debug_assert!(kept.same(self.mount));
        let dentry = self.seen.acquire()?;
        Some(Path { dentry, mount: kept.clone() })
    }
}

impl Debris {
    fn keep(&mut self, doomed: Option<Doomed>) {
        debug_assert!(self.doomed.is_none());
        self.doomed = doomed;
    }

    fn put(&mut self, mount: MountRef<'_>) {
        self.doomed = mount.put_inside();
    }
}

impl fmt::Debug for Path<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Path").field("mount", &self.mount).field("dentry", &self.dentry).finish()
    }
}

impl fmt::Debug for PathRef<'_, '_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PathRef").field("mount", self.mount).field("dentry", self.dentry).finish()
    }
}

impl fmt::Debug for Spot<'_, '_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Spot").field("mount", self.mount).field("seen", &self.seen).finish()
    }
}

/// Where a process has a place of its own: two references, which readers look at without taking any.
pub(crate) struct PathCell {
    mount: AtomicPtr<TreeMount>,
    dentry: AtomicPtr<Dentry>,
}

impl PathCell {
    pub(crate) fn new(path: Path<'_>) -> Self {
        let (mount, dentry) = path.into_parts();
        Self {
            mount: AtomicPtr::new(mount.into_raw().cast().as_ptr()),
            dentry: AtomicPtr::new(dentry.into_raw().as_ptr()),
        }
    }

    /// The two halves, which are a pair if the owner's sequence count says so.
    #[inline(always)]
    pub(crate) fn halves(&self) -> (NonNull<TreeMount>, NonNull<Dentry>) {
        // ORDERING: pairs with the releases in `replace`: what is found is seen made.
        let (mount, dentry) =
            (self.mount.load(Ordering::Acquire), self.dentry.load(Ordering::Acquire));
        // SAFETY: never null.
        unsafe { (NonNull::new_unchecked(mount), NonNull::new_unchecked(dentry)) }
    }

    /// What halves that were a pair stand for.
    ///
    /// # Safety
    /// They were the cell's at one moment since the section began; the kernel lives for `'k`.
    #[inline(always)]
    pub(crate) unsafe fn spot<'g, 'k>(
        (mount, dentry): (NonNull<TreeMount>, NonNull<Dentry>),
        section: &'g Section,
    ) -> Spot<'g, 'k> {
        // SAFETY: the cell had references to both at that moment; both are freed by RCU.
        unsafe { Spot { mount: mount.as_ref(), seen: Seen::new(dentry, section) } }
    }

    /// The cell's place, for one more reference to each.
    ///
    /// # Safety
    /// Nobody replaces it during `'s`; it is of a kernel that lives for `'k`.
    pub(crate) unsafe fn path<'s, 'k>(&'s self) -> PathRef<'s, 'k> {
        let (mount, dentry) = self.halves();
        // SAFETY: the cell has references to both.
        unsafe { PathRef::new(mount.as_ref(), dentry.as_ref()) }
    }

    /// Another place; the one before.
    ///
    /// # Safety
    /// Nobody else replaces it at the time, the owner's sequence count is odd, and both are of a kernel that lives for `'k`.
    pub(crate) unsafe fn replace<'k>(&self, path: Path<'k>) -> Path<'k> {
        let (old_mount, old_dentry) = self.halves();
        let (mount, dentry) = path.into_parts();
        // ORDERING: pairs with the acquires in `halves`.
        self.mount.store(mount.into_raw().cast().as_ptr(), Ordering::Release);
        self.dentry.store(dentry.into_raw().as_ptr(), Ordering::Release);
        // SAFETY: the cell's references, which it has no more.
        unsafe { Path::new(MountRef::from_raw(old_mount.cast()), DentryRef::from_raw(old_dentry)) }
    }

    /// Gives the references back.
    ///
    /// # Safety
    /// Once, by the owner, who uses it no more; the kernel still lives.
    pub(crate) unsafe fn end(&self) {
        let (mount, dentry) = self.halves();
        // SAFETY: by contract.
        unsafe { drop(Path::new(MountRef::from_raw(mount.cast()), DentryRef::from_raw(dentry))) };
    }
}
