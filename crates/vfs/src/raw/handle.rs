//! File handles: owned references to open files.

use super::pseudo::{self, Kind, Payload};
use crate::dentry::Dentry;
use crate::file::{File, FileMode, Files};
use crate::inode::Inode;
use crate::mount::Mount;
use core::fmt;
use core::marker::PhantomData;
use core::mem::ManuallyDrop;
use core::ptr::NonNull;
use quietline_platform::atomic::Ordering;
use rustix::io::Errno;

/// A reference to an open file. Dropping the last one closes the file.
///
/// This is a file without a descriptor: it costs no table, no number and no lock.
pub struct FileHandle<'k> {
    file: NonNull<File>,
    files: &'k Files,
}

// SAFETY: a handle owns a count; the file behind it is made of atomics and shared by design.
unsafe impl Send for FileHandle<'_> {}
// SAFETY: as above.
unsafe impl Sync for FileHandle<'_> {}

impl<'k> FileHandle<'k> {
    /// Opens a file on a pseudo object (`alloc_file_pseudo`).
    ///
    /// # Errors
    /// `ENFILE` at the limit, `ENOMEM`. The reference to the dentry is given back.
    ///
    /// # Safety
    /// The caller owns a reference to the dentry and gives it away; it is of an object of `kind`. The object's
    /// filesystem and `mount` live for `'k`.
    #[inline(always)]
    pub(super) unsafe fn open(
        files: &'k Files,
        mount: &'k Mount,
        dentry: NonNull<Dentry>,
        kind: &'static Kind,
        flags: i32,
        mode: FileMode,
    ) -> Result<Self, Errno> {
        let file = match files.may_open() {
            true => files.cache.alloc().map_err(|_| Errno::NOMEM),
            false => Err(Errno::NFILE),
        };
        let file = match file {
            Ok(file) => file,
            Err(errno) => {
                // SAFETY: the reference was given to us.
                unsafe { pseudo::dput(dentry, kind) };
                return Err(errno);
            }
        };
        files.nr_files.inc();
        mount.get();
        // SAFETY: a fresh file is ours; readers may look at it, so its fields are atomics.
        let f = unsafe { file.as_ref() };
        // Relaxed: only the owner of a new life writes the generation.
        f.f_gen.store(f.f_gen.load(Ordering::Relaxed).wrapping_add(1), Ordering::Relaxed);
        // ORDERING: pairs with the acquire in `File::status`: who reads these flags and then the generation finds
        // the new one. Who reads older flags finds an older generation before them.
        f.f_flags.store(flags as u32, Ordering::Release);
        // Relaxed: `FileRef::init` publishes the rest.
        f.f_mode.store(mode.bits(), Ordering::Relaxed);
        f.f_dentry.store(dentry.as_ptr(), Ordering::Relaxed);
        f.f_mnt.store((mount as *const Mount).cast_mut(), Ordering::Relaxed);
        f.f_kind.store((kind as *const Kind).cast_mut(), Ordering::Relaxed);
        f.f_ref.init(1);
        Ok(Self { file, files })
    }

    /// Takes a reference to a file that was found in a table, if it lives.
    ///
    /// # Safety
    /// `file` was a file of `files` when the read section began that is open now.
    #[inline(always)]
    pub(super) unsafe fn get_unless_dead(file: NonNull<File>, files: &'k Files) -> Option<Self> {
        // SAFETY: files live in a typesafe cache, and the section is open.
        unsafe { file.as_ref() }.f_ref.get().then_some(Self { file, files })
    }

    /// The reference as a pointer, for a slot of a table.
    #[inline(always)]
    pub(super) fn into_raw(self) -> NonNull<File> {
        ManuallyDrop::new(self).file
    }

    /// The reference back.
    ///
    /// # Safety
    /// `file` came from [`into_raw`](Self::into_raw) of a handle with the same `files`, once.
    #[inline(always)]
    pub(super) unsafe fn from_raw(file: NonNull<File>, files: &'k Files) -> Self {
        Self { file, files }
    }

    #[inline(always)]
    pub(super) fn file(&self) -> &File {
        // SAFETY: our reference keeps it alive.
        unsafe { self.file.as_ref() }
    }

    /// Status flags and access mode, as `F_GETFL` returns them.
    pub fn flags(&self) -> i32 {
        self.file().status()
    }

    /// Sets the flags in `mask` to `flags`.
    pub fn set_flags(&self, flags: i32, mask: i32) {
        let change = |old: u32| Some((old & !(mask as u32)) | (flags & mask) as u32);
        // ORDERING: release, so that `File::status` keeps its meaning; acquire is not needed.
        let _ = self.file().f_flags.fetch_update(Ordering::Release, Ordering::Relaxed, change);
    }

    /// What may be done with the file.
    pub fn mode(&self) -> FileMode {
        // Relaxed: constant while we have a reference.
        FileMode::from_bits_truncate(self.file().f_mode.load(Ordering::Relaxed))
    }

    fn parts(&self) -> (NonNull<Dentry>, &'static Kind) {
        let file = self.file();
        // Relaxed: constant while we have a reference, which synchronised with the opener.
        let dentry = NonNull::new(file.f_dentry.load(Ordering::Relaxed)).expect("an open file has a dentry");
        // SAFETY: an open file's kind is a static.
        let kind = unsafe { &*file.f_kind.load(Ordering::Relaxed).cast_const() };
        (dentry, kind)
    }

    /// The dentry that the file is open on.
    pub fn dentry(&self) -> &Dentry {
        // SAFETY: the file's reference keeps the dentry alive.
        unsafe { self.parts().0.as_ref() }
    }

    /// The mount that the file is open on.
    pub fn mount(&self) -> &'k Mount {
        // SAFETY: mounts live as long as their kernel, which is borrowed for 'k.
        unsafe { &*self.file().f_mnt.load(Ordering::Relaxed).cast_const() }
    }

    /// The state behind the file, if it is of this type.
    pub fn payload<P: Payload>(&self) -> Option<&P> {
        let (dentry, kind) = self.parts();
        // SAFETY: the file's reference keeps the object alive.
        unsafe { kind.payload(dentry) }
    }

    /// The object's own inode, if it has one and is of this type.
    pub fn inode<P: Payload>(&self) -> Option<&Inode> {
        self.payload::<P>()?.inode()
    }

    /// The name by which `/proc/PID/fd` shows the file: `socket:[INO]`, `pipe:[INO]`, `anon_inode:[eventfd]`.
    pub fn name(&self) -> impl fmt::Display {
        struct Name<'a>(NonNull<Dentry>, &'static Kind, PhantomData<&'a File>);
        impl fmt::Display for Name<'_> {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                // SAFETY: the handle is borrowed, and keeps the object alive.
                unsafe { self.1.name(self.0, f) }
            }
        }
        let (dentry, kind) = self.parts();
        Name(dentry, kind, PhantomData::<&File>)
    }

    /// Whether the file is one of these.
    pub fn is_of(&self, files: &Files) -> bool {
        core::ptr::eq(self.files, files)
    }

    /// Whether both are the same open file.
    pub fn same_file(&self, other: &FileHandle<'_>) -> bool {
        self.file == other.file
    }

    /// Ends a file that has no reference left (`__fput`).
    #[inline(always)]
    fn release(&mut self) {
        let (dentry, kind) = self.parts();
        let mount = self.mount();
        // SAFETY: the last reference to the file was ours, and with it go the file's references; nobody else uses
        // the file. It is of `files`' cache.
        unsafe {
            pseudo::dput(dentry, kind);
            self.files.cache.free(self.file);
        }
        let last = mount.put();
        debug_assert!(!last, "a kernel's mounts outlive its files");
        self.files.nr_files.dec();
    }
}

impl Clone for FileHandle<'_> {
    /// One more reference: one locked instruction on the file's line.
    fn clone(&self) -> Self {
        assert!(self.file().f_ref.get(), "a handle's file lives");
        Self { file: self.file, files: self.files }
    }
}

impl Drop for FileHandle<'_> {
    #[inline(always)]
    fn drop(&mut self) {
        if self.file().f_ref.put_close() {
            self.release();
        }
    }
}

impl fmt::Debug for FileHandle<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "FileHandle({}, flags {:#o})", self.name(), self.flags())
    }
}
