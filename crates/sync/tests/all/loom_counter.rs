//! [`Counter`] and [`IdAllocator`] in every interleaving, with each per-CPU operation one indivisible step.
#![cfg(loom)]

use std::sync::Arc;

use quietline_platform::percpu::LazyWords;
use quietline_platform::{cpu, model, thread};
use quietline_sync::{Counter, IdAllocator};

fn on_cpu<T: 'static>(number: usize, f: impl FnOnce() -> T + 'static) -> thread::JoinHandle<T> {
    thread::spawn(move || {
        cpu::migrate(number);
        f()
    })
}

/// Property 1: the quiescent sum is exact, on one CPU and on two, across folds and migration.
#[test]
fn quiescent_sum_is_exact() {
    for other_cpu in 0..2 {
        model(move || {
            let counter = Arc::new(Counter::with_batch(2).unwrap());
            let other = {
                let counter = counter.clone();
                on_cpu(other_cpu, move || {
                    counter.inc();
                    counter.inc();
                })
            };
            counter.inc();
            cpu::migrate(1);
            counter.dec();
            other.join().unwrap();
            assert_eq!(counter.sum(), 2);
            assert!((counter.read() - 2).abs() < 2 * cpu::nr_cpus() as i64);
        });
    }
}

/// Property 1: the first additions of two CPUs, each of which makes the words, are both counted.
#[test]
fn first_additions_meet() {
    model(|| {
        let counter = Arc::new(Counter::with_batch(4).unwrap());
        let other = {
            let counter = counter.clone();
            on_cpu(1, move || counter.add(3))
        };
        counter.add(2);
        let sum = counter.sum();
        assert!(sum == 2 || sum == 5, "{sum}");
        other.join().unwrap();
        assert_eq!(counter.sum(), 5);
    });
}

/// The first use of words without a lock: two CPUs add to two words, and a third thread sums.
#[test]
fn first_use_of_words_meets() {
    model(|| {
        let words = Arc::new(LazyWords::<2>::new());
        let other = {
            let words = words.clone();
            on_cpu(1, move || words.get_or_make().unwrap().add(1, 3))
        };
        words.get_or_make().unwrap().add(0, 2);
        let reader = {
            let words = words.clone();
            thread::spawn(move || {
                let words = words.get().expect("made before this thread");
                [words.sum(0), words.sum(1)]
            })
        };
        let seen = reader.join().unwrap();
        assert!(seen == [2, 0] || seen == [2, 3], "{seen:?}");
        other.join().unwrap();
        let words = words.get().unwrap();
        assert_eq!([words.sum(0), words.sum(1)], [2, 3]);
    });
}

/// Property 1: a sum beside a fold sees it before or after, never by halves. (The main thread folds: the model
/// remembers only the last access to a word, and the folder's load would hide the reader's from it.)
#[test]
fn sum_beside_a_fold() {
    model(|| {
        let counter = Arc::new(Counter::with_batch(2).unwrap());
        counter.inc();
        let reader = {
            let counter = counter.clone();
            on_cpu(1, move || counter.sum())
        };
        counter.inc();
        let sum = reader.join().unwrap();
        assert!(sum == 1 || sum == 2, "{sum}");
    });
}

/// Property 1: near the limit exactly as many additions succeed as there is room for.
#[test]
fn limit_is_kept() {
    model(|| {
        let counter = Arc::new(Counter::with_batch(2).unwrap());
        counter.add(2);
        let other = {
            let counter = counter.clone();
            on_cpu(1, move || counter.limited_add(3, 1))
        };
        let here = counter.limited_add(3, 1);
        let there = other.join().unwrap();
        assert!(here != there);
        assert_eq!(counter.sum(), 3);
        assert!(!counter.limited_add(3, 1));
    });
}

/// Property 1: far from the limit, where no lock is taken, the overshoot is at most what was in flight: here one
/// thread's addition, decided while there was room for batch * CPUs more.
#[test]
fn overshoot_is_bounded() {
    bounded(|| {
        const LIMIT: i64 = 6;
        let counter = Arc::new(Counter::with_batch(2).unwrap());
        // Each reaches the batch, so that 1 is folded.
        counter.add(3);
        counter.add(-2);
        let other = {
            let counter = counter.clone();
            on_cpu(1, move || i64::from(counter.limited_add(LIMIT, 1)))
        };
        let here =
            [1, 4].into_iter().filter(|&amount| counter.limited_add(LIMIT, amount)).sum::<i64>();
        let sum = 1 + here + other.join().unwrap();
        assert_eq!(counter.sum(), sum);
        assert!(sum <= LIMIT + 1, "{sum}");
    });
}

/// Property 2: no number twice, none 0, across refills, on one CPU and on two, and across the wrap-around. (A batch
/// in the model is two ids.)
#[test]
fn ids_are_unique() {
    for (first, other_cpu) in [(1, 0), (2, 1), (u32::MAX, 0), (u32::MAX - 1, 1)] {
        bounded(move || {
            let ids = Arc::new(IdAllocator::starting_at(first).unwrap());
            let other = {
                let ids = ids.clone();
                on_cpu(other_cpu, move || [ids.next(), ids.next()])
            };
            let mine = ids.next();
            let [one, two] = other.join().unwrap();
            assert!(mine != 0 && one != 0 && two != 0);
            assert!(mine != one && mine != two && one != two);
        });
    }
}

/// Property 2: each CPU goes on with its own batch, wherever the thread was meanwhile, and skips nothing.
#[test]
fn ids_come_without_gaps() {
    model(|| {
        let ids = IdAllocator::starting_at(2).unwrap();
        let taken = [0, 1, 1, 0].map(|number| {
            cpu::migrate(number);
            ids.next()
        });
        assert_eq!(taken, [2, 4, 5, 3]);
    });
}

/// [`model`] with a bound on forced switches: two locks and an indivisible step per operation have too many orders
/// to see them all; two forced switches per execution show every race of two operations.
fn bounded(f: impl Fn() + Sync + Send + 'static) {
    let mut model = loom::model::Builder::new();
    model.preemption_bound = Some(2);
    model.check(f);
}
