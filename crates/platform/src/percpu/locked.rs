//! The contracts of the per-CPU operations, executed step by step by a caller that keeps everybody else out.
//!
//! The fallback runs this under a slot's lock, the model back end under a modelled CPU's mutex, and the tests hold
//! the restartable sequences against it.

use super::Sheaf;
use crate::atomic::{AtomicU64, Ordering::Acquire, Ordering::Relaxed, Ordering::Release};
use core::ptr::NonNull;

/// What `sheaf_push_many` returns in place of a number when it refuses.
pub(crate) const HAS_ZERO: usize = usize::MAX;

/// One CPU's words, nobody else operating on them. (Others may read single words; so the stores are atomic.)
///
/// As in a restartable sequence, the last store is the commit, and what comes before it does not matter if it never
/// happens: a fork may copy the words in the middle of an operation whose thread the child does not have.
///
/// Relaxed throughout, unless noted: the lock that keeps others out also orders. A commit that makes earlier stores
/// count is a release store.
pub(crate) struct Locked<'a>(pub(crate) &'a [AtomicU64]);

impl Locked<'_> {
    pub(crate) fn add(&self, index: usize, value: u64) {
        let x = self.0[index].load(Relaxed).wrapping_add(value);
        // ORDERING: pairs with an acquire load of the word elsewhere: who sees the sum sees what the adder did
        // before. A reader that sees the old value learns nothing.
        self.0[index].store(x, Release);
    }

    pub(crate) fn add_within(&self, index: usize, value: i64, bound: i64) -> bool {
        let x = (self.0[index].load(Relaxed) as i64).wrapping_add(value);
        let within = -bound < x && x < bound;
        if within {
            self.0[index].store(x as u64, Relaxed);
        }
        within
    }

    pub(crate) fn increment_unless(&self, index: usize, mask: u64) -> Option<u64> {
        let v = self.0[index].load(Relaxed);
        if v & mask == 0 {
            return None;
        }
        self.0[index].store(v.wrapping_add(1), Relaxed);
        Some(v)
    }

    pub(crate) fn swap(&self, index: usize, new: u64) -> u64 {
        let old = self.0[index].load(Relaxed);
        self.0[index].store(new, Relaxed);
        old
    }

    fn unguarded(guard: &AtomicU64) -> bool {
        // ORDERING: pairs with the release store that lowers the guard: who finds it lowered finds the word as it was
        // left; who finds it raised keeps off. The raising needs no partner but the fence after it.
        guard.load(Acquire) == 0
    }

    pub(crate) fn swap_unless(&self, index: usize, guard: &AtomicU64, new: u64) -> Option<u64> {
        Self::unguarded(guard).then(|| self.swap(index, new))
    }

    /// The index of the word that the selector names, which follows the one at `index`.
    fn selected(index: usize, selector: &AtomicU64) -> usize {
        // ORDERING: pairs with the store that flips the selector: whoever reads the new index sees what was written
        // before the flip; whoever reads the old one is waited for by the flipper's fence.
        index + selector.load(Acquire) as usize
    }

    pub(crate) fn increment_selected(&self, index: usize, selector: &AtomicU64) -> usize {
        let selected = Self::selected(index, selector);
        self.add(selected, 1);
        selected - index
    }

    /// # Safety
    /// `node` is valid for writing a word and the caller's to give.
    pub(crate) unsafe fn list_push_selected(
        &self,
        index: usize,
        selector: &AtomicU64,
        node: NonNull<AtomicU64>,
    ) {
        let head = &self.0[Self::selected(index, selector)];
        // SAFETY: by contract.
        unsafe { node.as_ref() }.store(head.load(Relaxed), Relaxed);
        // ORDERING: pairs with the copy that a fork makes: a child that sees the node on the list sees its link.
        head.store(node.as_ptr() as u64, Release);
    }

    /// # Safety
    /// The word points to a live sheaf.
    unsafe fn sheaf(&self, index: usize) -> &Sheaf {
        // SAFETY: by contract.
        unsafe { &*(self.0[index].load(Relaxed) as *const Sheaf) }
    }

    /// # Safety
    /// The word points to a live sheaf.
    pub(crate) unsafe fn sheaf_pop(&self, index: usize) -> usize {
        // SAFETY: by contract.
        let s = unsafe { self.sheaf(index) };
        let Some(len) = s.len().checked_sub(1) else { return 0 };
        s.len.store(len as u64, Relaxed);
        s.slot(len).load(Relaxed)
    }

    /// # Safety
    /// The word points to a live sheaf.
    pub(crate) unsafe fn sheaf_push(&self, index: usize, value: usize) -> bool {
        // SAFETY: by contract.
        let s = unsafe { self.sheaf(index) };
        let len = s.len();
        if len == s.capacity() {
            return false;
        }
        s.slot(len).store(value, Relaxed);
        // ORDERING: pairs with the copy that a fork makes: a child that sees the length sees the value.
        s.len.store(len as u64 + 1, Release);
        true
    }

    /// # Safety
    /// The word points to a live sheaf; `dst` is valid for writing `n` values.
    pub(crate) unsafe fn sheaf_pop_many(&self, index: usize, dst: *mut usize, n: usize) -> usize {
        // SAFETY: by contract.
        let s = unsafe { self.sheaf(index) };
        let k = n.min(s.len());
        if k == 0 {
            return 0;
        }
        let first = s.len() - k;
        for i in 0..k {
            let value =
                core::ptr::with_exposed_provenance_mut::<u8>(s.slot(first + i).load(Relaxed));
            // As a pointer: the caller's array may be one of those.
            // SAFETY: i < k <= n.
            unsafe { dst.cast::<*mut u8>().add(i).write(value) };
        }
        s.len.store(first as u64, Relaxed);
        k
    }

    /// # Safety
    /// The word points to a live sheaf; `src` is valid for reading `n` values.
    pub(crate) unsafe fn sheaf_push_many(
        &self,
        index: usize,
        src: *const usize,
        n: usize,
    ) -> usize {
        // SAFETY: by contract.
        let s = unsafe { self.sheaf(index) };
        let len = s.len();
        let k = n.min(s.capacity() - len);
        if k == 0 {
            return 0;
        }
        // SAFETY: i < k <= n.
        if (0..k).any(|i| unsafe { src.add(i).read() } as u32 == 0) {
            return HAS_ZERO;
        }
        for i in 0..k {
            // SAFETY: i < k <= n.
            s.slot(len + i).store(unsafe { src.add(i).read() }, Relaxed);
        }
        // ORDERING: as in `sheaf_push`.
        s.len.store((len + k) as u64, Release);
        k
    }

    /// # Safety
    /// The word points to a live sheaf.
    pub(crate) unsafe fn sheaf_replace(
        &self,
        index: usize,
        guard: &AtomicU64,
        new: NonNull<Sheaf>,
        full: bool,
    ) -> Option<NonNull<Sheaf>> {
        if !Self::unguarded(guard) {
            return None;
        }
        // SAFETY: by contract.
        let s = unsafe { self.sheaf(index) };
        if s.len() != if full { s.capacity() } else { 0 } {
            return None;
        }
        NonNull::new(self.swap(index, new.as_ptr() as u64) as *mut Sheaf)
    }
}
