//! Packet buffers: lengths, sharing, bulk, and property 11 (a reference that is not the last frees
//! nothing; destructors run once, before storage is released; a flush leaves none; an empty one is
//! ignored; what is deferred ends on the CPU that made it).

use quietline_net::packet::*;
use quietline_platform::fault;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread;

/// The listener and faults are the process's: one test at a time.
fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// This thread stays on its CPU. In Miri each does.
fn stay() {
    if cfg!(miri) {
        return;
    }
    let mut here = rustix::thread::CpuSet::new();
    here.set(rustix::thread::sched_getcpu());
    rustix::thread::sched_setaffinity(None, &here).unwrap();
}

/// Runs `f` on a thread of another one of these CPUs, if there is one.
fn elsewhere_of<R: Send>(all: rustix::thread::CpuSet, f: impl FnOnce() -> R + Send) -> Option<R> {
    let here = rustix::thread::sched_getcpu();
    let other =
        (0..rustix::thread::CpuSet::MAX_CPU).find(|cpu| *cpu != here && all.is_set(*cpu))?;
    let there = || {
        let mut cpus = rustix::thread::CpuSet::new();
        cpus.set(other);
        rustix::thread::sched_setaffinity(None, &cpus).unwrap();
        f()
    };
    Some(thread::scope(|s| s.spawn(there).join().unwrap()))
}

/// Nothing is out.
fn assert_empty(packets: &Packets) {
    assert_eq!(packets.head_stats().active, 0, "heads");
    assert_eq!(packets.data_stats().map(|stats| stats.active), [0; 4], "data");
}

#[test]
fn lengths_and_their_edges() {
    quietline_testing::isolated!();
    let _alone = alone();
    let packets = Packets::new().unwrap();
    let mut skb = packets.alloc_skb(100).unwrap();
    assert_eq!((skb.len(), skb.headroom(), skb.is_empty()), (0, HEADROOM, true));
    let room = skb.tailroom();
    assert!(room >= 100);
    skb.put(3).unwrap().copy_from_slice(b"abc");
    assert_eq!(skb.put(room - 2).unwrap_err(), PacketError::BadLength);
    assert_eq!(skb.put(room - 3).unwrap().len(), room - 3);
    assert_eq!(skb.tailroom(), 0);
    assert_eq!(skb.put(1).unwrap_err(), PacketError::BadLength);
    skb.trim(3).unwrap();
    skb.trim(1000).unwrap();
    assert_eq!(skb.data(), b"abc");
    skb.push(2).unwrap()[..2].copy_from_slice(b"xy");
    assert_eq!((skb.data(), skb.headroom()), (&b"xyabc"[..], HEADROOM - 2));
    assert_eq!(skb.push(HEADROOM - 1).unwrap_err(), PacketError::BadLength);
    assert_eq!(skb.pull(6).unwrap_err(), PacketError::BadLength);
    assert_eq!(skb.pull(3).unwrap(), b"bc");
    assert_eq!(skb.reserve(1).unwrap_err(), PacketError::BadLength, "it has data");
    skb.pull(2).unwrap();
    skb.reserve(0).unwrap();
    assert_eq!(skb.reserve(usize::MAX).unwrap_err(), PacketError::BadLength);
    drop(skb);
    // The largest, and one more.
    let most = 255 * 64 - HEADROOM;
    let mut large = packets.alloc_skb(most).unwrap();
    assert_eq!(large.put(most).unwrap().len(), most);
    for len in [most + 1, usize::MAX] {
        assert_eq!(packets.alloc_skb(len).unwrap_err(), PacketError::BadLength);
        assert_eq!(packets.napi().alloc_skb(len).unwrap_err(), PacketError::BadLength);
    }
    drop(large);
    assert_empty(&packets);
}

#[test]
fn shared_and_cloned() {
    quietline_testing::isolated!();
    let _alone = alone();
    let packets = Packets::new().unwrap();
    let mut skb = packets.alloc_skb(100).unwrap();
    skb.put_data(b"payload").unwrap();
    skb.set_mark(7).unwrap();
    skb.set_cb([1, 2, 3, 4, 5]).unwrap();

    let other = skb.get();
    assert!(skb.is_shared() && other.is_shared() && !skb.is_cloned());
    assert_eq!(skb.put(1).unwrap_err(), PacketError::Shared);
    assert_eq!(skb.pull(1).unwrap_err(), PacketError::Shared);
    assert_eq!(skb.set_mark(1).unwrap_err(), PacketError::Shared);
    assert_eq!(skb.data_mut().unwrap_err(), PacketError::Shared);
    assert_eq!(packets.head_stats().active, 1);
    drop(other);
    assert!(!skb.is_shared());

    let mut clone = skb.clone_skb().unwrap();
    assert!(skb.is_cloned() && clone.is_cloned() && !clone.is_shared());
    assert_eq!((clone.data(), clone.mark(), clone.cb()), (&b"payload"[..], 7, [1, 2, 3, 4, 5]));
    assert_eq!(clone.data_mut().unwrap_err(), PacketError::Shared);
    assert_eq!(clone.put(1).unwrap_err(), PacketError::Shared);
    assert_eq!(clone.pull(3).unwrap(), b"load", "lengths are its own");
    assert_eq!(skb.data(), b"payload");
    let mut own = clone.unshare().unwrap();
    own.data_mut().unwrap()[0] = b'L';
    assert_eq!((own.data(), skb.data()), (&b"Load"[..], &b"payload"[..]));
    assert!(!skb.is_cloned());
    skb.data_mut().unwrap()[0] = b'P';
    let copy = skb.copy().unwrap();
    assert_eq!((copy.data(), copy.headroom(), copy.mark()), (&b"Payload"[..], skb.headroom(), 7));
    let wide = skb.copy_expand(300, 900).unwrap();
    assert_eq!((wide.data(), wide.headroom()), (&b"Payload"[..], 300));
    assert!(wide.tailroom() >= 900);
    assert_eq!(skb.copy_expand(usize::MAX, 1).unwrap_err(), PacketError::BadLength);
    drop((skb, own, copy, wide));
    assert_empty(&packets);
}

#[test]
fn fragments() {
    quietline_testing::isolated!();
    let _alone = alone();
    let packets = Packets::new().unwrap();
    let mut skb = packets.alloc_skb(10).unwrap();
    skb.put_data(b"head").unwrap();
    let frag = Frag::copy_of(b"0123456789").unwrap();
    assert_eq!(frag.part(3, 8).unwrap_err(), PacketError::BadLength);
    assert_eq!(
        skb.add_frag(frag.part(1, 0).unwrap()).unwrap_err(),
        PacketError::BadLength,
        "empty"
    );
    for i in 0..MAX_FRAGS {
        skb.add_frag(frag.part(i % 8, 2).unwrap()).unwrap();
    }
    assert_eq!(skb.add_frag(frag.clone()).unwrap_err(), PacketError::BadLength, "one too many");
    assert_eq!((skb.len(), skb.data_len(), skb.tailroom()), (4 + 2 * MAX_FRAGS, 2 * MAX_FRAGS, 0));
    assert_eq!(skb.trim(1).unwrap_err(), PacketError::BadLength);
    let clone = skb.clone_skb().unwrap();
    assert_eq!(skb.add_frag(frag.clone()).unwrap_err(), PacketError::Shared);
    drop(skb);
    assert_eq!(clone.frags().count(), MAX_FRAGS, "the clone keeps them");
    let linear = clone.linearize().unwrap();
    assert_eq!(&linear.data()[..8], b"head0112");
    assert_eq!((linear.len(), linear.data_len()), (4 + 2 * MAX_FRAGS, 0));
    drop(linear);
    assert_empty(&packets);
}

static ENDED: AtomicU64 = AtomicU64::new(0);

extern "C" fn ended(n: u64) {
    ENDED.fetch_add(n, Ordering::Relaxed);
}

#[test]
fn destructors_run_once() {
    quietline_testing::isolated!();
    let _alone = alone();
    let packets = Packets::new().unwrap();
    let with = |n| {
        let mut skb = packets.alloc_skb(1).unwrap();
        skb.set_destructor(Some((ended, n))).unwrap();
        skb
    };
    ENDED.store(0, Ordering::Relaxed);
    let skb = with(1);
    let (other, clone) = (skb.get(), skb.clone_skb().unwrap());
    drop(skb);
    assert_eq!(ENDED.load(Ordering::Relaxed), 0, "not the last");
    drop(other);
    assert_eq!(
        ENDED.load(Ordering::Relaxed),
        1,
        "the last of the head, though a clone has the data"
    );
    drop(clone);
    assert_eq!(ENDED.load(Ordering::Relaxed), 1, "a clone has none");
    with(10).kfree_skb(DropReason::NoRoute);
    kfree_skb_bulk(&mut [Some(with(100)), None, Some(with(1000))]);
    let mut napi = packets.napi();
    napi.consume_skb(with(10_000));
    let mut none = with(100_000);
    none.set_destructor(None).unwrap();
    drop(none);
    assert_eq!(ENDED.load(Ordering::Relaxed), 11_111);
    drop(napi);
    assert_empty(&packets);
}

/// Bulk is what single frees would be: of each mixture the same references, clones and data stay.
#[test]
fn bulk_frees_what_singles_would() {
    quietline_testing::isolated!();
    let _alone = alone();
    let packets = Packets::new().unwrap();
    type Free = for<'a, 'n> fn(&'a mut [Option<Skb<'n>>]);
    let ways: [Free; 2] = [kfree_skb_bulk, kfree_skb_bulk_heads];
    for (way, free) in ways.into_iter().enumerate() {
        for n in [0, 1, 2, 3, 31, 64, 65, 200] {
            let mut kept = Vec::new();
            let mut batch: Vec<Option<Skb<'_>>> = Vec::new();
            for i in 0..n {
                let skb = packets.alloc_skb([60, 1000, 3000, 9000][i / 7 % 4]).unwrap();
                match i % 5 {
                    0 => kept.push(skb.get()),
                    1 => kept.push(skb.clone_skb().unwrap()),
                    2 => batch.push(Some(skb.clone_skb().unwrap())),
                    3 => batch.push(None),
                    _ => {}
                }
                batch.push(Some(skb));
            }
            free(&mut batch);
            assert!(batch.iter().all(Option::is_none));
            assert_eq!(packets.head_stats().active, kept.len(), "way {way}, {n}");
            let data: usize = packets.data_stats().iter().map(|stats| stats.active).sum();
            assert_eq!(data, kept.len());
            assert!(kept.iter().all(|skb| !skb.is_shared() && !skb.is_cloned()));
            drop(kept);
            assert_empty(&packets);
        }
    }
}

#[test]
fn a_bulk_of_two_owners() {
    quietline_testing::isolated!();
    let _alone = alone();
    let [one, two] = [(); 2].map(|()| Packets::new().unwrap());
    let mut batch = [one.alloc_skb(1).ok(), two.alloc_skb(1).ok(), one.alloc_skb(1).ok()];
    kfree_skb_bulk(&mut batch);
    let mut napi = one.napi();
    napi.consume_skb(two.alloc_skb(1).unwrap());
    drop(napi);
    assert_empty(&one);
    assert_empty(&two);
}

#[test]
fn waitlists() {
    quietline_testing::isolated!();
    let _alone = alone();
    let packets = Packets::new().unwrap();
    let mut list = Waitlist::<8>::new();
    list.flush();
    for i in 1..=20 {
        list.add(packets.alloc_skb(1).unwrap());
        assert_eq!(list.len(), i % 8);
        assert_eq!(packets.head_stats().active, i % 8, "full: all at once");
    }
    list.flush();
    assert!(list.is_empty());
    assert_empty(&packets);
    list.add(packets.alloc_skb(1).unwrap());
    drop(list);
    assert_empty(&packets);
}

/// Lists of packets, in bulk, with the reason told of each.
#[test]
fn lists_and_their_reasons() {
    quietline_testing::isolated!();
    static COUNTS: Counts =
        Counts { consumed: AtomicU64::new(0), dropped: [const { AtomicU64::new(0) }; 32] };
    let _alone = alone();
    let packets = Packets::new().unwrap();
    let some = |n: usize| {
        (0..n).map(|_| packets.alloc_skb(1).unwrap()).collect::<std::collections::VecDeque<_>>()
    };
    assert!(listen(Some(&COUNTS)).is_ok());
    let (mut consumed, mut dropped) = (0, [0; 32]);
    for n in [0, 1, WAITLIST - 1, WAITLIST, WAITLIST + 1, 200] {
        kfree_skb_list(some(n));
        consumed += n as u64;
        for (i, reason) in DropReason::ALL.iter().enumerate() {
            if i % 2 == 0 {
                kfree_skb_list_reason(some(n), *reason);
            } else {
                let mut array: Vec<_> =
                    some(n).into_iter().flat_map(|skb| [Some(skb), None]).collect();
                kfree_skb_bulk_reason(&mut array, *reason);
                assert!(array.iter().all(Option::is_none));
            }
            dropped[i] += n as u64;
            assert_empty(&packets);
        }
    }
    // A reference that is not the last is no end.
    let kept = packets.alloc_skb(1).unwrap();
    kfree_skb_list_reason([kept.get()], DropReason::NoRoute);
    let mut batch = quietline_net::device::Batch::new();
    some(3).into_iter().for_each(|skb| assert!(batch.push(skb).is_ok()));
    assert_eq!(batch.kfree(DropReason::TtlExpired), 3);
    dropped[DropReason::TtlExpired.number()] += 3;
    assert!(listen(None).is_ok());
    assert_eq!(COUNTS.consumed.load(Ordering::Relaxed), consumed);
    assert_eq!(COUNTS.dropped.each_ref().map(|n| n.load(Ordering::Relaxed)), dropped);
}

#[test]
fn a_stack_of_ones_own() {
    quietline_testing::isolated!();
    let _alone = alone();
    stay();
    let packets = Packets::new().unwrap();
    let mut napi = packets.napi();
    let usual = 1500;
    let skb = napi.alloc_skb(usual).unwrap();
    assert_eq!(packets.head_stats().active, NAPI_BULK, "refilled in bulk");
    let id = skb.id();
    napi.consume_skb(skb);
    assert_eq!(napi.alloc_skb(usual).unwrap().id(), id, "what was freed last comes first");
    let many: Vec<_> = (0..3 * NAPI_SIZE).map(|_| packets.alloc_skb(usual).unwrap()).collect();
    many.into_iter().for_each(|skb| napi.consume_skb(skb));
    assert!(packets.head_stats().active <= NAPI_SIZE);
    assert!(packets.data_stats()[1].active <= NAPI_SIZE);
    napi.consume_skb(packets.alloc_skb(9000).unwrap());
    napi.kfree_skb(packets.alloc_skb(usual).unwrap(), DropReason::QueueFull);
    napi.flush();
    assert_empty(&packets);
}

/// A poller has moved to the CPU that has made what it is about to send home: a flush leaves
/// nothing of that there.
#[test]
fn a_poller_that_has_moved_leaves_nothing_at_home() {
    quietline_testing::isolated!();
    let _alone = alone();
    let packets = Packets::new().unwrap();
    let all = rustix::thread::sched_getaffinity(None).unwrap();
    let mut cpus = (0..rustix::thread::CpuSet::MAX_CPU).filter(|cpu| all.is_set(*cpu));
    let (home, Some(other)) = (cpus.next().unwrap(), cpus.next()) else {
        eprintln!("skipped: there is one CPU");
        return;
    };
    let go_to = |cpu: usize| {
        let mut cpus = rustix::thread::CpuSet::new();
        cpus.set(cpu);
        rustix::thread::sched_setaffinity(None, &cpus).unwrap();
    };
    let mut napi = packets.napi().sends_home(true);
    go_to(home);
    let made: Vec<_> = (0..5).map(|_| packets.alloc_skb(1500).unwrap()).collect();
    go_to(other);
    made.into_iter().for_each(|skb| napi.consume_skb(skb));
    assert!(format!("{napi:?}").contains("away: 5"), "{napi:?}");
    go_to(home);
    napi.flush();
    assert_empty(&packets);
    rustix::thread::sched_setaffinity(None, &all).unwrap();
}

/// A poller ends what another CPU has made: it goes home, with its reason, and is freed there in
/// bulk.
#[test]
fn a_poller_sends_packets_home() {
    quietline_testing::isolated!();
    static COUNTS: Counts =
        Counts { consumed: AtomicU64::new(0), dropped: [const { AtomicU64::new(0) }; 32] };
    let _alone = alone();
    let packets = Packets::new().unwrap();
    // Found before this thread may be nowhere else.
    let cpus = rustix::thread::sched_getaffinity(None).unwrap();
    stay();
    let made = || -> Vec<_> { (0..100).map(|_| packets.alloc_skb(1500).unwrap()).collect() };
    let Some((all, other)) = elsewhere_of(cpus, || (made(), rustix::thread::sched_getcpu())) else {
        eprintln!("skipped: there is one CPU");
        return;
    };
    let on = |cpu: usize, f: &(dyn Fn() + Sync)| {
        thread::scope(|s| {
            s.spawn(|| {
                let mut cpus = rustix::thread::CpuSet::new();
                cpus.set(cpu);
                rustix::thread::sched_setaffinity(None, &cpus).unwrap();
                f();
            });
        })
    };
    assert_ne!(rustix::thread::sched_getcpu(), other);
    let own = packets.alloc_skb(1500).unwrap();
    assert!(listen(Some(&COUNTS)).is_ok());
    let mut napi = packets.napi().sends_home(true);
    napi.consume_skb(own);
    assert_eq!(COUNTS.consumed.load(Ordering::Relaxed), 1, "its own stays here");
    for (i, skb) in all.into_iter().enumerate() {
        if i % 2 == 0 { napi.consume_skb(skb) } else { napi.kfree_skb(skb, DropReason::NoRoute) }
    }
    assert_eq!(COUNTS.consumed.load(Ordering::Relaxed), 1, "they are on their way");
    napi.flush();
    assert_eq!((packets.head_stats().active, packets.take_deferred()), (100, 0));
    on(other, &|| {
        // A poller there that needs memory finds it at home.
        let mut napi = packets.napi();
        let before = packets.head_stats().refills;
        drop((0..100).map(|_| napi.alloc_skb(1500).unwrap()).collect::<Vec<_>>());
        assert_eq!(packets.head_stats().refills, before);
    });
    assert_eq!(COUNTS.dropped[DropReason::NoRoute.number()].load(Ordering::Relaxed), 50);
    assert!(listen(None).is_ok());
    assert_empty(&packets);
    // Whose CPU does nothing any more are freed by whoever shrinks, and no more than so many wait.
    let most = DEFER_MAX as usize;
    let again = Mutex::new(Vec::new());
    on(other, &|| {
        again.lock().unwrap().extend((0..most + 10).map(|_| packets.alloc_skb(1500).unwrap()))
    });
    again.into_inner().unwrap().into_iter().for_each(|skb| napi.consume_skb(skb));
    napi.flush();
    assert_eq!(packets.head_stats().active, most);
    packets.shrink();
    assert_empty(&packets);
    // What is on its way when a stack ends is sent, too: as its CPU finds.
    let few = Mutex::new(Vec::new());
    on(other, &|| few.lock().unwrap().extend((0..5).map(|_| packets.alloc_skb(1500).unwrap())));
    few.into_inner().unwrap().into_iter().for_each(|skb| napi.consume_skb(skb));
    assert!(format!("{napi:?}").contains("away: 5"), "{napi:?}");
    drop(napi);
    assert_eq!(packets.head_stats().active, 5);
    on(other, &|| assert_eq!(packets.take_deferred(), 5));
    assert_empty(&packets);
}

/// Of many packets that end in bulk, those of another CPU, of one reference, go home; the others
/// end here, whatever comes between them.
#[test]
fn many_are_sent_home_at_once() {
    quietline_testing::isolated!();
    let _alone = alone();
    let (packets, others) = (Packets::new().unwrap(), Packets::new().unwrap());
    let cpus = rustix::thread::sched_getaffinity(None).unwrap();
    stay();
    let made = || -> Vec<_> { (0..100).map(|_| packets.alloc_skb(200).unwrap()).collect() };
    let Some(all) = elsewhere_of(cpus, made) else {
        eprintln!("skipped: there is one CPU");
        return;
    };
    let mut kept = Vec::new();
    let mut row = Vec::new();
    for (i, skb) in all.into_iter().enumerate() {
        match i % 10 {
            0 => kept.push(skb.get()),
            1 => row.push(Some(others.alloc_skb(200).unwrap())),
            2 => row.push(Some(packets.alloc_skb(200).unwrap())),
            3 => row.push(None),
            _ => {}
        }
        row.push(Some(skb));
    }
    packets.defer_free_bulk(&mut row);
    assert!(row.iter().all(Option::is_none));
    assert_eq!(
        (packets.head_stats().active, others.head_stats().active),
        (100, 0),
        "90 wait, 10 are kept"
    );
    drop(kept);
    assert_eq!((packets.head_stats().active, packets.take_deferred()), (90, 0));
    packets.shrink();
    assert_empty(&packets);
    packets.defer_free_bulk(&mut []);
}

struct Counts {
    consumed: AtomicU64,
    dropped: [AtomicU64; 32],
}

impl Listener for Counts {
    fn ended(&self, packet: usize, event: Event) {
        assert_ne!(packet, 0);
        match event {
            Event::Consumed => self.consumed.fetch_add(1, Ordering::Relaxed),
            Event::Dropped(reason) => self.dropped[reason.number()].fetch_add(1, Ordering::Relaxed),
        };
    }
}

#[test]
fn a_listener_is_told() {
    quietline_testing::isolated!();
    static COUNTS: Counts =
        Counts { consumed: AtomicU64::new(0), dropped: [const { AtomicU64::new(0) }; 32] };
    let _alone = alone();
    let packets = Packets::new().unwrap();
    for _ in 0..100 {
        assert!(listen(Some(&COUNTS)).is_ok(), "the same takes no new place");
    }
    let shared = packets.alloc_skb(1).unwrap();
    drop(shared.get());
    shared.kfree_skb(DropReason::TtlExpired);
    packets.alloc_skb(1).unwrap().consume_skb();
    kfree_skb_bulk(&mut [packets.alloc_skb(1).ok(), packets.alloc_skb(1).ok()]);
    assert!(listen(None).is_ok());
    drop(packets.alloc_skb(1));
    assert_eq!(COUNTS.consumed.load(Ordering::Relaxed), 3);
    for reason in DropReason::ALL {
        let n = u64::from(*reason == DropReason::TtlExpired);
        assert_eq!(COUNTS.dropped[reason.number()].load(Ordering::Relaxed), n, "{}", reason.name());
    }
}

/// Memory is gone from the n-th allocation on, for every n: an error, and nothing is lost.
#[test]
fn memory_runs_out() {
    quietline_testing::isolated!();
    let _alone = alone();
    let work = |packets: &Packets| -> Result<(), PacketError> {
        let mut batch: [Option<Skb<'_>>; 70] = [const { None }; 70];
        packets.alloc_skb_bulk(1500, &mut batch)?;
        let mut skb = packets.alloc_skb(60)?;
        skb.add_frag(Frag::copy_of(&[1; 3000])?)?;
        let clone = skb.clone_skb()?;
        let copy = clone.linearize()?;
        assert_eq!(copy.len(), 3000);
        let mut napi = packets.napi();
        let kept: Result<Vec<_>, _> = (0..40).map(|_| napi.alloc_skb(1500)).collect();
        kept.map(drop)
    };
    let mut failed = 0;
    for n in 1.. {
        let packets = Packets::new().unwrap();
        fault::fail_from(n);
        let result = work(&packets);
        let reached = !fault::armed() || result.is_err();
        fault::fail_nth(0);
        assert_empty(&packets);
        match result {
            Ok(()) => break,
            Err(error) => assert_eq!(error, PacketError::NoMemory),
        }
        failed += u32::from(reached);
    }
    assert!(failed >= 6, "{failed} places");
    assert!(fault::check().is_ok());
}

/// Property 11 with threads: packets, references and clones that go from thread to thread, and end
/// in every way.
#[test]
fn stress_everything_ends_once() {
    quietline_testing::isolated!();
    const THREADS: usize = 3;
    const ROUNDS: usize = 4_000;
    let _alone = alone();
    ENDED.store(0, Ordering::Relaxed);
    let packets = Packets::new().unwrap();
    let made = AtomicU64::new(0);
    {
        let boxes: [Mutex<Vec<Skb<'_>>>; THREADS] = [const { Mutex::new(Vec::new()) }; THREADS];
        thread::scope(|s| {
            for me in 0..THREADS {
                let (packets, boxes, made) = (&packets, &boxes, &made);
                s.spawn(move || {
                    for round in worker(me, packets, boxes, ROUNDS) {
                        made.fetch_add(round, Ordering::Relaxed);
                    }
                });
            }
        });
    }
    let waiting = packets.head_stats().active;
    assert!(waiting <= DEFER_MAX as usize * quietline_platform::cpu::nr_cpus());
    drop(packets);
    assert_eq!(ENDED.load(Ordering::Relaxed), made.into_inner(), "each once");
}

/// Makes packets for the next thread, and ends what the one before has made: one made in each
/// round.
fn worker<'n, const THREADS: usize>(
    me: usize,
    packets: &'n Packets,
    boxes: &[Mutex<Vec<Skb<'n>>>; THREADS],
    rounds: usize,
) -> impl Iterator<Item = u64> {
    let mut napi = packets.napi().sends_home(me.is_multiple_of(2));
    let mut done = Waitlist::<'n, WAITLIST>::new();
    (0..rounds).map(move |round| {
        let made =
            if round.is_multiple_of(2) { napi.alloc_skb(1500) } else { packets.alloc_skb(200) };
        let mut skb = made.unwrap();
        skb.set_destructor(Some((ended, 1))).unwrap();
        skb.put(64).unwrap().fill(me as u8 + 1);
        let next = &boxes[(me + 1) % THREADS];
        match round % 4 {
            0 => next.lock().unwrap().push(skb.get()),
            1 => next.lock().unwrap().push(skb.clone_skb().unwrap()),
            _ => {}
        }
        next.lock().unwrap().push(skb);
        let mine = core::mem::take(&mut *boxes[me].lock().unwrap());
        for (i, skb) in mine.into_iter().enumerate() {
            let from = skb.data()[0];
            assert!(skb.data().iter().all(|byte| *byte == from), "bytes of another packet");
            match (round + i / 2) % 5 {
                0 => napi.consume_skb(skb),
                1 => done.add(skb),
                2 if i % 2 == 0 => packets.defer_free(skb),
                2 => packets.defer_free_bulk(&mut [Some(skb)]),
                3 => skb.kfree_skb(DropReason::NotSpecified),
                _ => kfree_skb_bulk(&mut [Some(skb)]),
            }
        }
        if round % 16 == 0 {
            napi.take_deferred();
            packets.take_deferred();
        }
        1
    })
}
