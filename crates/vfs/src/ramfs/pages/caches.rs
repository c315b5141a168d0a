//! Where pages come from, and who counts them.

use crate::ramfs::Limits;
use crate::raw::page_tree;
use quietline_slab::LazyCache;
use quietline_sync::rcu::Domain;

/// The slab caches of all files of a kernel: `page` and `page_node`.
#[derive(Debug)]
pub struct PageCaches {
    pub(crate) page: LazyCache,
    pub(crate) node: LazyCache,
    domain: &'static Domain,
}

impl PageCaches {
    /// Empty caches, whose pages are freed after a grace period of the domain.
    pub fn new(domain: &'static Domain) -> Self {
        let [page, node] = page_tree::caches(domain);
        Self { page, node, domain }
    }

    /// Whose sections readers of the files are in.
    #[inline(always)]
    pub fn domain(&self) -> &'static Domain {
        self.domain
    }

    /// The caches: of pages, of nodes.
    pub fn caches(&self) -> [&LazyCache; 2] {
        [&self.page, &self.node]
    }

    /// Waits until all that was freed before is free. Not inside a section or a callback of the domain.
    pub fn flush(&self) {
        self.page.flush_rcu();
        self.node.flush_rcu();
    }

    /// Gives memory that lies idle back to the system.
    pub fn shrink(&self) {
        self.page.shrink();
        self.node.shrink();
    }
}

/// Who counts the pages that files have: their filesystem. Called under a tree's lock; takes no lock above it.
pub trait Quota {
    /// Takes room for so many pages; false, and nothing taken, if there is none.
    #[must_use = "false means that there is no room"]
    fn charge(&self, pages: u64) -> bool;

    /// Gives room back that was taken.
    fn uncharge(&self, pages: u64);

    /// Pages that there is room for, as far as can be said while others take it.
    fn left(&self) -> u64;
}

/// No limit.
impl Quota for () {
    #[inline(always)]
    fn charge(&self, _pages: u64) -> bool {
        true
    }

    #[inline(always)]
    fn uncharge(&self, _pages: u64) {}

    fn left(&self) -> u64 {
        u64::MAX
    }
}

impl Quota for Limits {
    #[inline]
    fn charge(&self, pages: u64) -> bool {
        self.charge_pages(pages)
    }

    #[inline]
    fn uncharge(&self, pages: u64) {
        self.uncharge_pages(pages);
    }

    fn left(&self) -> u64 {
        self.pages_left()
    }
}
