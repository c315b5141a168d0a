//! Slots that own their cache, pinned slots, and memory that is there before its value.
#![cfg(not(loom))]

use crate::support::each_fault;
use quietline_platform::{AllocError, fault};
use quietline_slab::{Cache, Options, OwnedSlot, Slot};
use std::cell::Cell;
use std::marker::PhantomPinned;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::thread;

fn small<T>(name: &str) -> Cache<T> {
    Cache::with_options(Options { sheaf_capacity: 2, ..Options::of::<T>(name) }).unwrap()
}

#[test]
fn owned_slots_keep_their_cache() {
    let cache = Arc::new(small::<Rc<u32>>("owned"));
    let value = Rc::new(7);
    let mut slots: Vec<OwnedSlot<Rc<u32>>> =
        (0..5).map(|_| cache.alloc_owned(value.clone()).unwrap()).collect();
    slots.push(cache.alloc_with(|| value.clone()).unwrap().into_owned(&cache));
    assert_eq!((Arc::strong_count(&cache), cache.stats().active), (7, 6));
    assert!(Arc::ptr_eq(OwnedSlot::cache(&slots[0]), &cache));
    let watch = Arc::downgrade(&cache);
    drop(cache);
    let moved = slots.pop().unwrap().into_inner();
    assert_eq!((*moved, Rc::strong_count(&value), watch.strong_count()), (7, 7, 5));
    *slots[1] = Rc::new(8);
    assert_eq!((**slots[1], format!("{:?}", slots[1])), (8, "8".to_owned()));
    slots.truncate(1);
    let last = slots.pop().unwrap();
    assert_eq!(OwnedSlot::cache(&last).stats().active, 1);
    drop(last);
    assert_eq!((Rc::strong_count(&value), watch.strong_count()), (2, 0), "the cache went last");
}

/// An owned slot has no lifetime: it goes to threads that are not scoped, which may drop the cache.
#[test]
fn owned_slots_leave_their_function() {
    struct Connection {
        buffer: OwnedSlot<[u8; 100]>,
    }
    fn accept(n: u8) -> Connection {
        let cache = Arc::new(small("connections"));
        Connection { buffer: cache.alloc_owned([n; 100]).unwrap() }
    }
    let threads = [1, 2, 3].map(|n| {
        let connection = accept(n);
        thread::spawn(move || assert_eq!(*connection.buffer, [n; 100]))
    });
    for thread in threads {
        thread.join().unwrap();
    }
}

#[test]
fn an_owned_slot_of_another_cache_is_refused() {
    let [one, other] = [(); 2].map(|()| Arc::new(small::<Rc<()>>("two")));
    let value = Rc::new(());
    let slot = one.alloc(value.clone()).unwrap();
    assert!(catch_unwind(AssertUnwindSafe(|| slot.into_owned(&other))).is_err());
    assert_eq!((Rc::strong_count(&value), one.stats().active, other.stats().active), (1, 0, 0));
}

/// The memory of a value whose drop panics is freed, and the cache after it.
#[test]
fn an_owned_slot_whose_drop_panics() {
    struct Panics;
    impl Drop for Panics {
        fn drop(&mut self) {
            panic!("the drop panics");
        }
    }
    let cache = Arc::new(small("panics"));
    let slots = [(); 2].map(|()| cache.alloc_owned(Panics).unwrap());
    let [first, last] = slots;
    assert!(catch_unwind(AssertUnwindSafe(|| drop(first))).is_err());
    assert_eq!((Arc::strong_count(&cache), cache.stats().active), (2, 1));
    let watch = Arc::downgrade(&cache);
    drop(cache);
    assert!(catch_unwind(AssertUnwindSafe(|| drop(last))).is_err());
    assert_eq!(watch.strong_count(), 0);
}

/// A value that knows its own address, as a node of an intrusive list does.
struct OwnAddress {
    address: Cell<*const OwnAddress>,
    fails: bool,
    dropped: Rc<Cell<u32>>,
    _pinned: PhantomPinned,
}

impl OwnAddress {
    fn new(fails: bool, dropped: &Rc<Cell<u32>>) -> Self {
        let address = Cell::new(std::ptr::null());
        Self { address, fails, dropped: dropped.clone(), _pinned: PhantomPinned }
    }

    fn register(self: Pin<&mut Self>) -> Result<(), &'static str> {
        let this: *const Self = &*self;
        self.address.set(this);
        if self.fails { Err("no room") } else { Ok(()) }
    }
}

impl Drop for OwnAddress {
    fn drop(&mut self) {
        let this: *const Self = self;
        assert!(self.address.get().is_null() || self.address.get() == this, "it has moved");
        self.dropped.set(self.dropped.get() + 1);
    }
}

#[test]
fn pinned_slots_do_not_move() {
    let dropped = Rc::new(Cell::new(0));
    let cache = Arc::new(small::<OwnAddress>("pinned"));
    let registered = |fails| -> Result<Pin<Slot<'_, OwnAddress>>, &'static str> {
        let mut slot = cache.alloc_pin(OwnAddress::new(fails, &dropped)).unwrap();
        slot.as_mut().register()?;
        Ok(slot)
    };
    let pinned: Vec<_> = (0..9).map(|_| registered(false).unwrap()).collect();
    assert!(pinned.iter().all(|slot| std::ptr::eq(slot.address.get(), &**slot)));
    assert_eq!(registered(true).err(), Some("no room"));
    assert_eq!((dropped.get(), cache.stats().active), (1, 9), "what failed is dropped in place");
    drop(pinned);
    // In an owned slot, too, which moves and takes its value along by address.
    let slot = cache.alloc(OwnAddress::new(false, &dropped)).unwrap();
    let mut owned: Pin<OwnedSlot<_>> = slot.into_owned(&cache).into();
    owned.as_mut().register().unwrap();
    let boxed = Box::new(owned);
    assert!(std::ptr::eq(boxed.address.get(), &**boxed));
    drop(boxed);
    assert_eq!((dropped.get(), cache.stats().active), (11, 0));
}

/// The memory of a pinned value that is forgotten is not used again, not even after its cache.
#[test]
fn a_forgotten_pin_keeps_its_memory() {
    let cache = small::<[u64; 8]>("forgotten");
    let pinned = cache.alloc_pin([7; 8]).unwrap();
    let value: *const [u64; 8] = &*pinned;
    std::mem::forget(pinned);
    for _ in 0..20 {
        let slots: Vec<_> = (0..40).map(|_| cache.alloc([0; 8]).unwrap()).collect();
        assert!(slots.iter().all(|slot| !std::ptr::eq(&**slot, value)));
        drop(slots);
        cache.shrink();
    }
    drop(cache);
    // SAFETY: the value was never dropped, and its memory is leaked.
    assert_eq!(unsafe { value.read() }, [7; 8]);
}

#[test]
fn vacant_slots() {
    let cache = small::<Rc<u32>>("vacant");
    let value = Rc::new(7);
    let mut vacant = cache.alloc_vacant().unwrap();
    assert_eq!(cache.stats().active, 1);
    vacant.as_uninit_mut().write(value.clone());
    // SAFETY: written above.
    let slot = unsafe { vacant.assume_init() };
    assert_eq!((Rc::strong_count(&value), **slot), (2, 7));
    drop(slot);
    drop(cache.alloc_vacant().unwrap());
    drop(cache.alloc_vacant().unwrap().write(value.clone()));
    assert_eq!((Rc::strong_count(&value), cache.stats().active), (1, 0));
    assert!(format!("{:?}", cache.alloc_vacant().unwrap()).starts_with("VacantSlot"));
}

/// Initialisation in place: a value, an error, a panic, and a reference to another value.
#[test]
fn values_are_initialised_in_place() {
    let cache = small::<(usize, Rc<()>)>("in place");
    let value = Rc::new(());
    let init = |fails: bool| {
        let vacant = cache.alloc_vacant().unwrap();
        vacant.init_with(|memory| {
            let address = memory.as_ptr().addr();
            if fails { Err("not today") } else { Ok(memory.write((address, value.clone()))) }
        })
    };
    let slot = init(false).unwrap();
    assert_eq!(slot.0, (&raw const *slot).addr());
    assert_eq!(init(true).err(), Some("not today"));
    assert_eq!((Rc::strong_count(&value), cache.stats().active), (2, 1));
    drop(slot);
    let panics = || cache.alloc_vacant().unwrap().init_with::<()>(|_| panic!("no more"));
    assert!(catch_unwind(AssertUnwindSafe(panics)).is_err());
    let other = || {
        let elsewhere = Box::leak(Box::new((0, Rc::new(()))));
        cache.alloc_vacant().unwrap().init_with::<()>(|_| Ok(elsewhere))
    };
    assert!(catch_unwind(AssertUnwindSafe(other)).is_err());
    assert_eq!((Rc::strong_count(&value), cache.stats().active), (1, 0));
}

/// A vacant slot may be filled by another thread, with a value of its own.
#[test]
fn vacant_slots_travel() {
    let cache = small::<Rc<u32>>("travel");
    let vacant = cache.alloc_vacant().unwrap();
    thread::scope(|scope| {
        scope.spawn(move || assert_eq!(**vacant.write(Rc::new(3)), 3));
    });
    assert_eq!(cache.stats().active, 0);
}

/// Each allocation fails once: the call says so, the value is dropped, and nothing is left.
#[test]
fn memory_runs_out() {
    quietline_testing::isolated!();
    let value = Rc::new(());
    let faults = each_fault(|_| {
        let Ok(cache) = Cache::<Rc<()>>::new("runs out") else { return };
        let cache = Arc::new(cache);
        let attempts: [&dyn Fn() -> Result<(), AllocError>; 4] = [
            &|| cache.alloc_owned(value.clone()).map(drop),
            &|| cache.alloc_pin(value.clone()).map(drop),
            &|| cache.alloc_vacant().map(|vacant| drop(vacant.write(value.clone()))),
            &|| cache.alloc_vacant().map(|vacant| drop(vacant.init_with(|_| Err(())))),
        ];
        for attempt in attempts {
            let armed = fault::armed();
            let failed = attempt().is_err();
            assert!(!failed || armed && !fault::armed(), "only a fault fails");
            assert_eq!((Rc::strong_count(&value), Arc::strong_count(&cache)), (1, 1));
            assert_eq!(cache.stats().active, 0);
        }
    });
    assert!(faults >= 2, "{faults}");
    // Without any memory from here on, an owned slot says so and drops the value.
    let cache = Arc::new(Cache::<Rc<()>>::new("none left").unwrap());
    fault::fail_from(1);
    let result = cache.alloc_owned(value.clone());
    fault::fail_nth(0);
    assert!(result.is_err());
    assert_eq!((Rc::strong_count(&value), Arc::strong_count(&cache)), (1, 1));
}
