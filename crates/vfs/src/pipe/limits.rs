//! How large a pipe may be, and how many pages a user's pipes may have.
//!
//! On Linux a pipe is counted for its user when it is made. Here it is counted when its ring is
//! used for the first time or its size is asked for, so making a pipe writes nothing that other
//! pipes write.

use super::core::PipeCore;
use crate::raw::pipe_ring;
use quietline_platform::atomic::{AtomicU32, AtomicU64, Ordering};
use quietline_platform::heap;
use quietline_platform::pages::PAGE_SIZE;
use quietline_sync::{LazyBox, SpinLock};
use rustix::io::Errno;

/// The limits that a kernel sets to its pipes, and the pages that each user's pipes have.
#[derive(Debug)]
pub struct PipeLimits {
    max_size: AtomicU32,
    user_pages_soft: AtomicU64,
    user_pages_hard: AtomicU64,
    /// Made with the first pipe.
    users: LazyBox<SpinLock<Vec<User>>>,
}

/// The pages of a user's pipes, at least one.
#[derive(Debug)]
struct User {
    uid: u32,
    pages: u64,
}

/// Bytes of the largest pipe that there can be at all.
const LARGEST: u32 = 1 << 31;
/// Pages of all pipes of a user beyond which its pipes are small, at first: 1,024 pipes
/// (`PIPE_DEF_BUFFERS * INR_OPEN_CUR`).
const SOFT: u64 = 1024 * pipe_ring::FEW as u64;
/// Pages of such a small pipe (`PIPE_MIN_DEF_BUFFERS`).
const SMALL: usize = 2;

/// The bytes that a pipe has room for which is asked for `bytes`: a power of two, at least a page; none above what can be.
fn rounded(bytes: u32) -> Option<u32> {
    (bytes <= LARGEST).then(|| bytes.max(PAGE_SIZE as u32).next_power_of_two())
}

/// Returns whether user 0 is spared: its pipes may be of any size, as those of a process with
/// `CAP_SYS_RESOURCE` on Linux. The first use of a pipe tells the user, not the capabilities.
fn is_spared(uid: u32) -> bool {
    uid == 0
}

impl PipeLimits {
    /// Linux's defaults.
    pub(crate) fn new() -> Self {
        Self {
            max_size: AtomicU32::new(1 << 20),
            user_pages_soft: AtomicU64::new(SOFT),
            user_pages_hard: AtomicU64::new(0),
            users: LazyBox::new(),
        }
    }

    /// Bytes that an unprivileged caller may give a pipe room for (`/proc/sys/fs/pipe-max-size`).
    pub fn max_size(&self) -> u32 {
        // Relaxed: a tunable.
        self.max_size.load(Ordering::Relaxed)
    }

    /// Changes that; it is rounded up as a pipe's size is. Pipes stay as they are.
    ///
    /// # Errors
    /// `EINVAL` for more than a pipe can have.
    pub fn set_max_size(&self, bytes: u32) -> Result<(), Errno> {
        let max = rounded(bytes).ok_or(Errno::INVAL)?;
        // Relaxed: a tunable.
        self.max_size.store(max, Ordering::Relaxed);
        Ok(())
    }

    /// The pages of a user's pipes beyond which a pipe has two pages, and none can be enlarged
    /// (`/proc/sys/fs/pipe-user-pages-soft`). 0: no such limit.
    pub fn user_pages_soft(&self) -> &AtomicU64 {
        &self.user_pages_soft
    }

    /// The pages that a user's pipes may have (`/proc/sys/fs/pipe-user-pages-hard`). 0: no limit.
    pub fn user_pages_hard(&self) -> &AtomicU64 {
        &self.user_pages_hard
    }

    /// Returns whether so many pages of a user are more than `limit` allows.
    fn is_beyond(limit: &AtomicU64, pages: u64) -> bool {
        // Relaxed: a tunable.
        let limit = limit.load(Ordering::Relaxed);
        limit != 0 && pages > limit
    }

    /// Counts a new pipe of a user. Returns the number of its pages.
    ///
    /// # Errors
    /// `ENOMEM` beyond the hard limit, and without memory to count.
    pub(super) fn charge_new(&self, uid: u32) -> Result<usize, Errno> {
        let spared = is_spared(uid);
        let most = if spared { usize::MAX } else { self.max_size() as usize / PAGE_SIZE };
        let mut pages = pipe_ring::FEW.min(most);
        let users = self.users.get_or_make(|| Ok(SpinLock::new(Vec::new())));
        let mut users = users.map_err(|_| Errno::NOMEM)?.lock();
        let at = users.iter().position(|user| user.uid == uid);
        let before = at.map_or(0, |at| users[at].pages);
        if !spared {
            if Self::is_beyond(&self.user_pages_soft, before + pages as u64) {
                pages = SMALL;
            }
            if Self::is_beyond(&self.user_pages_hard, before + pages as u64) {
                return Err(Errno::NOMEM);
            }
        }
        match at {
            Some(at) => users[at].pages += pages as u64,
            None => {
                heap::try_reserve(&mut *users, 1).map_err(|_| Errno::NOMEM)?;
                users.push(User { uid, pages: pages as u64 });
            }
        }
        Ok(pages)
    }

    /// Counts a pipe of a user that has `old` pages as one of `new` pages.
    ///
    /// # Errors
    /// `EPERM` if it grows and the user has more than one of the limits allows, unless
    /// `privileged`.
    pub(super) fn recharge(
        &self,
        uid: u32,
        old: usize,
        new: usize,
        privileged: bool,
    ) -> Result<(), Errno> {
        let Some(users) = self.users.get() else { return Ok(()) };
        let mut users = users.lock();
        let Some(user) = users.iter_mut().find(|user| user.uid == uid) else { return Ok(()) };
        let pages = user.pages - old as u64 + new as u64;
        let beyond = Self::is_beyond(&self.user_pages_soft, pages)
            || Self::is_beyond(&self.user_pages_hard, pages);
        if new > old && beyond && !privileged {
            return Err(Errno::PERM);
        }
        user.pages = pages;
        Ok(())
    }

    /// Counts a pipe of a user that has `pages` pages no more.
    pub(super) fn uncharge(&self, uid: u32, pages: usize) {
        let Some(users) = self.users.get() else { return };
        let mut users = users.lock();
        let Some(at) = users.iter().position(|user| user.uid == uid) else { return };
        users[at].pages -= pages as u64;
        if users[at].pages == 0 {
            users.swap_remove(at);
        }
    }
}

impl PipeCore {
    /// Gives the pipe room for at least so many bytes (`F_SETPIPE_SZ`): for how many. `resource`
    /// says whether the caller has `CAP_SYS_RESOURCE`, `admin` whether it has `CAP_SYS_ADMIN`.
    ///
    /// # Errors
    /// `EINVAL` for more than there can be; `EPERM` above the limit of a pipe, unless `resource` or
    /// less than it has, and above those of the pipe's user, unless `resource` or `admin`; `EBUSY`
    /// when more pages are full; `ENOMEM`.
    pub fn set_capacity(&self, bytes: u32, resource: bool, admin: bool) -> Result<usize, Errno> {
        let size = rounded(bytes).ok_or(Errno::INVAL)?;
        let max = self.pages.limits().max_size();
        if size as usize > self.capacity() && size > max && !resource {
            return Err(Errno::PERM);
        }
        self.resize(size as usize / PAGE_SIZE, resource || admin)?;
        Ok(size as usize)
    }
}
