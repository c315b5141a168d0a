//! Local streams: a writer, a reader, a close. No byte is lost, and nobody sleeps on.
//!
//! # Faults that were planted
//!
//! Each is found by the tests that are named: a reader that does not tell of room (`room` without its wake-up:
//! `room_against_a_writer`);
//! the end looked for before the queue (`pull`: `writes_and_close_against_reads`, `half_close_against_reads`); a wake-up without
//! a fence where what has changed is looked at without the lock (`wake_all` as `wake_ordered`: `shutdown_against_a_writer`,
//! `a_lost_connection_against_a_reader`; `SO_SNDBUF` so: `more_room_against_a_writer`).

use crate::abi::*;
use crate::world::{Fd, World, bounded, spawn};
use rustix::io::Errno;

/// All that comes, until the end.
fn drain(end: &Fd) -> Vec<u8> {
    let (mut all, mut room) = (Vec::new(), [0; 3000]);
    loop {
        match end.receive(&mut room, 0).unwrap() {
            0 => return all,
            n => all.extend(&room[..n]),
        }
    }
}

/// A write beside a read that waits: it ends, with the byte.
#[test]
fn write_against_read() {
    bounded(4, 200, || {
        let [one, two] = World::new().pair(SOCK_STREAM);
        let reader = spawn(move || {
            let mut bytes = [0; 4];
            assert_eq!(two.receive(&mut bytes, 0), Ok(1));
            assert_eq!(bytes[0], 7);
        });
        assert_eq!(one.send(&[7], 0), Ok(1));
        reader.join().unwrap();
    });
}

/// Two writes, and an end, beside a reader: he gets both, in order, and the end.
#[test]
fn writes_and_close_against_reads() {
    bounded(3, 1400, || {
        let [one, two] = World::new().pair(SOCK_STREAM);
        let reader = spawn(move || assert_eq!(drain(&two), [7, 8]));
        assert_eq!(one.send(&[7], 0), Ok(1));
        assert_eq!(one.send(&[8], 0), Ok(1));
        drop(one);
        reader.join().unwrap();
    });
}

/// The same with a half close, and with an answer.
#[test]
fn half_close_against_reads() {
    bounded(3, 3900, || {
        let [one, two] = World::new().pair(SOCK_STREAM);
        let reader = spawn(move || {
            assert_eq!(drain(&two), [7]);
            assert_eq!(two.send(&[9], 0), Ok(1));
        });
        assert_eq!(one.send(&[7], 0), Ok(1));
        one.shutdown(SHUT_WR).unwrap();
        assert_eq!(drain(&one), [9]);
        reader.join().unwrap();
    });
}

/// Two read, each a byte, and both are woken. (With two forced switches the model did not end in ten minutes.)
#[test]
fn two_readers() {
    bounded(1, 16, || {
        let [one, two] = World::new().pair(SOCK_STREAM);
        let readers = [two.clone(), two].map(|two| {
            spawn(move || {
                let mut byte = [0];
                assert_eq!(two.receive(&mut byte, 0), Ok(1));
                byte[0]
            })
        });
        assert_eq!(one.send(&[3], 0), Ok(1));
        assert_eq!(one.send(&[4], 0), Ok(1));
        let sum: u8 = readers.into_iter().map(|reader| reader.join().unwrap()).sum();
        assert_eq!(sum, 7);
    });
}

/// Two read at once what lies in three long segments, which are copied when the lock is free: what each gets is one run.
#[test]
fn two_long_readers() {
    const PIECE: usize = 300;
    bounded(4, 12, || {
        let [one, two] = World::new().pair(SOCK_STREAM);
        for piece in 0..3 {
            let bytes: Vec<u8> = (0..PIECE).map(|at| ((piece * PIECE + at) / 10) as u8).collect();
            assert_eq!(one.send(&bytes, MSG_DONTWAIT), Ok(PIECE));
        }
        let [first, other] = [two.clone(), two].map(|two| {
            move || {
                let mut room = [0; 2 * PIECE];
                let n = two.receive(&mut room, MSG_DONTWAIT).unwrap_or(0);
                assert!(room[..n].windows(2).all(|next| next[1] - next[0] <= 1), "there is a hole");
                n
            }
        });
        let first = spawn(first);
        assert_eq!(other() + first.join().unwrap(), 3 * PIECE);
    });
}

/// A pair whose first end has no room left; what it has sent.
fn full(ty: i32) -> ([Fd; 2], Vec<u8>) {
    let [one, two] = World::new().pair(ty);
    one.option(SO_SNDBUF, 1);
    let mut sent = Vec::new();
    while let Ok(n) = one.send(&[sent.len() as u8; 2000], MSG_DONTWAIT) {
        sent.resize(sent.len() + n, sent.len() as u8);
    }
    assert!(!sent.is_empty());
    ([one, two], sent)
}

/// A writer that waits for room gets it from a reader.
#[test]
fn room_against_a_writer() {
    bounded(4, 200, || {
        let ([one, two], mut sent) = full(SOCK_STREAM);
        let writer = spawn(move || assert_eq!(one.send(&[9], 0), Ok(1)));
        let mut got = vec![0; sent.len()];
        let mut n = 0;
        while n < got.len() {
            n += two.receive(&mut got[n..], 0).unwrap();
        }
        writer.join().unwrap();
        let mut last = [0; 2];
        assert_eq!(two.receive(&mut last, MSG_DONTWAIT), Ok(1));
        got.push(last[0]);
        sent.push(9);
        assert!(got == sent);
    });
}

/// A writer that waits for room learns that the other end was closed.
#[test]
fn close_against_a_writer() {
    for ty in [SOCK_STREAM, SOCK_SEQPACKET] {
        bounded(3, 500, move || {
            let ([one, two], _) = full(ty);
            let writer = spawn(move || {
                // It was closed with bytes in it.
                let errno = one.send(&[9], 0).unwrap_err();
                assert!(matches!(errno, Errno::PIPE | Errno::CONNRESET), "{errno}");
            });
            drop(two);
            writer.join().unwrap();
        });
    }
}

/// Both ends are closed at once, with a byte in one.
#[test]
fn close_against_close() {
    bounded(3, 250, || {
        let world = World::new();
        let [one, two] = world.pair(SOCK_STREAM);
        assert_eq!(one.send(&[7], 0), Ok(1));
        let other = spawn(move || drop(two));
        drop(one);
        other.join().unwrap();
        assert_eq!(world.live(), 0);
    });
}

/// A writer that waits for room learns that somebody has shut down the socket that it writes to, or the other one.
#[test]
fn shutdown_against_a_writer() {
    for (own, how) in [(true, SHUT_WR), (false, SHUT_RD)] {
        bounded(3, 100, move || {
            let ([one, two], _) = full(SOCK_STREAM);
            let end = if own { one.clone() } else { two.clone() };
            let writer = spawn(move || assert_eq!(one.send(&[9], 0), Err(Errno::PIPE)));
            end.shutdown(how).unwrap();
            writer.join().unwrap();
        });
    }
}

/// A writer that waits for room gets it because his socket may send more.
#[test]
fn more_room_against_a_writer() {
    bounded(4, 70, || {
        let ([one, _two], _) = full(SOCK_STREAM);
        let other = one.clone();
        let writer = spawn(move || assert_eq!(one.send(&[9], 0), Ok(1)));
        other.option(SO_SNDBUF, 100_000);
        writer.join().unwrap();
    });
}

/// A reader that waits for datagrams learns that the other socket is connected to it no more, and has thrown away what it sent.
#[test]
fn a_lost_connection_against_a_reader() {
    bounded(3, 100, || {
        let [one, two] = World::new().pair(SOCK_DGRAM);
        assert_eq!(two.send(&[7], 0), Ok(1));
        let reader = spawn(move || assert_eq!(two.receive(&mut [0], 0), Err(Errno::CONNRESET)));
        one.connect(&[0; 2]).unwrap();
        reader.join().unwrap();
    });
}
