//! Several who read one stream.

use crate::sleepers::both::{Both, Side};
use crate::sleepers::call::THREADS;
use crate::sleepers::systems::{connection, drain, read};
use crate::sleepers::{count, rounds};
use crate::support::Random;

/// Bytes that say where they were: each is the next one's, less one.
fn bytes(n: usize) -> Vec<u8> {
    (0..n).map(|at| (at % 251) as u8).collect()
}

fn is_in_one_piece(bytes: &[u8]) -> bool {
    bytes.windows(2).all(|two| two[1] == (two[0] + 1) % 251)
}

/// How often each byte comes.
fn histogram<'a>(bytes: impl IntoIterator<Item = &'a u8>) -> [u32; 256] {
    let mut found = [0; 256];
    bytes.into_iter().for_each(|byte| found[usize::from(*byte)] += 1);
    found
}

fn pick<T: Copy>(dice: &mut Random, of: &[T]) -> T {
    of[dice.below(of.len())]
}

/// Ends a round in which some may sleep in a read of the second end of `fds`: all of them, with what is not left to chance.
fn end(both: &mut Both, dice: &mut Random, fds: [[i32; 2]; 2]) {
    let first = [fds[0][0], fds[1][0]];
    let mut closed = false;
    match dice.below(3) {
        0 => assert_eq!(both.same(first, |on, fd| on.shutdown(fd, libc::SHUT_WR)), Ok(())),
        1 => {
            both.same(first, |on, fd| on.close(fd));
            closed = true;
        }
        _ => both.interrupt(),
    }
    both.over(|side| side.results());
    for (side, fds) in both.sides.iter().zip(fds) {
        fds.into_iter().skip(usize::from(closed)).for_each(|fd| side.system.close(fd));
    }
}

/// All ask for as much: each gets all he asks for, or what is left, and there are as many of both.
fn alike(both: &mut Both, dice: &mut Random, fds: [[i32; 2]; 2]) {
    let [from, to] = [0, 1].map(|end| fds.map(|fds| fds[end]));
    let (readers, len) = (2 + dice.below(THREADS - 1), pick(dice, &[1, 3, 10, 100, 5_000]));
    for thread in 0..readers {
        let by_recv = dice.below(2) == 0;
        both.begin(thread, to, move |on, fd| read(on, fd, len, by_recv));
    }
    assert_eq!(both.rest(|side| side.asleep().count()), readers);
    let (mut left, mut expected) = (readers, Vec::new());
    while left > 0 && dice.below(4) != 0 {
        // In one piece: whoever comes finds all that no other has taken.
        let n = 1 + dice.below((left + 1) * len);
        let message = bytes(n);
        assert_eq!(both.same(from, |on, fd| on.write(fd, &message)), Ok(n));
        let woken = left.min(n.div_ceil(len));
        let rest = n.saturating_sub(left * len);
        left -= woken;
        expected.extend((0..woken).map(|reader| Ok(len.min(n - reader * len))));
        expected.sort();
        assert_eq!(both.rest(|side| side.results()), expected, "seed {}", both.seed);
        let there = both.same(to, |on, fd| drain(on, fd, n));
        assert_eq!(there, message[n - rest..]);
    }
    let mine = both.sides.iter().flat_map(|side| side.ended.iter().flatten());
    assert!(mine.clone().all(|outcome| is_in_one_piece(&outcome.bytes)));
    end(both, dice, fds);
}

/// Each asks for another amount: what all get together is the same, and nobody sleeps beside a byte. With a low-water mark, who
/// has taken a part of what he waits for sleeps on with it.
fn unlike(both: &mut Both, dice: &mut Random, fds: [[i32; 2]; 2], low: i32, local: bool) {
    let [from, to] = [0, 1].map(|end| fds.map(|fds| fds[end]));
    let seed = both.seed;
    if low > 1 {
        assert_eq!(both.same(to, |on, fd| on.set(fd, libc::SO_RCVLOWAT, low)), Ok(()));
    }
    let readers = 2 + dice.below(THREADS - 1);
    let mut all = 0;
    for thread in 0..readers {
        let (len, by_recv) = (pick(dice, &[1, 2, 10, 49, 50, 51, 100, 700]), dice.below(2) == 0);
        all += len;
        both.begin(thread, to, move |on, fd| read(on, fd, len, by_recv));
    }
    assert_eq!(both.rest(|side| side.asleep().count()), readers);
    let n = 1 + dice.below(all + 10);
    let message = bytes(n);
    assert_eq!(both.same(from, |on, fd| on.write(fd, &message)), Ok(n));
    both.rest(|_| ());
    if low <= 1 {
        let sum = |side: &Side| side.results().iter().flatten().sum::<usize>();
        assert_eq!(both.rest(sum), n.min(all), "seed {seed}");
    }
    // (The host's TCP tells nobody of less than the mark.)
    if low <= 1 || local {
        for ((side, fd), name) in both.sides.iter().zip(to).zip(["the host", "quietline"]) {
            let (left, asleep) = (side.system.readable(fd).unwrap(), side.asleep().count());
            assert!(
                left == 0 || asleep == 0,
                "seed {seed}: {asleep} sleep beside {left} bytes on {name}"
            );
        }
    }
    assert_eq!(both.same(from, |on, fd| on.shutdown(fd, libc::SHUT_WR)), Ok(()));
    assert_eq!(both.rest(|side| side.asleep().count()), 0);
    for (side, fd) in both.sides.iter().zip(to) {
        let ended: Vec<_> = side.ended.iter().flatten().collect();
        assert!(
            ended.iter().all(|outcome| outcome.result.is_ok()),
            "seed {seed}: {:?}",
            side.results()
        );
        assert!(
            low > 1 || ended.iter().all(|outcome| is_in_one_piece(&outcome.bytes)),
            "seed {seed}"
        );
        let left = drain(&*side.system, fd, n);
        let got = ended.iter().flat_map(|outcome| &outcome.bytes).chain(&left);
        assert_eq!(histogram(got), histogram(&message), "seed {seed}: each byte once");
    }
    both.over(|_| ());
    for (side, fds) in both.sides.iter().zip(fds) {
        fds.into_iter().for_each(|fd| side.system.close(fd));
    }
}

#[test]
fn of_a_local_stream() {
    quietline_testing::isolated!();
    let both = rounds(count(), |both, dice| {
        let fds = both.each(|on| on.pair());
        match dice.below(4) {
            0 | 1 => alike(both, dice, fds),
            2 => unlike(both, dice, fds, 1, true),
            _ => unlike(both, dice, fds, 50, true),
        }
    });
    both.assert_seldom_late();
}

/// Packets take their time: so nothing is said of how often one is waited for.
#[test]
fn of_a_connection() {
    quietline_testing::isolated!();
    rounds(count() / 2, |both, dice| {
        let fds = both.each(connection);
        match dice.below(4) {
            0 | 1 => alike(both, dice, fds),
            2 => unlike(both, dice, fds, 1, false),
            _ => unlike(both, dice, fds, 50, false),
        }
    });
}

/// What a reader waits for is what it found when it began, whatever the option is then set to: the first of two, which was woken
/// alone, would sleep on, and the other beside the bytes. (A reader of the host's TCP is not told of less than the mark by then.)
#[test]
fn a_low_water_mark_that_comes_later_is_for_later_calls() {
    quietline_testing::isolated!();
    for by_recv in [false, true] {
        rounds(1, |both, _| {
            let fds = both.each(|on| on.pair());
            let [from, to] = [0, 1].map(|end| fds.map(|fds| fds[end]));
            for thread in [0, 1] {
                both.begin(thread, to, move |on, fd| read(on, fd, 100, by_recv));
                assert_eq!(both.rest(|side| side.asleep().count()), thread + 1);
            }
            assert_eq!(both.same(to, |on, fd| on.set(fd, libc::SO_RCVLOWAT, 50)), Ok(()));
            for woken in [1, 2] {
                assert_eq!(both.same(from, |on, fd| on.write(fd, &bytes(10))), Ok(10));
                assert_eq!(both.rest(|side| side.results()), vec![Ok(10); woken]);
            }
            both.over(|_| ());
            for (side, fds) in both.sides.iter().zip(fds) {
                fds.into_iter().for_each(|fd| side.system.close(fd));
            }
        });
    }
}
