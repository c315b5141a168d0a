//! File handles: owned references to open files.

use super::dcache::refs::{dput_inside, end_dead};
use super::eventpoll::watched_file_ends;
use super::mount::MountRef;
use super::opened::Opened;
use super::pseudo::{Kind, Payload};
use super::walk_path::{Path, PathRef};
use crate::cold_result::ColdResult;
use crate::cred::Cred;
use crate::dentry::{Dentry, PseudoDentry};
use crate::file::{Ended, File, FileMode, Files, Position};
use crate::inode::{PseudoInode, PseudoState};
use crate::mount::Mount;
use core::fmt;
use core::marker::PhantomData;
use core::mem::ManuallyDrop;
use core::ptr::NonNull;
use quietline_platform::atomic::Ordering;
use quietline_slab::{LazyCache, Options, Typesafe, TypesafeCache};
use quietline_sync::Shared;
use quietline_sync::rcu::Domain;
use rustix::io::Errno;

// SAFETY: nobody reads or drops the link's four bytes.
unsafe impl Typesafe for File {
    fn construct() -> Self {
        Self::unborn()
    }

    const LINK_OFFSET: Option<usize> = Some(Self::LINK);
}

impl File {
    pub(crate) fn cache(domain: &'static Domain) -> LazyCache {
        let options =
            |domain| TypesafeCache::<Self>::raw_options(Options::of::<Self>("filp"), domain);
        // SAFETY: the hooks make and drop files in memory for a file, on any thread. No file is
        // freed by RCU.
        unsafe { LazyCache::new(options, domain) }
    }
}

/// Allocates a file.
#[inline(always)]
fn alloc_file(files: &Files) -> Result<NonNull<File>, Errno> {
    files.cache.alloc().map(NonNull::cast).map_err(|_| Errno::NOMEM)
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

/// A file of the tree that is counted and not open yet (`alloc_empty_file`). Dropping it frees the
/// file.
///
/// A call that makes names or waits allocates its file first. The limit on open files then refuses
/// it before it has an effect, and nothing refuses it later.
#[derive(Debug)]
pub(crate) struct UnopenedFile<'k> {
    file: NonNull<File>,
    files: &'k Files,
}

impl<'k> UnopenedFile<'k> {
    /// Allocates a file.
    ///
    /// # Errors
    /// `ENFILE` at the limit, `ENOMEM`.
    #[inline]
    pub(crate) fn alloc(files: &'k Files) -> Result<Self, Errno> {
        if files.may_open() { Self::alloc_permitted(files) } else { Err(Errno::NFILE) }
    }

    /// Allocates a file after [`Files::may_open`] has permitted it.
    ///
    /// # Errors
    /// `ENOMEM`.
    #[inline(always)]
    pub(crate) fn alloc_permitted(files: &'k Files) -> Result<Self, Errno> {
        let file = alloc_file(files)?;
        files.nr_files.inc();
        Ok(Self { file, files })
    }

    /// Opens the file at a path with the credentials that `opener` numbers. If the file
    /// [keeps its mount writable](crate::file::keeps_mount_writable), the caller gives it its leave
    /// to write.
    #[inline]
    pub(crate) fn open(
        self,
        place: Path<'k>,
        flags: i32,
        mode: FileMode,
        opener: u32,
    ) -> FileHandle<'k> {
        let Self { file, files } = *ManuallyDrop::new(self);
        // SAFETY: a fresh file is ours; readers may look at it, so its fields are atomics.
        let f = unsafe { file.as_ref() };
        let (mount, dentry) = place.into_parts();
        let (mount, dentry) = (mount.into_raw().as_ptr(), dentry.into_raw().as_ptr());
        // Relaxed: `FileRef::init` publishes it.
        f.link.store(opener, Ordering::Relaxed);
        begin(f, files, flags, mode, dentry.cast(), mount, core::ptr::null_mut());
        FileHandle { file, of: PhantomData }
    }
}

impl Drop for UnopenedFile<'_> {
    fn drop(&mut self) {
        // SAFETY: allocated in `alloc`, and no table has it.
        unsafe { self.files.cache.free(self.file.cast()) };
        self.files.nr_files.dec();
    }
}

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
        dentry: NonNull<PseudoDentry>,
        kind: &'static Kind,
        flags: i32,
        mode: FileMode,
    ) -> Result<Self, Errno> {
        if files.is_far_from_max(1)
            && let Some(file) = files.cache.try_alloc().map(NonNull::cast)
        {
            files.nr_files.inc();
            return Ok(Self::begin_object(file, files, mount, dentry, kind, flags, mode));
        }
        // SAFETY: passed on.
        unsafe { Self::open_slow(files, mount, dentry, kind, flags, mode).into_result() }
    }

    /// [`open`](Self::open) near the limit, or when the CPU's sheaf has no file.
    ///
    /// # Safety
    /// As [`open`](Self::open).
    #[cold]
    #[inline(never)]
    unsafe fn open_slow(
        files: &'k Files,
        mount: &'k Mount,
        dentry: NonNull<PseudoDentry>,
        kind: &'static Kind,
        flags: i32,
        mode: FileMode,
    ) -> ColdResult<Self> {
        let file = match files.may_open() {
            true => alloc_file(files),
            false => Err(Errno::NFILE),
        };
        let opened = match file {
            Ok(file) => {
                files.nr_files.inc();
                Ok(Self::begin_object(file, files, mount, dentry, kind, flags, mode))
            }
            Err(errno) => {
                // SAFETY: the reference was given to us.
                unsafe { (kind.end_file)(dentry, Ended::unopened(mode.bits())) };
                Err(errno)
            }
        };
        opened.into()
    }

    /// Opens two files on a pseudo object that has two references for them. They are counted
    /// together.
    ///
    /// # Errors
    /// As [`open`](Self::open); then neither file is open.
    ///
    /// # Safety
    /// As [`open`](Self::open), for both references.
    #[inline(always)]
    pub(super) unsafe fn open_pair(
        files: &'k Files,
        mount: &'k Mount,
        dentry: NonNull<PseudoDentry>,
        kind: &'static Kind,
        ends: [(i32, FileMode); 2],
    ) -> Result<[Self; 2], Errno> {
        if files.is_far_from_max(2)
            && let Some(one) = files.cache.try_alloc().map(NonNull::cast)
        {
            if let Some(two) = files.cache.try_alloc().map(NonNull::cast) {
                files.nr_files.add(2);
                let begin = |file, (flags, mode)| {
                    Self::begin_object(file, files, mount, dentry, kind, flags, mode)
                };
                return Ok([begin(one, ends[0]), begin(two, ends[1])]);
            }
            // SAFETY: just allocated.
            unsafe { files.cache.free(one.cast()) };
        }
        // SAFETY: passed on.
        unsafe { Self::open_pair_slow(files, mount, dentry, kind, ends).into_result() }
    }

    /// [`open_pair`](Self::open_pair) near the limit, or when the CPU's sheaf has less than two
    /// files.
    ///
    /// # Safety
    /// As [`open_pair`](Self::open_pair).
    #[cold]
    #[inline(never)]
    unsafe fn open_pair_slow(
        files: &'k Files,
        mount: &'k Mount,
        dentry: NonNull<PseudoDentry>,
        kind: &'static Kind,
        [first, second]: [(i32, FileMode); 2],
    ) -> ColdResult<[Self; 2]> {
        // SAFETY: passed on. A file that cannot be opened gives its reference back, and one that is
        // not tried does so here.
        let opened = unsafe {
            match Self::open(files, mount, dentry, kind, first.0, first.1) {
                Ok(first) => Self::open(files, mount, dentry, kind, second.0, second.1)
                    .map(|second| [first, second]),
                Err(errno) => {
                    (kind.end_file)(dentry, Ended::unopened(second.1.bits()));
                    Err(errno)
                }
            }
        };
        opened.into()
    }

    /// Begins the life of a file on a pseudo object. The file has been counted.
    #[inline(always)]
    fn begin_object(
        file: NonNull<File>,
        files: &'k Files,
        mount: &'k Mount,
        dentry: NonNull<PseudoDentry>,
        kind: &'static Kind,
        flags: i32,
        mode: FileMode,
    ) -> Self {
        // References to it need not be counted.
        debug_assert!(mount.is_internal(), "pseudo objects are on a kernel's own mounts");
        // SAFETY: a fresh file is ours; readers may look at it, so its fields are atomics.
        let f = unsafe { file.as_ref() };
        quietline_platform::name_words!(*f => "File" { f_ref, f_status, f_mode, f_dentry, f_mnt, f_kind, f_files });
        let (mount, kind) = ((mount as *const Mount).cast_mut(), (kind as *const Kind).cast_mut());
        begin(f, files, flags, mode, dentry.as_ptr().cast(), mount, kind);
        Self { file, of: PhantomData }
    }

    /// Opens a file of the tree with the credentials that `opener` numbers. If the file
    /// [keeps its mount writable](crate::file::keeps_mount_writable), the caller gives it its leave
    /// to write.
    ///
    /// # Errors
    /// `ENFILE` at the limit, `ENOMEM`. Then the references of `place` and the leave are given
    /// back.
    #[inline]
    pub(crate) fn open_tree(
        files: &'k Files,
        place: Path<'k>,
        flags: i32,
        mode: FileMode,
        opener: u32,
    ) -> Result<Self, Errno> {
        match UnopenedFile::alloc(files) {
            Ok(file) => Ok(file.open(place, flags, mode, opener)),
            Err(errno) => {
                if crate::file::keeps_mount_writable(place.dentry().inode(), mode) {
                    place.mount().drop_write();
                }
                Err(errno)
            }
        }
    }

    /// Whether these are the credentials that the file of the tree was opened with.
    pub fn is_opener(&self, cred: &Cred) -> bool {
        // Relaxed: constant while we have a reference.
        self.opened().tree().is_some() && self.file().link.load(Ordering::Relaxed) == cred.id()
    }

    /// Another open file on the same pseudo object; none for a file of the tree, which is opened by its path.
    ///
    /// # Errors
    /// `ENFILE`, `ENOMEM`.
    pub fn reopen(&self, flags: i32, mode: FileMode) -> Result<Option<Self>, Errno> {
        let Some((dentry, kind)) = self.parts() else { return Ok(None) };
        // SAFETY: our file keeps the object, which gets one more reference; its filesystem and that one's mount are the
        // kernel's own, which is borrowed for 'k. Relaxed: constant while we have a reference.
        unsafe {
            let mount: &'k Mount = &*self.file().f_mnt.load(Ordering::Relaxed).cast_const();
            dentry.as_ref().d_lockref.get();
            (kind.opened)(dentry, mode);
            Self::open(self.files(), mount, dentry, kind, flags, mode).map(Some)
        }
    }

    /// What the file is on.
    #[inline(always)]
    pub fn opened(&self) -> Opened<'_> {
        let file = self.file();
        // SAFETY: our reference keeps the file open, with all that it refers to.
        unsafe { Opened::read(file, file.f_status.flags()) }
    }

    /// Where a file of the tree stands.
    #[inline(always)]
    pub(crate) fn position(&self) -> &Position {
        &self.file().f_pos
    }

    /// The place in the tree that the file is on, borrowed; none if it is on none.
    #[inline]
    pub fn place(&self) -> Option<PathRef<'_, 'k>> {
        let (mount, dentry) = self.opened().tree()?;
        // SAFETY: the file has references to both, and ours keeps it open; they are of the kernel that the files are of.
        Some(unsafe { PathRef::new(mount, dentry) })
    }

    /// Notes in a new file on a fifo since which opening for writing it counts as hung up.
    pub(crate) fn set_since(&self, since: Option<u32>) {
        if let Some(since) = since {
            self.file().f_mode.set_since(since);
        }
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

    /// Asks that pollers are told when the file ends. One locked instruction on the file's line,
    /// the first time.
    pub(crate) fn watch(&self) {
        self.file().f_mode.watch();
    }

    /// Asks that the locks of the file on a pseudo object end with the file. One locked
    /// instruction on the file's line, the first time.
    pub(crate) fn lock(&self) {
        self.file().f_mode.lock();
    }

    /// What may be done with the file.
    pub fn mode(&self) -> FileMode {
        FileMode::from_bits_truncate(self.file().f_mode.get())
    }

    /// The pseudo object that the file is on, and its kind; none for a file of the tree.
    #[inline]
    fn parts(&self) -> Option<(NonNull<PseudoDentry>, &'static Kind)> {
        let file = self.file();
        // Relaxed: constant while we have a reference, which synchronised with the opener.
        let dentry = NonNull::new(file.f_dentry.load(Ordering::Relaxed).cast())
            .expect("an open file has a dentry");
        // SAFETY: an open file's kind is a static, or null.
        let kind = unsafe { file.f_kind.load(Ordering::Relaxed).cast_const().as_ref() };
        kind.map(|kind| (dentry, kind))
    }

    /// The dentry of the pseudo object that the file is open on.
    ///
    /// # Panics
    /// If the file is one of the tree.
    pub fn dentry(&self) -> &PseudoDentry {
        let (dentry, _) = self.parts().expect("a file on a pseudo object");
        // SAFETY: the file's reference keeps the dentry alive.
        unsafe { dentry.as_ref() }
    }

    /// The mount that the file is open on.
    pub fn mount(&self) -> &Mount {
        // SAFETY: a kernel's own mounts live as long as it; to others the file has a reference, and we have one to the file.
        unsafe { &*self.file().f_mnt.load(Ordering::Relaxed).cast_const() }
    }

    /// The state behind the file, if it is of this type.
    pub fn payload<P: Payload>(&self) -> Option<&P> {
        let (dentry, kind) = self.parts()?;
        // SAFETY: the file's reference keeps the object alive.
        unsafe { kind.payload(dentry) }
    }

    /// The inode of the pseudo object that the file is on; none if it is an anonymous one, or the
    /// file is one of the tree.
    pub fn pseudo_inode(&self) -> Option<&PseudoInode> {
        let (dentry, kind) = self.parts()?;
        // SAFETY: the file's reference keeps the object alive.
        unsafe { kind.own_inode(dentry) }
    }

    /// The type and the permissions with which that inode was made.
    pub fn pseudo_mode(&self) -> Option<u32> {
        let (dentry, kind) = self.parts()?;
        // SAFETY: the file's reference keeps the object alive.
        unsafe { kind.own_inode(dentry) }.map(|_| kind.mode)
    }

    /// Returns the state of the pseudo object's inode, if it has one.
    pub(crate) fn pseudo_state(&self) -> Option<Shared<PseudoState>> {
        let (dentry, kind) = self.parts()?;
        // SAFETY: the file's reference keeps the object alive.
        unsafe { state_of(dentry, kind, self.files()) }
    }

    /// Returns the state of the pseudo object's inode, which becomes `state` if it has none.
    ///
    /// # Errors
    /// `ENOMEM`; `EINVAL` for a file of the tree.
    pub(crate) fn pseudo_state_or(
        &self,
        state: Shared<PseudoState>,
    ) -> Result<Shared<PseudoState>, Errno> {
        let (dentry, kind) = self.parts().ok_or(Errno::INVAL)?;
        // SAFETY: the file's reference keeps the object alive.
        let (states, dentry) = unsafe { (kind.states(dentry), dentry.as_ref()) };
        let Some((states, object)) = states else {
            let state = self.files().anonymous.get_or_make(|| Ok(state));
            return state.cloned().map_err(|_| Errno::NOMEM);
        };
        let state = states.find_or_insert(object, state)?;
        dentry.set_stateful();
        Ok(state)
    }

    /// The object's own inode, if it has one and is of this type.
    pub fn inode<P: Payload>(&self) -> Option<&PseudoInode> {
        self.payload::<P>()?.inode()
    }

    /// The name by which `/proc/PID/fd` shows the file: `socket:[INO]`, `pipe:[INO]`, `anon_inode:[eventfd]`.
    pub fn name(&self) -> impl fmt::Display {
        struct Name<'a>(Option<(NonNull<PseudoDentry>, &'static Kind)>, &'a File);
        impl fmt::Display for Name<'_> {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                match self.0 {
                    // SAFETY: the handle is borrowed, and keeps the object alive.
                    Some((dentry, kind)) => unsafe { kind.name(dentry, f) },
                    // The path is for those to say who know the process's root.
                    None => write!(f, "file {:p}", self.1),
                }
            }
        }
        Name(self.parts(), self.file())
    }

    /// Whether the file is one of these.
    pub fn is_of(&self, files: &Files) -> bool {
        core::ptr::eq(self.files(), files)
    }

    /// References to the open file: handles, descriptors, messages that it is in. Exact while nobody takes or gives one back.
    pub fn references(&self) -> u64 {
        self.file().f_ref.count()
    }

    /// Whether both are the same open file.
    pub fn same_file(&self, other: &FileHandle<'_>) -> bool {
        self.file == other.file
    }
}

/// Returns the state of the inode of a pseudo object, if it has one. An object without a state of
/// its own costs one load.
///
/// # Safety
/// The dentry is that of a living object of this kind.
unsafe fn state_of(
    dentry: NonNull<PseudoDentry>,
    kind: &Kind,
    files: &Files,
) -> Option<Shared<PseudoState>> {
    // SAFETY: by contract.
    let (states, dentry) = unsafe { (kind.states(dentry), dentry.as_ref()) };
    match states {
        Some((states, object)) if dentry.is_stateful() => states.find(object),
        Some(_) => None,
        None => files.anonymous.get().cloned(),
    }
}

/// Begins a life of a file.
#[inline(always)]
fn begin(
    f: &File,
    files: &Files,
    flags: i32,
    mode: FileMode,
    dentry: *mut (),
    mount: *mut Mount,
    kind: *mut Kind,
) {
    f.f_status.begin(flags as u32);
    // SAFETY: a kind is a static; a file of the tree has none.
    let object_first = unsafe { kind.as_ref() }.is_some_and(|kind| kind.object_first);
    // ORDERING: the releases pair with the acquires in `Opened::read`: who finds any of these finds the generation that `begin`
    // has stored, and so notices that what it found before is of another life.
    f.f_mode.begin(mode.bits(), object_first);
    f.f_dentry.store(dentry, Ordering::Release);
    f.f_mnt.store(mount, Ordering::Release);
    f.f_kind.store(kind, Ordering::Release);
    // Relaxed: `FileRef::init` publishes it.
    f.f_files.store((files as *const Files).cast_mut(), Ordering::Relaxed);
    f.f_pos.begin();
    f.f_ref.init(1);
}

/// Gives a reference to a file back (`fput`).
///
/// The rare case is called at the end, here and in [`release`], which the compiler makes jumps:
/// the usual path saves no register for it.
///
/// # Safety
/// The reference is the caller's.
#[inline(always)]
unsafe fn put(file: NonNull<File>) {
    // SAFETY: the reference keeps it alive, and passed on: the last put releases.
    unsafe {
        if !file.as_ref().f_ref.put_sole() {
            return put_shared(file);
        }
        release(file);
    }
}

/// Gives back a reference that is not the only one. If it was the last all the same, the file ends.
///
/// A put that gave up the last reference looks at the count once more, and by then a reader that had found the file in
/// a table may have taken another reference, put it, and so ended the file: the section keeps the memory mapped.
///
/// # Safety
/// The reference is the caller's.
#[inline(never)]
unsafe fn put_shared(file: NonNull<File>) {
    // SAFETY: the reference keeps it alive, and the files that it is of.
    let (f, files) = unsafe { (file.as_ref(), &*file.as_ref().f_files.load(Ordering::Relaxed)) };
    let last = {
        let _section = files.domain.read();
        f.f_ref.put()
    };
    if last {
        // SAFETY: that was the last.
        unsafe { release(file) };
    }
}

/// Ends a file that has no reference left (`__fput`).
///
/// # Safety
/// The caller has put the last reference.
#[inline(always)]
unsafe fn release(file: NonNull<File>) {
    // SAFETY: no other thread has the file, so it is ours until it is freed, and its dentry until
    // that is put; all else that it points to outlives it. (A walk up of epolls may still lock the
    // list of an epoll's file: see `release_noted`.) Relaxed: the last put has seen everything that
    // holders did.
    unsafe {
        let f = file.as_ref();
        let kind = f.f_kind.load(Ordering::Relaxed);
        if kind.is_null() {
            return release_tree(f);
        }
        let dentry: NonNull<PseudoDentry> =
            NonNull::new_unchecked(f.f_dentry.load(Ordering::Relaxed).cast());
        let ended = f.f_mode.end();
        if ended.is_noted() {
            return release_noted(file, dentry, kind, ended);
        }
        let files = &*f.f_files.load(Ordering::Relaxed);
        if !files.cache.try_free(file.cast()) {
            return release_slow(file, dentry, kind, ended);
        }
        if !files.nr_files.try_add(-1) {
            return release_counted(files, dentry, kind, ended);
        }
        ((*kind).end_file)(dentry, ended);
    }
}

/// [`release`] of a file that pollers are told of, that has taken locks, or that is freed after its
/// object has been closed. Here each of them is freed last.
///
/// # Safety
/// As [`release`], whose `dentry`, `kind` and `ended` these are; so in the next two functions.
#[inline(never)]
unsafe fn release_noted(
    file: NonNull<File>,
    dentry: NonNull<PseudoDentry>,
    kind: *const Kind,
    ended: Ended,
) {
    // SAFETY: as in `release`.
    unsafe {
        let files = &*file.as_ref().f_files.load(Ordering::Relaxed);
        if ended.is_watched() {
            watched_file_ends(file.as_ref());
        }
        if ended.is_locked()
            && let Some(state) = state_of(dentry, &*kind, files)
        {
            state.locks.file_ends(&state.waits, file.addr().get() as u64);
        }
        ((*kind).end_file)(dentry, ended);
        files.cache.free(file.cast());
        files.nr_files.dec();
    }
}

/// [`release`] of a file that the CPU's sheaf has no room for.
///
/// # Safety
/// As [`release_noted`].
#[cold]
#[inline(never)]
unsafe fn release_slow(
    file: NonNull<File>,
    dentry: NonNull<PseudoDentry>,
    kind: *const Kind,
    ended: Ended,
) {
    // SAFETY: as in `release`.
    unsafe {
        let files = &*file.as_ref().f_files.load(Ordering::Relaxed);
        files.cache.free(file.cast());
        release_counted(files, dentry, kind, ended);
    }
}

/// [`release`] of a file that has been freed, from the count on.
///
/// # Safety
/// As [`release_noted`].
#[cold]
#[inline(never)]
unsafe fn release_counted(
    files: &Files,
    dentry: NonNull<PseudoDentry>,
    kind: *const Kind,
    ended: Ended,
) {
    files.nr_files.dec();
    // SAFETY: as in `release`.
    unsafe { ((*kind).end_file)(dentry, ended) };
}

/// Ends a file of the tree.
///
/// # Safety
/// As [`release`].
#[inline(never)]
unsafe fn release_tree(f: &File) {
    // SAFETY: all references to the file are ours, so no other thread uses it; its files outlive
    // it.
    unsafe {
        let files = &*f.f_files.load(Ordering::Relaxed);
        let dentry: NonNull<Dentry> =
            NonNull::new_unchecked(f.f_dentry.load(Ordering::Relaxed).cast());
        let vfs = dentry.as_ref().super_block().vfs.as_ref();
        let ended = f.f_mode.end();
        if ended.is_watched() {
            watched_file_ends(f);
        }
        let mount = NonNull::new_unchecked(f.f_mnt.load(Ordering::Relaxed));
        crate::file::closed(
            mount.cast().as_ref(),
            dentry.as_ref(),
            FileMode::from_bits_truncate(ended.mode()),
            || Opened::read(f, f.f_status.flags()),
            vfs,
        );
        files.cache.free(NonNull::from(f).cast());
        files.nr_files.dec();
        // In one section: whoever else puts his reference now may end the dentry, or the mount, under our eyes.
        let (dead, doomed) = {
            let section = vfs.domain.read();
            (dput_inside(dentry, &section), MountRef::from_raw(mount).drop_inside(&section))
        };
        if let Some(dead) = dead {
            end_dead(dead);
        }
        drop(doomed);
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
