//! File handles: owned references to open files.

use super::dcache::refs::{dput_inside, end_dead};
use super::eventpoll::watched_file_ends;
use super::mount::{MountRef, TreeMount};
use super::pseudo::{Kind, Payload};
use super::walk_path::{Path, PathRef};
use crate::cred::Cred;
use crate::dentry::Dentry;
use crate::dentry::PseudoDentry;
use crate::file::{Direction, Ended, File, FileMode, Files, Io, Ioctl, Position, Sink, Source};
use crate::inode::{Content, Inode, PseudoInode};
use crate::mount::Mount;
use crate::pipe::{Pipe, PipeCore};
use crate::poll::{Events, PollTable};
use core::fmt;
use core::marker::PhantomData;
use core::mem::ManuallyDrop;
use core::ptr::NonNull;
use core::time::Duration;
use quietline_platform::atomic::Ordering;
use quietline_slab::Typesafe;
use quietline_sync::WaitQueue;
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
        dentry: NonNull<PseudoDentry>,
        kind: &'static Kind,
        flags: i32,
        mode: FileMode,
    ) -> Result<Self, Errno> {
        if files.is_far_from_max(1)
            && let Some(file) = files.cache.try_alloc()
        {
            files.nr_files.inc();
            return Ok(Self::begin_object(file, files, mount, dentry, kind, flags, mode));
        }
        // SAFETY: passed on.
        unsafe { Self::open_slow(files, mount, dentry, kind, flags, mode) }
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
    ) -> Result<Self, Errno> {
        let file = match files.may_open() {
            true => files.cache.alloc().map_err(|_| Errno::NOMEM),
            false => Err(Errno::NFILE),
        };
        match file {
            Ok(file) => {
                files.nr_files.inc();
                Ok(Self::begin_object(file, files, mount, dentry, kind, flags, mode))
            }
            Err(errno) => {
                // SAFETY: the reference was given to us.
                unsafe { (kind.end_file)(dentry, Ended::unopened(mode.bits())) };
                Err(errno)
            }
        }
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
            && let Some(one) = files.cache.try_alloc()
        {
            if let Some(two) = files.cache.try_alloc() {
                files.nr_files.add(2);
                let begin = |file, (flags, mode)| {
                    Self::begin_object(file, files, mount, dentry, kind, flags, mode)
                };
                return Ok([begin(one, ends[0]), begin(two, ends[1])]);
            }
            // SAFETY: just allocated.
            unsafe { files.cache.free(one) };
        }
        // SAFETY: passed on.
        unsafe { Self::open_pair_slow(files, mount, dentry, kind, ends) }
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
    ) -> Result<[Self; 2], Errno> {
        // SAFETY: passed on. A file that cannot be opened gives its reference back, and one that is
        // not tried does so here.
        unsafe {
            match Self::open(files, mount, dentry, kind, first.0, first.1) {
                Ok(first) => {
                    Ok([first, Self::open(files, mount, dentry, kind, second.0, second.1)?])
                }
                Err(errno) => {
                    (kind.end_file)(dentry, Ended::unopened(second.1.bits()));
                    Err(errno)
                }
            }
        }
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

    /// Opens a file of the tree with the credentials that `opener` numbers. A file that is open for
    /// writing has leave to write by the mount, which the caller has got and gives away.
    ///
    /// # Errors
    /// `ENFILE` at the limit, `ENOMEM`. Place and leave are given back.
    #[inline]
    pub(crate) fn open_tree(
        files: &'k Files,
        place: Path<'k>,
        flags: i32,
        mode: FileMode,
        opener: u32,
    ) -> Result<Self, Errno> {
        let file = match files.may_open() {
            true => files.cache.alloc().map_err(|_| Errno::NOMEM),
            false => Err(Errno::NFILE),
        };
        let file = match file {
            Ok(file) => file,
            Err(errno) => {
                if mode.contains(FileMode::WRITE) {
                    place.mount().drop_write();
                }
                return Err(errno);
            }
        };
        files.nr_files.inc();
        // SAFETY: a fresh file is ours; readers may look at it, so its fields are atomics.
        let f = unsafe { file.as_ref() };
        let (mount, dentry) = place.into_parts();
        let (mount, dentry) = (mount.into_raw().as_ptr(), dentry.into_raw().as_ptr());
        // Relaxed: `FileRef::init` publishes it.
        f.link.store(opener, Ordering::Relaxed);
        begin(f, files, flags, mode, dentry.cast(), mount, core::ptr::null_mut());
        Ok(Self { file, of: PhantomData })
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

    /// Asks that pollers are told when the file ends. One locked instruction on the file's line, the first time.
    pub(super) fn watch(&self) {
        self.file().f_mode.watch();
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

/// What an open file is on, as it was at one moment.
///
/// What it refers to stays readable for `'g`, also if the file is closed meanwhile; pseudo objects can also be used.
#[derive(Clone, Copy)]
pub struct Opened<'g> {
    file: &'g File,
    dentry: NonNull<()>,
    mount: NonNull<Mount>,
    kind: Option<&'static Kind>,
    mode: FileMode,
    flags: i32,
}

impl<'g> Opened<'g> {
    /// # Safety
    /// What is read belongs to one life of the file (see [`Status`](crate::status::Status)), and the references of that life
    /// are not given back before `'g` ends, or in sections that begin later. If it is on a pseudo object, that is so for the
    /// caller has a reference, or has [met](crate::file::Mode) the file.
    #[inline(always)]
    pub(super) unsafe fn read(file: &'g File, flags: u32) -> Self {
        let mode = FileMode::from_bits_truncate(file.f_mode.get());
        // ORDERING: pairs with the releases in `begin`.
        let (dentry, mount) =
            (file.f_dentry.load(Ordering::Acquire), file.f_mnt.load(Ordering::Acquire));
        // SAFETY: a file that has lived has these; its kind is a static, or null.
        unsafe {
            Self {
                file,
                dentry: NonNull::new_unchecked(dentry),
                mount: NonNull::new_unchecked(mount),
                kind: file.f_kind.load(Ordering::Acquire).as_ref(),
                mode,
                flags: flags as i32,
            }
        }
    }

    /// The file itself.
    #[inline(always)]
    pub(super) fn file(self) -> &'g File {
        self.file
    }

    /// What may be done with the file.
    #[inline(always)]
    pub fn mode(self) -> FileMode {
        self.mode
    }

    /// Status flags and access mode.
    #[inline(always)]
    pub fn flags(self) -> i32 {
        self.flags
    }

    /// The place in the tree that the file is on, if it is on one.
    #[inline(always)]
    pub fn tree(self) -> Option<(&'g TreeMount, &'g Dentry)> {
        // SAFETY: a file without a kind is of the tree, and its mount is the first part of a mount of a tree; both are freed by
        // RCU, after the file's references were given back.
        self.kind
            .is_none()
            .then(|| unsafe { (self.mount.cast().as_ref(), self.dentry.cast().as_ref()) })
    }

    /// The inode of the tree that the file is on, if it is on one.
    #[inline(always)]
    pub fn inode(self) -> Option<&'g Inode> {
        self.tree()?.1.inode()
    }

    /// Whether the file is on a pseudo object, and not on one of the tree.
    #[inline(always)]
    pub fn is_object(self) -> bool {
        self.kind.is_some()
    }

    /// The pipe behind a file of the tree that is open on a fifo.
    #[inline]
    pub(crate) fn fifo(self) -> Option<&'g PipeCore> {
        match self.inode()?.content() {
            Content::Fifo(fifo) if !self.mode.contains(FileMode::PATH) => fifo.pipe(),
            _ => None,
        }
    }

    /// The pipe that the file is an end of, also one with a name.
    pub fn pipe(self) -> Option<&'g PipeCore> {
        if self.is_object() { self.payload::<Pipe>().map(Pipe::core) } else { self.fifo() }
    }

    /// Whether it is read and written by [`try_read`](Self::try_read) and [`try_write`](Self::try_write), which may say that
    /// the caller is to wait.
    #[inline(always)]
    pub fn waits(self) -> bool {
        self.is_object() || self.fifo().is_some()
    }

    /// Whether it says where it stands, though it stands nowhere.
    pub(crate) fn seeks(self) -> bool {
        self.kind.is_some_and(|kind| kind.seeks)
    }

    /// Whether both are of one open file.
    pub fn is_same(self, other: Opened<'_>) -> bool {
        core::ptr::eq(self.file, other.file) && self.dentry == other.dentry
    }

    /// The state of the pseudo object that the file is on, if it is of this type.
    #[inline(always)]
    pub fn payload<P: Payload>(self) -> Option<&'g P> {
        // SAFETY: the object stays for 'g, as `read` was promised.
        self.kind.and_then(|kind| unsafe { kind.payload(self.dentry.cast()) })
    }

    /// What calls of the object's own know of the file.
    #[inline(always)]
    pub fn io(self) -> Io {
        Io { flags: self.flags, mode: self.mode }
    }

    /// Reads what is there: see [`Payload::try_read`].
    ///
    /// # Errors
    /// `EBADF` for a file that is not open for reading; as [`Payload::try_read`].
    #[inline(always)]
    pub fn try_read(self, to: &mut Sink<'_, '_>) -> Result<usize, Errno> {
        if !self.mode.contains(FileMode::READ) {
            return Err(Errno::BADF);
        }
        match self.kind {
            // SAFETY: the object stays for 'g.
            Some(kind) => unsafe { kind.try_read(self.dentry.cast(), self.io(), to) },
            None => {
                let n = self.fifo().ok_or(Errno::INVAL)?.try_read(self.io(), to)?;
                self.fifo_did(Direction::Read, n);
                Ok(n)
            }
        }
    }

    /// Writes as much as fits: see [`Payload::try_write`].
    ///
    /// # Errors
    /// `EBADF` for a file that is not open for writing; as [`Payload::try_write`].
    #[inline(always)]
    pub fn try_write(self, from: &mut Source<'_, '_>) -> Result<usize, Errno> {
        if !self.mode.contains(FileMode::WRITE) {
            return Err(Errno::BADF);
        }
        match self.kind {
            // SAFETY: the object stays for 'g.
            Some(kind) => unsafe { kind.try_write(self.dentry.cast(), self.io(), from) },
            None => {
                let n = self.fifo().ok_or(Errno::INVAL)?.try_write(self.io(), from)?;
                self.fifo_did(Direction::Write, n);
                Ok(n)
            }
        }
    }

    /// A write of which something came has failed after that: see [`Payload::untold`].
    #[cold]
    pub fn untold(self, errno: Errno, from: &mut Source<'_, '_>) {
        if let Some(kind) = self.kind {
            // SAFETY: the object stays for 'g.
            unsafe { (kind.untold)(self.dentry.cast(), errno, from) }
        }
    }

    /// Notes that so many bytes went through a named pipe.
    fn fifo_did(self, what: Direction, n: usize) {
        if n > 0
            && let Some((_, dentry)) = self.tree()
        {
            // SAFETY: a file that is open is of a kernel that lives.
            crate::file::passed(self, unsafe { dentry.super_block().vfs.as_ref() }, what);
        }
    }

    /// What can be done with the file now: see [`Payload::poll`]. A regular file, and all that says nothing of itself, can be
    /// read and written at any time.
    #[inline(always)]
    pub fn poll(self, table: &mut PollTable<'_>) -> Events {
        match self.kind {
            // SAFETY: the object stays for 'g.
            Some(kind) => unsafe { (kind.poll)(self.dentry.cast(), self.io(), table) },
            None => self.fifo().map_or(Events::ALWAYS, |fifo| {
                fifo.poll(self.io(), Some(&self.file.f_mode), table)
            }),
        }
    }

    /// Where a call waits: see [`Payload::waiters`].
    pub fn waiters(self, what: Direction) -> Option<&'g WaitQueue> {
        let Some(kind) = self.kind else { return Some(self.fifo()?.waiters(what)) };
        // SAFETY: the object stays for 'g, and its queues with it.
        unsafe { (kind.waiters)(self.dentry.cast(), what).map(|queue| queue.as_ref()) }
    }

    /// Whether those who wait to read or write it are woken one at a time: see [`Payload::in_turn`].
    pub(crate) fn in_turn(self, what: Direction) -> bool {
        // SAFETY: the object stays for 'g.
        self.kind.is_none_or(|kind| unsafe { (kind.in_turn)(self.dentry.cast(), what) })
    }

    /// How long a call waits at most: see [`Payload::timeout`].
    pub fn timeout(self, what: Direction) -> Option<Duration> {
        // SAFETY: the object stays for 'g.
        unsafe { (self.kind?.timeout)(self.dentry.cast(), what) }
    }

    /// Answers a question: see [`Payload::ioctl`].
    ///
    /// # Errors
    /// As [`Payload::ioctl`].
    pub fn ioctl(self, request: Ioctl) -> Result<i32, Errno> {
        match self.kind {
            // SAFETY: the object stays for 'g.
            Some(kind) => unsafe { (kind.ioctl)(self.dentry.cast(), self.io(), request) },
            None => self.fifo().ok_or(Errno::NOTTY)?.ioctl(request),
        }
    }

    /// What tells open files apart, as long as they are open: whose a lock is.
    pub fn id(self) -> u64 {
        core::ptr::from_ref(self.file).addr() as u64
    }
}

impl fmt::Debug for Opened<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Opened")
            .field("mode", &self.mode)
            .field("flags", &self.flags)
            .finish_non_exhaustive()
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
    // ORDERING: the releases pair with the acquires in `Opened::read`: who finds any of these finds the generation that `begin`
    // has stored, and so notices that what it found before is of another life.
    f.f_mode.begin(mode.bits());
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
    // SAFETY: nobody else uses the file, so it is ours until it is freed, and its dentry until that is put; what else
    // it points to outlives it. Relaxed: the last put has seen everything that holders did.
    unsafe {
        let f = file.as_ref();
        let kind = f.f_kind.load(Ordering::Relaxed);
        if kind.is_null() {
            return release_tree(f);
        }
        let dentry: NonNull<PseudoDentry> =
            NonNull::new_unchecked(f.f_dentry.load(Ordering::Relaxed).cast());
        let ended = f.f_mode.end();
        if ended.is_watched() {
            return release_watched(file, dentry, kind, ended);
        }
        let files = &*f.f_files.load(Ordering::Relaxed);
        if !files.cache.try_free(file) {
            return release_slow(file, dentry, kind, ended);
        }
        if !files.nr_files.try_add(-1) {
            return release_counted(files, dentry, kind, ended);
        }
        ((*kind).end_file)(dentry, ended);
    }
}

/// [`release`] of a file that pollers are told of.
///
/// # Safety
/// As [`release`], whose `dentry`, `kind` and `ended` these are; so in the next two functions.
#[inline(never)]
unsafe fn release_watched(
    file: NonNull<File>,
    dentry: NonNull<PseudoDentry>,
    kind: *const Kind,
    ended: Ended,
) {
    // SAFETY: as in `release`.
    unsafe {
        watched_file_ends(file.as_ref());
        release_slow(file, dentry, kind, ended);
    }
}

/// [`release`] of a file that the CPU's sheaf has no room for.
///
/// # Safety
/// As [`release_watched`].
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
        files.cache.free(file);
        release_counted(files, dentry, kind, ended);
    }
}

/// [`release`] of a file that has been freed, from the count on.
///
/// # Safety
/// As [`release_watched`].
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
        files.cache.free(NonNull::from(f));
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
