//! What a debug build finds by itself, and what the caches' checks find in any: references that are given up twice or used after, bytes
//! written to what has ended or behind its end, lengths that cannot be.
#![allow(unsafe_code)]

use quietline_net::packet::*;
use quietline_slab::{Debug, Violation, ViolationKind, set_violation_handler};
#[cfg(debug_assertions)]
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

static FOUND: Mutex<Vec<(&'static str, &'static str)>> = Mutex::new(Vec::new());

fn note(violation: &Violation) {
    let kind = match violation.kind {
        ViolationKind::DoubleFree => "double free",
        ViolationKind::UseAfterFree => "use after free",
        ViolationKind::Overrun(_) => "overrun",
        _ => "something else",
    };
    let cache = violation.cache.to_string().leak();
    FOUND.lock().unwrap_or_else(PoisonError::into_inner).push((cache, kind));
}

/// What was found since this was asked last.
fn found() -> Vec<(&'static str, &'static str)> {
    core::mem::take(&mut *FOUND.lock().unwrap_or_else(PoisonError::into_inner))
}

/// Who is told is the process's: one test at a time.
fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    set_violation_handler(note);
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

static ENDED: AtomicUsize = AtomicUsize::new(0);

extern "C" fn ended(_: u64) {
    ENDED.fetch_add(1, Ordering::Relaxed);
}

/// The same reference once more, as C may have it.
fn twice<'n>(skb: &Skb<'n>) -> Skb<'n> {
    // SAFETY: none: this is what is to be found.
    unsafe { ptr::read(skb) }
}

/// What somebody says who panics.
#[cfg(debug_assertions)]
fn said(f: impl FnOnce()) -> String {
    let panicked = catch_unwind(AssertUnwindSafe(f)).expect_err("nothing was found");
    panicked.downcast_ref::<String>().cloned().unwrap_or_default()
}

#[cfg(debug_assertions)]
/// Two who end the last two references at the same moment both have one, whichever is the last.
#[test]
fn the_last_two_references_may_end_at_once() {
    quietline_testing::isolated!();
    let packets = Packets::new().unwrap();
    let barrier = std::sync::Barrier::new(2);
    let (sender, receiver) = std::sync::mpsc::sync_channel(0);
    std::thread::scope(|s| {
        let (packets, barrier) = (&packets, &barrier);
        s.spawn(move || {
            for skb in receiver {
                barrier.wait();
                drop::<Skb<'_>>(skb);
            }
        });
        for _ in 0..20_000 {
            let skb = packets.alloc_skb(1).unwrap();
            sender.send(skb.get()).unwrap();
            barrier.wait();
            drop(skb);
        }
        drop(sender);
    });
    assert_eq!(packets.head_stats().active, 0);
}

#[cfg(debug_assertions)]
#[test]
fn a_debug_build_finds_a_second_end() {
    quietline_testing::isolated!();
    let _alone = alone();
    type End = for<'n> fn(&'n Packets, Skb<'n>);
    let ends: [(&str, End); 8] = [
        ("consume_skb", |_, skb| skb.consume_skb()),
        ("kfree_skb", |_, skb| skb.kfree_skb(DropReason::NoRoute)),
        ("kfree_skb_bulk", |_, skb| kfree_skb_bulk(&mut [Some(skb)])),
        ("a waitlist", |_, skb| Waitlist::<1>::new().add(skb)),
        ("a poller", |packets, skb| packets.napi().consume_skb(skb)),
        ("defer_free", |packets, skb| packets.defer_free(skb)),
        ("defer_free_bulk", |packets, skb| packets.defer_free_bulk(&mut [Some(skb)])),
        ("put off", |_, skb| {
            let _here = NoBulk::enter();
            drop(skb);
        }),
    ];
    let packets = Packets::new().unwrap();
    for (name, end) in ends {
        ENDED.store(0, Ordering::Relaxed);
        let mut skb = packets.alloc_skb(60).unwrap();
        skb.set_destructor(Some((ended, 0))).unwrap();
        let again = twice(&skb);
        end(&packets, skb);
        packets.take_deferred();
        assert_eq!(ENDED.load(Ordering::Relaxed), 1, "{name}");
        let message = said(|| end(&packets, again));
        assert!(message.contains("double free or use after free"), "{name}: {message}");
        assert_eq!(ENDED.load(Ordering::Relaxed), 1, "{name}: its destructor runs once");
        // No two packets have the same memory.
        let ids: Vec<_> =
            (0..4).map(|_| packets.alloc_skb(60).unwrap()).map(|skb| (skb.id(), skb)).collect();
        assert!(ids.iter().enumerate().all(|(i, a)| ids[..i].iter().all(|b| a.0 != b.0)), "{name}");
    }
    packets.shrink();
    assert_eq!(packets.head_stats().active, 0);
}

#[cfg(debug_assertions)]
#[test]
fn a_debug_build_finds_a_use_after_the_end() {
    quietline_testing::isolated!();
    let _alone = alone();
    let packets = Packets::new().unwrap();
    let skb = packets.alloc_skb(60).unwrap();
    let again = core::mem::ManuallyDrop::new(twice(&skb));
    drop(skb);
    let uses: [fn(&Skb<'_>); 5] = [
        |skb| _ = skb.len(),
        |skb| _ = skb.data(),
        |skb| _ = core::mem::ManuallyDrop::new(skb.get()),
        |skb| _ = skb.clone_skb(),
        |skb| _ = skb.copy(),
    ];
    for usage in uses {
        assert!(said(|| usage(&again)).contains("use after free"));
    }
    // A head whose slab has it back, and one that is poisoned, says so too.
    packets.shrink();
    let other = packets.alloc_skb(60).unwrap();
    packets.set_debug(Debug::ALL).unwrap();
    let skb = packets.alloc_skb(60).unwrap();
    let again = core::mem::ManuallyDrop::new(twice(&skb));
    drop((skb, other));
    assert!(said(|| _ = again.len()).contains("use after free"));
    assert!(found().is_empty());
}

#[cfg(debug_assertions)]
#[test]
fn a_debug_build_finds_lengths_that_cannot_be() {
    quietline_testing::isolated!();
    let _alone = alone();
    let packets = Packets::new().unwrap();
    let skb = core::mem::ManuallyDrop::new(packets.alloc_skb(60).unwrap());
    // SAFETY: none: the length, behind the count, is overwritten.
    unsafe { ptr::with_exposed_provenance_mut::<u32>(skb.id() + 4).write(100_000) };
    assert!(said(|| _ = skb.data()).contains("ends behind its buffer"));
}

/// The caches find it also in a release build, once they are asked to.
#[cfg(not(debug_assertions))]
#[test]
fn checks_find_a_second_end() {
    quietline_testing::isolated!();
    let _alone = alone();
    let packets = Packets::new().unwrap();
    packets.set_debug(Debug::CONSISTENCY).unwrap();
    let skb = packets.alloc_skb(60).unwrap();
    let again = twice(&skb);
    drop(skb);
    drop(again);
    let found = found();
    assert_eq!(found, [("skbuff_small_data", "double free"), ("skbuff_head_cache", "double free")]);
}

#[test]
fn checks_find_who_writes_to_what_has_ended() {
    quietline_testing::isolated!();
    let _alone = alone();
    let packets = Packets::new().unwrap();
    let before = packets.alloc_skb(1500).unwrap();
    packets.set_debug(Debug::ALL).unwrap();
    for (len, cache) in [
        (60, "skbuff_small_data"),
        (1500, "skbuff_data"),
        (3000, "skbuff_page_data"),
        (9000, "skbuff_large_data"),
    ] {
        let mut skb = packets.alloc_skb(len).unwrap();
        let (head, data) = (skb.id(), skb.put(1).unwrap().as_mut_ptr());
        assert_eq!(packets.validate(), 0);
        drop(skb);
        assert_eq!(packets.validate(), 0);
        // SAFETY: none, of both: written after its end. The memory is the caches' still.
        unsafe { data.write(1) };
        assert_eq!((packets.validate(), found()), (1, vec![(cache, "use after free")]));
        // SAFETY: as above; `cb`, where a layer keeps something of its own.
        unsafe { ptr::with_exposed_provenance_mut::<u8>(head + 70).write(1) };
        assert_eq!(
            (packets.validate(), found()),
            (1, vec![("skbuff_head_cache", "use after free")])
        );
    }
    packets.set_debug(Debug::OFF).unwrap();
    drop(before);
    assert_eq!((packets.validate(), packets.head_stats().active), (0, 0));
}

#[test]
fn checks_find_who_writes_behind_the_buffer() {
    quietline_testing::isolated!();
    let _alone = alone();
    let packets = Packets::new().unwrap();
    packets.set_debug(Debug::RED_ZONE).unwrap();
    for (len, cache) in [
        (60, "skbuff_small_data"),
        (1500, "skbuff_data"),
        (3000, "skbuff_page_data"),
        (9000, "skbuff_large_data"),
    ] {
        let mut skb = packets.alloc_skb(len).unwrap();
        let room = skb.tailroom();
        let bytes = skb.put(room).unwrap();
        bytes.fill(1);
        let end = bytes.as_mut_ptr_range().end;
        assert_eq!(packets.validate(), 0, "all of it is the packet's");
        // SAFETY: none: one byte behind the buffer.
        unsafe { end.write(1) };
        drop(skb);
        assert_eq!(found(), [(cache, "overrun")]);
    }
    assert_eq!(packets.head_stats().active, 0);
}

/// The environment turns checks on; other tests run again under them.
#[test]
fn the_environment_turns_checks_on() {
    const DEBUG: &str = "QUIETLINE_SLAB_DEBUG";
    if std::env::var_os(DEBUG).is_some() {
        let packets = Packets::new().unwrap();
        assert_eq!(packets.head_cache().debug(), Debug::ALL);
        let mut kept: Vec<_> = (0..200).map(|i| packets.alloc_skb(i * 40).unwrap()).collect();
        let clones: Vec<_> = kept.iter().map(|skb| skb.clone_skb().unwrap()).collect();
        let mut burst = [const { None }; 100];
        packets.alloc_skb_bulk(1500, &mut burst).unwrap();
        kfree_skb_bulk(&mut burst);
        let mut napi = packets.napi();
        for _ in 0..300 {
            let skb = napi.alloc_skb(1500).unwrap();
            napi.consume_skb(skb);
        }
        kfree_skb_list(kept.drain(50..));
        assert_eq!(packets.validate(), 0);
        drop((kept, clones, napi));
        assert_eq!((packets.validate(), packets.head_stats().active), (0, 0));
        return;
    }
    let tests = std::env::current_exe().unwrap();
    let mut again = std::process::Command::new(tests);
    let done = again
        .args(["--exact", "packet::debug::the_environment_turns_checks_on"])
        .env(DEBUG, "FZPU,skbuff_*")
        .output()
        .unwrap();
    let (said, error) =
        (String::from_utf8_lossy(&done.stdout), String::from_utf8_lossy(&done.stderr));
    assert!(done.status.success() && said.contains("1 passed"), "{said}{error}");
}
