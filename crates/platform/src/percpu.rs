//! Per-CPU words, and the operations on them that need no locked instruction.
//!
//! # The problem and the contended way
//!
//! A statistic, a free list or an id counter that all CPUs share is a cache line that all CPUs want: a locked
//! instruction, and a transfer, for each operation. One copy per thread needs registration, and cleaning up
//! after threads that vanish. A plain read-modify-write on one copy per *CPU* would do, if only the thread
//! stayed on that CPU from its read to its write.
//!
//! # Our way
//!
//! A *restartable sequence* (rseq, Linux 4.18) is such a promise in reverse: the thread may be
//! preempted, migrated or hit by a signal in the middle, but then it does not go on, it starts
//! again. Each operation here reads the CPU number, works on that CPU's words, and ends in **one**
//! store, its commit. Before that store nothing has happened; after it, everything has.
//!
//! Every operation has a contract in pseudo-code, which is what happens *indivisibly on one CPU*, and three bodies:
//!
//! | body | used | how it is indivisible |
//! |---|---|---|
//! | restartable sequence | native, the default | the kernel restarts it |
//! | slots | native, where rseq or membarrier is refused, or by `QUIETLINE_PERCPU=fallback` | a lock for each CPU slot; any free slot will do, so a signal handler that interrupts a holder takes another |
//! | model | loom, and as the reference in tests | a mutex for each modelled CPU |
//! | step | sim | no other virtual CPU runs meanwhile |
//!
//! The choice is made once, when the first words are allocated. `QUIETLINE_PERCPU` may be `auto` (the default),
//! `rseq` (refuse to fall back: panic where it is missing) or `fallback`.
//!
//! The kernel must know each thread that uses restartable sequences. glibc registers every thread
//! since version 2.35. Where the C library registers none (musl, older glibc), a thread's first
//! operation registers it and its end unregisters it. Operations then pass through a function that
//! looks up the thread's registration. A thread that the kernel refuses to register (a seccomp
//! filter, an area that another library has registered) uses slots, which have words of their own
//! behind those of the CPUs.
//!
//! # Layout
//!
//! As in the kernel's per-CPU allocator: a chunk has one unit of 64 KiB for each CPU, side by side, and an
//! allocation has the same offset in every unit. A pointer to per-CPU words is the pointer to CPU 0's copy; the
//! copy of CPU n is `n << 16` bytes further. Copies of different CPUs never share a line; different words of the
//! same CPU may.
//!
//! Words in new memory have their initial content without a write, and a sweep over all CPUs that
//! finds nothing writes nothing. So a copy's memory is on the node of the CPU that first writes it.
//! CPUs that do not exist, or that the process does not use, take none. The allocating thread
//! writes copies that former words have changed, and all copies of words with other initial content
//! than zeros where the system refuses a file in memory.
//!
//! # Guarantees
//!
//! * Indivisible against threads on the same CPU, against migration and against signal handlers.
//! * No locked instruction, no fence and no system call in the restartable bodies.
//! * After [`Words::fence`] returns `Ok`, every operation that another thread had begun before has
//!   ended or will start anew. The kernel may refuse it to a thread; then nothing has changed.
//!
//! # Limits
//!
//! Other CPUs may *read* words at any time ([`Words::load`]). They may *write* only what no operation of the
//! owner can be writing: see [`Words::swap_unless`] for the handshake.

use crate::atomic::AtomicU64;
use crate::backend::percpu as body;
use crate::{AllocError, FenceError};
#[cfg(not(loom))]
use area::Area;
#[cfg(loom)]
use body::Area;
use body::{operate, operate_restartable};
use core::ptr::NonNull;

#[cfg(not(loom))]
pub(crate) mod area;
#[cfg(not(loom))]
pub(crate) mod chunk;
mod lazy;
pub(crate) mod locked;
pub mod sheaf;
#[cfg(any(loom, quietline_sim, not(any(target_arch = "x86_64", target_arch = "aarch64"))))]
pub(crate) mod step;
#[cfg(not(loom))]
mod template;

pub use body::{active, is_fallback};
#[cfg(not(loom))]
pub use chunk::allocated;
#[cfg(not(loom))]
pub use lazy::WordsCell;
pub use lazy::{LazyWords, WordsRef};
pub use sheaf::{Chain, OwnedSheaf, Sheaf};

/// The bodies that operations may have.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Body {
    /// Restartable sequences. The C library registers every thread.
    Rseq,
    /// Restartable sequences of threads that this library registers, each by its first operation.
    /// A thread that the kernel refuses uses locked sections on words of their own.
    OwnRseq,
    /// Locked sections on CPU slots; under loom and in simulations, steps.
    Fallback,
}

/// `N` 64-bit words for each CPU.
///
/// The operations without a `cpu` argument act on the words of the CPU that the caller happens to run on, and
/// write only that CPU's lines.
#[derive(Debug)]
pub struct Words<const N: usize> {
    area: Area<N>,
}

impl<const N: usize> Words<N> {
    /// Allocates the words, zeroed. O(size of a chunk's bitmap); takes the per-CPU allocator's lock.
    ///
    /// Writes no copy in new memory: a copy that is not used takes no memory, and memory that is
    /// used is first touched by its CPU. Copies of words that were given back are cleared unless
    /// they are zero.
    ///
    /// # Errors
    /// [`AllocError`] when no chunk has room and none can be mapped.
    pub fn new() -> Result<Self, AllocError> {
        Self::with_initial([0; N])
    }

    /// As [`new`](Self::new), with these values in every copy. For initial values of which a program
    /// has few: each needs chunks of its own. Writes all copies where the system refuses a file in
    /// memory.
    ///
    /// # Errors
    /// As [`new`](Self::new).
    pub fn with_initial(initial: [u64; N]) -> Result<Self, AllocError> {
        Ok(Self { area: Area::new(initial)? })
    }

    /// CPUs that have a copy.
    pub fn cpus(&self) -> usize {
        crate::cpu::nr_cpus()
    }

    /// The word of `cpu` as an atomic. Readers on other CPUs see each commit whole, in no particular order with
    /// other words. Storing to it is only safe for operations while the owner is kept out (see
    /// [`swap_unless`](Self::swap_unless)).
    ///
    /// # Panics
    /// When `cpu` or `index` is out of range.
    pub fn word(&self, cpu: usize, index: usize) -> &AtomicU64 {
        self.area.word(cpu, index)
    }

    /// Reads `cpu`'s word, relaxed.
    pub fn load(&self, cpu: usize, index: usize) -> u64 {
        // Relaxed: a statistic; callers that need order bring their own fence.
        self.area.word(cpu, index).load(crate::atomic::Ordering::Relaxed)
    }

    /// The wrapping sum of a word over all CPUs. Exact when nobody writes. O(CPUs).
    pub fn sum(&self, index: usize) -> u64 {
        (0..self.cpus()).fold(0u64, |sum, cpu| sum.wrapping_add(self.load(cpu, index)))
    }

    /// `word += value`, wrapping (`this_cpu_add`). The store is a release store.
    ///
    /// ```text
    /// w[index] := w[index] + value
    /// ```
    #[inline(always)]
    pub fn add(&self, index: usize, value: u64) {
        operate!(self.area, index, add(value))
    }

    /// Adds, if the result stays strictly between `-bound` and `bound`; false, and nothing changed, if not
    /// (`percpu_counter_add_batch`). `bound` is at least 1.
    ///
    /// ```text
    /// x := w[index] + value
    /// if not (-bound < x < bound): return false
    /// w[index] := x; return true
    /// ```
    #[inline(always)]
    pub fn add_within(&self, index: usize, value: i64, bound: i64) -> bool {
        operate!(self.area, index, add_within(value, bound))
    }

    /// As [`add_within`](Self::add_within) by the restartable body alone: false also [in the
    /// fallback](is_fallback). For callers whose slow path then asks for the whole operation, so
    /// that their fast path has one way out.
    #[inline(always)]
    pub fn add_within_restartable(&self, index: usize, value: i64, bound: i64) -> bool {
        operate_restartable!(self.area, index, add_within(value, bound), false)
    }

    /// Takes the next number of a batch, unless the batch is at its end (`get_next_ino`).
    ///
    /// ```text
    /// v := w[index]
    /// if v & mask = 0: return none
    /// w[index] := v + 1; return v
    /// ```
    #[inline(always)]
    pub fn increment_unless(&self, index: usize, mask: u64) -> Option<u64> {
        operate!(self.area, index, increment_unless(mask))
    }

    /// As [`increment_unless`](Self::increment_unless) by the restartable body alone: none also [in
    /// the fallback](is_fallback).
    #[inline(always)]
    pub fn increment_unless_restartable(&self, index: usize, mask: u64) -> Option<u64> {
        operate_restartable!(self.area, index, increment_unless(mask), None)
    }

    /// Replaces a word and returns what it held (`this_cpu_xchg`).
    ///
    /// ```text
    /// old := w[index]; w[index] := new; return old
    /// ```
    #[inline(always)]
    pub fn swap(&self, index: usize, new: u64) -> u64 {
        operate!(self.area, index, swap(new))
    }

    /// [`swap`](Self::swap), refused while the guard is not zero.
    ///
    /// Another CPU that wants to take `w[index]` away stores a non-zero guard, calls
    /// [`fence`](Self::fence), and then has `w[index]` of every CPU to itself until it stores zero
    /// again, with release order. The guard is read before the word, with acquire order: an operation
    /// that finds zero again finds the word as it was left.
    ///
    /// ```text
    /// if *guard != 0: return none
    /// old := w[index]; w[index] := new; return old
    /// ```
    #[inline(always)]
    pub fn swap_unless(&self, index: usize, guard: &AtomicU64, new: u64) -> Option<u64> {
        operate!(self.area, index, swap_unless(guard, new))
    }

    /// Adds one to the word that `selector` names, and returns its index. The selector is read, with acquire
    /// order, inside the sequence: after a store to it and a [`fence`](Self::fence),
    /// nobody adds to the old word any more.
    ///
    /// ```text
    /// i := *selector; w[i] := w[i] + 1; return i
    /// ```
    ///
    /// # Safety
    /// The selector must always hold an index below `N`.
    #[inline(always)]
    pub unsafe fn increment_selected(&self, selector: &AtomicU64) -> usize {
        operate!(self.area, 0, increment_selected(selector))
    }

    /// Pushes a node on the list whose head is the word that `selector` names. The node's first word
    /// becomes the link. The selector is read inside the sequence: after a store to it and a
    /// [`fence`](Self::fence), no thread pushes on the old list of any CPU any more, and the thread
    /// that flipped it may take those lists away.
    ///
    /// ```text
    /// i := *selector; *node := w[i]; w[i] := node
    /// ```
    ///
    /// # Safety
    /// `node` is valid for writing a word, aligned to one, and the caller's to give. The selector
    /// must always hold an index below `N`.
    #[inline(always)]
    pub unsafe fn list_push_selected(&self, selector: &AtomicU64, node: NonNull<AtomicU64>) {
        operate!(self.area, 0, list_push_selected(selector, node))
    }

    /// After it returns, every operation on these words that another thread had begun before has ended or will
    /// start anew, and sees what the caller wrote before; and the caller sees what was written before an operation
    /// that has ended. Costs microseconds (`membarrier`): slow paths only.
    ///
    /// # Errors
    /// [`FenceError`] when the kernel refuses the barrier. The caller then leaves alone what
    /// operations in flight may use, in a state from which it or another thread can go on with a
    /// later fence.
    pub fn fence(&self) -> Result<(), FenceError> {
        crate::fault::check_fence()?;
        self.area.fence()
    }

    /// Calls `f` while every operation that tests `guard` ([`swap_unless`](Self::swap_unless),
    /// [`sheaf_replace`](Self::sheaf_replace)) is refused on every CPU: the words that they change
    /// belong to `f`, while plain pushes and pops go on. Then sets the guard to `rest`, which `f` may
    /// change: 0 lets everybody in again. That also happens when the fence is refused or `f` unwinds.
    ///
    /// One caller at a time. Costs a [`fence`](Self::fence). What `f` took away may still be in use by
    /// operations in flight: fence again before it is touched.
    ///
    /// # Errors
    /// [`FenceError`] when the kernel refuses the fence; `f` was not called.
    pub fn hold_still<R>(
        &self,
        guard: &AtomicU64,
        rest: &mut u64,
        f: impl FnOnce(&mut u64) -> R,
    ) -> Result<R, FenceError> {
        let raised = RaisedGuard { guard, rest };
        // Relaxed: the fence orders the store with every sequence.
        guard.store(1, crate::atomic::Ordering::Relaxed);
        self.fence()?;
        Ok(f(&mut *raised.rest))
    }

    /// Swaps a word of every CPU for `new`, and calls `old` with each other value that it had. Copies
    /// that have that value already are not written.
    ///
    /// The caller is inside [`hold_still`](Self::hold_still) with the guard of the word, or no other
    /// thread uses this word meanwhile, on any CPU.
    pub fn swap_all(&self, index: usize, new: u64, mut old: impl FnMut(u64)) {
        for cpu in 0..self.cpus() {
            let word = self.word(cpu, index);
            // Relaxed: the fences before and after order it, or the caller is alone.
            if word.load(crate::atomic::Ordering::Relaxed) != new {
                old(word.swap(new, crate::atomic::Ordering::Relaxed));
            }
        }
    }

    /// Swaps the sheaf behind a word of every CPU for the stub or 0, and adds it to a chain.
    ///
    /// # Safety
    /// The word points to a sheaf or the stub, or is 0. The caller is inside
    /// [`hold_still`](Self::hold_still) with the guard of the word, or no other thread uses this
    /// word meanwhile, on any CPU.
    pub unsafe fn unlink_sheaves(&self, index: usize, nothing: u64, chain: &mut Chain) {
        // SAFETY: swapped out here.
        self.swap_all(index, nothing, |raw| unsafe { chain.add(raw as *mut Sheaf) });
    }

    /// Another handle on the same words, which does not free them: nearer to hand than one behind a pointer.
    ///
    /// # Safety
    /// It is not used after these words are dropped.
    #[cfg(not(loom))]
    pub unsafe fn alias(&self) -> core::mem::ManuallyDrop<Self> {
        // SAFETY: a handle is a pointer; the copy is not dropped, and by contract not used when the words are gone.
        core::mem::ManuallyDrop::new(unsafe { core::ptr::read(self) })
    }

    /// The address of CPU 0's words, for operations that are compiled elsewhere (see Layout above).
    #[cfg(not(loom))]
    pub fn base(&self) -> NonNull<AtomicU64> {
        NonNull::from(self.word(0, 0))
    }

    /// Pops a value from the sheaf that the word points to; 0 when the sheaf is empty.
    ///
    /// ```text
    /// s := w[index]
    /// if s.len = 0: return 0
    /// s.len := s.len - 1; return s.slots[s.len]
    /// ```
    ///
    /// # Safety
    /// The word points to a [`Sheaf`] (perhaps [`Sheaf::stub`]) that outlives every operation in flight.
    #[inline(always)]
    pub unsafe fn sheaf_pop(&self, index: usize) -> usize {
        operate!(self.area, index, sheaf_pop())
    }

    /// As [`sheaf_pop`](Self::sheaf_pop) by the restartable body alone: 0 also [in the
    /// fallback](is_fallback).
    ///
    /// # Safety
    /// As [`sheaf_pop`](Self::sheaf_pop).
    #[inline(always)]
    pub unsafe fn sheaf_pop_restartable(&self, index: usize) -> usize {
        operate_restartable!(self.area, index, sheaf_pop(), 0)
    }

    /// Pushes a value; false when the sheaf is full.
    ///
    /// ```text
    /// s := w[index]
    /// if s.len = s.capacity: return false
    /// s.slots[s.len] := value; s.len := s.len + 1; return true
    /// ```
    ///
    /// # Safety
    /// As [`sheaf_pop`](Self::sheaf_pop).
    #[inline(always)]
    pub unsafe fn sheaf_push(&self, index: usize, value: usize) -> bool {
        operate!(self.area, index, sheaf_push(value))
    }

    /// As [`sheaf_push`](Self::sheaf_push) by the restartable body alone: false also [in the
    /// fallback](is_fallback).
    ///
    /// # Safety
    /// As [`sheaf_pop`](Self::sheaf_pop).
    #[inline(always)]
    pub unsafe fn sheaf_push_restartable(&self, index: usize, value: usize) -> bool {
        operate_restartable!(self.area, index, sheaf_push(value), false)
    }

    /// Pops up to `n` values into `dst` in one commit; how many. The values that were pushed last come out, in
    /// the order in which they lie. `dst` may be scribbled on up to `n` values even when fewer are returned.
    ///
    /// ```text
    /// s := w[index]; k := min(n, s.len)
    /// dst[0..k] := s.slots[s.len - k .. s.len]; s.len := s.len - k; return k
    /// ```
    ///
    /// # Safety
    /// As [`sheaf_pop`](Self::sheaf_pop); `dst` is valid for writing `n` values.
    #[inline(always)]
    pub unsafe fn sheaf_pop_many(&self, index: usize, dst: *mut usize, n: usize) -> usize {
        operate!(self.area, index, sheaf_pop_many(dst, n))
    }

    /// Pushes up to `n` values from `src` in one commit; how many. None, and nothing pushed, if one of them is zero in its
    /// lower half: looked for on the way past, for callers whose arrays may have holes.
    ///
    /// ```text
    /// s := w[index]; k := min(n, s.capacity - s.len)
    /// if any of src[0..k] mod 2^32 = 0: return none
    /// s.slots[s.len .. s.len + k] := src[0..k]; s.len := s.len + k; return k
    /// ```
    ///
    /// # Safety
    /// As [`sheaf_pop`](Self::sheaf_pop); `src` is valid for reading `n` values.
    #[inline(always)]
    pub unsafe fn sheaf_push_many(
        &self,
        index: usize,
        src: *const usize,
        n: usize,
    ) -> Option<usize> {
        let pushed = operate!(self.area, index, sheaf_push_many(src, n));
        (pushed != locked::HAS_ZERO).then_some(pushed)
    }

    /// Puts another sheaf in the place of an empty one (`full` false) or of a full one (`full` true), unless the
    /// guard word is not zero; the sheaf that was there, or none and nothing changed. Emptiness is checked in the
    /// same sequence as the swap: a sheaf that was refilled in between is left alone.
    ///
    /// ```text
    /// s := w[index]
    /// if *guard != 0 or s.len != (full ? s.capacity : 0): return none
    /// w[index] := new; return s
    /// ```
    ///
    /// # Safety
    /// As [`sheaf_pop`](Self::sheaf_pop), for the old sheaf and the new one.
    #[inline(always)]
    pub unsafe fn sheaf_replace(
        &self,
        index: usize,
        guard: &AtomicU64,
        new: NonNull<Sheaf>,
        full: bool,
    ) -> Option<NonNull<Sheaf>> {
        operate!(self.area, index, sheaf_replace(guard, new, full))
    }
}

/// A raised guard. Dropping it sets the guard to the value at which it rests.
struct RaisedGuard<'a> {
    guard: &'a AtomicU64,
    rest: &'a mut u64,
}

impl Drop for RaisedGuard<'_> {
    fn drop(&mut self) {
        // ORDERING: pairs with the acquire of the guard inside `swap_unless` and `sheaf_replace`:
        // an operation that finds zero again finds the words as they were left; one that still
        // finds another value keeps off.
        self.guard.store(*self.rest, crate::atomic::Ordering::Release);
    }
}

#[cfg(all(test, not(any(loom, quietline_sim))))]
pub(crate) mod tests;
