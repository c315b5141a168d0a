//! Objects of a few words that readers find by number while writers give them back.
//!
//! # Our way
//!
//! An object that is given back is used again only after a grace period, so a reader that found its number inside
//! a read section finds what it was until the section ends. What is given back waits in a queue with the
//! sequence number of its grace period, and allocation looks at the first of the queue: no callback, no memory for giving back.
//!
//! Readers need the [`Words`] alone. What is in here belongs to the writers, and is under their lock; so no callback of anybody's
//! is run here, which might want that lock, and nobody waits here: a reader may want the lock inside the very section that would be waited
//! for. Who can wait is [told](Lack::Readers) for what.

use super::words::Words;
use quietline_platform::{AllocError, heap};
use quietline_sync::rcu::{Domain, GpSeq};

/// No object.
const NONE: u32 = u32::MAX;

/// What an allocation lacks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Lack {
    /// Memory, or the pool has as many as it may, and nothing was given back.
    Memory,
    /// The same, but for what was given back and waits for readers: after the grace period of this number there is one more. To be waited for
    /// without the lock, and in no read section.
    Readers(GpSeq),
}

impl From<AllocError> for Lack {
    fn from(AllocError: AllocError) -> Self {
        Self::Memory
    }
}

impl From<Lack> for AllocError {
    fn from(_: Lack) -> Self {
        Self
    }
}

/// What the writers know of an object.
struct Object {
    /// The next in the queue or in the list of free ones.
    next: u32,
    /// The owner's: how many there are of whatever it counts.
    uses: u32,
    /// When what was given back may be used again.
    seq: GpSeq,
}

/// The writers' half of a pool of objects of `width` words each.
pub(super) struct Pool {
    width: usize,
    most: u32,
    domain: &'static Domain,
    objects: Vec<Object>,
    free: u32,
    /// Those that wait for readers, oldest first.
    first: u32,
    last: u32,
    waiting: u32,
    used: u32,
    /// Calls that found many objects that wait.
    looks: u32,
}

/// Objects that may wait for readers before allocation looks after their grace period, rather than make new ones.
const PATIENCE: u32 = if cfg!(loom) { 1 } else { 64 };
/// Calls of which one moves the grace period on.
const LOOKS: u32 = if cfg!(loom) { 1 } else { 16 };

impl Pool {
    /// A pool for up to `most` objects, and its words.
    ///
    /// # Errors
    /// [`AllocError`].
    pub(super) fn new(
        domain: &'static Domain,
        width: usize,
        most: u32,
    ) -> Result<(Self, Words), AllocError> {
        let words = Words::new(width * most as usize)?;
        let pool = Self {
            width,
            most,
            domain,
            objects: Vec::new(),
            free: NONE,
            first: NONE,
            last: NONE,
            waiting: 0,
            used: 0,
            looks: 0,
        };
        Ok((pool, words))
    }

    /// An object, whose words are as somebody left them. Does not wait.
    ///
    /// # Errors
    /// [`Lack`].
    pub(super) fn alloc(&mut self, words: &Words) -> Result<u32, Lack> {
        if self.free == NONE && self.waiting > 0 {
            self.take_elapsed();
        }
        if self.free == NONE && self.grow(words).is_err() {
            let Some(first) = self.objects.get(self.first as usize) else {
                return Err(Lack::Memory);
            };
            return Err(Lack::Readers(first.seq));
        }
        let object = self.free;
        self.free = self.objects[object as usize].next;
        self.objects[object as usize].uses = 0;
        self.used += 1;
        Ok(object)
    }

    /// Returns the number of objects that wait for readers.
    pub(super) fn waiting(&mut self) -> u32 {
        self.take_elapsed();
        self.waiting
    }

    /// Frees the oldest that wait, if their readers are gone. If many wait, some of the calls move
    /// the grace period on: not all, because a step may be a system call, and the caller has locks.
    fn take_elapsed(&mut self) {
        if self.waiting >= PATIENCE {
            self.looks = self.looks.wrapping_add(1);
            if self.looks.is_multiple_of(LOOKS) {
                self.domain.advance();
            }
        }
        while self.first != NONE
            && self.domain.poll_state_synchronize(self.objects[self.first as usize].seq)
        {
            let object = self.first;
            self.first = self.objects[object as usize].next;
            self.objects[object as usize].next = self.free;
            self.free = object;
            self.waiting -= 1;
        }
        if self.first == NONE {
            self.last = NONE;
        }
    }

    /// One more object.
    fn grow(&mut self, words: &Words) -> Result<(), AllocError> {
        let new = self.objects.len() as u32;
        if new == self.most {
            return Err(AllocError);
        }
        words.make(new as usize * self.width)?;
        heap::try_reserve(&mut self.objects, 1)?;
        self.objects.push(Object { next: self.free, uses: 0, seq: GpSeq::default() });
        self.free = new;
        Ok(())
    }

    /// Gives back an object that no reader has seen.
    pub(super) fn free_unseen(&mut self, object: u32) {
        self.objects[object as usize].next = self.free;
        self.free = object;
        self.used -= 1;
    }

    /// Gives back an object that readers who come from now on do not find any more. Needs no memory.
    pub(super) fn retire(&mut self, object: u32) {
        self.objects[object as usize].seq = self.domain.start_poll_synchronize();
        self.objects[object as usize].next = NONE;
        match self.last {
            NONE => self.first = object,
            last => self.objects[last as usize].next = object,
        }
        self.last = object;
        self.waiting += 1;
        self.used -= 1;
    }

    /// What the owner counts with the object; 0 when it was allocated.
    pub(super) fn uses(&mut self, object: u32) -> &mut u32 {
        &mut self.objects[object as usize].uses
    }

    /// Objects that were allocated and not given back.
    pub(super) fn used(&self) -> usize {
        self.used as usize
    }

    /// Bytes that the writers' half has.
    pub(super) fn bytes(&self) -> usize {
        self.objects.capacity() * size_of::<Object>()
    }
}
