//! How much a filesystem in memory may hold.
//!
//! Files are counted in bytes, 1,024 for each and for each further link, and extended attributes out of the same room, as tmpfs
//! counts them.
//!
//! Each page and each file is counted, by the CPU that makes it: no shared line is written far from a limit. Near one,
//! calls take a lock and the limit holds exactly, but for calls that were in flight when it came near (see
//! [`Counter::limited_add`]).

use super::xattr::Budget;
use crate::abi::{NAME_MAX, StatFs, TMPFS_MAGIC};
use quietline_platform::atomic::{AtomicI64, Ordering};
use quietline_platform::{AllocError, memory};
use quietline_sync::Counter;
use rustix::io::Errno;

/// Bytes of a page, and of what `statfs` calls a block.
pub const PAGE: u64 = 4096;
/// Pages that are reserved without a look at the machine's memory.
const FEW_PAGES: u64 = 1024;
/// Bytes that a file takes of the room for files (`BOGO_INODE_SIZE`).
const INODE: u64 = 1024;
/// A limit from here on is none.
const UNLIMITED: i64 = i64::MAX / 2;

/// What there is, and what there may be.
#[derive(Debug)]
pub struct Limits {
    pages: Counter,
    /// Bytes for files and attributes.
    inodes: Counter,
    max_pages: Option<i64>,
    /// As many bytes.
    max_inodes: Option<i64>,
    /// The amounts by which the limits are lower now than those two: of pages and of bytes. The
    /// counters include them as if they were used. So the count is held against the first limit,
    /// which never changes, and a limit that can be changed costs no more than one that cannot.
    less: [AtomicI64; 2],
}

impl Limits {
    /// Nothing yet; at most so many bytes (rounded down to pages) and files, the root among them.
    ///
    /// # Errors
    /// [`AllocError`] when there is no memory for the counters.
    pub fn new(max_bytes: Option<u64>, max_inodes: Option<u64>) -> Result<Self, AllocError> {
        let bound = |max: u64| i64::try_from(max).unwrap_or(i64::MAX);
        Ok(Self {
            pages: Counter::new()?,
            // As many files as other counters count before they share.
            inodes: Counter::with_batch(64 * INODE as u32)?,
            max_pages: max_bytes.map(|bytes| bound(bytes / PAGE)),
            max_inodes: max_inodes.map(|max| bound(max.saturating_mul(INODE))),
            less: [0, 0].map(AtomicI64::new),
        })
    }

    /// Nothing yet; at most so many pages and files, the root among them. 0 is no limit for ever,
    /// `None` is none until [`change`](Self::change).
    ///
    /// # Errors
    /// [`AllocError`] when there is no memory for the counters.
    pub fn changeable(pages: Option<u64>, inodes: Option<u64>) -> Result<Self, AllocError> {
        let first = |max: Option<u64>, size: u64| match max {
            Some(0) => None,
            Some(max) => Some(i64::try_from(max.saturating_mul(size)).unwrap_or(i64::MAX)),
            None => Some(UNLIMITED),
        };
        let mut limits = Self::new(None, None)?;
        (limits.max_pages, limits.max_inodes) = (first(pages, 1), first(inodes, INODE));
        Ok(limits)
    }

    fn less_pages(&self) -> i64 {
        // Relaxed, so below: a number of its own.
        self.less[0].load(Ordering::Relaxed)
    }

    fn less_inodes(&self) -> i64 {
        self.less[1].load(Ordering::Relaxed)
    }

    /// Returns how many pages there may be.
    pub fn max_pages(&self) -> Option<u64> {
        limit(self.max_pages, self.less_pages()).map(|max| max as u64)
    }

    /// Returns how many files there may be.
    pub fn max_inodes(&self) -> Option<u64> {
        limit(self.max_inodes, self.less_inodes()).map(|max| max as u64 / INODE)
    }

    /// Changes how many pages and files there may be (`shmem_reconfigure`); 0 stands for no limit.
    /// The caller keeps other changes of the limits out.
    ///
    /// # Errors
    /// `EINVAL` for less than there is, and for a limit where there is none. Nothing has changed
    /// then.
    pub fn change(&self, pages: Option<u64>, inodes: Option<u64>) -> Result<(), Errno> {
        let of_pages = (&self.pages, self.max_pages, &self.less[0]);
        let of_inodes = (&self.inodes, self.max_inodes, &self.less[1]);
        let before = self.less_pages();
        if let Some(pages) = pages {
            change(of_pages, pages)?;
        }
        if let Some(inodes) = inodes
            && let Err(errno) = change(of_inodes, inodes.saturating_mul(INODE))
        {
            self.pages.add(before - self.less_pages());
            self.less[0].store(before, Ordering::Relaxed);
            return Err(errno);
        }
        Ok(())
    }

    /// Takes room for so many pages; false if there is none.
    #[inline]
    #[must_use = "false means that there is no room"]
    pub fn charge_pages(&self, pages: u64) -> bool {
        take(&self.pages, self.max_pages, pages)
    }

    /// Returns whether `pages` more pages can be reserved. That is false if the filesystem has a
    /// size and `pages` is more than that. A few pages can always be reserved otherwise. More are
    /// compared with the machine's physical memory: with a size, `pages` alone; without one,
    /// `pages` and those that all filesystems of the kernel have, which `used` returns, with half
    /// of it, the default size of a tmpfs. Reserves nothing itself.
    pub fn could_reserve(&self, pages: u64, used: impl FnOnce() -> u64) -> bool {
        let max = self.max_pages();
        if max.is_some_and(|max| pages > max) {
            return false;
        }
        // Few pages are made at once, by a write too: no question to the system.
        if pages <= FEW_PAGES {
            return true;
        }
        let memory = memory::physical() / PAGE;
        match max {
            Some(_) => pages <= memory,
            None => pages.saturating_add(used()) <= memory / 2,
        }
    }

    /// Returns whether the kernel's filesystems are within their bound of the machine's memory
    /// after a reservation has charged `pages`: see [`could_reserve`](Self::could_reserve). Of
    /// several reservations at once, each sees the charges of those before it.
    pub fn is_within_memory(&self, pages: u64, used: impl FnOnce() -> u64) -> bool {
        pages <= FEW_PAGES || self.max_pages().is_some() || used() <= memory::physical() / PAGE / 2
    }

    /// Gives room for so many pages back.
    #[inline]
    pub fn uncharge_pages(&self, pages: u64) {
        if pages == 0 {
            return;
        }
        self.pages.sub(pages as i64);
    }

    /// Pages that there is room for; exact when nobody writes meanwhile.
    pub fn pages_left(&self) -> u64 {
        // The count includes the amount by which the limit is lower.
        self.max_pages.map_or(u64::MAX, |max| (max - self.pages.sum()).max(0) as u64)
    }

    /// Takes room for one file; false if there is none.
    #[inline]
    #[must_use = "false means that there is no room"]
    pub fn charge_inode(&self) -> bool {
        take(&self.inodes, self.max_inodes, INODE)
    }

    /// Gives room for one file back.
    #[inline]
    pub fn uncharge_inode(&self) {
        self.inodes.sub(INODE as i64);
    }

    /// Pages in use, without those that the CPUs have not yet added up. One load.
    pub fn pages_near(&self) -> u64 {
        (self.pages.read() - self.less_pages()).max(0) as u64
    }

    /// Pages in use; exact when nobody writes meanwhile.
    pub fn pages(&self) -> u64 {
        (self.pages.sum() - self.less_pages()).max(0) as u64
    }

    /// Files that live; exact when nobody makes or ends one meanwhile.
    pub fn inodes(&self) -> u64 {
        (self.inodes.sum() - self.less_inodes()).max(0) as u64 / INODE
    }

    /// What `statfs` says, but for how the filesystem is mounted.
    pub fn statfs(&self) -> StatFs {
        let (mut blocks, mut files) = ([0; 2], [0; 2]);
        // The counts include the amounts by which the limits are lower.
        if let (Some(max), Some(first)) = (self.max_pages(), self.max_pages) {
            blocks = [max, (first - self.pages.sum()).max(0) as u64];
        }
        if let (Some(max), Some(first)) = (self.max_inodes(), self.max_inodes) {
            files = [max, (first - self.inodes.sum()).max(0) as u64 / INODE];
        }
        StatFs {
            f_type: TMPFS_MAGIC,
            f_bsize: PAGE as i64,
            f_blocks: blocks[0],
            f_bfree: blocks[1],
            f_bavail: blocks[1],
            f_files: files[0],
            f_ffree: files[1],
            f_fsid: [0; 2],
            f_namelen: NAME_MAX as i64,
            f_frsize: PAGE as i64,
            f_flags: 0,
        }
    }
}

impl Budget for Limits {
    fn charge(&self, bytes: u64) -> bool {
        take(&self.inodes, self.max_inodes, bytes)
    }

    fn uncharge(&self, bytes: u64) {
        self.inodes.sub(bytes as i64);
    }
}

/// Returns the limit that is lower than `first` by `less`, or `None` if that is no limit.
fn limit(first: Option<i64>, less: i64) -> Option<i64> {
    first.map(|first| first.saturating_sub(less)).filter(|max| *max < UNLIMITED)
}

/// Makes `to` the limit of a count. `first` is its first limit, and `less` the amount by which the
/// limit is lower now.
///
/// # Errors
/// `EINVAL`.
fn change((count, first, less): (&Counter, Option<i64>, &AtomicI64), to: u64) -> Result<(), Errno> {
    let before = less.load(Ordering::Relaxed);
    let Some(first) = first else {
        return if to == 0 { Ok(()) } else { Err(Errno::INVAL) };
    };
    // A limit that was given up does not come again.
    if before < 0 && limit(Some(first), before).is_none() && to != 0 {
        return Err(Errno::INVAL);
    }
    let to = i64::try_from(to).unwrap_or(i64::MAX).min(UNLIMITED - 1);
    let after = first - if to == 0 { UNLIMITED + 1 } else { to };
    if after > before {
        // More than the limit allows is used if this goes past it.
        if !count.limited_add(first, after - before) {
            return Err(Errno::INVAL);
        }
    } else {
        count.sub(before - after);
    }
    less.store(after, Ordering::Relaxed);
    Ok(())
}

#[inline(always)]
fn take(count: &Counter, max: Option<i64>, amount: u64) -> bool {
    let Ok(amount) = i64::try_from(amount) else { return false };
    match max {
        Some(max) => count.limited_add(max, amount),
        None => {
            count.add(amount);
            true
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reservations_at_once_see_each_other() {
        let half = memory::physical() / PAGE / 2;
        let limits = Limits::new(None, None).unwrap();
        let used = || limits.pages_near();
        // Both have looked before either charges.
        assert!(limits.could_reserve(half, used) && limits.could_reserve(half, used));
        assert!(limits.charge_pages(half) && limits.is_within_memory(half, used));
        assert!(limits.charge_pages(half) && !limits.is_within_memory(half, used));
        assert!(limits.is_within_memory(FEW_PAGES, used), "few are made at once");
        limits.uncharge_pages(half);
        assert!(limits.is_within_memory(half, used));
        let bounded = Limits::new(Some(4 * half * PAGE), None).unwrap();
        assert!(bounded.charge_pages(3 * half) && bounded.is_within_memory(3 * half, used));
    }

    #[test]
    fn a_limit_is_changed_but_not_below_what_is_used() {
        let limits = Limits::new(Some(4 * PAGE), Some(4)).unwrap();
        let shown = |limits: &Limits| {
            let told = limits.statfs();
            [told.f_blocks, told.f_bfree, told.f_files, told.f_ffree]
        };
        assert!(limits.charge_pages(3) && limits.charge_inode() && limits.charge_inode());
        assert_eq!(limits.change(Some(2), None), Err(Errno::INVAL));
        assert_eq!(limits.change(Some(3), Some(1)), Err(Errno::INVAL));
        assert_eq!(shown(&limits), [4, 1, 4, 2], "nothing has changed");
        for (pages, inodes) in [(3, 2), (10, 20), (3, 2), (1 << 40, 1 << 40), (5, 3)] {
            assert_eq!(limits.change(Some(pages), Some(inodes)), Ok(()));
            assert_eq!(shown(&limits), [pages, pages - 3, inodes, inodes - 2]);
            assert_eq!((limits.pages(), limits.inodes()), (3, 2));
            assert_eq!((limits.max_pages(), limits.pages_left()), (Some(pages), pages - 3));
        }
        assert!(limits.charge_pages(2) && !limits.charge_pages(1));
        assert!(limits.charge_inode() && !limits.charge_inode());
        assert_eq!(limits.change(Some(0), Some(0)), Ok(()));
        assert_eq!((shown(&limits), limits.max_pages(), limits.max_inodes()), ([0; 4], None, None));
        assert!(limits.charge_pages(1 << 40) && limits.charge_inode());
        assert_eq!((limits.pages(), limits.inodes()), (5 + (1 << 40), 4));
        assert_eq!(limits.change(Some(1 << 50), None), Err(Errno::INVAL), "not later");
        assert_eq!(limits.change(Some(0), None), Ok(()));
        limits.uncharge_pages(5 + (1 << 40));
        assert_eq!((limits.pages(), limits.could_reserve(1, || 0)), (0, true));
        let later = Limits::changeable(None, Some(0)).unwrap();
        assert!(later.charge_pages(7) && later.charge_inode());
        assert_eq!((shown(&later), later.pages(), later.max_pages()), ([0; 4], 7, None));
        assert_eq!(later.change(Some(6), None), Err(Errno::INVAL));
        assert_eq!(later.change(Some(9), None), Ok(()));
        assert_eq!((shown(&later), later.pages()), ([9, 2, 0, 0], 7));
        assert_eq!(later.change(None, Some(9)), Err(Errno::INVAL), "0 was said");
        assert_eq!(later.change(Some(0), None), Ok(()));
        assert_eq!(later.change(Some(9), None), Err(Errno::INVAL));
        assert_eq!((shown(&later), later.pages()), ([0; 4], 7));
        let endless = Limits::new(None, None).unwrap();
        assert_eq!(endless.change(Some(1), None), Err(Errno::INVAL));
        assert_eq!(endless.change(None, Some(1)), Err(Errno::INVAL));
        assert_eq!(endless.change(Some(0), Some(0)), Ok(()));
    }

    #[test]
    fn what_is_full_takes_no_more() {
        let limits = Limits::new(Some(3 * PAGE + 1), Some(2)).unwrap();
        assert!(limits.charge_pages(2) && !limits.charge_pages(2) && limits.charge_pages(1));
        assert!(limits.charge_inode() && limits.charge_inode() && !limits.charge_inode());
        let full = limits.statfs();
        assert_eq!((full.f_blocks, full.f_bfree, full.f_files, full.f_ffree), (3, 0, 2, 0));
        limits.uncharge_pages(3);
        limits.uncharge_inode();
        assert_eq!((limits.pages(), limits.inodes()), (0, 1));
        let endless = Limits::new(None, None).unwrap();
        assert!(endless.charge_pages(1 << 40) && endless.charge_inode());
        assert_eq!((endless.statfs().f_blocks, endless.statfs().f_files), (0, 0));
        assert!(!endless.charge_pages(u64::MAX));
    }
}
