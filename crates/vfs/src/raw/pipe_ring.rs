//! The buffers of a pipe, in a ring.

use super::pipe_page::Buffer;
use core::mem::MaybeUninit;
use quietline_platform::cell::UnsafeCell;
use quietline_platform::{AllocError, heap};

/// Buffers that a pipe has from the beginning.
pub(crate) const FEW: usize = 16;

/// In `reserved`: the pipe has not been counted yet, so no place of the ring may be used.
const FRESH: u32 = 1 << 31;

/// A cell, though whoever has the ring has it alone: so that a model that counts lines sees which of them is used.
pub(crate) type Place = UnsafeCell<MaybeUninit<Buffer>>;

/// A queue of buffers. The first [`FEW`] places are part of it, and need no initialisation.
#[derive(Debug)]
#[repr(C)]
pub(crate) struct Ring {
    /// Counts what was put in since it was empty; the difference to `tail` is what is in it. So bytes that come one at a time
    /// go through the first place, and not one line after the other.
    head: u32,
    tail: u32,
    /// Places that are used: a power of two.
    size: u32,
    /// Places that are reserved for a writer, or [`FRESH`].
    reserved: u32,
    few: [Place; FEW],
    /// What was taken out and came back: it comes before all others, and takes no place.
    returned: Option<Buffer>,
    /// All places, if there are more than `few`.
    many: Option<Box<[Place]>>,
}

impl Ring {
    /// Where the first of `few` ends.
    #[cfg(all(test, not(loom)))]
    pub(crate) const FIRST_PLACE_ENDS: usize =
        core::mem::offset_of!(Self, few) + size_of::<Place>();

    /// An empty ring of [`FEW`] places, which are full until [`settle`](Self::settle).
    #[inline(always)]
    pub(crate) fn new() -> Self {
        Self::of(FEW as u32, FRESH, None)
    }

    #[inline(always)]
    fn of(size: u32, reserved: u32, many: Option<Box<[Place]>>) -> Self {
        let few = [const { UnsafeCell::new(MaybeUninit::uninit()) }; FEW];
        Self { head: 0, tail: 0, size, reserved, few, returned: None, many }
    }

    /// Returns whether the ring is as [`new`](Self::new) made it: nothing was ever in it.
    #[inline(always)]
    pub(crate) fn is_fresh(&self) -> bool {
        self.reserved & FRESH != 0
    }

    /// Lets so many places be used, a power of two of at most [`FEW`].
    ///
    /// # Panics
    /// If the ring is not fresh.
    pub(crate) fn settle(&mut self, size: usize) {
        assert!(self.is_fresh() && size.is_power_of_two() && size <= FEW, "once, and few");
        (self.size, self.reserved) = (size as u32, 0);
    }

    /// Makes an empty ring a fresh one. Returns memory to be dropped when no lock is held.
    pub(crate) fn renew(&mut self) -> Option<Box<[Place]>> {
        core::mem::replace(self, Self::new()).many
    }

    /// Returns whether places are kept for a caller that is about to put something in.
    #[inline(always)]
    pub(crate) fn has_reserved(&self) -> bool {
        self.reserved & !FRESH != 0
    }

    /// Buffers that it has room for.
    #[inline(always)]
    pub(crate) fn size(&self) -> usize {
        self.size as usize
    }

    #[inline(always)]
    fn full(&self) -> u32 {
        self.head.wrapping_sub(self.tail)
    }

    /// Buffers in it.
    #[inline(always)]
    pub(crate) fn len(&self) -> usize {
        self.full() as usize + usize::from(self.returned.is_some())
    }

    /// Whether there is none.
    #[inline(always)]
    pub(crate) fn is_empty(&self) -> bool {
        self.head == self.tail && self.returned.is_none()
    }

    /// Whether there is no room for another one.
    #[inline(always)]
    pub(crate) fn is_full(&self) -> bool {
        self.room() == 0
    }

    /// Buffers that there is room for.
    #[inline(always)]
    pub(crate) fn room(&self) -> usize {
        self.size.saturating_sub(self.full() + self.reserved) as usize
    }

    /// Whether there are places that are not full, though they may be kept.
    #[inline(always)]
    pub(crate) fn has_places(&self) -> bool {
        self.full() < self.size
    }

    /// Places of a ring that is not fresh that are full, or kept.
    #[inline(always)]
    pub(crate) fn used(&self) -> usize {
        (self.full() + self.reserved) as usize
    }

    /// Keeps `n` places for [`push_reserved`](Self::push_reserved).
    pub(crate) fn reserve(&mut self, n: usize) {
        assert!(n <= self.room(), "there is room for what is to be put in");
        self.reserved += n as u32;
    }

    /// Keeps `n` places less.
    pub(crate) fn unreserve(&mut self, n: usize) {
        self.reserved -= n as u32;
    }

    /// Puts a buffer into a place that was kept.
    pub(crate) fn push_reserved(&mut self, buffer: Buffer) {
        self.unreserve(1);
        self.push(buffer);
    }

    /// Puts a buffer back that was the first: to its place, or, if somebody has taken that, before all.
    ///
    /// # Panics
    /// If there is one before all already: only one caller at a time takes something out that may come back.
    pub(crate) fn put_back(&mut self, buffer: Buffer) {
        assert!(self.returned.is_none(), "one at a time");
        if self.room() == 0 {
            self.returned = Some(buffer);
            return;
        }
        self.tail = self.tail.wrapping_sub(1);
        let tail = self.tail;
        self.place(tail).write(buffer);
    }

    #[inline(always)]
    fn place(&mut self, n: u32) -> &mut MaybeUninit<Buffer> {
        let at = (n & (self.size - 1)) as usize;
        let place = match &mut self.many {
            None => &mut self.few[at & (FEW - 1)],
            Some(many) => &mut many[at],
        };
        // SAFETY: borrowed uniquely, as the ring is.
        place.with_mut(|place| unsafe { &mut *place })
    }

    /// The buffer that was put in first.
    #[inline(always)]
    pub(crate) fn front(&mut self) -> Option<&mut Buffer> {
        self.get(0)
    }

    /// The buffer that was put in last.
    #[inline(always)]
    pub(crate) fn back(&mut self) -> Option<&mut Buffer> {
        self.get(self.len().wrapping_sub(1))
    }

    /// The `n`th buffer from the front.
    #[inline(always)]
    pub(crate) fn get(&mut self, n: usize) -> Option<&mut Buffer> {
        let mut n = n;
        if self.returned.is_some() {
            if n == 0 {
                return self.returned.as_mut();
            }
            n -= 1;
        }
        if n >= self.full() as usize {
            return None;
        }
        let at = self.tail.wrapping_add(n as u32);
        // SAFETY: places from the tail on are full up to the head.
        Some(unsafe { self.place(at).assume_init_mut() })
    }

    /// Puts a buffer behind the others.
    ///
    /// # Panics
    /// If there is no room.
    #[inline(always)]
    pub(crate) fn push(&mut self, buffer: Buffer) {
        assert!(!self.is_full(), "a pipe has room for what is put in");
        self.put(buffer);
    }

    #[inline(always)]
    fn put(&mut self, buffer: Buffer) {
        let head = self.head;
        self.place(head).write(buffer);
        self.head = head.wrapping_add(1);
    }

    /// Takes the first buffer out.
    #[inline(always)]
    pub(crate) fn pop(&mut self) -> Option<Buffer> {
        if self.returned.is_some() {
            return self.returned.take();
        }
        if self.is_empty() {
            return None;
        }
        let tail = self.tail;
        // SAFETY: the place at the tail was full, and is not looked at again before it is filled.
        let buffer = unsafe { self.place(tail).assume_init_read() };
        self.tail = tail.wrapping_add(1);
        if self.tail == self.head {
            (self.head, self.tail) = (0, 0);
        }
        Some(buffer)
    }

    /// Changes the number of places to a power of two that is enough for what is in it. What was made for the old number
    /// is returned, to be dropped when no lock is held.
    ///
    /// `made` is [`places`](Self::places) of that number.
    pub(crate) fn resize(
        &mut self,
        size: usize,
        made: Option<Box<[Place]>>,
    ) -> Option<Box<[Place]>> {
        assert!(size.is_power_of_two() && size >= self.used(), "what is in the pipe has room");
        let mut other = Self::of(size as u32, self.reserved, made);
        other.returned = self.returned.take();
        while let Some(buffer) = self.pop() {
            other.put(buffer);
        }
        core::mem::replace(self, other).many
    }

    /// What [`resize`](Self::resize) needs.
    ///
    /// # Errors
    /// [`AllocError`].
    pub(crate) fn places(size: usize) -> Result<Option<Box<[Place]>>, AllocError> {
        if size <= FEW {
            Ok(None)
        } else {
            heap::try_boxed_slice(size, |_| UnsafeCell::new(MaybeUninit::uninit())).map(Some)
        }
    }
}
