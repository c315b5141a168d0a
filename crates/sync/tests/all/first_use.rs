//! The first use of per-CPU words: by one thread without memory, by many threads at once, and
//! beside a fork.
#![cfg(not(loom))]

use quietline_platform::fault;
use quietline_platform::percpu::{LazyWords, allocated};
use quietline_sync::{Counter, IdAllocator};
use std::collections::BTreeSet;
use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

const THREADS: usize = 4;
const ROUNDS: usize = if cfg!(miri) { 3 } else { 2_000 };

/// Calls `f` with the number of a thread, in as many threads, which begin together. In every third
/// thread of every other round, the next allocation fails.
fn meet<R: Send>(round: usize, f: impl Fn(usize) -> R + Sync) -> Vec<R> {
    let barrier = Barrier::new(THREADS);
    let run = |thread: usize| {
        let fails = round % 2 == 1 && thread.is_multiple_of(3);
        barrier.wait();
        fault::fail_nth(u64::from(fails));
        let result = f(thread);
        fault::fail_nth(0);
        result
    };
    thread::scope(|scope| {
        let threads: Vec<_> = (0..THREADS).map(|n| scope.spawn(move || run(n))).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    })
}

#[test]
fn words_are_made_once() {
    quietline_testing::isolated!();
    let before = allocated();
    for round in 0..ROUNDS {
        let words = LazyWords::<2>::new();
        assert!(words.get().is_none() && words.ready().is_none());
        let made = meet(round, |thread| {
            let words = words.get_or_make()?;
            words.add(thread % 2, 1);
            Ok::<_, quietline_platform::AllocError>(words.word(0, 0).as_ptr().addr())
        });
        let made: Vec<_> = made.into_iter().flatten().collect();
        assert!(made.windows(2).all(|two| two[0] == two[1]), "the same words");
        let sum = words.get().map_or(0, |words| words.sum(0) + words.sum(1));
        assert_eq!(sum, made.len() as u64, "each addition");
    }
    assert_eq!(allocated(), before, "words that are dropped are free");
}

/// Property 1: no addition is lost.
#[test]
fn counters_count_from_the_first_addition() {
    for round in 0..ROUNDS {
        let counter = Counter::new().unwrap();
        // The words are made after the first few additions.
        (0..round % 6).for_each(|_| counter.inc());
        let added = meet(round, |thread| match thread {
            0 => counter.limited_add(i64::MAX, 5),
            1 => counter.limited_add(12, 2),
            _ => {
                counter.dec();
                true
            }
        });
        let expected = 5 * i64::from(added[0]) + 2 * i64::from(added[1]) - 2 + round as i64 % 6;
        assert_eq!(counter.sum(), expected, "{round}: {added:?}");
    }
}

/// Property 1, while there is no memory for the words, and afterwards.
#[test]
fn a_counter_counts_without_memory() {
    quietline_testing::isolated!();
    let counter = Counter::with_batch(8).unwrap();
    let before = allocated();
    counter.add(5);
    counter.sub(5);
    assert_eq!((counter.sum(), allocated()), (0, before), "the first few need no words");
    fault::fail_from(1);
    for n in 1..=100 {
        counter.inc();
        assert_eq!((counter.sum(), counter.read()), (n, n));
    }
    let added = (0..100).filter(|_| counter.limited_add(150, 1)).count();
    fault::fail_nth(0);
    assert_eq!((added, counter.sum(), allocated()), (50, 150, before));
    (0..100).for_each(|_| counter.inc());
    assert!(allocated() > before, "the next addition makes the words");
    assert_eq!(counter.sum(), 250);
}

/// Property 2: no id twice.
#[test]
fn ids_differ_from_the_first_one() {
    for round in 0..ROUNDS {
        let ids = IdAllocator::new().unwrap();
        let all: Vec<u32> = meet(round, |_| [ids.next(), ids.next(), ids.next()]).concat();
        let distinct: BTreeSet<_> = all.iter().collect();
        assert!(distinct.len() == all.len() && !all.contains(&0), "{round}: {all:?}");
    }
}

/// Property 2, while there is no memory for the words: no id is skipped either.
#[test]
fn ids_are_handed_out_without_memory() {
    let ids = IdAllocator::starting_at(8192).unwrap();
    fault::fail_from(1);
    let early: Vec<u32> = (0..1500).map(|_| ids.next()).collect();
    fault::fail_nth(0);
    let late: Vec<u32> = (0..1500).map(|_| ids.next()).collect();
    assert_eq!(early, (8192..8192 + 1500).collect::<Vec<_>>());
    let all: BTreeSet<u32> = early.into_iter().chain(late).collect();
    assert_eq!(all.len(), 3000);
}

unsafe extern "C" {
    fn fork() -> i32;
    fn waitpid(pid: i32, status: *mut i32, options: i32) -> i32;
    fn alarm(seconds: u32) -> u32;
    fn _exit(status: i32) -> !;
}

/// Forks while another thread uses `lazy` first, and calls `check` with it in the child, which
/// returns whether all is well. `make` makes it anew for each round.
fn fork_beside_first_use<T: Sync>(
    make: impl Fn() -> T,
    first_use: impl Fn(&T) + Sync,
    check: impl Fn(&T) -> bool,
) {
    for _ in 0..100 {
        let (lazy, stop, barrier) = (make(), AtomicBool::new(false), Barrier::new(2));
        thread::scope(|scope| {
            scope.spawn(|| {
                barrier.wait();
                while !stop.load(Ordering::Relaxed) {
                    first_use(&lazy);
                }
            });
            barrier.wait();
            // SAFETY: the child leaves without unwinding into the test harness.
            let status = unsafe {
                match fork() {
                    0 => {
                        alarm(30);
                        _exit(i32::from(!check(&lazy)))
                    }
                    child => {
                        let mut status = -1;
                        assert!(child > 0 && waitpid(child, &mut status, 0) == child);
                        status
                    }
                }
            };
            stop.store(true, Ordering::Relaxed);
            assert_eq!(status, 0, "the child");
        });
    }
}

#[test]
fn a_fork_beside_the_first_use_leaves_the_child_what_works() {
    quietline_testing::isolated!();
    fork_beside_first_use(
        || Counter::new().unwrap(),
        |counter| counter.inc(),
        |counter| {
            let before = counter.sum();
            (0..100).for_each(|_| counter.inc());
            counter.sum() == before + 100
        },
    );
    fork_beside_first_use(
        || IdAllocator::new().unwrap(),
        |ids| {
            ids.next();
        },
        |ids| (0..3000).map(|_| ids.next()).collect::<BTreeSet<_>>().len() == 3000,
    );
}
