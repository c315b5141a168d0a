//! References to dentries in the ways of 2013: what both keep, and what the patch lost.

use quietline_history::dentry_count::{CountWay, Forest, Put};

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

const BOTH: [CountWay; 2] = [CountWay::DLock, CountWay::Cmpxchg];

#[test]
fn counts_and_ends() {
    for way in BOTH {
        let forest = Forest::new(way, 1).unwrap();
        forest.dget(0);
        forest.dget(0);
        assert_eq!(forest.count(0), 3);
        assert_eq!(forest.dput(0), Put::Used);
        assert_eq!(forest.dput(0), Put::Used);
        assert_eq!(forest.dput(0), Put::Kept, "{way:?}: hashed");
        forest.revive(0);
        forest.d_drop(0);
        assert_eq!(forest.dput(0), Put::Killed, "{way:?}: unhashed");
        assert!(forest.is_dead(0));
    }
}

/// Property 6, first half: gets and puts without the lock beside those with it lose nothing, around the counts at which
/// the patch changes its mind.
#[test]
fn stress_no_reference_is_lost() {
    let rounds = quietline_testing::budget("QUIETLINE_STRESS_ROUNDS", 20_000);
    for way in BOTH {
        let forest = Forest::new(way, 1).unwrap();
        thread::scope(|s| {
            for hold in 1..=3 {
                let forest = &forest;
                s.spawn(move || {
                    for _ in 0..rounds {
                        (0..hold).for_each(|_| forest.dget(0));
                        (0..hold).for_each(|_| assert_eq!(forest.dput(0), Put::Used));
                    }
                });
            }
        });
        assert_eq!(forest.count(0), 1);
        assert_eq!(forest.dput(0), Put::Kept);
    }
}

/// Moves a child between two parents and kills the one it left, while another thread asks for its parent. How often the
/// answer was dead.
fn rename_storm(way: CountWay, rounds: u32) -> u64 {
    const CHILD: u32 = 2;
    let forest = Forest::new(way, 3).unwrap();
    let done = AtomicBool::new(false);
    forest.d_move(CHILD, 0);
    // Parent 0 is held by its child alone, parent 1 is nobody's yet.
    assert_eq!(forest.dput(0), Put::Used);
    forest.d_drop(1);
    assert_eq!(forest.dput(1), Put::Killed);
    thread::scope(|s| {
        s.spawn(|| {
            while !done.load(Ordering::Relaxed) {
                let parent = forest.dget_parent(CHILD);
                forest.dput(parent);
            }
        });
        for round in 0..rounds {
            let (from, to) = (round % 2, 1 - round % 2);
            while forest.count(to) != 0 {
                thread::yield_now();
            }
            forest.revive(to);
            forest.d_drop(from);
            forest.d_move(CHILD, to);
            forest.dput(to);
        }
        done.store(true, Ordering::Relaxed);
    });
    forest.dead_parents()
}

/// Property 6, second half: 3.10 looks again under the lock, so what it returns is alive.
#[test]
fn dget_parent_of_3_10_is_never_dead() {
    assert_eq!(rename_storm(CountWay::DLock, 100_000), 0);
}

/// The patch does not: whoever is moved and whose old parent is removed between its look and its reference finds the dead.
#[test]
fn dget_parent_of_the_patch_finds_the_dead() {
    const CHILD: u32 = 2;
    for (way, dead) in [(CountWay::DLock, 0), (CountWay::Cmpxchg, 1)] {
        let forest = Forest::new(way, 3).unwrap();
        forest.d_move(CHILD, 0);
        // Parent 0 is held by its child alone, and unhashed: it dies when the child leaves.
        assert_eq!(forest.dput(0), Put::Used);
        forest.d_drop(0);
        let parent = forest.dget_parent_with(CHILD, || forest.d_move(CHILD, 1));
        assert_eq!(forest.dead_parents(), dead, "{way:?}");
        assert_eq!(forest.is_dead(parent), dead == 1, "{way:?}");
        assert!(forest.is_dead(0));
    }
}
