//! Property 13 of local sockets, from several threads: many connections with checksums, a few at a time; no byte, no message and no
//! descriptor is lost. (All at once: `connections.rs`.)
//!
//! `QUIETLINE_SOCKETS_CONNECTIONS=N` makes N connections (default 10,000; 1,000 without optimisation), of 100 messages each. Who
//! has been left asleep is found by the time: a minute in which not one connection ends.

use crate::support::{Random, watched};
use quietline::abi::*;
use quietline::{Config, Kernel, Process, RecvMsg, SendMsg};
use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};

const MESSAGES: u64 = 100;
const CLIENTS: u64 = 3;

fn name() -> Vec<u8> {
    [&1u16.to_ne_bytes()[..], b"\0stress"].concat()
}

/// The bytes of a message: its length, and what is to be found there.
fn message(of: u64, number: u64, buffer: &mut Vec<u8>) {
    let seed = (of << 32 | number).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let len = 8 + (seed >> 40) as usize % 300;
    buffer.clear();
    buffer.extend((len as u64).to_le_bytes());
    buffer.extend((8..len).map(|at| (seed >> (at % 56)) as u8 ^ at as u8));
}

fn checksum(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, |sum, byte| {
        (sum ^ u64::from(*byte)).wrapping_mul(0x100_0000_01b3)
    })
}

fn client(p: &Process, of: u64) -> u64 {
    let fd = p.socket(AF_UNIX, SOCK_STREAM | O_ANYFD, 0).unwrap();
    p.connect(fd, &name()).unwrap();
    let (mut sum, mut bytes) = (0u64, Vec::new());
    for number in 0..MESSAGES {
        message(of, number, &mut bytes);
        assert_eq!(p.write(fd, &bytes), Ok(bytes.len()));
        sum = sum.wrapping_add(checksum(&bytes));
    }
    p.shutdown(fd, SHUT_WR).unwrap();
    let mut answer = [0; 8];
    assert_eq!(p.recv(fd, &mut answer, MSG_WAITALL), Ok(8));
    assert_eq!(u64::from_le_bytes(answer), sum, "the server has read something else");
    assert_eq!(p.read(fd, &mut answer), Ok(0));
    p.close(fd).unwrap();
    MESSAGES
}

fn serve(p: &Process, fd: i32) -> u64 {
    let (mut sum, mut messages) = (0u64, 0);
    let mut bytes = vec![0; 400];
    while p.recv(fd, &mut bytes[..8], MSG_WAITALL).unwrap() == 8 {
        let len = u64::from_le_bytes(*bytes.first_chunk().unwrap()) as usize;
        if len > 8 {
            assert_eq!(p.recv(fd, &mut bytes[8..len], MSG_WAITALL), Ok(len - 8));
        }
        sum = sum.wrapping_add(checksum(&bytes[..len]));
        messages += 1;
    }
    assert_eq!(p.write(fd, &sum.to_le_bytes()), Ok(8));
    p.close(fd).unwrap();
    messages
}

#[test]
fn connections_lose_nothing() {
    quietline_testing::isolated!();
    let connections = quietline_testing::budget(
        "QUIETLINE_SOCKETS_CONNECTIONS",
        if cfg!(debug_assertions) { 1_000 } else { 10_000 },
    );
    let kernel = Kernel::boot(Config::default()).unwrap();
    let p = &kernel.process().unwrap();
    let listener = p.socket(AF_UNIX, SOCK_STREAM, 0).unwrap();
    p.bind(listener, &name()).unwrap();
    p.listen(listener, 5).unwrap();
    let [next, sent, got, served] = &[const { AtomicU64::new(0) }; 4];
    watched(got, || {
        std::thread::scope(|scope| {
            for _ in 0..CLIENTS {
                scope.spawn(move || {
                    loop {
                        let of = next.fetch_add(1, Ordering::Relaxed);
                        if of >= connections {
                            break;
                        }
                        sent.fetch_add(client(p, of), Ordering::Relaxed);
                    }
                });
            }
            for _ in 0..2 {
                scope.spawn(move || {
                    while served.fetch_add(1, Ordering::Relaxed) < connections {
                        let (fd, _) = p.accept4(listener, O_ANYFD).unwrap();
                        got.fetch_add(serve(p, fd), Ordering::Relaxed);
                    }
                });
            }
        });
    });
    let (sent, got) = (sent.load(Ordering::Relaxed), got.load(Ordering::Relaxed));
    assert_eq!((sent, got), (connections * MESSAGES, connections * MESSAGES));
    p.close(listener).unwrap();
    assert_eq!(p.open_fds().unwrap(), Vec::<i32>::new());
    assert_eq!((kernel.nr_files(), kernel.nr_inodes()), (0, 0));
}

/// Three read one stream, whose segments are long and short, more of them than a read takes out at once: what one read gets is a piece
/// of the stream, with no gap that another has filled.
#[test]
fn a_read_is_a_piece_of_the_stream() {
    quietline_testing::isolated!();
    let words = quietline_testing::budget("QUIETLINE_SOCKETS_WORDS", 20_000_000);
    let words = u32::try_from(words).expect("QUIETLINE_SOCKETS_WORDS fits 32 bits");
    let kernel = Kernel::boot(Config::default()).unwrap();
    let p = &kernel.process().unwrap();
    let [writer, reader] = p.socketpair(AF_UNIX, SOCK_STREAM, 0).unwrap();
    let got = &AtomicU64::new(0);
    let mut pieces = watched(got, || {
        std::thread::scope(|scope| {
            let readers =
                [1, 2, 3].map(|seed| scope.spawn(move || read_pieces(p, reader, seed, got)));
            let mut dice = Random(3);
            let mut next = 0;
            while next < words {
                let len = [1, 60, 150, 1_100, 1_100, 1_100, 1_100, 5_000][dice.below(8)]
                    .min(words - next);
                let bytes: Vec<u8> = (next..next + len).flat_map(u32::to_ne_bytes).collect();
                assert_eq!(p.write(writer, &bytes), Ok(bytes.len()));
                next += len;
            }
            p.close(writer).unwrap();
            readers.into_iter().flat_map(|reader| reader.join().unwrap()).collect::<Vec<_>>()
        })
    });
    pieces.sort_unstable_by_key(|piece| piece.start);
    let end = pieces.iter().fold(0, |end, piece| {
        assert!(!piece.is_empty(), "what one read got has a gap: {piece:?}");
        assert_eq!(piece.start, end, "nothing is lost, and nothing comes twice");
        piece.end
    });
    assert_eq!(end, words);
    p.close(reader).unwrap();
}

/// Reads numbers until the stream ends: those of each read.
fn read_pieces(p: &Process, fd: i32, seed: u64, got: &AtomicU64) -> Vec<Range<u32>> {
    let mut dice = Random(seed);
    let (mut pieces, mut room) = (Vec::new(), vec![0; 160_000]);
    loop {
        let len = [40, 2_000, 65_536, 160_000][dice.below(4)];
        let n = if dice.below(2) == 0 {
            p.read(fd, &mut room[..len])
        } else {
            p.recv(fd, &mut room[..len], 0)
        };
        let (words, torn) = room[..n.unwrap()].as_chunks();
        let Some(first) = words.first().map(|word| u32::from_ne_bytes(*word)) else {
            return pieces;
        };
        let piece = first..first + words.len() as u32;
        let whole =
            torn.is_empty() && words.iter().map(|word| u32::from_ne_bytes(*word)).eq(piece.clone());
        // Told when all is read: who stops earlier leaves the others asleep.
        pieces.push(if whole { piece } else { first..first });
        got.fetch_add(1, Ordering::Relaxed);
    }
}

/// Sockets and counters travel in messages between threads that open and close what they like: in the end nothing is left.
#[test]
fn files_in_flight_are_not_lost() {
    quietline_testing::isolated!();
    let rounds = quietline_testing::budget("QUIETLINE_SOCKETS_ROUNDS", 600);
    let kernel = Kernel::boot(Config::default()).unwrap();
    let p = &kernel.process().unwrap();
    let hub: Vec<[i32; 2]> =
        (0..3).map(|_| p.socketpair(AF_UNIX, SOCK_DGRAM | SOCK_NONBLOCK, 0).unwrap()).collect();
    let moves = &AtomicU64::new(0);
    watched(moves, || {
        std::thread::scope(|scope| {
            for thread in 0..3u64 {
                let hub = &hub;
                scope.spawn(move || {
                    let mut dice = thread + 1;
                    let mut own = Vec::new();
                    for _ in 0..rounds {
                        moves.fetch_add(1, Ordering::Relaxed);
                        dice = dice.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                        let pick = (dice >> 33) as usize;
                        match pick % 6 {
                            0 => own.extend(
                                p.socketpair(AF_UNIX, SOCK_DGRAM | SOCK_NONBLOCK, 0).unwrap(),
                            ),
                            1 => own.push(p.eventfd(0, 0).unwrap()),
                            2 | 3 if !own.is_empty() => {
                                let fd = own[pick / 8 % own.len()];
                                let on = match pick / 7 % 3 {
                                    0 => own[pick / 16 % own.len()],
                                    _ => hub[pick / 32 % 3][0],
                                };
                                // It may be full, or no socket.
                                let _ = pass(p, on, fd);
                            }
                            4 => own.extend(take(p, hub[pick / 8 % 3][1])),
                            _ => {
                                if !own.is_empty() {
                                    p.close(own.swap_remove(pick / 8 % own.len())).unwrap();
                                }
                            }
                        }
                        while own.len() > 30 {
                            p.close(own.swap_remove(0)).unwrap();
                        }
                    }
                    for fd in own {
                        p.close(fd).unwrap();
                    }
                });
            }
        });
    });
    for fd in hub.into_iter().flatten() {
        p.close(fd).unwrap();
    }
    // The last close may have ended before another thread was done with what it had lost.
    for fd in p.socketpair(AF_UNIX, SOCK_STREAM, 0).unwrap() {
        p.close(fd).unwrap();
    }
    assert_eq!(kernel.nr_files(), 0);
}

/// While somebody closes loops without end, and so looks for what is lost, sockets of others travel with what lies in them, and
/// listeners with connections that nobody has accepted: nothing that can be reached is taken from anybody.
#[test]
fn what_can_be_reached_is_left_alone() {
    quietline_testing::isolated!();
    let rounds = quietline_testing::budget("QUIETLINE_SOCKETS_ROUNDS", 600);
    let kernel = Kernel::boot(Config::default()).unwrap();
    let moves = &AtomicU64::new(0);
    let travelling = &AtomicU64::new(2);
    watched(moves, || {
        std::thread::scope(|scope| {
            for thread in 0..2 {
                let p = kernel.process().unwrap();
                scope.spawn(move || {
                    for round in 0..rounds {
                        moves.fetch_add(1, Ordering::Relaxed);
                        match round % 3 {
                            0 => travel(&p),
                            1 => travel_unaccepted(&p, thread),
                            _ => lose_a_holder(&p),
                        }
                    }
                    travelling.fetch_sub(1, Ordering::Relaxed);
                });
            }
            let p = kernel.process().unwrap();
            scope.spawn(move || {
                while travelling.load(Ordering::Relaxed) != 0 {
                    let [a, b] = p.socketpair(AF_UNIX, SOCK_DGRAM, 0).unwrap();
                    pass(&p, a, b).unwrap();
                    pass(&p, b, a).unwrap();
                    p.close(a).unwrap();
                    p.close(b).unwrap();
                }
            });
        });
    });
    let p = kernel.process().unwrap();
    for fd in p.socketpair(AF_UNIX, SOCK_STREAM, 0).unwrap() {
        p.close(fd).unwrap();
    }
    assert_eq!(kernel.nr_files(), 0);
}

/// A socket with a byte in it, in the queue of a socket, in the queue of a third.
fn travel(p: &Process) {
    let [[a, b], [c, d], [e, f]] = [(); 3].map(|()| p.socketpair(AF_UNIX, SOCK_DGRAM, 0).unwrap());
    p.write(a, b"kept").unwrap();
    pass(p, c, b).unwrap();
    // In its own queue, too: only the message to `f` keeps it from being lost.
    pass(p, c, d).unwrap();
    pass(p, e, d).unwrap();
    for fd in [b, d] {
        p.close(fd).unwrap();
    }
    let d = take(p, f).expect("it was sent");
    let b = take(p, d).expect("what can be reached keeps what lies in it");
    let mut buffer = [0; 8];
    assert_eq!(p.read(b, &mut buffer), Ok(4));
    for fd in [a, b, c, d, e, f] {
        p.close(fd).unwrap();
    }
}

/// A socket that holds itself, and one that holds it and is closed: one message fewer does, and it can be reached as before.
fn lose_a_holder(p: &Process) {
    let [[x, y], [a, b]] = [(); 2].map(|()| p.socketpair(AF_UNIX, SOCK_DGRAM, 0).unwrap());
    p.write(y, b"kept").unwrap();
    pass(p, y, x).unwrap();
    // Once in flight, it stays in the register.
    pass(p, b, a).unwrap();
    let again = take(p, a).expect("it was sent");
    p.close(again).unwrap();
    pass(p, b, x).unwrap();
    for fd in [a, b] {
        p.close(fd).unwrap();
    }
    let mut buffer = [0; 8];
    assert_eq!(p.read(x, &mut buffer), Ok(4), "what can be reached keeps what lies in it");
    let again = take(p, x).expect("and the message that holds it");
    for fd in [again, x, y] {
        p.close(fd).unwrap();
    }
}

/// The same as the first, of a connection that is accepted while it has the message.
fn travel_unaccepted(p: &Process, thread: i32) {
    let name = [&1u16.to_ne_bytes()[..], b"\0travel", &thread.to_ne_bytes()].concat();
    let listener = p.socket(AF_UNIX, SOCK_STREAM, 0).unwrap();
    p.bind(listener, &name).unwrap();
    p.listen(listener, 1).unwrap();
    let client = p.socket(AF_UNIX, SOCK_STREAM, 0).unwrap();
    p.connect(client, &name).unwrap();
    let [[a, b], [e, f]] = [(); 2].map(|()| p.socketpair(AF_UNIX, SOCK_DGRAM, 0).unwrap());
    // In its own queue, and in that of the connection, whose listener is in flight.
    pass(p, a, b).unwrap();
    pass(p, e, listener).unwrap();
    pass(p, client, b).unwrap();
    p.close(b).unwrap();
    let (server, _) = p.accept(listener).unwrap();
    let b = take(p, server).expect("it was sent");
    let again = take(p, b).expect("what can be reached keeps what lies in it");
    for fd in [a, b, e, f, again, client, server, listener] {
        p.close(fd).unwrap();
    }
}

fn pass(p: &Process, on: i32, fd: i32) -> Result<usize, quietline::Errno> {
    let mut control = [0; 24];
    control[..8].copy_from_slice(&20u64.to_ne_bytes());
    control[8..12].copy_from_slice(&SOL_SOCKET.to_ne_bytes());
    control[12..16].copy_from_slice(&SCM_RIGHTS.to_ne_bytes());
    control[16..20].copy_from_slice(&fd.to_ne_bytes());
    p.sendmsg(
        on,
        &SendMsg { buffers: &[b"f"], control: &control, ..SendMsg::default() },
        MSG_NOSIGNAL,
    )
}

fn take(p: &Process, on: i32) -> Option<i32> {
    let (mut byte, mut control) = ([0; 8], [0; 24]);
    let buffers: &mut [&mut [u8]] = &mut [&mut byte];
    let mut message = RecvMsg { buffers, control: &mut control, ..RecvMsg::default() };
    p.recvmsg(on, &mut message, 0).ok()?;
    (message.control_len == 24).then(|| i32::from_ne_bytes(*control[16..].first_chunk().unwrap()))
}
