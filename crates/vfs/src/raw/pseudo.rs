//! Pseudo objects: what sockets, pipes and anonymous descriptors are made of.
//!
//! # The contended way
//!
//! In 2.6.27 a socket's dentry was a child of its filesystem's root and its inode was on two lists: two global locks
//! taken twice each, and the lines of a dozen neighbours and counters, though nobody can ever look a socket up by
//! name.
//!
//! # Our way
//!
//! A pseudo object is one allocation: the dentry, then, for what has one, the inode, and the state. The dentry is its
//! own parent, in no hash and on no list, so no RCU reader can meet it, and it is freed at once. Making one touches
//! the CPU's sheaf, nothing else.

use crate::dentry::PseudoDentry;
use crate::inode::PseudoInode;
use crate::mount::Mount;
use crate::raw::handle::FileHandle;
use crate::{FileMode, Files};
use core::any::TypeId;
use core::fmt;
use core::ptr::NonNull;
use quietline_slab::{Cache, CacheError, Stats};
use rustix::io::Errno;

/// The state of a kind of pseudo object.
pub trait Payload: Send + Sync + Sized + 'static {
    /// The name of its cache in statistics.
    const CACHE: &'static str;
    /// The inode, if it has its own.
    fn inode(&self) -> Option<&PseudoInode>;
    /// The name by which `/proc/PID/fd` shows it.
    fn name(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result;
}

/// A pseudo object. The dentry comes first: a pointer to it is a pointer to the object. Objects start on lines of their
/// own, because neighbours in a slab are with other CPUs (two threads with a pipe each, in throw-away runs: 1.5 times
/// one thread's rate without, 2.0 with).
#[repr(C, align(64))]
struct Pseudo<P: Payload> {
    dentry: PseudoDentry,
    fs: NonNull<PseudoFs<P>>,
    payload: P,
}

// SAFETY: the pointer to the filesystem is only followed while the kernel that owns it lives; all parts are shared
// by design.
unsafe impl<P: Payload> Send for Pseudo<P> {}
// SAFETY: as above.
unsafe impl<P: Payload> Sync for Pseudo<P> {}

/// What a file knows of the object it is open on, without knowing its type (`file_operations`, in small).
pub struct Kind {
    payload: fn() -> TypeId,
    release: unsafe fn(NonNull<PseudoDentry>),
    name: unsafe fn(NonNull<PseudoDentry>, &mut fmt::Formatter<'_>) -> fmt::Result,
}

impl fmt::Debug for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Kind").finish_non_exhaustive()
    }
}

/// A filesystem of pseudo objects of one kind: their cache and their mount.
///
/// It must stay where it is while objects live: they point to it. Its owner, a kernel, is boxed, and every handle
/// borrows it.
#[derive(Debug)]
pub struct PseudoFs<P: Payload> {
    cache: Cache<Pseudo<P>>,
    mount: Mount,
}

impl<P: Payload> PseudoFs<P> {
    const KIND: &'static Kind = &Kind { payload: TypeId::of::<P>, release: release::<P>, name: name::<P> };

    /// A filesystem without objects.
    ///
    /// # Errors
    /// [`CacheError`] when there is no memory.
    pub fn new(s_type: &'static str) -> Result<Self, CacheError> {
        Ok(Self { cache: Cache::new(P::CACHE)?, mount: Mount::internal(s_type) })
    }

    /// Objects that live; exact when nobody makes or ends one meanwhile.
    ///
    /// Nobody counts them one by one: the cache knows how many it has given out, for all objects that it has are either
    /// in a sheaf or alive. So this costs what [`stats`](Self::stats) costs, some microseconds.
    pub fn live(&self) -> i64 {
        self.cache.stats().active as i64
    }

    /// What the cache holds.
    pub fn stats(&self) -> Stats {
        self.cache.stats()
    }

    /// Gives cached objects back to the system.
    pub fn shrink(&self) {
        self.cache.shrink();
    }

    /// An object with one file on it.
    ///
    /// Writes no shared line: the CPU's sheaves, counters, and the new objects.
    ///
    /// # Errors
    /// `ENOMEM`; `ENFILE` at the limit of open files.
    #[inline(always)]
    pub fn open<'k>(
        &'k self,
        files: &'k Files,
        payload: P,
        flags: i32,
        mode: FileMode,
    ) -> Result<FileHandle<'k>, Errno> {
        let dentry = self.create(payload, 1)?;
        // SAFETY: the new dentry's reference is ours to give; it lives in this filesystem, which lives for 'k.
        unsafe { FileHandle::open(files, &self.mount, dentry, Self::KIND, flags, mode) }
    }

    /// An object with two files on it, as a pipe has.
    ///
    /// # Errors
    /// As [`open`](Self::open); then neither file is open.
    pub fn open_pair<'k>(
        &'k self,
        files: &'k Files,
        payload: P,
        ends: [(i32, FileMode); 2],
    ) -> Result<[FileHandle<'k>; 2], Errno> {
        let dentry = self.create(payload, 2)?;
        let [first, second] = ends.map(|(flags, mode)| {
            // SAFETY: the new dentry has two references, one for each file; the rest as in `open`.
            unsafe { FileHandle::open(files, &self.mount, dentry, Self::KIND, flags, mode) }
        });
        Ok([first?, second?])
    }

    #[inline(always)]
    fn create(&self, payload: P, references: u32) -> Result<NonNull<PseudoDentry>, Errno> {
        let object = Pseudo { dentry: PseudoDentry::pseudo(references), fs: NonNull::from(self), payload };
        let object = self.cache.alloc(object).map_err(|_| Errno::NOMEM)?;
        quietline_platform::name_words!(*object => "Pseudo" { fs, payload });
        quietline_platform::name_words!(object.dentry, "Dentry");
        quietline_platform::name_words!(object.dentry.d_lockref, "Dentry.d_lockref");
        object.dentry.adopt_self();
        Ok(object.into_raw().cast())
    }
}

/// Gives back a file's reference to its dentry (`dput`). The last one ends the object, at once: nobody can look a
/// pseudo dentry up.
///
/// # Safety
/// The reference is the caller's, on an object of `kind`, whose filesystem lives.
#[inline(always)]
pub(super) unsafe fn dput(dentry: NonNull<PseudoDentry>, kind: &Kind) {
    // SAFETY: the caller's reference keeps it alive.
    let lockref = unsafe { &dentry.as_ref().d_lockref };
    // A new reference comes only from an old one, and a sole holder has the only one: then there is nobody to
    // agree with, and no need for a locked instruction.
    //
    // ORDERING: `is_sole` loads with acquire, which the last of several holders needs as much as the sole one (it pairs
    // with the release of the puts before, of which the load finds the last): what they did to the object comes before
    // its end. Nobody takes a pseudo dentry's lock, so a put is never told to wait for it.
    let last = lockref.is_sole() || {
        let left = lockref.put_return();
        debug_assert!(left.is_some(), "nobody takes a pseudo dentry's lock");
        // Never true here; asked for its acquire.
        left == Some(0) && !lockref.is_sole()
    };
    if last {
        // SAFETY: that was the last reference, on an object of this kind.
        unsafe { (kind.release)(dentry) };
    }
}

/// # Safety
/// As [`dput`], with no other reference left.
unsafe fn release<P: Payload>(dentry: NonNull<PseudoDentry>) {
    let object = dentry.cast::<Pseudo<P>>();
    // SAFETY: the dentry is the first field of an object of this type, which is ours alone; its filesystem lives.
    unsafe {
        let fs = object.as_ref().fs.as_ref();
        object.drop_in_place();
        fs.cache.free_raw(object);
    }
}

/// # Safety
/// The dentry is that of a living object of this kind.
unsafe fn name<P: Payload>(dentry: NonNull<PseudoDentry>, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    // SAFETY: by contract.
    unsafe { dentry.cast::<Pseudo<P>>().as_ref() }.payload.name(f)
}

impl Kind {
    /// # Safety
    /// The dentry is that of a living object of this kind.
    pub(super) unsafe fn name(
        &self,
        dentry: NonNull<PseudoDentry>,
        f: &mut fmt::Formatter<'_>,
    ) -> fmt::Result {
        // SAFETY: by contract.
        unsafe { (self.name)(dentry, f) }
    }

    /// The state of an object, if it is of this type.
    ///
    /// # Safety
    /// The dentry is that of an object of this kind, alive for `'a`.
    pub(super) unsafe fn payload<'a, P: Payload>(&self, dentry: NonNull<PseudoDentry>) -> Option<&'a P> {
        // SAFETY: by contract, and the type is the object's.
        ((self.payload)() == TypeId::of::<P>())
            .then(|| unsafe { &dentry.cast::<Pseudo<P>>().as_ref().payload })
    }
}
