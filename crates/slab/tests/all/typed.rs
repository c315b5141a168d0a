//! Typed caches.
#![cfg(not(loom))]

use quietline_slab::{Cache, CacheError, Hook, Options, Slot};
use quietline_sync::rcu;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::rc::Rc;
use std::thread;

#[test]
fn values_are_dropped_once() {
    let cache = Cache::<Rc<u32>>::new("rc").unwrap();
    let value = Rc::new(7);
    let slots: Vec<_> = (0..300).map(|_| cache.alloc(value.clone()).unwrap()).collect();
    assert_eq!((Rc::strong_count(&value), cache.stats().active), (301, 300));
    assert!(slots.iter().all(|slot| ***slot == 7));
    drop(slots);
    assert_eq!((Rc::strong_count(&value), cache.stats().active), (1, 0));
    let slot = cache.alloc(value.clone()).unwrap();
    let back = slot.into_inner();
    assert_eq!((Rc::strong_count(&value), cache.stats().active), (2, 0));
    drop(back);
    let raw = cache.alloc(value.clone()).unwrap().into_raw();
    assert_eq!((Rc::strong_count(&value), cache.stats().active), (2, 1));
    // SAFETY: the value is dropped once, and then its memory given back.
    unsafe {
        raw.drop_in_place();
        cache.free_raw(raw);
    }
    assert_eq!((Rc::strong_count(&value), cache.stats().active), (1, 0));
}

#[test]
fn bulk() {
    let cache = Cache::<(usize, Rc<()>)>::new("bulk").unwrap();
    let value = Rc::new(());
    let slots: [_; 250] = cache.alloc_bulk(|i| (i, value.clone())).unwrap();
    assert!(slots.iter().enumerate().all(|(i, slot)| slot.0 == i));
    assert_eq!((Rc::strong_count(&value), cache.stats().active), (251, 250));
    cache.free_bulk(slots);
    assert_eq!((Rc::strong_count(&value), cache.stats().active), (1, 0));
}

/// Whoever panics in the middle of a bulk allocation leaves nothing behind.
#[test]
fn a_panic_leaks_nothing() {
    let cache = Cache::<Rc<()>>::new("panic").unwrap();
    let value = Rc::new(());
    let result = catch_unwind(AssertUnwindSafe(|| {
        let _slots: [Slot<'_, Rc<()>>; 40] =
            cache.alloc_bulk(|i| if i < 20 { value.clone() } else { panic!("no more") }).unwrap();
    }));
    assert!(result.is_err());
    assert_eq!((Rc::strong_count(&value), cache.stats().active), (1, 0));
}

/// The memory of a value whose drop panics is freed, as a box's is, alone and in bulk.
#[test]
fn a_panicking_drop_leaks_nothing() {
    struct Panics(bool);
    impl Drop for Panics {
        fn drop(&mut self) {
            assert!(!self.0, "the drop panics");
        }
    }
    let cache = Cache::<Panics>::new("panicking drop").unwrap();
    let slot = cache.alloc(Panics(true)).unwrap();
    assert!(catch_unwind(AssertUnwindSafe(|| drop(slot))).is_err());
    assert_eq!(cache.stats().active, 0);
    let slots: [_; 9] = cache.alloc_bulk(|i| Panics(i == 4)).unwrap();
    assert!(catch_unwind(AssertUnwindSafe(|| cache.free_bulk(slots))).is_err());
    assert_eq!(cache.stats().active, 0);
}

#[test]
fn slots_of_another_cache() {
    let (one, other) = (Cache::<u64>::new("one").unwrap(), Cache::<u64>::new("other").unwrap());
    let slots = [one.alloc(1).unwrap()];
    assert!(catch_unwind(AssertUnwindSafe(|| other.free_bulk(slots))).is_err());
    assert_eq!(
        (one.stats().active, other.stats().active),
        (0, 0),
        "the slot was dropped into its own cache"
    );
}

#[test]
fn zero_sized_and_over_aligned() {
    #[derive(Debug, Default)]
    struct Nothing;
    #[repr(align(4096))]
    struct Page([u8; 100]);
    let cache = Cache::<Nothing>::new("nothing").unwrap();
    let slots: Vec<_> = (0..5000).map(|_| cache.alloc(Nothing).unwrap()).collect();
    assert_eq!(cache.stats().active, 5000);
    drop(slots);
    assert_eq!(cache.stats().active, 0);
    let cache = Cache::<Page>::new("page").unwrap();
    let slots: Vec<_> = (0..100).map(|i| cache.alloc(Page([i; 100])).unwrap()).collect();
    for (i, slot) in slots.iter().enumerate() {
        assert!((&raw const **slot).addr().is_multiple_of(4096));
        assert_eq!(slot.0, [i as u8; 100]);
    }
}

#[test]
fn options_must_fit() {
    unsafe fn hook(_: std::ptr::NonNull<u8>) {}
    let fits = Options::new("fits", 64, 8);
    assert!(Cache::<[u64; 8]>::with_options(Options { sheaf_capacity: 3, ..fits }).is_ok());
    let wrong = CacheError::WrongType { size: 64, align: 8 };
    assert_eq!(Cache::<[u64; 9]>::with_options(fits).unwrap_err(), wrong);
    assert_eq!(Cache::<u128>::with_options(fits).unwrap_err(), wrong);
    let hooked = Options { ctor: Some(Hook::new(hook)), ..fits };
    assert_eq!(Cache::<u64>::with_options(hooked).unwrap_err(), CacheError::Hooks);
    for domain in [rcu::global().unwrap(), rcu::Domain::leaked().unwrap()] {
        let [typesafe, rcu] =
            [Options { typesafe: Some(domain), ..fits }, Options { rcu: Some(domain), ..fits }];
        for options in [typesafe, rcu] {
            assert_eq!(Cache::<u64>::with_options(options).unwrap_err(), CacheError::Domain);
        }
    }
    assert!(matches!(Cache::<[u8; 20000]>::new("large").unwrap_err(), CacheError::TooLarge { .. }));
}

/// A slot may be dropped by another thread than made it.
#[test]
fn slots_travel() {
    let cache = Cache::<Vec<u32>>::new("travel").unwrap();
    for round in 0..50 {
        let slots: Vec<_> = (0..100).map(|i| cache.alloc(vec![i, round]).unwrap()).collect();
        thread::scope(|scope| {
            scope.spawn(move || {
                assert!(slots.iter().zip(0..).all(|(slot, i)| **slot == [i, round]))
            });
        });
    }
    assert_eq!(cache.stats().active, 0);
    let debug = format!("{cache:?} {:?}", cache.alloc(vec![1]).unwrap());
    assert!(debug.contains("travel") && debug.ends_with("[1]"));
}
