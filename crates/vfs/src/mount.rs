//! References to mounts.
//!
//! # The contended way
//!
//! Every open file holds a reference to its mount, so every open and close writes the mount's count: one line for all
//! the sockets of a machine (the last patch of the 2008 series, 2.20 s to 1.64 s on 8 CPUs).
//!
//! # Our way
//!
//! A mount that is wired into the kernel is immortal, so its references are not counted. An ordinary
//! mount counts gets and puts in two per-CPU words. The first few are counted in two words that all
//! CPUs share, because most mounts are hardly used. While it is mounted, no put can be the last, so no
//! thread sums. Once it is being unmounted, every put sums: *puts first, then gets*, with a barrier
//! between, so that a put is never counted without its get, and the sum is never zero by mistake while
//! a reference moves from CPU to CPU.
//!
//! ```text
//!                 begin_umount                  end_umount(true)              last put
//!   MOUNTED ────────────────────> CHECKING ────────────────────> DETACHED ────────────────> DEAD
//!      ^                              │
//!      └──────────────────────────────┘ end_umount(false): busy
//! ```
//!
//! Whoever only *saw* a mount, in a read section, takes a reference and looks at the state afterwards
//! ([`get_mounted`](Mount::get_mounted)): if the mount is still mounted, the unmounter's sum has that reference.

use quietline_platform::FenceError;
use quietline_platform::atomic::{AtomicU32, AtomicU64, Ordering};
use quietline_platform::percpu::LazyWords;

const GETS: usize = 0;
const PUTS: usize = 1;

const MOUNTED: u32 = 0;
const CHECKING: u32 = 1;
const DETACHED: u32 = 2;
const DEAD: u32 = 3;
/// The state of an internal mount, for ever.
const INTERNAL: u32 = 4;

/// References that are taken before the mount gets per-CPU words.
const FEW: u64 = if cfg!(loom) { 2 } else { 8 };

/// What became of an attempt to take a reference to a mount that was only seen.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Got {
    /// The mount was mounted: there is one more reference.
    Reference,
    /// It was being unmounted, or is: no reference.
    Nothing,
    /// As [`Nothing`](Got::Nothing); and meanwhile everybody else has put theirs, so that the caller must destroy the mount.
    LastPut,
}

/// A mounted filesystem (`struct vfsmount`).
#[derive(Debug)]
pub struct Mount {
    /// The name of the filesystem that is mounted, as `/proc/filesystems` has it.
    pub s_type: &'static str,
    /// Gets and puts of each CPU.
    words: LazyWords<2>,
    /// Gets and puts that are counted while there are no words: the first few, and all while there
    /// is no memory for words.
    shared: [AtomicU64; 2],
    state: AtomicU32,
}

impl Mount {
    fn new(s_type: &'static str, references: u64, state: u32) -> Self {
        let shared = [AtomicU64::new(references), AtomicU64::new(0)];
        Self { s_type, words: LazyWords::new(), shared, state: AtomicU32::new(state) }
    }

    /// A mount that lives as long as its kernel, and that nobody counts references to (`kern_mount`).
    pub fn internal(s_type: &'static str) -> Self {
        Self::new(s_type, 0, INTERNAL)
    }

    /// The number of an internal mount. Filesystems of anonymous descriptors share one, as they
    /// share a filesystem on Linux.
    pub fn internal_id(&self) -> u64 {
        match self.s_type {
            "sockfs" => 1,
            "pipefs" => 2,
            _ => 3,
        }
    }

    /// A mount that can be unmounted, with one reference: that of the tree it is mounted in.
    pub fn ordinary(s_type: &'static str) -> Self {
        Self::new(s_type, 1, MOUNTED)
    }

    /// A mount that is in no tree yet, with one reference: its maker's. [`end_umount`](Self::end_umount)`(false)` says that it
    /// is mounted.
    pub fn detached(s_type: &'static str) -> Self {
        Self::new(s_type, 1, DETACHED)
    }

    /// Whether references are not counted.
    pub fn is_internal(&self) -> bool {
        // Relaxed: never changed to this, or from it.
        self.state.load(Ordering::Relaxed) == INTERNAL
    }

    /// Takes a reference (`mntget`). The caller has one, or keeps the mount from being detached meanwhile: to have seen
    /// it mounted is not enough. Writes no shared line, but for the first few.
    #[inline]
    pub fn get(&self) {
        match self.words.ready() {
            Some(words) => words.add(GETS, 1),
            None => self.get_slow(),
        }
    }

    /// Counts a reference where there are no words, and makes them if there are references enough.
    #[cold]
    #[inline(never)]
    fn get_slow(&self) {
        if self.is_internal() {
            return;
        }
        if let Some(words) = self.words.get() {
            return words.add(GETS, 1);
        }
        // ORDERING: acquire pairs with the release of the addition of 0 in `sum`: if this comes
        // after it, the state that is loaded next is that of before the sum. Release pairs with
        // the acquire there: the sum that has this reference sees what came before it.
        let before = self.shared[GETS].fetch_add(1, Ordering::AcqRel);
        if before >= FEW {
            // The reference keeps the mount. Without memory, the next one tries again.
            let _ = self.words.get_or_make();
        }
    }

    /// Takes a reference to a mount that the caller has seen mounted in a read section that is still open, if it is
    /// mounted yet (`legitimize_mnt`). Writes no shared line while it is, but for the first few.
    #[inline(always)]
    pub fn get_mounted(&self) -> Got {
        self.get();
        // ORDERING: the sequence in `add` is a barrier for the compiler, which pairs with the fences of `references_held`
        // and of `is_zero`. Found mounted: the store of another state came after, so the sum that follows it has this
        // reference. Found in another state: perhaps the sum was without it, and it must not be used.
        if self.state.load(Ordering::Acquire) == MOUNTED {
            return Got::Reference;
        }
        self.get_mounted_slow()
    }

    #[cold]
    #[inline(never)]
    fn get_mounted_slow(&self) -> Got {
        if self.is_internal() {
            Got::Reference
        } else if self.put() {
            Got::LastPut
        } else {
            Got::Nothing
        }
    }

    /// Whether a mount that the caller has seen in a read section that is still open is mounted. What he has counted of himself
    /// elsewhere by a per-CPU word before this is then in the sum of whoever finds the mount without references later.
    #[inline]
    pub(crate) fn found_mounted(&self) -> bool {
        // ORDERING: as in `get_mounted`.
        matches!(self.state.load(Ordering::Acquire), MOUNTED | INTERNAL)
    }

    /// Gives a reference back (`mntput`); true if it was the last, and the caller must destroy the mount. Writes no
    /// shared line while the mount is mounted; costs two process-wide barriers when it is being unmounted.
    ///
    /// Another thread that has put its reference may still be summing: the borrow must outlast that, so whoever frees
    /// mounts one by one lets a grace period pass first.
    #[inline]
    #[must_use = "whoever puts the last reference destroys the mount"]
    pub fn put(&self) -> bool {
        match self.words.ready() {
            Some(words) => words.add(PUTS, 1),
            None => self.put_without_words(),
        }
        // ORDERING: the sequence in `add` is a barrier for the compiler, which pairs with the fence in
        // `is_zero`: either this load finds DETACHED and sums, or the unmounter's sum has this put.
        self.state.load(Ordering::Acquire) != MOUNTED && self.last_put_slow()
    }

    /// Counts a put where there are no words. Makes none: the mount may be gone once it is counted,
    /// but for the borrow.
    #[cold]
    #[inline(never)]
    fn put_without_words(&self) {
        match self.words.get() {
            _ if self.is_internal() => {}
            Some(words) => words.add(PUTS, 1),
            // ORDERING: as in `get_slow`.
            None => drop(self.shared[PUTS].fetch_add(1, Ordering::AcqRel)),
        }
    }

    /// Takes the mount out of its tree and gives the tree's reference back (`umount`); true if nobody else has one,
    /// and the caller must destroy the mount. False and nothing changed if that was done before, or if the mount is
    /// internal.
    #[must_use = "whoever puts the last reference destroys the mount"]
    pub fn detach(&self) -> bool {
        // ORDERING: pairs with the load in `put`, through the fence in `is_zero`. Acquire: of a second detacher.
        let detached =
            self.state.compare_exchange(MOUNTED, DETACHED, Ordering::AcqRel, Ordering::Acquire);
        detached.is_ok() && self.put()
    }

    /// Keeps those who only see the mount from taking references, and counts those that are held; the tree's is one of
    /// them. Whoever is not counted has none: a count that is too high is possible, while references move, one that is too
    /// low is not. None if the mount is not mounted, or is internal. Two process-wide barriers.
    ///
    /// The caller excludes other unmounters by a lock, and calls [`end_umount`](Self::end_umount) next.
    pub fn begin_umount(&self) -> Option<u64> {
        // ORDERING: pairs with the load in `get_mounted`, through the fence below. Acquire: of a former unmounter.
        let began =
            self.state.compare_exchange(MOUNTED, CHECKING, Ordering::AcqRel, Ordering::Acquire);
        // If a fence is refused, the mount is busy.
        began.is_ok().then(|| self.references_held().unwrap_or(u64::MAX))
    }

    /// Makes the mount one that its last put ends, or mounted again, if it is not to `go`. The tree's reference stays: the
    /// caller gives it back by [`put`](Self::put) when all is done.
    pub fn end_umount(&self, go: bool) {
        if !self.is_internal() {
            // ORDERING: pairs with the loads in `put` and in `get_mounted`: who finds the mount mounted again finds it as it is.
            self.state.store(if go { DETACHED } else { MOUNTED }, Ordering::Release);
        }
    }

    /// References now: exact when nobody takes or gives one meanwhile. 0 for an internal mount.
    pub fn references(&self) -> u64 {
        let puts = self.sum(PUTS);
        self.sum(GETS).wrapping_sub(puts)
    }

    #[cold]
    fn last_put_slow(&self) -> bool {
        // ORDERING: of those who find zero, one makes the mount dead; what the others did before their puts is seen.
        !self.is_internal()
            && self.is_zero()
            && self
                .state
                .compare_exchange(DETACHED, DEAD, Ordering::AcqRel, Ordering::Acquire)
                .is_ok()
    }

    /// `false` also when a fence is refused: then the mount stays, as if a reference were held for
    /// ever.
    fn is_zero(&self) -> bool {
        self.references_held() == Ok(0)
    }

    fn references_held(&self) -> Result<u64, FenceError> {
        // Everybody's puts until here are visible after this, and whoever puts later sees DETACHED.
        self.words.fence()?;
        let puts = self.sum(PUTS);
        // A put that was counted had its get before it, perhaps on another CPU: now that is visible too. A reference that
        // is held at this moment has its get in the sum below and its put not in the sum above, so it tips the scales.
        self.words.fence()?;
        Ok(self.sum(GETS).wrapping_sub(puts))
    }

    fn sum(&self, count: usize) -> u64 {
        // ORDERING: pairs with the additions in `get_slow` and `put_uncounted_slow`. An addition of 0
        // and not a load: a get or put that it does not see comes after it, and sees the state that
        // was stored before the sum.
        let shared = self.shared[count].fetch_add(0, Ordering::AcqRel);
        shared.wrapping_add(self.words.sum(count))
    }
}
