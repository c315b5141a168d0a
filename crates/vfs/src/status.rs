//! A file's status flags, read without a reference to the file.
//!
//! The reader has found the file in a slot, and knows only that the memory is that of a file: the file may be closed
//! and become another one while it looks. So each life has a number, and the reader looks in this order:
//!
//! ```text
//!   owner of a new life                     reader
//!   generation := generation + 1            generation
//!   flags := those of this life             slot: still this file?
//!   (the file gets its reference,           flags
//!    and is put into a slot)                generation: still the same?
//! ```
//!
//! Why the flags are of the life that was in the slot at the second step, call it B. The slot's word was stored after
//! B's generation, so the last look finds B's or a later one; it finds the same as the first look, and a first look
//! at a life after B would have shown the slot without B. So both are B's. Flags of a later life would have shown
//! that life's generation to the last look; flags of an earlier one were overwritten before B got into the slot.
//!
//! A reader that sleeps through exactly 2^32 lives of one file between its first step and its last is fooled.

use quietline_platform::atomic::{AtomicU32, Ordering};

/// Flags, and which life of the file they belong to.
#[derive(Debug)]
pub(crate) struct Status {
    generation: AtomicU32,
    flags: AtomicU32,
}

impl Status {
    /// Of a file that has not lived yet.
    pub(crate) fn new() -> Self {
        Self { generation: AtomicU32::new(0), flags: AtomicU32::new(0) }
    }

    /// Begins a life. Only its owner calls this, before the file can be found.
    #[inline(always)]
    pub(crate) fn begin(&self, flags: u32) {
        // Relaxed: only the owner of a life writes it, and the owner has the file from the last one.
        let generation = self.generation.load(Ordering::Relaxed).wrapping_add(1);
        // ORDERING: pairs with the first acquire in `read_while`: who finds this generation finds the file gone from the
        // slots that it was in before. Who finds an older one may still look at an older life, and notices at the end.
        self.generation.store(generation, Ordering::Release);
        // ORDERING: pairs with the acquire of the flags in `read_while`: who finds these flags finds this generation
        // after them. Older flags go with an older generation.
        self.flags.store(flags, Ordering::Release);
    }

    /// The flags, for a holder of a reference.
    #[inline]
    pub(crate) fn flags(&self) -> u32 {
        // Relaxed: a word of its own.
        self.flags.load(Ordering::Relaxed)
    }

    /// Sets the flags in `mask` to `flags`. For a holder of a reference.
    pub(crate) fn set(&self, flags: u32, mask: u32) {
        let change = |old: u32| Some((old & !mask) | (flags & mask));
        // Relaxed: a change of the word continues the release sequence of `begin`, so whoever finds these flags finds the
        // generation of this life as if it had found the first ones.
        let _ = self.flags.fetch_update(Ordering::Relaxed, Ordering::Relaxed, change);
    }

    /// The flags of the life that was in a slot when `in_slot` said so; none if it said no, or if the file began
    /// another life meanwhile. `in_slot` loads the slot with acquire order.
    #[inline(always)]
    pub(crate) fn read_while(&self, in_slot: impl FnOnce() -> bool) -> Option<u32> {
        self.read_all_while(in_slot, |flags| flags)
    }

    /// As [`read_while`](Self::read_while), with what `also` reads beside the flags: words of the file that the owner of a
    /// life stores with release order after [`begin`](Self::begin), and that `also` loads with acquire order.
    #[inline(always)]
    pub(crate) fn read_all_while<R>(
        &self,
        in_slot: impl FnOnce() -> bool,
        also: impl FnOnce(u32) -> R,
    ) -> Option<R> {
        // ORDERING: pairs with the generation's release in `begin`.
        let generation = self.generation.load(Ordering::Acquire);
        if !in_slot() {
            return None;
        }
        // ORDERING: pairs with the flags' release in `begin`, also by way of `set`.
        let read = also(self.flags.load(Ordering::Acquire));
        // Relaxed: the acquires before keep it behind them, and by coherence it is not older than what they brought.
        (self.generation.load(Ordering::Relaxed) == generation).then_some(read)
    }
}
