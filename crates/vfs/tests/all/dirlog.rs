//! The log of a directory beside a sorted map.

use quietline_platform::fault;
use quietline_vfs::ramfs::dirlog::{DirLog, FIRST};
use std::collections::BTreeMap;

struct Sequence(u64);

impl Sequence {
    fn below(&mut self, n: usize) -> usize {
        self.0 = self.0.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (self.0 >> 33) as usize % n
    }
}

fn all(log: &DirLog<usize>) -> Vec<(u64, usize)> {
    let mut all = Vec::new();
    log.each_before(u64::MAX, |place, item| {
        all.push((place, item));
        true
    });
    all
}

/// Memory is in proportion to what is in it, whatever went through.
fn check_memory(log: &DirLog<usize>) {
    let bound = 72 * log.len() + 2048;
    assert!(log.memory() <= bound, "{} bytes for {} names", log.memory(), log.len());
}

#[test]
fn like_a_sorted_map() {
    quietline_testing::isolated!();
    for seed in 1..=3 {
        let (mut log, mut model) = (DirLog::new(), BTreeMap::new());
        let mut random = Sequence(seed);
        let mut next = FIRST;
        for step in 0..200_000 {
            // Grows and shrinks in long waves.
            let grows = (step / 20_000) % 2 == 0;
            let any = random.below(next as usize + 3) as u64;
            match random.below(10) {
                0..6 if grows || random.below(3) == 0 => {
                    assert_eq!(log.append(step), Ok(next));
                    model.insert(next, step);
                    next += 1;
                }
                0..6 => {
                    let place = model.range(any..).next().map_or(any, |(place, _)| *place);
                    assert_eq!(log.remove(place), model.remove(&place));
                }
                6 => assert_eq!(log.remove(any), model.remove(&any)),
                _ => {
                    assert_eq!(log.get(any), model.get(&any).copied());
                    let last = model.range(..any).next_back().map(|(place, item)| (*place, *item));
                    assert_eq!(log.last_before(any), last);
                    let mut some = Vec::new();
                    log.each_before(any, |place, item| {
                        some.push((place, item));
                        some.len() < 20
                    });
                    let expect: Vec<_> =
                        model.range(..any).rev().take(20).map(|(p, i)| (*p, *i)).collect();
                    assert_eq!(some, expect);
                }
            }
            assert_eq!((log.len(), log.is_empty()), (model.len(), model.is_empty()));
            if step % 997 == 0 {
                check_memory(&log);
                assert!(all(&log).into_iter().eq(model.iter().rev().map(|(p, i)| (*p, *i))));
            }
        }
    }
}

#[test]
fn millions_of_names() {
    quietline_testing::isolated!();
    let many = if cfg!(debug_assertions) { quietline_testing::scaled(400_000) } else { 2_000_000 };
    let many = many as usize;
    let mut log = DirLog::new();
    for item in 0..many {
        assert_eq!(log.append(item), Ok(item as u64 + FIRST));
    }
    assert_eq!(log.len(), many);
    assert!(log.memory() < 17 * many, "{} bytes", log.memory());
    // A reader in pieces, with names going away behind it and before it.
    let (mut place, mut seen, mut random) = (u64::MAX, 0, Sequence(3));
    while log.last_before(place).is_some() {
        let before = place;
        let mut left = 1000;
        log.each_before(before, |at, item| {
            assert_eq!(at, item as u64 + FIRST);
            assert!(at < place);
            place = at;
            seen += 1;
            left -= 1;
            left > 0
        });
        for _ in 0..500 {
            log.remove(FIRST + random.below(many) as u64);
        }
    }
    assert!(seen > many / 2, "{seen} were seen");
    check_memory(&log);
    // All but every hundredth, in an order that has no end in common with the log's.
    let step = 1_299_709;
    let mut at = 0;
    for _ in 0..many {
        at = (at + step) % many;
        if at % 100 != 0 {
            log.remove(at as u64 + FIRST);
        }
    }
    assert!(log.len() <= many / 100);
    check_memory(&log);
    for (place, _) in all(&log) {
        assert!(log.remove(place).is_some());
    }
    assert_eq!((log.len(), log.memory()), (0, 0));
    assert_eq!(log.append(1), Ok(many as u64 + FIRST), "no place is given twice");
}

/// Some names stay for ever, and others come and go beside them.
#[test]
fn churn_costs_no_memory() {
    quietline_testing::isolated!();
    for lag in [0, 1, 40, 1000] {
        let mut log = DirLog::new();
        let mut most = 0;
        for i in 0..300_000 {
            let place = log.append(i).unwrap();
            if place > FIRST + lag && !(place - lag).is_multiple_of(30_000) {
                assert!(log.remove(place - lag).is_some());
            }
            most = most.max(log.memory());
        }
        assert!(log.len() as u64 <= 12 + lag, "{} names", log.len());
        assert!(most <= 72 * (12 + lag as usize) + 3072, "{most} bytes for a lag of {lag}");
        assert_eq!(log.get(FIRST), Some(0));
        check_memory(&log);
    }
}

/// Every allocation fails once; then the same call works.
#[test]
fn memory_runs_out() {
    quietline_testing::isolated!();
    let (mut log, mut failures) = (DirLog::new(), 0);
    for item in 0..300_000 {
        fault::fail_nth(1);
        let first = log.append(item);
        fault::fail_nth(0);
        if first.is_err() {
            failures += 1;
            assert_eq!(log.len(), item);
            assert_eq!(log.get(FIRST + item as u64), None);
            // The next level's, where there is one.
            fault::fail_nth(2);
            let second = log.append(item);
            fault::fail_nth(0);
            if second.is_err() {
                failures += 1;
                assert_eq!(log.append(item), Ok(FIRST + item as u64));
            } else {
                assert_eq!(second, Ok(FIRST + item as u64));
            }
        } else {
            assert_eq!(first, Ok(FIRST + item as u64));
        }
    }
    assert!(failures > 4_000, "{failures} failures");
    assert!(all(&log).into_iter().eq((0..300_000).rev().map(|item| (item as u64 + FIRST, item))));
}
