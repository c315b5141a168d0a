//! Several who take from a counter, or add to one that is full.

use crate::sleepers::both::{Both, Side};
use crate::sleepers::call::{Outcome, THREADS};
use crate::sleepers::systems::{System, read};
use crate::sleepers::{count, rounds};
use crate::support::Random;

const MOST: u64 = u64::MAX - 1;
const IN: i16 = 1;

fn add(on: &dyn System, fd: i32, n: u64) -> Outcome {
    Outcome { result: on.write(fd, &n.to_ne_bytes()), bytes: Vec::new() }
}

/// What it is, which it is not after that; of a semaphore, one.
fn take(on: &dyn System, fd: i32) -> u64 {
    let mut bytes = [0; 8];
    assert_eq!(on.read(fd, &mut bytes), Ok(8));
    u64::from_ne_bytes(bytes)
}

/// The numbers that those got who have ended.
fn taken(side: &Side) -> Vec<Result<u64, i32>> {
    let number = |outcome: &Outcome| u64::from_ne_bytes(outcome.bytes[..].try_into().unwrap());
    let mut taken: Vec<_> = side
        .ended
        .iter()
        .flatten()
        .map(|outcome| outcome.result.map(|_| number(outcome)))
        .collect();
    taken.sort();
    taken
}

/// What is added goes to one, or of a semaphore by ones to as many as there are.
fn readers(both: &mut Both, dice: &mut Random, semaphore: bool) {
    let flags = if semaphore { libc::EFD_SEMAPHORE } else { 0 };
    let fds = both.each(|on| on.counter(flags));
    let readers = 2 + dice.below(THREADS - 1);
    for thread in 0..readers {
        both.begin(thread, fds, |on, fd| read(on, fd, 8, false));
    }
    assert_eq!(both.rest(|side| side.asleep().count()), readers);
    let (mut left, mut expected) = (readers, Vec::new());
    while left > 0 && dice.below(4) != 0 {
        let n = 1 + dice.below(left + 2) as u64;
        both.same(fds, |on, fd| add(on, fd, n));
        let woken = if semaphore { left.min(n as usize) } else { 1 };
        expected.extend(vec![Ok(if semaphore { 1 } else { n }); woken]);
        expected.sort();
        assert_eq!(both.rest(taken), expected, "seed {}", both.seed);
        left -= woken;
        // What there were none for.
        for _ in 0..if semaphore { n as usize - woken } else { 0 } {
            assert_eq!(both.same(fds, take), 1);
        }
        assert_eq!(both.same(fds, |on, fd| on.poll(fd, IN)), 0);
    }
    both.interrupt();
    both.over(taken);
    both.same(fds, |on, fd| on.close(fd));
}

/// Who adds to a full counter: what is taken is room for all who fit, whoever they are, and for nobody else.
fn writers(both: &mut Both, dice: &mut Random, semaphore: bool) {
    let flags = if semaphore { libc::EFD_SEMAPHORE } else { 0 };
    let fds = both.each(|on| on.counter(flags));
    both.same(fds, |on, fd| add(on, fd, MOST));
    let writers = 2 + dice.below(THREADS - 1);
    let numbers: Vec<u64> = (0..writers)
        .map(|_| match (semaphore, dice.below(3)) {
            (true, n) => 1 + n as u64 / 2,
            (false, 0) => MOST / 2 + 1,
            (false, 1) => MOST,
            (false, _) => 1 + dice.below(1000) as u64,
        })
        .collect();
    for (thread, &n) in numbers.iter().enumerate() {
        both.begin(thread, fds, move |on, fd| add(on, fd, n));
    }
    assert_eq!(both.rest(|side| side.asleep().count()), writers);
    let mut counts = [MOST; 2];
    while both.sides.iter().any(|side| side.asleep().next().is_some()) && dice.below(8) != 0 {
        for side in [0, 1] {
            // At rest: this is what was there, and with it there was no room for any who sleeps.
            let before: Vec<usize> = both.sides[side].asleep().collect();
            counts[side] -= take(&*both.sides[side].system, fds[side]);
            both.rest(|_| ());
            for thread in before {
                if both.sides[side].ended[thread].is_some() {
                    counts[side] += numbers[thread];
                }
            }
            let room = MOST - counts[side];
            let slept_on = both.sides[side].asleep().find(|thread| numbers[*thread] <= room);
            let name = ["the host", "quietline"][side];
            assert_eq!(
                slept_on, None,
                "seed {}: beside room for {room} on {name}: {numbers:?}",
                both.seed
            );
        }
        if semaphore {
            // Room for one is for who adds one: as many of each have gone.
            both.rest(|side| {
                let mut gone: Vec<_> = (0..writers)
                    .filter(|thread| side.ended[*thread].is_some())
                    .map(|t| numbers[t])
                    .collect();
                gone.sort();
                gone
            });
        }
        if counts.contains(&0) {
            break;
        }
    }
    both.interrupt();
    let ends = both.rest(|side| side.asleep().count());
    assert_eq!(ends, 0);
    for side in [0, 1] {
        let system = &both.sides[side].system;
        let rest = if counts[side] == 0 { 0 } else { take(&**system, fds[side]) };
        assert_eq!(
            rest,
            if semaphore { 1.min(counts[side]) } else { counts[side] },
            "seed {}",
            both.seed
        );
    }
    both.over(|_| ());
    both.same(fds, |on, fd| on.close(fd));
}

#[test]
fn who_takes() {
    quietline_testing::isolated!();
    let both = rounds(count(), |both, dice| {
        let semaphore = dice.below(2) == 0;
        readers(both, dice, semaphore);
    });
    both.assert_seldom_late();
}

#[test]
fn who_adds() {
    quietline_testing::isolated!();
    let both = rounds(count(), |both, dice| {
        let semaphore = dice.below(2) == 0;
        writers(both, dice, semaphore);
    });
    both.assert_seldom_late();
}
