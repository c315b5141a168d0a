//! Property 13 of a [`WaitQueue`], in every interleaving. A wake-up that is lost leaves a thread parked for ever, which the model reports
//! as a deadlock.
#![cfg(loom)]

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use quietline_platform::atomic::{AtomicBool, AtomicU32, Ordering};
use quietline_platform::cell::UnsafeCell;
use quietline_platform::{model, thread};
use quietline_sync::{Entry, Interrupt, Reply, SpinLock, Wait, WaitError, WaitQueue};

#[derive(Default)]
struct Gate {
    open: AtomicBool,
    queue: WaitQueue,
}

impl Gate {
    fn is_open(&self) -> Option<()> {
        self.open.load(Ordering::Relaxed).then_some(())
    }
}

/// Things to be taken, one by each waiter.
#[derive(Default)]
struct Tokens {
    left: AtomicU32,
    queue: WaitQueue,
}

impl Tokens {
    fn try_take(&self) -> Option<()> {
        let take = |left: u32| left.checked_sub(1);
        self.left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, take).is_ok().then_some(())
    }

    fn take(&self, timeout: Option<Duration>) -> Result<(), WaitError> {
        self.queue
            .wait_until(&Wait { exclusive: true, timeout, ..Wait::default() }, || self.try_take())
    }

    fn give(&self) {
        self.left.fetch_add(1, Ordering::SeqCst);
        self.queue.wake_exchanged(WaitQueue::ANY, 1);
    }
}

/// Three threads: with a bound on forced switches per execution the model comes to an end.
fn bounded(switches: usize, f: impl Fn() + Sync + Send + 'static) {
    let mut model = loom::model::Builder::new();
    model.preemption_bound = Some(switches);
    model.max_branches = 10_000;
    model.check(f);
}

/// The fence in `wake` with the fence after linking: a plain store of the condition is not missed.
#[test]
fn a_store_and_a_wake() {
    model(|| {
        let gate = Arc::new(Gate::default());
        let waiter = {
            let gate = gate.clone();
            thread::spawn(move || gate.queue.wait_until(&Wait::default(), || gate.is_open()))
        };
        gate.open.store(true, Ordering::Relaxed);
        gate.queue.wake_all();
        waiter.join().unwrap().unwrap();
    });
}

/// The same with an exchange and no fence.
#[test]
fn an_exchange_and_a_wake_after_it() {
    model(|| {
        let tokens = Arc::new(Tokens::default());
        let waiter = {
            let tokens = tokens.clone();
            thread::spawn(move || tokens.take(None))
        };
        tokens.give();
        waiter.join().unwrap().unwrap();
    });
}

/// The same with a condition under a lock; the model sees that what was written is read in order.
#[test]
fn a_lock_and_an_ordered_wake() {
    bounded(3, || {
        let state = Arc::new((SpinLock::new(false), WaitQueue::new()));
        let waiter = {
            let state = state.clone();
            thread::spawn(move || {
                let (open, queue) = &*state;
                queue.wait_until(&Wait::default(), || open.lock().then_some(()))
            })
        };
        let (open, queue) = &*state;
        *open.lock() = true;
        queue.wake_ordered(1, WaitQueue::ALL);
        waiter.join().unwrap().unwrap();
    });
}

/// Two exclusive waiters and two wake-ups for one each: each gets through, in whatever order the four come.
#[test]
fn exclusive_waiters_get_one_each() {
    bounded(2, || {
        let tokens = Arc::new(Tokens::default());
        let waiters: Vec<_> = (0..2)
            .map(|_| {
                let tokens = tokens.clone();
                thread::spawn(move || tokens.take(None))
            })
            .collect();
        tokens.give();
        tokens.give();
        for waiter in waiters {
            waiter.join().unwrap().unwrap();
        }
        assert_eq!(tokens.left.load(Ordering::Relaxed), 0);
    });
}

/// One wake-up for one, and one of the two waiters gives up: the other is not left asleep beside a token.
#[test]
fn a_waiter_that_gives_up_passes_the_wake_up_on() {
    bounded(2, || {
        let tokens = Arc::new(Tokens::default());
        let patient = {
            let tokens = tokens.clone();
            thread::spawn(move || tokens.take(None))
        };
        let hasty = {
            let tokens = tokens.clone();
            thread::spawn(move || tokens.take(Some(Duration::from_secs(1))))
        };
        tokens.give();
        if hasty.join().unwrap().is_ok() {
            tokens.give();
        }
        patient.join().unwrap().unwrap();
        assert_eq!(tokens.left.load(Ordering::Relaxed), 0);
    });
}

/// A waker and a waiter whose time is up at the same moment: the waker's use of the waiter's memory is over before
/// the waiter leaves, and a wake-up that was counted was received.
#[test]
fn the_time_is_up_during_a_wake_up() {
    model(|| {
        let tokens = Arc::new(Tokens::default());
        let waiter = {
            let tokens = tokens.clone();
            thread::spawn(move || tokens.take(Some(Duration::from_secs(1))))
        };
        tokens.left.fetch_add(1, Ordering::SeqCst);
        let woken = tokens.queue.wake_exchanged(WaitQueue::ANY, 1);
        let taken = waiter.join().unwrap().is_ok();
        assert!(taken || woken == 0, "a waiter that was woken finds the token");
        assert_eq!(tokens.left.load(Ordering::Relaxed), u32::from(!taken));
    });
}

/// An interrupt is not lost either, also beside a wake-up.
#[test]
fn an_interrupt() {
    bounded(3, || {
        let shared = Arc::new((Gate::default(), Interrupt::new()));
        let waiter = {
            let shared = shared.clone();
            thread::spawn(move || {
                let (gate, interrupt) = &*shared;
                let wait = Wait { interrupt: Some(interrupt), ..Wait::default() };
                gate.queue.wait_until(&wait, || gate.is_open())
            })
        };
        shared.1.raise();
        assert_eq!(waiter.join().unwrap(), Err(WaitError::Interrupted));
        assert!(shared.1.clear());
    });
}

/// An interrupted exclusive waiter beside one that waits on, and one wake-up.
#[test]
fn an_interrupted_waiter_passes_the_wake_up_on() {
    bounded(2, || {
        let shared = Arc::new((Tokens::default(), Interrupt::new()));
        let patient = {
            let shared = shared.clone();
            thread::spawn(move || shared.0.take(None))
        };
        let interrupted = {
            let shared = shared.clone();
            thread::spawn(move || {
                let (tokens, interrupt) = &*shared;
                let wait = Wait { exclusive: true, interrupt: Some(interrupt), ..Wait::default() };
                tokens.queue.wait_until(&wait, || tokens.try_take())
            })
        };
        shared.0.give();
        shared.1.raise();
        if interrupted.join().unwrap().is_ok() {
            shared.0.give();
        }
        patient.join().unwrap().unwrap();
    });
}

/// Removal during a wake-up: after `remove`, and when the entry is dropped, no callback runs. The model sees every
/// access to the cell.
#[test]
fn no_callback_after_removal() {
    model(|| {
        let queue = Arc::new(WaitQueue::new());
        let waker = {
            let queue = queue.clone();
            thread::spawn(move || queue.wake_all())
        };
        let calls = {
            let cell = Cell(UnsafeCell::new(0));
            let entry = pin!(Entry::new(&queue, cell, false));
            entry.as_ref().add();
            entry.as_ref().remove();
            // SAFETY: the entry is off the queue, so no callback runs.
            entry.callback().0.with(|calls| unsafe { *calls })
        };
        assert_eq!(waker.join().unwrap(), calls);
        assert_eq!(queue.wake_all(), 0);
    });
}

struct Cell(UnsafeCell<u32>);

// SAFETY: the callback is called under the queue's lock, and the test reads when it is no longer called; the model finds
// out if that is wrong.
unsafe impl Sync for Cell {}
// SAFETY: as above.
unsafe impl Send for Cell {}

impl quietline_sync::Callback for Cell {
    fn wake(&self, _key: u32) -> Reply {
        // SAFETY: as above.
        self.0.with_mut(|calls| unsafe { *calls += 1 });
        Reply::Woken
    }
}

/// Two callbacks' owners leave while a wake-up walks the list.
#[test]
fn entries_leave_while_the_list_is_walked() {
    bounded(2, || {
        let queue = Arc::new(WaitQueue::new());
        let leaver = |queue: &WaitQueue| {
            let entry = pin!(Entry::new(queue, Cell(UnsafeCell::new(0)), false));
            entry.as_ref().add();
        };
        let others: Vec<_> = (0..2)
            .map(|_| {
                let queue = queue.clone();
                thread::spawn(move || leaver(&queue))
            })
            .collect();
        queue.wake_all();
        for other in others {
            other.join().unwrap();
        }
        assert!(!queue.is_waited_on());
    });
}
