//! What is mounted on the directories of one mount.
//!
//! # The contended way
//!
//! One hash table of a kernel's mounts, in which a walk looks under a lock, or under a sequence count that every mount of
//! every namespace moves.
//!
//! # Our way
//!
//! Each mount has the table of those on it: sorted, and found by a pointer that readers load in a read section. Who mounts
//! makes a new one and publishes it. Who unmounts empties an entry in place, which needs no memory and cannot fail. A walk
//! asks only where a dentry says that something is mounted on it, in some namespace.
//!
//! ```text
//!   MountTable ── now ──> Snapshot { (dentry's address, mount), ... }     freed by RCU when another takes its place
//! ```
//!
//! # Guarantees
//!
//! A mount that is in the table all the time that a search takes is found by it.
//!
//! # Source
//!
//! The kernel's is `mount_hashtable` of `fs/namespace.c`.

use core::fmt;
use core::ptr::{self, NonNull};
use quietline_platform::atomic::{AtomicPtr, Ordering};
use quietline_platform::{AllocError, heap};
use quietline_sync::rcu::{Domain, Guard, Head};

/// Mounts by the address of what they are mounted on.
///
/// Whoever changes it holds the lock of all mounts.
pub(crate) struct MountTable<M> {
    now: AtomicPtr<Snapshot<M>>,
}

#[repr(C)]
struct Snapshot<M> {
    head: Head,
    /// Sorted by key.
    entries: Box<[Entry<M>]>,
}

struct Entry<M> {
    key: usize,
    /// Null: nothing is mounted there any more.
    mount: AtomicPtr<M>,
}

impl<M> Snapshot<M> {
    #[inline]
    fn entry(&self, key: usize) -> Option<&Entry<M>> {
        let at = self.entries.partition_point(|entry| entry.key < key);
        self.entries.get(at).filter(|entry| entry.key == key)
    }
}

impl<M> MountTable<M> {
    /// Nothing.
    pub(crate) fn new() -> Self {
        Self { now: AtomicPtr::new(ptr::null_mut()) }
    }

    #[inline]
    fn snapshot(&self) -> Option<&Snapshot<M>> {
        // ORDERING: pairs with the release in `insert`: who finds a snapshot finds its entries. Who finds the one before finds
        // what was mounted when its search began.
        // SAFETY: callers are in a read section, or hold the lock: it is not freed meanwhile.
        unsafe { self.now.load(Ordering::Acquire).as_ref() }
    }

    /// The mount on `key`. Writes nothing. O(log mounts).
    #[inline]
    pub(crate) fn find<'g>(&'g self, key: usize, _section: &'g Guard<'_>) -> Option<&'g M> {
        // ORDERING: pairs with the release in `insert`: who finds a mount finds it made.
        // SAFETY: by `insert`'s contract it stays while the section is open.
        unsafe { self.snapshot()?.entry(key)?.mount.load(Ordering::Acquire).as_ref() }
    }

    /// The mount on `key`, for the holder of the lock.
    pub(crate) fn get(&self, key: usize) -> Option<NonNull<M>> {
        // Relaxed: only the lock's holders write it.
        NonNull::new(self.snapshot()?.entry(key)?.mount.load(Ordering::Relaxed))
    }

    /// All mounts, for the holder of the lock.
    pub(crate) fn each(&self) -> impl Iterator<Item = NonNull<M>> {
        let entries = self.snapshot().map_or(&[][..], |snapshot| &snapshot.entries);
        // Relaxed: as in `get`.
        entries.iter().filter_map(|entry| NonNull::new(entry.mount.load(Ordering::Relaxed)))
    }

    /// Whether there is none, for the holder of the lock.
    pub(crate) fn is_empty(&self) -> bool {
        self.each().next().is_none()
    }

    /// Puts a mount on `key`, in the place of what was there. O(mounts), unless `key` was there before.
    ///
    /// # Errors
    /// [`AllocError`], and nothing has changed; never if something is on `key`.
    ///
    /// # Safety
    /// The caller holds the lock. The mount stays until a grace period of `domain` has passed since it was taken out.
    pub(crate) unsafe fn insert(
        &self,
        key: usize,
        mount: NonNull<M>,
        domain: &Domain,
    ) -> Result<(), AllocError> {
        if let Some(entry) = self.snapshot().and_then(|snapshot| snapshot.entry(key)) {
            // ORDERING: pairs with the acquire in `find`.
            entry.mount.store(mount.as_ptr(), Ordering::Release);
            return Ok(());
        }
        let count = self.each().count();
        let at = self.keyed().filter(|&(k, _)| k < key).count();
        let mut old = self.keyed();
        let entries = heap::try_boxed_slice(count + 1, |i| {
            let (key, mount) =
                if i == at { (key, mount) } else { old.next().expect("as many as were counted") };
            Entry { key, mount: AtomicPtr::new(mount.as_ptr()) }
        })?;
        drop(old);
        let new = Box::into_raw(heap::try_box(Snapshot { head: Head::new(), entries })?);
        // ORDERING: release pairs with the acquire in `snapshot`. (What was there is the lock's.)
        let before = self.now.swap(new, Ordering::AcqRel);
        // SAFETY: it is in no table any more, and was made below.
        unsafe { Self::retire(before, domain) };
        Ok(())
    }

    /// Takes out what is on `key`. Never fails.
    pub(crate) fn remove(&self, key: usize) {
        if let Some(entry) = self.snapshot().and_then(|snapshot| snapshot.entry(key)) {
            // ORDERING: release, for who finds nothing there and goes on beneath: what the unmounter did before is seen.
            entry.mount.store(ptr::null_mut(), Ordering::Release);
        }
    }

    fn keyed(&self) -> impl Iterator<Item = (usize, NonNull<M>)> {
        let entries = self.snapshot().map_or(&[][..], |snapshot| &snapshot.entries);
        // Relaxed: as in `get`.
        entries.iter().filter_map(|entry| {
            Some((entry.key, NonNull::new(entry.mount.load(Ordering::Relaxed))?))
        })
    }

    /// # Safety
    /// Null, or a snapshot that `insert` made and that a reader who begins now cannot find.
    unsafe fn retire(snapshot: *mut Snapshot<M>, domain: &Domain) {
        unsafe fn free<M>(head: NonNull<Head>) {
            // SAFETY: the head is the first field of a snapshot that was boxed, and nobody can see it any more.
            drop(unsafe { Box::from_raw(head.cast::<Snapshot<M>>().as_ptr()) });
        }
        if let Some(snapshot) = NonNull::new(snapshot) {
            // SAFETY: it is the caller's to give away.
            unsafe { domain.call(snapshot.cast(), free::<M>) };
        }
    }
}

impl<M> Drop for MountTable<M> {
    fn drop(&mut self) {
        // Relaxed: nobody else has the table.
        let snapshot = self.now.load(Ordering::Relaxed);
        if !snapshot.is_null() {
            // SAFETY: made by `insert`; whoever drops the table has let the readers go.
            drop(unsafe { Box::from_raw(snapshot) });
        }
    }
}

impl<M> fmt::Debug for MountTable<M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("MountTable").field(&self.now).finish()
    }
}
