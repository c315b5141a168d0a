//! The bookkeeping, and what it does to waits that somebody or nobody ends.

use super::*;
use crate::wait_queue::claimed::STEP;
use crate::wait_queue::waiter::{DISTURBED, LINKED};
use crate::{Wait, WaitError, WaitQueue};
use core::ffi::{c_int, c_long};
use quietline_platform::atomic::AtomicBool;
use std::time::Instant;

/// A CPU that there is not: every look is a spin.
const ELSEWHERE: u32 = NOBODY - 1;
/// Longer than anything here takes.
const LONG: Duration = Duration::from_secs(60);

fn woken_on(waker: u32) -> Patience {
    Patience { waker, ..Patience::new() }
}

fn nothing_for(timeout: Duration) {
    let wait = Wait { timeout: Some(timeout), ..Wait::default() };
    assert_eq!(WaitQueue::new().wait_until(&wait, || None::<()>), Err(WaitError::TimedOut));
}

/// A waiter whose word says this.
fn waiter(word: u32) -> Waiter {
    let waiter = Waiter::new(&Wait::default());
    waiter.word.store(word, Ordering::Relaxed);
    waiter
}

/// CPU time of the calling thread.
fn cpu_time() -> Duration {
    #[repr(C)]
    struct Timespec {
        seconds: c_long,
        nanoseconds: c_long,
    }
    unsafe extern "C" {
        fn clock_gettime(clock: c_int, time: *mut Timespec) -> c_int;
    }
    const CLOCK_THREAD_CPUTIME_ID: c_int = 3;
    let mut time = Timespec { seconds: 0, nanoseconds: 0 };
    // SAFETY: the C library's function, with a place to write to.
    assert_eq!(unsafe { clock_gettime(CLOCK_THREAD_CPUTIME_ID, &mut time) }, 0);
    Duration::new(time.seconds as u64, time.nanoseconds as u32)
}

#[test]
fn it_looks_where_the_waker_was() {
    let mut patience = Patience::new();
    assert_eq!(patience.look(0), None, "nobody has come yet");
    patience.waker = 3;
    assert_eq!(patience.look(3), Some(Look::Yield));
    assert_eq!(patience.look(2), Some(Look::Spin));
}

#[test]
fn misses_are_followed_by_waits_without_a_look() {
    let mut patience = woken_on(1);
    for skipped in [0, 2, 6, 14, 30, 62, 126, 126, 126] {
        assert_eq!(patience.look(0), Some(Look::Spin));
        patience.miss();
        for left in (0..skipped).rev() {
            assert_eq!(patience.look(0), None);
            assert_eq!(patience.skip, left);
        }
    }
    assert_eq!((patience.misses, patience.skip), (MISSES, 0));
}

#[test]
fn a_hit_takes_one_miss_back() {
    let mut patience = woken_on(1);
    patience.hit();
    assert_eq!((patience.misses, patience.skip), (0, 0));
    for misses in [1, 2, 3] {
        patience.miss();
        assert_eq!(patience.misses, misses);
    }
    patience.skip = 0;
    patience.hit();
    assert_eq!((patience.misses, patience.skip), (2, 0), "the next wait looks");
    patience.miss();
    assert_eq!(patience.skip, 6, "as after the third in a row");
}

#[test]
fn a_cpu_that_comes_back_late_is_kept() {
    let mut patience = woken_on(1);
    let now = Duration::from_secs(5);
    assert!(patience.may_offer(Duration::ZERO));
    patience.back(now, LATE);
    assert!(patience.may_offer(now), "in time");
    patience.back(now, Duration::from_millis(3));
    assert!(!patience.may_offer(now + Duration::from_millis(299)));
    assert!(patience.may_offer(now + Duration::from_millis(300)));
    patience.back(now, Duration::MAX);
    assert!(!patience.may_offer(now * 1_000_000));
    // Not even looked at then; and a spin does not ask.
    let word = waiter(WOKEN).word;
    assert_eq!(offer(&word, &mut patience), Found::Unseen);
    assert_eq!(patience.look(0), Some(Look::Spin));
    assert_eq!(offer(&word, &mut woken_on(1)), Found::Woken);
}

#[test]
fn what_the_word_says() {
    for (word, found, misses) in [
        (LINKED, false, 1),
        (LINKED + STEP, false, 1),
        (WOKEN, true, 0),
        (WOKEN | DISTURBED, true, 0),
        (LINKED | DISTURBED, false, 0),
    ] {
        for waker in [ELSEWHERE, cpu::current() as u32] {
            PATIENCE.set(woken_on(waker));
            let until = Until::new(None);
            assert_eq!(look_again(&waiter(word), &until, None), found, "{word:#x}");
            assert_eq!(PATIENCE.get().misses, misses, "{word:#x}");
        }
    }
}

#[test]
fn no_look_when_the_wait_is_over() {
    let interrupt = Interrupt::new();
    let look = |timeout, interrupt| {
        PATIENCE.set(woken_on(ELSEWHERE));
        let found = look_again(&waiter(LINKED), &Until::new(timeout), interrupt);
        (found, PATIENCE.get().misses)
    };
    assert_eq!(look(Some(Duration::ZERO), None), (false, 0));
    assert_eq!(look(None, Some(&interrupt)), (false, 1));
    interrupt.raise();
    assert_eq!(look(None, Some(&interrupt)), (false, 0));
}

/// With a few milliseconds left the CPU is kept, or there is no telling when it comes back.
#[test]
fn the_cpu_is_offered_if_there_is_time() {
    let misses = |left| {
        loop {
            let here = cpu::current() as u32;
            PATIENCE.set(woken_on(here));
            assert!(!look_again(&waiter(LINKED), &Until::new(left), None));
            // Moved meanwhile: the waker was on another CPU then.
            if cpu::current() as u32 == here {
                return PATIENCE.get().misses;
            }
        }
    };
    assert_eq!(misses(Some(ROOM - Duration::from_millis(1))), 0);
    assert_eq!(misses(Some(LONG)), 1);
    assert_eq!(misses(None), 1);
}

/// The shortest of many, as the machine may be busy.
#[test]
fn a_look_is_as_long_as_it_is_told() {
    let word = waiter(LINKED).word;
    for most in [Duration::from_nanos(200), SPIN] {
        let times = (0..300).map(|_| {
            let began = Instant::now();
            assert_eq!(spin(&word, most), Found::Nothing);
            began.elapsed()
        });
        let shortest = times.min().unwrap();
        assert!(
            shortest >= most && shortest < most + Duration::from_micros(20),
            "{most:?}: {shortest:?}"
        );
    }
}

/// Again the shortest; those that came too late to look are not counted.
#[test]
fn a_look_ends_with_the_time() {
    let time_of_a_look = |_| {
        PATIENCE.set(woken_on(ELSEWHERE));
        let began = Instant::now();
        assert!(!look_again(&waiter(LINKED), &Until::new(Some(Duration::from_micros(1))), None));
        let time = began.elapsed();
        (PATIENCE.get().misses == 1).then_some(time)
    };
    let shortest = (0..1_000).filter_map(time_of_a_look).min().expect("one of them looked");
    assert!(shortest < SPIN, "{shortest:?}");
}

/// The one look before it is all that a wait costs.
#[test]
fn a_wait_that_nobody_ends_sleeps() {
    for waker in [NOBODY, ELSEWHERE, cpu::current() as u32] {
        PATIENCE.set(woken_on(waker));
        let (began, before) = (Instant::now(), cpu_time());
        nothing_for(Duration::from_millis(50));
        let used = cpu_time() - before;
        assert!(began.elapsed() >= Duration::from_millis(50));
        assert!(used < Duration::from_millis(1), "{used:?} of the CPU");
    }
}

#[test]
fn a_thread_that_is_never_woken_soon_looks_seldom() {
    PATIENCE.set(woken_on(ELSEWHERE));
    let mut looks = 0;
    for _ in 0..300 {
        looks += u32::from(PATIENCE.get().skip == 0);
        nothing_for(Duration::from_millis(1));
    }
    // Before the waits 1, 2, 5, 12, 27, 58, 121 and 248; one whose time is up before it can look is tried again.
    assert!((5..=16).contains(&looks), "{looks}");
    assert!(PATIENCE.get().misses >= 5);
}

#[test]
fn a_waiter_learns_where_its_waker_was() {
    PATIENCE.set(Patience::new());
    let (queue, open, looks) = (WaitQueue::new(), AtomicBool::new(false), AtomicU32::new(0));
    std::thread::scope(|scope| {
        scope.spawn(|| {
            // Once before it enters the queue, and once after: then it has to be woken. ORDERING: Acquire pairs with the release
            // below.
            while looks.load(Ordering::Acquire) < 2 {
                thread::yield_now();
            }
            open.store(true, Ordering::Relaxed);
            queue.wake_all();
        });
        let wait = Wait { timeout: Some(LONG), ..Wait::default() };
        let look = || {
            let seen = open.load(Ordering::Relaxed).then_some(());
            // ORDERING: Release pairs with the acquire above: the look was before.
            looks.fetch_add(1, Ordering::Release);
            seen
        };
        queue.wait_until(&wait, look).unwrap();
    });
    assert!((PATIENCE.get().waker as usize) < cpu::nr_cpus());
}

/// Interrupts that come before, in and after a look: each ends its wait.
#[test]
fn stress_interrupts() {
    const ROUNDS: u32 = 500;
    let (interrupt, turn) = (Interrupt::new(), AtomicU32::new(0));
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for round in 1..=ROUNDS {
                // ORDERING: Acquire pairs with the release below: the interrupt of the round before is cleared.
                while turn.load(Ordering::Acquire) != round {
                    thread::yield_now();
                }
                (0..round % 16).for_each(|_| hint::spin_loop());
                interrupt.raise();
            }
        });
        for round in 1..=ROUNDS {
            let waker = if round % 2 == 0 { ELSEWHERE } else { cpu::current() as u32 };
            PATIENCE.set(woken_on(waker));
            // ORDERING: Release pairs with the acquire above.
            turn.store(round, Ordering::Release);
            let wait = Wait { interrupt: Some(&interrupt), timeout: Some(LONG), ..Wait::default() };
            assert_eq!(
                WaitQueue::new().wait_until(&wait, || None::<()>),
                Err(WaitError::Interrupted)
            );
            assert!(interrupt.clear());
        }
    });
}
