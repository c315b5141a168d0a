//! The writer's side: pages put in and taken out.
//!
//! Longer than most files here: what is freed after a grace period and what is freed at once are two walks of one tree.

use super::{
    BITS, HEIGHT_SHIFT, MAX_HEIGHT, Node, Page, PageTree, UNWRITTEN, Word, height, slot, span,
    strip,
};
use crate::ramfs::pages::{PAGE_SIZE, PageCaches};
use core::fmt;
use core::marker::PhantomData;
use core::mem::ManuallyDrop;
use core::ptr::{self, NonNull};
use quietline_platform::AllocError;
use quietline_platform::atomic::{Ordering, fence};
use quietline_sync::SpinLockGuard;

/// The only one who changes a file's contents; readers go on beside it.
///
/// What it does with them is in [`ramfs::pages`](crate::ramfs::pages).
#[derive(Debug)]
#[must_use = "others may write again when this is dropped"]
pub struct PageWriter<'t, 'k> {
    tree: &'t PageTree<'k>,
    _lock: Option<SpinLockGuard<'t, ()>>,
}

/// A page that is in no tree yet. Freed when dropped.
pub(crate) struct FreshPage<'c> {
    start: NonNull<u8>,
    caches: &'c PageCaches,
}

/// What there is at an index.
pub(crate) enum Place<'p> {
    Hole,
    /// Reserved: the writer's alone, until it marks it.
    Unwritten(Page<'p>),
    Written(Page<'p>),
}

impl<'k> PageTree<'k> {
    /// Takes the lock of those who change contents or size; waits for others who do. Readers are not kept out.
    ///
    /// Writes the tree's line, by one locked instruction.
    pub fn write(&self) -> PageWriter<'_, 'k> {
        PageWriter { tree: self, _lock: Some(self.writer.lock()) }
    }

    /// As [`write`](Self::write), for whoever excludes others by a lock of their own.
    ///
    /// # Safety
    /// While the writer lives there is no other of this tree.
    pub unsafe fn write_unlocked(&self) -> PageWriter<'_, 'k> {
        PageWriter { tree: self, _lock: None }
    }
}

impl<'t, 'k> PageWriter<'t, 'k> {
    /// The tree that is written.
    pub fn tree(&self) -> &'t PageTree<'k> {
        self.tree
    }

    /// Tells readers of a new size: after what was written below it, before what is taken away above it.
    pub(crate) fn set_size(&mut self, size: u64) {
        // ORDERING: release pairs with the acquire in `PageTree::size`: the bytes below are seen.
        self.tree.size.store(size, Ordering::Release);
        // ORDERING: pairs with the acquire fence in `PageTree::read_at`: a reader that sees zeros where bytes were cut off
        // sees the size that cut them off, or a later one.
        fence(Ordering::Release);
    }

    /// What there is at an index. As many loads as there are levels.
    pub(crate) fn place(&self, index: u64) -> Place<'_> {
        // Relaxed: this is the only writer.
        let word = self.leaf(index).map_or(ptr::null_mut(), |leaf| leaf.load(Ordering::Relaxed));
        match NonNull::new(strip(word)) {
            None => Place::Hole,
            Some(start) if word.addr() & UNWRITTEN != 0 => {
                Place::Unwritten(Page { start, stays: PhantomData })
            }
            Some(start) => Place::Written(Page { start, stays: PhantomData }),
        }
    }

    /// Lets readers see a reserved page, which has been filled. Others stay as they are.
    pub(crate) fn mark_written(&mut self, index: u64) {
        if let Some(leaf) = self.leaf(index) {
            // Relaxed: this is the only writer.
            let word = leaf.load(Ordering::Relaxed);
            // ORDERING: pairs with the acquire in `PageReader::find`: its bytes are seen.
            leaf.store(word.map_addr(|address| address & !UNWRITTEN), Ordering::Release);
        }
    }

    /// Memory for a page, holding anything.
    ///
    /// # Errors
    /// [`AllocError`].
    pub(crate) fn fresh(&self) -> Result<FreshPage<'t>, AllocError> {
        let caches = self.tree.caches();
        Ok(FreshPage { start: caches.page.alloc()?, caches })
    }

    /// Puts a page where there is a hole, for readers to see, or as reserved.
    ///
    /// # Errors
    /// [`AllocError`] when there is no memory for nodes; the page is freed, and nothing is changed.
    ///
    /// # Panics
    /// When there is no hole, or the page is of other caches.
    pub(crate) fn insert(
        &mut self,
        index: u64,
        page: FreshPage<'_>,
        written: bool,
    ) -> Result<(), AllocError> {
        let tree = self.tree;
        assert!(ptr::eq(page.caches, tree.caches()), "the page is of other caches");
        // Relaxed, so in the rest of this file: this is the only writer.
        let root = tree.root.load(Ordering::Relaxed);
        let (levels, needed) = (height(root), height_for(index));
        let tags = if written { 0 } else { UNWRITTEN };
        let mut nodes = Nodes::new(tree.caches());
        if root.is_null() {
            nodes.provide(needed)?;
            let top = nodes.chain(page.into_word(tags), needed, index);
            publish(&tree.root, top.map_addr(|top| top | (needed as usize) << HEIGHT_SHIFT));
        } else if needed > levels {
            nodes.provide(needed - levels + needed - 1)?;
            let below = nodes.chain(page.into_word(tags), needed - 1, index);
            let mut old = if levels == 0 { root } else { strip(root) };
            for _ in levels..needed {
                old = nodes.take(0, old);
            }
            // SAFETY: the uppermost node, just made.
            unsafe { fill(slot(old, needed, index), old, below) };
            publish(&tree.root, old.map_addr(|top| top | (needed as usize) << HEIGHT_SHIFT));
        } else {
            let (mut node, mut above, mut word) = (ptr::null_mut(), &tree.root, root);
            let mut levels = levels;
            while levels > 0 && !word.is_null() {
                node = word;
                // SAFETY: a node of this height; nobody else takes nodes away.
                above = unsafe { slot(node, levels, index) };
                word = above.load(Ordering::Relaxed);
                levels -= 1;
            }
            assert!(word.is_null(), "there is a page at {index}");
            nodes.provide(levels)?;
            let below = nodes.chain(page.into_word(tags), levels, index);
            // SAFETY: the slot's node.
            unsafe { fill(above, node, below) };
        }
        // Relaxed: a number, which only the writer changes.
        tree.pages.store(tree.pages.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
        Ok(())
    }

    /// Takes the pages from `first` to `last` out, both included, and frees them by RCU; how many.
    pub(crate) fn remove(&mut self, first: u64, last: u64) -> u64 {
        let tree = self.tree;
        let levels = height(tree.root.load(Ordering::Relaxed));
        let last = last.min(span(levels) - 1);
        let mut freed = 0;
        if first <= last {
            // SAFETY: the root, at its height.
            unsafe { self.empty(&tree.root, levels, first, last, &mut freed) };
            self.lower();
        }
        // Relaxed: as in `insert`.
        tree.pages.store(tree.pages.load(Ordering::Relaxed) - freed, Ordering::Relaxed);
        freed
    }

    /// [`remove`](Self::remove) for a cut or a hole, which [`removals`](Self::removals) counts.
    pub(crate) fn cut(&mut self, first: u64, last: u64) -> u64 {
        let freed = self.remove(first, last);
        if freed != 0 {
            // Relaxed: only the writer changes it, and only a writer compares it.
            let removals = self.removals();
            self.tree.removals.store(removals.wrapping_add(1), Ordering::Relaxed);
        }
        freed
    }

    /// Returns the number of calls of [`cut`](Self::cut) that have removed pages, modulo 2^32.
    pub(crate) fn removals(&self) -> u32 {
        // Relaxed: as above.
        self.tree.removals.load(Ordering::Relaxed)
    }

    /// Pages from `first` to `last`, both included, written or reserved. O(nodes that there are).
    pub(crate) fn count(&self, first: u64, last: u64) -> u64 {
        let root = self.tree.root.load(Ordering::Relaxed);
        let levels = height(root);
        let last = last.min(span(levels) - 1);
        if first > last {
            return 0;
        }
        // SAFETY: the root, at its height.
        unsafe { self.count_below(root, levels, first, last) }
    }

    /// As [`count`](Self::count), counted from the first index below a word.
    ///
    /// # Safety
    /// The word is of this tree, and has this height.
    unsafe fn count_below(&self, word: *mut u8, height: u32, first: u64, last: u64) -> u64 {
        let node = strip(word);
        if node.is_null() || height == 0 {
            return u64::from(!node.is_null());
        }
        let width = span(height - 1);
        (first / width..=last / width)
            .map(|at| {
                let from = first.max(at * width) - at * width;
                let to = last.min(at * width + width - 1) - at * width;
                // SAFETY: a slot of a node of this height, which only a writer would take away.
                unsafe {
                    let below = slot(node, height, at * width).load(Ordering::Relaxed);
                    self.count_below(below, height - 1, from, to)
                }
            })
            .sum()
    }

    /// The word of an index, if there are nodes down to it.
    #[inline(always)]
    fn leaf(&self, index: u64) -> Option<&Word> {
        let mut word = &self.tree.root;
        let root = word.load(Ordering::Relaxed);
        let mut levels = height(root);
        if index >= span(levels) {
            return None;
        }
        while levels > 0 {
            let node = word.load(Ordering::Relaxed);
            if node.is_null() {
                return None;
            }
            // SAFETY: a node of this height, which only a writer would take away.
            word = unsafe { slot(node, levels, index) };
            levels -= 1;
        }
        Some(word)
    }

    /// Empties what lies below a word from `first` to `last`, counted from the first index below it; whether all of it is
    /// empty now.
    ///
    /// # Safety
    /// The word is of this tree, and has this height.
    unsafe fn empty(
        &self,
        word: &Word,
        height: u32,
        first: u64,
        last: u64,
        freed: &mut u64,
    ) -> bool {
        let node = word.load(Ordering::Relaxed);
        if strip(node).is_null() {
            return true;
        }
        if first == 0 && last == span(height) - 1 {
            publish(word, ptr::null_mut());
            // SAFETY: nobody finds it any more; it was whole.
            *freed += unsafe { self.tree.free_rcu(node, height) };
            return true;
        }
        let width = span(height - 1);
        // SAFETY: a node, of this height, which goes away below at the earliest.
        let used = unsafe { &(*strip(node).cast::<Node>()).used };
        for at in first / width..=last / width {
            let from = first.max(at * width) - at * width;
            let to = last.min(at * width + width - 1) - at * width;
            // SAFETY: a node's slot.
            unsafe {
                let below = slot(node, height, at * width);
                if !below.load(Ordering::Relaxed).is_null()
                    && self.empty(below, height - 1, from, to, freed)
                {
                    used.store(used.load(Ordering::Relaxed) - 1, Ordering::Relaxed);
                }
            }
        }
        let empty = used.load(Ordering::Relaxed) == 0;
        if empty {
            publish(word, ptr::null_mut());
            // SAFETY: a node with nothing below; nobody finds it any more.
            unsafe { self.tree.free_node_rcu(node) };
        }
        empty
    }

    /// Takes levels away that are not needed any more.
    fn lower(&mut self) {
        let root = &self.tree.root;
        loop {
            let word = root.load(Ordering::Relaxed);
            let levels = height(word);
            if levels == 0 {
                return;
            }
            // SAFETY: the root's node; were it empty, it would be gone.
            let only = unsafe {
                let node = &*strip(word).cast::<Node>();
                let first = node.slots[0].load(Ordering::Relaxed);
                (node.used.load(Ordering::Relaxed) == 1 && !first.is_null()).then_some(first)
            };
            let Some(only) = only else { return };
            publish(root, only.map_addr(|only| only | (levels as usize - 1) << HEIGHT_SHIFT));
            // SAFETY: it was the root's, and is not any more.
            unsafe { self.tree.free_node_rcu(word) };
        }
    }
}

/// Levels that a tree with this index has at least.
fn height_for(index: u64) -> u32 {
    (u64::BITS - index.leading_zeros()).div_ceil(BITS)
}

fn publish(word: &Word, to: *mut u8) {
    // ORDERING: pairs with the acquire in `PageReader::find`: who finds it finds what is in it. A null is released as well,
    // so that who finds nothing sees the size that took it away.
    word.store(to, Ordering::Release);
}

/// Fills a slot that was empty.
///
/// # Safety
/// The slot is the node's, or the node is null and it is the root.
unsafe fn fill(slot: &Word, node: *mut u8, to: *mut u8) {
    if !node.is_null() {
        // SAFETY: by contract.
        let used = unsafe { &(*strip(node).cast::<Node>()).used };
        used.store(used.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
    }
    publish(slot, to);
}

/// Nodes for one insertion, taken before anything is changed. What is left when it is dropped is freed.
struct Nodes<'c> {
    nodes: [Option<NonNull<u8>>; 2 * MAX_HEIGHT],
    left: usize,
    caches: &'c PageCaches,
}

impl<'c> Nodes<'c> {
    fn new(caches: &'c PageCaches) -> Self {
        Self { nodes: [None; 2 * MAX_HEIGHT], left: 0, caches }
    }

    fn provide(&mut self, n: u32) -> Result<(), AllocError> {
        if n > 0 {
            self.caches.node.alloc_bulk(&mut self.nodes[..n as usize])?;
        }
        self.left = n as usize;
        Ok(())
    }

    /// A node with one slot filled.
    fn take(&mut self, at: usize, below: *mut u8) -> *mut u8 {
        self.left -= 1;
        let node = self.nodes[self.left]
            .take()
            .expect("as many nodes as are needed were provided")
            .cast::<Node>();
        // SAFETY: memory for a node, nobody else's.
        unsafe {
            node.write(Node::empty());
            // Relaxed: published with the first of them.
            node.as_ref().used.store(1, Ordering::Relaxed);
            node.as_ref().slots[at].store(below, Ordering::Relaxed);
        }
        node.as_ptr().cast()
    }

    /// `height` nodes, one below the other, with a page at the bottom; that on top.
    fn chain(&mut self, page: *mut u8, height: u32, index: u64) -> *mut u8 {
        (0..height).fold(page, |below, level| {
            let at = (index >> (BITS * level)) as usize % super::FANOUT;
            self.take(at, below)
        })
    }
}

impl Drop for Nodes<'_> {
    fn drop(&mut self) {
        // SAFETY: what is still there was given to nobody.
        unsafe { self.caches.node.free_bulk(&mut self.nodes[..self.left]) };
    }
}

impl FreshPage<'_> {
    /// Its memory.
    pub(crate) fn page(&self) -> Page<'_> {
        Page { start: self.start, stays: PhantomData }
    }

    fn into_word(self, tags: usize) -> *mut u8 {
        ManuallyDrop::new(self).start.as_ptr().map_addr(|address| address | tags)
    }
}

impl Drop for FreshPage<'_> {
    fn drop(&mut self) {
        // SAFETY: in no tree, so nobody has seen it.
        unsafe { self.caches.page.free(self.start) };
    }
}

impl fmt::Debug for FreshPage<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "FreshPage({:p})", self.start)
    }
}

impl PageTree<'_> {
    /// Frees all that is below a word, and itself, by RCU; how many pages.
    ///
    /// # Safety
    /// It is of this tree, has this height, and no section that begins later can find it.
    unsafe fn free_rcu(&self, word: *mut u8, height: u32) -> u64 {
        let Some(start) = NonNull::new(strip(word)) else { return 0 };
        if height == 0 {
            // SAFETY: a page of the caches, says the contract.
            unsafe { self.caches().page.free_rcu(start) };
            return 1;
        }
        // SAFETY: a node of this height; what is below it is found through it only.
        unsafe {
            let slots = &(*start.cast::<Node>().as_ptr()).slots;
            let freed = slots
                .iter()
                .map(|slot| self.free_rcu(slot.load(Ordering::Relaxed), height - 1))
                .sum();
            self.free_node_rcu(word);
            freed
        }
    }

    /// # Safety
    /// A node of this tree that no section that begins later can find.
    unsafe fn free_node_rcu(&self, node: *mut u8) {
        if let Some(node) = NonNull::new(strip(node)) {
            // SAFETY: by contract.
            unsafe { self.caches().node.free_rcu(node) };
        }
    }

    /// Frees all that is below a word, and itself, at once.
    ///
    /// # Safety
    /// It is of this tree, has this height, and nobody uses it, readers included.
    unsafe fn free_now(&self, word: *mut u8, height: u32) {
        let Some(start) = NonNull::new(strip(word)) else { return };
        let caches = self.caches();
        if height == 0 {
            // SAFETY: a page of the caches, says the contract.
            return unsafe { caches.page.free(start) };
        }
        // SAFETY: a node of this height, with pages or nodes below.
        unsafe {
            let slots = &(*start.cast::<Node>().as_ptr()).slots;
            if height == 1 {
                let mut pages =
                    slots.each_ref().map(|slot| NonNull::new(strip(slot.load(Ordering::Relaxed))));
                caches.page.free_bulk(&mut pages);
            } else {
                slots
                    .iter()
                    .for_each(|slot| self.free_now(slot.load(Ordering::Relaxed), height - 1));
            }
            caches.node.free(start);
        }
    }

    /// Frees all pages at once, without a grace period; the size is 0. How many there were, for whoever counts them.
    ///
    /// # Safety
    /// Nobody reads or writes the contents now, nor seeks in them, nor copies from them; others may only ask for size and
    /// number of pages. So it is when the last reference to an inode is put that no name leads to.
    pub unsafe fn end(&self) -> u64 {
        let root = self.root.load(Ordering::Relaxed);
        self.root.store(ptr::null_mut(), Ordering::Relaxed);
        self.size.store(0, Ordering::Relaxed);
        // SAFETY: passed on.
        unsafe { self.free_now(root, height(root)) };
        let pages = self.pages.load(Ordering::Relaxed);
        self.pages.store(0, Ordering::Relaxed);
        pages
    }

    /// As [`end`](Self::end), by whoever has the tree for himself.
    pub(crate) fn free_all(&mut self) -> u64 {
        // SAFETY: borrowed uniquely. Readers borrow the tree as long as they use what they found.
        unsafe { self.end() }
    }
}

impl PageTree<'_> {
    /// Whether there is no page and no node, for who has ended it.
    #[inline(always)]
    pub(crate) fn is_bare(&self) -> bool {
        // Relaxed: nobody changes it any more.
        self.root.load(Ordering::Relaxed).is_null()
    }
}

impl Drop for PageTree<'_> {
    /// Frees all pages. No quota is told.
    fn drop(&mut self) {
        self.free_all();
    }
}

const _: () = assert!(PAGE_SIZE.is_power_of_two());
#[cfg(not(loom))]
const _: () = assert!(size_of::<Word>() == size_of::<usize>());
