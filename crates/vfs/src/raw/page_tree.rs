//! A radix tree of pages: found by readers without a lock, changed by one writer at a time.
//!
//! ```text
//!   root ── height 0: the page of index 0                  a file of one page has no node
//!        └─ height h: node ─ 64 slots ─ nodes of height h-1 ... ─ pages
//!
//!   a word:  address | height << 1 (root only) | UNWRITTEN                  null: nothing there
//! ```
//!
//! The word of the root carries the height, so that a reader takes both by one load. Pages and nodes are filled before they
//! are published by a release store, and freed by RCU after they are taken out of their slot: what a reader finds stays
//! while its section is open. Only who has the whole tree for himself, to drop it, frees them at once.
//!
//! A page that is *unwritten* was reserved, and holds anything; readers take it for zeros and do not touch it, so that the
//! writer has it for itself until it is marked as written, which is never undone.
//!
//! # Who may do what
//!
//! | | needs | because |
//! |---|---|---|
//! | [`PageReader`] | a section of the caches' domain, checked when it is made, and the tree | pages and nodes are freed by RCU |
//! | [`PageWriter`] | the tree's lock, or a promise in its place | slots and counts have one writer |
//! | [`Page`] | a reader's section, or a writer that removes nothing meanwhile | its bytes may change all the time: copies only |

#[cfg(not(loom))]
mod caches;
mod change;

#[cfg(not(loom))]
pub(crate) use caches::caches;
pub use change::PageWriter;
pub(crate) use change::Place;

use super::copy;
use crate::ramfs::pages::{PAGE_SIZE, PageCaches};
use core::array;
use core::fmt;
use core::marker::PhantomData;
use core::ptr::{self, NonNull};
use quietline_platform::atomic::{AtomicPtr, AtomicU32, AtomicU64, Ordering};
use quietline_sync::SpinLock;
use quietline_sync::rcu::Guard;

/// log2 of a node's slots; the model checker, which tries every order of accesses to them, has few.
const BITS: u32 = if cfg!(loom) { 1 } else { 6 };
const FANOUT: usize = 1 << BITS;
/// Enough for 2^54 pages; a file has 2^51 at most.
const MAX_HEIGHT: usize = 9;

/// The page was reserved and holds anything.
const UNWRITTEN: usize = 1;
const HEIGHT_SHIFT: u32 = 1;
/// All that is not address; a page, and a node, is aligned to more.
const TAGS: usize = (1 << 6) - 1;

const _: () =
    assert!(MAX_HEIGHT << HEIGHT_SHIFT <= TAGS && align_of::<Node>() > TAGS && PAGE_SIZE > TAGS);
const _: () = assert!(BITS as usize * MAX_HEIGHT < u64::BITS as usize);

/// A page's memory: shared between its writer and readers, and touched by the functions of [`copy`](super::copy) only.
type Word = AtomicPtr<u8>;

/// A node: 64 places. A cache line more than the slots take, for what only the writer looks at.
#[repr(C, align(64))]
pub(crate) struct Node {
    slots: [Word; FANOUT],
    /// Slots that are not null.
    used: AtomicU32,
}

impl Node {
    fn empty() -> Self {
        Self { slots: array::from_fn(|_| Word::new(ptr::null_mut())), used: AtomicU32::new(0) }
    }
}

/// The contents of a regular file: its size, and its pages, sparse.
///
/// What is done with it is in [`ramfs::pages`](crate::ramfs::pages).
pub struct PageTree<'k> {
    root: Word,
    size: AtomicU64,
    /// Pages in the tree.
    pages: AtomicU64,
    caches: NonNull<PageCaches>,
    writer: SpinLock<()>,
    /// Cuts and holes that have removed pages. Changed by the writer.
    removals: AtomicU32,
    of: PhantomData<&'k PageCaches>,
}

// SAFETY: made of atomics and a lock; the caches are shared by design, and outlive it.
unsafe impl Send for PageTree<'_> {}
// SAFETY: as above.
unsafe impl Sync for PageTree<'_> {}

/// Finds pages of a tree inside a read section. What it finds stays as long as the section is open and the tree is
/// borrowed: pages that are taken out meanwhile wait for the section, those of a tree that is dropped do not.
#[derive(Clone, Copy)]
pub(crate) struct PageReader<'g> {
    root: &'g Word,
}

/// A page, as long as it surely stays. Its bytes may change all the time, so that they can only be copied.
#[derive(Clone, Copy)]
pub(crate) struct Page<'p> {
    start: NonNull<u8>,
    stays: PhantomData<&'p u8>,
}

impl<'k> PageTree<'k> {
    /// An empty file.
    pub fn new(caches: &'k PageCaches) -> Self {
        // SAFETY: borrowed for 'k, which the tree does not outlive.
        unsafe { Self::new_unbound(caches) }
    }

    /// An empty file whose type does not say how long the caches live, for whoever keeps it in memory that knows no
    /// lifetimes.
    ///
    /// # Safety
    /// The caches stay where they are and live until the tree has been dropped.
    pub unsafe fn new_unbound(caches: &PageCaches) -> Self {
        Self {
            root: Word::new(ptr::null_mut()),
            size: AtomicU64::new(0),
            pages: AtomicU64::new(0),
            caches: NonNull::from(caches),
            writer: SpinLock::new(()),
            removals: AtomicU32::new(0),
            of: PhantomData,
        }
    }

    /// Bytes of the file. One load.
    #[inline(always)]
    pub fn size(&self) -> u64 {
        // ORDERING: pairs with the release in `PageWriter::set_size`: who sees a size sees what was written below it.
        self.size.load(Ordering::Acquire)
    }

    /// Pages that the file has: what `st_blocks` counts, in units of eight. One load.
    pub fn page_count(&self) -> u64 {
        // Relaxed: a number; nothing is found by it.
        self.pages.load(Ordering::Relaxed)
    }

    /// Where its pages come from.
    pub fn caches(&self) -> &PageCaches {
        // SAFETY: they outlive the tree, says `new_unbound`.
        unsafe { self.caches.as_ref() }
    }

    /// Looks at pages while the section is open.
    ///
    /// # Panics
    /// When the section is one of another domain than the caches': it would protect nothing.
    #[inline(always)]
    pub(crate) fn reader<'g>(&'g self, section: &'g Guard<'_>) -> PageReader<'g> {
        if !ptr::eq(section.domain(), self.caches().domain()) {
            wrong_domain();
        }
        PageReader { root: &self.root }
    }
}

#[cold]
fn wrong_domain() -> ! {
    panic!(
        "the read section is of another domain than that of the page caches, and protects no page"
    )
}

fn strip(word: *mut u8) -> *mut u8 {
    word.map_addr(|address| address & !TAGS)
}

#[inline(always)]
fn height(root: *mut u8) -> u32 {
    ((root.addr() & TAGS) >> HEIGHT_SHIFT) as u32
}

/// Pages below a word of that height.
#[inline(always)]
fn span(height: u32) -> u64 {
    1 << (BITS * height)
}

/// The slot of a node of that height, at least 1, that an index is behind.
///
/// # Safety
/// `node` is, tags aside, a node, and stays for `'a`.
#[inline(always)]
unsafe fn slot<'a>(node: *mut u8, height: u32, index: u64) -> &'a Word {
    let at = (index >> (BITS * (height - 1))) as usize % FANOUT;
    // SAFETY: by contract.
    unsafe { &(*strip(node).cast::<Node>()).slots[at] }
}

impl<'g> PageReader<'g> {
    /// The page of an index; none for a hole and for a page that nobody has written. Writes nothing; one load for the
    /// root, and one for each level.
    #[inline(always)]
    pub(crate) fn find(self, index: u64) -> Option<Page<'g>> {
        // ORDERING: pairs with the releases in `change`: who finds a node or a page finds what was stored in it before.
        let mut word = self.root.load(Ordering::Acquire);
        let mut levels = height(word);
        if index >= span(levels) {
            return None;
        }
        while levels > 0 {
            if word.is_null() {
                return None;
            }
            // SAFETY: found in the section, at this height: a node, freed by RCU.
            // ORDERING: as above.
            word = unsafe { slot(word, levels, index) }.load(Ordering::Acquire);
            levels -= 1;
        }
        if word.addr() & UNWRITTEN != 0 {
            return None;
        }
        NonNull::new(strip(word)).map(|start| Page { start, stays: PhantomData })
    }

    /// The first index from `from` on whose page is written, or, without `data`, is not. Looks at each page on the way, and
    /// at no more than one word of a part without any.
    pub(crate) fn next(self, from: u64, data: bool) -> Option<u64> {
        // ORDERING: as in `find`.
        let root = self.root.load(Ordering::Acquire);
        let levels = height(root);
        let end = span(levels);
        if from >= end {
            return (!data).then_some(from);
        }
        // SAFETY: found in the section.
        unsafe { scan(root, levels, from, data) }.or((!data).then_some(end))
    }
}

/// As [`PageReader::next`], below a word of that height, counted from the first index below it.
///
/// # Safety
/// The word was found in the section that is open.
unsafe fn scan(word: *mut u8, height: u32, from: u64, data: bool) -> Option<u64> {
    if strip(word).is_null() {
        return (!data).then_some(from);
    }
    if height == 0 {
        return ((word.addr() & UNWRITTEN == 0) == data).then_some(0);
    }
    let width = span(height - 1);
    let mut at = from;
    while at < span(height) {
        // SAFETY: a node, freed by RCU. ORDERING: as in `find`.
        let below = unsafe { slot(word, height, at) }.load(Ordering::Acquire);
        // SAFETY: found in the section.
        if let Some(found) = unsafe { scan(below, height - 1, at % width, data) } {
            return Some(at / width * width + found);
        }
        at = (at / width + 1) * width;
    }
    None
}

impl Page<'_> {
    /// Copies the bytes from `at` on out. What others write meanwhile may come out in part, byte by byte.
    ///
    /// # Panics
    /// When they are not all in the page, as in every method here.
    #[inline(always)]
    pub(crate) fn read(self, at: usize, to: &mut [u8]) {
        inside(at, to.len());
        // SAFETY: inside the page, which stays; the slice is the caller's.
        unsafe { copy::copy_out(self.start.as_ptr().add(at), to.as_mut_ptr(), to.len()) };
    }

    /// Copies bytes in. For the writer, so that the last one written is the one that stays.
    #[inline(always)]
    pub(crate) fn write(self, at: usize, from: &[u8]) {
        inside(at, from.len());
        // SAFETY: as in `read`; where copies are made of words, there is one writer: whoever owns the page or is the tree's.
        unsafe { copy::copy_in(from.as_ptr(), self.start.as_ptr().add(at), from.len()) };
    }

    /// Copies bytes of another page in, or of this one if they are others. For the writer.
    pub(crate) fn write_from(self, at: usize, other: Page<'_>, from: usize, n: usize) {
        inside(at, n);
        inside(from, n);
        assert!(
            self.start != other.start || at.abs_diff(from) >= n,
            "the pieces of a page overlap"
        );
        // SAFETY: as in `write` and `read`.
        unsafe { copy::copy_over(other.start.as_ptr().add(from), self.start.as_ptr().add(at), n) };
    }

    /// Zeroes bytes. For the writer.
    pub(crate) fn zero(self, bytes: core::ops::Range<usize>) {
        inside(bytes.start, bytes.len());
        if !bytes.is_empty() {
            // SAFETY: as in `write`.
            unsafe { copy::zero(self.start.as_ptr().add(bytes.start), bytes.len()) };
        }
    }
}

#[inline(always)]
fn inside(at: usize, n: usize) {
    assert!(at <= PAGE_SIZE && n <= PAGE_SIZE - at, "the bytes are in the page");
}

impl fmt::Debug for PageTree<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PageTree")
            .field("size", &self.size())
            .field("pages", &self.page_count())
            .finish()
    }
}

impl fmt::Debug for Page<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Page({:p})", self.start)
    }
}
