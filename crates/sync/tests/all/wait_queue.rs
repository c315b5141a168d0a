//! Property 13 of a [`WaitQueue`]: no wake-up is lost, exclusive waiters are woken one each, an end or a time-out leaves none
//! behind. One thread, then many.
#![cfg(not(loom))]

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use quietline_sync::{Entry, Interrupt, Reply, Shared, Wait, WaitError, WaitQueue};

/// Long enough for a thread to fall asleep.
const NAP: Duration = Duration::from_millis(30);
/// Longer than anything here takes.
const LONG: Duration = Duration::from_secs(60);

/// Waits until another thread has come so far.
fn until(reached: impl Fn() -> bool) {
    while !reached() {
        thread::yield_now();
    }
}

fn exclusive() -> Wait<'static> {
    Wait { exclusive: true, timeout: Some(LONG), ..Wait::default() }
}

#[test]
fn nobody_waits() {
    let queue = WaitQueue::new();
    assert_eq!(queue.wake_all(), 0);
    assert_eq!(queue.wake_exchanged(1, 1), 0);
    assert!(!queue.is_waited_on());
    assert_eq!(queue.wait_until(&Wait::default(), || Some(7)), Ok(7));
    assert_eq!(format!("{queue:?}"), "WaitQueue { waited_on: false }");
}

#[test]
fn a_wait_times_out_in_time() {
    let queue = WaitQueue::new();
    for timeout in [Duration::ZERO, Duration::from_micros(300), Duration::from_millis(20)] {
        let began = Instant::now();
        let wait = Wait { timeout: Some(timeout), ..Wait::default() };
        assert_eq!(queue.wait_until(&wait, || None::<()>), Err(WaitError::TimedOut));
        assert!(began.elapsed() >= timeout);
        assert!(began.elapsed() < timeout + Duration::from_secs(5));
        assert!(!queue.is_waited_on());
    }
}

/// What is true when the time is up is not lost.
#[test]
fn a_condition_that_is_true_in_the_end_counts() {
    let queue = WaitQueue::new();
    let mut looks = 0;
    let wait = Wait { timeout: Some(Duration::from_micros(100)), ..Wait::default() };
    let found = queue.wait_until(&wait, || {
        looks += 1;
        (looks == 3).then_some(looks)
    });
    assert_eq!(found, Ok(3), "asked at once, in the queue, and after the time was up");
}

/// Callbacks in the order and to the number that the rules say.
#[test]
fn keys_and_exclusive_entries() {
    let queue = WaitQueue::new();
    let order = Arc::new(std::sync::Mutex::new(Vec::new()));
    let entry = |name: u32, key: u32, exclusive: bool| {
        let order = order.clone();
        let callback = move |events: u32| {
            if events & key == 0 {
                return Reply::Ignored;
            }
            order.lock().unwrap().push(name);
            Reply::Woken
        };
        Box::pin(Entry::new(&queue, callback, exclusive))
    };
    let entries = [
        entry(1, 1, false),
        entry(2, 3, true),
        entry(3, 1, true),
        entry(4, 2, false),
        entry(5, 3, true),
    ];
    for entry in &entries {
        entry.as_ref().add();
        entry.as_ref().add();
    }
    let wake = |key, exclusive| {
        let woken = queue.wake(key, exclusive);
        let order = std::mem::take(&mut *order.lock().unwrap());
        assert_eq!(woken as usize, order.len());
        order
    };
    assert_eq!(wake(WaitQueue::ANY, WaitQueue::ALL), [4, 1, 2, 3, 5]);
    assert_eq!(wake(WaitQueue::ANY, 1), [4, 1, 2]);
    assert_eq!(wake(1, 2), [1, 2, 3]);
    assert_eq!(wake(2, 2), [4, 2, 5], "one that the key does not meet is not counted");
    assert_eq!(wake(4, 2), []);
    assert_eq!(wake(3, 0), [4, 1], "none of the exclusive ones");
    assert!(entries[2].as_ref().remove());
    assert!(!entries[2].as_ref().remove());
    assert_eq!(wake(1, WaitQueue::ALL), [1, 2, 5]);
    drop(entries);
    assert_eq!(queue.wake_all(), 0);
}

#[test]
fn a_callback_that_is_done_leaves() {
    let queue = WaitQueue::new();
    let entry = pin!(Entry::new(&queue, |_| Reply::Done, false));
    entry.as_ref().add();
    assert_eq!(queue.wake_all(), 1);
    assert_eq!(queue.wake_all(), 0);
    assert!(!entry.as_ref().remove());
    entry.as_ref().add();
    assert_eq!(queue.wake_all(), 1);
}

/// A leaked entry stays in its queue and is called; nothing dangles.
#[test]
fn a_leaked_entry() {
    let queue = WaitQueue::new();
    let calls = Arc::new(AtomicU32::new(0));
    {
        let calls = calls.clone();
        let callback = move |_| {
            calls.fetch_add(1, Ordering::Relaxed);
            Reply::Woken
        };
        let entry = Box::pin(Entry::new(&queue, callback, false));
        entry.as_ref().add();
        std::mem::forget(entry);
    }
    let moved = queue;
    assert_eq!(moved.wake_all(), 1);
    assert_eq!(calls.load(Ordering::Relaxed), 1);
}

/// A callback that panics: the lock is free, and those claimed before it are woken.
#[test]
fn a_callback_that_panics() {
    let queue = WaitQueue::new();
    let open = AtomicBool::new(false);
    thread::scope(|scope| {
        let panicking = pin!(Entry::new(&queue, |_| panic!("on purpose"), true));
        let sleeper = scope.spawn(|| {
            let wait = Wait { timeout: Some(LONG), ..Wait::default() };
            queue.wait_until(&wait, || open.load(Ordering::Relaxed).then_some(()))
        });
        thread::sleep(NAP);
        panicking.as_ref().add();
        open.store(true, Ordering::Relaxed);
        assert!(catch_unwind(AssertUnwindSafe(|| queue.wake_all())).is_err());
        assert_eq!(sleeper.join().unwrap(), Ok(()));
        assert!(panicking.as_ref().remove());
    });
}

/// Of sleepers each wake-up for one wakes one, the oldest first; no herd.
#[test]
fn one_wake_up_wakes_one() {
    const SLEEPERS: usize = 6;
    let queue = WaitQueue::new();
    let (tokens, looks) = (AtomicU32::new(0), AtomicU32::new(0));
    let order = std::sync::Mutex::new(Vec::new());
    thread::scope(|scope| {
        for n in 0..SLEEPERS {
            let (queue, tokens, looks, order) = (&queue, &tokens, &looks, &order);
            scope.spawn(move || {
                let taken = queue.wait_until(&exclusive(), || {
                    looks.fetch_add(1, Ordering::Relaxed);
                    tokens
                        .try_update(Ordering::AcqRel, Ordering::Relaxed, |left| left.checked_sub(1))
                        .ok()
                });
                taken.unwrap();
                order.lock().unwrap().push(n);
            });
            // Each looks before it enters the queue, and after.
            until(|| looks.load(Ordering::Relaxed) as usize >= 2 * (n + 1));
        }
        let before = looks.load(Ordering::Relaxed);
        assert_eq!(before as usize, 2 * SLEEPERS);
        for n in 0..SLEEPERS {
            tokens.fetch_add(1, Ordering::SeqCst);
            assert_eq!(queue.wake_exchanged(WaitQueue::ANY, 1), 1);
            while order.lock().unwrap().len() == n {
                thread::yield_now();
            }
            assert_eq!(looks.load(Ordering::Relaxed), before + n as u32 + 1, "the others slept on");
        }
    });
    assert!(order.into_inner().unwrap().is_sorted());
}

/// One wake-up for one: the newest of those who wait newest first, then those who came before, the oldest first. Who is not exclusive
/// is before all of them, also one who came later.
#[test]
fn the_newest_first() {
    let queue = WaitQueue::new();
    let all = pin!(Entry::new(&queue, |_| Reply::Woken, false));
    all.as_ref().add();
    let (asleep, woken) = (AtomicU32::new(0), std::sync::Mutex::new(Vec::new()));
    thread::scope(|scope| {
        for (name, newest_first) in [(0, false), (1, false), (2, true), (3, true)] {
            let (queue, asleep, woken) = (&queue, &asleep, &woken);
            scope.spawn(move || {
                let mut looks = 0;
                let wait = Wait { newest_first, ..exclusive() };
                queue.wait_until(&wait, || {
                    looks += 1;
                    // Looked at before it is in the queue, in it, and when it is woken.
                    asleep.fetch_add(u32::from(looks == 2), Ordering::SeqCst);
                    (looks == 3).then(|| woken.lock().unwrap().push(name))
                })
            });
            until(|| asleep.load(Ordering::SeqCst) == name + 1);
        }
        let later = pin!(Entry::new(&queue, |_| Reply::Woken, false));
        later.as_ref().add();
        for n in 1..=4 {
            assert_eq!(queue.wake(WaitQueue::ANY, 1), 3, "two callbacks and one sleeper");
            until(|| woken.lock().unwrap().len() == n);
        }
        assert_eq!(queue.wake(WaitQueue::ANY, 1), 2);
    });
    assert_eq!(*woken.lock().unwrap(), [3, 2, 0, 1]);
}

#[test]
fn sleepers_are_woken_by_their_keys() {
    let queue = WaitQueue::new();
    let events = AtomicU32::new(0);
    let looks = [const { AtomicU32::new(0) }; 2];
    thread::scope(|scope| {
        let sleepers = [1u32, 2].map(|key| {
            let (queue, events, looks) = (&queue, &events, &looks[key as usize - 1]);
            scope.spawn(move || {
                let wait = Wait { key, timeout: Some(LONG), ..Wait::default() };
                queue.wait_until(&wait, || {
                    looks.fetch_add(1, Ordering::Relaxed);
                    (events.load(Ordering::Relaxed) & key != 0).then_some(key)
                })
            })
        });
        until(|| looks.iter().all(|looks| looks.load(Ordering::Relaxed) >= 2));
        events.fetch_or(2, Ordering::SeqCst);
        assert_eq!(queue.wake_exchanged(2, WaitQueue::ALL), 1);
        let [first, second] = sleepers;
        assert_eq!(second.join().unwrap(), Ok(2));
        assert_eq!(looks[0].load(Ordering::Relaxed), 2, "not disturbed");
        events.fetch_or(1, Ordering::SeqCst);
        queue.wake_all();
        assert_eq!(first.join().unwrap(), Ok(1));
    });
}

#[test]
fn an_interrupt_ends_this_wait_and_the_next() {
    let (queue, interrupt) = (WaitQueue::new(), Interrupt::new());
    let wait = Wait { interrupt: Some(&interrupt), timeout: Some(LONG), ..Wait::default() };
    thread::scope(|scope| {
        let sleeper = scope.spawn(|| queue.wait_until(&wait, || None::<()>));
        thread::sleep(NAP);
        interrupt.raise();
        assert_eq!(sleeper.join().unwrap(), Err(WaitError::Interrupted));
    });
    assert_eq!(queue.wait_until(&wait, || None::<()>), Err(WaitError::Interrupted));
    assert_eq!(
        queue.wait_until(&wait, || Some(1)),
        Ok(1),
        "what does not sleep is not interrupted"
    );
    assert!(interrupt.is_pending() && interrupt.clear() && !interrupt.clear());
    let soon = Wait { timeout: Some(Duration::from_millis(1)), ..wait };
    assert_eq!(queue.wait_until(&soon, || None::<()>), Err(WaitError::TimedOut));
}

/// A closure that panics after its wake-up: the wake-up goes to the next.
#[test]
fn a_panic_passes_the_wake_up_on() {
    let queue = WaitQueue::new();
    let tokens = AtomicU32::new(0);
    let take =
        || tokens.try_update(Ordering::AcqRel, Ordering::Relaxed, |left| left.checked_sub(1)).ok();
    let looks = AtomicU32::new(0);
    thread::scope(|scope| {
        let panicking = scope.spawn(|| {
            catch_unwind(AssertUnwindSafe(|| {
                queue.wait_until(&exclusive(), || {
                    assert!(looks.fetch_add(1, Ordering::Relaxed) < 2, "on purpose");
                    None::<()>
                })
            }))
        });
        // It has looked twice: it is in the queue, before the other.
        until(|| looks.load(Ordering::Relaxed) == 2);
        let patient = scope.spawn(|| queue.wait_until(&exclusive(), take));
        thread::sleep(NAP);
        tokens.fetch_add(1, Ordering::SeqCst);
        assert_eq!(queue.wake_exchanged(WaitQueue::ANY, 1), 1);
        assert!(panicking.join().unwrap().is_err());
        patient.join().unwrap().unwrap();
    });
}

/// Producers and consumers, some of which give up or are interrupted: every token is taken once, nobody sleeps beside
/// one.
#[test]
fn stress_tokens() {
    const ROUNDS: u32 = 20_000;
    const CONSUMERS: u32 = 4;
    let queue = WaitQueue::new();
    let tokens = AtomicU32::new(0);
    let taken = AtomicU64::new(0);
    let done = AtomicBool::new(false);
    let interrupt = Interrupt::new();
    let total = u64::from(2 * ROUNDS);
    thread::scope(|scope| {
        for n in 0..CONSUMERS {
            let (queue, tokens, taken, interrupt) = (&queue, &tokens, &taken, &interrupt);
            scope.spawn(move || {
                loop {
                    let wait = Wait {
                        // Some give up soon, some are interrupted, some wait until they are woken.
                        timeout: Some(if n == 0 { Duration::from_micros(20) } else { LONG }),
                        interrupt: (n == 1).then_some(interrupt),
                        exclusive: n != 3,
                        ..Wait::default()
                    };
                    let got = queue.wait_until(&wait, || {
                        if taken.load(Ordering::Relaxed) == total {
                            return Some(false);
                        }
                        let took = |left: u32| left.checked_sub(1);
                        tokens
                            .try_update(Ordering::AcqRel, Ordering::Relaxed, took)
                            .ok()
                            .map(|_| true)
                    });
                    match got {
                        Ok(true) => {
                            if taken.fetch_add(1, Ordering::SeqCst) + 1 == total {
                                queue.wake_all();
                            }
                        }
                        Ok(false) => break,
                        Err(WaitError::Interrupted) => {
                            interrupt.clear();
                        }
                        Err(WaitError::TimedOut) => assert_eq!(n, 0, "a wake-up was lost"),
                    }
                }
            });
        }
        let disturber = scope.spawn(|| {
            while !done.load(Ordering::Relaxed) {
                interrupt.raise();
                thread::sleep(Duration::from_micros(50));
            }
        });
        let producers = [0, 1].map(|_| {
            scope.spawn(|| {
                for round in 0..ROUNDS {
                    tokens.fetch_add(1, Ordering::SeqCst);
                    queue.wake_exchanged(WaitQueue::ANY, 1);
                    if round % 64 == 0 {
                        thread::yield_now();
                    }
                }
            })
        });
        for producer in producers {
            producer.join().unwrap();
        }
        done.store(true, Ordering::Relaxed);
        disturber.join().unwrap();
    });
    assert_eq!((taken.into_inner(), tokens.into_inner()), (total, 0));
    assert!(!queue.is_waited_on());
}

/// Two threads that wake each other with plain stores: each lost wake-up would end in a timeout.
#[test]
fn stress_ping_pong() {
    const ROUNDS: u32 = 50_000;
    let queues = [WaitQueue::new(), WaitQueue::new()];
    let words = [AtomicU32::new(0), AtomicU32::new(0)];
    let turn = |me: usize, round: u32| {
        words[1 - me].store(round, Ordering::Release);
        queues[1 - me].wake(WaitQueue::ANY, 1);
    };
    let wait = |me: usize, round: u32| {
        let arrived = || (words[me].load(Ordering::Acquire) >= round).then_some(());
        queues[me].wait_until(&exclusive(), arrived).expect("no wake-up is lost");
    };
    thread::scope(|scope| {
        scope.spawn(|| (1..=ROUNDS).for_each(|round| (wait(1, round), turn(1, round)).1));
        (1..=ROUNDS).for_each(|round| (turn(0, round), wait(0, round)).1);
    });
}

/// Entries come and go while others wake: callbacks run only between the two.
#[test]
fn stress_entries_come_and_go() {
    let rounds = quietline_testing::budget("QUIETLINE_STRESS_ROUNDS", 4000) as u32;
    let queue = WaitQueue::new();
    let done = AtomicBool::new(false);
    thread::scope(|scope| {
        let owners = [0, 1].map(|_| {
            scope.spawn(|| {
                for round in 0..rounds {
                    let inside = Arc::new(AtomicBool::new(true));
                    let callback = {
                        let inside = inside.clone();
                        move |_| {
                            assert!(inside.load(Ordering::Relaxed));
                            if round % 3 == 0 { Reply::Done } else { Reply::Woken }
                        }
                    };
                    let entry = pin!(Entry::new(&queue, callback, round % 2 == 0));
                    entry.as_ref().add();
                    if round % 5 == 0 {
                        thread::yield_now();
                    }
                    entry.as_ref().remove();
                    inside.store(false, Ordering::Relaxed);
                }
            })
        });
        let waker = scope.spawn(|| {
            while !done.load(Ordering::Relaxed) {
                queue.wake(WaitQueue::ANY, 2);
            }
        });
        owners.into_iter().for_each(|owner| owner.join().unwrap());
        done.store(true, Ordering::Relaxed);
        waker.join().unwrap();
    });
    assert!(!queue.is_waited_on());
}

/// How a wait for nothing ends.
fn interruptible(queue: &WaitQueue) -> WaitError {
    let wait = Wait { interruptible: true, timeout: Some(NAP), ..Wait::default() };
    queue.wait_until(&wait, || None::<()>).unwrap_err()
}

#[test]
fn a_thread_waits_with_what_it_has_entered() {
    let queue = WaitQueue::new();
    assert_eq!(interruptible(&queue), WaitError::TimedOut);
    let outer = Shared::new(Interrupt::new()).unwrap();
    let inner = Shared::new(Interrupt::new()).unwrap();
    let entered = Interrupt::enter(&outer);
    outer.raise();
    assert_eq!(interruptible(&queue), WaitError::Interrupted);
    {
        let _entered = Interrupt::enter(&inner);
        assert_eq!(interruptible(&queue), WaitError::TimedOut, "the outer one does not count now");
        inner.raise();
        assert_eq!(interruptible(&queue), WaitError::Interrupted);
        let wait = Wait { timeout: Some(NAP), ..Wait::default() };
        assert_eq!(
            queue.wait_until(&wait, || None::<()>),
            Err(WaitError::TimedOut),
            "not every wait"
        );
        let other = Interrupt::new();
        let wait = Wait {
            interrupt: Some(&other),
            interruptible: true,
            timeout: Some(NAP),
            ..Wait::default()
        };
        assert_eq!(
            queue.wait_until(&wait, || None::<()>),
            Err(WaitError::TimedOut),
            "the one that is named"
        );
        thread::scope(|scope| {
            scope.spawn(|| {
                assert_eq!(interruptible(&queue), WaitError::TimedOut, "another thread's")
            });
        });
    }
    assert!(outer.clear());
    assert_eq!(interruptible(&queue), WaitError::TimedOut);
    drop(entered);
    assert!(Interrupt::current().is_none());
}

/// Whatever is left out of order or for ever, the thread never waits with an interrupt that is gone.
#[test]
fn entered_and_left_out_of_order() {
    let new = || Shared::new(Interrupt::new()).unwrap();
    let (first, second) = (new(), new());
    let (a, b) = (Interrupt::enter(&first), Interrupt::enter(&second));
    drop(a);
    drop(first);
    drop(b);
    drop(second);
    assert_eq!(interruptible(&WaitQueue::new()), WaitError::TimedOut);
    let leaked = new();
    std::mem::forget(Interrupt::enter(&leaked));
    leaked.raise();
    drop(leaked);
    assert_eq!(interruptible(&WaitQueue::new()), WaitError::Interrupted);
}

#[test]
fn an_entry_settles() {
    let queue = WaitQueue::new();
    let inside = Arc::new(AtomicBool::new(false));
    let callback = {
        let inside = inside.clone();
        move |_| {
            inside.store(true, Ordering::Relaxed);
            thread::sleep(NAP);
            inside.store(false, Ordering::Relaxed);
            Reply::Woken
        }
    };
    let entry = pin!(Entry::new(&queue, callback, false));
    entry.as_ref().add();
    thread::scope(|scope| {
        scope.spawn(|| queue.wake_all());
        while !inside.load(Ordering::Relaxed) {
            thread::yield_now();
        }
        entry.as_ref().settle();
        assert!(!inside.load(Ordering::Relaxed));
    });
}
