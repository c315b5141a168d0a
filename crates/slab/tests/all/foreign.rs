//! Freeing and allocating run no code of a user: no drop, no release function, no destructor of
//! objects, and no callback of the domain. The caller of a free may hold a lock that such code
//! takes.

use quietline_platform::fault;
use quietline_slab::{
    Hook, Options, RawCache, RcuCache, Typesafe, TypesafeCache, Unlinked, set_decay_interval,
};
use quietline_sync::rcu::Domain;
use std::cell::Cell;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::time::Duration;

thread_local! {
    /// Whether the thread is inside an operation that runs no code of a user.
    static INSIDE: Cell<bool> = const { Cell::new(false) };
}

/// Calls of user code: all, and those inside such an operation.
static RUNS: AtomicUsize = AtomicUsize::new(0);
static RUNS_INSIDE: AtomicUsize = AtomicUsize::new(0);

fn user_code() {
    RUNS.fetch_add(1, Relaxed);
    RUNS_INSIDE.fetch_add(usize::from(INSIDE.get()), Relaxed);
}

fn inside<R>(f: impl FnOnce() -> R) -> R {
    INSIDE.set(true);
    let result = f();
    INSIDE.set(false);
    result
}

fn runs() -> [usize; 2] {
    [RUNS.swap(0, Relaxed), RUNS_INSIDE.swap(0, Relaxed)]
}

struct Value<const N: usize = 3>([u64; N]);

impl<const N: usize> Drop for Value<N> {
    fn drop(&mut self) {
        assert_eq!(self.0, [7; N]);
        user_code();
    }
}

// SAFETY: there is no LINK_OFFSET.
unsafe impl<const N: usize> Typesafe for Value<N> {
    fn construct() -> Self {
        Value([7; N])
    }
}

unsafe fn user_hook(_: NonNull<u8>) {
    user_code();
}

unsafe fn construct(_: NonNull<u8>) {}

const MANY: usize = 20_000;

/// Queues calls of a user and takes them through their grace periods: they are due and have not
/// run.
fn make_due(domain: &Domain, calls: usize) {
    (0..calls).for_each(|_| domain.defer(user_code).unwrap());
    (0..2).for_each(|_| domain.cond_synchronize(domain.get_state_synchronize()));
    assert_eq!(RUNS.load(Relaxed), 0);
}

#[test]
fn a_free_by_rcu_drops_no_value() {
    quietline_testing::isolated!();
    let domain = Domain::leaked().unwrap();
    let cache = RcuCache::<Value<3>>::new("foreign-rcu", domain).unwrap();
    for n in 0..MANY {
        let value = Unlinked::from(cache.alloc(Value([7; 3])).unwrap());
        inside(|| drop(value));
        if n % 1000 == 0 {
            domain.poll();
        }
    }
    cache.flush();
    assert_eq!(runs(), [MANY, 0]);
}

/// A closure of another user of the domain, which a free of any cache used to run.
#[test]
fn a_free_by_rcu_runs_no_callback_of_others() {
    quietline_testing::isolated!();
    let domain = Domain::leaked().unwrap();
    let cache = RcuCache::<u64>::new("foreign-others", domain).unwrap();
    make_due(domain, 1000);
    let free = |_| drop(Unlinked::from(cache.alloc(7).unwrap()));
    inside(|| (0..MANY).for_each(free));
    domain.barrier();
    assert_eq!(runs(), [1000, 0]);
}

/// Empty slabs of a cache with a destructor stay until the program shrinks the cache.
#[test]
fn a_free_calls_no_destructor() {
    quietline_testing::isolated!();
    let options = Options {
        ctor: Some(Hook::new(construct)),
        dtor: Some(Hook::new(user_hook)),
        min_partial: 0,
        ..Options::new("foreign-dtor", 512, 8)
    };
    // SAFETY: the hooks do nothing with the objects.
    let cache = unsafe { RawCache::with_hooks(options).unwrap() };
    for _ in 0..3 {
        let mut entries: Vec<_> = (0..MANY).map(|_| Some(cache.alloc().unwrap())).collect();
        // SAFETY: allocated above, and freed once.
        inside(|| unsafe { cache.free_bulk(&mut entries) });
        let out: Vec<_> = (0..MANY).map(|_| cache.alloc().unwrap()).collect();
        // SAFETY: as above.
        inside(|| out.into_iter().for_each(|object| unsafe { cache.free(object) }));
    }
    let [all, inside] = runs();
    assert_eq!((all, inside), (0, 0));
    cache.shrink();
    assert_eq!(cache.stats().slabs, 0);
    assert!(runs()[0] >= MANY);
}

#[test]
fn a_typesafe_free_drops_no_value() {
    quietline_testing::isolated!();
    let domain = Domain::leaked().unwrap();
    make_due(domain, 1000);
    let cache = TypesafeCache::<Value<256>>::new("foreign-typesafe", domain).unwrap();
    for _ in 0..3 {
        let out: Vec<_> = (0..MANY).map(|_| cache.alloc().unwrap()).collect();
        // SAFETY: allocated above, and freed once.
        inside(|| out.into_iter().for_each(|object| unsafe { cache.free(object) }));
        domain.synchronize();
    }
    cache.shrink();
    domain.barrier();
    let [all, inside] = runs();
    assert!(all >= MANY && inside == 0, "{all} drops and callbacks, {inside} inside a free");
}

/// Idle memory goes while caches are used, but not that of a cache with a destructor.
#[test]
fn decay_inside_an_allocation_calls_no_destructor() {
    quietline_testing::isolated!();
    let dtor = Some(Hook::new(user_hook));
    let options = Options { dtor, ..Options::new("foreign-idle", 512, 8) };
    // SAFETY: the hook does nothing with the objects.
    let cache = unsafe { RawCache::with_hooks(options).unwrap() };
    set_decay_interval(Duration::from_nanos(1));
    inside(|| {
        for _ in 0..20 {
            let out: Vec<_> = (0..MANY).map(|_| cache.alloc().unwrap()).collect();
            // SAFETY: allocated above, and freed once.
            out.into_iter().for_each(|object| unsafe { cache.free(object) });
        }
    });
    assert_eq!(runs(), [0, 0]);
    drop(cache);
    assert!(runs()[0] >= MANY);
}

/// No memory for a sheaf, no room in the slab: the free waits for a grace period, and runs nothing
/// but the release function of its own object.
#[test]
fn a_free_without_memory_runs_no_callback_of_others() {
    quietline_testing::isolated!();
    let domain = quietline_sync::rcu::global().unwrap();
    let cache =
        RawCache::new(Options { sheaves: false, ..Options::new("foreign-memory", 64, 8) }).unwrap();
    let object = cache.alloc().unwrap();
    make_due(domain, 10);
    inside(|| {
        fault::fail_from(1);
        // SAFETY: allocated above, and freed once.
        unsafe { cache.free_rcu(object) };
        fault::fail_nth(0);
    });
    domain.barrier();
    assert_eq!(runs(), [10, 0]);
}
