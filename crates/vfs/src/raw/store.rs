//! Stores of free descriptor numbers, one for each CPU.
//!
//! A store is a sheaf of numbers, taken and given back by restartable sequences. What is in a store is marked as
//! taken in its table's bitmap, so that the lowest-number rule does not hand it out.

use quietline_platform::atomic::AtomicU64;
use quietline_platform::percpu::{Chain, LazyWords, OwnedSheaf, Sheaf};
use quietline_platform::{FenceError, cpu};
use quietline_sync::SpinLock;

const STACK: usize = 0;

/// Numbers that a store holds at most.
const CAPACITY: usize = 256;

/// The stores of a table. A number is kept as itself plus one, because a sheaf's values are not zero.
#[derive(Debug)]
pub(crate) struct Store {
    /// Made for the first store.
    words: LazyWords<1>,
    /// While it is not 0, no CPU gets a store.
    guard: AtomicU64,
    /// Sheaves that were unlinked from their CPUs by a [`drain`](Self::drain) whose fence was
    /// refused, so that operations in flight may still use them.
    unfenced: SpinLock<Chain>,
}

impl Store {
    pub(crate) fn new() -> Self {
        let unfenced = SpinLock::new(Chain::default());
        Self { words: LazyWords::new(), guard: AtomicU64::new(0), unfenced }
    }

    /// A number from the CPU's store.
    #[inline(always)]
    pub(crate) fn pop(&self) -> Option<usize> {
        // SAFETY: STACK points to a sheaf or the stub; sheaves leave it by `sheaf_replace`, which cannot happen during
        // an operation on the CPU, or in `drain` with fences. So below.
        unsafe { self.words.get()?.sheaf_pop(STACK) }.checked_sub(1)
    }

    /// Gives a number to the CPU's store; false if it is full, or there is none.
    #[inline(always)]
    pub(crate) fn push(&self, fd: usize) -> bool {
        // SAFETY: as in `pop`.
        self.words.get().is_some_and(|words| unsafe { words.sheaf_push(STACK, fd + 1) })
    }

    /// As [`pop`](Self::pop), but also returns `None` [in the fallback](percpu::is_fallback), where
    /// the caller's slow path pops.
    #[inline(always)]
    pub(crate) fn pop_restartable(&self) -> Option<usize> {
        // SAFETY: as in `pop`.
        unsafe { self.words.ready()?.sheaf_pop_restartable(STACK) }.checked_sub(1)
    }

    /// As [`push`](Self::push), but also returns `false` [in the fallback](percpu::is_fallback),
    /// where the caller's slow path pushes.
    #[inline(always)]
    pub(crate) fn push_restartable(&self, fd: usize) -> bool {
        let words = self.words.ready();
        // SAFETY: as in `pop`.
        words.is_some_and(|words| unsafe { words.sheaf_push_restartable(STACK, fd + 1) })
    }

    /// Sees to it that the CPU has a store, memory permitting; whether it had none before.
    pub(crate) fn provide(&self) -> bool {
        let stub = Sheaf::stub();
        let Ok(words) = self.words.get_or_make_with([stub.as_ptr() as u64]) else { return false };
        // A hint: the thread may move to another CPU.
        if words.load(cpu::current(), STACK) != stub.as_ptr() as u64 {
            return false;
        }
        let Ok(sheaf) = OwnedSheaf::new(CAPACITY) else { return false };
        let raw = sheaf.into_raw();
        // SAFETY: as in `pop`; a sheaf that comes out, or does not go in, is ours alone, and holds nothing.
        unsafe {
            match words.sheaf_replace(STACK, &self.guard, raw, false) {
                Some(stub) if stub.as_ref().is_stub() => {}
                Some(empty) => drop(OwnedSheaf::from_raw(empty)),
                None => drop(OwnedSheaf::from_raw(raw)),
            }
        }
        true
    }

    /// Takes all numbers out of all stores, and gives each to `give`. Operations on other CPUs may go on meanwhile;
    /// the caller holds the table's lock, so drains come one at a time.
    ///
    /// # Errors
    /// [`FenceError`]; nothing was given. The next call gives all.
    pub(crate) fn drain(&self, mut give: impl FnMut(usize)) -> Result<(), FenceError> {
        let Some(words) = self.words.get() else { return Ok(()) };
        let mut unfenced = self.unfenced.lock();
        // SAFETY: STACK points to a sheaf or the stub; nobody replaces one meanwhile, and the fence ends what is in flight.
        words.hold_still(&self.guard, &mut 0, |_| unsafe {
            words.unlink_sheaves(STACK, Sheaf::stub().as_ptr() as u64, &mut unfenced);
            words.fence()?;
            core::mem::take(&mut *unfenced).for_each(|mut sheaf| {
                while let Some(value) = sheaf.pop() {
                    give(value - 1);
                }
            });
            Ok(())
        })?
    }
}

impl Drop for Store {
    fn drop(&mut self) {
        let Some(words) = self.words.get() else { return };
        let mut chain = core::mem::take(&mut *self.unfenced.lock());
        // SAFETY: nobody else has the table, and STACK points to a sheaf or the stub.
        unsafe {
            words.unlink_sheaves(STACK, Sheaf::stub().as_ptr() as u64, &mut chain);
            chain.for_each(drop);
        }
    }
}
