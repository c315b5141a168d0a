//! What a cache can do beyond allocation is the same for all kinds: tunables, checks, validation,
//! reclaim, statistics.
#![cfg(not(loom))]

use quietline_slab::{
    Cache, CacheError, Control, Counted, Debug, Held, Hook, Options, RawCache, RcuCache, Tunables,
    Typesafe, TypesafeCache, Violation, ViolationKind, set_violation_handler, with_cache,
};
use quietline_sync::{FileRef, rcu};
use std::ptr::NonNull;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

static FOUND: Mutex<Vec<Violation>> = Mutex::new(Vec::new());

fn note_violations() {
    set_violation_handler(|violation| FOUND.lock().unwrap().push(*violation));
}

#[track_caller]
fn only() -> ViolationKind {
    let mut found = FOUND.lock().unwrap();
    assert_eq!(found.len(), 1, "{found:?}");
    found.pop().unwrap().kind
}

fn domain() -> &'static rcu::Domain {
    rcu::global().unwrap()
}

struct Session {
    count: FileRef,
    id: AtomicU64,
}

// SAFETY: there is no LINK_OFFSET.
unsafe impl Typesafe for Session {
    fn construct() -> Self {
        Self { count: FileRef::dead(), id: AtomicU64::new(0) }
    }
}

// SAFETY: one count, dead at first, touched by nothing else.
unsafe impl Counted for Session {
    fn references(&self) -> &FileRef {
        &self.count
    }
}

/// Every operation of a control, on a cache with objects in use.
fn operate(control: &Control, name: &str, keeps_state: bool) {
    assert_eq!(control.stats().name, name);
    let active = control.stats().active;
    let tunables =
        Tunables { min_partial: 1, cpu_partial: 2, sheaf_capacity: 3, ..control.tunables() };
    control.set_tunables(tunables).unwrap();
    assert_eq!((control.tunables(), control.stats().tunables), (tunables, tunables));
    assert_eq!(control.debug(), Debug::OFF);
    assert_eq!(control.validate(), 0);
    control.set_debug(Debug::ALL).unwrap();
    let poison = if keeps_state { Debug::POISON } else { Debug::OFF };
    assert_eq!(control.debug(), Debug::ALL - poison);
    assert_eq!(control.validate(), 0);
    control.set_debug(Debug::OFF).unwrap();
    control.shrink();
    assert_eq!(control.stats().active, active);
    let same = with_cache(control.stats().id, |found| found.tunables()).expect("it lives");
    assert_eq!(same, tunables);
}

#[test]
fn all_kinds_of_caches() {
    quietline_testing::isolated!();
    let raw = RawCache::new(Options::new("raw", 24, 8)).unwrap();
    operate(&raw, "raw", false);
    let typed = Cache::<[u64; 3]>::new("typed").unwrap();
    let slots: Vec<_> = (0..20).map(|n| typed.alloc([n; 3]).unwrap()).collect();
    operate(&typed, "typed", false);
    assert!(slots.iter().zip(0..).all(|(slot, n)| **slot == [n; 3]));
    drop(slots);
    let typesafe = TypesafeCache::<Session>::new("typesafe", domain()).unwrap();
    let sessions: Vec<_> =
        (0..20).map(|n| Held::new(&typesafe, |s| s.id.store(n, Relaxed)).unwrap()).collect();
    operate(&typesafe, "typesafe", true);
    assert!(sessions.iter().zip(0..).all(|(session, n)| session.id.load(Relaxed) == n));
    drop(sessions);
    let by_rcu = RcuCache::<[u64; 3]>::new("by rcu", domain()).unwrap();
    let slot = by_rcu.alloc([7; 3]).unwrap();
    operate(&by_rcu, "by rcu", false);
    assert_eq!(*slot, [7; 3]);
}

/// A checked typed cache finds a write past a value, which safe code cannot make and a foreign
/// function can.
#[test]
fn red_zones_of_a_typed_cache() {
    quietline_testing::isolated!();
    note_violations();
    let options = Options { debug: Debug::RED_ZONE, ..Options::of::<[u8; 40]>("typed") };
    let cache = Cache::<[u8; 40]>::with_options(options).unwrap();
    assert_eq!(cache.debug(), Debug::RED_ZONE | Debug::CONSISTENCY);
    let mut slot = cache.alloc([1; 40]).unwrap();
    let end = slot.as_mut_ptr().wrapping_add(40);
    // SAFETY: in the object's slab, where the red zone is.
    unsafe { end.write(3) };
    assert_eq!(cache.validate(), 1);
    assert!(matches!(only(), ViolationKind::Overrun(_)));
    drop(slot);
    assert_eq!(cache.validate(), 0, "the red zone was restored");
}

/// Options of a typesafe cache: tunables and checks have effect; a double free and an overrun are
/// found, and constructed fields survive under checks.
#[test]
fn options_of_a_typesafe_cache() {
    quietline_testing::isolated!();
    note_violations();
    let options = Options {
        debug: Debug::ALL - Debug::TRACK,
        sheaf_capacity: 5,
        ..Options::of::<Session>("sessions")
    };
    let cache = TypesafeCache::<Session>::with_options(options, domain()).unwrap();
    let control: &Control = &cache;
    assert_eq!(control.tunables().sheaf_capacity, 5);
    assert_eq!(control.debug(), Debug::CONSISTENCY | Debug::RED_ZONE, "no poison");
    let session = cache.alloc().unwrap();
    // SAFETY: allocated above.
    unsafe { session.as_ref() }.id.store(9, Relaxed);
    // SAFETY: allocated above, at least the first time. The second time is found.
    unsafe {
        cache.free(session);
        cache.free(session);
    }
    assert_eq!(only(), ViolationKind::DoubleFree);
    let again = cache.alloc().unwrap();
    // SAFETY: allocated above; read by this thread only.
    assert_eq!((again, unsafe { again.as_ref() }.id.load(Relaxed)), (session, 9));
    // SAFETY: in the object's slab, where the red zone is.
    unsafe { again.add(1).cast::<u8>().write(3) };
    assert_eq!(control.validate(), 1);
    assert!(matches!(only(), ViolationKind::Overrun(_)));
    // SAFETY: allocated above.
    unsafe { cache.free(again) };
}

#[test]
fn options_that_a_typesafe_cache_refuses() {
    unsafe fn nothing(_: NonNull<u8>) {}
    let fit = Options::of::<Session>("sessions");
    let refused = |options| TypesafeCache::<Session>::with_options(options, domain()).unwrap_err();
    let (size, align) = (fit.size, fit.align);
    let small = Options { size: size - 1, ..fit };
    assert_eq!(refused(small), CacheError::WrongType { size: size - 1, align });
    let crooked = Options { align: align / 2, ..fit };
    assert_eq!(refused(crooked), CacheError::WrongType { size, align: align / 2 });
    let hook = Some(Hook::new(nothing));
    assert_eq!(refused(Options { ctor: hook, ..fit }), CacheError::Hooks);
    assert_eq!(refused(Options { dtor: hook, ..fit }), CacheError::Hooks);
    assert_eq!(refused(Options { typesafe: Some(domain()), ..fit }), CacheError::Domain);
    assert_eq!(refused(Options { rcu: Some(domain()), ..fit }), CacheError::Domain);
    assert_eq!(refused(Options { link_offset: Some(0), ..fit }), CacheError::BadLayout);
    // Larger and more aligned objects hold the type.
    let roomy = Options { size: 200, align: 64, ..fit };
    let cache = TypesafeCache::<Session>::with_options(roomy, domain()).unwrap();
    assert!(cache.alloc().unwrap().addr().get().is_multiple_of(64));
}
