//! References to dentries: `dget` and `dput`.

use super::entry::Dentry;
use super::life;
use super::long_name::LongName;
use crate::dcache::name::{INLINE, Name};
#[cfg(doc)]
use crate::dentry::DentryFlags;
use crate::inode::{Inode, InodeRef};
use crate::super_block::SuperBlock;
use crate::vfs::Vfs;
use core::fmt;
use core::marker::PhantomData;
use core::mem::ManuallyDrop;
use core::ops::Deref;
use core::ptr::NonNull;
use quietline_platform::atomic::Ordering;
use quietline_sync::LockrefGuard;
use quietline_sync::rcu::Guard;
use rustix::io::Errno;

/// A reference to a dentry. Cloning takes one more; dropping gives it back, which ends the dentry if it was the last and no
/// directory has it.
///
/// Dropping one inside a [`Section`](crate::Section) is allowed.
pub struct DentryRef<'k> {
    dentry: NonNull<Dentry>,
    of: PhantomData<&'k Vfs>,
}

/// A dentry that nobody else has seen: named, with its parent, and in no directory yet. Dropping it frees it.
#[derive(Debug)]
pub struct NewDentry<'k> {
    dentry: DentryRef<'k>,
}

/// A name that a dentry may get: whatever memory it needs is there.
#[derive(Debug)]
pub struct NewName<'k> {
    pub(super) hash_len: u64,
    pub(super) words: [u64; 3],
    vfs: &'k Vfs,
}

// SAFETY: a reference is a count; dentries are shared by design.
unsafe impl Send for DentryRef<'_> {}
// SAFETY: as above.
unsafe impl Sync for DentryRef<'_> {}

impl<'k> DentryRef<'k> {
    /// The caller's reference, as a handle.
    ///
    /// # Safety
    /// The reference is the caller's to give; the dentry's kernel lives for `'k`.
    #[inline(always)]
    pub(crate) unsafe fn from_raw(dentry: NonNull<Dentry>) -> Self {
        Self { dentry, of: PhantomData }
    }

    /// The reference as a pointer, for a place that [`from_raw`](Self::from_raw) takes it back from.
    #[inline(always)]
    pub(crate) fn into_raw(self) -> NonNull<Dentry> {
        ManuallyDrop::new(self).dentry
    }

    /// The dentry's address.
    #[inline(always)]
    pub(crate) fn as_ptr(&self) -> NonNull<Dentry> {
        self.dentry
    }

    #[inline(always)]
    pub(super) fn get(&self) -> &Dentry {
        // SAFETY: our reference keeps it alive.
        unsafe { self.dentry.as_ref() }
    }

    /// The kernel's file systems.
    #[inline(always)]
    pub fn vfs(&self) -> &'k Vfs {
        // SAFETY: the dentry's superblock is valid, and its kernel lives for 'k.
        unsafe { self.super_block().vfs.as_ref() }
    }

    /// A name for [`rename`](crate::DentryRef::rename).
    ///
    /// # Errors
    /// `ENOMEM`.
    pub fn new_name(&self, name: &Name<'_>) -> Result<NewName<'k>, Errno> {
        NewName::new(self.vfs(), name)
    }

    /// A dentry below this one, which nobody has seen (`d_alloc`).
    ///
    /// Takes a reference to this one: writes its second line.
    ///
    /// # Errors
    /// `ENOMEM`.
    #[inline]
    pub fn alloc(&self, name: &Name<'_>) -> Result<NewDentry<'k>, Errno> {
        let vfs = self.vfs();
        // SAFETY: the parent's reference is taken below, and given to the new dentry.
        let new =
            unsafe { NewDentry::alloc(vfs, self.super_block(), name, self.dentry.as_ptr(), true) }?;
        self.get().d_lockref.get();
        Ok(new)
    }

    /// The directory that it is in, as it was at one moment during the call; the root is its own (`dget_parent`).
    ///
    /// Takes a reference: writes the parent's second line.
    pub fn parent(&self) -> DentryRef<'k> {
        let _section = self.vfs().domain.read();
        let dentry = self.get();
        loop {
            let began = dentry.d_seq.read_begin();
            let parent = dentry.parent_ptr();
            // SAFETY: found inside the section as the parent of a living dentry, which had a reference to it.
            if unsafe { parent.as_ref() }.d_lockref.get_not_dead() {
                // SAFETY: just taken.
                let parent = unsafe { DentryRef::from_raw(parent) };
                // Looked at after the count: if it is the parent still, it was all the time in between.
                if !dentry.d_seq.read_retry(began) {
                    return parent;
                }
            }
        }
    }
}

impl Deref for DentryRef<'_> {
    type Target = Dentry;

    #[inline(always)]
    fn deref(&self) -> &Dentry {
        self.get()
    }
}

impl Clone for DentryRef<'_> {
    /// One more reference (`dget`): one locked instruction on the dentry's second line.
    #[inline(always)]
    fn clone(&self) -> Self {
        self.get().d_lockref.get();
        Self { dentry: self.dentry, of: PhantomData }
    }
}

impl Drop for DentryRef<'_> {
    #[inline(always)]
    fn drop(&mut self) {
        // SAFETY: the handle owns a reference.
        unsafe { dput(self.dentry) };
    }
}

impl fmt::Debug for DentryRef<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.get().fmt(f)
    }
}

/// Gives a reference back.
///
/// Writes the dentry's second line. If the dentry ends, that of its parent, and so on upwards, in a loop.
///
/// # Safety
/// The reference is the caller's.
#[inline]
pub(crate) unsafe fn dput(dentry: NonNull<Dentry>) {
    // SAFETY: passed on.
    let mut next = unsafe { put_one(dentry) };
    while let Some(parent) = next {
        // SAFETY: a dentry that ended leaves its reference to its parent.
        next = unsafe { put_one(parent) };
    }
}

/// Gives one reference back; the parent whose reference is left over, if the dentry ended.
///
/// # Safety
/// The reference is the caller's.
#[inline(always)]
unsafe fn put_one(dentry: NonNull<Dentry>) -> Option<NonNull<Dentry>> {
    // SAFETY: the reference keeps it alive, its superblock while it is, and the kernel while that is.
    let dead = unsafe {
        let d = dentry.as_ref();
        if !d.d_lockref.is_sole() {
            let section = d.super_block().vfs.as_ref().domain.read();
            dput_inside(dentry, &section)
        } else {
            put_last(d)
        }
    };
    // SAFETY: it is dead, by our hand.
    dead.and_then(|dead| unsafe { life::end(dead) })
}

/// [`dput`] inside a section that is open; the dentry, if it is dead by this, for [`end_dead`] when the section is closed.
///
/// # Safety
/// The reference is the caller's.
#[inline(always)]
#[must_use = "a dead dentry is to be ended"]
pub(crate) unsafe fn dput_inside(
    dentry: NonNull<Dentry>,
    _section: &Guard<'_>,
) -> Option<NonNull<Dentry>> {
    // SAFETY: the reference keeps it alive, then the section does. (Others may hold it, too, but they may be gone until ours is;
    // then it may end under our eyes.)
    let d = unsafe { dentry.as_ref() };
    let lockref = &d.d_lockref;
    if !lockref.is_sole() {
        match lockref.put_return() {
            Some(0) => {
                let guard = lockref.lock();
                // If not: somebody has taken it since, or has ended it.
                // SAFETY: alive and counted 0 under the lock.
                let dead = guard.count() == 0 && unsafe { rest_or_die(d, guard) };
                return dead.then_some(dentry);
            }
            Some(_) => return None,
            // Locked: the reference is still ours.
            None => {}
        }
    }
    // SAFETY: alive, by our reference.
    unsafe { put_last(d) }
}

/// Gives a reference back that is perhaps the last; the dentry, if it is dead by this.
///
/// # Safety
/// The reference is the caller's.
#[inline(always)]
unsafe fn put_last(d: &Dentry) -> Option<NonNull<Dentry>> {
    let mut guard = d.d_lockref.put_or_lock()?;
    guard.put();
    // SAFETY: alive and counted 0 under the lock.
    unsafe { rest_or_die(d, guard) }.then(|| NonNull::from(d))
}

/// Ends what [`dput_inside`] has left.
///
/// # Safety
/// As it said.
#[cold]
pub(crate) unsafe fn end_dead(dead: NonNull<Dentry>) {
    // SAFETY: dead, by the caller's hand; it leaves its reference to its parent.
    unsafe {
        if let Some(parent) = life::end(dead) {
            dput(parent);
        }
    }
}

/// What becomes of a dentry that nobody refers to: the LRU has it while a directory does; else it is dead. Whether it is.
///
/// # Safety
/// The guard is of its lock, and the count is 0.
unsafe fn rest_or_die(d: &Dentry, mut guard: LockrefGuard<'_>) -> bool {
    debug_assert_eq!(guard.count(), 0);
    // SAFETY: as in `put_one`.
    let lru = unsafe { &d.super_block().vfs.as_ref().lru };
    // ORDERING: whoever took it out of its directory had a reference, and put it before: the lock has brought it.
    if d.is_hashed() {
        lru.add(d);
        return false;
    }
    lru.remove(d);
    guard.mark_dead();
    true
}

impl<'k> NewDentry<'k> {
    /// A dentry with a parent.
    ///
    /// # Safety
    /// The caller gives a reference to the parent, if it is `counted`, before the dentry is dropped or shown to anybody; if it
    /// is not, the parent stays until the dentry is dropped or in its table, and is [pinned](DentryFlags::PINNED). The
    /// superblock is of `vfs`, and valid while the dentry is.
    #[inline]
    pub(super) unsafe fn alloc(
        vfs: &'k Vfs,
        sb: &SuperBlock,
        name: &Name<'_>,
        parent: *mut Dentry,
        counted: bool,
    ) -> Result<Self, Errno> {
        // SAFETY: passed on. It is born with one reference.
        let dentry = unsafe { DentryRef::from_raw(life::begin(vfs, sb, name, parent, counted)?) };
        let new = Self { dentry };
        quietline_platform::name_words!(*new.dentry => "dentry" {
            d_seq, d_state, hash_len, d_inode, d_parent, d_children, name, d_lockref, lru_next, lru_prev, lru_state,
        });
        Ok(new)
    }

    /// Gives it an inode.
    ///
    /// # Panics
    /// If it has one.
    #[inline]
    pub fn instantiate(&mut self, inode: InodeRef<'k>) {
        assert!(self.dentry.is_negative(), "a dentry gets one inode");
        let inode = inode.into_raw();
        // ORDERING: for those who find the dentry without its directory: see `Dentry::inode`.
        self.dentry.get().d_inode.store(inode.as_ptr(), Ordering::Release);
    }

    /// Its inode.
    pub fn inode(&self) -> Option<&Inode> {
        self.dentry.get().inode()
    }

    /// A reference to it as it is, in no directory (`O_TMPFILE`).
    #[inline]
    pub fn into_unhashed(self) -> DentryRef<'k> {
        self.dentry
    }

    /// For those who put it into a directory.
    #[inline]
    pub(crate) fn dentry(&self) -> &Dentry {
        self.dentry.get()
    }

    pub(crate) fn as_ptr(&self) -> NonNull<Dentry> {
        self.dentry.dentry
    }

    pub(super) fn vfs(&self) -> &'k Vfs {
        self.dentry.vfs()
    }

    /// Sets the count before anybody sees it.
    #[inline]
    pub(super) fn set_count(&mut self, count: u32) {
        // SAFETY: nobody else has seen it, so its count is ours alone.
        unsafe {
            (&raw mut (*self.dentry.dentry.as_ptr()).d_lockref)
                .write(quietline_sync::Lockref::new(count))
        };
    }
}

impl<'k> NewName<'k> {
    fn new(vfs: &'k Vfs, name: &Name<'_>) -> Result<Self, Errno> {
        let words = match name.bytes().len() > INLINE {
            false => name.words,
            true => [vfs.long_names.alloc(name).map_err(|_| Errno::NOMEM)?.into_word(), 0, 0],
        };
        Ok(Self { hash_len: name.hash_len, words, vfs })
    }

    /// Gives up the memory to whoever has taken the words.
    pub(super) fn taken(self) {
        let _ = ManuallyDrop::new(self);
    }
}

impl Drop for NewName<'_> {
    fn drop(&mut self) {
        let len = (self.hash_len & 0xff) as usize;
        if len > INLINE {
            // SAFETY: the block is ours, made in `new`, and no dentry has it.
            unsafe { self.vfs.long_names.free(LongName::from_word(self.words[0], len)) };
        }
    }
}
