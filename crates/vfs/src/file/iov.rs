//! Where bytes come from and where they go: a call's buffers, one after the other (`iov_iter`).

use crate::abi::MAX_RW_COUNT;
use core::{fmt, mem, slice};

/// Buffers to be filled.
pub struct Sink<'a, 'b> {
    /// What is to be filled of the buffer that it stands in.
    here: &'a mut [u8],
    rest: slice::IterMut<'a, &'b mut [u8]>,
    left: usize,
    again: bool,
}

/// Buffers to be emptied. A copy stands where the original stood.
#[derive(Clone, Copy)]
pub struct Source<'a, 'b> {
    /// What is left of the buffer that it stands in.
    here: &'b [u8],
    rest: &'a [&'b [u8]],
    left: usize,
    broken: bool,
    again: bool,
}

/// The sum of lengths, as far as one call goes.
#[inline(always)]
fn sum(lengths: impl Iterator<Item = usize>) -> usize {
    lengths.fold(0, usize::saturating_add).min(MAX_RW_COUNT)
}

/// Copies slices of one length: a byte or a number without a call.
#[inline(always)]
fn copy(to: &mut [u8], from: &[u8]) {
    match (to, from) {
        ([to], [from]) => *to = *from,
        (to, from) => match (<&mut [u8; 8]>::try_from(&mut *to), <&[u8; 8]>::try_from(from)) {
            (Ok(to), Ok(from)) => *to = *from,
            _ => to.copy_from_slice(from),
        },
    }
}

impl<'a, 'b> Sink<'a, 'b> {
    /// All of these, as far as one call goes ([`MAX_RW_COUNT`]).
    #[inline(always)]
    pub fn new(buffers: &'a mut [&'b mut [u8]]) -> Self {
        let left = sum(buffers.iter().map(|buffer| buffer.len()));
        let mut rest = buffers.iter_mut();
        let here = rest.next().map_or(&mut [][..], |first| first);
        Self { here, rest, left, again: false }
    }

    /// Bytes that there is room for.
    #[inline(always)]
    pub fn left(&self) -> usize {
        self.left
    }

    /// Notes that the call waits, for as much as it found that it wants when it began.
    #[cold]
    pub fn set_again(&mut self) {
        self.again = true;
    }

    /// Whether the call waits, and takes what comes.
    #[inline(always)]
    pub fn is_again(&self) -> bool {
        self.again
    }

    /// Puts as many of `bytes` as there is room for: how many.
    #[inline(always)]
    pub fn put(&mut self, bytes: &[u8]) -> usize {
        let n = bytes.len().min(self.left);
        if n > self.here.len() {
            return self.put_across(&bytes[..n]);
        }
        self.put_here(&bytes[..n]);
        n
    }

    /// Sets the next `n` bytes apart, which the caller fills later; none if they are not all of one buffer.
    #[inline]
    pub fn set_apart(&mut self, n: usize) -> Option<&'a mut [u8]> {
        if n > self.left {
            return None;
        }
        while self.here.is_empty() {
            self.here = self.rest.next()?;
        }
        if n > self.here.len() {
            return None;
        }
        let (apart, here) = mem::take(&mut self.here).split_at_mut(n);
        self.here = here;
        self.left -= n;
        Some(apart)
    }

    #[inline(always)]
    fn put_here(&mut self, bytes: &[u8]) {
        let (to, here) = mem::take(&mut self.here).split_at_mut(bytes.len());
        copy(to, bytes);
        self.here = here;
        self.left -= bytes.len();
    }

    #[cold]
    fn put_across(&mut self, mut bytes: &[u8]) -> usize {
        let all = bytes.len();
        loop {
            let (now, later) = bytes.split_at(bytes.len().min(self.here.len()));
            self.put_here(now);
            if later.is_empty() {
                return all;
            }
            bytes = later;
            self.here = self.rest.next().expect("there is room in a later buffer");
        }
    }
}

impl<'a, 'b> Source<'a, 'b> {
    /// All of these, as far as one call goes ([`MAX_RW_COUNT`]).
    #[inline(always)]
    pub fn new(buffers: &'a [&'b [u8]]) -> Self {
        let left = sum(buffers.iter().map(|buffer| buffer.len()));
        let (here, rest) = match buffers {
            [first, rest @ ..] => (*first, rest),
            [] => (&[][..], buffers),
        };
        Self { here, rest, left, broken: false, again: false }
    }

    /// Bytes that are left.
    #[inline(always)]
    pub fn left(&self) -> usize {
        self.left
    }

    /// What is left of the buffer that it stands in.
    #[inline(always)]
    pub fn buffer(&self) -> &'b [u8] {
        &self.here[..self.here.len().min(self.left)]
    }

    /// Passes to the next buffer, whatever is left of this one; false if there is none.
    pub fn next_buffer(&mut self) -> bool {
        self.left -= self.here.len().min(self.left);
        let [next, rest @ ..] = self.rest else {
            self.here = &[];
            return false;
        };
        (self.here, self.rest) = (next, rest);
        true
    }

    /// Takes bytes until `to` is full or nothing is left: how many.
    #[inline(always)]
    pub fn take(&mut self, to: &mut [u8]) -> usize {
        let n = to.len().min(self.left);
        if n > self.here.len() {
            return self.take_across(&mut to[..n]);
        }
        self.take_here(&mut to[..n]);
        n
    }

    #[inline(always)]
    fn take_here(&mut self, to: &mut [u8]) {
        let (from, here) = self.here.split_at(to.len());
        copy(to, from);
        self.here = here;
        self.left -= to.len();
    }

    #[cold]
    fn take_across(&mut self, mut to: &mut [u8]) -> usize {
        let all = to.len();
        loop {
            let (now, later) = to.split_at_mut(self.here.len().min(to.len()));
            self.take_here(now);
            if later.is_empty() {
                return all;
            }
            to = later;
            self.next_buffer();
        }
    }

    /// Passes over `n` bytes, or over all that are left.
    pub fn advance(&mut self, n: usize) {
        let mut n = n.min(self.left);
        while n > self.here.len() {
            n -= self.here.len();
            self.next_buffer();
        }
        self.here = &self.here[n..];
        self.left -= n;
    }

    /// Passes over everything: the call has written what it will.
    pub fn finish(&mut self) {
        self.left = 0;
    }

    /// Notes that nobody will ever read what is written, of which the process is to be told by a signal (`SIGPIPE`).
    pub fn set_broken(&mut self) {
        self.broken = true;
    }

    /// Takes that note back: the caller is told of what was written before.
    pub fn clear_broken(&mut self) {
        self.broken = false;
    }

    /// Whether that was noted.
    #[inline(always)]
    pub fn is_broken(&self) -> bool {
        self.broken
    }

    /// Notes that the call has tried to write before.
    #[inline(always)]
    pub fn set_again(&mut self) {
        self.again = true;
    }

    /// Whether the call has tried before: it has written a part, or waits.
    #[inline(always)]
    pub fn is_again(&self) -> bool {
        self.again
    }
}

impl fmt::Debug for Sink<'_, '_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Sink").field("left", &self.left).finish_non_exhaustive()
    }
}

impl fmt::Debug for Source<'_, '_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Source").field("left", &self.left).finish_non_exhaustive()
    }
}
