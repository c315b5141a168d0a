//! Where nothing may be freed: what ends there waits, whole, whatever way it ends in, and is freed
//! elsewhere, once. A real signal handler that interrupts the allocator may end packets.
#![allow(unsafe_code)]

use quietline_net::device::{Batch, TxRing};
use quietline_net::packet::*;
use quietline_slab::{Debug, Tunables};
use std::cell::UnsafeCell;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

/// The listener, and the count of destructors, are the process's: one test at a time.
fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

static ENDED: AtomicUsize = AtomicUsize::new(0);

extern "C" fn ended(_: u64) {
    ENDED.fetch_add(1, Ordering::Relaxed);
}

/// Heads and data that are out.
fn active(packets: &Packets) -> [usize; 2] {
    [packets.head_stats().active, packets.data_stats().iter().map(|stats| stats.active).sum()]
}

/// A packet that is counted when it ends.
fn counted(packets: &Packets, len: usize) -> Skb<'_> {
    let mut skb = packets.alloc_skb(len).unwrap();
    skb.set_destructor(Some((ended, 0))).unwrap();
    skb
}

/// Packets of all sizes, some with a clone, of which each counts; some of one's own other
/// references stay in `kept`.
fn mixture<'n>(packets: &'n Packets, kept: &mut Vec<Skb<'n>>) -> Vec<Skb<'n>> {
    let mut all = Vec::new();
    for i in 0..50 {
        let skb = counted(packets, [60, 1500, 3000, 9000][i / 5 % 4]);
        match i % 5 {
            0 => {
                let mut clone = skb.clone_skb().unwrap();
                clone.set_destructor(Some((ended, 0))).unwrap();
                all.push(clone);
            }
            1 => kept.push(skb.get()),
            _ => {}
        }
        all.push(skb);
    }
    all
}

fn in_a_row<'n>(all: Vec<Skb<'n>>) -> Vec<Option<Skb<'n>>> {
    all.into_iter().map(Some).collect()
}

fn batch<'n>(all: Vec<Skb<'n>>) -> Batch<'n> {
    let mut batch = Batch::new();
    for skb in all {
        assert!(batch.push(skb).is_ok());
    }
    batch
}

fn ring<'n>(all: Vec<Skb<'n>>) -> TxRing<'n> {
    let mut ring = TxRing::new(64).unwrap();
    for skb in all {
        assert!(ring.put(skb).is_ok());
    }
    ring.send(|_| true);
    ring
}

/// What is about to end, as the first function has made it, ends in the second.
type Way = (&'static str, for<'n> fn(&'n Packets, Vec<Skb<'n>>));

#[test]
fn every_way_waits() {
    quietline_testing::isolated!();
    let _alone = alone();
    let ways: [Way; 17] = [
        ("dropped", |_, all| drop(all)),
        ("kfree_skb", |_, all| all.into_iter().for_each(|skb| skb.kfree_skb(DropReason::NoRoute))),
        ("kfree_skb_bulk", |_, all| kfree_skb_bulk(&mut in_a_row(all))),
        ("kfree_skb_bulk_heads", |_, all| kfree_skb_bulk_heads(&mut in_a_row(all))),
        ("kfree_skb_bulk_reason", |_, all| {
            kfree_skb_bulk_reason(&mut in_a_row(all), DropReason::NoRoute)
        }),
        ("kfree_skb_list", |_, all| kfree_skb_list(all)),
        ("a waitlist that is full, and dropped", |_, all| {
            let mut list = Waitlist::<8>::new();
            all.into_iter().for_each(|skb| list.add(skb));
            assert_eq!(list.len(), 4);
        }),
        ("a waitlist that is flushed", |_, all| {
            let mut list = Waitlist::<64>::new();
            all.into_iter().for_each(|skb| list.add(skb));
            list.flush();
            assert!(list.is_empty());
        }),
        ("Batch::consume", |_, all| assert_eq!(batch(all).consume(), 60)),
        ("Batch::kfree", |_, all| assert_eq!(batch(all).kfree(DropReason::NoRoute), 60)),
        ("a batch that is dropped", |_, all| drop(batch(all))),
        ("a ring that is dropped", |_, all| drop(ring(all))),
        ("TxRing::complete", |_, all| assert_eq!(ring(all).complete(64), 60)),
        ("TxRing::complete_in_place", |_, all| assert_eq!(ring(all).complete_in_place(64), 60)),
        ("defer_free", |packets, all| all.into_iter().for_each(|skb| packets.defer_free(skb))),
        ("defer_free_bulk", |packets, all| packets.defer_free_bulk(&mut in_a_row(all))),
        ("Napi::consume_skb", |packets, all| {
            let mut napi = packets.napi();
            all.into_iter().for_each(|skb| napi.consume_skb(skb));
            napi.flush();
        }),
    ];
    for (name, way) in ways {
        let packets = Packets::new().unwrap();
        let mut kept = Vec::new();
        let all = mixture(&packets, &mut kept);
        let before = active(&packets);
        assert_eq!((all.len(), before), (60, [60, 50]));
        ENDED.store(0, Ordering::Relaxed);
        let (outer, inner) = (NoBulk::enter(), NoBulk::enter());
        drop(outer);
        assert!(NoBulk::is_entered());
        way(&packets, all);
        assert_eq!(packets.take_deferred(), 0, "{name}: not even when it is asked for");
        drop(inner);
        assert!(!NoBulk::is_entered());
        assert_eq!(
            (ENDED.load(Ordering::Relaxed), active(&packets)),
            (0, before),
            "{name}: nothing is freed"
        );
        assert!(kept.iter().all(|skb| !skb.is_shared()), "{name}: references are given up at once");
        // The first that ends elsewhere. (Packets that were sent home to another CPU, if the test
        // was moved, wait for more.)
        drop(packets.alloc_skb(1).unwrap());
        packets.shrink();
        assert_eq!(ENDED.load(Ordering::Relaxed), 50, "{name}");
        drop(kept);
        assert_eq!((ENDED.load(Ordering::Relaxed), active(&packets)), (60, [0, 0]), "{name}");
    }
}

#[test]
fn whoever_frees_next_frees_them() {
    quietline_testing::isolated!();
    let _alone = alone();
    type Next = fn(&Packets);
    let nexts: [(&str, Next); 9] = [
        ("an end", |packets| drop(packets.alloc_skb(1).unwrap())),
        ("a bulk", |packets| {
            kfree_skb_bulk(&mut [packets.alloc_skb(1).ok(), packets.alloc_skb(1).ok()])
        }),
        ("a waitlist", |packets| Waitlist::<4>::new().add(packets.alloc_skb(1).unwrap())),
        ("packets made in bulk", |packets| {
            packets.alloc_skb_bulk(1, &mut [const { None }; 3]).unwrap()
        }),
        ("a poller", |packets| drop(packets.napi().alloc_skb(1500).unwrap())),
        ("a poller that ends", |packets| {
            packets.napi().consume_skb(packets.alloc_skb(1500).unwrap())
        }),
        ("a poller that is flushed", |packets| packets.napi().flush()),
        ("take_deferred", |packets| assert_eq!(packets.take_deferred(), 10)),
        ("shrink", Packets::shrink),
    ];
    for (name, next) in nexts {
        let packets = Packets::new().unwrap();
        ENDED.store(0, Ordering::Relaxed);
        let all: Vec<_> = (0..10).map(|_| counted(&packets, 1500)).collect();
        let here = NoBulk::enter();
        drop(all);
        drop(here);
        // By another thread than the one that put them off.
        thread::scope(|s| _ = s.spawn(|| next(&packets)));
        assert_eq!((ENDED.load(Ordering::Relaxed), active(&packets)), (10, [0, 0]), "{name}");
    }
    // At the latest with the packets themselves.
    ENDED.store(0, Ordering::Relaxed);
    let packets = Packets::new().unwrap();
    let skb = counted(&packets, 1);
    let here = NoBulk::enter();
    drop(skb);
    drop(here);
    assert_eq!(ENDED.load(Ordering::Relaxed), 0);
    drop(packets);
    assert_eq!(ENDED.load(Ordering::Relaxed), 1);
}

/// What a poller's stack holds is put off as well, of every kind.
#[test]
fn storage_waits() {
    quietline_testing::isolated!();
    let _alone = alone();
    let packets = Packets::new().unwrap();
    let mut napi = packets.napi();
    drop(napi.alloc_skb(1500).unwrap());
    // Heads and data of different numbers.
    napi.consume_skb(packets.alloc_skb(60).unwrap());
    let before = active(&packets);
    assert!(before[0] > before[1] && before[1] > 1, "{before:?}");
    let here = NoBulk::enter();
    drop(napi);
    drop(here);
    assert_eq!(active(&packets), before);
    packets.take_deferred();
    assert_eq!(active(&packets), [0, 0]);
}

struct Told {
    consumed: AtomicU64,
    dropped: [AtomicU64; 32],
}

impl Listener for Told {
    fn ended(&self, _: usize, event: Event) {
        match event {
            Event::Consumed => self.consumed.fetch_add(1, Ordering::Relaxed),
            Event::Dropped(reason) => self.dropped[reason.number()].fetch_add(1, Ordering::Relaxed),
        };
    }
}

#[test]
fn reasons_are_told_later() {
    quietline_testing::isolated!();
    static TOLD: Told =
        Told { consumed: AtomicU64::new(0), dropped: [const { AtomicU64::new(0) }; 32] };
    let _alone = alone();
    let packets = Packets::new().unwrap();
    let all: Vec<_> =
        DropReason::ALL.iter().map(|reason| (packets.alloc_skb(1).unwrap(), *reason)).collect();
    let mut used: Vec<_> = (0..3).map(|_| packets.alloc_skb(1).ok()).collect();
    assert!(listen(Some(&TOLD)).is_ok());
    let here = NoBulk::enter();
    for (skb, reason) in all {
        if reason.number() % 2 == 0 {
            skb.kfree_skb(reason);
        } else {
            kfree_skb_bulk_reason(&mut [Some(skb)], reason);
        }
    }
    kfree_skb_bulk(&mut used);
    drop(here);
    let told = || TOLD.dropped.iter().map(|n| n.load(Ordering::Relaxed)).sum::<u64>();
    assert_eq!((told(), TOLD.consumed.load(Ordering::Relaxed)), (0, 0), "nobody is called there");
    packets.take_deferred();
    assert!(listen(None).is_ok());
    assert_eq!(told(), DropReason::ALL.len() as u64);
    assert!(
        DropReason::ALL
            .iter()
            .all(|reason| TOLD.dropped[reason.number()].load(Ordering::Relaxed) == 1)
    );
    assert_eq!(TOLD.consumed.load(Ordering::Relaxed), 3);
}

/// Packets for the handler: its own while there are any.
struct Mail {
    packets: UnsafeCell<[Option<Skb<'static>>; 48]>,
    full: AtomicBool,
}

// SAFETY: by `full` one has them at a time.
unsafe impl Sync for Mail {}

static MAIL: Mail =
    Mail { packets: UnsafeCell::new([const { None }; 48]), full: AtomicBool::new(false) };

/// Ends packets one by one, by a list, and in bulk.
extern "C" fn handler(_signal: i32) {
    if !MAIL.full.load(Ordering::Acquire) {
        return;
    }
    let _here = NoBulk::enter();
    // SAFETY: while it is full, it is the handler's, which is not interrupted by itself.
    let packets = unsafe { &mut *MAIL.packets.get() };
    let mut done = Waitlist::<4>::new();
    for (i, place) in packets.iter_mut().enumerate() {
        match (i % 4, place.take()) {
            (0, skb) => drop(skb),
            (1, Some(skb)) => done.add(skb),
            (2, Some(skb)) => skb.kfree_skb(DropReason::QueueFull),
            (_, skb) => *place = skb,
        }
    }
    kfree_skb_bulk(packets);
    MAIL.full.store(false, Ordering::Release);
}

/// Sends `rounds` signals that find this thread at `work`, and packets to be ended.
fn interrupted(packets: &'static Packets, rounds: usize, mut work: impl FnMut()) {
    // SAFETY: a handler of the right type, which does what is allowed there; a flag and no mask.
    unsafe {
        let mut action: libc::sigaction = core::mem::zeroed();
        action.sa_sigaction = handler as extern "C" fn(i32) as usize;
        action.sa_flags = libc::SA_RESTART;
        assert_eq!(libc::sigaction(libc::SIGUSR1, &action, core::ptr::null_mut()), 0);
    }
    // SAFETY: this thread.
    let this = unsafe { libc::pthread_self() };
    let (over, handled) = (AtomicBool::new(false), AtomicUsize::new(0));
    thread::scope(|s| {
        s.spawn(|| {
            let (mut start, mut last) = (Instant::now(), 0);
            while !over.load(Ordering::Relaxed) {
                thread::sleep(Duration::from_micros(20));
                if MAIL.full.load(Ordering::Relaxed) {
                    // SAFETY: it waits for this one.
                    assert_eq!(unsafe { libc::pthread_kill(this, libc::SIGUSR1) }, 0);
                }
                let now = handled.load(Ordering::Relaxed);
                if now != last {
                    (start, last) = (Instant::now(), now);
                }
                if start.elapsed() > Duration::from_secs(120) {
                    eprintln!(
                        "the handler waits for what the thread holds that it has interrupted"
                    );
                    std::process::abort();
                }
            }
        });
        for _ in 0..rounds {
            // SAFETY: not full, so ours.
            let mail = unsafe { &mut *MAIL.packets.get() };
            mail.fill_with(|| Some(counted(packets, 60)));
            MAIL.full.store(true, Ordering::Release);
            while MAIL.full.load(Ordering::Acquire) {
                work();
            }
            handled.fetch_add(1, Ordering::Relaxed);
        }
        over.store(true, Ordering::Relaxed);
    });
}

/// The thread holds a lock of the cache nearly all the time: that of its checks, and then, now and
/// then, that of its barn.
#[test]
fn a_signal_interrupts_the_allocator() {
    quietline_testing::isolated!();
    let _alone = alone();
    ENDED.store(0, Ordering::Relaxed);
    let packets: &'static Packets = Box::leak(Box::new(Packets::new().unwrap()));
    let mut out: Vec<_> = (0..500).map(|_| packets.alloc_skb(60)).collect();
    packets.set_debug(Debug::ALL).unwrap();
    out.extend((0..500).map(|_| packets.alloc_skb(60)));
    interrupted(packets, 50, || assert_eq!(packets.validate(), 0));
    drop(out);
    packets.take_deferred();
    packets.set_debug(Debug::OFF).unwrap();
    assert_eq!((ENDED.load(Ordering::Relaxed), active(packets)), (50 * 48, [0, 0]));

    let heads = packets.head_cache();
    heads.set_tunables(Tunables { sheaf_capacity: 2, ..heads.tunables() }).unwrap();
    let rounds = quietline_testing::scaled(300) as usize;
    interrupted(packets, rounds, || {
        let burst: [_; 64] = core::array::from_fn(|_| packets.alloc_skb(60).unwrap());
        drop(burst);
    });
    packets.take_deferred();
    packets.shrink();
    assert_eq!((ENDED.load(Ordering::Relaxed), active(packets)), ((50 + rounds) * 48, [0, 0]));
}
