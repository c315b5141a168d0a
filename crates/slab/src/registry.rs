//! All caches of the process, and caches that are one (`slab_caches`, `kmem_cache` merging).

use crate::inner::Inner;
use crate::options::{CacheError, Merge, Options};
use crate::slab::Layout;
use crate::stats::Stats;
use crate::tunables::{self, Tunables};
use crate::{debug, reclaim};
use core::ops::Deref;
use core::ptr;
use quietline_platform::atomic::{AtomicBool, AtomicPtr, AtomicUsize, Ordering};
use quietline_platform::cell::UnsafeCell;
use quietline_platform::fork::{AtFork, Rank, Registered};
use quietline_platform::{AllocError, heap};
use quietline_sync::{Shared, SpinLock};

/// A cache's place in the registry.
#[derive(Debug)]
pub(crate) struct Membership {
    /// Under the registry's lock.
    links: UnsafeCell<Links>,
    /// Handles. Written under the registry's lock; 0 for a cache that is on the list no more.
    users: AtomicUsize,
    /// [Guests](Guest). Incremented under the registry's lock, while there is a handle.
    guests: AtomicUsize,
}

/// A cache that was found in the registry. It may outlive the last handle, which waits for it: see
/// [`has_guests`].
pub(crate) struct Guest(Shared<Inner>);

impl Guest {
    /// # Safety
    /// The cache is on the list, which is locked; so it has an owner.
    unsafe fn of(cache: *const Inner) -> Self {
        // SAFETY: by contract.
        let cache = unsafe { Shared::again(&*cache) };
        // Relaxed: under the lock, which the last handle takes before it looks.
        cache.membership.guests.fetch_add(1, Ordering::Relaxed);
        Self(cache)
    }
}

impl Deref for Guest {
    type Target = Inner;

    fn deref(&self) -> &Inner {
        &self.0
    }
}

impl Drop for Guest {
    fn drop(&mut self) {
        // ORDERING: pairs with the acquire in `has_guests`: this thread is done with the cache and
        // its domain.
        self.membership.guests.fetch_sub(1, Ordering::Release);
    }
}

#[derive(Debug)]
struct Links {
    next: *const Inner,
    prev: *const Inner,
    /// Grows along the list.
    serial: u64,
}

impl Membership {
    pub(crate) fn new() -> Self {
        let links = Links { next: ptr::null(), prev: ptr::null(), serial: 0 };
        Self {
            links: UnsafeCell::new(links),
            users: AtomicUsize::new(1),
            guests: AtomicUsize::new(0),
        }
    }
}

/// Caches with a handle, in the order in which they were made. Each is owned by its handles, the last of which takes it out
/// before it lets go.
#[derive(Debug)]
struct List {
    first: *const Inner,
    last: *const Inner,
    /// Caches that have ever been entered.
    entered: u64,
    /// Where the next visitor who takes one goes: null for the first.
    cursor: *const Inner,
}

// SAFETY: pointers are followed under the list's lock, while what they point to is owned by a handle.
unsafe impl Send for List {}

#[derive(Debug)]
struct Registry {
    /// A leaf: nothing is called while it is held, and no owner let go.
    list: SpinLock<List>,
}

static MERGING: AtomicBool = AtomicBool::new(false);

/// Whether caches with [`Merge::Default`] that are made from now on may be one with others. Off at first: what a cache holds,
/// leaks and is checked for is its own then. What merging saves and costs is in `docs/adr/0010-merging-is-asked-for.md`.
pub fn set_merging(on: bool) {
    // Relaxed: a setting; orders nothing.
    MERGING.store(on, Ordering::Relaxed);
}

/// Calls `f` with the statistics of every cache of the process, oldest first. Caches that are made meanwhile may be missing.
/// `f` may make, use and drop caches. O(caches x CPUs), and a barrier for each cache; needs no memory.
pub fn each_cache(f: impl FnMut(Stats)) {
    each_then(|_| true, Stats::of, f);
}

/// Calls `f` with every cache that is there now. Needs no memory.
pub(crate) fn each(f: impl FnMut(&Inner)) {
    each_where(|_| true, f);
}

/// Calls `f` with every cache that is there now and that `wanted` agrees to; the others are not owned even for a moment.
pub(crate) fn each_where(wanted: impl Fn(&Inner) -> bool, f: impl FnMut(&Inner)) {
    each_then(wanted, f, |()| ());
}

/// Calls `look` with every cache that is there now, and then `tell` with what it gave, when the cache is not owned any more
/// and so may be dropped by its last handle.
fn each_then<R>(
    wanted: impl Fn(&Inner) -> bool,
    mut look: impl FnMut(&Inner) -> R,
    mut tell: impl FnMut(R),
) {
    let Some(registry) = registry_if_any() else { return };
    let end = registry.list.lock().entered;
    let mut passed = 0;
    while let Some((cache, serial)) = after(registry, passed, end, &wanted) {
        let seen = look(&cache);
        // Whoever lets go last takes the cache apart: not under the lock.
        drop(cache);
        tell(seen);
        passed = serial;
    }
}

/// The first cache that is wanted and was entered after the `passed`-th, and which one it is; none that came after the
/// `end`-th. O(caches).
fn after(
    registry: &Registry,
    passed: u64,
    end: u64,
    wanted: &impl Fn(&Inner) -> bool,
) -> Option<(Guest, u64)> {
    let list = registry.list.lock();
    let mut next = list.first;
    // SAFETY: on the list, which is locked; so it has an owner.
    unsafe {
        while !next.is_null() && (links(next).serial <= passed || !wanted(&*next)) {
            next = links(next).next;
        }
        if next.is_null() || links(next).serial > end {
            return None;
        }
        Some((Guest::of(next), links(next).serial))
    }
}

/// The next cache, round and round; none if there is none, or not one that `wanted` agrees to. Needs no memory.
pub(crate) fn next_where(wanted: impl FnOnce(&Inner) -> bool) -> Option<Guest> {
    let mut list = registry_if_any()?.list.lock();
    let chosen = if list.cursor.is_null() { list.first } else { list.cursor };
    if chosen.is_null() {
        return None;
    }
    // SAFETY: on the list, which is locked; so it has an owner.
    unsafe {
        list.cursor = links(chosen).next;
        wanted(&*chosen).then(|| Guest::of(chosen))
    }
}

/// A new cache, or one more handle on one that is alike.
pub(crate) fn enter(options: Options) -> Result<Shared<Inner>, CacheError> {
    let registry = registry()?;
    let options = debug::asked(options);
    let (tunables, layout) = tunables::resolve(&options, options.tunables(&options.layout()?))?;
    let mergeable = may_merge(&options);
    if mergeable && let Some(twin) = join(&registry.list.lock(), &options, tunables, layout) {
        return Ok(twin);
    }
    let fresh = Inner::new(options)?;
    let mut list = registry.list.lock();
    // Another thread may have made one meanwhile.
    if mergeable && let Some(twin) = join(&list, &options, tunables, layout) {
        drop(list);
        return Ok(twin);
    }
    list.entered += 1;
    let this: *const Inner = &*fresh;
    // SAFETY: the fresh cache is nobody else's yet; the last one is on the list, which is locked.
    unsafe {
        *links(this) = Links { next: ptr::null(), prev: list.last, serial: list.entered };
        if list.last.is_null() {
            list.first = this;
        } else {
            links(list.last).next = this;
        }
    }
    list.last = this;
    drop(list);
    Ok(fresh)
}

/// One more handle on a cache that is alike, if there is one. O(caches).
fn join(
    list: &List,
    options: &Options,
    tunables: Tunables,
    layout: Layout,
) -> Option<Shared<Inner>> {
    let mut next = list.first;
    while !next.is_null() {
        // SAFETY: on the list, which the caller has locked; so it has an owner.
        let cache = unsafe { &*next };
        let alike = may_merge(&cache.options)
            && !cache.checks.on()
            && cache.has_sheaves()
            && cache.tunables() == tunables
            && cache.layout() == layout
            // Checks lay objects out by these.
            && (cache.options.size, cache.options.align.max(4)) == (options.size, options.align.max(4))
            && same_domain(&cache.options, options);
        if alike {
            // Relaxed: under the lock.
            cache.membership.users.fetch_add(1, Ordering::Relaxed);
            // SAFETY: as above.
            return Some(unsafe { Shared::again(cache) });
        }
        // SAFETY: as above.
        next = unsafe { links(next) }.next;
    }
    None
}

/// One handle less; whether it was the last.
pub(crate) fn leave(cache: &Shared<Inner>) -> bool {
    let registry = registry_if_any().expect("a cache has entered it");
    let mut list = registry.list.lock();
    // Relaxed: under the lock.
    if cache.membership.users.fetch_sub(1, Ordering::Relaxed) > 1 {
        return false;
    }
    let this: *const Inner = &**cache;
    // SAFETY: on the list, which is locked, as are its neighbours.
    unsafe {
        let Links { next, prev, .. } = *links(this);
        if list.cursor == this {
            list.cursor = next;
        }
        if prev.is_null() {
            list.first = next;
        } else {
            links(prev).next = next;
        }
        if next.is_null() {
            list.last = prev;
        } else {
            links(next).prev = prev;
        }
    }
    true
}

/// Returns whether a thread that found the cache in the registry still uses it. No more come once
/// the last handle has [left](leave).
pub(crate) fn has_guests(cache: &Inner) -> bool {
    // ORDERING: pairs with the release at a guest's end.
    cache.membership.guests.load(Ordering::Acquire) > 0
}

/// Handles that a cache has.
pub(crate) fn users(cache: &Inner) -> usize {
    // Relaxed: a statistic.
    cache.membership.users.load(Ordering::Relaxed)
}

/// # Safety
/// The cache lives, and the registry's lock is held, or nobody else knows the cache. One result for a cache at a time.
unsafe fn links<'a>(cache: *const Inner) -> &'a mut Links {
    // SAFETY: by contract.
    unsafe { (*cache).membership.links.with_mut(|links| &mut *links) }
}

fn may_merge(options: &Options) -> bool {
    let wanted = match options.merge {
        // Relaxed: see `set_merging`.
        Merge::Default => MERGING.load(Ordering::Relaxed),
        Merge::Never => false,
        Merge::Always => true,
    };
    wanted
        && !options.has_hooks()
        && options.typesafe.is_none()
        && options.sheaves
        && options.debug.is_off()
}

fn same_domain(one: &Options, other: &Options) -> bool {
    match (one.rcu, other.rcu) {
        (Some(one), Some(other)) => ptr::eq(one, other),
        (None, None) => true,
        _ => false,
    }
}

/// Made once, and never dropped; null before. Not behind a lock, which a fork could find held.
static REGISTRY: AtomicPtr<Registered<Registry>> = AtomicPtr::new(ptr::null_mut());

fn registry_if_any() -> Option<&'static Registry> {
    // ORDERING: pairs with the release in `registry`: who sees it sees it made.
    let registry = REGISTRY.load(Ordering::Acquire);
    // SAFETY: null, or leaked below.
    unsafe { registry.as_ref() }.map(|registry| &**registry)
}

fn registry() -> Result<&'static Registry, AllocError> {
    if let Some(registry) = registry_if_any() {
        return Ok(registry);
    }
    let list = List { first: ptr::null(), last: ptr::null(), entered: 0, cursor: ptr::null() };
    // A leaf, so the last to be taken for a fork: its holder never waits for another lock.
    let fresh = Registered::new(Rank::Machine, Registry { list: SpinLock::new(list) })?;
    let fresh = Box::into_raw(heap::try_box(fresh)?);
    // ORDERING: pairs with the acquire in `registry_if_any`, and acquires what another thread has made. One of two that meet
    // here goes away again.
    if REGISTRY
        .compare_exchange(ptr::null_mut(), fresh, Ordering::AcqRel, Ordering::Acquire)
        .is_err()
    {
        // SAFETY: made above, and nobody else has seen it.
        drop(unsafe { Box::from_raw(fresh) });
    }
    Ok(registry_if_any().expect("one of them is there"))
}

// SAFETY: the only lock is held between the two.
unsafe impl AtFork for Registry {
    fn before(&self) {
        self.list.before();
    }

    fn after(&self, child: bool) {
        self.list.after(child);
        if child {
            reclaim::after_fork();
        }
    }
}
