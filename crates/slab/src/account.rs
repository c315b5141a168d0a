//! A bound on the memory of several caches.

use core::fmt;
use quietline_platform::AllocError;
use quietline_platform::atomic::{AtomicU64, AtomicUsize, Ordering};
use quietline_sync::{Counted, Shared};

/// The value of `limit` that no use exceeds.
const NO_LIMIT: usize = usize::MAX;

/// A bound on the memory of the caches that [charge](crate::Control::charge_to) it (the
/// `memory.max` of a memory control group). Cloning makes another owner of the same account.
///
/// A cache charges whole slabs: when it takes a block from the page allocator, and until it gives
/// the block back. So a hit in a CPU's sheaf costs nothing more, and objects that are free, or that
/// wait for a grace period, stay charged until their slab is given back. A slab that would exceed
/// the limit is refused, and the allocation fails with [`AllocError`].
///
/// To make room, drop or free objects and [shrink](crate::Control::shrink) the caches; those of
/// memory that waits for a grace period after it. A refusal reclaims nothing by itself: its caller
/// may hold locks, and caches of other accounts have nothing to give.
///
/// Not charged: the arrays of sheaves, at most two of 64 KiB / stride pointers for each CPU and two
/// times [`barn_limit`](crate::Options::barn_limit) in the cache's barn.
///
/// ```
/// use quietline_slab::{Account, Cache};
///
/// let account = Account::new(Some(64 << 10))?;
/// let lines = Cache::<[u8; 1024]>::new("line")?;
/// lines.charge_to(&account)?;
/// let kept: Vec<_> = std::iter::from_fn(|| lines.alloc([0; 1024]).ok()).collect();
/// assert!(!kept.is_empty() && account.used() <= 64 << 10);
/// drop(kept);
/// lines.shrink();
/// assert_eq!(account.used(), 0);
/// # Ok::<(), quietline_slab::CacheError>(())
/// ```
///
/// Shared lines written: one for each slab that is made or given back.
///
/// # Source
///
/// `mm/memcontrol.c` (`try_charge`), `mm/page_counter.c`. Linux charges single objects, by stocks
/// of each CPU, because its caches are common to all groups.
#[derive(Clone)]
pub struct Account {
    state: Shared<AccountState>,
}

/// The numbers of an account, on a line of their own.
#[repr(align(64))]
pub(crate) struct AccountState {
    used: AtomicUsize,
    limit: AtomicUsize,
    refusals: AtomicU64,
}

impl Account {
    /// Returns an account without charges. `None` for no limit: it then only counts.
    ///
    /// # Errors
    /// [`AllocError`]
    pub fn new(limit: Option<usize>) -> Result<Self, AllocError> {
        let state = AccountState {
            used: AtomicUsize::new(0),
            limit: AtomicUsize::new(limit.unwrap_or(NO_LIMIT)),
            refusals: AtomicU64::new(0),
        };
        Ok(Self { state: Shared::new(state)? })
    }

    /// Returns the bytes that are charged now.
    pub fn used(&self) -> usize {
        // Relaxed: a number on its own, so below.
        self.state.used.load(Ordering::Relaxed)
    }

    /// Returns the limit in bytes, or `None` if there is none.
    pub fn limit(&self) -> Option<usize> {
        Some(self.state.limit.load(Ordering::Relaxed)).filter(|limit| *limit != NO_LIMIT)
    }

    /// Sets the limit. Memory that is charged stays, also if it is more; until it is less, further
    /// slabs are refused.
    pub fn set_limit(&self, limit: Option<usize>) {
        self.state.limit.store(limit.unwrap_or(NO_LIMIT), Ordering::Relaxed);
    }

    /// Returns how many slabs were refused because of the limit.
    pub fn refusals(&self) -> u64 {
        self.state.refusals.load(Ordering::Relaxed)
    }

    pub(crate) fn state(&self) -> &Shared<AccountState> {
        &self.state
    }

    /// Returns another owner of the account with this state.
    ///
    /// # Safety
    /// The state is an account's that has an owner.
    pub(crate) unsafe fn of(state: &AccountState) -> Self {
        // SAFETY: passed on.
        Self { state: unsafe { Counted::again(state) } }
    }

    /// Charges so many bytes.
    ///
    /// # Errors
    /// [`AllocError`] if that would exceed the limit; nothing is charged.
    pub(crate) fn charge(&self, bytes: usize) -> Result<(), AllocError> {
        let limit = self.state.limit.load(Ordering::Relaxed);
        let within = |used: usize| used.checked_add(bytes).filter(|used| *used <= limit);
        match self.state.used.fetch_update(Ordering::Relaxed, Ordering::Relaxed, within) {
            Ok(_) => Ok(()),
            Err(_) => {
                self.state.refusals.fetch_add(1, Ordering::Relaxed);
                Err(AllocError)
            }
        }
    }

    /// Returns whether so many bytes could be charged now.
    pub(crate) fn has_room(&self, bytes: usize) -> bool {
        let limit = self.state.limit.load(Ordering::Relaxed);
        self.used().checked_add(bytes).is_some_and(|used| used <= limit)
    }

    /// Takes back a charge of so many bytes.
    pub(crate) fn uncharge(&self, bytes: usize) {
        let before = self.state.used.fetch_sub(bytes, Ordering::Relaxed);
        debug_assert!(before >= bytes, "less was charged");
    }
}

impl fmt::Debug for Account {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Account")
            .field("used", &self.used())
            .field("limit", &self.limit())
            .field("refusals", &self.refusals())
            .finish()
    }
}
