//! [`Account`].
#![cfg(not(loom))]

use quietline_platform::fault;
use quietline_slab::TypesafeCache;
use quietline_slab::{Account, Cache, CacheError, Merge, Options, RawCache, Slot, Typesafe};
use quietline_sync::rcu::Domain;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

type Line = [u8; 1000];

/// Without sheaves, so that no other CPU has objects in reserve.
fn cache(account: &Account) -> Cache<Line> {
    let cache = Cache::with_options(Options { sheaves: false, ..Options::of::<Line>("line") });
    let cache = cache.unwrap();
    cache.charge_to(account).unwrap();
    cache
}

/// Allocates until it is refused.
fn fill(cache: &Cache<Line>) -> Vec<Slot<'_, Line>> {
    std::iter::from_fn(|| cache.alloc([1; 1000]).ok()).collect()
}

#[test]
fn whole_slabs_are_charged_up_to_the_limit() {
    let block = Cache::<Line>::new("line").unwrap().layout().block;
    let objects = Cache::<Line>::new("line").unwrap().layout().objects;
    // One byte less than a slab more, the exact size, and one byte more.
    for (limit, slabs) in
        [(0, 0), (block - 1, 0), (block, 1), (block + 1, 1), (3 * block - 1, 2), (3 * block, 3)]
    {
        let account = Account::new(Some(limit)).unwrap();
        let cache = cache(&account);
        let kept = fill(&cache);
        assert_eq!(account.used(), slabs * block, "limit {limit}");
        assert_eq!(kept.len(), slabs * objects, "limit {limit}");
        assert!(account.refusals() > 0);
        // What is free serves again without a charge.
        drop(kept);
        let used = account.used();
        assert_eq!(fill(&cache).len(), slabs * objects);
        assert_eq!(account.used(), used);
        cache.shrink();
        assert_eq!(account.used(), 0);
    }
}

#[test]
fn caches_share_an_account() {
    let account = Account::new(Some(1 << 20)).unwrap();
    let (one, other) = (cache(&account), cache(&account));
    let kept = fill(&one);
    assert!(other.alloc([0; 1000]).is_err());
    let (slabs, other_slabs) = (one.stats().slabs, other.stats().slabs);
    assert_eq!(account.used(), slabs * one.stats().slab_size);
    assert_eq!(other_slabs, 0);
    drop(kept);
    one.shrink();
    assert!(other.alloc([0; 1000]).is_ok());
    // A cache that ends gives back all; the account may end before it, by its first handle.
    drop(one);
    let again = account.clone();
    drop(account);
    drop(other);
    assert_eq!(again.used(), 0);
}

#[test]
fn a_limit_may_be_changed() {
    let account = Account::new(None).unwrap();
    assert_eq!(account.limit(), None);
    let cache = cache(&account);
    let kept: Vec<_> = (0..1000).map(|_| cache.alloc([0; 1000]).unwrap()).collect();
    let used = account.used();
    assert!(used >= 1_000_000);
    // Below use: what there is stays, and no slab is added.
    account.set_limit(Some(1));
    assert_eq!(account.limit(), Some(1));
    let more = fill(&cache);
    assert_eq!(account.used(), used);
    assert!(more.len() < cache.layout().objects);
    account.set_limit(None);
    assert_eq!(account.refusals(), 1);
    drop(cache.alloc([0; 1000]).unwrap());
    drop((kept, more));
}

struct Session;

// SAFETY: it has no state.
unsafe impl Typesafe for Session {
    fn construct() -> Self {
        Self
    }
}

/// Memory that readers may look at stays charged until its grace period is over.
#[test]
fn memory_that_waits_for_a_grace_period_is_charged() {
    let account = Account::new(None).unwrap();
    let domain: &'static Domain = Box::leak(Box::new(Domain::new().unwrap()));
    let typesafe = TypesafeCache::<Session>::new("session", domain).unwrap();
    typesafe.charge_to(&account).unwrap();
    let deferred = Options { rcu: Some(domain), ..Options::of::<Line>("line") };
    let deferred = RawCache::new(deferred).unwrap();
    deferred.charge_to(&account).unwrap();
    let guard = domain.read();
    let session = typesafe.alloc().unwrap();
    // SAFETY: allocated above, and not used.
    unsafe { typesafe.free(session) };
    let of_typesafe = account.used();
    typesafe.shrink();
    drop(typesafe);
    assert_eq!(account.used(), of_typesafe);
    let line = deferred.alloc().unwrap();
    // SAFETY: as above.
    unsafe { deferred.free_rcu(line) };
    deferred.shrink();
    assert!(account.used() > of_typesafe);
    drop(guard);
    drop(deferred);
    domain.barrier();
    assert_eq!(account.used(), 0);
}

#[test]
fn a_merged_cache_has_no_account() {
    let account = Account::new(None).unwrap();
    let options = Options { merge: Merge::Always, ..Options::new("one", 3000, 8) };
    let one = RawCache::new(options).unwrap();
    let twin = RawCache::new(options).unwrap();
    assert_eq!(one.charge_to(&account), Err(CacheError::Account));
    drop(twin);
    assert_eq!(one.charge_to(&account), Ok(()));
    assert_eq!(one.charge_to(&account), Err(CacheError::Account));
    // From now on the next one is another cache.
    let other = RawCache::new(options).unwrap();
    assert_ne!(other.stats().id, one.stats().id);
}

/// A block that the page allocator does not give is not charged.
#[test]
fn what_fails_is_not_charged() {
    quietline_testing::isolated!();
    let account = Account::new(None).unwrap();
    let mut failures = 0;
    loop {
        let cache = cache(&account);
        fault::fail_nth(failures + 1);
        let slot = cache.alloc([0; 1000]);
        let failed = !fault::armed();
        fault::fail_nth(0);
        drop(slot);
        assert_eq!(account.used(), cache.stats().slabs * cache.stats().slab_size);
        drop(cache);
        assert_eq!(account.used(), 0);
        if !failed {
            break;
        }
        failures += 1;
    }
    assert!(failures > 0);
}

/// Threads that grow and shrink two caches never see more than the limit, and charges are exact
/// at the end.
#[test]
fn threads_stay_within_the_limit() {
    const LIMIT: usize = 2 << 20;
    let account = Account::new(Some(LIMIT)).unwrap();
    let caches = [Cache::new("line").unwrap(), cache(&account)];
    caches[0].charge_to(&account).unwrap();
    let refused = AtomicUsize::new(0);
    thread::scope(|scope| {
        for number in 0..4 {
            let (account, cache, refused) = (&account, &caches[number % 2], &refused);
            scope.spawn(move || {
                for _ in 0..quietline_testing::scaled(20) {
                    let kept = fill(cache);
                    assert!(account.used() <= LIMIT);
                    refused.fetch_add(1, Ordering::Relaxed);
                    drop(kept);
                    cache.shrink();
                }
            });
        }
    });
    assert!(refused.load(Ordering::Relaxed) > 0 && account.refusals() > 0);
    let slabs: usize = caches.iter().map(|c| c.stats().slabs * c.stats().slab_size).sum();
    assert_eq!(account.used(), slabs);
    caches.iter().for_each(|cache| cache.shrink());
    assert_eq!(account.used(), 0);
}
