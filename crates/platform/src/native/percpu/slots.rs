//! The fallback body: a lock for each CPU slot.
//!
//! The CPU number is only a hint where to start: an operation takes the first slot that is free. So a signal
//! handler that interrupts a holder goes on with another slot instead of waiting for itself, and a thread that
//! vanishes inside (killed by its process's end) harms nobody. All words of slot n, of every area, are under
//! lock n. There are at least [`MIN`] slots: only if as many holders were interrupted at once by handlers that want
//! a slot of their own would those wait for each other.
//!
//! Beside sequences of [registered threads](crate::percpu::Body::OwnRseq), the slots of the threads
//! that the kernel refuses to register have words of their own, behind those of the CPUs.

use core::sync::atomic::{AtomicBool, Ordering};

/// Slots at least. (Under Miri, where every one costs time, and no signal comes, few.)
pub(super) const MIN: usize = if cfg!(miri) { 3 } else { 32 };
/// Slots at most: the size of the lock table.
pub(super) const MAX: usize = 256;

#[repr(align(64))]
struct Lock(AtomicBool);

static LOCKS: [Lock; MAX] = [const { Lock(AtomicBool::new(false)) }; MAX];

/// A slot held by the caller.
pub(crate) struct Slot(usize);

impl Slot {
    /// Takes a slot, preferably that of the current CPU.
    pub(crate) fn enter() -> Self {
        let n = super::mode::locked_slots();
        let start = hint();
        for i in start.. {
            if try_lock(i % n) {
                return Self(i % n);
            }
            if i % n == n - 1 {
                std::thread::yield_now();
            }
        }
        unreachable!("the range has no end")
    }

    /// The number of the slot's words, in place of a CPU's.
    pub(crate) fn number(&self) -> usize {
        super::mode::sequence_cpus() + self.0
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        // ORDERING: pairs with the acquire in `try_lock`: the next holder sees what this one wrote.
        LOCKS[self.0].0.store(false, Ordering::Release);
    }
}

fn try_lock(slot: usize) -> bool {
    // ORDERING: pairs with the release in `drop`; on failure nothing is read.
    LOCKS[slot].0.compare_exchange(false, true, Ordering::Acquire, Ordering::Relaxed).is_ok()
}

fn lock(slot: usize) {
    while !try_lock(slot) {
        std::thread::yield_now();
    }
}

/// Waits until every slot has been free once.
pub(super) fn fence() {
    for slot in 0..super::mode::locked_slots() {
        lock(slot);
        drop(Slot(slot));
    }
}

/// In a forked child: frees the slots that threads of the parent held.
///
/// Their operations have happened or have not: each ends in one store, its commit, as a restartable sequence does,
/// and a fork copies what a thread wrote in the order in which it wrote. (Holding the slots across the fork would
/// not do: a signal handler that wants a slot may have interrupted a thread that holds the heap's lock, for which
/// the C library's `fork` waits.)
pub(crate) fn abandon() {
    (0..MAX).for_each(|slot| drop(Slot(slot)));
}

/// The number of the CPU that the caller runs on, as the C library knows it.
#[cfg(not(miri))]
pub(super) fn hint() -> usize {
    // SAFETY: sched_getcpu takes nothing and touches nothing of ours.
    unsafe { libc::sched_getcpu() }.max(0) as usize
}

/// A number for each thread, in the place of a CPU: the interpreter has none.
#[cfg(miri)]
pub(super) fn hint() -> usize {
    use core::sync::atomic::AtomicUsize;
    static THREADS: AtomicUsize = AtomicUsize::new(0);
    std::thread_local! {
        static MINE: usize = THREADS.fetch_add(1, Ordering::Relaxed);
    }
    MINE.try_with(|mine| *mine).unwrap_or(0)
}
