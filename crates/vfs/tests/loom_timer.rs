//! Property 13 of timers, in every interleaving: none is missed by the thread that rings them, whatever it sleeps for, and who has cancelled one may end it.
//!
//! Timers, wheels and the thread are the library's own source, with its locks and wait queues. The clock stands still unless the thread
//! sleeps for less than a [`LONG`] time, which is then over; longer sleeps end only when somebody wakes the sleeper. So
//! a bell that is not heard leaves threads parked for ever, which the model reports as a deadlock.
//!
//! # Faults that were planted, and found
//!
//! `arm`: no ring; a ring before the timer is in the wheel; what the thread sleeps for looked at before that. `run`: that it looks not
//! said, or said after the look; the bell read after the look, or relaxed; the end looked at before the bell; who is due woken
//! when the wheel's lock was given back. `ring`: relaxed, the bell not changed, nobody woken. `start`: no second look under the lock
//! (`two_cpus`). `cancel`: the timer not taken out. `drop`: the end said after the bell has rung. (Which models find which was not looked at:
//! a deadlock ends the process.)
//!
//! # Limits
//!
//! The model is bounded: forced switches per execution are in each test; with two of them, `two_cpus` tries 97,000 orders.
#![cfg(loom)]
// As in the crate's `raw`; and what no model uses.
#![allow(unsafe_code, dead_code, unreachable_pub, missing_docs)]

extern crate quietline_platform as platform;
// To timers, this is the crate that clock and futex come from.
extern crate self as quietline_platform;

pub use platform::{AllocError, atomic, cell, cpu, heap, thread};

#[path = "../src/poll.rs"]
mod poll;

#[path = "../src/raw"]
mod raw {
    pub(crate) mod timer;
}

/// A clock that stands still.
pub mod clock {
    use std::cell::Cell;
    use std::time::Duration;

    thread_local! {
        /// (A model's threads are all on the test's thread.)
        static NOW: Cell<Duration> = const { Cell::new(Duration::ZERO) };
    }

    pub fn monotonic() -> Duration {
        NOW.get()
    }

    pub(crate) fn set(now: Duration) {
        NOW.set(now);
    }
}

/// Sleeping on a word.
pub mod futex {
    use crate::atomic::{AtomicU32, Ordering};
    use crate::{LONG, clock};
    use loom::sync::{Condvar, Mutex};
    use std::time::Duration;

    loom::lazy_static! {
        /// Where the thread sleeps: there is one, and one word.
        static ref SLEEPER: (Mutex<()>, Condvar) = (Mutex::new(()), Condvar::new());
    }

    pub fn wait(word: &AtomicU32, expect: u32, timeout: Option<Duration>) {
        let bed = SLEEPER.0.lock().unwrap();
        // Relaxed: under the lock, as the host looks.
        if word.load(Ordering::Relaxed) != expect {
            return;
        }
        match timeout.filter(|timeout| *timeout < LONG) {
            Some(timeout) => clock::set(clock::monotonic() + timeout),
            None => drop(SLEEPER.1.wait(bed).unwrap()),
        }
    }

    pub fn wake(_word: &AtomicU32, _n: u32) {
        let _bed = SLEEPER.0.lock().unwrap();
        SLEEPER.1.notify_one();
    }
}

use cell::UnsafeCell;
use core::pin::pin;
use core::time::Duration;
use quietline_sync::{Entry, Reply, Wait};
use raw::timer::{Timer, Timers};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

/// Nobody waits for the end of such a sleep.
const LONG: Duration = Duration::from_secs(1);
/// When models begin.
const START: Duration = Duration::from_secs(100);
/// Comes in a model, and does not.
const SOON: Duration = START.checked_add(Duration::from_micros(5)).unwrap();
const LATER: Duration = START.checked_add(Duration::from_micros(300)).unwrap();
const NEVER: Duration = START.checked_add(Duration::from_secs(1000)).unwrap();

/// A timer, and who has it.
struct Alarm {
    timers: Arc<Timers>,
    timer: Timer,
    time: Duration,
}

impl Alarm {
    fn new(timers: &Arc<Timers>, time: Duration) -> Box<Self> {
        Box::new(Self { timers: timers.clone(), timer: Timer::new(), time })
    }

    fn arm(&self) {
        // SAFETY: it is in a box, and cancelled when it ends; models arm once, or after it has rung.
        unsafe { self.timers.arm(&self.timer, self.time) }.unwrap();
    }

    /// Sleeps until its time has come.
    fn wait(&self) {
        let rung = || (clock::monotonic() >= self.time).then_some(());
        self.timer.queue.wait_until(&Wait::default(), rung).unwrap();
    }
}

impl Drop for Alarm {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            self.timers.cancel(&self.timer);
        }
    }
}

/// All orders with so many forced switches.
fn explore(switches: usize, orders: usize, f: impl Fn(Arc<Timers>) + Sync + Send + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = builder.preemption_bound.or(Some(switches));
    builder.max_branches = 50_000;
    let tried = Arc::new(AtomicUsize::new(0));
    let count = tried.clone();
    builder.check(move || {
        count.fetch_add(1, Relaxed);
        clock::set(START);
        f(Arc::new(Timers::new().unwrap()));
    });
    let tried = tried.load(Relaxed);
    println!("{tried} orders");
    assert!(tried >= orders, "only {tried} orders were tried");
}

/// The first timer, whose arming starts the thread.
#[test]
fn one_rings() {
    explore(3, 10, |timers| {
        let alarm = Alarm::new(&timers, SOON);
        alarm.arm();
        alarm.wait();
    });
}

/// One is armed while the thread looks at another, or sleeps for it, which would come only later.
#[test]
fn an_earlier_one() {
    explore(2, 10, |timers| {
        let never = Alarm::new(&timers, NEVER);
        never.arm();
        let alarm = Alarm::new(&timers, SOON);
        alarm.arm();
        alarm.wait();
    });
}

/// One is armed while the thread rings another, and once more after it has rung.
#[test]
fn one_after_the_other() {
    explore(2, 10, |timers| {
        let mut alarm = Alarm::new(&timers, SOON);
        alarm.arm();
        alarm.wait();
        timers.cancel(&alarm.timer);
        alarm.time = LATER;
        alarm.arm();
        alarm.wait();
    });
}

/// Two are armed on two CPUs, each by who waits for it; the thread is started once.
#[test]
fn two_cpus() {
    explore(1, 10, |timers| {
        let other = {
            let timers = timers.clone();
            thread::spawn(move || {
                cpu::migrate(1);
                let alarm = Alarm::new(&timers, SOON);
                alarm.arm();
                alarm.wait();
            })
        };
        let alarm = Alarm::new(&timers, LATER);
        alarm.arm();
        alarm.wait();
        other.join().unwrap();
    });
}

/// After a timer was cancelled nobody is being woken by it, and nobody will be.
#[test]
fn one_that_is_cancelled() {
    explore(2, 10, |timers| {
        struct Shared(UnsafeCell<u32>);
        // SAFETY: the cell is accessed as the protocol says, and the model finds out where that is not enough.
        unsafe impl Sync for Shared {}
        // SAFETY: as above.
        unsafe impl Send for Shared {}
        let alarm = Alarm::new(&timers, SOON);
        let woken = Arc::new(Shared(UnsafeCell::new(0)));
        let entry = {
            let woken = woken.clone();
            move |_| {
                // SAFETY: the claim under test: the thread alone wakes.
                woken.0.with_mut(|times| unsafe { *times += 1 });
                Reply::Woken
            }
        };
        let entry = pin!(Entry::new(&alarm.timer.queue, entry, false));
        entry.as_ref().add();
        alarm.arm();
        timers.cancel(&alarm.timer);
        // SAFETY: the claim under test: it is over.
        let times = woken.0.with_mut(|times| unsafe { *times });
        assert!(times <= 1);
        // (The thread's look at another, for which it looks at all.)
        let next = Alarm::new(&timers, LATER);
        next.arm();
        next.wait();
        // SAFETY: as above.
        assert_eq!(woken.0.with_mut(|times| unsafe { *times }), times);
        entry.as_ref().remove();
    });
}

/// Timers end while the thread looks, or sleeps with nothing to wait for.
#[test]
fn the_end() {
    explore(3, 10, |timers| {
        let alarm = Alarm::new(&timers, NEVER);
        alarm.arm();
        drop(alarm);
        assert!(Arc::into_inner(timers).is_some(), "it ends here");
    });
}
