//! RCU under the model checker: two CPUs, readers, updaters and callbacks in every order (within a bound on forced
//! switches). What a reader may still see is a loom cell, so a write that is not ordered after the read is an error
//! even when the values happen to be right.
#![cfg(loom)]

use loom::cell::UnsafeCell;
use loom::sync::atomic::{AtomicPtr, AtomicUsize, Ordering::Relaxed, Ordering::SeqCst};
use loom::thread;
use quietline_platform::{cpu, fault};
use quietline_sync::rcu::{Domain, Guard, Head, HeadOfMany, Many};
use std::pin::Pin;
use std::ptr::NonNull;
use std::sync::Arc;

const POISON: u64 = u64::MAX;

#[repr(C)]
struct Object {
    head: Head,
    value: UnsafeCell<u64>,
    runs: AtomicUsize,
}

impl Object {
    fn new(value: u64) -> Self {
        Self { head: Head::new(), value: UnsafeCell::new(value), runs: AtomicUsize::new(0) }
    }

    /// What becomes of an object whose grace period is over.
    fn poison(&self) {
        // SAFETY: nobody reads it any more, or loom finds that out.
        self.value.with_mut(|v| unsafe { *v = POISON });
    }

    unsafe fn callback(head: NonNull<Head>) {
        // SAFETY: the head is the first field of an object that lives as long as its world.
        let this = unsafe { head.cast::<Object>().as_ref() };
        this.poison();
        this.runs.fetch_add(1, Relaxed);
    }
}

/// A domain, a pointer, and the objects that it may point to; at first the first.
struct World {
    domain: Pin<Box<Domain>>,
    now: AtomicPtr<Object>,
    objects: Vec<Object>,
}

// SAFETY: the model watches every access to the cells inside.
unsafe impl Send for World {}
// SAFETY: as above.
unsafe impl Sync for World {}

impl World {
    fn new(objects: u64) -> Arc<Self> {
        let objects: Vec<Object> = (0..objects).map(Object::new).collect();
        let now = AtomicPtr::new((&raw const objects[0]).cast_mut());
        Arc::new(Self { domain: Domain::new().unwrap(), now, objects })
    }

    /// Makes object `i` the one to be seen. Relaxed on purpose: the objects are all there from the start, and the
    /// grace period must order the unlinking by itself.
    fn publish(&self, i: usize) {
        self.now.store((&raw const self.objects[i]).cast_mut(), Relaxed);
    }

    /// A read section up to its last access.
    fn enter(&self) -> Guard<'_> {
        let guard = self.domain.read();
        // SAFETY: objects live as long as the world.
        let object = unsafe { &*self.now.load(Relaxed) };
        // SAFETY: loom finds out whether somebody writes meanwhile.
        let value = object.value.with(|v| unsafe { *v });
        assert_ne!(value, POISON, "poisoned before its grace period was over");
        guard
    }

    fn call(&self, i: usize) {
        // SAFETY: each object is queued once, and lives as long as the world.
        unsafe { self.domain.call(NonNull::from(&self.objects[i]).cast(), Object::callback) };
    }

    fn runs(&self, i: usize) -> usize {
        self.objects[i].runs.load(SeqCst)
    }
}

/// Explores with at most `switches` forced switches in an execution.
fn check(switches: usize, f: impl Fn() + Sync + Send + 'static) {
    let mut model = loom::model::Builder::new();
    model.preemption_bound = Some(switches);
    model.max_branches = 20_000;
    model.check(f);
}

fn on_cpu<R: 'static>(
    world: &Arc<World>,
    cpu: usize,
    f: impl FnOnce(&World) -> R + 'static,
) -> thread::JoinHandle<R> {
    let world = world.clone();
    thread::spawn(move || {
        cpu::migrate(cpu);
        f(&world)
    })
}

/// Two readers, one of which ends its section on the other CPU.
#[test]
fn readers_are_waited_for() {
    check(3, || {
        let world = World::new(2);
        let still = on_cpu(&world, 0, |w| drop(w.enter()));
        let moving = on_cpu(&world, 1, |w| {
            let guard = w.enter();
            cpu::migrate(0);
            drop(guard);
        });
        cpu::migrate(1);
        world.publish(1);
        world.domain.synchronize();
        world.objects[0].poison();
        still.join().unwrap();
        moving.join().unwrap();
    });
}

/// The guard goes to another thread, which ends the section.
#[test]
fn a_guard_may_be_dropped_elsewhere() {
    check(3, || {
        let world = World::new(2);
        let reader = on_cpu(&world, 1, |w| {
            let world: *const World = w;
            // SAFETY: the spawner below joins the thread that drops the guard before the world goes.
            let guard = unsafe { &*world }.enter();
            let dropper = thread::spawn(move || drop(guard));
            dropper.join().unwrap();
        });
        world.publish(1);
        world.domain.synchronize();
        world.objects[0].poison();
        reader.join().unwrap();
    });
}

/// A section inside a section at another index: both are counted where they began.
#[test]
fn nested_sections() {
    check(3, || {
        let world = World::new(2);
        let reader = on_cpu(&world, 1, |w| {
            let outer = w.enter();
            let inner = w.enter();
            drop(outer);
            drop(inner);
        });
        world.publish(1);
        world.domain.synchronize();
        world.objects[0].poison();
        reader.join().unwrap();
    });
}

/// The kernel refuses a fence of a grace period, once: the thread that comes next repeats it. Of
/// the model's two fences either is refused, with readers that entered before, between and after.
#[test]
fn a_refused_fence_is_repeated() {
    for skipped in 0..2 {
        check(3, move || {
            let world = World::new(2);
            fault::refuse_fences(skipped, 1);
            let still = on_cpu(&world, 0, |w| drop(w.enter()));
            let moving = on_cpu(&world, 1, |w| {
                let guard = w.enter();
                cpu::migrate(0);
                drop(guard);
            });
            cpu::migrate(1);
            world.publish(1);
            world.domain.synchronize();
            world.objects[0].poison();
            still.join().unwrap();
            moving.join().unwrap();
        });
    }
}

/// A callback, and a thread that goes on with the grace period whose fence was refused to another
/// one.
#[test]
fn a_refused_fence_and_a_callback() {
    check(2, || {
        let world = World::new(2);
        fault::refuse_fences(0, 1);
        let reader = on_cpu(&world, 1, |w| {
            drop(w.enter());
            w.domain.advance();
        });
        world.publish(1);
        world.call(0);
        world.domain.barrier();
        assert_eq!(world.runs(0), 1);
        reader.join().unwrap();
    });
}

/// Two grace periods in a row, so that the index in use at first is in use again: a reader that is late by one
/// flip must not be missed (the reason why SRCU flips twice).
#[test]
fn a_straggler_of_two_grace_periods() {
    check(3, || {
        let world = World::new(3);
        let reader = on_cpu(&world, 1, |w| {
            drop(w.enter());
            let guard = w.enter();
            cpu::migrate(0);
            drop(guard);
        });
        for i in 0..2 {
            world.publish(i + 1);
            world.domain.synchronize();
            world.objects[i].poison();
        }
        reader.join().unwrap();
    });
}

/// Two updaters: each may find a grace period that the other began, which covers it or does not.
/// (Two switches, not three: two waiters that give way to each other may do so for as long as they like before the
/// reader gets its turn, and the model follows every such run.)
#[test]
fn a_grace_period_that_another_began() {
    check(2, || {
        let world = World::new(2);
        let reader = on_cpu(&world, 1, |w| drop(w.enter()));
        let other = on_cpu(&world, 0, |w| w.domain.synchronize());
        world.publish(1);
        world.domain.synchronize();
        world.objects[0].poison();
        reader.join().unwrap();
        other.join().unwrap();
    });
}

/// The end of a section is seen by one thread, and acted on by another that only hears of it.
#[test]
fn a_grace_period_that_another_ended() {
    check(2, || {
        let world = World::new(2);
        let guard = world.domain.read();
        let updater = on_cpu(&world, 1, |w| {
            w.publish(1);
            w.domain.synchronize();
            w.objects[0].poison();
        });
        let helper = on_cpu(&world, 0, |w| {
            w.domain.poll();
            w.domain.poll();
        });
        // SAFETY: loom finds out whether somebody writes meanwhile.
        let value = world.objects[0].value.with(|v| unsafe { *v });
        assert_ne!(value, POISON, "poisoned before its grace period was over");
        drop(guard);
        updater.join().unwrap();
        helper.join().unwrap();
    });
}

/// A polled grace period ends only after the sections that were open; pollers on both sides.
#[test]
fn polled_grace_periods() {
    check(3, || {
        let world = World::new(2);
        let reader = on_cpu(&world, 1, |w| drop(w.enter()));
        let other = on_cpu(&world, 0, |w| {
            w.domain.start_poll_synchronize();
            w.domain.poll();
        });
        world.publish(1);
        let seq = world.domain.start_poll_synchronize();
        for _ in 0..3 {
            world.domain.poll();
        }
        if world.domain.poll_state_synchronize(seq) {
            world.objects[0].poison();
        }
        reader.join().unwrap();
        other.join().unwrap();
        // Nobody is inside and nobody holds the lock: one poll ends what is on, another what is asked for.
        while !world.domain.poll_state_synchronize(seq) {
            world.domain.poll();
        }
    });
}

/// A callback queued while another thread moves grace periods on, and a reader that may still see its object.
#[test]
fn a_callback_runs_after_its_grace_period() {
    check(3, || {
        let world = World::new(2);
        let reader = on_cpu(&world, 1, |w| drop(w.enter()));
        let other = on_cpu(&world, 0, |w| {
            w.domain.synchronize();
            w.domain.synchronize();
        });
        cpu::migrate(1);
        world.publish(1);
        world.call(0);
        reader.join().unwrap();
        other.join().unwrap();
        while world.domain.poll() {}
        assert_eq!(world.runs(0), 1);
    });
}

/// One head for two objects, as much as a batch: neither object ends early.
#[test]
fn many_objects_behind_one_head() {
    #[repr(C)]
    struct Pair {
        head: HeadOfMany,
        objects: *const Object,
    }
    unsafe fn run(head: NonNull<HeadOfMany>) {
        // SAFETY: the head is the first field of a pair whose world lives.
        let pair = unsafe { head.cast::<Pair>().as_ref() };
        for i in 0..2 {
            // SAFETY: as above: it names the first of two.
            unsafe {
                Object::callback(NonNull::new_unchecked(pair.objects.add(i).cast_mut()).cast())
            };
        }
    }
    unsafe fn count(_: NonNull<HeadOfMany>) -> u32 {
        2
    }
    static PAIR: Many = Many { run, count };
    check(3, || {
        let world = World::new(3);
        let reader = on_cpu(&world, 1, |w| drop(w.enter()));
        let pair = Pair { head: HeadOfMany::new(&PAIR), objects: world.objects.as_ptr() };
        world.publish(2);
        // SAFETY: queued once; it lives until the barrier is over.
        unsafe { world.domain.call_many(NonNull::from(&pair).cast()) };
        assert_eq!(world.domain.backlog(), 2);
        reader.join().unwrap();
        world.domain.barrier();
        assert_eq!((world.runs(0), world.runs(1), world.domain.backlog()), (1, 1, 0));
    });
}

/// Callbacks of two CPUs, full batches among them, and the barrier that waits for its own.
#[test]
fn a_barrier_waits_for_callbacks() {
    check(3, || {
        let world = World::new(5);
        let other = on_cpu(&world, 1, |w| {
            w.call(1);
            w.call(2);
            w.call(3);
        });
        world.call(0);
        world.domain.barrier();
        assert_eq!(world.runs(0), 1);
        other.join().unwrap();
        world.domain.barrier();
        assert!((0..4).all(|i| world.runs(i) == 1));
        assert_eq!(world.runs(4), 0);
    });
}

/// The barrier also waits for callbacks that another thread has taken and is running.
#[test]
fn a_barrier_waits_for_another_runner() {
    check(3, || {
        let world = World::new(2);
        world.call(0);
        let other = on_cpu(&world, 1, |w| {
            w.domain.poll();
            w.domain.poll();
            w.domain.poll();
        });
        world.domain.barrier();
        assert_eq!(world.runs(0), 1);
        // Not ordered after the callback unless the barrier does it.
        world.objects[0].value.with(|v| {
            // SAFETY: the callback is over.
            assert_eq!(unsafe { *v }, POISON)
        });
        other.join().unwrap();
    });
}

/// The end of a domain runs what is queued at whatever stage.
#[test]
fn the_end_runs_everything() {
    check(3, || {
        let objects: Vec<Object> = (0..3).map(Object::new).collect();
        let domain = Arc::new(Domain::new().unwrap());
        let call = |domain: &Domain, objects: &[Object], i: usize| {
            // SAFETY: objects outlive the domain.
            unsafe { domain.call(NonNull::from(&objects[i]).cast(), Object::callback) };
        };
        let (d, o) = (domain.clone(), objects.as_ptr() as usize);
        let other = thread::spawn(move || {
            cpu::migrate(1);
            // SAFETY: joined below, before the objects go.
            let o = unsafe { std::slice::from_raw_parts(o as *const Object, 3) };
            call(&d, o, 0);
            call(&d, o, 1);
            drop(d);
        });
        call(&domain, &objects, 2);
        domain.poll();
        other.join().unwrap();
        drop(domain);
        assert!(objects.iter().all(|o| o.runs.load(SeqCst) == 1));
    });
}

/// An object that readers of two domains see.
#[repr(C)]
struct SharedObject {
    object: Object,
    second: *const Domain,
}

/// Two domains, and an object that is hidden before it is freed.
struct TwoDomains {
    first: Pin<Box<Domain>>,
    second: Pin<Box<Domain>>,
    hidden: AtomicUsize,
    shared: SharedObject,
}

// SAFETY: the model watches every access to the cell inside; the domains live as long as this.
unsafe impl Send for TwoDomains {}
// SAFETY: as above.
unsafe impl Sync for TwoDomains {}

impl TwoDomains {
    fn new() -> Arc<Self> {
        let (first, second) = (Domain::new().unwrap(), Domain::new().unwrap());
        let shared = SharedObject { object: Object::new(0), second: &raw const *second };
        Arc::new(Self { first, second, hidden: AtomicUsize::new(0), shared })
    }

    fn look(&self, domain: &Domain) {
        let _guard = domain.read();
        if self.hidden.load(Relaxed) == 0 {
            // SAFETY: loom finds a concurrent write.
            let value = self.shared.object.value.with(|v| unsafe { *v });
            assert_ne!(value, POISON, "poisoned before both grace periods were over");
        }
    }

    /// The callback of the first domain, which hands the object to the second.
    unsafe fn hand_over(head: NonNull<Head>) {
        // SAFETY: the head is the first field of a shared object, which lives as long as its world,
        // as the second domain does; its first callback is running, so it is unqueued.
        unsafe {
            let second = &*head.cast::<SharedObject>().as_ref().second;
            second.call(head, Object::callback);
        }
    }

    /// Hides the object, and frees it by way of `run`, a callback of the first domain.
    fn replace(&self, run: unsafe fn(NonNull<Head>)) {
        self.hidden.store(1, Relaxed);
        // SAFETY: queued once, and lives as long as the world.
        unsafe { self.first.call(NonNull::from(&self.shared).cast(), run) };
        self.first.barrier();
    }
}

/// The credentials of a process: a reader of either domain keeps what is freed by both in a row.
#[test]
fn two_domains_in_a_row() {
    check(2, || {
        let world = TwoDomains::new();
        let readers = [0, 1].map(|cpu| {
            let world = world.clone();
            thread::spawn(move || {
                cpu::migrate(cpu);
                world.look(if cpu == 0 { &world.first } else { &world.second });
            })
        });
        cpu::migrate(1);
        world.replace(TwoDomains::hand_over);
        world.second.barrier();
        assert_eq!(world.shared.object.runs.load(SeqCst), 1);
        readers.into_iter().for_each(|reader| reader.join().unwrap());
    });
}

/// The same with the first domain's grace period alone: the model finds the reader of the second.
#[test]
#[should_panic]
fn one_domain_is_not_enough_for_two() {
    check(2, || {
        let world = TwoDomains::new();
        let reader = {
            let world = world.clone();
            thread::spawn(move || {
                cpu::migrate(0);
                world.look(&world.second);
            })
        };
        cpu::migrate(1);
        world.replace(Object::callback);
        reader.join().unwrap();
    });
}
