//! Several who write to one stream that is full.

use crate::sleepers::both::Both;
use crate::sleepers::call::{Outcome, THREADS};
use crate::sleepers::systems::{connection, drain};
use crate::sleepers::{count, rounds};
use crate::support::Random;

/// Threads write this many bytes each to the first end of `fds`: their number, so often.
fn begin(both: &mut Both, dice: &mut Random, fds: [i32; 2], writers: usize, len: usize) {
    for thread in 0..writers {
        let by_send = dice.below(2) == 0;
        both.begin(thread, fds, move |on, fd| {
            let bytes = vec![1 + thread as u8; len];
            let result = if by_send { on.send(fd, &bytes, 0) } else { on.write(fd, &bytes) };
            Outcome { result, bytes: Vec::new() }
        });
    }
}

/// Fills it with zeros: how many bytes.
fn fill(both: &mut Both, fds: [i32; 2], len: usize) -> usize {
    let mut full = 0;
    while let Ok(n) = both.same(fds, |on, fd| on.send(fd, &vec![0; len], libc::MSG_DONTWAIT)) {
        full += n;
    }
    full
}

/// As many find room as there is room for, whoever they are; and what they write arrives in one piece.
///
/// A message alone is more than what a writer is told of room at, a quarter of all. So nobody is told before all that was there has
/// been read, and no more than that is read. (On the host two who look at the same moment may both find the room for one: as many or more.)
fn one_after_the_other(both: &mut Both, dice: &mut Random) {
    let fds = both.each(|on| on.pair());
    let [from, to] = [0, 1].map(|end| fds.map(|fds| fds[end]));
    let room = [4_608, 9_000, 40_000][dice.below(3)];
    assert_eq!(both.same(from, |on, fd| on.set(fd, libc::SO_SNDBUF, room / 2)), Ok(()));
    let (least, most) = (room as usize / 4, room as usize / 2 - 64);
    let len = least + dice.below(most - least);
    let mut there = [fill(both, from, len); 2];
    let fit = there[0] / len;
    assert!(fit >= 2, "{fit}");
    let writers = 2 + dice.below(THREADS - 1);
    begin(both, dice, from, writers, len);
    assert_eq!(both.rest(|side| side.asleep().count()), writers);
    let mut got = [Vec::new(), Vec::new()];
    let mut asleep = [writers; 2];
    while asleep.iter().any(|asleep| *asleep > 0) && dice.below(5) != 0 {
        for side in [0, 1] {
            let bytes = drain(&*both.sides[side].system, to[side], there[side]);
            assert_eq!(bytes.len(), there[side], "seed {}", both.seed);
            got[side].extend(bytes);
        }
        both.rest(|_| ());
        for (side, name) in ["the host", "quietline"].into_iter().enumerate() {
            let results = both.sides[side].results();
            assert!(results.iter().all(|result| *result == Ok(len)), "{results:?}");
            let before = core::mem::replace(&mut asleep[side], writers - results.len());
            let (told, seed) = (before - asleep[side], both.seed);
            assert!(
                told >= before.min(fit),
                "seed {seed}: {told} of {before} found room for {fit} on {name}"
            );
            assert!(
                side == 0 || told == before.min(fit),
                "seed {seed}: {told} of {before} in room for {fit}"
            );
            there[side] = both.sides[side].system.readable(to[side]).unwrap() as usize;
        }
    }
    // The ends of those who sleep still. The first who learns of a loss is told so, the others that there is nobody.
    let (mut first, mut others, mut open) = (libc::EPIPE, libc::EPIPE, true);
    if asleep != [0; 2] {
        match dice.below(4) {
            0 => {
                both.same(to, |on, fd| on.close(fd));
                (first, open) = (libc::ECONNRESET, false);
            }
            1 => assert_eq!(both.same(to, |on, fd| on.shutdown(fd, libc::SHUT_RD)), Ok(())),
            2 => assert_eq!(both.same(from, |on, fd| on.shutdown(fd, libc::SHUT_WR)), Ok(())),
            _ => {
                both.interrupt();
                (first, others) = (libc::EINTR, libc::EINTR);
            }
        }
    }
    assert_eq!(both.rest(|side| side.asleep().count()), 0);
    for side in [0, 1] {
        let mut expected = vec![Ok(len); writers - asleep[side]];
        expected.extend((0..asleep[side]).map(|at| Err(if at == 0 { first } else { others })));
        expected.sort();
        assert_eq!(both.sides[side].results(), expected, "seed {}", both.seed);
    }
    if open {
        for side in [0, 1] {
            got[side].extend(drain(&*both.sides[side].system, to[side], 1 << 20));
            let mut messages: Vec<_> = got[side].chunks(len).collect();
            assert!(
                messages.iter().all(|message| message.iter().all(|byte| *byte == message[0])),
                "mixed"
            );
            messages.retain(|message| message[0] != 0);
            messages.sort();
            assert!(messages.windows(2).all(|two| two[0] != two[1]), "seed {}: twice", both.seed);
            assert_eq!(messages.len(), writers - asleep[side], "seed {}: each once", both.seed);
        }
        both.same(to, |on, fd| on.close(fd));
    }
    both.over(|_| ());
    both.same(from, |on, fd| on.close(fd));
}

#[test]
fn of_a_local_stream() {
    quietline_testing::isolated!();
    let both = rounds(count(), one_after_the_other);
    both.assert_seldom_late();
}

/// How much fits into a connection is another number here; how much goes through is not.
#[test]
fn of_a_connection() {
    quietline_testing::isolated!();
    rounds(count() / 5, |both, dice| {
        let fds = both.each(|on| {
            let fds = connection(on);
            on.set(fds[0], libc::SO_SNDBUF, 20_000).unwrap();
            on.set(fds[1], libc::SO_RCVBUF, 20_000).unwrap();
            fds
        });
        let mut full = [0; 2];
        for side in [0, 1] {
            while let Ok(n) =
                both.sides[side].system.send(fds[side][0], &vec![0; 10_000], libc::MSG_DONTWAIT)
            {
                full[side] += n;
            }
        }
        let (writers, len) = (2 + dice.below(THREADS - 1), 300_000 + dice.below(300_000));
        begin(both, dice, fds.map(|fds| fds[0]), writers, len);
        assert_eq!(both.rest(|side| side.asleep().count()), writers);
        for side in [0, 1] {
            let (mut found, mut buffer) = ([0; 1 + THREADS], vec![0; 100_000]);
            while found.iter().sum::<usize>() < full[side] + writers * len {
                let n = both.sides[side].system.recv(fds[side][1], &mut buffer, 0).unwrap();
                buffer[..n].iter().for_each(|byte| found[usize::from(*byte)] += 1);
            }
            assert_eq!(found[0], full[side]);
            assert_eq!(found[1..=writers], vec![len; writers], "seed {}", both.seed);
        }
        assert_eq!(both.over(|side| side.results()), vec![Ok(len); writers]);
        for (side, fds) in both.sides.iter().zip(fds) {
            fds.into_iter().for_each(|fd| side.system.close(fd));
        }
    });
}
