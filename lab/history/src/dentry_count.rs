//! References to dentries (`fs/dcache.c` of 3.10-rc1, and the cmpxchg patch of 2013).
//!
//! In 3.10 `d_count` is a plain word under the dentry's `d_lock`: whoever wants a reference to a directory that all
//! CPUs use waits for its ticket. On 80 cores 79 % of the AIM7 short mix were spent waiting there, half of it in
//! `dget_parent()` and half in `dput()`.
//!
//! The patch tries a compare-exchange on the count first, twice, and takes the lock only if that fails or the count is
//! low: a get goes without the lock only above 1, a put only above 2, so that whatever happens at 1 and at 0 happens
//! under the lock. Where the lock is held the count is changed by an atomic addition all the same, because others
//! change it without the lock.
//!
//! The patch also lost something. `dget_parent()` of 3.10 looks again, under the parent's lock, whether the dentry is
//! still a child of it; the patched one does not, on either of its ways. Between its look at `d_parent` and its
//! reference the dentry can be moved away. If the old parent is alive, it returns a reference to it all the same. If it
//! has been removed, `BUG_ON` stops the kernel. `Forest::dget_parent` counts these cases instead.
//!
//! A forest of dentries that never go away stands for the dcache here, so that even a dead one can be looked at.

use crossbeam_utils::CachePadded;
use quietline_platform::{AllocError, heap, hint};

use crate::atomic::{AtomicU32, AtomicU64, Ordering};
use crate::ticket::TicketLock;

/// Which kernel's way of counting.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum CountWay {
    /// 3.10: under `d_lock`.
    DLock,
    /// The patch of 2013: by compare-exchange, if the count is high enough.
    Cmpxchg,
}

/// Tries of a compare-exchange before the lock is taken.
const TRIES: usize = 2;
/// The lowest count that a get may raise without the lock is one above this.
const GET_ABOVE: u32 = 1;
/// The lowest count that a put may lower without the lock is one above this.
const PUT_ABOVE: u32 = 2;

const HASHED: u32 = 1;
const KILLED: u32 = 2;
/// Kept though unused (`DCACHE_REFERENCED`, and on the LRU list).
const UNUSED: u32 = 4;

/// The part of `struct dentry` that a reference writes, and its parent.
struct Dentry {
    d_lock: TicketLock,
    d_count: AtomicU32,
    d_flags: AtomicU32,
    d_parent: AtomicU32,
}

/// Dentries that refer to their parents, counted in one of the two ways.
///
/// Each has a line to itself; a child holds one reference to its parent, as in the kernel.
pub struct Forest {
    way: CountWay,
    dentries: Box<[CachePadded<Dentry>]>,
    /// Taken by [`d_move`](Self::d_move) (`rename_lock`, without its sequence count).
    rename_lock: TicketLock,
    dead_parents: AtomicU64,
}

impl core::fmt::Debug for Forest {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Forest")
            .field("way", &self.way)
            .field("dentries", &self.dentries.len())
            .finish()
    }
}

/// What became of a dentry whose reference was put.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Put {
    /// Somebody else still has one.
    Used,
    /// It was the last; the dentry is hashed, and stays for the next lookup.
    Kept,
    /// It was the last, and the dentry was unhashed: it is dead.
    Killed,
}

impl Forest {
    /// `count` dentries without parents (each its own), hashed, with one reference each, which is the caller's.
    ///
    /// # Errors
    /// [`AllocError`].
    pub fn new(way: CountWay, count: u32) -> Result<Self, AllocError> {
        let dentry = |i: usize| {
            CachePadded::new(Dentry {
                d_lock: TicketLock::new(),
                d_count: AtomicU32::new(1),
                d_flags: AtomicU32::new(HASHED),
                d_parent: AtomicU32::new(i as u32),
            })
        };
        let dentries = heap::try_boxed_slice(count as usize, dentry)?;
        for _dentry in &dentries {
            quietline_platform::name_words!(**_dentry => "dentry" { d_lock, d_count, d_flags, d_parent });
        }
        Ok(Self { way, dentries, rename_lock: TicketLock::new(), dead_parents: AtomicU64::new(0) })
    }

    fn at(&self, dentry: u32) -> &Dentry {
        &self.dentries[dentry as usize]
    }

    /// References to a dentry.
    pub fn count(&self, dentry: u32) -> u32 {
        // Relaxed: a statistic.
        self.at(dentry).d_count.load(Ordering::Relaxed)
    }

    /// Whether a dentry was killed.
    pub fn is_dead(&self, dentry: u32) -> bool {
        // Relaxed: a statistic.
        self.at(dentry).d_flags.load(Ordering::Relaxed) & KILLED != 0
    }

    /// Times that [`dget_parent`](Self::dget_parent) met a parent that was dead, where the kernel
    /// stops (`BUG_ON`).
    pub fn dead_parents(&self) -> u64 {
        // Relaxed: a statistic.
        self.dead_parents.load(Ordering::Relaxed)
    }

    /// Takes a reference to a dentry of which the caller has one already (`dget`).
    ///
    /// Writes the dentry's line: one locked instruction and a store with [`CountWay::DLock`] (the ticket's two halves and
    /// the count), one with [`CountWay::Cmpxchg`] if the count is above 1 and nobody else changes it.
    #[inline]
    pub fn dget(&self, dentry: u32) {
        let d = self.at(dentry);
        if self.way == CountWay::Cmpxchg && change_above(&d.d_count, GET_ABOVE, 1) {
            return;
        }
        let _lock = d.d_lock.lock();
        self.inc(d);
    }

    /// Puts a reference (`dput`). Writes the dentry's line, as [`dget`](Self::dget) does, but that the patch needs a count
    /// above 2.
    #[inline]
    pub fn dput(&self, dentry: u32) -> Put {
        let d = self.at(dentry);
        if self.way == CountWay::Cmpxchg && change_above(&d.d_count, PUT_ABOVE, u32::MAX) {
            return Put::Used;
        }
        let _lock = d.d_lock.lock();
        // Relaxed: under the lock, or (patched) only raised by others from 2 on.
        let count = d.d_count.load(Ordering::Relaxed);
        debug_assert!(count != 0, "a reference that nobody had");
        if count > 1 {
            self.dec(d);
            return Put::Used;
        }
        // Relaxed: flags change under the lock.
        let flags = d.d_flags.load(Ordering::Relaxed);
        let (set, put) =
            if flags & HASHED == 0 { (KILLED, Put::Killed) } else { (UNUSED, Put::Kept) };
        d.d_flags.store(flags | set, Ordering::Relaxed);
        self.dec(d);
        put
    }

    /// Takes a reference to a dentry's parent (`dget_parent`), which needs no reference to the dentry's parent and none to
    /// be held meanwhile.
    ///
    /// With [`CountWay::DLock`] the result was the parent when the reference was taken, hence alive. With
    /// [`CountWay::Cmpxchg`] it was the parent a moment before, and may be dead: see [`dead_parents`](Self::dead_parents).
    #[inline]
    pub fn dget_parent(&self, dentry: u32) -> u32 {
        self.dget_parent_with(dentry, || ())
    }

    /// [`dget_parent`](Self::dget_parent), with something that happens between the look at the parent and the reference: for
    /// tests.
    #[inline]
    pub fn dget_parent_with(&self, dentry: u32, mut between: impl FnMut()) -> u32 {
        loop {
            // ORDERING: pairs with the release in `d_move`: the parent has its child's reference.
            let parent = self.at(dentry).d_parent.load(Ordering::Acquire);
            let p = self.at(parent);
            between();
            if self.way == CountWay::Cmpxchg && change_above(&p.d_count, GET_ABOVE, 1) {
                return parent;
            }
            let _lock = p.d_lock.lock();
            // Relaxed: `d_move` changes it under this lock, or it is another parent's by now.
            if self.way == CountWay::DLock
                && self.at(dentry).d_parent.load(Ordering::Relaxed) != parent
            {
                continue;
            }
            // Relaxed: under the lock.
            if p.d_flags.load(Ordering::Relaxed) & KILLED != 0 {
                // Relaxed: a statistic.
                self.dead_parents.fetch_add(1, Ordering::Relaxed);
            }
            self.inc(p);
            return parent;
        }
    }

    /// Makes `dentry` a child of `parent` (`d_move`), of which the caller has a reference, and puts its reference to the
    /// old parent.
    pub fn d_move(&self, dentry: u32, parent: u32) {
        let old = {
            let _rename = self.rename_lock.lock();
            // Relaxed: changed under the rename lock only.
            let old = self.at(dentry).d_parent.load(Ordering::Relaxed);
            if old == parent {
                return;
            }
            self.dget(parent);
            let _old = self.at(old).d_lock.lock();
            // ORDERING: pairs with the acquire in `dget_parent`.
            self.at(dentry).d_parent.store(parent, Ordering::Release);
            old
        };
        // Who is its own parent holds no reference to it.
        if old != dentry {
            self.dput(old);
        }
    }

    /// Takes a dentry out of the hash (`d_drop`): the last put will kill it.
    pub fn d_drop(&self, dentry: u32) {
        let d = self.at(dentry);
        let _lock = d.d_lock.lock();
        // Relaxed: flags change under the lock.
        let flags = d.d_flags.load(Ordering::Relaxed);
        d.d_flags.store(flags & !HASHED, Ordering::Relaxed);
    }

    /// Gives a dead dentry another life, with one reference, which is the caller's. (An addition, because one that
    /// [`dget_parent`](Self::dget_parent) should not have taken may still be there.)
    pub fn revive(&self, dentry: u32) {
        let d = self.at(dentry);
        let _lock = d.d_lock.lock();
        // Relaxed: under the lock.
        d.d_flags.store(HASHED, Ordering::Relaxed);
        d.d_count.fetch_add(1, Ordering::Relaxed);
    }

    /// One more, under the lock (`dcount_inc`).
    #[inline]
    fn inc(&self, d: &Dentry) {
        // Relaxed throughout: a reference is taken from one that is held, or under the lock.
        match self.way {
            CountWay::DLock => {
                d.d_count.store(d.d_count.load(Ordering::Relaxed) + 1, Ordering::Relaxed)
            }
            CountWay::Cmpxchg => {
                d.d_count.fetch_add(1, Ordering::Relaxed);
            }
        }
    }

    /// One less, under the lock (`dcount_dec`).
    #[inline]
    fn dec(&self, d: &Dentry) {
        // ORDERING: release in both: what was done under this reference comes before its end.
        match self.way {
            CountWay::DLock => {
                d.d_count.store(d.d_count.load(Ordering::Relaxed) - 1, Ordering::Release)
            }
            CountWay::Cmpxchg => {
                d.d_count.fetch_sub(1, Ordering::Release);
            }
        }
    }
}

/// Adds `change` to a count that is above `floor`, without the lock (`dcount_inc_cmpxchg`, `dcount_dec_cmpxchg`); false
/// after two tries, or if the count is too low.
#[inline]
fn change_above(count: &AtomicU32, floor: u32, change: u32) -> bool {
    for _ in 0..TRIES {
        // Relaxed: confirmed by the compare-exchange.
        let seen = count.load(Ordering::Relaxed);
        if seen <= floor {
            return false;
        }
        // ORDERING: release, as in `dec`; a get needs nothing. Relaxed on failure: the value is not used.
        if count
            .compare_exchange_weak(
                seen,
                seen.wrapping_add(change),
                Ordering::Release,
                Ordering::Relaxed,
            )
            .is_ok()
        {
            return true;
        }
        hint::spin_loop();
    }
    false
}
