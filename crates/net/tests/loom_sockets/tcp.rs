//! How connections end: the end of the stream after the last byte, a reset for what nobody has read, and both to whoever waits.
//!
//! # Faults that were planted
//!
//! Each is found by the test that is named: unread bytes that are not looked at (`hang_up`: `unread_bytes_reset`); an end that
//! looks for its peer's end before it has set its own (`send_fin`: `both_shut_down`); a reader who comes in while another copies outside
//! the lock (`receive_large`: `two_large_readers`).
//!
//! Not found, because nothing that is asserted here tells a reset that comes before the end of the stream from one that comes
//! after:
//! `hang_up` that lets go of the queue before it tells of the end.

use crate::abi::*;
use crate::world::{Fd, World, bounded, spawn};
use rustix::io::Errno;

/// A byte and the end of the stream, beside a reader.
#[test]
fn the_end_comes_after_the_bytes() {
    bounded(3, 800, || {
        let [client, server] = World::new().connection();
        let reader = spawn(move || {
            let mut byte = [0];
            assert_eq!(server.receive(&mut byte, 0), Ok(1));
            assert_eq!(byte, [7]);
            assert_eq!(server.receive(&mut byte, 0), Ok(0));
        });
        assert_eq!(client.send(&[7], 0), Ok(1));
        client.shutdown(SHUT_WR).unwrap();
        reader.join().unwrap();
    });
}

/// The same with a close; and the reader answers, whom a reset is told then, or nothing yet.
#[test]
fn close_comes_after_the_bytes() {
    bounded(3, 1400, || {
        let [client, server] = World::new().connection();
        let reader = spawn(move || {
            let mut byte = [0];
            assert_eq!(server.receive(&mut byte, 0), Ok(1));
            assert_eq!(byte, [7]);
            assert_eq!(server.receive(&mut byte, 0), Ok(0));
        });
        assert_eq!(client.send(&[7], 0), Ok(1));
        drop(client);
        reader.join().unwrap();
    });
}

/// An end is closed with bytes that it has not read: the peer, who waits, learns of it.
#[test]
fn unread_bytes_reset() {
    bounded(3, 1000, || {
        let [client, server] = World::new().connection();
        assert_eq!(client.send(&[7], 0), Ok(1));
        let reader = spawn(move || {
            assert_eq!(client.receive(&mut [0], 0), Err(Errno::CONNRESET));
            // Told once; then there is an end.
            assert_eq!(client.receive(&mut [0], 0), Ok(0));
        });
        drop(server);
        reader.join().unwrap();
    });
}

/// A send beside a close: the byte is unread, or came too late. The peer's next receive ends, one way or the other.
#[test]
fn send_against_close() {
    bounded(3, 1200, || {
        let [client, server] = World::new().connection();
        let sender = spawn(move || {
            let sent = client.send(&[7], 0);
            assert!(matches!(sent, Ok(1) | Err(Errno::PIPE | Errno::CONNRESET)), "{sent:?}");
            let ended = client.receive(&mut [0], 0);
            assert!(matches!(ended, Ok(0) | Err(Errno::CONNRESET | Errno::PIPE)), "{ended:?}");
        });
        drop(server);
        sender.join().unwrap();
    });
}

/// Both ends write no more, at once: both read the end, and the connection is over for both.
#[test]
fn both_shut_down() {
    bounded(3, 1200, || {
        let [client, server] = World::new().connection();
        let half = |end: &Fd| {
            end.shutdown(SHUT_WR).unwrap();
            assert_eq!(end.receive(&mut [0], 0), Ok(0));
        };
        let other = spawn(move || {
            half(&server);
            server
        });
        half(&client);
        let server = other.join().unwrap();
        for end in [client, server] {
            assert_eq!(end.shutdown(SHUT_RDWR), Err(Errno::NOTCONN), "it is over");
        }
    });
}

/// Two read at once what lies in three pieces, which are copied outside the lock: what each gets is one run.
#[test]
fn two_large_readers() {
    const PIECE: usize = 4100;
    bounded(2, 30, || {
        let [client, server] = World::new().connection();
        for piece in 0..3 {
            let bytes: Vec<u8> = (0..PIECE).map(|at| ((piece * PIECE + at) / 82) as u8).collect();
            assert_eq!(client.send(&bytes, MSG_DONTWAIT), Ok(PIECE));
        }
        let [one, other] = [server.clone(), server].map(|server| {
            move || {
                let mut room = vec![0; 3 * PIECE];
                let n = server.receive(&mut room, MSG_DONTWAIT).unwrap_or(0);
                assert!(
                    room[..n].windows(2).all(|two| two[1].wrapping_sub(two[0]) <= 1),
                    "there is a hole"
                );
                n
            }
        });
        let one = spawn(one);
        assert_eq!(other() + one.join().unwrap(), 3 * PIECE);
    });
}

/// A connection whose first end has no room left; how many bytes it has sent.
fn full() -> ([Fd; 2], usize) {
    let [client, server] = World::new().connection();
    client.option(SO_SNDBUF, 1);
    server.option(SO_RCVBUF, 1);
    let mut sent = 0;
    while let Ok(n) = client.send(&[1; 2000], MSG_DONTWAIT) {
        sent += n;
    }
    assert!(sent > 0);
    ([client, server], sent)
}

/// A writer that waits for room gets it from a reader.
#[test]
fn room_against_a_writer() {
    bounded(3, 3500, || {
        let ([client, server], sent) = full();
        let writer = spawn(move || assert_eq!(client.send(&[9], 0), Ok(1)));
        let (mut got, mut last) = (0, 0);
        while got < sent + 1 {
            let mut room = [0; 8000];
            let n = server.receive(&mut room, 0).unwrap();
            (got, last) = (got + n, room[n - 1]);
        }
        assert_eq!((got, last), (sent + 1, 9));
        writer.join().unwrap();
    });
}

/// A writer that waits for room gets it because his socket may send more, or the other one receive more.
#[test]
fn more_room_against_a_writer() {
    for (own, name) in [(true, SO_SNDBUF), (false, SO_RCVBUF)] {
        bounded(3, 40, move || {
            let ([client, server], _) = full();
            let end = if own { client.clone() } else { server.clone() };
            let writer = spawn(move || assert_eq!(client.send(&[9], 0), Ok(1)));
            end.option(name, 100_000);
            writer.join().unwrap();
        });
    }
}

/// A writer that waits for room learns that the other end was closed, with bytes that it has not read.
#[test]
fn close_against_a_writer() {
    bounded(2, 690, || {
        let ([client, server], _) = full();
        let writer = spawn(move || {
            let failed = client.send(&[9], 0);
            assert!(matches!(failed, Ok(1) | Err(Errno::CONNRESET | Errno::PIPE)), "{failed:?}");
        });
        drop(server);
        writer.join().unwrap();
    });
}

/// Both are closed at once: nothing is left, whoever comes second.
#[test]
fn close_against_close() {
    bounded(3, 290, || {
        let world = World::new();
        let [client, server] = world.connection();
        let other = spawn(move || drop(server));
        drop(client);
        other.join().unwrap();
        assert_eq!(world.live(), 0);
    });
}

/// A socket is disconnected and connected anew, and its queue fills again, while a reader of the
/// old connection tells the old peer of room: the new peer is told of its own.
#[test]
fn room_beside_a_reconnection() {
    fn fill(end: &Fd) {
        while end.send(&[1; 2000], MSG_DONTWAIT).is_ok() {}
    }

    bounded(2, 100, || {
        let world = World::new();
        let listener = world.listener(AF_INET, 2);
        listener.option(SO_SNDBUF, 1);
        let reader = world.socket(AF_INET, SOCK_STREAM);
        reader.option(SO_RCVBUF, 1);
        reader.connect(&listener.name()).unwrap();
        let first = listener.accept().unwrap();
        fill(&first);
        let again = reader.clone();
        let other = spawn(move || {
            again.connect(&[0; 16]).unwrap();
            again.connect(&listener.name()).unwrap();
            let second = listener.accept().unwrap();
            fill(&second);
            while again.receive(&mut [0; 8000], MSG_DONTWAIT).is_ok_and(|n| n > 0) {}
            second
        });
        let _ = reader.receive(&mut [0; 8000], MSG_DONTWAIT);
        let second = other.join().unwrap();
        while reader.receive(&mut [0; 8000], MSG_DONTWAIT).is_ok_and(|n| n > 0) {}
        assert!(second.is_writable(), "there is room");
        drop(first);
    });
}
