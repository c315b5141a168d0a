//! Stores of free descriptor numbers, one for each CPU.
//!
//! A store is a sheaf of numbers, taken and given back by restartable sequences. What is in a store is marked as
//! taken in its table's bitmap, so that the lowest-number rule does not hand it out.

use core::ptr::NonNull;
use quietline_platform::AllocError;
use quietline_platform::atomic::Ordering;
use quietline_platform::cpu;
use quietline_platform::percpu::{OwnedSheaf, Sheaf, Words};

const STACK: usize = 0;
const GUARD: usize = 1;

/// Numbers that a store holds at most.
const CAPACITY: usize = 256;

/// The stores of a table. A number is kept as itself plus one, because a sheaf's values are not zero.
#[derive(Debug)]
pub(crate) struct Store {
    words: Words<2>,
}

impl Store {
    pub(crate) fn new() -> Result<Self, AllocError> {
        let mut words = Words::new()?;
        words.init(STACK, Sheaf::stub().as_ptr() as u64);
        Ok(Self { words })
    }

    /// A number from the CPU's store.
    #[inline(always)]
    pub(crate) fn pop(&self) -> Option<usize> {
        // SAFETY: STACK points to a sheaf or the stub; sheaves leave it by `sheaf_replace`, which cannot happen during
        // an operation on the CPU, or in `drain` with fences. So below.
        unsafe { self.words.sheaf_pop(STACK) }.checked_sub(1)
    }

    /// Gives a number to the CPU's store; false if it is full, or there is none.
    #[inline(always)]
    pub(crate) fn push(&self, fd: usize) -> bool {
        // SAFETY: as in `pop`.
        unsafe { self.words.sheaf_push(STACK, fd + 1) }
    }

    /// Sees to it that the CPU has a store, memory permitting; whether it had none before.
    pub(crate) fn provide(&self) -> bool {
        let stub = Sheaf::stub();
        // A hint: the thread may move to another CPU.
        if self.words.load(cpu::current(), STACK) != stub.as_ptr() as u64 {
            return false;
        }
        let Ok(sheaf) = OwnedSheaf::new(CAPACITY) else { return false };
        let raw = sheaf.into_raw();
        // SAFETY: as in `pop`; a sheaf that comes out, or does not go in, is ours alone, and holds nothing.
        unsafe {
            match self.words.sheaf_replace(STACK, GUARD, raw, false) {
                Some(stub) if stub.as_ref().is_stub() => {}
                Some(empty) => drop(OwnedSheaf::from_raw(empty)),
                None => drop(OwnedSheaf::from_raw(raw)),
            }
        }
        true
    }

    /// Takes all numbers out of all stores, and gives each to `give`. Operations on other CPUs may go on meanwhile;
    /// the caller holds the table's lock, so drains come one at a time.
    pub(crate) fn drain(&self, mut give: impl FnMut(usize)) {
        let stub = Sheaf::stub().as_ptr() as u64;
        let words = &self.words;
        for cpu in 0..words.cpus() {
            // Relaxed, so below: the fences order it with the sequences on their CPU.
            words.word(cpu, GUARD).store(1, Ordering::Relaxed);
        }
        words.fence();
        // Nobody replaces sheaves now; those that are taken are chained.
        let mut chain = 0;
        for cpu in 0..words.cpus() {
            let raw = words.word(cpu, STACK).swap(stub, Ordering::Relaxed);
            if raw != stub {
                // SAFETY: taken out of its word; only what is in flight still touches its slots, nobody its link.
                let mut sheaf = unsafe { OwnedSheaf::from_raw(NonNull::new_unchecked(raw as *mut Sheaf)) };
                sheaf.set_link(chain);
                chain = sheaf.into_raw().as_ptr() as usize;
            }
        }
        words.fence();
        // Nothing in flight knows them any more.
        while let Some(raw) = NonNull::new(chain as *mut Sheaf) {
            // SAFETY: a sheaf of the chain, ours.
            let mut sheaf = unsafe { OwnedSheaf::from_raw(raw) };
            chain = sheaf.link();
            while let Some(value) = sheaf.pop() {
                give(value - 1);
            }
        }
        for cpu in 0..words.cpus() {
            // ORDERING: pairs with the guard's test in `sheaf_replace`.
            words.word(cpu, GUARD).store(0, Ordering::Release);
        }
    }
}

impl Drop for Store {
    fn drop(&mut self) {
        for cpu in 0..self.words.cpus() {
            // Relaxed: nobody else has the table.
            let raw = NonNull::new(self.words.word(cpu, STACK).swap(0, Ordering::Relaxed) as *mut Sheaf);
            // SAFETY: STACK points to a sheaf or the stub, and sheaves are ours now.
            if let Some(sheaf) = raw.filter(|s| !unsafe { s.as_ref() }.is_stub()) {
                // SAFETY: as above.
                drop(unsafe { OwnedSheaf::from_raw(sheaf) });
            }
        }
    }
}
