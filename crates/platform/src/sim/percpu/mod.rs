//! The per-CPU operations: each contract executed as one step of the virtual CPU, at the price of plain accesses.

use super::cpu::{MAX, current};
use super::machine::with;
use crate::atomic::AtomicU64;
use crate::percpu::Sheaf;
use crate::percpu::locked::Locked;
use crate::{AllocError, FenceError};
use chunk::SHIFT;
use core::ptr::NonNull;

// Where the words lie is as native: words of one CPU share lines, as they do there.
#[path = "../../native/percpu/chunk.rs"]
mod chunk;
mod mode;
mod slots;
#[path = "../../native/percpu/template.rs"]
mod template;

pub(crate) use chunk::{fork_after, fork_before};

/// The virtual CPU whose per-CPU words an address is in, if it is in any.
pub fn owner_of(address: usize) -> Option<usize> {
    chunk::owner_of(address)
}

/// The bodies that operations may have, named as natively.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Body {
    /// Restartable sequences; never in use here.
    Rseq,
    /// Restartable sequences of threads that this library registers; never in use here.
    OwnRseq,
    /// Not restartable sequences: so nothing may be compiled elsewhere. Here, steps of a virtual CPU.
    Fallback,
}

/// The body in use.
pub fn active() -> Body {
    Body::Fallback
}

/// Returns `false`: every operation has one body here, whatever its name ends in.
pub fn is_fallback() -> bool {
    false
}

/// `N` words for each virtual CPU.
#[derive(Debug)]
pub(crate) struct Area<const N: usize> {
    words: NonNull<AtomicU64>,
}

// SAFETY: words are atomics; operations are steps of a simulation that runs on one thread.
unsafe impl<const N: usize> Send for Area<N> {}
// SAFETY: as above. Outside a simulation, see `step`.
unsafe impl<const N: usize> Sync for Area<N> {}

impl<const N: usize> Area<N> {
    pub(crate) fn new(initial: [u64; N]) -> Result<Self, AllocError> {
        Ok(Self { words: chunk::alloc(&initial)?.cast() })
    }

    pub(crate) fn word(&self, cpu: usize, index: usize) -> &AtomicU64 {
        &self.copy(cpu)[index]
    }

    /// One CPU's copy.
    fn copy(&self, cpu: usize) -> &[AtomicU64] {
        assert!(cpu < MAX, "no such CPU");
        // SAFETY: every CPU's copy lies inside the chunk, and lives as long as the area.
        unsafe { core::slice::from_raw_parts(self.words.as_ptr().byte_add(cpu << SHIFT), N) }
    }

    /// One operation. Outside a simulation all threads are on CPU 0, and take turns by a lock.
    fn step<R>(&self, f: impl FnOnce(Locked<'_>) -> R) -> R {
        if with(|machine| machine.step_begin()).is_some() {
            let result = f(Locked(self.copy(current())));
            with(|machine| machine.step_end());
            result
        } else {
            let _turn = slots::enter();
            f(Locked(self.copy(0)))
        }
    }

    pub(crate) fn add(&self, index: usize, value: u64) {
        self.step(|w| w.add(index, value))
    }

    pub(crate) fn add_within(&self, index: usize, value: i64, bound: i64) -> bool {
        self.step(|w| w.add_within(index, value, bound))
    }

    pub(crate) fn add_within_restartable(&self, index: usize, value: i64, bound: i64) -> bool {
        self.add_within(index, value, bound)
    }

    pub(crate) fn increment_unless(&self, index: usize, mask: u64) -> Option<u64> {
        self.step(|w| w.increment_unless(index, mask))
    }

    pub(crate) fn increment_unless_restartable(&self, index: usize, mask: u64) -> Option<u64> {
        self.increment_unless(index, mask)
    }

    pub(crate) fn compare_store(&self, index: usize, expect: u64, new: u64) -> bool {
        self.step(|w| w.compare_store(index, expect, new))
    }

    pub(crate) fn swap(&self, index: usize, new: u64) -> u64 {
        self.step(|w| w.swap(index, new))
    }

    pub(crate) fn swap_unless(&self, index: usize, guard: &AtomicU64, new: u64) -> Option<u64> {
        self.step(|w| w.swap_unless(index, guard, new))
    }

    pub(crate) unsafe fn increment_selected(&self, selector: &AtomicU64) -> usize {
        self.step(|w| w.increment_selected(selector))
    }

    pub(crate) unsafe fn list_push_selected(&self, selector: &AtomicU64, node: NonNull<AtomicU64>) {
        // SAFETY: passed on; so below.
        self.step(|w| unsafe { w.list_push_selected(selector, node) })
    }

    /// A step is never seen half done, so that there is nothing to wait for; but it has its price.
    pub(crate) fn fence(&self) -> Result<(), FenceError> {
        if with(|machine| machine.fence_all()).is_none() {
            drop(slots::enter());
        }
        Ok(())
    }

    pub(crate) unsafe fn list_push(&self, index: usize, node: NonNull<AtomicU64>) {
        // SAFETY: passed on.
        self.step(|w| unsafe { w.list_push(index, node) })
    }

    pub(crate) unsafe fn list_pop(&self, index: usize) -> Option<NonNull<AtomicU64>> {
        // SAFETY: passed on.
        self.step(|w| unsafe { w.list_pop(index) })
    }

    pub(crate) unsafe fn sheaf_pop(&self, index: usize) -> usize {
        // SAFETY: passed on.
        self.step(|w| unsafe { w.sheaf_pop(index) })
    }

    pub(crate) unsafe fn sheaf_pop_restartable(&self, index: usize) -> usize {
        // SAFETY: passed on.
        unsafe { self.sheaf_pop(index) }
    }

    pub(crate) unsafe fn sheaf_push(&self, index: usize, value: usize) -> bool {
        // SAFETY: passed on.
        self.step(|w| unsafe { w.sheaf_push(index, value) })
    }

    pub(crate) unsafe fn sheaf_push_restartable(&self, index: usize, value: usize) -> bool {
        // SAFETY: passed on.
        unsafe { self.sheaf_push(index, value) }
    }

    pub(crate) unsafe fn sheaf_pop_many(&self, index: usize, dst: *mut usize, n: usize) -> usize {
        // SAFETY: passed on.
        self.step(|w| unsafe { w.sheaf_pop_many(index, dst, n) })
    }

    pub(crate) unsafe fn sheaf_push_many(
        &self,
        index: usize,
        src: *const usize,
        n: usize,
    ) -> usize {
        // SAFETY: passed on.
        self.step(|w| unsafe { w.sheaf_push_many(index, src, n) })
    }

    pub(crate) unsafe fn sheaf_replace(
        &self,
        index: usize,
        guard: &AtomicU64,
        new: NonNull<Sheaf>,
        full: bool,
    ) -> Option<NonNull<Sheaf>> {
        // SAFETY: passed on.
        self.step(|w| unsafe { w.sheaf_replace(index, guard, new, full) })
    }
}

impl<const N: usize> Drop for Area<N> {
    fn drop(&mut self) {
        // SAFETY: allocated with this size in `new`; nobody can call an operation any more.
        unsafe { chunk::free(self.words.cast(), N) };
    }
}
