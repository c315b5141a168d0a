//! Objects of one kind, free ones in a list of all and in lists of CPUs: as much of a slab cache as is needed here.

use crossbeam_utils::CachePadded;
use quietline_platform::{AllocError, heap};

use super::{Dentry, Inode, NONE};
use crate::atomic::{AtomicU32, Ordering};
use crate::ticket::TicketLock;

/// Objects that go between a CPU and the list of all at once: about what a slab has.
const BATCH: usize = 32;
/// Free objects that a CPU keeps at most.
const KEPT: usize = 4 * BATCH;

/// An object whose first word is the list's while it is free.
pub(super) trait Slot {
    /// That word.
    fn next(&self) -> &AtomicU32;
}

impl Slot for Inode {
    #[inline(always)]
    fn next(&self) -> &AtomicU32 {
        &self.next
    }
}

impl Slot for Dentry {
    #[inline(always)]
    fn next(&self) -> &AtomicU32 {
        &self.next
    }
}

/// All objects of a kind.
pub(super) struct Slots<T> {
    objects: Box<[T]>,
    list_lock: CachePadded<TicketLock>,
    partial: CachePadded<AtomicU32>,
}

impl<T: Slot> Slots<T> {
    /// So many, all free.
    pub(super) fn new(count: u32, mut make: impl FnMut() -> T) -> Result<Self, AllocError> {
        let objects = heap::try_boxed_slice(count as usize, |number| {
            let object = make();
            let next = number as u32 + 1;
            object.next().store(if next == count { NONE } else { next }, Ordering::Relaxed);
            object
        })?;
        let partial = CachePadded::new(AtomicU32::new(if count == 0 { NONE } else { 0 }));
        Ok(Self { objects, list_lock: CachePadded::new(TicketLock::new()), partial })
    }

    #[inline(always)]
    pub(super) fn at(&self, number: u32) -> &T {
        &self.objects[number as usize]
    }
}

/// The free objects of a CPU; the last that was freed is the next that is used.
pub(super) struct Freelist {
    first: u32,
    count: usize,
}

impl Freelist {
    pub(super) fn new() -> Self {
        Self { first: NONE, count: 0 }
    }

    /// One, if there is one anywhere. Its line is read.
    #[inline]
    pub(super) fn alloc<T: Slot>(&mut self, slots: &Slots<T>) -> Option<u32> {
        if self.first == NONE {
            self.refill(slots);
        }
        let number = self.first;
        if number == NONE {
            return None;
        }
        // Relaxed: free objects of a CPU are its own.
        self.first = slots.at(number).next().load(Ordering::Relaxed);
        self.count -= 1;
        Some(number)
    }

    /// Its line is written.
    #[inline]
    pub(super) fn free<T: Slot>(&mut self, slots: &Slots<T>, number: u32) {
        // Relaxed: as above.
        slots.at(number).next().store(self.first, Ordering::Relaxed);
        self.first = number;
        self.count += 1;
        if self.count > KEPT {
            self.give_back(slots, BATCH);
        }
    }

    #[cold]
    fn refill<T: Slot>(&mut self, slots: &Slots<T>) {
        let _lock = slots.list_lock.lock();
        for _ in 0..BATCH {
            // Relaxed, here and below: under the lock.
            let number = slots.partial.load(Ordering::Relaxed);
            if number == NONE {
                break;
            }
            slots.partial.store(slots.at(number).next().load(Ordering::Relaxed), Ordering::Relaxed);
            slots.at(number).next().store(self.first, Ordering::Relaxed);
            self.first = number;
            self.count += 1;
        }
    }

    /// So many of them to the list of all.
    #[cold]
    pub(super) fn give_back<T: Slot>(&mut self, slots: &Slots<T>, most: usize) {
        let _lock = slots.list_lock.lock();
        for _ in 0..most.min(self.count) {
            let number = self.first;
            let next = slots.at(number).next();
            self.first = next.load(Ordering::Relaxed);
            self.count -= 1;
            next.store(slots.partial.load(Ordering::Relaxed), Ordering::Relaxed);
            slots.partial.store(number, Ordering::Relaxed);
        }
    }

    pub(super) fn count(&self) -> usize {
        self.count
    }
}
