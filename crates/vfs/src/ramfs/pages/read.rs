//! Reading.

use super::{PAGE_SIZE, PageTree};
use quietline_platform::atomic::{Ordering, fence};
use quietline_sync::rcu::Guard;

/// Bytes that are read in one section.
const PIECE: usize = 256 << 10;

impl PageTree<'_> {
    /// Copies bytes from `offset` on out; how many: fewer than asked for only at the end of the file. Holes are zeros.
    ///
    /// Writes no shared line. O(height) for each page.
    ///
    /// # Panics
    /// When the section is one of another domain than the caches'.
    #[inline]
    pub fn read_at(&self, section: &Guard<'_>, offset: u64, to: &mut [u8]) -> usize {
        let pages = self.reader(section);
        let size = self.size();
        if offset >= size {
            return 0;
        }
        let n = to.len().min(usize::try_from(size - offset).unwrap_or(usize::MAX));
        for (index, at, piece) in Pieces::new(offset, n) {
            let to = &mut to[piece];
            match pages.find(index) {
                Some(page) => page.read(at, to),
                None => to.fill(0),
            }
        }
        // ORDERING: pairs with the release fence in `PageWriter::set_size`: if zeros came out because the file was cut, the
        // size below says so.
        fence(Ordering::Acquire);
        let size = self.size();
        n.min(usize::try_from(size.saturating_sub(offset)).unwrap_or(usize::MAX))
    }

    /// As [`read_at`](Self::read_at), in sections of its own, each short.
    pub fn read(&self, offset: u64, to: &mut [u8]) -> usize {
        let mut done = 0;
        for piece in to.chunks_mut(PIECE) {
            let section = self.caches().domain().read();
            let n = self.read_at(&section, offset.saturating_add(done as u64), piece);
            done += n;
            if n < piece.len() {
                break;
            }
        }
        done
    }
}

/// The page that an offset is in.
pub(super) fn page_of(offset: u64) -> u64 {
    offset / PAGE_SIZE as u64
}

/// How `n` bytes from an offset on lie in pages: index, where in it, which of the bytes.
pub(super) struct Pieces {
    offset: u64,
    done: usize,
    n: usize,
}

impl Pieces {
    /// The end does not go beyond the largest offset.
    #[inline(always)]
    pub(super) fn new(offset: u64, n: usize) -> Self {
        Self { offset, done: 0, n }
    }
}

impl Iterator for Pieces {
    type Item = (u64, usize, core::ops::Range<usize>);

    #[inline(always)]
    fn next(&mut self) -> Option<Self::Item> {
        if self.done == self.n {
            return None;
        }
        let from = self.offset + self.done as u64;
        let at = from as usize % PAGE_SIZE;
        let end = self.n.min(self.done + PAGE_SIZE - at);
        let piece = self.done..end;
        self.done = end;
        Some((page_of(from), at, piece))
    }
}
