//! Open files.

mod data;
pub mod dirent;
mod iov;
mod listing;
mod locking;
mod mode;
mod operations;
mod position;
mod tree;
mod watching;

pub use data::{
    To, copy_range, fallocate, offset, read_all, read_all_on, read_at, read_long, read_on, seek,
    set_length, tell_passed, write, write_on,
};
pub(crate) use data::{in_range, passed, tell_modified, tell_read, touch_access};
pub use dirent::{Dirent, Dirents, dirents};
pub use iov::{Sink, Source};
pub use listing::list;
pub(crate) use listing::{dots, dt};
pub use locking::{flock, lock_bytes, process_closes};
pub(crate) use mode::{Ended, Mode};
pub use operations::{Direction, Io, Ioctl, read_object, write_object};
pub(crate) use position::Position;
pub(crate) use tree::{closed, keeps_mount_writable};
pub use watching::inotify_init1;

use crate::inode::PseudoState;
use crate::mount::Mount;
use crate::raw::pseudo::Kind;
use crate::status::Status;
use core::cell::Cell;
use core::ptr;
use quietline_platform::atomic::{AtomicI64, AtomicPtr, AtomicU32, AtomicU64, Ordering};
use quietline_platform::{AllocError, cpu};
use quietline_slab::LazyCache;
use quietline_sync::{Counter, FileRef, LazyBox, Shared, SpinLock, rcu};
use std::collections::HashMap;

bitflags::bitflags! {
    /// What may be done with an open file (`f_mode`).
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub struct FileMode: u32 {
        /// Read.
        const READ = 1;
        /// Write.
        const WRITE = 2;
        /// Neither: the file is a place in the tree (`O_PATH`).
        const PATH = 4;
    }
}

/// An open file (`struct file`), one line.
///
/// Lives in a typesafe cache: a thread that found it in a descriptor table may look at it without owning it, as long
/// as its read section lasts, and finds a `File` there, though perhaps of another life. `f_ref` is what makes it the
/// thread's own; `f_status` tells lives apart for those who only look. All fields but `f_ref` are written by the owner
/// of a new life before `f_ref` is.
#[repr(C, align(64))]
#[derive(Debug)]
pub struct File {
    pub(crate) f_ref: FileRef,
    pub(crate) f_status: Status,
    pub(crate) f_mode: Mode,
    /// Four bytes for the allocator, while the file is free; while it is open, which credentials it was opened with, if it is
    /// one of the tree.
    pub(crate) link: AtomicU32,
    /// A pseudo object, or a dentry of the tree: `f_kind` tells.
    pub(crate) f_dentry: AtomicPtr<()>,
    pub(crate) f_mnt: AtomicPtr<Mount>,
    /// Which kind of pseudo object; none for a file of the tree.
    pub(crate) f_kind: AtomicPtr<Kind>,
    /// Where it goes when it ends; the same in every life.
    pub(crate) f_files: AtomicPtr<Files>,
    /// Where a file of the tree stands.
    pub(crate) f_pos: Position,
}

const _: () = assert!(size_of::<File>() == 64);

impl File {
    /// Where the allocator keeps its link while the file is free.
    pub(crate) const LINK: usize = core::mem::offset_of!(File, link);

    /// A file before its first life.
    pub(crate) fn unborn() -> Self {
        Self {
            f_ref: FileRef::dead(),
            f_status: Status::new(),
            f_mode: Mode::new(),
            link: AtomicU32::new(0),
            f_dentry: AtomicPtr::new(ptr::null_mut()),
            f_mnt: AtomicPtr::new(ptr::null_mut()),
            f_kind: AtomicPtr::new(ptr::null_mut()),
            f_files: AtomicPtr::new(ptr::null_mut()),
            f_pos: Position::new(),
        }
    }
}

/// The files of a kernel, and how many there may be.
///
/// It must stay where it is while files are open: they point to it. Its owner, a kernel, is boxed, and every handle
/// borrows it.
#[derive(Debug)]
pub struct Files {
    /// Of `File`s, typesafe.
    pub(crate) cache: LazyCache,
    pub(crate) domain: &'static rcu::Domain,
    pub(crate) nr_files: Counter,
    max_files: AtomicU64,
    /// While the approximate count of files is below this, one more file may be opened.
    near_max: AtomicI64,
    /// How far the approximate count of files may be from the count.
    slack: u64,
    /// The state of the inode that all anonymous descriptors share, after a call has locked it.
    pub(crate) anonymous: LazyBox<Shared<PseudoState>>,
    /// The list heads of the epoll items of files that have an offset: for the address of a file,
    /// the address of its first item.
    pub(crate) listed_items: SpinLock<HashMap<usize, usize>>,
}

#[cfg(not(loom))]
quietline_platform::thread_local! {
    /// Whether the thread is [exempt](Files::exempt) from the limit.
    static EXEMPT: Cell<bool> = const { Cell::new(false) };
}
#[cfg(loom)]
quietline_platform::thread_local! {
    static EXEMPT: Cell<bool> = Cell::new(false);
}

impl Files {
    /// No files yet; at most `max_files` (`/proc/sys/fs/file-max`).
    ///
    /// # Errors
    /// [`AllocError`] when there is no memory.
    pub fn new(max_files: u64) -> Result<Self, AllocError> {
        let domain = rcu::global()?;
        let nr_files = Counter::new()?;
        let slack = nr_files.batch().unsigned_abs().saturating_mul(cpu::nr_cpus() as u64);
        Ok(Self {
            cache: File::cache(domain),
            domain,
            near_max: AtomicI64::new(near_max(max_files, slack)),
            slack,
            listed_items: SpinLock::new(HashMap::new()),
            nr_files,
            max_files: AtomicU64::new(max_files),
            anonymous: LazyBox::new(),
        })
    }

    /// Open files; exact when nobody opens or closes meanwhile.
    pub fn nr_files(&self) -> i64 {
        self.nr_files.sum()
    }

    /// The limit on open files.
    #[inline]
    pub fn max_files(&self) -> u64 {
        // Relaxed: a tunable.
        self.max_files.load(Ordering::Relaxed)
    }

    /// Changes the limit; files that are open stay.
    pub fn set_max_files(&self, max: u64) {
        // Relaxed, both: a tunable.
        self.max_files.store(max, Ordering::Relaxed);
        self.near_max.store(near_max(max, self.slack), Ordering::Relaxed);
    }

    /// The cache of files.
    pub fn cache(&self) -> &LazyCache {
        &self.cache
    }

    /// Gives cached files back to the system.
    pub fn shrink(&self) {
        self.cache.shrink();
    }

    /// Whether one more file may be opened. Reads two shared lines, which are seldom written.
    #[inline]
    pub(crate) fn may_open(&self) -> bool {
        self.is_far_from_max(1) || self.may_open_slow()
    }

    /// Whether so many more files may be opened for certain: else the exact count
    /// [decides](Self::may_open).
    #[inline(always)]
    pub(crate) fn is_far_from_max(&self, more: i64) -> bool {
        // Relaxed: a tunable.
        self.nr_files.read() < self.near_max.load(Ordering::Relaxed).saturating_sub(more - 1)
    }

    /// Near the limit the exact sum decides.
    #[cold]
    fn may_open_slow(&self) -> bool {
        EXEMPT.with(Cell::get) || (self.nr_files.sum().max(0) as u64) < self.max_files()
    }

    /// Calls `open`, which opens files beyond the limit: for a caller with `CAP_SYS_ADMIN` after a
    /// call that failed with `ENFILE`.
    pub fn exempt<R>(open: impl FnOnce() -> R) -> R {
        struct Bound(bool);
        impl Drop for Bound {
            fn drop(&mut self) {
                EXEMPT.with(|exempt| exempt.set(self.0));
            }
        }
        let _bound = Bound(EXEMPT.with(|exempt| exempt.replace(true)));
        open()
    }
}

/// Returns the approximate count of files from which on only the exact one tells whether there are
/// fewer than `max`.
fn near_max(max: u64, slack: u64) -> i64 {
    match max.checked_sub(slack) {
        // A count below zero is one of zero, and zero is near the limit.
        None | Some(0) => i64::MIN,
        Some(near) => i64::try_from(near).unwrap_or(i64::MAX),
    }
}
