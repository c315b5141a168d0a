//! An allocation of words, and the dispatch of each operation to the body in use.

use super::chunk::{self, SHIFT};
use super::mode::own_offset;
use super::slots::Slot;
use super::{offset, rseq};
use crate::percpu::Sheaf;
use crate::percpu::locked::Locked;
use crate::{AllocError, FenceError};
use core::ptr::NonNull;
use core::sync::atomic::AtomicU64;

/// `N` words for each CPU.
#[derive(Debug)]
pub(crate) struct Area<const N: usize> {
    words: NonNull<AtomicU64>,
    /// [`offset`], constant once there are words: here it lies beside what every operation reads,
    /// and needs no look into the table of addresses of other crates' variables.
    offset: isize,
}

// SAFETY: words are atomics, reached by per-CPU operations that are indivisible on their CPU.
unsafe impl<const N: usize> Send for Area<N> {}
// SAFETY: as above.
unsafe impl<const N: usize> Sync for Area<N> {}

/// One operation on the words from an index on: the restartable body on the copy of the CPU that it
/// runs on, or the fallback's on a slot's copy.
macro_rules! dispatch {
    ($self:ident, $index:expr, $rseq:expr, $slot:expr) => {{
        let offset = $self.offset;
        if offset != 0 {
            // SAFETY: a non-zero offset is that of this thread's rseq area; the pointer is to our words.
            unsafe { $rseq(offset, $self.at($index)) }
        } else {
            // Some contracts ask nothing of the caller, and then their steps are safe.
            #[allow(unused_unsafe)]
            // By `move`: arguments that were borrowed would have to be written to the stack on the way
            // past. One closure for both bodies: each further word that it captures may be.
            on_own_area_slow(move |means| match means {
                // SAFETY: as above.
                SlowMeans::Area(offset) => unsafe { $rseq(offset, $self.at($index)) },
                // SAFETY: the slot's words are ours while its lock is held; the rest is the caller's
                // promise.
                SlowMeans::Slot(slot) => unsafe { $slot(Locked($self.copy(slot.number()))) },
            })
        }
    }};
}

/// The means of one operation of a thread that the C library did not register.
enum SlowMeans<'a> {
    /// The offset of an rseq area that this library registered.
    Area(isize),
    /// A locked slot.
    Slot(&'a Slot),
}

/// The operation of a thread that the C library did not register. Out of line, so that callers
/// contain no locked instruction.
#[cold]
#[inline(never)]
fn on_own_area_slow<R>(operate: impl FnOnce(SlowMeans<'_>) -> R) -> R {
    match own_offset() {
        Some(offset) => operate(SlowMeans::Area(offset)),
        None => operate(SlowMeans::Slot(&Slot::enter())),
    }
}

impl<const N: usize> Area<N> {
    pub(crate) fn new(initial: [u64; N]) -> Result<Self, AllocError> {
        let words = chunk::alloc(&initial)?.cast();
        // After the first allocation, which decides.
        Ok(Self { words, offset: offset() })
    }

    pub(crate) fn word(&self, cpu: usize, index: usize) -> &AtomicU64 {
        &self.copy(cpu)[index]
    }

    /// The address of CPU 0's copy of a word.
    #[inline(always)]
    fn at(&self, index: usize) -> *mut u64 {
        assert!(index < N, "no such per-CPU word");
        // SAFETY: in range.
        unsafe { self.words.as_ptr().add(index).cast() }
    }

    /// One CPU's copy.
    fn copy(&self, cpu: usize) -> &[AtomicU64] {
        assert!(cpu < super::slots(), "no such CPU");
        // SAFETY: every CPU's copy lies inside the chunk, and lives as long as the area.
        unsafe { core::slice::from_raw_parts(self.words.as_ptr().byte_add(cpu << SHIFT), N) }
    }

    #[inline(always)]
    pub(crate) fn add(&self, index: usize, value: u64) {
        dispatch!(self, index, |o, at| rseq::add(o, at, value), |w: Locked| w.add(index, value))
    }

    #[inline(always)]
    pub(crate) fn add_within(&self, index: usize, value: i64, bound: i64) -> bool {
        dispatch!(self, index, |o, at| rseq::add_within(o, at, value, bound), |w: Locked| w
            .add_within(index, value, bound))
    }

    #[inline(always)]
    pub(crate) fn add_within_restartable(&self, index: usize, value: i64, bound: i64) -> bool {
        let (at, offset) = (self.at(index), self.offset);
        // SAFETY: as in `dispatch`; so below.
        offset != 0 && unsafe { rseq::add_within(offset, at, value, bound) }
    }

    #[inline(always)]
    pub(crate) fn increment_unless(&self, index: usize, mask: u64) -> Option<u64> {
        dispatch!(self, index, |o, at| rseq::increment_unless(o, at, mask), |w: Locked| w
            .increment_unless(index, mask))
    }

    #[inline(always)]
    pub(crate) fn increment_unless_restartable(&self, index: usize, mask: u64) -> Option<u64> {
        let (at, offset) = (self.at(index), self.offset);
        // SAFETY: as above.
        if offset != 0 { unsafe { rseq::increment_unless(offset, at, mask) } } else { None }
    }

    #[inline(always)]
    pub(crate) fn compare_store(&self, index: usize, expect: u64, new: u64) -> bool {
        dispatch!(self, index, |o, at| rseq::compare_store(o, at, expect, new), |w: Locked| w
            .compare_store(index, expect, new))
    }

    #[inline(always)]
    pub(crate) fn swap(&self, index: usize, new: u64) -> u64 {
        dispatch!(self, index, |o, at| rseq::swap(o, at, new), |w: Locked| w.swap(index, new))
    }

    #[inline(always)]
    pub(crate) fn swap_unless(&self, index: usize, guard: &AtomicU64, new: u64) -> Option<u64> {
        dispatch!(
            self,
            index,
            |o, at| rseq::swap_unless(o, at, guard.as_ptr(), new),
            |w: Locked| w.swap_unless(index, guard, new)
        )
    }

    #[inline(always)]
    pub(crate) unsafe fn increment_selected(&self, selector: &AtomicU64) -> usize {
        dispatch!(
            self,
            0,
            |o, at| rseq::increment_selected(o, at, selector.as_ptr()),
            |w: Locked| w.increment_selected(selector)
        )
    }

    #[inline(always)]
    pub(crate) unsafe fn list_push(&self, index: usize, node: NonNull<AtomicU64>) {
        dispatch!(self, index, |o, at| rseq::list_push(o, at, node.as_ptr().cast()), |w: Locked| w
            .list_push(index, node))
    }

    #[inline(always)]
    pub(crate) unsafe fn list_push_selected(&self, selector: &AtomicU64, node: NonNull<AtomicU64>) {
        dispatch!(
            self,
            0,
            |o, at| rseq::list_push_selected(o, at, selector.as_ptr(), node.as_ptr().cast()),
            |w: Locked| w.list_push_selected(selector, node)
        )
    }

    pub(crate) fn fence(&self) -> Result<(), FenceError> {
        super::fence()
    }

    #[inline(always)]
    pub(crate) unsafe fn list_pop(&self, index: usize) -> Option<NonNull<AtomicU64>> {
        dispatch!(self, index, |o, at| NonNull::new(rseq::list_pop(o, at).cast()), |w: Locked| w
            .list_pop(index))
    }

    #[inline(always)]
    pub(crate) unsafe fn sheaf_pop(&self, index: usize) -> usize {
        dispatch!(self, index, |o, at| rseq::sheaf_pop(o, at), |w: Locked| w.sheaf_pop(index))
    }

    #[inline(always)]
    pub(crate) unsafe fn sheaf_pop_restartable(&self, index: usize) -> usize {
        let (at, offset) = (self.at(index), self.offset);
        // SAFETY: as above, and passed on.
        if offset != 0 { unsafe { rseq::sheaf_pop(offset, at) } } else { 0 }
    }

    #[inline(always)]
    pub(crate) unsafe fn sheaf_push(&self, index: usize, value: usize) -> bool {
        dispatch!(self, index, |o, at| rseq::sheaf_push(o, at, value), |w: Locked| w
            .sheaf_push(index, value))
    }

    #[inline(always)]
    pub(crate) unsafe fn sheaf_push_restartable(&self, index: usize, value: usize) -> bool {
        let (at, offset) = (self.at(index), self.offset);
        // SAFETY: as above, and passed on.
        offset != 0 && unsafe { rseq::sheaf_push(offset, at, value) }
    }

    #[inline(always)]
    pub(crate) unsafe fn sheaf_pop_many(&self, index: usize, dst: *mut usize, n: usize) -> usize {
        dispatch!(self, index, |o, at| rseq::sheaf_pop_many(o, at, dst, n), |w: Locked| w
            .sheaf_pop_many(index, dst, n))
    }

    #[inline(always)]
    pub(crate) unsafe fn sheaf_push_many(
        &self,
        index: usize,
        src: *const usize,
        n: usize,
    ) -> usize {
        dispatch!(self, index, |o, at| rseq::sheaf_push_many(o, at, src, n), |w: Locked| w
            .sheaf_push_many(index, src, n))
    }

    #[inline(always)]
    pub(crate) unsafe fn sheaf_replace(
        &self,
        index: usize,
        guard: &AtomicU64,
        new: NonNull<Sheaf>,
        full: bool,
    ) -> Option<NonNull<Sheaf>> {
        dispatch!(
            self,
            index,
            |o, at| NonNull::new(
                rseq::sheaf_replace(o, at, guard.as_ptr(), new.as_ptr().cast(), full).cast()
            ),
            |w: Locked| w.sheaf_replace(index, guard, new, full)
        )
    }
}

impl<const N: usize> Drop for Area<N> {
    fn drop(&mut self) {
        // SAFETY: allocated with this size in `new`; nobody can call an operation any more.
        unsafe { chunk::free(self.words.cast(), N) };
    }
}
