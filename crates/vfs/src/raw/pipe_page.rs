//! The pages of pipes, and who may read and write which bytes of them.
//!
//! ```text
//!   Buffer ── counts 1 ──> Page          Pages ── owns those that no buffer has
//!
//!   page   | read already | bytes of a buffer, of several | free: for the one buffer that may grow |
//! ```
//!
//! A page may be in several buffers, of several pipes, when they share it (`tee`, `splice`). At most one of them may grow,
//! and it writes only where no buffer has bytes yet; all others only read. A buffer that is in no ring, and has its page alone, may
//! be written as a whole: a page that is to be given to a pipe.

use crate::file::{Sink, Source};
use crate::pipe::PipeLimits;
use core::ptr::NonNull;
use quietline_platform::AllocError;
use quietline_platform::atomic::{AtomicU32, Ordering};
use quietline_platform::cell::UnsafeCell;
use quietline_platform::pages::PAGE_SIZE;
use quietline_slab::{Hook, LazyCache, Options};
use quietline_sync::rcu::Domain;

/// A page, and how many buffers it is in. Its bytes are always initialised: zeros, or what somebody wrote.
#[repr(C, align(64))]
struct Page {
    /// Read and written as buffers say.
    bytes: UnsafeCell<[u8; PAGE_SIZE]>,
    buffers: AtomicU32,
}

/// The pages of a kernel's pipes, and the limits of these.
///
/// It must stay where it is while there are pipes: they point to it.
#[derive(Debug)]
pub(crate) struct Pages {
    cache: LazyCache,
    limits: PipeLimits,
}

/// Where a pipe gets its pages from and gives them back.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct PagesRef(NonNull<Pages>);

// SAFETY: what it points to is shared by design.
unsafe impl Send for PagesRef {}
// SAFETY: as above.
unsafe impl Sync for PagesRef {}

/// Bytes in a page. Given back by [`PagesRef::put`], else the page is lost.
#[derive(Debug)]
#[must_use = "a buffer is given back to its pages"]
pub(crate) struct Buffer {
    page: NonNull<Page>,
    start: u16,
    len: u16,
    /// Whether it is the one that may grow.
    grows: bool,
    /// Whether it is read as a whole, or the rest of it is lost (`O_DIRECT`).
    packet: bool,
}

// SAFETY: a buffer has its bytes to itself, or shares them with those who only read.
unsafe impl Send for Buffer {}
// SAFETY: as above.
unsafe impl Sync for Buffer {}

impl Pages {
    /// None yet.
    pub(crate) fn new(domain: &'static Domain) -> Self {
        unsafe fn construct(page: NonNull<u8>) {
            // SAFETY: memory for a page, which is the constructor's; all of its fields may be zero.
            unsafe { page.cast::<Page>().write_bytes(0, 1) };
        }
        // No page waits for a grace period.
        let options =
            |_| Options { ctor: Some(Hook::new(construct)), ..Options::of::<Page>("pipe_page") };
        // SAFETY: the hook is for memory of this size and alignment.
        Self { cache: unsafe { LazyCache::new(options, domain) }, limits: PipeLimits::new() }
    }

    /// For a pipe that is gone before these are, or has given back all of its pages; or for buffers in no pipe, of whoever has borrowed
    /// the kernel.
    pub(crate) fn of_a_pipe(&self) -> PagesRef {
        PagesRef(NonNull::from(self))
    }

    /// The limits of the kernel's pipes.
    pub(crate) fn limits(&self) -> &PipeLimits {
        &self.limits
    }

    /// The cache of pages.
    pub(crate) fn cache(&self) -> &LazyCache {
        &self.cache
    }
}

impl PagesRef {
    fn pages(&self) -> &Pages {
        // SAFETY: whoever made it promised that a pipe with buffers, or that makes any, is gone before the pages are: they are
        // the kernel's, which outlives its files, and buffers are made by files, or by who has borrowed it.
        unsafe { self.0.as_ref() }
    }

    /// The limits of the kernel's pipes.
    pub(crate) fn limits(&self) -> &PipeLimits {
        self.pages().limits()
    }

    /// An empty buffer, which may grow.
    ///
    /// # Errors
    /// [`AllocError`].
    #[inline]
    pub(crate) fn get(&self) -> Result<Buffer, AllocError> {
        let page = self.pages().cache.alloc()?.cast::<Page>();
        // Relaxed: nobody else has the page. SAFETY: constructed memory of ours.
        unsafe { page.as_ref() }.buffers.store(1, Ordering::Relaxed);
        Ok(Buffer { page, start: 0, len: 0, grows: true, packet: false })
    }

    /// Ends a buffer; if its page is in no other one, it is an empty one that may grow.
    #[inline]
    pub(crate) fn recycle(&self, buffer: Buffer) -> Option<Buffer> {
        // ORDERING: Acquire pairs with the release below: what the others read was read before somebody writes there anew.
        if buffer.page().buffers.load(Ordering::Acquire) != 1 {
            self.put_shared(buffer);
            return None;
        }
        Some(Buffer { page: buffer.page, start: 0, len: 0, grows: true, packet: false })
    }

    /// Ends a buffer.
    pub(crate) fn put(&self, buffer: Buffer) {
        if let Some(last) = self.recycle(buffer) {
            // SAFETY: from this cache, and in no buffer any more.
            unsafe { self.pages().cache.free(last.page.cast()) };
        }
    }

    #[cold]
    fn put_shared(&self, buffer: Buffer) {
        // ORDERING: Release: what this buffer's owner read or wrote there comes before; Acquire, for the last: so did all the
        // others'.
        if buffer.page().buffers.fetch_sub(1, Ordering::AcqRel) == 1 {
            // SAFETY: from this cache, and in no buffer any more.
            unsafe { self.pages().cache.free(buffer.page.cast()) };
        }
    }
}

impl Buffer {
    #[inline(always)]
    fn page(&self) -> &Page {
        // SAFETY: the buffer's count keeps the page. (Its bytes are only reached by pointer.)
        unsafe { self.page.as_ref() }
    }

    #[inline(always)]
    fn at(&self, offset: usize) -> NonNull<u8> {
        debug_assert!(offset <= PAGE_SIZE);
        // SAFETY: inside the page, or just behind its bytes.
        unsafe { self.page.cast::<u8>().add(offset) }
    }

    /// How many bytes are in it.
    #[inline(always)]
    pub(crate) fn len(&self) -> usize {
        self.len.into()
    }

    /// Whether the rest of it is lost when a part has been read.
    #[inline(always)]
    pub(crate) fn is_packet(&self) -> bool {
        self.packet
    }

    /// Makes it a packet: nothing is added to it any more.
    #[inline(always)]
    pub(crate) fn seal(&mut self, packet: bool) {
        self.packet = packet;
    }

    /// Nothing is added to it any more.
    pub(crate) fn close(&mut self) {
        self.grows = false;
    }

    /// Bytes that can be added.
    #[inline(always)]
    pub(crate) fn room(&self) -> usize {
        let end = usize::from(self.start) + usize::from(self.len);
        if self.grows && !self.packet { PAGE_SIZE - end } else { 0 }
    }

    /// The bytes.
    #[inline(always)]
    pub(crate) fn bytes(&self) -> &[u8] {
        // SAFETY: initialised, and nobody writes bytes that are in a buffer meanwhile: the one that grows writes behind its own, where
        // nobody's are, and what `alone` writes is in no other than the one that it has borrowed.
        unsafe { core::slice::from_raw_parts(self.at(self.start.into()).as_ptr(), self.len.into()) }
    }

    /// Takes bytes from a source, as many as there are and there is room for behind those that it has: how many. To be called
    /// on the one that grows.
    #[inline(always)]
    pub(crate) fn fill(&mut self, from: &mut Source<'_, '_>) -> usize {
        self.fill_by(from.left(), |to| from.take(to))
    }

    /// As [`fill`](Self::fill), at most `most` bytes that `read` writes: how many it says.
    #[inline(always)]
    pub(crate) fn fill_by(&mut self, most: usize, read: impl FnOnce(&mut [u8]) -> usize) -> usize {
        assert!(self.grows, "only one buffer of a page grows");
        // For a model that counts lines: of the bytes, that of the first.
        self.page().bytes.with_mut(|_| ());
        let end = usize::from(self.start) + usize::from(self.len);
        let n = most.min(PAGE_SIZE - end);
        // SAFETY: initialised, and nobody else's: this is the one buffer that grows, and it grows from its end, behind which no
        // buffer has bytes.
        let n = read(unsafe { core::slice::from_raw_parts_mut(self.at(end).as_ptr(), n) }).min(n);
        self.len += n as u16;
        n
    }

    /// Gives bytes to a sink, as many as there are and it has room for: how many.
    #[inline(always)]
    pub(crate) fn drain(&mut self, to: &mut Sink<'_, '_>) -> usize {
        // As in `fill_by`.
        self.page().bytes.with(|_| ());
        let n = to.put(self.bytes());
        self.skip(n);
        n
    }

    /// All bytes from its first one to the end of the page, to be written, if the page is in no other buffer.
    pub(crate) fn alone(&mut self) -> Option<&mut [u8]> {
        // ORDERING: Acquire pairs with the release in `put_shared`: what the others read was read before somebody writes there.
        if self.page().buffers.load(Ordering::Acquire) != 1 {
            return None;
        }
        // As in `fill_by`.
        self.page().bytes.with_mut(|_| ());
        let start = usize::from(self.start);
        // SAFETY: initialised, and nobody else's: the page is in this buffer only, which is borrowed uniquely, and a count of one
        // grows only by way of it.
        Some(unsafe { core::slice::from_raw_parts_mut(self.at(start).as_ptr(), PAGE_SIZE - start) })
    }

    /// Changes how many bytes are in it; more are what is there already.
    ///
    /// # Panics
    /// If they are more than the page has, or others have anything of it: they may be writing there.
    pub(crate) fn set_len(&mut self, len: usize) {
        let room = self.alone().map_or(0, |room| room.len());
        assert!(len <= room, "only one who is alone says how many");
        self.len = len as u16;
    }

    /// Passes over the first `n` bytes.
    #[inline(always)]
    pub(crate) fn skip(&mut self, n: usize) {
        debug_assert!(n <= self.len());
        self.start += n as u16;
        self.len -= n as u16;
    }

    /// Another buffer of the same page with the first `n` bytes, which does not grow.
    pub(crate) fn share(&self, n: usize) -> Buffer {
        // Relaxed: a new count comes from an old one.
        self.page().buffers.fetch_add(1, Ordering::Relaxed);
        Buffer {
            page: self.page,
            start: self.start,
            len: n.min(self.len()) as u16,
            grows: false,
            packet: self.packet,
        }
    }
}
