//! Where there is data, and where there is none.

use super::{PAGE_SIZE, PageTree, page_of};
use quietline_sync::rcu::Guard;
use rustix::io::Errno;

/// What is looked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Seek {
    /// A page that was written (`SEEK_DATA`).
    Data,
    /// One that was not, or the end of the file (`SEEK_HOLE`).
    Hole,
}

impl PageTree<'_> {
    /// The first offset from `offset` on that is in data, or in a hole, as tmpfs answers it: by whole pages, a page that is only
    /// reserved being a hole.
    ///
    /// Writes no line. One word for each page that is passed over.
    ///
    /// # Errors
    /// `ENXIO` from the end of the file on, and where no data follows.
    ///
    /// # Panics
    /// When the section is one of another domain than the caches'.
    pub fn seek(&self, section: &Guard<'_>, offset: u64, what: Seek) -> Result<u64, Errno> {
        let pages = self.reader(section);
        let size = self.size();
        if offset >= size {
            return Err(Errno::NXIO);
        }
        let found = pages.next(page_of(offset), what == Seek::Data);
        // The page that the offset is in begins before it.
        let found = found.map(|index| index.saturating_mul(PAGE_SIZE as u64).max(offset));
        match what {
            Seek::Data => found.filter(|at| *at < size).ok_or(Errno::NXIO),
            Seek::Hole => Ok(found.unwrap_or(size).min(size)),
        }
    }
}
