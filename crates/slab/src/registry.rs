//! All caches of the process, and caches that are one (`slab_caches`, `kmem_cache` merging).

use crate::account::Account;
use crate::control::Control;
use crate::debug::Debug;
use crate::options::{CacheError, Merge, Options};
use crate::slab::Layout;
use crate::stats::Stats;
use crate::tunables::Tunables;
use crate::{reclaim, visits};
use core::cell::Cell;
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

quietline_platform::thread_local! {
    /// The cache of the thread's innermost [`Guest`].
    static INNERMOST: Cell<*const Control> = const { Cell::new(ptr::null()) };
}

/// A cache that was found in the registry. It may outlive the last handle, which waits for it: see
/// [`wait_for_guests`].
pub(crate) struct Guest {
    cache: Shared<Control>,
    /// The cache of the guest further up this stack.
    outer: *const Control,
}

impl Guest {
    /// # Safety
    /// The cache is on the list, which is locked; so it has an owner.
    unsafe fn of(cache: &Control) -> Self {
        // SAFETY: by contract.
        let cache = unsafe { Shared::again(cache) };
        // Relaxed: under the lock, which the last handle takes before it looks.
        cache.membership.guests.fetch_add(1, Ordering::Relaxed);
        let outer = INNERMOST.try_with(|own| own.replace(&*cache)).unwrap_or(ptr::null());
        Self { cache, outer }
    }
}

impl Deref for Guest {
    type Target = Control;

    fn deref(&self) -> &Control {
        &self.cache
    }
}

impl Drop for Guest {
    fn drop(&mut self) {
        let _ = INNERMOST.try_with(|own| own.set(self.outer));
        // ORDERING: pairs with the acquire in `has_guests`: this thread is done with the cache and
        // its domain.
        self.membership.guests.fetch_sub(1, Ordering::Release);
    }
}

#[derive(Debug)]
struct Links {
    /// The one that was made before it.
    next: *const Control,
    serial: u64,
}

// SAFETY: pointers are followed under the list's lock, while what they point to is owned by a handle.
unsafe impl Send for Membership {}
// SAFETY: as above.
unsafe impl Sync for Membership {}

impl Membership {
    pub(crate) fn new() -> Self {
        let links = UnsafeCell::new(Links { next: ptr::null(), serial: 0 });
        Self { links, users: AtomicUsize::new(1), guests: AtomicUsize::new(0) }
    }
}

/// Caches with a handle, the youngest first. Each is owned by its handles, the last of which takes it out before it lets go.
#[derive(Debug)]
struct List {
    first: *const Control,
    /// Caches that have ever been entered.
    entered: u64,
    /// The number of the cache that [`next_where`] returned last.
    cursor: u64,
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
pub(crate) fn each(f: impl FnMut(&Control)) {
    each_where(|_| true, f);
}

/// Calls `f` with every cache that is there now and that `wanted` agrees to; the others are not owned even for a moment.
pub(crate) fn each_where(wanted: impl Fn(&Control) -> bool, f: impl FnMut(&Control)) {
    each_then(wanted, f, |()| ());
}

/// Calls `look` with every cache that is there now, and then `tell` with what it gave, when the cache is not owned any more
/// and so may be dropped by its last handle.
fn each_then<R>(
    wanted: impl Fn(&Control) -> bool,
    mut look: impl FnMut(&Control) -> R,
    mut tell: impl FnMut(R),
) {
    let Some(registry) = registry_if_any() else { return };
    let end = registry.list.lock().entered;
    let mut passed = 0;
    loop {
        let next = registry.list.lock().after(passed, end, &wanted);
        let Some((cache, serial)) = next else { return };
        let seen = look(&cache);
        // The last owner takes the cache apart: not under the lock.
        drop(cache);
        tell(seen);
        passed = serial;
    }
}

/// The next cache that is wanted, round and round. Needs no memory.
pub(crate) fn next_where(wanted: impl Fn(&Control) -> bool) -> Option<Guest> {
    let mut list = registry_if_any()?.list.lock();
    let next = list.after(list.cursor, u64::MAX, &wanted);
    let (cache, serial) = next.or_else(|| list.after(0, u64::MAX, &wanted))?;
    list.cursor = serial;
    Some(cache)
}

impl List {
    /// The caches, from the youngest.
    fn iter(&self) -> impl Iterator<Item = &Control> {
        // SAFETY: on the list, which is locked; so it has an owner.
        unsafe { core::iter::successors(self.first.as_ref(), |cache| links(*cache).next.as_ref()) }
    }

    /// The oldest cache that is wanted and was entered after the `passed`-th, up to the `end`-th, and its number. O(caches).
    fn after(
        &self,
        passed: u64,
        end: u64,
        wanted: &impl Fn(&Control) -> bool,
    ) -> Option<(Guest, u64)> {
        // SAFETY: as in `iter`, so below.
        let serial = |cache: &Control| unsafe { links(cache) }.serial;
        let younger = self.iter().take_while(|cache| serial(cache) > passed);
        let found = younger.filter(|cache| serial(cache) <= end && wanted(cache)).last()?;
        // SAFETY: it has an owner.
        Some((unsafe { Guest::of(found) }, serial(found)))
    }
}

/// Returns options with the checks that the environment adds to them. It may also take all away.
pub(crate) fn with_environment(options: Options) -> Options {
    let debug = match Debug::from_environment(&options.name) {
        Some(Debug::OFF) => Debug::OFF,
        more => options.debug | more.unwrap_or(Debug::OFF),
    };
    Options { debug, ..options }
}

/// A new cache, or one more handle on one that is alike.
pub(crate) fn enter(options: Options) -> Result<Shared<Control>, CacheError> {
    let registry = registry()?;
    let options = with_environment(options);
    let (tunables, layout) = options.resolve()?;
    let mergeable = may_merge(&options);
    if mergeable && let Some(twin) = join(&registry.list.lock(), &options, tunables, layout) {
        return Ok(twin);
    }
    let fresh = Control::new(options)?;
    let mut list = registry.list.lock();
    // Another thread may have made one meanwhile.
    if mergeable && let Some(twin) = join(&list, &options, tunables, layout) {
        drop(list);
        return Ok(twin);
    }
    list.entered += 1;
    // SAFETY: the fresh cache is nobody else's yet.
    unsafe { *links(&*fresh) = Links { next: list.first, serial: list.entered } };
    list.first = &*fresh;
    drop(list);
    Ok(fresh)
}

/// One more handle on a cache that is alike, if there is one. O(caches).
fn join(
    list: &List,
    options: &Options,
    tunables: Tunables,
    layout: Layout,
) -> Option<Shared<Control>> {
    let twin = list.iter().find(|cache| {
        let other = cache.options();
        may_merge(other)
            && cache.debug().is_off()
            && cache.cpus.allowed()
            && !cache.slabs().is_charged()
            && cache.tunables() == tunables
            && cache.layout() == layout
            // Checks lay objects out by these.
            && (other.size, other.align.max(4)) == (options.size, options.align.max(4))
            && other.rcu.map(ptr::from_ref) == options.rcu.map(ptr::from_ref)
    })?;
    // Relaxed: under the lock.
    twin.membership.users.fetch_add(1, Ordering::Relaxed);
    // SAFETY: on the list, which the caller has locked; so it has an owner.
    Some(unsafe { Shared::again(twin) })
}

/// Charges the slabs of a cache from now on, and keeps others from merging with it. Returns `false`
/// if it has two handles, or an account.
pub(crate) fn charge(cache: &Control, account: &Account) -> bool {
    let registry = registry_if_any().expect("a cache has entered it");
    let _list = registry.list.lock();
    users(cache) == 1 && cache.slabs().charge_to(account)
}

/// One handle less; whether it was the last.
pub(crate) fn leave(cache: &Shared<Control>) -> bool {
    let registry = registry_if_any().expect("a cache has entered it");
    let mut list = registry.list.lock();
    // Relaxed: under the lock.
    if cache.membership.users.fetch_sub(1, Ordering::Relaxed) > 1 {
        return false;
    }
    let this: *const Control = &**cache;
    // SAFETY: on the list, which is locked.
    unsafe {
        let next = links(this).next;
        let before = list.iter().find(|before| ptr::eq(links(*before).next, this));
        match before.map(ptr::from_ref) {
            Some(before) => links(before).next = next,
            None => list.first = next,
        }
    }
    true
}

/// Returns whether a thread that found the cache in the registry still uses it. No more come once
/// the last handle has [left](leave).
pub(crate) fn has_guests(cache: &Control) -> bool {
    // ORDERING: pairs with the release at a guest's end.
    cache.membership.guests.load(Ordering::Acquire) > 0
}

/// Lets guests leave, but not for ever, and not if this thread is one.
pub(crate) fn wait_for_guests(cache: &Control) {
    if INNERMOST.try_with(Cell::get) != Ok(ptr::from_ref(cache)) {
        visits::wait_for(|| !has_guests(cache));
    }
}

/// Handles that a cache has.
pub(crate) fn users(cache: &Control) -> usize {
    // Relaxed: a statistic.
    cache.membership.users.load(Ordering::Relaxed)
}

/// # Safety
/// The cache lives, and the registry's lock is held, or nobody else knows the cache. One result for a cache at a time.
unsafe fn links<'a>(cache: *const Control) -> &'a mut Links {
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
    let list = List { first: ptr::null(), entered: 0, cursor: 0 };
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
            // Guests in the parent's other threads do not leave here.
            if INNERMOST.try_with(Cell::get) == Ok(ptr::null()) {
                let list = self.list.lock();
                // Relaxed: there is no other thread.
                list.iter().for_each(|cache| cache.membership.guests.store(0, Ordering::Relaxed));
            }
            reclaim::after_fork();
        }
    }
}
