//! Files, as far as sockets know them: a counted socket whose last reference closes it.

use crate::{Events, PollTable, Sink, Socket, Source};
use core::fmt;
use core::marker::PhantomData;
use core::time::Duration;
use quietline_platform::atomic::{AtomicU64, Ordering};
use quietline_sync::WaitQueue;
use rustix::io::Errno;
use std::any::Any;
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;

bitflags::bitflags! {
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub struct FileMode: u32 {
        const READ = 1;
        const WRITE = 2;
    }
}

#[derive(Debug, Clone, Copy)]
pub struct Io {
    pub flags: i32,
    pub mode: FileMode,
}

impl Io {
    pub fn may_wait(self) -> bool {
        self.flags & crate::abi::O_NONBLOCK == 0
    }
}

/// How a descriptor is wanted.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct FdFlags {
    pub cloexec: bool,
    pub any: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Direction {
    Read,
    Write,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Ioctl {
    Readable,
    Unread,
    AtMark,
}

#[derive(Debug, Clone, Copy)]
pub struct PseudoInode {
    pub i_ino: u32,
    pub i_owner: Owner,
}

#[derive(Debug, Clone, Copy)]
pub struct Owner;

pub trait Payload: Send + Sync + Sized + 'static {
    const CACHE: &'static str;
    const MODE: u32;
    const CLOSES: bool = false;
    fn is_idle(&mut self) -> bool;
    fn inode(&self) -> Option<&PseudoInode>;
    fn name(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result;
    fn try_read(&self, io: Io, to: &mut Sink<'_, '_>) -> Result<usize, Errno>;
    fn try_write(&self, io: Io, from: &mut Source<'_, '_>) -> Result<usize, Errno>;
    fn untold(&self, errno: Errno, from: &mut Source<'_, '_>);
    fn poll(&self, io: Io, table: &mut PollTable<'_>) -> Events;
    fn waiters(&self, what: Direction) -> Option<&WaitQueue>;
    fn in_turn(&self, what: Direction) -> bool;
    fn timeout(&self, what: Direction) -> Option<Duration>;
    fn ioctl(&self, io: Io, request: Ioctl) -> Result<i32, Errno>;
    fn closed(&self, mode: FileMode);
}

/// Nothing: files are the heap's here.
#[derive(Debug)]
pub struct Files;

#[derive(Debug)]
pub struct PseudoFs<P> {
    /// Files that have not ended: a count of the tests', of which the model knows nothing.
    live: Arc<AtomicUsize>,
    payload: PhantomData<fn() -> P>,
}

impl<P> PseudoFs<P> {
    pub fn new() -> Self {
        Self { live: Arc::default(), payload: PhantomData }
    }

    pub fn live(&self) -> usize {
        self.live.load(Ordering::Relaxed)
    }
}

impl<P: Payload> PseudoFs<P> {
    pub fn open_with<'k>(
        &self,
        files: &'k Files,
        make: impl FnOnce() -> P,
        flags: i32,
        mode: FileMode,
    ) -> Result<FileHandle<'k>, Errno> {
        self.open(files, make(), flags, mode)
    }

    pub fn open<'k>(
        &self,
        _files: &'k Files,
        payload: P,
        flags: i32,
        mode: FileMode,
    ) -> Result<FileHandle<'k>, Errno> {
        let closed = |payload: &(dyn Any + Send + Sync), mode| {
            payload.downcast_ref::<P>().expect("its own").closed(mode);
        };
        let live = Arc::clone(&self.live);
        live.fetch_add(1, Ordering::Relaxed);
        let open = Open {
            count: AtomicU64::new(1),
            flags,
            mode,
            payload: Box::new(payload),
            closed,
            live,
        };
        Ok(FileHandle { open: Arc::new(open), kernel: PhantomData })
    }
}

struct Open {
    count: AtomicU64,
    flags: i32,
    mode: FileMode,
    payload: Box<dyn Any + Send + Sync>,
    closed: fn(&(dyn Any + Send + Sync), FileMode),
    live: Arc<AtomicUsize>,
}

impl Drop for Open {
    fn drop(&mut self) {
        self.live.fetch_sub(1, Ordering::Relaxed);
    }
}

/// A reference to an open file.
pub struct FileHandle<'k> {
    open: Arc<Open>,
    kernel: PhantomData<&'k ()>,
}

impl FileHandle<'_> {
    pub fn payload<P: 'static>(&self) -> Option<&P> {
        self.open.payload.downcast_ref()
    }

    pub fn references(&self) -> u64 {
        self.open.count.load(Ordering::Acquire)
    }

    pub fn flags(&self) -> i32 {
        self.open.flags
    }

    pub fn socket(&self) -> &Socket {
        self.payload().expect("a socket")
    }
}

impl Clone for FileHandle<'_> {
    fn clone(&self) -> Self {
        // As `FileRef` does, without a file that is ending.
        self.open.count.fetch_add(1, Ordering::Relaxed);
        Self { open: Arc::clone(&self.open), kernel: PhantomData }
    }
}

impl Drop for FileHandle<'_> {
    fn drop(&mut self) {
        // ORDERING: as `FileRef::put`.
        if self.open.count.fetch_sub(1, Ordering::AcqRel) == 1 {
            (self.open.closed)(&*self.open.payload, self.open.mode);
        }
    }
}

impl fmt::Debug for FileHandle<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FileHandle").finish_non_exhaustive()
    }
}

/// What hashes of names are keyed with: nothing, where all names are in one bucket.
#[derive(Debug)]
pub struct NameKeys;

impl NameKeys {
    pub fn draw() -> Result<Self, Errno> {
        Ok(Self)
    }

    pub fn hash(&self, _: &[u8]) -> u64 {
        0
    }
}
