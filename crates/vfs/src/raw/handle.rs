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
use quietline_slab::Typesafe;
use rustix::io::Errno;

// SAFETY: nobody reads or drops the link's four bytes.
unsafe impl Typesafe for File {
    fn construct() -> Self {
        Self::unborn()
    }

    const LINK_OFFSET: Option<usize> = Some(Self::LINK);
}

/// A reference to an open file. Dropping the last one closes the file.
///
/// This is a file without a descriptor: it costs no table, no number and no lock.
///
/// One word, so that it travels in a register all the way from `open` to a slot.
pub struct FileHandle<'k> {
    file: NonNull<File>,
    of: PhantomData<&'k Files>,
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
        quietline_platform::name_words!(*f => "File" { f_ref, f_status, f_mode, f_dentry, f_mnt, f_kind, f_files });
        f.f_status.begin(flags as u32);
        // Relaxed: `FileRef::init` publishes all of it.
        f.f_mode.store(mode.bits(), Ordering::Relaxed);
        f.f_dentry.store(dentry.as_ptr(), Ordering::Relaxed);
        f.f_mnt.store((mount as *const Mount).cast_mut(), Ordering::Relaxed);
        f.f_kind.store((kind as *const Kind).cast_mut(), Ordering::Relaxed);
        f.f_files.store((files as *const Files).cast_mut(), Ordering::Relaxed);
        f.f_ref.init(1);
        Ok(Self { file, of: PhantomData })
    }

    /// Takes a reference to a file that was found in a table, if it lives.
    ///
    /// # Safety
    /// `file` was a file of `files` when the read section began that is open now.
    #[inline(always)]
    pub(super) unsafe fn get_unless_dead(file: NonNull<File>, _files: &'k Files) -> Option<Self> {
        // SAFETY: files live in a typesafe cache, and the section is open.
        let lives = unsafe { file.as_ref() }.f_ref.get();
        // Not `then_some`: a handle that is made is dropped, and would put what was not taken.
        lives.then(|| Self { file, of: PhantomData })
    }

    /// Takes a reference to a file that somebody keeps open meanwhile.
    ///
    /// # Safety
    /// `file` is an open file of `files`, and stays open during the call.
    #[inline(always)]
    pub(super) unsafe fn get_open(file: NonNull<File>, _files: &'k Files) -> Self {
        // SAFETY: by contract it lives.
        let lives = unsafe { file.as_ref() }.f_ref.get();
        debug_assert!(lives, "somebody keeps the file open");
        Self { file, of: PhantomData }
    }

    /// The reference as a pointer, for a slot of a table.
    #[inline(always)]
    pub(super) fn into_raw(self) -> NonNull<File> {
        ManuallyDrop::new(self).file
    }

    /// The reference back.
    ///
    /// # Safety
    /// `file` came from [`into_raw`](Self::into_raw) of a handle to one of `files`, once.
    #[inline(always)]
    pub(super) unsafe fn from_raw(file: NonNull<File>, files: &'k Files) -> Self {
        let handle = Self { file, of: PhantomData };
        debug_assert!(handle.is_of(files), "a table's files are all of one kernel");
        handle
    }

    #[inline(always)]
    fn file(&self) -> &File {
        // SAFETY: our reference keeps it alive.
        unsafe { self.file.as_ref() }
    }

    fn files(&self) -> &'k Files {
        // Relaxed: constant. SAFETY: a kernel's files live as long as it, which is borrowed for 'k.
        unsafe { &*self.file().f_files.load(Ordering::Relaxed).cast_const() }
    }

    /// Gives the reference back, as dropping does, at the place of the call: for those who expect it to be the last.
    #[inline(always)]
    pub(crate) fn close(self) {
        let file = self.into_raw();
        // SAFETY: the reference was ours.
        unsafe { put(file) };
    }

    /// Status flags and access mode, as `F_GETFL` returns them.
    pub fn flags(&self) -> i32 {
        self.file().f_status.flags() as i32
    }

    /// Sets the flags in `mask` to `flags`.
    pub fn set_flags(&self, flags: i32, mask: i32) {
        self.file().f_status.set(flags as u32, mask as u32);
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
        core::ptr::eq(self.files(), files)
    }

    /// Whether both are the same open file.
    pub fn same_file(&self, other: &FileHandle<'_>) -> bool {
        self.file == other.file
    }
}

/// Gives a reference to a file back (`fput`).
///
/// # Safety
/// The reference is the caller's.
#[inline(always)]
unsafe fn put(file: NonNull<File>) {
    // SAFETY: the reference keeps it alive.
    let f = unsafe { file.as_ref() };
    // SAFETY: as above.
    let last = f.f_ref.put_sole() || unsafe { put_shared(file) };
    if last {
        // SAFETY: that was the last.
        unsafe { release(file) };
    }
}

/// Gives back a reference that is not the only one; whether it was the last all the same.
///
/// A put that gave up the last reference looks at the count once more, and by then a reader that had found the file in
/// a table may have taken another reference, put it, and so ended the file: the section keeps the memory mapped.
///
/// # Safety
/// The reference is the caller's.
#[inline(always)]
unsafe fn put_shared(file: NonNull<File>) -> bool {
    // SAFETY: the reference keeps it alive, and the files that it is of.
    let (f, files) = unsafe { (file.as_ref(), &*file.as_ref().f_files.load(Ordering::Relaxed)) };
    let _section = files.domain.read();
    f.f_ref.put()
}

/// Ends a file that has no reference left (`__fput`).
///
/// # Safety
/// The caller has put the last reference.
#[inline(always)]
unsafe fn release(file: NonNull<File>) {
    // SAFETY: nobody else uses the file, so it is ours until it is freed, and its dentry until that is put; what else
    // it points to outlives it. Relaxed: the last put has seen everything that holders did.
    unsafe {
        let f = file.as_ref();
        let files = &*f.f_files.load(Ordering::Relaxed);
        let mount = &*f.f_mnt.load(Ordering::Relaxed);
        let kind = &*f.f_kind.load(Ordering::Relaxed);
        pseudo::dput(NonNull::new_unchecked(f.f_dentry.load(Ordering::Relaxed)), kind);
        files.cache.free(file);
        let last = mount.put();
        debug_assert!(!last, "a kernel's mounts outlive its files");
        files.nr_files.dec();
    }
}

impl Clone for FileHandle<'_> {
    /// One more reference: one locked instruction on the file's line.
    fn clone(&self) -> Self {
        assert!(self.file().f_ref.get(), "a handle's file lives");
        Self { file: self.file, of: PhantomData }
    }
}

impl Drop for FileHandle<'_> {
    #[inline(always)]
    fn drop(&mut self) {
        // SAFETY: the handle owns a reference.
        unsafe { put(self.file) };
    }
}

impl fmt::Debug for FileHandle<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "FileHandle({}, flags {:#o})", self.name(), self.flags())
    }
}
