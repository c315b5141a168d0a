//! Each CPU's two sheaves, and how another CPU takes them away.
//!
//! ```text
//!   owner, on its CPU                              another CPU, under the handshake lock
//!   pop, push        one sequence on MAIN          guard := 1 on every CPU
//!   install          MAIN, if it is full or empty  fence: nobody swaps any more, though all still push and pop
//!   take/put spare   SPARE                         read the words, or swap them for stubs
//!        \__ refused while the guard is up         guard := 0
//!                                                   fence: nobody pushes to or pops from what was taken
//! ```
//!
//! An operation that is refused does without: the owner uses the barn, or slabs. Nobody ever waits for the guard.

use crate::stats;
use core::mem::ManuallyDrop;
use core::ptr::NonNull;
use quietline_platform::AllocError;
use quietline_platform::atomic::Ordering;
use quietline_platform::percpu::{OwnedSheaf, Sheaf, Words};
use quietline_sync::SpinLock;

/// The sheaf that serves; the stub before there is one.
const MAIN: usize = 0;
/// The sheaf in reserve; 0 for none.
const SPARE: usize = 1;
const GUARD: usize = 2;
/// Words before the statistics.
pub(crate) const BEFORE_STATS: usize = 3;

#[derive(Debug)]
pub(crate) struct Sheaves {
    words: Words<{ BEFORE_STATS + stats::WORDS }>,
}

/// One thread at a time raises the guards.
pub(crate) type Handshake = SpinLock<()>;

impl Sheaves {
    /// No sheaves yet.
    pub(crate) fn new() -> Result<Self, AllocError> {
        let mut words = Words::new()?;
        words.init(MAIN, Sheaf::stub().as_ptr() as u64);
        Ok(Self { words })
    }

    /// An object of the CPU's main sheaf; 0 if it is empty.
    #[inline(always)]
    pub(crate) fn pop(&self) -> usize {
        // SAFETY: MAIN points to a sheaf, which outlives operations in flight: sheaves leave it only by
        // `sheaf_replace`, which cannot happen during an operation on the CPU, or by `take_all`, which fences before
        // it gives them on.
        unsafe { self.words.sheaf_pop(MAIN) }
    }

    /// Adds an object to the CPU's main sheaf; false if it is full.
    #[inline(always)]
    pub(crate) fn push(&self, object: usize) -> bool {
        // SAFETY: as in `pop`.
        unsafe { self.words.sheaf_push(MAIN, object) }
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

    /// Adds the first of `n` objects at `src` to the CPU's main sheaf, as many as fit; how many.
    ///
    /// # Safety
    /// `src` is valid for reading `n` objects.
    #[inline(always)]
    pub(crate) unsafe fn push_many(&self, src: *const usize, n: usize) -> usize {
        // SAFETY: by contract, and as in `pop`.
        unsafe { self.words.sheaf_push_many(MAIN, src, n) }
    }

    /// Adds one to the CPU's word of a statistic.
    pub(crate) fn count(&self, statistic: usize) {
        self.words.add(BEFORE_STATS + statistic, 1);
    }

    /// A statistic, over all CPUs.
    #[cfg(not(loom))]
    pub(crate) fn counted(&self, statistic: usize) -> u64 {
        self.words.sum(BEFORE_STATS + statistic)
    }

    /// Makes a sheaf the CPU's main one, in place of one that is full or empty, as the caller found it. What is left
    /// over: the old one if there was one, or the sheaf itself if the CPU has another one by now.
    pub(crate) fn install(&self, sheaf: OwnedSheaf, full: bool) -> Option<OwnedSheaf> {
        let raw = sheaf.into_raw();
        // SAFETY: as in `pop`.
        let over = unsafe { self.words.sheaf_replace(MAIN, GUARD, raw, full) }.unwrap_or(raw);
        // SAFETY: swapped out by us, or never given away; so ours alone, unless it is the stub, which is nobody's.
        unsafe { (!over.as_ref().is_stub()).then(|| OwnedSheaf::from_raw(over)) }
    }

    /// Takes the CPU's spare sheaf.
    pub(crate) fn take_spare(&self) -> Option<OwnedSheaf> {
        let raw = self.words.swap_unless(SPARE, GUARD, 0)?;
        // SAFETY: whoever swaps a sheaf out owns it.
        NonNull::new(raw as *mut Sheaf).map(|raw| unsafe { OwnedSheaf::from_raw(raw) })
    }

    /// Puts a sheaf in the CPU's spare place. What is left over: the one that was there, or the sheaf itself.
    pub(crate) fn put_spare(&self, sheaf: OwnedSheaf) -> Option<OwnedSheaf> {
        let raw = sheaf.into_raw();
        let over = match self.words.swap_unless(SPARE, GUARD, raw.as_ptr() as u64) {
            Some(other) => NonNull::new(other as *mut Sheaf)?,
            None => raw,
        };
        // SAFETY: swapped out by us, or never given away.
        Some(unsafe { OwnedSheaf::from_raw(over) })
    }

    /// Objects in all CPUs' sheaves.
    pub(crate) fn content(&self, handshake: &Handshake) -> usize {
        let words = &self.words;
        self.hold_still(handshake, || {
            let sheaf = |cpu, index| NonNull::new(words.load(cpu, index) as *mut Sheaf);
            (0..words.cpus())
                .flat_map(|cpu| [sheaf(cpu, MAIN), sheaf(cpu, SPARE)])
                .flatten()
                // SAFETY: a sheaf behind a word lives until it is swapped out, and nobody swaps now.
                .map(|sheaf| unsafe { sheaf.as_ref() }.len())
                .sum()
        })
    }

    /// Takes every CPU's sheaves away and gives each to `f`. Allocates nothing.
    pub(crate) fn take_all(&self, handshake: &Handshake, f: impl FnMut(OwnedSheaf)) {
        let taken = self.hold_still(handshake, || self.unlink_all());
        // After this, nobody pushes to or pops from those that were taken.
        self.words.fence();
        taken.for_each(f);
    }

    /// [`take_all`](Self::take_all) for an owner that nobody else can disturb.
    #[cfg(not(loom))]
    pub(crate) fn take_all_mut(&mut self) -> Chain {
        self.unlink_all()
    }

    /// Calls `f` with the content of each CPU's sheaves; nobody uses the cache meanwhile.
    #[cfg(all(test, not(loom)))]
    pub(crate) fn each_content(&self, f: &mut impl FnMut(&[usize])) {
        for cpu in 0..self.words.cpus() {
            for index in [MAIN, SPARE] {
                if let Some(raw) = NonNull::new(self.words.load(cpu, index) as *mut Sheaf) {
                    // SAFETY: a sheaf behind a word lives, and nobody uses it now.
                    f(ManuallyDrop::new(unsafe { OwnedSheaf::from_raw(raw) }).values());
                }
            }
        }
    }

    /// Swaps all sheaves out, and chains them through their links.
    fn unlink_all(&self) -> Chain {
        let stub = Sheaf::stub().as_ptr() as u64;
        let mut chain = Chain(0);
        for cpu in 0..self.words.cpus() {
            for (index, nothing) in [(MAIN, stub), (SPARE, 0)] {
                // Relaxed: the fences before and after order it, or nobody else is there.
                let raw = self.words.word(cpu, index).swap(nothing, Ordering::Relaxed);
                let Some(raw) = NonNull::new(raw as *mut Sheaf) else { continue };
                // SAFETY: a sheaf that was behind a word lives. Operations in flight may still use its length and its
                // slots until the caller has fenced; its link belongs to whoever swapped it out.
                unsafe {
                    if !raw.as_ref().is_stub() {
                        ManuallyDrop::new(OwnedSheaf::from_raw(raw)).set_link(chain.0);
                        chain.0 = raw.as_ptr() as usize;
                    }
                }
            }
        }
        chain
    }

    /// Calls `f` while no CPU swaps its sheaves (it may still push and pop).
    fn hold_still<R>(&self, handshake: &Handshake, f: impl FnOnce() -> R) -> R {
        let words = &self.words;
        let _one = handshake.lock();
        // Relaxed: the fence orders the stores with every sequence on their CPU.
        (0..words.cpus()).for_each(|cpu| words.word(cpu, GUARD).store(1, Ordering::Relaxed));
        words.fence();
        let result = f();
        // ORDERING: pairs with the acquire of the guard inside `swap_unless` and `sheaf_replace`: who finds zero again
        // finds the words as `f` left them; who still finds one keeps off.
        (0..words.cpus()).for_each(|cpu| words.word(cpu, GUARD).store(0, Ordering::Release));
        result
    }
}

/// Sheaves that were taken away, linked through themselves.
pub(crate) struct Chain(usize);

impl Chain {
    pub(crate) fn for_each(self, mut f: impl FnMut(OwnedSheaf)) {
        let mut next = self.0;
        while let Some(raw) = NonNull::new(next as *mut Sheaf) {
            // SAFETY: chained by `unlink_all`, and no operation in flight knows it any more.
            let sheaf = unsafe { OwnedSheaf::from_raw(raw) };
            next = sheaf.link();
            f(sheaf);
        }
    }
}
