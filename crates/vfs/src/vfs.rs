//! All of a kernel's file systems, and what they are made from.

use crate::attributes::FileClock;
use crate::dcache::name::{Keys, Name};
use crate::inode::{Inode, PseudoState};
use crate::inotify::InotifyLimits;
use crate::locks::LockWaits;
use crate::namespace::MountEvents;
use crate::pipe::PipeLimits;
use crate::ramfs::PAGE;
use crate::ramfs::pages::PageCaches;
use crate::raw::dcache::entry::Dentry;
use crate::raw::dcache::long_name::LongNames;
use crate::raw::dcache::lru::Lru;
use crate::raw::dcache::super_block::Supers;
use crate::raw::mount_book::Mounts;
use crate::raw::pipe_page::Pages;
use core::fmt;
use core::marker::PhantomPinned;
use core::pin::Pin;
use quietline_platform::atomic::AtomicBool;
use quietline_platform::heap;
use quietline_slab::{LazyCache, RawCache};
use quietline_sync::rcu::{self, Domain};
use quietline_sync::{Shared, WideIdAllocator};
use rustix::io::Errno;

/// The file systems of a kernel: their superblocks, and the caches that dentries, inodes and names come from.
///
/// It stays where it is while it lives: superblocks point to it. Handles borrow it.
pub struct Vfs {
    /// First, because its mounts refer to what follows.
    pub(crate) mounts: Mounts,
    pub(crate) domain: &'static Domain,
    pub(crate) keys: Keys,
    pub(crate) dentries: LazyCache,
    pub(crate) inodes: LazyCache,
    pub(crate) long_names: LongNames,
    /// As tmpfs has them with `inode64`: no number comes again.
    pub(crate) last_ino: WideIdAllocator,
    pub(crate) lru: Lru,
    pub(crate) supers: Supers,
    pub(crate) pages: PageCaches,
    pub(crate) pipe_pages: Pages,
    pub(crate) clock: FileClock,
    pub(crate) lock_waits: Shared<LockWaits>,
    /// The state of the inode that all anonymous descriptors share.
    pub(crate) anonymous: Shared<PseudoState>,
    /// Whether anybody has ever watched a file.
    pub(crate) watched: AtomicBool,
    pub(crate) inotify_limits: Shared<InotifyLimits>,
    pub(crate) mount_events: MountEvents,
    /// It may not be moved.
    _pinned: PhantomPinned,
}

/// Numbers of dentries (`/proc/sys/fs/dentry-state`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DentryState {
    /// Dentries that live.
    pub nr_dentry: i64,
    /// Dentries that nobody refers to and that are kept in case that somebody will.
    pub nr_unused: i64,
    /// Those that stand for nothing.
    pub nr_negative: i64,
}

impl Vfs {
    /// No file systems yet.
    ///
    /// # Errors
    /// `ENOMEM`.
    pub fn new() -> Result<Pin<Box<Self>>, Errno> {
        let domain = rcu::global().map_err(|_| Errno::NOMEM)?;
        let lock_waits = Shared::new(LockWaits::new()).map_err(|_| Errno::NOMEM)?;
        let anonymous = PseudoState::new(lock_waits.clone());
        let vfs = Self {
            mounts: Mounts::new(),
            domain,
            keys: Keys::draw()?,
            dentries: Dentry::cache(domain),
            inodes: Inode::cache(domain),
            long_names: LongNames::new(domain),
            last_ino: WideIdAllocator::new().map_err(|_| Errno::NOMEM)?,
            lru: Lru::new(),
            supers: Supers::new(),
            pages: PageCaches::new(domain),
            pipe_pages: Pages::new(domain),
            clock: FileClock::new(),
            lock_waits,
            anonymous: Shared::new(anonymous).map_err(|_| Errno::NOMEM)?,
            watched: AtomicBool::new(false),
            inotify_limits: Shared::new(InotifyLimits::new()).map_err(|_| Errno::NOMEM)?,
            mount_events: MountEvents::new(),
            _pinned: PhantomPinned,
        };
        Ok(Box::into_pin(heap::try_box(vfs).map_err(|_| Errno::NOMEM)?))
    }

    /// A name to look for.
    ///
    /// # Errors
    /// `ENAMETOOLONG` above 255 bytes.
    #[inline(always)]
    pub fn name<'a>(&self, bytes: &'a [u8]) -> Result<Name<'a>, Errno> {
        Name::new(bytes, &self.keys)
    }

    /// Numbers of dentries; exact when nobody makes or ends one meanwhile.
    pub fn dentry_state(&self) -> DentryState {
        let mut state = DentryState { nr_dentry: 0, nr_unused: self.lru.len(), nr_negative: 0 };
        self.supers.each(|sb| {
            state.nr_dentry += sb.nr_dentry();
            state.nr_negative += sb.nr_negative();
        });
        state
    }

    /// Inodes that live; exact when nobody makes or ends one meanwhile.
    pub fn nr_inodes(&self) -> i64 {
        let mut sum = 0;
        self.supers.each(|sb| sum += sb.nr_inodes());
        sum
    }

    /// Returns the pages that all filesystems in memory have, without those that the CPUs have not
    /// yet added up.
    pub fn ramfs_pages(&self) -> u64 {
        let mut sum = 0;
        self.supers.each(|sb| sum += sb.ramfs().map_or(0, |fs| fs.limits().pages_near()));
        sum
    }

    /// Waits for locks, and the limit on the locks of a file.
    pub fn lock_waits(&self) -> &LockWaits {
        &self.lock_waits
    }

    /// Returns whether so many pages of files fit the [account](quietline_slab::Account) that their
    /// cache charges, if nothing else is charged to it.
    pub fn could_hold(&self, pages: u64) -> bool {
        let limit = self.pages.page.account().and_then(|account| account.limit());
        limit.is_none_or(|bytes| pages <= bytes as u64 / PAGE)
    }

    /// The limits of pipes.
    pub fn pipe_limits(&self) -> &PipeLimits {
        self.pipe_pages.limits()
    }

    /// The caches: of dentries, of inodes, of long names of two sizes, of pages, of nodes of their
    /// trees, and of pages of pipes.
    pub fn caches(&self) -> [&LazyCache; 7] {
        let ([small, large], [page, node]) = (self.long_names.caches(), self.pages.caches());
        [&self.dentries, &self.inodes, small, large, page, node, self.pipe_pages.cache()]
    }

    /// Gives back the dentries that nobody refers to, and then their directories' that nobody refers to any more, and cached
    /// memory. Takes locks of directories: not for holders of any. Waits for a grace period: not inside a section. How many
    /// dentries were given back.
    pub fn shrink(&self) -> usize {
        // Whoever makes dentries as quickly as they go does not keep this from ending.
        let most = usize::try_from(self.dentry_state().nr_dentry).unwrap_or(0);
        let mut freed = 0;
        while freed < most {
            match self.prune(usize::MAX) {
                0 => break,
                n => freed += n,
            }
        }
        RawCache::flush_rcu_of(self.caches().into_iter().filter_map(LazyCache::made));
        self.reap();
        self.caches().into_iter().for_each(LazyCache::shrink);
        freed
    }
}

impl fmt::Debug for Vfs {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Vfs").field("dentries", &self.dentry_state()).finish_non_exhaustive()
    }
}
