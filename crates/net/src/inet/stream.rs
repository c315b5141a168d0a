//! The bytes that one end of a stream has sent and the other has not read.

use crate::memory::{Charge, Refused};
use crate::raw::NetRef;
use quietline_platform::{AllocError, fault};
use std::collections::VecDeque;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// What a chunk holds at least, and what is copied under the queue's lock at most when there is another way.
pub(super) const SMALL: usize = 4096;
/// What a chunk holds at most.
pub(super) const LARGE: usize = 32 * 1024;

/// A line of memory.
#[derive(Debug, Clone, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C, align(64))]
struct Line([u8; LINE]);

/// Bytes of a line.
const LINE: usize = 64;
const _: () = assert!(SMALL.is_multiple_of(LINE) && LARGE.is_multiple_of(LINE));

/// A piece of memory with bytes in it. It grows into its capacity once and is never cleared, so that used memory is not
/// zeroed again.
///
/// Whole lines, it and its memory: each message writes both, and what lies beside them may be another CPU's.
#[derive(Debug)]
#[repr(align(64))]
pub(super) struct Chunk {
    memory: Vec<Line>,
    start: usize,
    end: usize,
    _charge: Charge,
}

impl Chunk {
    /// An empty chunk for `want` bytes, or for as many as a chunk may hold; if `needed`, also
    /// beyond the limit on the memory of sockets.
    fn new(want: usize, net: NetRef, needed: bool) -> Result<Self, Refused> {
        let capacity = want.clamp(SMALL, LARGE).next_power_of_two();
        let charge = Charge::new(net, capacity as u32, needed)?;
        fault::check()?;
        let mut memory = Vec::new();
        memory.try_reserve_exact(capacity / LINE).map_err(|_| AllocError)?;
        Ok(Self { memory, start: 0, end: 0, _charge: charge })
    }

    fn capacity(&self) -> usize {
        self.memory.capacity() * LINE
    }

    fn room(&self) -> usize {
        self.capacity() - self.end
    }

    pub(super) fn bytes(&self) -> &[u8] {
        &self.memory.as_bytes()[self.start..self.end]
    }

    /// Appends up to `n` bytes, which `fill` writes: it is given as much memory and says how much of it it has used.
    pub(super) fn append(&mut self, n: usize, fill: impl FnOnce(&mut [u8]) -> usize) -> usize {
        let n = n.min(self.room());
        let until = self.end + n;
        if self.memory.len() * LINE < until {
            // Within the capacity: no allocation.
            self.memory.resize(until.div_ceil(LINE), Line([0; LINE]));
        }
        let filled = fill(&mut self.memory.as_mut_bytes()[self.end..until]);
        debug_assert!(filled <= n);
        self.end += filled;
        filled
    }
}

/// A queue of bytes, in chunks.
///
/// Small amounts are copied in and out under the lock that guards the queue. A large chunk is filled before it is
/// added and emptied after it was taken, so that the two ends copy at the same time.
///
/// The last chunk stays when it is empty: a conversation of short messages goes over the same lines again and again and
/// allocates nothing.
#[derive(Debug)]
pub(super) struct Bytes {
    chunks: VecDeque<Chunk>,
    /// An emptied chunk for whoever needs the next one.
    spare: Option<Chunk>,
    /// Bytes in the chunks, and in those that are being emptied.
    len: usize,
}

impl Bytes {
    pub(super) const fn new() -> Self {
        Self { chunks: VecDeque::new(), spare: None, len: 0 }
    }

    /// How much of the limit is taken.
    pub(super) fn len(&self) -> usize {
        self.len
    }

    /// Whether there is nothing to take.
    pub(super) fn is_empty(&self) -> bool {
        self.chunks.front().is_none_or(|chunk| chunk.start == chunk.end)
    }

    /// Appends up to `n` bytes, at most [`SMALL`], under the lock.
    ///
    /// # Errors
    /// [`Refused`]: at the limit on the memory of sockets, after as many bytes as there was memory
    /// for. An empty queue takes all of them.
    pub(super) fn append(
        &mut self,
        n: usize,
        net: &NetRef,
        fill: impl FnOnce(&mut [u8]) -> usize,
    ) -> Result<usize, Refused> {
        debug_assert!(n <= SMALL);
        if self.chunks.back().is_none_or(|last| last.room() < n)
            && let Err(refused) = self.grow(*net)
        {
            let last = self.chunks.back_mut().filter(|_| refused.stored().is_some());
            let Some(last) = last else { return Err(refused) };
            let filled = last.append(n, fill);
            self.len += filled;
            return Err(Refused::at_limit(filled));
        }
        let Some(last) = self.chunks.back_mut() else { return Ok(0) };
        let filled = last.append(n, fill);
        self.len += filled;
        Ok(filled)
    }

    /// Appends an empty chunk.
    #[cold]
    #[inline(never)]
    fn grow(&mut self, net: NetRef) -> Result<(), Refused> {
        // The first is small, because most conversations are; a queue of many messages gets large
        // ones.
        let want = if self.chunks.is_empty() { SMALL } else { LARGE };
        self.reserve()?;
        let fresh = match self.spare.take() {
            Some(spare) => spare,
            // A queue with bytes can wait for its reader. An empty one has no reader to wait for.
            None => Chunk::new(want, net, self.is_empty())?,
        };
        self.chunks.push_back(fresh);
        Ok(())
    }

    /// Makes room in the list for one more chunk, and gives an empty one to be filled outside the lock and
    /// [added](Self::add): the spare one, if it is large enough.
    pub(super) fn prepare(&mut self, want: usize) -> Result<Option<Chunk>, AllocError> {
        self.reserve()?;
        Ok(self.spare.take_if(|spare| spare.capacity() >= want.min(LARGE)))
    }

    /// A chunk, for one who has got none from [`prepare`](Self::prepare).
    ///
    /// # Errors
    /// [`Refused`].
    pub(super) fn allocate(want: usize, net: NetRef) -> Result<Chunk, Refused> {
        Chunk::new(want, net, false)
    }

    /// Adds a chunk that was filled outside the lock. There is room: nobody else has added one since
    /// [`prepare`](Self::prepare).
    pub(super) fn add(&mut self, chunk: Chunk) {
        // An empty last chunk would hide this one.
        if let Some(empty) = self.chunks.pop_back_if(|last| last.start == last.end) {
            self.recycle(empty);
        }
        self.len += chunk.bytes().len();
        self.chunks.push_back(chunk);
    }

    /// Gives bytes away under the lock: up to `n` of the first chunk.
    pub(super) fn give(&mut self, n: usize, take: impl FnOnce(&[u8])) -> usize {
        let Some(first) = self.chunks.front_mut() else { return 0 };
        let n = n.min(first.end - first.start);
        take(&first.bytes()[..n]);
        first.start += n;
        self.len -= n;
        if first.start == first.end {
            first.start = 0;
            first.end = 0;
            if self.chunks.len() > 1 {
                let empty = self.chunks.pop_front();
                empty.into_iter().for_each(|chunk| self.recycle(chunk));
            }
        }
        n
    }

    /// Shows bytes without giving them away, past the first `skip` of them, until `take` has enough.
    pub(super) fn show(&self, mut skip: usize, mut take: impl FnMut(&[u8]) -> usize) -> usize {
        let mut shown = 0;
        for chunk in &self.chunks {
            let bytes = chunk.bytes();
            let past = skip.min(bytes.len());
            skip -= past;
            let bytes = &bytes[past..];
            let n = take(bytes);
            shown += n;
            if n < bytes.len() {
                break;
            }
        }
        shown
    }

    /// Takes the first chunk out, if it is worth to be emptied outside the lock and has not more than `n` bytes. Its bytes
    /// count until [`emptied`](Self::emptied).
    pub(super) fn take(&mut self, n: usize) -> Option<Chunk> {
        self.chunks.pop_front_if(|first| (SMALL / 2 + 1..=n).contains(&first.bytes().len()))
    }

    /// A chunk from [`take`](Self::take) comes back empty.
    pub(super) fn emptied(&mut self, mut chunk: Chunk) {
        self.len -= chunk.bytes().len();
        (chunk.start, chunk.end) = (0, 0);
        self.recycle(chunk);
    }

    /// Drops all bytes; how many there were.
    pub(super) fn clear(&mut self) -> usize {
        let bytes = self.chunks.iter().map(|chunk| chunk.bytes().len()).sum();
        // What is being emptied still counts.
        self.len -= bytes;
        self.chunks.clear();
        self.spare = None;
        bytes
    }

    /// Makes room for one more chunk in the list.
    fn reserve(&mut self) -> Result<(), AllocError> {
        if self.chunks.len() == self.chunks.capacity() {
            fault::check()?;
            self.chunks.try_reserve(1).map_err(|_| AllocError)?;
        }
        Ok(())
    }

    /// Keeps the larger of two empty chunks.
    fn recycle(&mut self, mut chunk: Chunk) {
        (chunk.start, chunk.end) = (0, 0);
        let better = |spare: &Chunk| spare.capacity() < chunk.capacity();
        if self.spare.as_ref().is_none_or(better) {
            self.spare = Some(chunk);
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests;
