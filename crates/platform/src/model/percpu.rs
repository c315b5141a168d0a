//! The model bodies: each operation is one step under the mutex of its CPU.

use crate::atomic::AtomicU64;
use crate::percpu::Sheaf;
use crate::percpu::locked::Locked;
use crate::{AllocError, FenceError};
use core::ptr::NonNull;
use loom::sync::Mutex;

/// The bodies that this back end has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Body {
    /// One indivisible step for each operation.
    Model,
}

/// The body in use.
pub fn active() -> Body {
    Body::Model
}

/// Returns `false`: every operation has one body here, whatever its name ends in.
pub fn is_fallback() -> bool {
    false
}

#[derive(Debug)]
struct Copy {
    words: Vec<AtomicU64>,
    step: Mutex<()>,
}

/// `N` words for each CPU.
#[derive(Debug)]
pub(crate) struct Area<const N: usize> {
    cpus: Vec<Copy>,
}

impl<const N: usize> Area<N> {
    pub(crate) fn new(initial: [u64; N]) -> Result<Self, AllocError> {
        crate::fault::check()?;
        let copy = |_| Copy {
            words: initial.into_iter().map(AtomicU64::new).collect(),
            step: Mutex::new(()),
        };
        Ok(Self { cpus: (0..crate::cpu::nr_cpus()).map(copy).collect() })
    }

    pub(crate) fn word(&self, cpu: usize, index: usize) -> &AtomicU64 {
        &self.cpus[cpu].words[index]
    }

    fn step<R>(&self, f: impl FnOnce(Locked<'_>) -> R) -> R {
        let copy = &self.cpus[crate::cpu::current()];
        let _step = copy.step.lock().expect("a step does not panic");
        f(Locked(&copy.words))
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

    /// Waits for each CPU's step in flight: steps after this one see what the caller wrote before.
    pub(crate) fn fence(&self) -> Result<(), FenceError> {
        for copy in &self.cpus {
            drop(copy.step.lock().expect("a step does not panic"));
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
