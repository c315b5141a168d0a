//! RCU callbacks: exactly once, never early, never inside the call that queues them; barriers, floods, ends.
#![cfg(not(loom))]

use quietline_sync::rcu::{self, BATCH, Domain, DomainSet, Head, HeadOfMany, Many, Reclaimer};
use std::cell::Cell;
use std::mem;
use std::ops::Deref;
use std::ptr::{NonNull, null};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU64, AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

const GOOD: u64 = 0x600D;
const POISON: u64 = 0xDEAD;

#[repr(C)]
struct Object {
    head: Head,
    state: AtomicU64,
    runs: AtomicUsize,
    again: AtomicUsize,
    domain: AtomicPtr<Domain>,
}

thread_local! {
    /// The head that this thread is queueing.
    static QUEUEING: Cell<*const Head> = const { Cell::new(null()) };
    /// Callbacks that this thread is inside of.
    static DEPTH: Cell<usize> = const { Cell::new(0) };
}

impl Object {
    fn new(domain: &Domain) -> Self {
        let (state, runs, again) = (AtomicU64::new(GOOD), AtomicUsize::new(0), AtomicUsize::new(0));
        let domain = AtomicPtr::new((domain as *const Domain).cast_mut());
        Self { head: Head::new(), state, runs, again, domain }
    }

    fn queue(this: *const Object) {
        let head = NonNull::new(this.cast_mut().cast::<Head>()).unwrap();
        let outer = QUEUEING.replace(head.as_ptr());
        // SAFETY: tests keep objects until a barrier has passed, and queue an object only when it is not queued.
        unsafe { (*(*this).domain.load(Ordering::Relaxed)).call(head, Self::run) };
        QUEUEING.set(outer);
    }

    unsafe fn run(head: NonNull<Head>) {
        assert_ne!(
            QUEUEING.get(),
            head.as_ptr().cast_const(),
            "run inside the call that queues it"
        );
        assert_eq!(DEPTH.replace(1), 0, "run inside another callback");
        let this = head.as_ptr().cast::<Object>();
        // SAFETY: see `queue`.
        let object = unsafe { &*this };
        object.runs.fetch_add(1, Ordering::Relaxed);
        object.state.store(POISON, Ordering::Relaxed);
        if object.again.load(Ordering::Relaxed) != 0 {
            object.again.fetch_sub(1, Ordering::Relaxed);
            Self::queue(this);
        }
        DEPTH.set(0);
    }

    fn runs(&self) -> usize {
        self.runs.load(Ordering::Relaxed)
    }
}

/// What a program does between two pieces of work.
fn run_pending(domain: &Domain) {
    if domain.is_pending() {
        rcu::run_pending(&[domain]);
    }
}

/// Queues `n` callbacks that count in `ran`.
fn count(domain: &Domain, n: usize, ran: &Arc<AtomicUsize>) {
    for _ in 0..n {
        let ran = ran.clone();
        let callback = move || _ = ran.fetch_add(1, Ordering::Relaxed);
        domain.defer(callback).unwrap();
    }
}

/// The objects of a test. If the test fails while some are queued, they stay: the end of the domain
/// runs their callbacks.
struct Objects(Vec<Object>);

impl Deref for Objects {
    type Target = [Object];

    fn deref(&self) -> &[Object] {
        &self.0
    }
}

impl Drop for Objects {
    fn drop(&mut self) {
        if thread::panicking() {
            mem::forget(mem::take(&mut self.0));
        }
    }
}

fn objects(n: usize, domain: &Domain) -> Objects {
    Objects((0..n).map(|_| Object::new(domain)).collect())
}

/// Asserts that a domain is not above its limit. Unfinished batches, of less than [`BATCH`] objects
/// on each CPU that the thread has been on, come on top of it.
fn assert_within_limit(domain: &Domain) {
    let most = domain.backlog_limit() + quietline_platform::cpu::nr_cpus() as u64 * BATCH as u64;
    assert!(domain.backlog() < most, "{} of {most}", domain.backlog());
}

/// More than a few batches, and not a whole number of them.
const MANY: usize = 5 * BATCH as usize + 17;

#[test]
fn none_runs_while_a_section_is_open() {
    let domain = Domain::new().unwrap();
    let all = objects(MANY, &domain);
    let guard = domain.read();
    for object in all.iter() {
        Object::queue(object);
    }
    for _ in 0..50 {
        assert!(domain.poll());
    }
    assert!(all.iter().all(|o| o.runs() == 0));
    assert_eq!(domain.backlog(), MANY as u64);
    drop(guard);
    while domain.poll() {}
    assert!(all.iter().all(|o| o.runs() == 1));
    assert_eq!(domain.backlog(), 0);
    domain.barrier();
    assert!(all.iter().all(|o| o.runs() == 1));
}

/// Property 8, by callbacks: four threads queue, two read, and no reader sees a callback's work.
#[test]
fn property_8_callbacks_run_once_and_never_early() {
    let domain = Domain::new().unwrap();
    let stop = AtomicBool::new(false);
    let places: Vec<AtomicPtr<Object>> = (0..4).map(|_| AtomicPtr::default()).collect();
    let pools: Vec<Objects> = (0..4).map(|_| objects(20_000, &domain)).collect();
    for (place, pool) in places.iter().zip(&pools) {
        place.store((&raw const pool[0]).cast_mut(), Ordering::Release);
    }
    thread::scope(|s| {
        let readers: Vec<_> = (0..2)
            .map(|_| {
                s.spawn(|| {
                    while !stop.load(Ordering::Relaxed) {
                        let _guard = domain.read();
                        for place in &places {
                            // SAFETY: pools outlive the scope.
                            let object = unsafe { &*place.load(Ordering::Acquire) };
                            for _ in 0..10 {
                                assert_eq!(
                                    object.state.load(Ordering::Relaxed),
                                    GOOD,
                                    "run before its grace period"
                                );
                            }
                        }
                    }
                })
            })
            .collect();
        let writers: Vec<_> = places
            .iter()
            .zip(&pools)
            .map(|(place, pool)| {
                s.spawn(move || {
                    for fresh in &pool[1..] {
                        let old = place.swap((fresh as *const Object).cast_mut(), Ordering::AcqRel);
                        Object::queue(old);
                    }
                })
            })
            .collect();
        writers.into_iter().for_each(|w| w.join().unwrap());
        domain.barrier();
        for pool in &pools {
            let (last, rest) = pool.split_last().unwrap();
            assert!(rest.iter().all(|o| o.runs() == 1) && last.runs() == 0);
        }
        stop.store(true, Ordering::Relaxed);
        readers.into_iter().for_each(|r| r.join().unwrap());
    });
    assert_eq!(domain.backlog(), 0);
}

/// Callbacks that queue themselves neither pile up on the stack nor get lost.
#[test]
fn callbacks_may_queue_themselves() {
    let domain = Domain::new().unwrap();
    let all = objects(MANY, &domain);
    for object in all.iter() {
        object.again.store(9, Ordering::Relaxed);
        Object::queue(object);
    }
    while domain.poll() {}
    assert!(all.iter().all(|o| o.runs() == 10));
}

/// Queueing runs nothing: neither other callbacks that are due, nor a grace period.
#[test]
fn a_call_only_queues() {
    let domain = Domain::new().unwrap();
    let all = objects(100 * BATCH as usize, &domain);
    let lock = std::sync::Mutex::new(());
    for chunk in all.chunks(MANY) {
        // Callbacks may take a lock that the caller of `call` holds.
        let held = lock.lock().unwrap();
        chunk.iter().for_each(|object| Object::queue(object));
        domain.defer(|| ()).unwrap();
        (0..2).for_each(|_| domain.cond_synchronize(domain.get_state_synchronize()));
        assert!(chunk.iter().all(|object| object.runs() == 0));
        drop(held);
    }
    assert!(all.iter().all(|object| object.runs() == 0));
    assert!(domain.is_pending());
    domain.barrier();
    assert!(all.iter().all(|object| object.runs() == 1));
}

/// A thread's share is at most two batches for each time that it has filled some, and shares run
/// what is due.
#[test]
fn a_share_is_bounded() {
    // Another test's domain may share the bit of this one in the notes of pending work.
    quietline_testing::isolated!();
    let domain = Domain::new().unwrap();
    let batches = 40;
    let all = objects(batches * BATCH as usize, &domain);
    let ran = || all.iter().map(Object::runs).sum::<usize>();
    let (mut shares, mut most) = (0, 0);
    for object in all.iter() {
        Object::queue(object);
        if domain.is_pending() {
            let before = ran();
            rcu::run_pending(&[&domain]);
            shares += 1;
            most = most.max(ran() - before);
            assert!(!domain.is_pending());
        }
    }
    // The thread may change CPUs, and leave an unfinished batch behind on each.
    assert!(shares + quietline_platform::cpu::nr_cpus() >= batches, "{shares}");
    assert!(most <= 2 * BATCH as usize, "{most}");
    // A grace period begins for four batches, and two take them through.
    assert!(ran() >= all.len() / 4, "{}", ran());
    domain.barrier();
    assert_eq!(ran(), all.len());
}

/// A thread has a share in each domain of which it has filled a batch: work in one takes none from
/// another.
#[test]
fn a_share_is_of_a_domain() {
    // Another test's domain may share the bit of this one in the notes of pending work.
    quietline_testing::isolated!();
    let domains = [Domain::new().unwrap(), Domain::new().unwrap()];
    let all = domains.each_ref().map(|domain| objects(BATCH as usize * 3, domain));
    let both = DomainSet::new(&[&domains[0], &domains[1]]);
    // Unfinished batches may be left on other CPUs if the thread is moved.
    while !domains[0].is_pending() {
        count(&domains[0], 1, &Arc::default());
    }
    assert!(both.is_pending() && !domains[1].is_pending());
    all[1].iter().for_each(|object| Object::queue(object));
    rcu::run_pending(&[&domains[1]]);
    assert!(domains[0].is_pending() && both.is_pending() && !domains[1].is_pending());
    rcu::run_pending(&[&domains[0], &domains[1]]);
    assert!(!both.is_pending());
    domains.iter().for_each(|domain| domain.barrier());
    assert!(all[1].iter().all(|object| object.runs() == 1));
}

/// Inside a callback nothing runs, nothing waits and nothing of the thread's share is lost.
#[test]
fn a_share_is_kept_inside_a_callback() {
    // Another test's domain may share the bit of this one in the notes of pending work.
    quietline_testing::isolated!();
    let (domain, other): (&'static Domain, _) = (Domain::leaked().unwrap(), Domain::new().unwrap());
    let ran = Arc::new(AtomicUsize::new(0));
    let inner = ran.clone();
    domain
        .defer(move || {
            while !domain.is_pending() {
                count(domain, 1, &inner);
            }
            rcu::run_pending(&[domain]);
            assert!(domain.is_pending());
            inner.fetch_add(1_000_000, Ordering::Relaxed);
        })
        .unwrap();
    let seq = domain.start_poll_synchronize();
    while ran.load(Ordering::Relaxed) < 1_000_000 {
        domain.poll();
    }
    assert!(domain.poll_state_synchronize(seq) && domain.is_pending());
    rcu::run_pending(&[&other]);
    assert!(domain.is_pending());
    rcu::run_pending(&[domain]);
    assert!(!domain.is_pending());
    domain.barrier();
}

/// What a reader kept from being freed is freed by the next calls of a thread that queues nothing.
#[test]
fn a_thread_that_queues_nothing_helps_at_the_limit() {
    // Another test's domain may share the bit of this one in the notes of pending work.
    quietline_testing::isolated!();
    let domain = Domain::new().unwrap();
    let limit = domain.backlog_limit();
    let all = objects(3 * limit as usize, &domain);
    let guard = domain.read();
    all.iter().for_each(|object| Object::queue(object));
    rcu::run_pending(&[&domain]);
    assert!(domain.backlog() > limit && domain.is_pending());
    drop(guard);
    thread::scope(|s| {
        s.spawn(|| {
            while domain.is_pending() {
                rcu::run_pending(&[&domain]);
            }
            assert_within_limit(&domain);
        });
    });
    domain.barrier();
    assert!(!domain.is_pending());
}

/// The end of a domain runs its callbacks, also where it ends in a callback of another one. They
/// are callbacks like any other.
#[test]
fn a_domain_ends_in_a_callback() {
    let (one, other) = (Domain::leaked().unwrap(), Domain::new().unwrap());
    let ran = Arc::new(AtomicUsize::new(0));
    let (outer, inner) = (ran.clone(), ran.clone());
    let nothing_runs = |_: &Domain| {
        count(one, 1, &Arc::default());
        (0..4).for_each(|_| assert!(one.poll(), "a callback runs inside a callback"));
    };
    other
        .defer(move || {
            nothing_runs(one);
            inner.fetch_add(1, Ordering::Relaxed);
        })
        .unwrap();
    one.defer(move || {
        drop(other);
        assert_eq!(outer.load(Ordering::Relaxed), 1);
        nothing_runs(one);
        outer.fetch_add(1, Ordering::Relaxed);
    })
    .unwrap();
    one.barrier();
    assert_eq!(ran.load(Ordering::Relaxed), 2);
}

/// A program's event loop: it is told of each full batch, and threads have no shares, unless it
/// falls behind.
#[test]
fn an_event_loop_reclaims() {
    // Another test's domain may share the bit of this one in the notes of pending work.
    quietline_testing::isolated!();
    static TOLD: AtomicUsize = AtomicUsize::new(0);
    struct EventLoop;
    impl Reclaimer for EventLoop {
        fn notify(&self) {
            TOLD.fetch_add(1, Ordering::Relaxed);
        }
    }
    let domain = Domain::new().unwrap();
    let all = objects(10 * BATCH as usize, &domain);
    domain.set_reclaimer(Some(Box::new(EventLoop))).unwrap();
    all.iter().for_each(|object| Object::queue(object));
    assert!(!domain.is_pending());
    let told = TOLD.load(Ordering::Relaxed);
    assert!((1..=10).contains(&told), "{told}");
    assert!(all.iter().all(|object| object.runs() == 0));
    while domain.poll() {}
    assert!(all.iter().all(|object| object.runs() == 1));
    domain.set_reclaimer(None).unwrap();
    all.iter().for_each(|object| Object::queue(object));
    assert!(domain.is_pending() && TOLD.load(Ordering::Relaxed) == told);
    domain.barrier();
    rcu::run_pending(&[&domain]);
    domain.set_reclaimer(Some(Box::new(EventLoop))).unwrap();
    let many = objects(domain.backlog_limit() as usize * 2, &domain);
    many.iter().for_each(|object| Object::queue(object));
    assert!(domain.is_pending() && domain.backlog() > domain.backlog_limit());
    while domain.is_pending() {
        rcu::run_pending(&[&domain]);
    }
    assert_within_limit(&domain);
    domain.barrier();
}

/// Callbacks run although no thread frees any more, those of an unfinished batch included.
#[test]
fn a_thread_reclaims() {
    // Another test's domain may share the bit of this one in the notes of pending work.
    quietline_testing::isolated!();
    let domain = Domain::leaked().unwrap();
    domain.spawn_reclaimer().unwrap();
    let all = objects(MANY, domain);
    all.iter().for_each(|object| Object::queue(object));
    let end = Instant::now() + Duration::from_secs(60);
    while all.iter().any(|object| object.runs() == 0) {
        assert!(Instant::now() < end, "callbacks wait for ever");
        thread::sleep(Duration::from_millis(1));
    }
    assert!(!domain.is_pending());
    domain.barrier();
}

/// A callback may wait for grace periods of any domain, and not for callbacks.
#[test]
fn callbacks_may_wait() {
    let one: &'static Domain = Domain::leaked().unwrap();
    let other: &'static Domain = Domain::leaked().unwrap();
    let ran = Arc::new(AtomicUsize::new(0));
    let (count, inner) = (ran.clone(), ran.clone());
    one.defer(move || {
        one.synchronize();
        other
            .defer(move || {
                let _ = inner.fetch_add(1, Ordering::Relaxed);
            })
            .unwrap();
        other.synchronize();
        while other.poll() && other.backlog() > 1 {}
        count.fetch_add(10, Ordering::Relaxed);
    })
    .unwrap();
    one.barrier();
    assert_eq!(ran.load(Ordering::Relaxed), 10, "callbacks do not nest");
    other.barrier();
    assert_eq!(ran.load(Ordering::Relaxed), 11);
}

#[test]
fn a_barrier_covers_what_others_queued_before() {
    let domain = Domain::new().unwrap();
    for _ in 0..20 {
        let pools: Vec<Objects> = (0..4).map(|_| objects(MANY, &domain)).collect();
        thread::scope(|s| {
            for pool in &pools {
                s.spawn(|| pool.iter().for_each(|o| Object::queue(o)));
            }
        });
        domain.barrier();
        assert!(pools.iter().flat_map(|pool| pool.iter()).all(|o| o.runs() == 1));
    }
}

/// A barrier ends although others go on queueing and running, and covers its own callbacks.
#[test]
fn a_barrier_is_not_starved() {
    let domain = Domain::new().unwrap();
    let stop = AtomicBool::new(false);
    thread::scope(|s| {
        for _ in 0..2 {
            s.spawn(|| {
                while !stop.load(Ordering::Relaxed) {
                    domain.defer(|| {}).unwrap();
                    run_pending(&domain);
                }
                domain.barrier();
            });
        }
        for _ in 0..100 {
            let mine = objects(10, &domain);
            mine.iter().for_each(|o| Object::queue(o));
            domain.barrier();
            assert!(mine.iter().all(|o| o.runs() == 1));
        }
        stop.store(true, Ordering::Relaxed);
    });
    assert_eq!(domain.backlog(), 0);
}

/// Two million callbacks beside a reader that is nearly always inside: what waits is bounded.
#[test]
fn a_flood_stays_within_its_bounds() {
    let domain = Domain::new().unwrap();
    let live = Arc::new(AtomicUsize::new(0));
    let stop = AtomicBool::new(false);
    let highest = thread::scope(|s| {
        s.spawn(|| {
            while !stop.load(Ordering::Relaxed) {
                let _guard = domain.read();
                let end = Instant::now() + Duration::from_micros(300);
                while Instant::now() < end {
                    thread::yield_now();
                }
            }
        });
        let mut highest = 0;
        for _ in 0..2_000_000 {
            let freed = live.clone();
            highest = highest.max(live.fetch_add(1, Ordering::Relaxed));
            domain
                .defer(move || {
                    let _ = freed.fetch_sub(1, Ordering::Relaxed);
                })
                .unwrap();
            run_pending(&domain);
        }
        stop.store(true, Ordering::Relaxed);
        highest as u64
    });
    // The limit, the unfinished batches, and as much again for a reader that loses its CPU inside.
    let bound =
        2 * domain.backlog_limit() + BATCH as u64 * quietline_platform::cpu::nr_cpus() as u64;
    assert!(highest <= bound, "{highest} callbacks waited; the bound is {bound}");
    domain.barrier();
    assert_eq!(live.load(Ordering::Relaxed), 0);
}

/// With a reader that does not leave, here the queuer itself, a flood is slowed and not stopped.
#[test]
fn a_stalled_reader_slows_a_flood() {
    let domain = Domain::new().unwrap();
    let full = (domain.backlog_limit()
        + BATCH as u64 * (quietline_platform::cpu::nr_cpus() as u64 + 1)) as usize;
    let all = objects(full + 6 * BATCH as usize, &domain);
    let guard = domain.read();
    all[..full].iter().for_each(|o| Object::queue(o));
    let from = Instant::now();
    for object in &all[full..] {
        Object::queue(object);
        run_pending(&domain);
    }
    // Six batches more, on a CPU or two: at least four of them were filled.
    assert!(from.elapsed() >= Duration::from_millis(40), "{:?}", from.elapsed());
    assert!(all.iter().all(|o| o.runs() == 0));
    drop(guard);
    domain.barrier();
    assert!(all.iter().all(|o| o.runs() == 1));
}

/// Heads that stand for many count for what they say, from queueing to their end, and are run once; one that is as much
/// as a batch is a share by itself.
#[test]
fn many_objects_behind_a_head() {
    #[repr(C)]
    struct Heap {
        head: HeadOfMany,
        objects: u32,
        runs: AtomicUsize,
    }
    unsafe fn run(head: NonNull<HeadOfMany>) {
        // SAFETY: the head is the first field of a heap that the test keeps.
        unsafe { head.cast::<Heap>().as_ref() }.runs.fetch_add(1, Ordering::Relaxed);
    }
    unsafe fn count(head: NonNull<HeadOfMany>) -> u32 {
        // SAFETY: as above.
        unsafe { head.cast::<Heap>().as_ref() }.objects
    }
    static HEAP: Many = Many { run, count };
    let heaps = |n: usize, objects: u32| -> Vec<Heap> {
        (0..n)
            .map(|_| Heap { head: HeadOfMany::new(&HEAP), objects, runs: AtomicUsize::new(0) })
            .collect()
    };
    let queue = |domain: &Domain, heap: &Heap| {
        // SAFETY: each is queued once, and kept until a barrier has passed.
        unsafe { domain.call_many(NonNull::from(heap).cast()) };
    };
    let domain = Domain::new().unwrap();
    let guard = domain.read();
    let (some, large, none) = (heaps(40, 7), heaps(3, 10_000), heaps(2, 0));
    let single = objects(10, &domain);
    for heap in some.iter().chain(&large).chain(&none) {
        queue(&domain, heap);
    }
    single.iter().for_each(|object| Object::queue(object));
    let all = 40 * 7 + 3 * 10_000 + 2 + 10;
    assert_eq!(domain.backlog(), all);
    for _ in 0..50 {
        assert!(domain.poll());
    }
    assert_eq!(domain.backlog(), all);
    assert!(
        some.iter().chain(&large).chain(&none).all(|heap| heap.runs.load(Ordering::Relaxed) == 0)
    );
    drop(guard);
    domain.barrier();
    assert_eq!(domain.backlog(), 0);
    assert!(
        some.iter().chain(&large).chain(&none).all(|heap| heap.runs.load(Ordering::Relaxed) == 1)
    );
    assert!(single.iter().all(|object| object.runs() == 1));
    // The thread's shares bring them to their end, nearly all.
    let heaps = heaps(1000, 512);
    for heap in &heaps {
        queue(&domain, heap);
        run_pending(&domain);
    }
    let ran = heaps.iter().filter(|heap| heap.runs.load(Ordering::Relaxed) == 1).count();
    assert!(ran > 1000 - 2 * domain.backlog_limit() as usize / 512, "{ran}");
    domain.barrier();
    assert!(heaps.iter().all(|heap| heap.runs.load(Ordering::Relaxed) == 1));
}

#[test]
fn the_end_of_a_domain_runs_everything() {
    for n in [0, 1, 17, MANY] {
        let domain = Domain::new().unwrap();
        let ran = Arc::new(AtomicUsize::new(0));
        for i in 0..n {
            let count = ran.clone();
            domain
                .defer(move || {
                    let _ = count.fetch_add(1, Ordering::Relaxed);
                })
                .unwrap();
            if i == n / 2 {
                domain.synchronize();
            }
        }
        drop(domain);
        assert_eq!(ran.load(Ordering::Relaxed), n);
        assert_eq!(Arc::strong_count(&ran), 1);
    }
}

/// A closure that panics harms neither those who run it nor the callbacks behind it.
#[test]
fn a_panic_ends_in_its_callback() {
    let domain = Domain::new().unwrap();
    let ran = Arc::new(AtomicUsize::new(0));
    for i in 0..100 {
        let count = ran.clone();
        let f = move || {
            count.fetch_add(1, Ordering::Relaxed);
            assert!(i != 50, "a panic on purpose");
        };
        domain.defer(f).unwrap();
    }
    domain.barrier();
    assert_eq!(ran.load(Ordering::Relaxed), 100);
    assert_eq!(domain.backlog(), 0);
}

/// While a barrier runs what is due, its first callback moves the thread to another CPU, where more
/// callbacks become due than are left. The barrier waits for its own all the same.
#[test]
#[cfg_attr(miri, ignore = "its CPUs are not the machine's")]
fn a_barrier_waits_for_its_own_and_not_for_as_many_others() {
    let (Some(here), Some(there)) = (allowed_cpu(0), allowed_cpu(1)) else { return };
    let domain: &'static Domain = Box::leak(Box::new(Domain::new().unwrap())).as_ref().get_ref();
    let others = rcu::SHARE as usize + 100;
    let (ran, moved) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicBool::new(false)));
    thread::spawn(move || {
        pin(here);
        for _ in 0..2 * rcu::SHARE {
            let (ran, moved) = (ran.clone(), moved.clone());
            let callback = move || {
                ran.fetch_add(1, Ordering::Relaxed);
                if !moved.swap(true, Ordering::Relaxed) {
                    pin(there);
                    (0..others).for_each(|_| domain.defer(|| ()).unwrap());
                    (0..4).for_each(|_| domain.synchronize());
                }
            };
            domain.defer(callback).unwrap();
        }
        domain.barrier();
        assert_eq!(ran.load(Ordering::Relaxed), 2 * rcu::SHARE as usize);
        domain.barrier();
    })
    .join()
    .unwrap();
}

fn allowed_cpu(n: usize) -> Option<usize> {
    // SAFETY: a plain call on a set of our own.
    unsafe {
        let mut set: libc::cpu_set_t = core::mem::zeroed();
        assert_eq!(libc::sched_getaffinity(0, size_of_val(&set), &mut set), 0);
        (0..libc::CPU_SETSIZE as usize).filter(|&cpu| libc::CPU_ISSET(cpu, &set)).nth(n)
    }
}

fn pin(cpu: usize) {
    // SAFETY: a plain call on a set of our own.
    unsafe {
        let mut set: libc::cpu_set_t = core::mem::zeroed();
        libc::CPU_SET(cpu, &mut set);
        assert_eq!(libc::sched_setaffinity(0, size_of_val(&set), &set), 0);
    }
}
