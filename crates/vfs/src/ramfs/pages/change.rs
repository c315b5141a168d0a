//! Writing, cutting, reserving and punching.

use super::{MAX_SIZE, PAGE_SIZE, PageTree, PageWriter, Pieces, Quota, page_of};
use crate::raw::page_tree::{Page, Place};
use quietline_sync::rcu::Guard;
use rustix::io::Errno;

/// Pages that [`PageWriter::reserve_some`] makes at once.
pub const RESERVE_TURN: u64 = 256;

/// A part of a file in which pages are being made, turn by turn.
#[derive(Debug)]
#[must_use = "its pages are charged"]
pub struct Reservation {
    /// The next page to be made.
    next: u64,
    after: u64,
    /// The end in bytes.
    end: u64,
    /// Pages that are charged and not made.
    paid: u64,
    /// The first page that the reservation takes back. Since the pages from it on were made, no
    /// page of the file was removed, so each of them that is unwritten is the reservation's.
    own: u64,
    /// The [number of removals](PageWriter::removals) when pages were made last.
    removals: u32,
}

impl Reservation {
    /// Gives up the pages made so far if pages of the file were removed since the last turn: in
    /// their place may be pages that others have reserved.
    fn check_own(&mut self, removals: u32) {
        if self.removals != removals {
            (self.own, self.removals) = (self.next, removals);
        }
    }
}

impl PageWriter<'_, '_> {
    /// The file's size, which nobody else changes now.
    pub fn size(&self) -> u64 {
        self.tree().size()
    }

    /// Writes bytes from `offset` on; the file grows as needed. How many were written: fewer than given where the room, the
    /// memory or the largest size ends.
    ///
    /// Writes no shared line but those of the file.
    ///
    /// # Errors
    /// When nothing could be written: `ENOSPC` if the quota refuses, `ENOMEM`, `EFBIG` at the largest size.
    #[inline]
    pub fn write_at(
        &mut self,
        quota: &impl Quota,
        offset: u64,
        from: &[u8],
    ) -> Result<usize, Errno> {
        self.fill(quota, offset, from.len(), |page, at, piece| page.write(at, &from[piece]))
    }

    /// Writes bytes at the end of the file: the offset, and how many. For `O_APPEND`.
    ///
    /// # Errors
    /// As [`write_at`](Self::write_at).
    pub fn append(&mut self, quota: &impl Quota, from: &[u8]) -> Result<(u64, usize), Errno> {
        let end = self.size();
        Ok((end, self.write_at(quota, end, from)?))
    }

    /// Copies `n` bytes from another file, or from another part of this one, page to page (`copy_file_range`): to `offset`,
    /// from `start` on. How many were copied: fewer at the end of the source, and as [`write_at`](Self::write_at). Holes are
    /// written as zeros, as on tmpfs.
    ///
    /// The section is open all the while: copy large files in pieces.
    ///
    /// # Errors
    /// As [`write_at`](Self::write_at); `EINVAL` if the file is the same and the parts overlap.
    ///
    /// # Panics
    /// When the section is one of another domain than that of the source's caches.
    pub fn copy_from(
        &mut self,
        quota: &impl Quota,
        source: &PageTree<'_>,
        section: &Guard<'_>,
        start: u64,
        offset: u64,
        n: usize,
    ) -> Result<usize, Errno> {
        let n = n.min(usize::try_from(source.size().saturating_sub(start)).unwrap_or(usize::MAX));
        if core::ptr::addr_eq(source, self.tree()) && start.abs_diff(offset) < n as u64 {
            return Err(Errno::INVAL);
        }
        let pages = source.reader(section);
        self.fill(quota, offset, n, |page, at, piece| {
            for (index, from, part) in Pieces::new(start + piece.start as u64, piece.len()) {
                match pages.find(index) {
                    Some(source) => page.write_from(at + part.start, source, from, part.len()),
                    None => page.zero(at + part.start..at + part.end),
                }
            }
        })
    }

    /// Makes the file so large: cuts it, or lets a hole follow (`ftruncate`). Pages beyond the end go, also when the size stays
    /// as it is.
    ///
    /// # Errors
    /// `EFBIG` beyond the largest size.
    pub fn truncate(&mut self, quota: &impl Quota, size: u64) -> Result<(), Errno> {
        if size > MAX_SIZE {
            return Err(Errno::FBIG);
        }
        let grows = size > self.size();
        // First, so that whoever misses what goes below sees why.
        self.set_size(size);
        if !grows {
            quota.uncharge(self.cut(size.div_ceil(PAGE_SIZE as u64), u64::MAX));
            self.zero_part(size, (size as usize).next_multiple_of(PAGE_SIZE) - size as usize);
        }
        Ok(())
    }

    /// Frees the pages in a part of the file and zeroes the rest of it; the size stays (`FALLOC_FL_PUNCH_HOLE`).
    pub fn punch_hole(&mut self, quota: &impl Quota, offset: u64, n: u64) {
        let end = offset.saturating_add(n);
        let (first, after) = (offset.div_ceil(PAGE_SIZE as u64), page_of(end));
        if first < after {
            quota.uncharge(self.cut(first, after - 1));
        }
        if first > after {
            return self.zero_part(offset, n as usize);
        }
        let before = first * PAGE_SIZE as u64 - offset;
        self.zero_part(offset, before as usize);
        self.zero_part(after * PAGE_SIZE as u64, end as usize % PAGE_SIZE);
    }

    /// Makes all pages of a part of the file, all or none; no byte below the end changes (`fallocate`). The file grows to its
    /// end, unless `keep_size`. A page that was reserved before counts as data from now on, which is a whim of tmpfs.
    ///
    /// The lock is held all the while: [`reserve`](Self::reserve) makes the pages of a large part
    /// in turns.
    ///
    /// # Errors
    /// `ENOSPC` if the quota refuses, `ENOMEM`, `EFBIG` beyond the largest size; `EINVAL` for an empty part.
    pub fn allocate(
        &mut self,
        quota: &impl Quota,
        offset: u64,
        n: u64,
        keep_size: bool,
    ) -> Result<(), Errno> {
        let mut reservation = self.reserve(quota, offset, n)?;
        loop {
            match self.reserve_some(quota, &mut reservation) {
                Ok(true) => break,
                Ok(false) => {}
                Err(errno) => {
                    while !self.unreserve_some(quota, &mut reservation) {}
                    return Err(errno);
                }
            }
        }
        self.reserved(quota, reservation, keep_size);
        Ok(())
    }

    /// Begins to make all pages of a part of the file: charges the quota for them. The caller goes
    /// on with [`reserve_some`](Self::reserve_some) and ends with [`reserved`](Self::reserved), or
    /// with [`unreserve_some`](Self::unreserve_some). It may release the lock in between.
    ///
    /// # Errors
    /// `ENOSPC` if the quota refuses, `EFBIG` beyond the largest size; `EINVAL` for an empty part.
    pub fn reserve(
        &mut self,
        quota: &impl Quota,
        offset: u64,
        n: u64,
    ) -> Result<Reservation, Errno> {
        if n == 0 {
            return Err(Errno::INVAL);
        }
        let end = offset.checked_add(n).filter(|end| *end <= MAX_SIZE).ok_or(Errno::FBIG)?;
        let (first, after) = (page_of(offset), end.div_ceil(PAGE_SIZE as u64));
        // The room for all of it first: what there is not room for takes none from others meanwhile.
        let paid = (after - first) - self.count(first, after - 1);
        if !quota.charge(paid) {
            self.reserve_again(first..after, quota.left());
            return Err(Errno::NOSPC);
        }
        let removals = self.removals();
        Ok(Reservation { next: first, after, end, paid, own: first, removals })
    }

    /// Makes the next [`RESERVE_TURN`] pages of a reservation. Returns `true` if they were the
    /// last.
    ///
    /// # Errors
    /// `ENOMEM`; `ENOSPC` if pages that there were have gone and the quota refuses new ones. Then
    /// the reservation is to be taken back.
    pub fn reserve_some(
        &mut self,
        quota: &impl Quota,
        reservation: &mut Reservation,
    ) -> Result<bool, Errno> {
        reservation.check_own(self.removals());
        let end = reservation.after.min(reservation.next.saturating_add(RESERVE_TURN));
        while reservation.next < end {
            let index = reservation.next;
            match self.place(index) {
                Place::Hole => {
                    if reservation.paid == 0 {
                        if !quota.charge(1) {
                            return Err(Errno::NOSPC);
                        }
                        reservation.paid = 1;
                    }
                    self.make_paid(index, false, |_| {})?;
                    reservation.paid -= 1;
                }
                Place::Written(_) => {}
                Place::Unwritten(page) => {
                    page.zero(0..PAGE_SIZE);
                    self.mark_written(index);
                }
            }
            reservation.next += 1;
        }
        Ok(reservation.next == reservation.after)
    }

    /// Takes the last pages back that a reservation has made. Returns `true` if none is left. Pages
    /// that were there before stay: they are all written by now. Pages that the reservation has
    /// made before others removed pages of the file stay too.
    pub fn unreserve_some(&mut self, quota: &impl Quota, reservation: &mut Reservation) -> bool {
        reservation.check_own(self.removals());
        let end = reservation.own.max(reservation.next.saturating_sub(RESERVE_TURN));
        while reservation.next > end {
            reservation.next -= 1;
            if let Place::Unwritten(_) = self.place(reservation.next) {
                reservation.paid += self.remove(reservation.next, reservation.next);
            }
        }
        quota.uncharge(core::mem::take(&mut reservation.paid));
        reservation.next == reservation.own
    }

    /// Ends a reservation after all its pages were made. The file grows to its end, unless
    /// `keep_size`.
    pub fn reserved(&mut self, quota: &impl Quota, reservation: Reservation, keep_size: bool) {
        // Others have made pages in it meanwhile.
        quota.uncharge(reservation.paid);
        if !keep_size && reservation.end > self.size() {
            self.set_size(reservation.end);
        }
    }

    /// What becomes of pages that were reserved before when there is no room for all that is asked for: as on tmpfs they count as
    /// data, as far as room for `left` more would have brought it.
    #[cold]
    fn reserve_again(&mut self, pages: core::ops::Range<u64>, mut left: u64) {
        for index in pages {
            match self.place(index) {
                Place::Hole if left == 0 => return,
                Place::Hole => left -= 1,
                Place::Written(_) => {}
                Place::Unwritten(page) => {
                    page.zero(0..PAGE_SIZE);
                    self.mark_written(index);
                }
            }
        }
    }

    /// Writes `n` bytes, each piece by `write`, which is given the page, where in it, and which of the bytes.
    #[inline(always)]
    fn fill(
        &mut self,
        quota: &impl Quota,
        offset: u64,
        n: usize,
        write: impl Fn(Page<'_>, usize, core::ops::Range<usize>),
    ) -> Result<usize, Errno> {
        if n == 0 {
            return Ok(0);
        }
        if offset >= MAX_SIZE {
            return Err(Errno::FBIG);
        }
        let n = n.min(usize::try_from(MAX_SIZE - offset).unwrap_or(usize::MAX));
        let mut done = 0;
        for (index, at, piece) in Pieces::new(offset, n) {
            let (start, end) = (done, piece.end);
            match self.place(index) {
                Place::Written(page) => write(page, at, piece),
                Place::Unwritten(page) => {
                    whole(page, at, piece, &write);
                    self.mark_written(index);
                }
                Place::Hole => {
                    match self.make(quota, index, true, |page| whole(page, at, piece, &write)) {
                        Ok(()) => {}
                        Err(errno) if start == 0 => return Err(errno),
                        Err(_) => break,
                    }
                }
            }
            done = end;
        }
        if offset + done as u64 > self.size() {
            self.set_size(offset + done as u64);
        }
        Ok(done)
    }

    /// Makes a page where there is a hole: filled by `fill` and then seen, or reserved.
    fn make(
        &mut self,
        quota: &impl Quota,
        index: u64,
        written: bool,
        fill: impl FnOnce(Page<'_>),
    ) -> Result<(), Errno> {
        if !quota.charge(1) {
            return Err(Errno::NOSPC);
        }
        self.make_paid(index, written, fill).inspect_err(|_| quota.uncharge(1))
    }

    /// [`make`](Self::make) with room that has been taken.
    fn make_paid(
        &mut self,
        index: u64,
        written: bool,
        fill: impl FnOnce(Page<'_>),
    ) -> Result<(), Errno> {
        let made = self.fresh().and_then(|page| {
            fill(page.page());
            self.insert(index, page, written)
        });
        made.map_err(|_| Errno::NOMEM)
    }

    /// Zeroes bytes of one page, if it is there and has been written.
    fn zero_part(&mut self, offset: u64, n: usize) {
        let at = offset as usize % PAGE_SIZE;
        if n > 0
            && let Place::Written(page) = self.place(page_of(offset))
        {
            page.zero(at..at + n);
        }
    }
}

/// Fills a page that nobody sees yet: a piece by `write`, the rest with zeros.
#[inline(always)]
fn whole(
    page: Page<'_>,
    at: usize,
    piece: core::ops::Range<usize>,
    write: impl Fn(Page<'_>, usize, core::ops::Range<usize>),
) {
    let end = at + piece.len();
    page.zero(0..at);
    write(page, at, piece);
    page.zero(end..PAGE_SIZE);
}

impl PageTree<'_> {
    /// Gives all pages back, at once: for a file that ends. (To drop it frees its pages too, but tells no quota.)
    pub fn clear(&mut self, quota: &impl Quota) {
        quota.uncharge(self.free_all());
    }
}
