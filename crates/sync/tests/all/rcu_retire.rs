//! Retirement of boxes, `Arc`s, indices and handles: dropped once, never early, within the bound of
//! the garbage, with the domain's end at the latest.
#![cfg(not(loom))]

use quietline_platform::{cpu, fault};
use quietline_sync::rcu::{
    BATCH, BYTES_PER_OBJECT, Domain, DomainHandle, Pointer, RcuBox, Reclaimer, RetireError,
    RetireQueue,
};
use std::cell::Cell;
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU32, AtomicUsize, Ordering::*};
use std::sync::{Arc, Mutex};
use std::thread;

/// A value that counts the values that are alive, and that finds its own second drop.
struct Counted {
    number: usize,
    alive: AtomicBool,
    live: Arc<AtomicUsize>,
}

impl Counted {
    fn new(number: usize, live: &Arc<AtomicUsize>) -> Self {
        live.fetch_add(1, Relaxed);
        Self { number, alive: AtomicBool::new(true), live: live.clone() }
    }

    fn check(&self) {
        assert!(self.alive.load(Relaxed), "dropped before the grace period");
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        assert!(self.alive.swap(false, Relaxed), "dropped twice");
        self.live.fetch_sub(1, Relaxed);
    }
}

fn counter() -> Arc<AtomicUsize> {
    Arc::new(AtomicUsize::new(0))
}

/// The objects of a domain at its limit, if a thread at a time retires.
fn bound(domain: &Domain) -> usize {
    (domain.backlog_limit() + BATCH as u64 * cpu::nr_cpus() as u64) as usize
}

/// A value that no reader has seen is dropped at once; a published one after a grace period.
#[test]
fn a_pointer_retires_what_it_held() {
    let domain = Domain::new().unwrap();
    let live = counter();
    drop(RcuBox::new(&domain, Counted::new(1, &live)).unwrap());
    assert_eq!((live.load(Relaxed), domain.backlog()), (0, 0));
    let mut fresh = RcuBox::new(&domain, Counted::new(2, &live)).unwrap();
    fresh.number = 3;
    let value = fresh.into_inner();
    assert_eq!((value.number, live.load(Relaxed)), (3, 1));
    let pointer = Pointer::empty(&*domain);
    let section = domain.read();
    assert!(pointer.load(&section).is_none());
    assert!(pointer.replace(RcuBox::new(&domain, value).unwrap()).is_none());
    let old = pointer.load(&section).unwrap();
    drop(pointer.replace(RcuBox::new(&domain, Counted::new(4, &live)).unwrap()));
    (0..10).for_each(|_| assert!(domain.poll()));
    old.check();
    assert_eq!((old.number, pointer.load(&section).unwrap().number), (3, 4));
    assert_eq!(live.load(Relaxed), 2);
    // From one pointer to another: not retired.
    let other = Pointer::new(pointer.take().unwrap());
    assert_eq!(other.load(&section).unwrap().number, 4);
    drop(section);
    domain.barrier();
    assert_eq!(live.load(Relaxed), 1);
    drop(other);
    domain.barrier();
    assert_eq!((live.load(Relaxed), domain.backlog()), (0, 0));
}

#[test]
fn replace_if_unchanged() {
    let domain = Domain::new().unwrap();
    let new = |number| RcuBox::new(&domain, number).unwrap();
    let pointer = Pointer::empty(&*domain);
    {
        let section = domain.read();
        assert!(pointer.replace_if(None, new(1_u64), &section).unwrap().is_none());
        let one = pointer.load(&section);
        let refused = pointer.replace_if(None, new(2), &section).unwrap_err();
        assert_eq!(*refused, 2);
        assert_eq!(*pointer.replace_if(one, refused, &section).unwrap().unwrap(), 1);
        assert!(pointer.replace_if(one, new(3), &section).is_err());
    }
    // Several threads add one at a time: none is lost.
    let each = if cfg!(miri) { 20 } else { 2000 };
    thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| {
                for _ in 0..each {
                    let section = domain.read();
                    let mut next = new(0);
                    loop {
                        let current = pointer.load(&section);
                        *next = current.unwrap() + 1;
                        match pointer.replace_if(current, next, &section) {
                            Ok(old) => break drop(old),
                            Err(back) => next = back,
                        }
                    }
                }
            });
        }
    });
    assert_eq!(pointer.take().map(|last| *last), Some(2 + 3 * each));
}

#[test]
#[should_panic(expected = "of another domain than that of the pointer")]
fn a_section_of_another_domain_is_refused() {
    let (mine, other) = (Domain::new().unwrap(), Domain::new().unwrap());
    let pointer = Pointer::<u64>::empty(&*mine);
    let section = other.read();
    let _ = pointer.load(&section);
}

#[test]
#[should_panic(expected = "belongs to another storage")]
fn a_value_of_another_domain_is_refused() {
    let (mine, other) = (Domain::new().unwrap(), Domain::new().unwrap());
    let _ = Pointer::empty(&*mine).replace(RcuBox::new(&other, 7).unwrap());
}

/// Sizes and alignments of values: the head lies before each.
#[test]
fn values_of_all_layouts() {
    #[derive(Clone, Copy)]
    #[repr(align(256))]
    struct Aligned([u8; 300]);
    let domain = Domain::new().unwrap();
    let nothing = Pointer::new(RcuBox::new(&domain, ()).unwrap());
    let aligned = Pointer::new(RcuBox::new(&domain, Aligned([7; 300])).unwrap());
    let large = Pointer::new(RcuBox::new(&domain, [9_u16; 10_000]).unwrap());
    let section = domain.read();
    assert!(nothing.load(&section).is_some());
    let found = aligned.load(&section).unwrap();
    assert_eq!((found.0[299], std::ptr::from_ref(found).addr() % 256), (7, 0));
    assert_eq!(large.load(&section).unwrap()[9_999], 9);
    drop((nothing, aligned, large));
    assert_eq!((found.0[299], domain.backlog()), (7, 1 + 1 + 20));
    drop(section);
    domain.barrier();
    assert_eq!(domain.backlog(), 0);
}

/// Property 8, by pointers: two updaters replace, two readers look, and no reader finds a value
/// after its drop.
#[test]
fn property_8_values_are_dropped_once_and_never_early() {
    let domain = Domain::new().unwrap();
    let live = counter();
    let new = || RcuBox::new(&domain, Counted::new(0, &live)).unwrap();
    let pointers = [Pointer::new(new()), Pointer::new(new())];
    let stop = AtomicBool::new(false);
    thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                while !stop.load(Relaxed) {
                    let section = domain.read();
                    for pointer in &pointers {
                        let found = pointer.load(&section).unwrap();
                        (0..10).for_each(|_| found.check());
                    }
                }
            });
        }
        let rounds = quietline_testing::scaled(20_000);
        let (domain, new) = (&domain, &new);
        let updaters = pointers.each_ref().map(|pointer| {
            scope.spawn(move || {
                for i in 0..rounds {
                    drop(pointer.replace(new()));
                    if i % 64 == 0 {
                        domain.poll();
                    }
                }
            })
        });
        updaters.into_iter().for_each(|updater| updater.join().unwrap());
        stop.store(true, Relaxed);
    });
    drop(pointers);
    domain.barrier();
    assert_eq!(live.load(Relaxed), 0);
}

/// An `Arc` loses one reference after the grace period; a clone of a reader outlives it.
#[test]
fn arcs() {
    let domain = Domain::new().unwrap();
    let live = counter();
    let value = Arc::new(Counted::new(1, &live));
    let section = domain.read();
    domain.retire(value.clone()).unwrap();
    domain.retire(value.clone()).unwrap();
    RcuBox::new(&domain, value.clone()).unwrap().retire();
    (0..10).for_each(|_| assert!(domain.poll()));
    assert_eq!(Arc::strong_count(&value), 4);
    drop(section);
    domain.barrier();
    assert_eq!(Arc::strong_count(&value), 1);
    domain.retire(value).unwrap();
    domain.barrier();
    assert_eq!(live.load(Relaxed), 0);
}

/// Boxes that readers find by a pointer of the program's own, also of unsized types.
#[test]
fn raw_boxes() {
    let domain = Domain::new().unwrap();
    let live = counter();
    let current = AtomicPtr::new(Box::into_raw(Box::new(Counted::new(1, &live))));
    let section = domain.read();
    // SAFETY: found inside the section; so below.
    let old = unsafe { &*current.load(Acquire) };
    let unlinked = current.swap(Box::into_raw(Box::new(Counted::new(2, &live))), AcqRel);
    // SAFETY: a box that was unlinked just now; so below.
    unsafe { domain.retire_box(unlinked) }.unwrap();
    (0..10).for_each(|_| assert!(domain.poll()));
    old.check();
    assert_eq!(live.load(Relaxed), 2);
    drop(section);
    domain.barrier();
    assert_eq!(live.load(Relaxed), 1);
    let slice: Box<[Counted]> = (0..3).map(|i| Counted::new(i, &live)).collect();
    let erased: Box<dyn Send> = Box::new(Counted::new(9, &live));
    // SAFETY: as above.
    unsafe {
        domain.retire_box(Box::into_raw(slice)).unwrap();
        domain.retire_box(Box::into_raw(erased)).unwrap();
        // Without memory, the caller still owns the box.
        fault::fail_nth(1);
        let last = domain.retire_box(current.into_inner()).unwrap_err();
        fault::fail_nth(0);
        assert!(matches!(last, RetireError::NoMemory(_)));
        (*last.into_inner()).check();
        domain.retire_box(last.into_inner()).unwrap();
    }
    domain.barrier();
    assert_eq!(live.load(Relaxed), 0);
}

/// Without memory, a retirement returns the value, and the rest leaves all as it was.
#[test]
fn every_allocation_may_fail() {
    struct Unused;
    impl Reclaimer for Unused {
        fn notify(&self) {
            panic!("replaces none");
        }
    }
    let domain = Domain::new().unwrap();
    let live = counter();
    let failing = |f: &dyn Fn()| {
        fault::fail_nth(1);
        f();
        assert!(!fault::armed());
        fault::fail_nth(0);
    };
    failing(&|| {
        let refused = domain.retire(Counted::new(1, &live)).unwrap_err();
        assert!(matches!(refused, RetireError::NoMemory(_)));
        let value = refused.into_inner();
        value.check();
        // It is the caller's: a wait makes its drop safe.
        domain.synchronize();
    });
    failing(&|| assert!(RcuBox::new(&domain, Counted::new(2, &live)).is_err()));
    assert_eq!((live.load(Relaxed), domain.backlog()), (0, 0));
    failing(&|| assert!(RetireQueue::<u8>::new(&domain, 8).is_err()));
    failing(&|| assert!(domain.set_reclaimer(Some(Box::new(Unused))).is_err()));
    (0..2 * BATCH).for_each(|_| RcuBox::new(&domain, ()).unwrap().retire());
    for nth in 1.. {
        fault::fail_nth(nth);
        let handle = DomainHandle::new();
        let fired = !fault::armed();
        fault::fail_nth(0);
        assert_eq!(handle.is_err(), fired);
        if !fired {
            assert!(nth > 4, "counts, lists, box, registry of forks, count of owners");
            break;
        }
    }
}

/// A drop that panics harms neither the thread that runs it nor the callbacks behind it.
#[test]
fn a_panic_ends_in_its_drop() {
    struct Bomb(Arc<AtomicUsize>);
    impl Drop for Bomb {
        fn drop(&mut self) {
            if self.0.fetch_add(1, Relaxed) == 5 {
                panic!("a panic on purpose");
            }
        }
    }
    let domain = Domain::new().unwrap();
    let drops = counter();
    (0..10).for_each(|_| domain.retire(Bomb(drops.clone())).unwrap());
    domain.barrier();
    assert_eq!((drops.load(Relaxed), domain.backlog()), (10, 0));
}

/// A domain that is over its limit has a share for every thread, also when the limit is set later.
#[test]
fn a_limit_decides_shares() {
    quietline_testing::isolated!();
    let domain = Domain::new().unwrap();
    (0..2 * BATCH).for_each(|_| domain.retire(()).unwrap());
    let has_share = || thread::scope(|s| s.spawn(|| domain.is_pending()).join().unwrap());
    assert!(!has_share());
    domain.set_backlog_limit(1);
    assert!(has_share());
    domain.set_backlog_limit(u64::MAX);
    assert!(!has_share());
}

/// The bound of the garbage, in objects, beside a reader that never leaves: the value comes back,
/// and no call waits.
#[test]
fn garbage_at_its_bound_in_objects() {
    let domain = Domain::new().unwrap();
    let live = counter();
    domain.set_backlog_limit(3 * BATCH as u64);
    assert_eq!(domain.backlog_limit(), 3 * BATCH as u64);
    let section = domain.read();
    let mut accepted = 0;
    let refused = loop {
        match domain.retire(Counted::new(accepted, &live)) {
            Ok(()) => accepted += 1,
            Err(refused) => break refused,
        }
        assert!(accepted <= bound(&domain), "{accepted} and more");
    };
    assert!(matches!(refused, RetireError::Backlog(_)));
    assert!(domain.backlog() > domain.backlog_limit());
    // Past the bound the answer stays the same. Polls move nothing.
    let mut value = refused.into_inner();
    assert_eq!(domain.backlog(), accepted as u64);
    for _ in 0..20 {
        assert!(domain.poll());
        value = domain.retire(value).unwrap_err().into_inner();
        value.check();
    }
    assert_eq!(live.load(Relaxed), accepted + 1);
    // A box cannot be refused: its updater asks before.
    assert!(domain.is_over_backlog_limit());
    RcuBox::new(&domain, ()).unwrap().retire();
    drop(section);
    domain.barrier();
    assert!(!domain.is_over_backlog_limit());
    assert_eq!((live.load(Relaxed), domain.backlog()), (1, 0));
    domain.retire(value).unwrap();
    domain.barrier();
    assert_eq!(live.load(Relaxed), 0);
}

/// The bound of the garbage in bytes: those of the value, and those that it says that it owns.
#[test]
fn garbage_at_its_bound_in_bytes() {
    let domain = Domain::new().unwrap();
    let section = domain.read();
    RcuBox::new(&domain, 7_u8).unwrap().with_bytes(1 << 20).retire();
    assert_eq!(domain.backlog(), (1 << 20) / BYTES_PER_OBJECT as u64 + 1);
    RcuBox::new(&domain, 7_u8).unwrap().with_bytes(0).retire();
    assert_eq!(domain.backlog(), (1 << 20) / BYTES_PER_OBJECT as u64 + 2);
    drop(section);
    domain.barrier();

    const SIZE: usize = 64 << 10;
    domain.set_backlog_limit(1000);
    let section = domain.read();
    let mut bytes = 0;
    let refused = loop {
        match domain.retire([0_u8; SIZE]) {
            Ok(()) => bytes += SIZE,
            Err(refused) => break refused,
        }
        assert!(bytes <= bound(&domain) * BYTES_PER_OBJECT + SIZE, "{bytes} and more");
    };
    assert!(matches!(refused, RetireError::Backlog(_)));
    assert!(bytes > (1000 - BATCH as usize) * BYTES_PER_OBJECT, "{bytes}");
    drop(section);
    domain.barrier();
    assert_eq!(domain.backlog(), 0);
    // The largest weight.
    RcuBox::new(&domain, ()).unwrap().with_bytes(usize::MAX).retire();
    assert_eq!(domain.backlog(), i32::MAX as u64);
    domain.barrier();
    assert_eq!(domain.backlog(), 0);
}

/// A domain of a scope ends with all that was retired; a handle's with the last handle, on any
/// thread.
#[test]
fn domains_end_with_their_garbage() {
    let live = counter();
    let domain = Domain::new().unwrap();
    let pointer = Pointer::new(RcuBox::new(&domain, Counted::new(1, &live)).unwrap());
    drop(pointer.replace(RcuBox::new(&domain, Counted::new(2, &live)).unwrap()));
    drop(pointer);
    domain.retire(Counted::new(3, &live)).unwrap();
    assert_eq!(live.load(Relaxed), 3);
    drop(domain);
    assert_eq!(live.load(Relaxed), 0);

    let first = DomainHandle::new().unwrap();
    let handles = [first.clone(), first.clone(), first];
    let threads = handles.map(|handle| {
        let live = live.clone();
        thread::spawn(move || {
            let section = handle.read();
            handle.retire(Counted::new(4, &live)).unwrap();
            handle.poll();
            assert_ne!(live.load(Relaxed), 0, "retired inside the section");
            drop(section);
        })
    });
    threads.into_iter().for_each(|thread| thread.join().unwrap());
    assert_eq!(live.load(Relaxed), 0);
    // Of a domain that lives as long as the process.
    let handle = DomainHandle::from(Domain::leaked().unwrap());
    handle.clone().retire(Counted::new(5, &live)).unwrap();
    handle.barrier();
    assert_eq!(live.load(Relaxed), 0);
}

/// A callback that owns a handle of its own domain keeps the domain until it runs.
#[test]
fn a_callback_owns_its_domain() {
    let live = counter();
    let handle = DomainHandle::new().unwrap();
    handle.retire((Counted::new(1, &live), handle.clone())).unwrap();
    let section = handle.read();
    assert_eq!(live.load(Relaxed), 1);
    drop(section);
    handle.barrier();
    assert_eq!(live.load(Relaxed), 0);
    drop(handle);
}

/// A reclaimer that is replaced is dropped after a grace period; the last with its domain.
#[test]
fn reclaimers_end() {
    struct Told(AtomicUsize);
    impl Reclaimer for Told {
        fn notify(&self) {
            self.0.fetch_add(1, Relaxed);
        }
    }
    let domain = Domain::new().unwrap();
    let told = Arc::new(Told(AtomicUsize::new(0)));
    domain.set_reclaimer(Some(Box::new(told.clone()))).unwrap();
    let section = domain.read();
    domain.set_reclaimer(Some(Box::new(told.clone()))).unwrap();
    domain.poll();
    assert_eq!(Arc::strong_count(&told), 3);
    drop(section);
    domain.barrier();
    assert_eq!(Arc::strong_count(&told), 2);
    let mut retired = 0;
    while told.0.load(Relaxed) == 0 {
        assert!(retired <= BATCH as usize * cpu::nr_cpus(), "a batch is full on one CPU");
        RcuBox::new(&domain, ()).unwrap().retire();
        retired += 1;
    }
    drop(domain);
    assert_eq!(Arc::strong_count(&told), 1);
}

/// A queue returns values in order, each after its grace period, and no more than its capacity.
#[test]
fn a_queue_of_indices() {
    let domain = Domain::new().unwrap();
    let mut queue = RetireQueue::new(&domain, 3).unwrap();
    assert_eq!((queue.pop(), queue.pop_wait(), queue.is_empty()), (None, None, true));
    queue.push(1).unwrap();
    let section = domain.read();
    assert_eq!((queue.push(2), queue.push(3), queue.push(4)), (Ok(()), Ok(()), Err(4)));
    assert!(queue.is_full() && queue.len() == 3);
    // The first was retired before the section began, and no grace period has begun since.
    for _ in 0..10 {
        assert_eq!(queue.pop(), None);
    }
    drop(section);
    assert_eq!(queue.pop(), Some(1));
    queue.push(4).unwrap();
    assert_eq!((queue.pop_wait(), queue.pop_wait(), queue.pop_wait()), (Some(2), Some(3), Some(4)));
    assert_eq!((queue.pop_wait(), domain.backlog()), (None, 0));
    let mut full = RetireQueue::new(&domain, 0).unwrap();
    assert_eq!(full.push('x'), Err('x'));
}

/// A queue owns its values, which may borrow, and drops them after the last grace period.
#[test]
fn a_queue_waits_at_its_end() {
    struct Handle<'a>(&'a Cell<u32>);
    impl Drop for Handle<'_> {
        fn drop(&mut self) {
            self.0.set(self.0.get() + 1);
        }
    }
    let domain = Domain::new().unwrap();
    let drops = Cell::new(0);
    let left = AtomicBool::new(false);
    thread::scope(|scope| {
        let section = domain.read();
        let mut queue = RetireQueue::new(&domain, 5).unwrap();
        (0..5).for_each(|_| assert!(queue.push(Handle(&drops)).is_ok()));
        scope.spawn(|| {
            let section = section;
            thread::sleep(std::time::Duration::from_millis(20));
            left.store(true, Relaxed);
            drop(section);
        });
        drop(queue);
        assert!(left.load(Relaxed), "a section is open");
    });
    assert_eq!(drops.get(), 5);
}

/// A table of slots whose indices come back through a queue: no slot changes under a reader.
#[test]
fn property_8_a_slot_is_reused_after_its_grace_period() {
    const SLOTS: usize = 8;
    /// The content of a slot that no reader may use.
    const FREE: usize = usize::MAX;
    let domain = Domain::new().unwrap();
    let slots: [AtomicUsize; SLOTS] = std::array::from_fn(|_| AtomicUsize::new(FREE));
    let current = AtomicU32::new(0);
    slots[0].store(0, Relaxed);
    let stop = AtomicBool::new(false);
    let rounds = quietline_testing::scaled(2_000) as usize;
    let table = Mutex::new(RetireQueue::new(&domain, SLOTS).unwrap());
    thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                while !stop.load(Relaxed) {
                    let _section = domain.read();
                    let slot = &slots[current.load(Acquire) as usize];
                    let found = slot.load(Relaxed);
                    assert_ne!(found, FREE);
                    (0..10).for_each(|_| assert_eq!(slot.load(Relaxed), found));
                }
            });
        }
        let mut unused: Vec<usize> = (1..SLOTS).collect();
        for round in 1..=rounds {
            let mut retired = table.lock().unwrap();
            let slot = unused.pop().or_else(|| retired.pop()).or_else(|| retired.pop_wait());
            let slot = slot.expect("one slot is current, the others are here");
            slots[slot].store(FREE, Relaxed);
            slots[slot].store(round, Relaxed);
            let old = current.swap(slot as u32, AcqRel);
            retired.push(old as usize).unwrap();
        }
        stop.store(true, Relaxed);
    });
    assert_eq!(slots[current.load(Relaxed) as usize].load(Relaxed), rounds);
}

/// A box that is retired by its address counts with the bytes behind the pointer.
#[test]
fn a_retired_box_counts_its_bytes() {
    let domain = Domain::new().unwrap();
    let value = Box::into_raw(Box::new([0_u8; 1 << 20]));
    // SAFETY: just made, and no other thread has its address.
    unsafe { domain.retire_box(value) }.unwrap();
    let kib = (1 << 20) / BYTES_PER_OBJECT as u64;
    assert!((kib..kib + 2).contains(&domain.backlog()), "{} KiB", domain.backlog());
    domain.barrier();
    assert_eq!(domain.backlog(), 0);
}

/// A reclaimer that panics loses no callback and leaves nothing counted that is not queued.
#[test]
fn a_reclaimer_that_panics() {
    struct Panics;
    impl Reclaimer for Panics {
        fn notify(&self) {
            panic!("a planted panic");
        }
    }
    let domain = Domain::new().unwrap();
    domain.set_reclaimer(Some(Box::new(Panics))).unwrap();
    let ran = Arc::new(AtomicUsize::new(0));
    let queued = 3 * BATCH as usize * cpu::nr_cpus();
    for _ in 0..queued {
        let ran = ran.clone();
        domain.defer(move || _ = ran.fetch_add(1, Relaxed)).unwrap();
    }
    domain.barrier();
    assert_eq!((ran.load(Relaxed), domain.backlog()), (queued, 0));
}
