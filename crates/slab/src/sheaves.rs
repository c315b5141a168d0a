//! Each CPU's sheaves, and how another CPU takes them away.
//!
//! ```text
//!   owner, on its CPU                              another CPU, under the handshake lock
//!   pop, push        one sequence on MAIN          guard := 1
//!   push_rcu         one sequence on RCU           fence: nobody swaps any more, though all still push and pop
//!   install          MAIN, if it is full or empty  read the words, or swap them for stubs
//!   install_rcu      RCU, if it is full            guard := 0, or what it shall rest at
//!   take/put spare   SPARE                         fence: nobody pushes to or pops from what was taken
//!   take/put home    HOME
//!
//!   refused fence                                  guard := what it rests at; what was unlinked
//!   stays unfenced
//!        \__ refused while the guard is up
//! ```
//!
//! An operation that is refused does without: the owner uses the barn, or slabs. Nobody ever waits for the guard. A
//! cache that shall have no sheaves leaves it up.

use super::stats;
use core::mem::ManuallyDrop;
use core::ptr::NonNull;
use quietline_platform::atomic::{AtomicU64, Ordering};
#[cfg(doc)]
use quietline_platform::percpu;
#[cfg(not(loom))]
use quietline_platform::percpu::WordsCell;
use quietline_platform::percpu::{Chain, OwnedSheaf, Sheaf, Words};
use quietline_platform::{AllocError, FenceError};
use quietline_sync::SpinLock;

/// The sheaf that serves; the stub before there is one.
const MAIN: usize = 0;
/// The sheaf in reserve; 0 for none.
const SPARE: usize = 1;
/// The sheaf that collects objects to be freed after a grace period; the stub before there is one.
const RCU: usize = 2;
/// The [`Homecomers`], as a word.
const HOME: usize = 3;
/// Words before the statistics.
const BEFORE_STATS: usize = 4;

const WORDS: usize = BEFORE_STATS + stats::WORDS;

#[derive(Debug)]
pub(crate) struct Sheaves {
    words: Words<WORDS>,
    /// While it is not 0, no CPU swaps its sheaves. Beside the words' address, which the operations
    /// that read it read too.
    guard: AtomicU64,
}

/// A cache's statistics: a word of each for each CPU.
#[cfg(not(loom))]
#[derive(Debug)]
pub(crate) struct Counters(ManuallyDrop<Words<WORDS>>);

#[cfg(not(loom))]
impl Counters {
    /// Adds one to the CPU's word of a statistic.
    pub(crate) fn add(&self, statistic: usize) {
        self.0.add(BEFORE_STATS + statistic, 1);
    }

    /// A statistic, over all CPUs.
    pub(crate) fn sum(&self, statistic: usize) -> u64 {
        self.0.sum(BEFORE_STATS + statistic)
    }
}

/// A pointer to sheaves of another owner that is set once.
#[cfg(not(loom))]
#[derive(Debug)]
pub(crate) struct SheavesCell(WordsCell<WORDS>);

#[cfg(not(loom))]
impl SheavesCell {
    pub(crate) const fn new() -> Self {
        Self(WordsCell::new())
    }

    /// Sets the pointer, unless it is set.
    ///
    /// # Safety
    /// The sheaves outlive the cell; all callers name the same.
    pub(crate) unsafe fn set(&self, sheaves: &Sheaves) {
        // SAFETY: by contract.
        unsafe { self.0.set(&sheaves.words) };
    }

    /// Another handle on the sheaves for a fast path, as from [`Sheaves::alias`]: see
    /// [`WordsCell::ready`].
    ///
    /// # Safety
    /// It is not used after the sheaves are dropped.
    #[inline(always)]
    pub(crate) unsafe fn ready(&self) -> Option<ManuallyDrop<Sheaves>> {
        // SAFETY: passed on.
        let words = unsafe { self.0.ready()?.alias() };
        let words = ManuallyDrop::into_inner(words);
        Some(ManuallyDrop::new(Sheaves { words, guard: AtomicU64::new(1) }))
    }
}

/// One thread at a time raises the guard.
pub(crate) type Handshake = SpinLock<GuardState>;

/// The state of the guard, and the sheaves between the two fences of taking them.
#[derive(Debug)]
pub(crate) struct GuardState {
    /// The value that the guard has while no thread raises it: not 0 in a cache without sheaves.
    rest: u64,
    /// Sheaves that were unlinked from their CPUs, and that operations in flight may still use,
    /// because the kernel has refused the fence since. The next fence that succeeds ends that, or
    /// the end of the cache.
    unfenced: Taken,
}

impl GuardState {
    /// The state in a cache whose CPUs may have sheaves, or may have none.
    pub(crate) fn new(sheaves: bool) -> Self {
        Self { rest: u64::from(!sheaves), unfenced: Taken::default() }
    }
}

/// Sheaves that were taken from all CPUs, and that nobody else uses any more: those with objects to hand out, and those
/// with objects that wait for a grace period.
#[derive(Debug, Default)]
pub(crate) struct Taken {
    ready: Chain,
    rcu: Chain,
}

impl Taken {
    /// Gives each of the second kind to `rcu`, and then each of the first to `ready`.
    pub(crate) fn each(self, ready: impl FnMut(OwnedSheaf), rcu: impl FnMut(OwnedSheaf)) {
        // SAFETY: the thread that made this has fenced since, or no other thread could use these
        // sheaves.
        unsafe {
            self.rcu.for_each(rcu);
            self.ready.for_each(ready);
        }
    }
}

/// Sheaves whose objects were freed on a CPU and have come back there from their grace period, linked through themselves: the
/// CPU allocates from them again, and the objects' lines stay with it. The word is the top one's address and, in the bits that
/// an address of a sheaf has as zeros, how many there are.
#[derive(Debug)]
struct Homecomers(usize);

impl Homecomers {
    /// As many as the count can tell.
    const MOST: usize = OwnedSheaf::ALIGN - 1;

    fn len(&self) -> usize {
        self.0 % OwnedSheaf::ALIGN
    }

    fn top(&self) -> Option<NonNull<Sheaf>> {
        NonNull::new((self.0 - self.len()) as *mut Sheaf)
    }

    fn push(&mut self, mut sheaf: OwnedSheaf) {
        debug_assert!(self.len() < Self::MOST, "callers know a limit");
        sheaf.set_link(self.0);
        self.0 = sheaf.into_raw().as_ptr() as usize + (self.len() + 1);
    }

    fn pop(&mut self) -> Option<OwnedSheaf> {
        // SAFETY: whoever has the word owns the sheaves.
        let sheaf = unsafe { OwnedSheaf::from_raw(self.top()?) };
        self.0 = sheaf.link();
        Some(sheaf)
    }

    fn each(mut self, f: impl FnMut(OwnedSheaf)) {
        core::iter::from_fn(|| self.pop()).for_each(f);
    }
}

impl Sheaves {
    /// No sheaves yet; or ever, unless they are [allowed](Self::allow).
    pub(crate) fn new(allowed: bool) -> Result<Self, AllocError> {
        let mut initial = [0; WORDS];
        initial[MAIN] = stub();
        initial[RCU] = stub();
        let guard = AtomicU64::new(GuardState::new(allowed).rest);
        Ok(Self { words: Words::with_initial(initial)?, guard })
    }

    /// Another handle: see [`Words::alias`]. It does not swap sheaves: its own guard is up.
    ///
    /// # Safety
    /// It is not used after these are dropped.
    #[cfg(not(loom))]
    pub(crate) unsafe fn alias(&self) -> ManuallyDrop<Self> {
        // SAFETY: passed on.
        let words = unsafe { self.words.alias() };
        let words = ManuallyDrop::into_inner(words);
        ManuallyDrop::new(Self { words, guard: AtomicU64::new(1) })
    }

    /// The counters beside the sheaves.
    ///
    /// # Safety
    /// They are not used after these are dropped.
    #[cfg(not(loom))]
    pub(crate) unsafe fn counters(&self) -> Counters {
        // SAFETY: passed on.
        Counters(unsafe { self.words.alias() })
    }

    /// Where the words lie; MAIN is the first.
    #[cfg(not(loom))]
    pub(crate) fn base(&self) -> NonNull<AtomicU64> {
        self.words.base()
    }

    /// An object of the CPU's main sheaf; 0 if it is empty.
    #[inline(always)]
    pub(crate) fn pop(&self) -> usize {
        // SAFETY: MAIN points to a sheaf, which outlives operations in flight: sheaves leave it only by
        // `sheaf_replace`, which cannot happen during an operation on the CPU, or by `take_all`, which fences before
        // it gives them on.
        unsafe { self.words.sheaf_pop(MAIN) }
    }

    /// As [`pop`](Self::pop); 0 also [in the fallback](percpu::is_fallback), in which the caller's
    /// slow path pops.
    #[inline(always)]
    pub(crate) fn pop_restartable(&self) -> usize {
        // SAFETY: as in `pop`.
        unsafe { self.words.sheaf_pop_restartable(MAIN) }
    }

    /// As [`push`](Self::push), but also returns `false` [in the fallback](percpu::is_fallback),
    /// where the caller's slow path pushes.
    #[inline(always)]
    pub(crate) fn push_restartable(&self, object: usize) -> bool {
        // SAFETY: as in `pop`.
        unsafe { self.words.sheaf_push_restartable(MAIN, object) }
    }

    /// Adds an object to the CPU's main sheaf; false if it is full.
    #[inline(always)]
    pub(crate) fn push(&self, object: usize) -> bool {
        // SAFETY: as in `pop`.
        unsafe { self.words.sheaf_push(MAIN, object) }
    }

    /// Adds an object to the sheaf of the CPU that waits for a grace period; false if it is full.
    #[inline(always)]
    pub(crate) fn push_rcu(&self, object: usize) -> bool {
        // SAFETY: as in `pop`, of RCU.
        unsafe { self.words.sheaf_push(RCU, object) }
    }

    /// Up to `n` objects of the CPU's main sheaf, to `dst`; how many.
    ///
    /// # Safety
    /// `dst` is valid for writing `n` objects.
    #[inline(always)]
    pub(crate) unsafe fn pop_many(&self, dst: *mut usize, n: usize) -> usize {
        // SAFETY: by contract, and as in `pop`.
        unsafe { self.words.sheaf_pop_many(MAIN, dst, n) }
    }

    /// Adds the first of `n` objects at `src` to the CPU's main sheaf, as many as fit; how many. None if one of those is
    /// null. (No object has an address that is zero in its lower half: its slab's header comes first in the block.)
    ///
    /// # Safety
    /// `src` is valid for reading `n` objects.
    #[inline(always)]
    pub(crate) unsafe fn push_many(&self, src: *const usize, n: usize) -> Option<usize> {
        // SAFETY: by contract, and as in `pop`.
        unsafe { self.words.sheaf_push_many(MAIN, src, n) }
    }

    /// Makes a sheaf the CPU's main one, in place of one that is full or empty, as the caller found it. What is left
    /// over: the old one if there was one, or the sheaf itself if the CPU has another one by now.
    pub(crate) fn install(&self, sheaf: OwnedSheaf, full: bool) -> Option<OwnedSheaf> {
        self.replace(MAIN, sheaf, full)
    }

    /// Makes an empty sheaf, with one object or more in it, the one that collects for a grace period, in place of one that is
    /// full. What is left over: the full one, or the sheaf itself if the CPU has another one by now.
    pub(crate) fn install_rcu(&self, sheaf: OwnedSheaf) -> Option<OwnedSheaf> {
        self.replace(RCU, sheaf, true)
    }

    fn replace(&self, index: usize, sheaf: OwnedSheaf, full: bool) -> Option<OwnedSheaf> {
        let raw = sheaf.into_raw();
        // SAFETY: as in `pop`.
        let over =
            unsafe { self.words.sheaf_replace(index, &self.guard, raw, full) }.unwrap_or(raw);
        // SAFETY: swapped out by us, or never given away; so ours alone, unless it is the stub, which is nobody's.
        unsafe { (!over.as_ref().is_stub()).then(|| OwnedSheaf::from_raw(over)) }
    }

    /// Takes the CPU's spare sheaf.
    pub(crate) fn take_spare(&self) -> Option<OwnedSheaf> {
        let raw = self.words.swap_unless(SPARE, &self.guard, 0)?;
        // SAFETY: whoever swaps a sheaf out owns it.
        NonNull::new(raw as *mut Sheaf).map(|raw| unsafe { OwnedSheaf::from_raw(raw) })
    }

    /// Puts a sheaf in the CPU's spare place. What is left over: the one that was there, or the sheaf itself.
    pub(crate) fn put_spare(&self, sheaf: OwnedSheaf) -> Option<OwnedSheaf> {
        let raw = sheaf.into_raw();
        let over = match self.words.swap_unless(SPARE, &self.guard, raw.as_ptr() as u64) {
            Some(other) => NonNull::new(other as *mut Sheaf)?,
            None => raw,
        };
        // SAFETY: swapped out by us, or never given away.
        Some(unsafe { OwnedSheaf::from_raw(over) })
    }

    /// Takes a sheaf that came home to the CPU. What is left over, if the caller is on another CPU by now, goes to `over`.
    pub(crate) fn take_home(&self, over: impl FnMut(OwnedSheaf)) -> Option<OwnedSheaf> {
        let mut all = Homecomers(self.words.swap_unless(HOME, &self.guard, 0)? as usize);
        let sheaf = all.pop()?;
        if all.0 != 0 {
            self.replace_home(all).each(over);
        }
        Some(sheaf)
    }

    /// A sheaf comes home to the CPU, which keeps `limit` of them. What is left over goes to `over`.
    pub(crate) fn put_home(
        &self,
        sheaf: OwnedSheaf,
        limit: usize,
        mut over: impl FnMut(OwnedSheaf),
    ) {
        let Some(word) = self.words.swap_unless(HOME, &self.guard, 0) else { return over(sheaf) };
        let mut all = Homecomers(word as usize);
        let left = if all.len() < limit.min(Homecomers::MOST) {
            all.push(sheaf);
            None
        } else {
            Some(sheaf)
        };
        // First all back, so that others find them: `over` may take its time.
        self.replace_home(all).each(&mut over);
        left.into_iter().for_each(over);
    }

    /// Those that are left over: `all`, or whoever has come meanwhile.
    fn replace_home(&self, all: Homecomers) -> Homecomers {
        self.words
            .swap_unless(HOME, &self.guard, all.0 as u64)
            .map_or(all, |other| Homecomers(other as usize))
    }

    /// Objects in all CPUs' sheaves: those to hand out, and those that wait for a grace period to begin.
    ///
    /// # Errors
    /// [`FenceError`].
    pub(crate) fn content(&self, handshake: &Handshake) -> Result<(usize, usize), FenceError> {
        self.words.hold_still(&self.guard, &mut handshake.lock().rest, |_| {
            let mut content = (0, 0);
            self.each(|index, sheaf| {
                *(if index == RCU { &mut content.1 } else { &mut content.0 }) += sheaf.len()
            });
            content
        })
    }

    /// Calls `f` with each sheaf and the number of its word, while nobody swaps sheaves.
    fn each(&self, mut f: impl FnMut(usize, &Sheaf)) {
        for cpu in 0..self.words.cpus() {
            for index in [MAIN, SPARE, RCU] {
                let word = self.words.load(cpu, index);
                if let Some(sheaf) = NonNull::new(word as *mut Sheaf) {
                    // SAFETY: a sheaf behind a word lives until it is swapped out, and nobody swaps now.
                    f(index, unsafe { sheaf.as_ref() });
                }
            }
            let mut next = Homecomers(self.words.load(cpu, HOME) as usize);
            while let Some(top) = next.top() {
                // SAFETY: as above.
                let sheaf = ManuallyDrop::new(unsafe { OwnedSheaf::from_raw(top) });
                f(HOME, &sheaf);
                next = Homecomers(sheaf.link());
            }
        }
    }

    /// Takes every CPU's sheaves away. Allocates nothing.
    ///
    /// # Errors
    /// [`FenceError`]; nothing is taken. Sheaves may have been unlinked already: the next call
    /// returns them.
    pub(crate) fn take_all(&self, handshake: &Handshake) -> Result<Taken, FenceError> {
        let GuardState { rest, unfenced } = &mut *handshake.lock();
        self.words.hold_still(&self.guard, rest, |_| self.unlink_all(unfenced))?;
        // After this, nobody pushes to or pops from those that were taken.
        self.words.fence()?;
        Ok(core::mem::take(unfenced))
    }

    /// [`take_all`](Self::take_all), and refuses new sheaves from now on.
    ///
    /// # Errors
    /// As [`take_all`](Self::take_all); CPUs may go on having sheaves.
    pub(crate) fn forbid(&self, handshake: &Handshake) -> Result<Taken, FenceError> {
        let GuardState { rest, unfenced } = &mut *handshake.lock();
        self.words.hold_still(&self.guard, rest, |rest| {
            self.unlink_all(unfenced);
            *rest = 1;
        })?;
        if let Err(refused) = self.words.fence() {
            self.lower(rest);
            return Err(refused);
        }
        Ok(core::mem::take(unfenced))
    }

    /// Lets CPUs have sheaves again. Needs no fence: while the guard was up, no sheaf came to a
    /// CPU.
    pub(crate) fn allow(&self, handshake: &Handshake) {
        self.lower(&mut handshake.lock().rest);
    }

    fn lower(&self, rest: &mut u64) {
        *rest = 0;
        // ORDERING: as in `Words::hold_still`: an operation that finds zero again finds the words
        // as they were left.
        self.guard.store(0, Ordering::Release);
    }

    /// [`take_all`](Self::take_all) for the only owner.
    ///
    /// # Safety
    /// No other thread allocates from the cache or frees to it.
    #[cfg(not(loom))]
    pub(crate) unsafe fn take_all_alone(&self, handshake: &Handshake) -> Taken {
        // Under the lock, as `take_all`: a thread that looks at the content holds it.
        let mut state = handshake.lock();
        self.unlink_all(&mut state.unfenced);
        core::mem::take(&mut state.unfenced)
    }

    /// Takes the sheaves whose objects wait for a grace period away, without a fence.
    ///
    /// # Safety
    /// No other thread frees an object of the cache by RCU, now or later.
    #[cfg(not(loom))]
    pub(crate) unsafe fn take_collected(&self, handshake: &Handshake) -> Taken {
        // Under the lock, as `take_all`.
        let unfenced = &mut handshake.lock().unfenced;
        // SAFETY: the words point to sheaves or stubs. Without the lock, only frees by RCU use this
        // word and the sheaves behind it, and by contract there is none any more.
        unsafe { self.words.unlink_sheaves(RCU, stub(), &mut unfenced.rcu) };
        Taken { rcu: core::mem::take(&mut unfenced.rcu), ready: Chain::default() }
    }

    /// Calls `f` with the content of each CPU's sheaves; nobody uses the cache meanwhile.
    #[cfg(all(test, not(loom)))]
    pub(crate) fn each_content(&self, f: &mut impl FnMut(&[usize])) {
        self.each(|_, sheaf| {
            // SAFETY: a sheaf behind a word lives, and nobody uses it now.
            let sheaf = unsafe { OwnedSheaf::from_raw(NonNull::from(sheaf)) };
            f(ManuallyDrop::new(sheaf).values());
        });
    }

    /// Swaps all sheaves out, and adds them to `taken`.
    fn unlink_all(&self, taken: &mut Taken) {
        // SAFETY: the words point to sheaves or stubs, SPARE perhaps to nothing; callers hold the guard, or are alone.
        unsafe {
            self.words.unlink_sheaves(MAIN, stub(), &mut taken.ready);
            self.words.unlink_sheaves(SPARE, 0, &mut taken.ready);
            self.words.unlink_sheaves(RCU, stub(), &mut taken.rcu);
        }
        self.words.swap_all(HOME, 0, |all| {
            // SAFETY: swapped out here.
            let add = |sheaf: OwnedSheaf| unsafe { taken.ready.add(sheaf.into_raw().as_ptr()) };
            Homecomers(all as usize).each(add);
        });
    }
}

fn stub() -> u64 {
    Sheaf::stub().as_ptr() as u64
}
