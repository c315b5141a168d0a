//! Mounts of trees, and who may look at one when.
//!
//! ```text
//!   the book of mounts ── 1 while it is mounted ──> TreeMount ── 1 ──> its root Dentry
//!           └─ for each mount on another: 1 ──> that TreeMount, 1 ──> the mountpoint's Dentry
//!   Path, File ──────── 1 ──> TreeMount ── 1 ──> SuperBlock (active)
//!   a section ───────── nothing, but sees what a table of mounts or a child's parent shows
//! ```
//!
//! Who changes names in a directory that he has found needs the mount for a moment. He has no reference: his leave to write is enough
//! ([`Passing`]), for whoever has put the last reference waits for those who have leave.
//!
//! A mount is freed a grace period after its last put, and is in no table by then: what a section finds, it may look at until
//! it ends. References are put inside a section, because whoever puts one may still be summing when another thread finds
//! that all are put.

use super::mount_table::MountTable;
use crate::dentry::Dentry;
use crate::mount::{Got, Mount};
use crate::namespace::MountFlags;
use crate::namespace::writers::Writers;
use crate::raw::dcache::refs::DentryRef;
use crate::super_block::{SuperBlock, SuperFlags, SuperRef};
use crate::vfs::Vfs;
use core::fmt;
use core::marker::PhantomData;
use core::mem::{ManuallyDrop, MaybeUninit};
use core::ops::Deref;
use core::ptr::{self, NonNull};
use quietline_platform::atomic::{
    AtomicBool, AtomicPtr, AtomicU32, AtomicU64, AtomicUsize, Ordering,
};
use quietline_platform::{AllocError, heap};
use quietline_sync::rcu::{Guard, Head};
use quietline_sync::{SpinLock, SpinLockGuard};
use rustix::io::Errno;

/// A filesystem, or a part of one, as it is mounted (`struct mount`).
#[repr(C)]
pub struct TreeMount {
    /// First, so that an open file, which knows only this, knows all.
    counts: Mount,
    /// Those of the mount, and read-only if the filesystem is.
    flags: AtomicU32,
    /// Whether the mount itself is read-only. Changed under the lock of the mounts.
    is_rdonly: AtomicBool,
    /// Whether it is not bound elsewhere (`MS_UNBINDABLE`).
    is_unbindable: AtomicBool,
    /// Whether it was found unused by the last `umount` with `MNT_EXPIRE`.
    pub(crate) expiring: AtomicBool,
    root: ManuallyDrop<DentryRef<'static>>,
    sb: ManuallyDrop<SuperRef<'static>>,
    on_it: MountTable<TreeMount>,
    /// The mount that it is on, or null; and where. They go together when the sequence count of the kernel's mounts says so.
    parent: AtomicPtr<TreeMount>,
    mountpoint: AtomicPtr<Dentry>,
    /// The namespace that it is mounted in; 0: none.
    pub(crate) namespace: AtomicU64,
    /// The index of its entry in the book of mounts, while it has one. Protected by the book's
    /// lock.
    pub(super) index: AtomicUsize,
    /// The neighbours in the [list](MountList) of the filesystem's mounts, or null. Protected by
    /// its
    /// lock.
    next_of_sb: AtomicPtr<TreeMount>,
    previous_of_sb: AtomicPtr<TreeMount>,
    writers: Writers,
    id: u64,
    vfs: NonNull<Vfs>,
    head: Head,
}

// SAFETY: what changes is atomic; what the pointers point to is shared by design.
unsafe impl Send for TreeMount {}
// SAFETY: as above.
unsafe impl Sync for TreeMount {}

/// A reference to a mount. Dropping the last one of a mount that is mounted no more ends it.
pub struct MountRef<'k> {
    mount: NonNull<TreeMount>,
    of: PhantomData<&'k Vfs>,
}

// SAFETY: a reference owns a count; the mount is shared by design.
unsafe impl Send for MountRef<'_> {}
// SAFETY: as above.
unsafe impl Sync for MountRef<'_> {}

/// A mount whose last reference was put, by an attempt to take one: it ends when this is dropped, which must be outside read
/// sections and locks.
#[derive(Debug)]
pub(crate) struct Doomed(NonNull<TreeMount>);

/// Leave to change a filesystem through a mount; ends when dropped.
#[derive(Debug)]
#[must_use = "the leave ends when this is dropped"]
pub struct Writing<'a>(&'a Writers);

/// Leave to write in a mount, or why there is none.
pub(crate) type Leave<'m> = Result<Writing<'m>, Errno>;

/// Leave to change a filesystem through a mount that was seen mounted, and that stays until this is dropped: without a reference.
/// For who is soon done.
#[derive(Debug)]
#[must_use = "the leave ends when this is dropped"]
pub(crate) struct Passing<'k> {
    mount: NonNull<TreeMount>,
    of: PhantomData<&'k Vfs>,
}

impl Deref for Passing<'_> {
    type Target = TreeMount;

    #[inline(always)]
    fn deref(&self) -> &TreeMount {
        // SAFETY: found mounted after this was counted, so whoever ends the mount waits for our end.
        unsafe { self.mount.as_ref() }
    }
}

impl Drop for Passing<'_> {
    /// Writes no shared line.
    #[inline]
    fn drop(&mut self) {
        // SAFETY: as above, or made in a section that is still open.
        let mount = unsafe { self.mount.as_ref() };
        // With the end counted, the mount may be freed: nothing of it is used after that addition, the last thing here.
        mount.writers.end();
    }
}

impl Writing<'_> {
    /// For a file that is open for writing, until [`TreeMount::drop_write`].
    #[inline]
    pub(crate) fn keep(self) {
        self.0.open_file();
        core::mem::forget(self);
    }
}

impl Drop for Writing<'_> {
    #[inline]
    fn drop(&mut self) {
        self.0.end();
    }
}

impl<'k> MountRef<'k> {
    /// A mount of the tree below `root`, mounted nowhere yet.
    pub(crate) fn new(
        vfs: &'k Vfs,
        sb: SuperRef<'k>,
        root: DentryRef<'k>,
        flags: MountFlags,
        id: u64,
    ) -> Result<Self, AllocError> {
        let counts = Mount::detached(sb.s_type());
        let is_rdonly = flags.contains(MountFlags::RDONLY);
        let mut flags = flags;
        flags.set(MountFlags::RDONLY, is_rdonly || sb.flags().contains(SuperFlags::RDONLY));
        let writers = Writers::new(!flags.contains(MountFlags::RDONLY));
        let place = heap::try_box(MaybeUninit::<TreeMount>::uninit())?;
        // SAFETY: both are given back when the last reference is, which comes before 'k ends.
        let (root, sb) = unsafe {
            (
                core::mem::transmute::<DentryRef<'k>, DentryRef<'static>>(root),
                core::mem::transmute::<SuperRef<'k>, SuperRef<'static>>(sb),
            )
        };
        let mount = Box::write(
            place,
            TreeMount {
                counts,
                flags: AtomicU32::new(flags.bits()),
                is_rdonly: AtomicBool::new(is_rdonly),
                is_unbindable: AtomicBool::new(false),
                expiring: AtomicBool::new(false),
                root: ManuallyDrop::new(root),
                sb: ManuallyDrop::new(sb),
                on_it: MountTable::new(),
                parent: AtomicPtr::new(ptr::null_mut()),
                mountpoint: AtomicPtr::new(ptr::null_mut()),
                namespace: AtomicU64::new(0),
                index: AtomicUsize::new(0),
                next_of_sb: AtomicPtr::new(ptr::null_mut()),
                previous_of_sb: AtomicPtr::new(ptr::null_mut()),
                writers,
                id,
                vfs: NonNull::from(vfs),
                head: Head::new(),
            },
        );
        let mount = NonNull::from(Box::leak(mount));
        // SAFETY: a boxed mount in no list, which is freed after `Doomed` has removed it.
        unsafe { mount.as_ref().sb.mounts.add(mount) };
        Ok(Self { mount, of: PhantomData })
    }

    /// One more reference to the filesystem.
    pub fn super_ref(&self) -> SuperRef<'k> {
        self.sb_ref().clone()
    }

    /// One more reference to a mount that somebody keeps for as long as it is borrowed.
    ///
    /// # Safety
    /// Somebody has a reference during the call. The mount is of a kernel that lives for `'k`.
    pub(crate) unsafe fn again(mount: &TreeMount) -> Self {
        mount.counts.get();
        Self { mount: NonNull::from(mount), of: PhantomData }
    }

    /// A reference to a mount that was only seen, in the section that is open, if it is still mounted.
    ///
    /// # Errors
    /// It is not; what must be dropped when the section is closed.
    #[inline]
    pub(crate) fn get_seen(
        mount: &TreeMount,
        _vfs: &'k Vfs,
        _section: &Guard<'_>,
    ) -> Result<Self, Option<Doomed>> {
        match mount.counts.get_mounted() {
            Got::Reference => Ok(Self { mount: NonNull::from(mount), of: PhantomData }),
            Got::Nothing => Err(None),
            Got::LastPut => Err(Some(Doomed(NonNull::from(mount)))),
        }
    }

    /// Gives the reference back without a trace for `MNT_EXPIRE`.
    pub(crate) fn put_no_expire(self) {
        let this = ManuallyDrop::new(self);
        this.put_outside();
    }

    #[inline(always)]
    fn put_outside(&self) {
        let last = {
            // SAFETY: the kernel outlives its mounts.
            let domain = unsafe { self.vfs.as_ref() }.domain;
            // Whoever else puts its reference now may end the mount, but it is not freed before we have summed.
            let _section = domain.read();
            self.counts.put()
        };
        if last {
            drop(Doomed(self.mount));
        }
    }

    /// Gives the reference back, as dropping it does, inside a section that is open; what must be dropped when that is closed, if
    /// it was the last.
    #[inline(always)]
    pub(crate) fn drop_inside(self, _section: &Guard<'_>) -> Option<Doomed> {
        self.is_used();
        self.put_inside()
    }

    /// Gives the reference back inside a section that is open; what must be dropped when that is closed, if it was the last.
    #[inline(always)]
    pub(crate) fn put_inside(self) -> Option<Doomed> {
        let this = ManuallyDrop::new(self);
        this.counts.put().then(|| Doomed(this.mount))
    }

    /// The reference, for who keeps it in the kernel itself.
    ///
    /// # Safety
    /// It is dropped before the kernel is.
    pub(crate) unsafe fn forever(self) -> MountRef<'static> {
        let this = ManuallyDrop::new(self);
        MountRef { mount: this.mount, of: PhantomData }
    }

    /// The reference as a pointer, for an open file.
    #[inline]
    pub(crate) fn into_raw(self) -> NonNull<Mount> {
        ManuallyDrop::new(self).mount.cast()
    }

    /// The reference back.
    ///
    /// # Safety
    /// `mount` came from [`into_raw`](Self::into_raw), once, and the kernel lives for `'k`.
    #[inline]
    pub(crate) unsafe fn from_raw(mount: NonNull<Mount>) -> Self {
        Self { mount: mount.cast(), of: PhantomData }
    }
}

impl Deref for MountRef<'_> {
    type Target = TreeMount;

    #[inline(always)]
    fn deref(&self) -> &TreeMount {
        // SAFETY: our reference keeps it.
        unsafe { self.mount.as_ref() }
    }
}

impl Clone for MountRef<'_> {
    /// One more reference. Writes no shared line.
    #[inline]
    fn clone(&self) -> Self {
        self.counts.get();
        Self { mount: self.mount, of: PhantomData }
    }
}

impl Drop for MountRef<'_> {
    /// Writes no shared line while the mount is mounted.
    #[inline]
    fn drop(&mut self) {
        self.is_used();
        self.put_outside();
    }
}

impl Drop for Doomed {
    #[cold]
    fn drop(&mut self) {
        unsafe fn free(head: NonNull<Head>) {
            let offset = core::mem::offset_of!(TreeMount, head);
            // SAFETY: the head is that of a boxed mount that nobody can see any more.
            drop(unsafe { Box::from_raw(head.byte_sub(offset).cast::<TreeMount>().as_ptr()) });
        }
        // SAFETY: we have the last reference, and nobody has another.
        if !unsafe { self.0.as_ref() }.writers.drain() {
            // Who does not end uses it for ever: it stays, as it would if he had a reference.
            return;
        }
        // SAFETY: the last reference was put, which one thread is told: it frees the mount, below. Until then sections may
        // still look at it, but not at these two as what owns anything: they see the root through a pointer to the dentry,
        // which is freed by RCU.
        unsafe {
            let mount = self.0.as_ref();
            mount.sb.mounts.remove(mount);
            let (root, sb) = (ptr::read(&mount.root), ptr::read(&mount.sb));
            drop(ManuallyDrop::into_inner(root));
            drop(ManuallyDrop::into_inner(sb));
            let head = self.0.byte_add(core::mem::offset_of!(TreeMount, head)).cast();
            mount.vfs.as_ref().domain.call(head, free);
        }
    }
}

/// All mounts of a filesystem (`s_mounts`): those in the book of mounts, and those outside it that
/// have references, such as a mount that was detached while a file of it was open.
#[derive(Debug)]
pub(crate) struct MountList {
    lock: SpinLock<()>,
    /// The mount that was added last, or null.
    first: AtomicPtr<TreeMount>,
}

impl MountList {
    /// An empty list.
    pub(crate) fn new() -> Self {
        Self { lock: SpinLock::new(()), first: AtomicPtr::new(ptr::null_mut()) }
    }

    /// Returns the mount that `link` points to. Links are null, or point to mounts of a list.
    fn at<'a>(
        link: &AtomicPtr<TreeMount>,
        _lock: &'a SpinLockGuard<'_, ()>,
    ) -> Option<&'a TreeMount> {
        // Relaxed: under the lock.
        // SAFETY: a mount of a list is not freed before it was removed, which needs the lock.
        unsafe { link.load(Ordering::Relaxed).as_ref() }
    }

    /// Adds a mount.
    ///
    /// # Safety
    /// The mount is in no list, and is not freed before it was [removed](Self::remove).
    unsafe fn add(&self, mount: NonNull<TreeMount>) {
        let lock = self.lock.lock();
        // SAFETY: the caller's.
        let added = unsafe { mount.as_ref() };
        if let Some(next) = Self::at(&self.first, &lock) {
            // Relaxed, here and below: under the lock.
            next.previous_of_sb.store(mount.as_ptr(), Ordering::Relaxed);
            added.next_of_sb.store(ptr::from_ref(next).cast_mut(), Ordering::Relaxed);
        }
        self.first.store(mount.as_ptr(), Ordering::Relaxed);
    }

    /// Removes a mount of this list.
    fn remove(&self, mount: &TreeMount) {
        let lock = self.lock.lock();
        // Relaxed, all: under the lock.
        let next = mount.next_of_sb.load(Ordering::Relaxed);
        let previous = mount.previous_of_sb.load(Ordering::Relaxed);
        if let Some(after) = Self::at(&mount.next_of_sb, &lock) {
            after.previous_of_sb.store(previous, Ordering::Relaxed);
        }
        let before = Self::at(&mount.previous_of_sb, &lock);
        before.map_or(&self.first, |before| &before.next_of_sb).store(next, Ordering::Relaxed);
    }

    /// Makes all mounts read-only, or as they are by themselves
    /// (`sb_prepare_remount_readonly`). For the holder of the mounts' lock.
    ///
    /// # Errors
    /// `EBUSY` to forbid writing while a file is open for it. Nothing has changed then.
    pub(crate) fn set_rdonly(&self, rdonly: bool) -> Result<(), Errno> {
        let lock = &self.lock.lock();
        let all = || {
            let first = Self::at(&self.first, lock);
            core::iter::successors(first, move |mount| Self::at(&mount.next_of_sb, lock))
        };
        let set = |mount: &TreeMount, rdonly| {
            mount.set_rdonly(mount.own_flags().contains(MountFlags::RDONLY), rdonly)
        };
        let Some((busy, errno)) =
            all().find_map(|mount| set(mount, rdonly).err().map(|errno| (mount, errno)))
        else {
            return Ok(());
        };
        for mount in all().take_while(|mount| !ptr::eq(*mount, busy)) {
            set(mount, !rdonly)?;
        }
        Err(errno)
    }
}

impl TreeMount {
    /// Notes that somebody has used it, for `MNT_EXPIRE`.
    #[inline(always)]
    fn is_used(&self) {
        // Relaxed, both: whoever unmounts after this has our put in its sum, or finds the mount in use, or was seen by who passes.
        if self.expiring.load(Ordering::Relaxed) {
            self.expiring.store(false, Ordering::Relaxed);
        }
    }

    /// Its root.
    #[inline(always)]
    pub fn root(&self) -> &Dentry {
        &self.root
    }

    /// The root, for one more reference.
    pub(crate) fn root_ref(&self) -> &DentryRef<'static> {
        &self.root
    }

    /// The filesystem, for one more reference.
    pub(crate) fn sb_ref(&self) -> &SuperRef<'static> {
        &self.sb
    }

    /// The filesystem.
    #[inline]
    pub fn super_block(&self) -> &SuperBlock {
        self.root().super_block()
    }

    /// Its number, never used again (`STATX_MNT_ID_UNIQUE`).
    pub fn id(&self) -> u64 {
        self.id
    }

    /// What is forbidden in it.
    #[inline(always)]
    pub fn flags(&self) -> MountFlags {
        // Relaxed: a word of its own.
        MountFlags::from_bits_retain(self.flags.load(Ordering::Relaxed))
    }

    /// Changes the mount's flags, but for whether it is read-only. For the holder of the mounts'
    /// lock.
    pub(crate) fn set_flags(&self, flags: MountFlags) {
        let mut flags = flags;
        flags.set(MountFlags::RDONLY, self.flags().contains(MountFlags::RDONLY));
        // Relaxed: as above.
        self.flags.store(flags.bits(), Ordering::Relaxed);
    }

    /// The flags that the mount has by itself, whatever its filesystem is.
    pub(crate) fn own_flags(&self) -> MountFlags {
        let mut flags = self.flags();
        // Relaxed: a word of its own.
        flags.set(MountFlags::RDONLY, self.is_rdonly.load(Ordering::Relaxed));
        flags
    }

    /// Makes the mount read-only or writable, as it and its filesystem are to be. For the holder of
    /// the mounts' lock.
    ///
    /// # Errors
    /// `EBUSY` to forbid writing while a file is open for it. Nothing has changed then.
    pub(crate) fn set_rdonly(&self, own: bool, super_block: bool) -> Result<(), Errno> {
        if own || super_block {
            self.writers.close()?;
        } else {
            self.writers.open();
        }
        let mut flags = self.flags();
        flags.set(MountFlags::RDONLY, own || super_block);
        // Relaxed, both: as above.
        self.flags.store(flags.bits(), Ordering::Relaxed);
        self.is_rdonly.store(own, Ordering::Relaxed);
        Ok(())
    }

    /// Returns whether the mount is not bound elsewhere.
    pub(crate) fn is_unbindable(&self) -> bool {
        // Relaxed: a word of its own.
        self.is_unbindable.load(Ordering::Relaxed)
    }

    /// Says whether the mount may be bound elsewhere.
    pub(crate) fn set_unbindable(&self, is: bool) {
        // Relaxed: as above.
        self.is_unbindable.store(is, Ordering::Relaxed);
    }

    /// Begins to change the filesystem through this mount (`mnt_want_write`). Writes no shared line.
    ///
    /// # Errors
    /// `EROFS`; `ENOMEM` until the counts of the mount's writers are made.
    #[inline]
    pub fn want_write(&self) -> Result<Writing<'_>, Errno> {
        self.writers.begin()?;
        Ok(Writing(&self.writers))
    }

    /// Leave to write for who has only seen the mount, in the section that is open, and does not wait; none if it is not mounted, or
    /// read-only, or somebody counts those who write. Writes no shared line.
    #[inline(always)]
    pub(crate) fn pass<'k>(&self, _vfs: &'k Vfs, _section: &Guard<'_>) -> Option<Passing<'k>> {
        self.writers.try_begin()?.ok()?;
        // Before the look: who unmounts, and whom that did not see, finds this.
        self.is_used();
        let passing = Passing { mount: NonNull::from(self), of: PhantomData };
        // Looked at after it was counted. If not: ended by the drop.
        if self.counts.found_mounted() { Some(passing) } else { None }
    }

    /// [`want_write`](Self::want_write) for who does not wait: none while somebody counts those who write.
    #[inline]
    pub(crate) fn try_want_write(&self) -> Option<Leave<'_>> {
        self.writers.try_begin().map(|begun| begun.map(|()| Writing(&self.writers)))
    }

    /// A file is closed for which a [`Writing`] was kept.
    #[inline]
    pub fn drop_write(&self) {
        self.writers.close_file();
    }

    /// Its references.
    #[inline]
    pub(crate) fn counts(&self) -> &Mount {
        &self.counts
    }

    /// Whether a tree of mounts has it now (`is_mounted`). A kernel's own mount is in no tree.
    pub fn is_mounted(&self) -> bool {
        // Relaxed: the mounts' lock orders it, or the answer is of one moment.
        self.namespace.load(Ordering::Relaxed) != 0
    }

    /// Whether both are the same.
    #[inline(always)]
    pub fn same(&self, other: &TreeMount) -> bool {
        ptr::eq(self, other)
    }

    /// What is mounted on a dentry of this mount. Writes nothing.
    #[inline]
    pub(crate) fn on<'g>(
        &'g self,
        dentry: &Dentry,
        section: &'g Guard<'_>,
    ) -> Option<&'g TreeMount> {
        self.on_it.find(ptr::from_ref(dentry).addr(), section)
    }

    /// The mount that it is on, and where: a pair only if the sequence count of the mounts has not moved.
    #[inline]
    pub(crate) fn place<'g>(
        &'g self,
        _section: &'g Guard<'_>,
    ) -> Option<(&'g TreeMount, &'g Dentry)> {
        // ORDERING: pairs with the releases in `move_to`: what is found is seen made.
        let (mount, dentry) =
            (self.parent.load(Ordering::Acquire), self.mountpoint.load(Ordering::Acquire));
        // SAFETY: whoever takes a mount off its place gives the two references back later, and each is freed by RCU: what is
        // found in a section stays until its end.
        unsafe { Some((mount.as_ref()?, dentry.as_ref()?)) }
    }

    /// What is mounted on a dentry of this mount, for the holder of the mounts' lock.
    pub(crate) fn on_locked(&self, dentry: &Dentry) -> Option<&TreeMount> {
        // SAFETY: the book of mounts, which is locked, has a reference to each mount in a table.
        self.on_it.get(ptr::from_ref(dentry).addr()).map(|mount| unsafe { &*mount.as_ptr() })
    }

    /// All that is mounted on it, for the holder of the mounts' lock.
    pub(crate) fn all_on(&self) -> impl Iterator<Item = &TreeMount> {
        // SAFETY: as above.
        self.on_it.each().map(|mount| unsafe { &*mount.as_ptr() })
    }

    /// Whether anything is mounted on it, for the holder of the mounts' lock.
    pub(crate) fn is_mounted_on(&self) -> bool {
        !self.on_it.is_empty()
    }

    /// Enters `child` as mounted on `dentry` of this mount, perhaps in the place of another. The child's own place is not
    /// changed.
    ///
    /// # Errors
    /// [`AllocError`], and nothing has changed; never if something is mounted there.
    ///
    /// # Safety
    /// The caller holds the lock of the mounts, and keeps references to both mounts and to the dentry in their book until a
    /// [`take_off`](Self::take_off) or another such entry undoes this one.
    pub(crate) unsafe fn put_on(
        &self,
        dentry: &Dentry,
        child: &TreeMount,
    ) -> Result<(), AllocError> {
        // SAFETY: by contract the child has a reference; mounts are freed by RCU.
        unsafe {
            let domain = self.vfs.as_ref().domain;
            self.on_it.insert(ptr::from_ref(dentry).addr(), NonNull::from(child), domain)
        }
    }

    /// Takes out what is mounted on `dentry` of this mount. For the holder of the mounts' lock.
    pub(crate) fn take_off(&self, dentry: &Dentry) {
        self.on_it.remove(ptr::from_ref(dentry).addr());
    }

    /// Says where it is mounted. For the holder of the mounts' lock, in a write section of their sequence count.
    ///
    /// # Safety
    /// The caller keeps references to both in the book until the next call.
    pub(crate) unsafe fn move_to(&self, place: Option<(&TreeMount, &Dentry)>) {
        let pointers = |(mount, dentry): (&TreeMount, &Dentry)| {
            (ptr::from_ref(mount).cast_mut(), ptr::from_ref(dentry).cast_mut())
        };
        let (mount, dentry) = place.map_or((ptr::null_mut(), ptr::null_mut()), pointers);
        // ORDERING: pairs with the acquires in `place`.
        self.parent.store(mount, Ordering::Release);
        self.mountpoint.store(dentry, Ordering::Release);
    }
}

impl fmt::Debug for TreeMount {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TreeMount")
            .field("id", &self.id)
            .field("s_type", &self.super_block().s_type())
            .field("flags", &self.flags())
            .finish_non_exhaustive()
    }
}

impl fmt::Debug for MountRef<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        (**self).fmt(f)
    }
}
