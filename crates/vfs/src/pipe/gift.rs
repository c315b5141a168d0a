//! Pages that go into a pipe and come out of it by reference: no byte of them is copied.
//!
//! # The problem
//!
//! `vmsplice` with `SPLICE_F_GIFT` gives a pipe the caller's page itself, and trusts the caller never to write to it again. A
//! library could not even do the first: memory that is borrowed must be let go when the call ends.
//!
//! # Our way
//!
//! The page comes from where the pipe's own come from, and is its maker's alone ([`GiftPage`]). Who gives it cannot write to
//! it any more, because he has not got it any more; that is all there is to trust. At the other end whoever reads takes it as it
//! is ([`TakenPage`]), and if nobody shares it, it may be written and given again.
//!
//! ```text
//!   Vfs ── gift_page ──> GiftPage ── give_pages ──> a buffer in the ring ── take_pages ──> TakenPage
//!                           └──────────────────────────── into_gift, if alone ────────────────┘
//! ```
//!
//! # Guarantees
//!
//! * Nothing is added to a page that was given, neither by a later write nor by a splice: what a `tee` has of it stays as it is.
//! * Pages come in their order among all other bytes of the pipe.
//!
//! # Limits
//!
//! A page takes a place of the ring, however few bytes are in it. Pages that callers hold are bounded by memory only.
//!
//! # Lock order
//!
//! A pipe's lock.

use super::core::PipeCore;
use super::splice::Stop;
use crate::raw::pipe_page::{Buffer, PagesRef};
use crate::vfs::Vfs;
use ::core::fmt;
use ::core::marker::PhantomData;
use ::core::ops::Deref;
use rustix::io::Errno;

/// A page with bytes, of a kernel that stays.
struct Page<'k> {
    /// None when somebody else has it.
    buffer: Option<Buffer>,
    pages: PagesRef,
    kernel: PhantomData<&'k Vfs>,
}

/// A page to be given to a pipe: filled by whoever has it, who has it alone.
///
/// Made by [`Vfs::gift_page`]. It is the kernel's memory: it goes to pipes of that kernel only, or back when it is dropped.
#[derive(Debug)]
pub struct GiftPage<'k> {
    page: Page<'k>,
    /// The bytes behind those that are to be given have been cleared, or written by the maker.
    is_cleared: bool,
}

/// What was first in a pipe, in the page that it lay in.
///
/// Others may have the same page, or other bytes of it: after `tee`, and where a part was spliced.
#[derive(Debug)]
pub struct TakenPage<'k>(Page<'k>);

impl Page<'_> {
    fn buffer(&self) -> &Buffer {
        self.buffer.as_ref().expect("it has not been given")
    }

    fn buffer_mut(&mut self) -> &mut Buffer {
        self.buffer.as_mut().expect("it has not been given")
    }
}

impl Drop for Page<'_> {
    fn drop(&mut self) {
        if let Some(buffer) = self.buffer.take() {
            self.pages.put(buffer);
        }
    }
}

impl fmt::Debug for Page<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Page").field("len", &self.buffer().len()).finish_non_exhaustive()
    }
}

impl<'k> GiftPage<'k> {
    fn new(page: Page<'k>) -> Self {
        Self { page, is_cleared: false }
    }

    /// Returns all bytes that there is room for, from the first that is to be given on: 4,096 in a
    /// new page. Bytes behind those that are to be given are zero, or of an earlier call. The first
    /// call clears them: the page may come from a pipe of another process.
    pub fn room(&mut self) -> &mut [u8] {
        let buffer = self.page.buffer_mut();
        let len = buffer.len();
        let room = buffer.alone().expect("a gift's page is in no other buffer");
        if !self.is_cleared {
            room[len..].fill(0);
            self.is_cleared = true;
        }
        room
    }

    /// Says how many of them are to be given.
    ///
    /// # Panics
    /// If there is no room for so many.
    pub fn set_len(&mut self, len: usize) {
        assert!(len <= self.room().len(), "there is room for what is given");
        self.page.buffer_mut().set_len(len);
    }

    /// Empties it, so that it has all of its room again. Other readers may have had the bytes before
    /// its first one, so they are cleared again.
    pub fn clear(&mut self) {
        let buffer = self.page.buffer.take().expect("it has not been given");
        self.page.buffer = self.page.pages.recycle(buffer);
        self.is_cleared = false;
    }
}

/// The bytes that are to be given.
impl Deref for GiftPage<'_> {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        self.page.buffer().bytes()
    }
}

impl<'k> TakenPage<'k> {
    /// To be written to, or given again, if nobody else has anything of the page.
    ///
    /// # Errors
    /// The page, if somebody has.
    pub fn into_gift(mut self) -> Result<GiftPage<'k>, Self> {
        if self.0.buffer_mut().alone().is_none() {
            return Err(self);
        }
        self.0.buffer_mut().seal(false);
        Ok(GiftPage::new(self.0))
    }
}

/// The bytes that were in the pipe.
impl Deref for TakenPage<'_> {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        self.0.buffer().bytes()
    }
}

impl Vfs {
    /// An empty page, to be filled and given to a pipe.
    ///
    /// # Errors
    /// `ENOMEM`.
    pub fn gift_page(&self) -> Result<GiftPage<'_>, Errno> {
        let pages = self.pipe_pages.of_a_pipe();
        let buffer = pages.get().map_err(|_| Errno::NOMEM)?;
        Ok(GiftPage::new(Page { buffer: Some(buffer), pages, kernel: PhantomData }))
    }

    /// Takes what is in a pipe, page by page, as many as there are vacant places in `to`: how many bytes; 0 if nobody will write any.
    /// The few bytes that lie beside the pipe's lock are put into a page first; a packet is a page.
    ///
    /// Waits, if `waits`, until there is something.
    ///
    /// Writes the pipe's two lines, and those of its writers' queue if anybody waits there.
    ///
    /// # Errors
    /// `EAGAIN`, `EINTR`, `ENOMEM`; `EXDEV` for a pipe of another kernel.
    pub fn take_pages<'k>(
        &'k self,
        pipe: &PipeCore,
        waits: bool,
        to: &mut [Option<TakenPage<'k>>],
    ) -> Result<usize, Errno> {
        if pipe.pages != self.pipe_pages.of_a_pipe() {
            return Err(Errno::XDEV);
        }
        if to.iter().all(Option::is_some) {
            return Ok(0);
        }
        loop {
            let mut state = pipe.state.lock();
            if state.is_one_out {
                drop(state);
                pipe.until_readable(waits)?;
                continue;
            }
            pipe.unfold(&mut state)?;
            let mut done = 0;
            for place in to.iter_mut().filter(|place| place.is_none()) {
                let Some(buffer) = state.ring.pop() else { break };
                done += buffer.len();
                let page = Page { buffer: Some(buffer), pages: pipe.pages, kernel: PhantomData };
                *place = Some(TakenPage(page));
            }
            let ended = state.writers == 0;
            pipe.release(state);
            if done != 0 {
                pipe.tell_writers();
            }
            if done != 0 || ended {
                return Ok(done);
            }
            pipe.until_readable(waits)?;
        }
    }
}

/// Puts pages into a pipe, in their order and as long as there is room: how many bytes. Those that went are taken from their
/// places, those for which there was no room stay; an empty one goes back to the kernel. Places without a page are passed over.
///
/// Waits, if `waits`, until there is room for one.
///
/// Writes the pipe's two lines, and those of its readers' queue if anybody waits there.
///
/// # Errors
/// `EAGAIN`, `EINTR`, `ENOMEM`; `EXDEV` if one is another kernel's; a pipe that nobody reads. All pages with bytes stay then.
pub fn give_pages(
    pipe: &PipeCore,
    waits: bool,
    pages: &mut [Option<GiftPage<'_>>],
) -> Result<usize, Stop> {
    if pages.iter().flatten().any(|page| page.page.pages != pipe.pages) {
        return Err(Errno::XDEV.into());
    }
    for place in &mut *pages {
        // No buffer in a ring is empty.
        if place.as_ref().is_some_and(|page| page.is_empty()) {
            *place = None;
        }
    }
    if pages.iter().all(Option::is_none) {
        return Ok(0);
    }
    loop {
        let mut state = pipe.state.lock();
        if state.readers == 0 {
            return Err(Stop::Broken);
        }
        pipe.unfold(&mut state)?;
        let mut done = 0;
        for place in &mut *pages {
            if state.ring.is_full() {
                break;
            }
            let Some(mut buffer) = place.take().and_then(|mut page| page.page.buffer.take()) else {
                continue;
            };
            // It is whole: nothing is added to it, as a tee may have it.
            buffer.close();
            done += buffer.len();
            state.ring.push(buffer);
        }
        pipe.release(state);
        if done != 0 {
            pipe.tell_readers();
            return Ok(done);
        }
        pipe.until_writable(waits)?;
    }
}
