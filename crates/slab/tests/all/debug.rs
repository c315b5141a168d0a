//! What checks find: each wrong use of a cache, by its name, and that nothing is corrupt afterwards.
#![cfg(not(loom))]

use crate::support::{each_fault, fill, is_filled};
use quietline_platform::pages;
use quietline_slab::{
    Cache, Debug, Entry, Hook, Invalid, Options, RawCache, Side, Violation, ViolationKind,
    set_violation_handler,
};
use std::ptr::NonNull;
use std::sync::{Mutex, MutexGuard};

static FOUND: Mutex<Vec<Violation>> = Mutex::new(Vec::new());

fn found() -> MutexGuard<'static, Vec<Violation>> {
    FOUND.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
}

/// Installs the handler that notes findings.
fn note_violations() {
    set_violation_handler(|violation| found().push(*violation));
}

/// What was found since the last time, which is one thing.
#[track_caller]
fn only() -> Violation {
    let mut found = found();
    assert_eq!(
        found.len(),
        1,
        "{:?}",
        found.iter().map(|violation| violation.kind).collect::<Vec<_>>()
    );
    found.pop().unwrap()
}

#[track_caller]
fn nothing() {
    assert!(found().is_empty(), "{}", found()[0]);
}

fn checked(debug: Debug) -> RawCache {
    RawCache::new(Options { debug, ..Options::new("checked", 100, 4) }).unwrap()
}

#[inline(never)]
fn allocates_here(cache: &RawCache) -> NonNull<u8> {
    std::hint::black_box(cache.alloc().unwrap())
}

#[inline(never)]
fn frees_here(cache: &RawCache, object: NonNull<u8>) {
    // SAFETY: perhaps none: tests free what they must not, and the checks find it.
    unsafe { cache.free(object) };
    std::hint::black_box(());
}

#[inline(never)]
fn frees_again(cache: &RawCache, object: NonNull<u8>) {
    // SAFETY: as in `frees_here`.
    unsafe { cache.free(object) };
    // Another body than that of `frees_here`: the compiler merges equal functions.
    std::hint::black_box(object);
}

fn write(object: NonNull<u8>, at: isize, byte: u8) {
    // SAFETY: in the object's slab; what is there is nobody's, or the checks' to notice.
    unsafe { object.offset(at).write(byte) };
}

#[test]
fn double_free() {
    quietline_testing::isolated!();
    note_violations();
    let cache = checked(Debug::ALL);
    let object = allocates_here(&cache);
    frees_here(&cache, object);
    nothing();
    frees_again(&cache, object);
    let violation = only();
    assert_eq!((violation.kind, &*violation.cache), (ViolationKind::DoubleFree, "checked"));
    assert_eq!((violation.object, violation.size), (object.addr().get(), 100));
    let report = violation.to_string();
    for part in [
        "double free",
        "'checked'",
        &format!("{object:?}"),
        "number 0 of slab",
        "thread ",
        "debug.rs:",
    ] {
        assert!(report.contains(part), "no {part} in {report}");
    }
    let lines: Vec<_> = report.lines().collect();
    for (who, function) in [
        ("allocated by", "allocates_here"),
        ("freed by", "frees_here"),
        ("found by", "frees_again"),
    ] {
        let at = lines.iter().position(|line| line.contains(who)).unwrap();
        assert!(lines[at + 1].contains(function), "not {who} {function}: {report}");
    }
    // It is free, once.
    let again = [cache.alloc().unwrap(), cache.alloc().unwrap()];
    assert_ne!(again[0], again[1]);
    again.into_iter().for_each(|object| frees_here(&cache, object));
    assert_eq!((cache.stats().active, cache.validate()), (0, 0));
    nothing();
}

#[test]
fn double_free_in_an_array() {
    quietline_testing::isolated!();
    note_violations();
    let cache = checked(Debug::CONSISTENCY);
    let mut objects: [Entry; 8] = [None; 8];
    cache.alloc_bulk(&mut objects).unwrap();
    objects[5] = objects[2];
    let lost = objects[7].take().unwrap();
    // SAFETY: one is there twice, and is found.
    unsafe { cache.free_bulk(&mut objects) };
    let violation = only();
    assert_eq!(violation.kind, ViolationKind::DoubleFree);
    assert_eq!((violation.allocated, violation.freed), (None, None));
    assert_eq!(objects, [None; 8]);
    assert_eq!(
        cache.stats().active,
        2,
        "the one that was overwritten, and the one that was taken out"
    );
    frees_here(&cache, lost);
    drop(cache);
    assert_eq!(only().kind, ViolationKind::Leak { number: 1, of: 1 });
}

#[test]
fn invalid_pointers() {
    quietline_testing::isolated!();
    note_violations();
    let cache = checked(Debug::ALL);
    let object = allocates_here(&cache);
    let slab = object.map_addr(|address| {
        address
            .get()
            .checked_sub(address.get() % cache.layout().block)
            .and_then(|at| at.try_into().ok())
            .unwrap()
    });
    let mut on_the_stack = 0u8;
    let last = cache.layout().first + (cache.layout().objects - 1) * cache.layout().stride;
    // SAFETY: inside the slab.
    let at = |offset: usize| unsafe { slab.add(offset) };
    for (pointer, why) in [
        (NonNull::from(&mut on_the_stack), Invalid::NoSlab),
        (NonNull::<u64>::dangling().cast(), Invalid::NoSlab),
        (NonNull::new(usize::MAX as *mut u8).unwrap(), Invalid::NoSlab),
        (slab, Invalid::NoObject),
        (at(cache.layout().first - 1), Invalid::NoObject),
        (at(cache.layout().block - 1), Invalid::NoObject),
        (at(cache.layout().first + 1), Invalid::Inside { offset: 1 }),
        (at(cache.layout().first + 130), Invalid::Inside { offset: 130 }),
        (at(last), Invalid::NeverAllocated),
    ] {
        if why == Invalid::NoObject && last + cache.layout().stride == cache.layout().block {
            continue;
        }
        frees_again(&cache, pointer);
        let violation = only();
        assert_eq!(
            (violation.kind, violation.object),
            (ViolationKind::InvalidPointer(why), pointer.addr().get())
        );
        let report = violation.to_string();
        assert!(report.contains("invalid pointer") && report.contains("frees_again"), "{report}");
        // Who inside an object belongs to, if anybody.
        assert_eq!(
            violation.allocated.is_some(),
            matches!(why, Invalid::Inside { .. }),
            "{report}"
        );
    }
    frees_here(&cache, object);
    assert_eq!((cache.stats().active, cache.validate()), (0, 0));
    nothing();
}

#[test]
fn wrong_cache() {
    quietline_testing::isolated!();
    note_violations();
    let cache = checked(Debug::ALL);
    for (debug, known) in [(Debug::ALL, true), (Debug::OFF, false)] {
        let other = RawCache::new(Options { debug, ..Options::new("other", 24, 8) }).unwrap();
        let object = allocates_here(&other);
        frees_again(&cache, object);
        let violation = only();
        assert_eq!(violation.kind, ViolationKind::WrongCache { owner: "other".into() });
        assert_eq!((&*violation.cache, violation.size), ("checked", 24));
        assert_eq!(violation.allocated.is_some(), known);
        let report = violation.to_string();
        for part in ["'checked'", "'other'", "wrong cache", "frees_again"] {
            assert!(report.contains(part), "no {part} in {report}");
        }
        assert_eq!(report.contains("allocates_here"), known, "{report}");
        assert_eq!(other.stats().active, 1, "it was left alone");
        frees_here(&other, object);
        assert_eq!((other.stats().active, cache.stats().active), (0, 0));
    }
    // Of a cache that is gone.
    let gone = RawCache::new(Options::new("gone", 24, 8)).unwrap();
    let leaked = allocates_here(&gone);
    drop(gone);
    nothing();
    frees_again(&cache, leaked);
    assert_eq!(only().kind, ViolationKind::InvalidPointer(Invalid::NoSlab));
}

#[test]
fn overruns() {
    quietline_testing::isolated!();
    note_violations();
    let cache = checked(Debug::RED_ZONE | Debug::TRACK);
    assert_eq!(cache.debug(), Debug::RED_ZONE | Debug::TRACK | Debug::CONSISTENCY);
    let objects = [(); 3].map(|()| allocates_here(&cache));
    for object in objects {
        fill(object, 100, 7);
    }
    for (at, side) in [(100, Side::Right), (115, Side::Right), (-1, Side::Left), (-16, Side::Left)]
    {
        for object in objects {
            let victim = cache.alloc().unwrap();
            write(victim, at, 0x41);
            frees_again(&cache, victim);
            let violation = only();
            assert_eq!(
                (violation.kind, violation.object),
                (ViolationKind::Overrun(side), victim.addr().get())
            );
            let memory = violation.memory.unwrap();
            assert_eq!(
                (memory.at, memory.found),
                (victim.addr().get().wrapping_add_signed(at), 0x41)
            );
            let report = violation.to_string();
            for part in ["overrun", "41 where bb was", "[41]", "frees_again", "allocated by"] {
                assert!(report.contains(part), "no {part} in {report}");
            }
            // Found while in use, too; and while it is free.
            write(object, at, 0x42);
            assert_eq!(cache.validate(), 1);
            assert_eq!((only().object, cache.validate()), (object.addr().get(), 0));
            write(victim, at, 0x43);
            let again = cache.alloc().unwrap();
            assert_eq!((again, only().kind), (victim, ViolationKind::Overrun(side)));
            frees_here(&cache, again);
            nothing();
        }
    }
    for object in objects {
        assert!(is_filled(object, 100, 7), "zones are not in objects");
        frees_here(&cache, object);
    }
    assert_eq!((cache.stats().active, cache.validate()), (0, 0));
}

#[test]
fn use_after_free() {
    quietline_testing::isolated!();
    note_violations();
    let before = pages::usage().used;
    let cache = checked(Debug::POISON | Debug::TRACK);
    for at in [0, 1, 50, 98, 99] {
        let object = allocates_here(&cache);
        assert!(is_filled(object, 100, 0x5a), "fresh");
        fill(object, 100, 9);
        frees_here(&cache, object);
        // SAFETY: an address to compare, and bytes that the cache has filled.
        unsafe { assert_eq!((object.read(), object.add(99).read()), (0x6b, 0xa5)) };
        nothing();
        write(object, at, 0x41);
        let other = cache.alloc().unwrap();
        let violation = only();
        assert_eq!(
            (violation.kind, violation.object),
            (ViolationKind::UseAfterFree, object.addr().get())
        );
        let report = violation.to_string();
        for part in ["use after free", "allocates_here", "frees_here", "41 where", "[41]"] {
            assert!(report.contains(part), "no {part} in {report}");
        }
        assert_ne!(other, object, "not handed out again");
        assert!(is_filled(other, 100, 0x5a));
        frees_here(&cache, other);
        // By looking, too.
        write(other, at, 0x41);
        assert_eq!((cache.validate(), only().object), (1, other.addr().get()));
        assert_eq!(cache.validate(), 0);
        frees_again(&cache, other);
        assert_eq!(only().kind, ViolationKind::DoubleFree);
        let mut all: Vec<Entry> = vec![None; cache.layout().objects];
        cache.alloc_bulk(&mut all).unwrap();
        assert!(!all.contains(&Some(other)) && !all.contains(&Some(object)));
        // One that was never handed out.
        let place = cache.layout().first + (cache.layout().objects - 1) * cache.layout().stride;
        let newest = all.last().unwrap().unwrap().addr().get();
        let never = newest - newest % cache.layout().block + place;
        if at == 0 && !all.iter().flatten().any(|object| object.addr().get() == never) {
            let never = NonNull::new(never as *mut u8).unwrap();
            write(never, at, 1);
            assert_eq!((cache.validate(), only().object), (1, never.addr().get()));
        }
        // SAFETY: allocated above.
        unsafe { cache.free_bulk(&mut all) };
        nothing();
    }
    assert_eq!(cache.stats().active, 0);
    drop(cache);
    nothing();
    // Slabs of objects that somebody may still write to stay.
    assert!(pages::usage().used > before);
}

/// What is free is looked at a last time before its slab goes.
#[test]
fn use_after_free_is_found_by_shrink_and_drop() {
    quietline_testing::isolated!();
    note_violations();
    for end in [|cache: RawCache| cache.shrink(), drop] {
        let cache = checked(Debug::ALL);
        let object = allocates_here(&cache);
        frees_here(&cache, object);
        write(object, 30, 0);
        end(cache);
        assert_eq!((only().kind, only_is_empty()), (ViolationKind::UseAfterFree, true));
    }
}

fn only_is_empty() -> bool {
    found().is_empty()
}

/// What lies before the first object is overwritten: links and states. The slab is given up, others serve.
#[test]
fn records_overwritten() {
    quietline_testing::isolated!();
    note_violations();
    for look in [true, false] {
        let cache = checked(Debug::RED_ZONE);
        let objects = [(); 20].map(|()| allocates_here(&cache));
        let (kept, freed) = objects.split_at(10);
        freed.iter().for_each(|object| frees_here(&cache, *object));
        let layout = cache.layout();
        for at in 0..(layout.objects as isize - 1) * 8 {
            write(objects[0], -(at + 17), 0x0d);
        }
        if look {
            assert_eq!(cache.validate(), 1);
        }
        let more = [(); 20].map(|()| allocates_here(&cache));
        let violation = only();
        assert_eq!(violation.kind, ViolationKind::Records);
        assert_eq!(violation.slab.unwrap().0, kept[0].addr().get() & !(layout.block - 1));
        assert!(more.iter().all(|object| !objects.contains(object)), "nothing of this slab");
        more.iter().chain(kept).for_each(|object| frees_here(&cache, *object));
        assert_eq!((cache.stats().active, cache.validate()), (0, 0));
        nothing();
    }
}

#[test]
fn leaks() {
    quietline_testing::isolated!();
    note_violations();
    let cache = checked(Debug::TRACK);
    let mut objects: Vec<Entry> = vec![None; 200];
    cache.alloc_bulk(&mut objects).unwrap();
    // SAFETY: allocated above.
    unsafe { cache.free_bulk(&mut objects) };
    let mut leaked = [(); 17].map(|()| allocates_here(&cache).addr().get());
    drop(cache);
    let mut reported: Vec<_> = found().iter().map(|violation| violation.object).collect();
    reported.sort_unstable();
    leaked.sort_unstable();
    assert_eq!(reported, leaked);
    for (number, violation) in (1..).zip(found().iter()) {
        assert_eq!(violation.kind, ViolationKind::Leak { number, of: 17 });
        let report = violation.to_string();
        for part in [&format!("object {number} of 17"), "leak", "'checked'", "allocates_here"] {
            assert!(report.contains(part), "no {part} in {report}");
        }
    }
}

/// Objects are checked from the switch on; those from before are checked for what can be known of them.
#[test]
fn switched_in_use() {
    quietline_testing::isolated!();
    note_violations();
    let before = pages::usage().used;
    let cache = checked(Debug::OFF);
    let old = [(); 3].map(|()| allocates_here(&cache));
    cache.set_debug(Debug::ALL).unwrap();
    assert_eq!((cache.debug(), cache.stats().cached), (Debug::ALL, 0));
    let new = allocates_here(&cache);
    assert_eq!(cache.stats().active, 4);
    // SAFETY: an address in the object.
    frees_again(&cache, unsafe { old[0].add(4) });
    assert_eq!(only().kind, ViolationKind::InvalidPointer(Invalid::Inside { offset: 4 }));
    frees_here(&cache, old[0]);
    // Other checks: the objects of the first ones are old now.
    cache.set_debug(Debug::RED_ZONE).unwrap();
    let newest = allocates_here(&cache);
    frees_here(&cache, new);
    frees_here(&cache, old[1]);
    frees_here(&cache, newest);
    frees_again(&cache, newest);
    assert_eq!(only().kind, ViolationKind::DoubleFree);
    let kept = allocates_here(&cache);
    cache.set_debug(Debug::OFF).unwrap();
    assert_eq!((cache.debug(), cache.stats().active), (Debug::OFF, 2));
    // A slab that was full when checks ended is not there to be taken from.
    cache.set_debug(Debug::RED_ZONE).unwrap();
    let mut full: Vec<Entry> = vec![None; cache.layout().objects];
    cache.alloc_bulk(&mut full).unwrap();
    cache.set_debug(Debug::OFF).unwrap();
    assert!((0..4).all(|_| cache.alloc_batch(1).unwrap().len() > 0));
    // SAFETY: allocated above.
    unsafe { cache.free_bulk(&mut full) };
    frees_here(&cache, kept);
    frees_here(&cache, old[2]);
    // All places of all slabs can be used, also of those with room for checks.
    let mut all: Vec<Entry> = vec![None; 3 * cache.stats().places];
    cache.alloc_bulk(&mut all).unwrap();
    let mut addresses: Vec<_> = all.iter().flatten().map(|object| object.addr().get()).collect();
    addresses.sort_unstable();
    assert!(addresses.windows(2).all(|pair| pair[1] - pair[0] >= 100));
    // SAFETY: allocated above.
    unsafe { cache.free_bulk(&mut all) };
    cache.shrink();
    assert_eq!((cache.stats().active, cache.stats().slabs, pages::usage().used), (0, 0, before));
    drop(cache);
    nothing();
}

#[test]
fn typed_caches() {
    quietline_testing::isolated!();
    note_violations();
    let options = Options { debug: Debug::ALL, ..Options::new("typed", 8, 8) };
    let cache = Cache::<u64>::with_options(options).unwrap();
    let slot = cache.alloc(7).unwrap();
    assert_eq!(*slot, 7);
    let raw = slot.into_raw();
    // SAFETY: the first time, yes. The second time is found.
    unsafe {
        cache.free_raw(raw);
        nothing();
        cache.free_raw(raw);
    }
    let report = only().to_string();
    assert!(
        report.contains("double free")
            && report.contains("'typed'")
            && report.contains("typed_caches"),
        "{report}"
    );
    let one = cache.alloc_bulk::<3>(|i| i as u64).unwrap();
    assert_eq!(*one[2], 2);
    cache.free_bulk(one);
    drop(cache.alloc(1).unwrap());
    // Of no size.
    let empty =
        Cache::<()>::with_options(Options { debug: Debug::ALL, ..Options::new("empty", 0, 1) })
            .unwrap();
    let slots = empty.alloc_bulk::<40>(|_| ()).unwrap();
    drop(slots);
    assert_eq!((cache.stats().active, empty.stats().active), (0, 0));
    nothing();
}

/// What a constructor made is kept: poison is not for such caches.
#[test]
fn constructed_state_is_kept() {
    quietline_testing::isolated!();
    unsafe fn construct(object: NonNull<u8>) {
        fill(object, 48, 3);
    }
    note_violations();
    let options = Options {
        ctor: Some(Hook::new(construct)),
        debug: Debug::ALL,
        link_offset: Some(44),
        ..Options::new("ctor", 48, 8)
    };
    // SAFETY: the constructor fills an object.
    let cache = unsafe { RawCache::with_hooks(options) }.unwrap();
    assert_eq!(cache.debug(), Debug::ALL - Debug::POISON);
    let objects = [(); 100].map(|()| allocates_here(&cache));
    for object in objects {
        assert!(is_filled(object, 48, 3));
        fill(object, 48, 4);
        frees_here(&cache, object);
        assert!(is_filled(object, 48, 4), "not even a link is in it");
    }
    cache.set_debug(Debug::OFF).unwrap();
    let objects = [(); 100].map(|()| allocates_here(&cache));
    for object in objects {
        assert!(is_filled(object, 48, 3) || is_filled(object, 48, 4));
        frees_here(&cache, object);
    }
    assert_eq!(cache.stats().active, 0);
    nothing();
}

/// Any object can be checked, and its own bytes are its own.
#[test]
fn all_sizes_and_alignments() {
    quietline_testing::isolated!();
    note_violations();
    for flags in [Debug::ALL, Debug::CONSISTENCY, Debug::RED_ZONE, Debug::POISON] {
        for align in (0..=14).map(|shift| 1 << shift) {
            for size in [0, 1, 4, 5, 16, 63, 192, 1000, 5000, 16384] {
                let options = Options { debug: flags, ..Options::new("sizes", size, align) };
                let cache = RawCache::new(options).unwrap();
                let layout = cache.layout();
                assert!(
                    layout.first + layout.objects * layout.stride <= layout.block,
                    "{layout:?}"
                );
                let objects: Vec<_> =
                    (0..layout.objects.min(40) + 1).map(|_| cache.alloc().unwrap()).collect();
                for (object, byte) in objects.iter().zip(1..) {
                    assert!(object.addr().get().is_multiple_of(align));
                    fill(*object, size, byte);
                }
                for (object, byte) in objects.into_iter().zip(1..) {
                    assert!(is_filled(object, size, byte));
                    frees_here(&cache, object);
                }
                assert_eq!((cache.validate(), cache.stats().active), (0, 0));
            }
        }
    }
    nothing();
}

/// Whatever allocation fails, an error and nothing lost.
#[test]
fn faults() {
    quietline_testing::isolated!();
    note_violations();
    let before = pages::usage().used;
    let mut failures = 0;
    let failed = each_fault(|fails| {
        let cache = RawCache::new(Options { debug: Debug::ALL, ..Options::new("faults", 3000, 8) });
        let Ok(cache) = cache else { return assert!(fails) };
        let one = cache.alloc();
        let mut objects: [Entry; 60] = [None; 60];
        if cache.alloc_bulk(&mut objects).is_err() {
            assert!(fails && objects == [None; 60]);
            failures += 1;
        }
        assert_eq!(
            cache.stats().active,
            usize::from(one.is_ok()) + objects.iter().flatten().count()
        );
        // SAFETY: allocated above.
        unsafe { cache.free_bulk(&mut objects) };
        if let Ok(one) = one {
            frees_here(&cache, one);
        }
        assert_eq!(cache.stats().active, 0);
        cache.set_debug(Debug::OFF).unwrap();
        cache.set_debug(Debug::RED_ZONE).unwrap();
        drop(cache);
        assert_eq!(pages::usage().used, before);
    });
    assert!(failed > 2, "{failed} allocations failed, {failures} of them in bulk");
    nothing();
}

#[test]
fn letters() {
    quietline_testing::isolated!();
    assert_eq!("FZPU".parse(), Ok(Debug::ALL));
    assert_eq!(Debug::parse("uf"), Ok(Debug::CONSISTENCY | Debug::TRACK));
    assert_eq!(Debug::parse("-"), Ok(Debug::OFF));
    assert_eq!((Debug::ALL.to_string(), Debug::OFF.to_string()), ("FZPU".into(), "-".into()));
    let error = Debug::parse("FZx").unwrap_err();
    assert!(
        error.letter == 'x'
            && error.to_string().contains("'x'")
            && error.to_string().contains("F (consistency)")
    );
    assert!(Debug::parse("").is_err());
}
