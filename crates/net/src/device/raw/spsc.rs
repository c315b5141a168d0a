//! A ring with one thread at each end.
//!
//! # The contended way
//!
//! A lock; or two shared indices that both ends read for every value: each line goes to and fro once a value.
//!
//! # Our way
//!
//! Each end has its own index, in its handle, and publishes it by one store for a batch; it looks at the other's only when what it
//! saw last is used up. No locked instruction.
//!
//! A slot is the producer's from where the consumer's published index is a lap behind, until the producer publishes an index above
//! it; then it is the consumer's.

use core::fmt;
use core::mem::MaybeUninit;
use crossbeam_utils::CachePadded;
use quietline_platform::atomic::{AtomicU32, Ordering};
use quietline_platform::cell::UnsafeCell;
use quietline_platform::{AllocError, heap};
use quietline_sync::Shared;

/// Where indices start: shortly before they wrap, where that is to be found out.
const START: u32 = if cfg!(debug_assertions) { u32::MAX - 1000 } else { 0 };

struct Ring<T> {
    slots: Box<[UnsafeCell<MaybeUninit<T>>]>,
    /// Below it all is read. Written by the consumer.
    head: CachePadded<AtomicU32>,
    /// Below it all is written. Written by the producer.
    tail: CachePadded<AtomicU32>,
}

// SAFETY: a slot has one user at a time, see the module; values go from thread to thread.
unsafe impl<T: Send> Send for Ring<T> {}
// SAFETY: as above.
unsafe impl<T: Send> Sync for Ring<T> {}

impl<T> Ring<T> {
    #[inline(always)]
    fn slot(&self, index: u32) -> &UnsafeCell<MaybeUninit<T>> {
        &self.slots[index as usize & (self.slots.len() - 1)]
    }

    fn size(&self) -> u32 {
        self.slots.len() as u32
    }
}

impl<T> Drop for Ring<T> {
    fn drop(&mut self) {
        // Relaxed: both ends are gone, and who ends the last share has seen what they did.
        let (mut head, tail) =
            (self.head.load(Ordering::Relaxed), self.tail.load(Ordering::Relaxed));
        while head != tail {
            // SAFETY: written and published, and not read; nobody else is left.
            drop(unsafe { self.slot(head).with_mut(|slot| (*slot).assume_init_read()) });
            head = head.wrapping_add(1);
        }
    }
}

/// The end that values are put into. What it was given is published when it is dropped, at the latest.
pub(crate) struct Producer<T> {
    ring: Shared<Ring<T>>,
    /// Behind the last value that was put in; published or not.
    tail: u32,
    /// The consumer's index when it was last looked at.
    head: u32,
}

/// The end that values are taken from.
pub(crate) struct Consumer<T> {
    ring: Shared<Ring<T>>,
    /// Behind the last value that was taken; published or not.
    head: u32,
    /// The producer's index when it was last looked at.
    tail: u32,
}

/// A ring for so many values, a power of two up to 2^31.
///
/// # Panics
/// With another number.
pub(crate) fn ring<T>(size: usize) -> Result<(Producer<T>, Consumer<T>), AllocError> {
    assert!(size.is_power_of_two() && size <= 1 << 31, "the size of a ring is a power of two");
    let ring = Shared::new(Ring {
        slots: heap::try_boxed_slice(size, |_| UnsafeCell::new(MaybeUninit::uninit()))?,
        head: CachePadded::new(AtomicU32::new(START)),
        tail: CachePadded::new(AtomicU32::new(START)),
    })?;
    Ok((
        Producer { ring: ring.clone(), tail: START, head: START },
        Consumer { ring, head: START, tail: START },
    ))
}

impl<T> Producer<T> {
    /// How many values may be put in, `want` or fewer. Looks at the consumer's line only if it does not know of so many.
    #[inline(always)]
    pub(crate) fn room(&mut self, want: usize) -> usize {
        let room = |this: &Self| (this.ring.size() - this.tail.wrapping_sub(this.head)) as usize;
        if room(self) < want {
            // ORDERING: Acquire pairs with the release in `Consumer::publish`: the consumer has read what was in the slots.
            self.head = self.ring.head.load(Ordering::Acquire);
        }
        room(self).min(want)
    }

    /// Puts a value in, after [`room`](Self::room) said that there is room for it. The consumer sees it once it is
    /// [published](Self::publish).
    ///
    /// # Panics
    /// If there was no room.
    #[inline(always)]
    pub(crate) fn push(&mut self, value: T) {
        assert!(self.tail.wrapping_sub(self.head) < self.ring.size(), "the ring is full");
        // SAFETY: less than a lap ahead of what the consumer has published: the slot is ours, and holds no value.
        self.ring.slot(self.tail).with_mut(|slot| unsafe { (*slot).write(value) });
        self.tail = self.tail.wrapping_add(1);
    }

    /// Shows the consumer what was put in: one store.
    #[inline(always)]
    pub(crate) fn publish(&mut self) {
        // ORDERING: Release pairs with the acquire in `Consumer::available`: who sees the index sees the values.
        self.ring.tail.store(self.tail, Ordering::Release);
    }
}

impl<T> Drop for Producer<T> {
    fn drop(&mut self) {
        self.publish();
    }
}

impl<T> Consumer<T> {
    /// How many values may be taken, `want` or fewer. Looks at the producer's line only if it does not know of so many.
    #[inline(always)]
    pub(crate) fn available(&mut self, want: usize) -> usize {
        let available = |this: &Self| this.tail.wrapping_sub(this.head) as usize;
        if available(self) < want {
            // ORDERING: Acquire pairs with the release in `Producer::publish`.
            self.tail = self.ring.tail.load(Ordering::Acquire);
        }
        available(self).min(want)
    }

    /// Takes a value, after [`available`](Self::available) said that there is one. The producer may use its slot once that
    /// is [published](Self::publish).
    ///
    /// # Panics
    /// If there was none.
    #[inline(always)]
    pub(crate) fn pop(&mut self) -> T {
        assert!(self.head != self.tail, "the ring is empty");
        // SAFETY: below what the producer has published, and not read before: the slot is ours, and holds a value.
        let value =
            self.ring.slot(self.head).with_mut(|slot| unsafe { (*slot).assume_init_read() });
        self.head = self.head.wrapping_add(1);
        value
    }

    /// Gives the producer the slots of what was taken: one store.
    #[inline(always)]
    pub(crate) fn publish(&mut self) {
        // ORDERING: Release pairs with the acquire in `Producer::room`: the values are read before their slots are written.
        self.ring.head.store(self.head, Ordering::Release);
    }
}

impl<T> Drop for Consumer<T> {
    fn drop(&mut self) {
        self.publish();
    }
}

impl<T> fmt::Debug for Producer<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Producer").field("size", &self.ring.size()).finish_non_exhaustive()
    }
}

impl<T> fmt::Debug for Consumer<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Consumer").field("size", &self.ring.size()).finish_non_exhaustive()
    }
}
