//! An open file as one call sees it, without a reference of the call's own.

use super::mount::TreeMount;
use super::pseudo::{Kind, Payload};
use crate::dentry::Dentry;
use crate::file::{Direction, File, FileMode, Io, Ioctl, Sink, Source};
use crate::inode::{Content, Inode, Node};
use crate::mount::Mount;
use crate::pipe::{Pipe, PipeCore};
use crate::poll::{Events, PollTable};
use core::fmt;
use core::ptr::NonNull;
use core::time::Duration;
use quietline_platform::atomic::Ordering;
use quietline_sync::WaitQueue;
use rustix::io::Errno;

/// A snapshot of an open file: its dentry, its mount, its kind, its mode and its flags.
///
/// These objects stay readable for `'g`, even if the file is closed meanwhile. Operations of pseudo
/// objects can also be called.
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
    /// Reads the fields of a file.
    ///
    /// # Safety
    /// All fields belong to one life of the file (see [`Status`](crate::status::Status)). The
    /// references of that life are dropped after `'g` ends, or in read-side critical sections that
    /// begin later. If the file is on a pseudo object, the caller holds a reference, or has
    /// [met](crate::file::Mode) the file.
    #[inline(always)]
    pub(super) unsafe fn read(file: &'g File, flags: u32) -> Self {
        let mode = FileMode::from_bits_truncate(file.f_mode.get());
        // ORDERING: pairs with the releases in `handle::begin`.
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

    /// The open file.
    #[inline(always)]
    pub(super) fn file(self) -> &'g File {
        self.file
    }

    /// The operations that the file was opened for.
    #[inline(always)]
    pub fn mode(self) -> FileMode {
        self.mode
    }

    /// The status flags and the access mode.
    #[inline(always)]
    pub fn flags(self) -> i32 {
        self.flags
    }

    /// The mount and the dentry of a file of the tree, `None` for a pseudo object.
    #[inline(always)]
    pub fn tree(self) -> Option<(&'g TreeMount, &'g Dentry)> {
        // SAFETY: a file without a kind is of the tree, and its mount is the first part of a mount
        // of a tree. RCU frees both after the file has dropped its references.
        self.kind
            .is_none()
            .then(|| unsafe { (self.mount.cast().as_ref(), self.dentry.cast().as_ref()) })
    }

    /// The inode of a file of the tree, `None` for a pseudo object.
    #[inline(always)]
    pub fn inode(self) -> Option<&'g Inode> {
        self.tree()?.1.inode()
    }

    /// Returns whether the file is on a pseudo object, not on an inode of the tree.
    #[inline(always)]
    pub fn is_object(self) -> bool {
        self.kind.is_some()
    }

    /// The pipe of a FIFO that is open by its name.
    #[inline]
    pub(crate) fn fifo(self) -> Option<&'g PipeCore> {
        match self.inode()?.content() {
            Content::Fifo(fifo) if !self.mode.contains(FileMode::PATH) => fifo.pipe(),
            _ => None,
        }
    }

    /// The pipe that the file is an end of, a FIFO's included.
    pub fn pipe(self) -> Option<&'g PipeCore> {
        if self.is_object() { self.payload::<Pipe>().map(Pipe::core) } else { self.fifo() }
    }

    /// Returns whether [`try_read`](Self::try_read) and [`try_write`](Self::try_write) are the
    /// file's operations. They return `EAGAIN` where the caller has to wait.
    #[inline(always)]
    pub fn waits(self) -> bool {
        self.is_object() || self.fifo().is_some()
    }

    /// Returns whether it is a regular file in memory.
    #[inline(always)]
    pub fn is_memory(self) -> bool {
        !self.is_object()
            && self.inode().is_some_and(|inode| matches!(inode.content(), Content::File(_)))
    }

    /// Returns whether it is open on an inode of an embedder's file system.
    pub fn is_foreign(self) -> bool {
        let node = self.inode().and_then(Inode::node);
        node.is_some_and(|node| node.foreign().is_some())
    }

    /// Returns whether a pseudo object accepts `lseek`, although it has no file offset.
    pub(crate) fn seeks(self) -> bool {
        self.kind.is_some_and(|kind| kind.seeks)
    }

    /// Whether it can be read or written at all, whatever it is open for.
    pub fn has(self, what: Direction) -> bool {
        self.kind.is_none_or(|kind| match what {
            Direction::Read => kind.reads,
            Direction::Write => kind.writes,
        })
    }

    /// Returns whether both are snapshots of one open file.
    pub fn is_same(self, other: Opened<'_>) -> bool {
        core::ptr::eq(self.file, other.file) && self.dentry == other.dentry
    }

    /// The payload of the file's pseudo object, `None` if its type is another.
    #[inline(always)]
    pub fn payload<P: Payload>(self) -> Option<&'g P> {
        // SAFETY: the object stays for 'g, as the caller of `read` has promised.
        self.kind.and_then(|kind| unsafe { kind.payload(self.dentry.cast()) })
    }

    /// The part of the snapshot that is passed to operations of a pseudo object.
    #[inline(always)]
    pub fn io(self) -> Io {
        Io { flags: self.flags, mode: self.mode }
    }

    /// Reads available bytes: see [`Payload::try_read`].
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

    /// Writes as many bytes as fit: see [`Payload::try_write`].
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

    /// Reports the error of a write that had already written some bytes: see [`Payload::untold`].
    #[cold]
    pub fn untold(self, errno: Errno, from: &mut Source<'_, '_>) {
        if let Some(kind) = self.kind {
            // SAFETY: the object stays for 'g.
            unsafe { (kind.untold)(self.dentry.cast(), errno, from) }
        }
    }

    /// Updates the times of a FIFO after `n` bytes went through it, and tells its watchers.
    fn fifo_did(self, what: Direction, n: usize) {
        if n > 0
            && let Some((_, dentry)) = self.tree()
        {
            // SAFETY: the kernel outlives its open files.
            crate::file::passed(self, unsafe { dentry.super_block().vfs.as_ref() }, what);
        }
    }

    /// Returns the current readiness: see [`Payload::poll`]. A regular file and a directory are
    /// always readable and writable.
    #[inline(always)]
    pub fn poll(self, table: &mut PollTable<'_>) -> Events {
        match self.kind {
            // SAFETY: the object stays for 'g.
            Some(kind) => unsafe { (kind.poll)(self.dentry.cast(), self.io(), table) },
            None => {
                let Self { file, dentry, mount, mode, flags, .. } = self;
                Self::poll_in_tree(file, dentry, mount, mode, flags, table)
            }
        }
    }

    /// Whether callers can wait for it in `poll` and `epoll`.
    #[inline]
    pub fn polls(self) -> bool {
        self.waits() || self.polled_node().is_some()
    }

    /// The node that the file is open on, if callers can wait for it.
    fn polled_node(self) -> Option<&'g dyn Node> {
        let open = !self.mode.contains(FileMode::PATH);
        self.inode()?.node().filter(|node| open && node.polls(self.id()))
    }

    /// Whether it is a file of the tree that has both an offset and pollers.
    pub(crate) fn polls_at_offset(self) -> bool {
        self.polled_node().is_some()
    }

    /// Polls a file of the tree. Takes the snapshot in parts: passing it whole would put it on the
    /// stack of each caller, also for pseudo objects.
    #[inline(never)]
    fn poll_in_tree(
        file: &'g File,
        dentry: NonNull<()>,
        mount: NonNull<Mount>,
        mode: FileMode,
        flags: i32,
        table: &mut PollTable<'_>,
    ) -> Events {
        let opened = Self { file, dentry, mount, kind: None, mode, flags };
        if let Some(fifo) = opened.fifo() {
            return fifo.poll(opened.io(), Some(&file.f_mode), table);
        }
        match (opened.polled_node(), opened.tree()) {
            (Some(node), Some((_, dentry))) => {
                // SAFETY: the kernel outlives its open files.
                node.poll(unsafe { dentry.super_block().vfs.as_ref() }, opened.id(), table)
            }
            _ => Events::ALWAYS,
        }
    }

    /// The wait queue of one direction: see [`Payload::waiters`].
    pub fn waiters(self, what: Direction) -> Option<&'g WaitQueue> {
        let Some(kind) = self.kind else { return Some(self.fifo()?.waiters(what)) };
        // SAFETY: the object stays for 'g, and its queues with it.
        unsafe { (kind.waiters)(self.dentry.cast(), what).map(|queue| queue.as_ref()) }
    }

    /// Returns whether waiters of one direction are woken one at a time: see
    /// [`Payload::in_turn`].
    pub(crate) fn in_turn(self, what: Direction) -> bool {
        // SAFETY: the object stays for 'g.
        self.kind.is_none_or(|kind| unsafe { (kind.in_turn)(self.dentry.cast(), what) })
    }

    /// The limit of one wait: see [`Payload::timeout`].
    pub fn timeout(self, what: Direction) -> Option<Duration> {
        // SAFETY: the object stays for 'g.
        unsafe { (self.kind?.timeout)(self.dentry.cast(), what) }
    }

    /// Controls the object: see [`Payload::ioctl`].
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

    /// A number that is unique among open files. It names the owner of a lock.
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
