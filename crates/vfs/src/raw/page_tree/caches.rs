//! The slab caches of pages and of nodes.

use super::Node;
use quietline_platform::pages::PAGE_SIZE;
use quietline_slab::{LazyCache, Options};
use quietline_sync::rcu::Domain;

/// Returns the caches of pages and of nodes, which are freed after a grace period of the domain.
pub(crate) fn caches(domain: &'static Domain) -> [LazyCache; 2] {
    let page = |domain| Options { rcu: Some(domain), ..Options::new("page", PAGE_SIZE, PAGE_SIZE) };
    let node = |domain| Options { rcu: Some(domain), ..Options::of::<Node>("page_node") };
    // SAFETY: there is no hook.
    unsafe { [LazyCache::new(page, domain), LazyCache::new(node, domain)] }
}
