//! Locks on files: what no host is needed for.

use quietline_platform::fault;
use quietline_sync::{Interrupt, Shared};
use quietline_vfs::locks::*;
use rustix::io::Errno;
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;
use std::time::Duration;

const NOBODY_WAITS: bool = false;
const MAY_WAIT: bool = true;

#[derive(Default)]
struct Kernel {
    locks: FileLocks,
    waits: LockWaits,
}

impl Kernel {
    fn set(
        &self,
        owner: LockOwner,
        kind: Option<LockKind>,
        start: i64,
        end: i64,
    ) -> Result<(), Errno> {
        self.locks.set(&self.waits, owner, kind, LockRange { start, end }, NOBODY_WAITS)
    }

    fn held(&self) -> Vec<HeldLock> {
        let mut held = Vec::new();
        self.locks.for_each(|lock| held.push(lock));
        held
    }

    fn wait_for_sleepers(&self, sleepers: usize) {
        while self.locks.waiting() != sleepers {
            thread::yield_now();
        }
    }
}

const A: LockOwner = LockOwner::Process(1);
const B: LockOwner = LockOwner::Process(2);

#[test]
fn ranges() {
    quietline_testing::isolated!();
    let range =
        |l_start, l_len| LockRange::new(0, l_start, l_len).map(|range| (range.start, range.end));
    assert_eq!(range(5, 3), Ok((5, 7)));
    assert_eq!(range(5, 0), Ok((5, i64::MAX)));
    assert_eq!(range(5, -5), Ok((0, 4)));
    assert_eq!(range(5, -6), Err(Errno::INVAL));
    assert_eq!(range(-1, 3), Err(Errno::INVAL));
    assert_eq!(range(i64::MAX, 1), Ok((i64::MAX, i64::MAX)));
    assert_eq!(range(i64::MAX, 2), Err(Errno::OVERFLOW));
    assert_eq!(LockRange::new(1, i64::MAX, 1), Err(Errno::OVERFLOW));
    assert_eq!(LockRange::new(i64::MAX, i64::MIN, 1), Err(Errno::INVAL));
    assert_eq!((LockRange::ALL.l_len(), LockRange { start: 3, end: 3 }.l_len()), (0, 1));
}

#[test]
fn closing_drops_what_is_whose() {
    quietline_testing::isolated!();
    let kernel = Kernel::default();
    assert!(kernel.locks.is_unlocked());
    kernel.set(A, Some(LockKind::Read), 0, 9).unwrap();
    kernel.set(LockOwner::File(7), Some(LockKind::Read), 5, 6).unwrap();
    kernel.locks.flock(&kernel.waits, 7, LOCK_EX).unwrap();
    assert_eq!(kernel.locks.flock(&kernel.waits, 8, LOCK_SH | LOCK_NB), Err(Errno::AGAIN));
    assert_eq!(kernel.held().len(), 3);
    kernel.locks.process_closes(&kernel.waits, 2);
    assert_eq!(kernel.held().len(), 3, "another process");
    kernel.locks.process_closes(&kernel.waits, 1);
    assert_eq!(kernel.held().len(), 2);
    assert!(!kernel.locks.is_unlocked());
    kernel.locks.file_ends(&kernel.waits, 7);
    assert!(kernel.held().is_empty() && kernel.locks.is_unlocked());
}

#[test]
fn leases_are_refused() {
    quietline_testing::isolated!();
    assert_eq!(set_lease(), Err(Errno::INVAL));
    assert_eq!(get_lease(), i32::from(F_UNLCK));
}

/// A conversion that is not to be had has given up the old lock.
#[test]
fn a_flock_conversion_is_not_atomic() {
    quietline_testing::isolated!();
    let kernel = Kernel::default();
    let flock = |file, operation| kernel.locks.flock(&kernel.waits, file, operation | LOCK_NB);
    assert_eq!((flock(1, LOCK_SH), flock(2, LOCK_SH)), (Ok(()), Ok(())));
    assert_eq!(flock(1, LOCK_EX), Err(Errno::AGAIN));
    assert_eq!(kernel.held(), [HeldLock::Flock { file: 2, kind: LockKind::Read }]);
}

/// A deadlock that comes about when a lock changes hands, not when somebody begins to wait.
#[test]
fn a_deadlock_that_comes_later() {
    quietline_testing::isolated!();
    let kernel = Kernel::default();
    let wait = |owner, at| {
        let range = LockRange { start: at, end: at + 1 };
        kernel.locks.set(&kernel.waits, owner, Some(LockKind::Write), range, MAY_WAIT)
    };
    let third = LockOwner::Process(3);
    kernel.set(A, Some(LockKind::Write), 10, 11).unwrap();
    kernel.set(third, Some(LockKind::Write), 1, 1).unwrap();
    thread::scope(|scope| {
        let a = scope.spawn(|| wait(A, 0));
        kernel.wait_for_sleepers(1);
        // A waits for the third; B takes the other byte that A wants, and waits for A.
        kernel.set(B, Some(LockKind::Write), 0, 0).unwrap();
        let b = scope.spawn(|| wait(B, 10));
        kernel.wait_for_sleepers(2);
        kernel.set(third, None, 1, 1).unwrap();
        assert_eq!(a.join().unwrap(), Err(Errno::DEADLK));
        kernel.locks.process_closes(&kernel.waits, 1);
        assert_eq!(b.join().unwrap(), Ok(()));
    });
    assert_eq!(kernel.held().len(), 2);
}

/// The oldest waiter first, and those who can share together.
#[test]
fn waiters_get_it_in_order() {
    quietline_testing::isolated!();
    let kernel = Kernel::default();
    let turn = AtomicU32::new(0);
    kernel.set(A, Some(LockKind::Write), 0, 9).unwrap();
    thread::scope(|scope| {
        for n in 0..8 {
            let (kernel, turn) = (&kernel, &turn);
            scope.spawn(move || {
                let owner = LockOwner::File(n);
                kernel
                    .locks
                    .set(&kernel.waits, owner, Some(LockKind::Write), LockRange::ALL, MAY_WAIT)
                    .unwrap();
                assert_eq!(turn.fetch_add(1, Ordering::Relaxed), n as u32);
                kernel.set(owner, None, 0, i64::MAX).unwrap();
            });
            kernel.wait_for_sleepers(n as usize + 1);
        }
        kernel.set(A, None, 0, 9).unwrap();
    });
    assert_eq!(turn.into_inner(), 8);
    assert!(kernel.locks.is_unlocked());
}

/// One who stops waiting sets free those whom he held up.
#[test]
fn an_interrupted_waiter_is_out_of_the_way() {
    quietline_testing::isolated!();
    let kernel = Kernel::default();
    let interrupt = Shared::new(Interrupt::new()).unwrap();
    kernel.set(A, Some(LockKind::Read), 0, 9).unwrap();
    thread::scope(|scope| {
        let writer = scope.spawn(|| {
            let _entered = Interrupt::enter(&interrupt);
            kernel.locks.set(&kernel.waits, B, Some(LockKind::Write), LockRange::ALL, MAY_WAIT)
        });
        kernel.wait_for_sleepers(1);
        interrupt.raise();
        assert_eq!(writer.join().unwrap(), Err(Errno::INTR));
    });
    assert_eq!(kernel.locks.waiting(), 0);
    // Nothing of the wait is left: A may wait for B.
    kernel.set(B, Some(LockKind::Write), 20, 29).unwrap();
    interrupt.clear();
    interrupt.raise();
    let _entered = Interrupt::enter(&interrupt);
    let range = LockRange { start: 20, end: 20 };
    assert_eq!(
        kernel.locks.set(&kernel.waits, A, Some(LockKind::Read), range, MAY_WAIT),
        Err(Errno::INTR)
    );
}

/// Every allocation fails once: `ENOLCK`, and nothing has changed.
#[test]
fn without_memory() {
    quietline_testing::isolated!();
    let kernel = Kernel::default();
    let mut failures = 0;
    let mut insist = |change: &dyn Fn() -> Result<(), Errno>| {
        for nth in 1.. {
            let before = kernel.held();
            fault::fail_nth(nth);
            let result = change();
            let spared = fault::armed();
            fault::fail_nth(0);
            if spared {
                assert_eq!(result, Ok(()));
                break;
            }
            assert_eq!(result, Err(Errno::NOLCK));
            assert_eq!(kernel.held(), before);
            failures += 1;
        }
    };
    for n in 0..20 {
        insist(&|| kernel.set(A, Some(LockKind::Write), 10 * n, 10 * n + 5));
    }
    insist(&|| kernel.locks.flock(&kernel.waits, 1, LOCK_SH));
    insist(&|| kernel.set(A, None, 2, 3));
    assert!(failures >= 5, "{failures}");
    // To wait takes several; without one of them nobody is left in the queue.
    let interrupt = Shared::new(Interrupt::new()).unwrap();
    let _entered = Interrupt::enter(&interrupt);
    interrupt.raise();
    for nth in 1.. {
        fault::fail_nth(nth);
        let range = LockRange::ALL;
        let result = kernel.locks.set(&kernel.waits, B, Some(LockKind::Write), range, MAY_WAIT);
        let spared = fault::armed();
        fault::fail_nth(0);
        assert_eq!(kernel.locks.waiting(), 0);
        if spared {
            assert_eq!(result, Err(Errno::INTR));
            assert!(nth >= 4, "{nth}");
            break;
        }
        assert_eq!(result, Err(Errno::NOLCK));
    }
    // To close needs none.
    fault::fail_from(1);
    kernel.locks.process_closes(&kernel.waits, 1);
    kernel.locks.file_ends(&kernel.waits, 1);
    fault::fail_nth(0);
    assert!(kernel.locks.is_unlocked());
}

/// Threads that take, convert, wait for and give up all kinds of locks: nobody is forgotten, and no two hold what
/// excludes each other.
#[test]
fn stress() {
    quietline_testing::isolated!();
    const ROUNDS: u64 = 20_000;
    const BYTES: i64 = 2;
    let kernel = Kernel::default();
    // Writers of each byte, and the readers beside them in thousands.
    let users = [const { AtomicU32::new(0) }; BYTES as usize];
    thread::scope(|scope| {
        for n in 0..4u64 {
            let (kernel, users) = (&kernel, &users);
            scope.spawn(move || {
                let owner =
                    if n % 2 == 0 { LockOwner::Process(n as i32) } else { LockOwner::File(n) };
                let mut seed = n + 1;
                for _ in 0..ROUNDS {
                    seed = seed.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
                    let at = (seed >> 40) as i64 % BYTES;
                    let range = LockRange { start: at, end: at };
                    let kind = if seed >> 60 < 8 { LockKind::Write } else { LockKind::Read };
                    kernel
                        .locks
                        .set(&kernel.waits, owner, Some(kind), range, MAY_WAIT)
                        .expect("one at a time");
                    let mine = if kind == LockKind::Write { 1 } else { 1_000 };
                    let before = users[at as usize].fetch_add(mine, Ordering::Relaxed);
                    assert!(
                        before == 0 || (kind == LockKind::Read && before % 1_000 == 0),
                        "{before}"
                    );
                    if seed >> 50 & 7 == 0 {
                        thread::yield_now();
                    }
                    users[at as usize].fetch_sub(mine, Ordering::Relaxed);
                    kernel.locks.set(&kernel.waits, owner, None, range, NOBODY_WAITS).unwrap();
                }
            });
        }
        let watched = scope.spawn(|| {
            // Flocks beside them, which meet nobody.
            for n in 0..200 {
                kernel.locks.flock(&kernel.waits, n, LOCK_EX).unwrap();
                kernel.locks.flock(&kernel.waits, n, LOCK_UN).unwrap();
                thread::sleep(Duration::from_micros(50));
            }
        });
        watched.join().unwrap();
    });
    assert!(kernel.locks.is_unlocked() && kernel.locks.waiting() == 0);
}
