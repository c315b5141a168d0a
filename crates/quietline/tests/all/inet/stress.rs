//! Property 13 of TCP and UDP, with many connections and threads: every byte arrives, in order, once, and nobody is left waiting.

use quietline::abi::{AF_INET, AF_INET6, SOCK_DGRAM, SOCK_STREAM};
use quietline::{Config, Errno, Kernel, Process};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

/// A sequence of numbers that looks random and is always the same.
struct Dice(u64);

impl Dice {
    fn next(&mut self) -> u64 {
        self.0 =
            self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        self.0 >> 33
    }
}

fn number(name: &str, default: u64) -> u64 {
    std::env::var(name).map_or(default, |text| text.parse().expect("a number"))
}

/// A sum in which the order counts.
fn add(sum: u64, bytes: &[u8]) -> u64 {
    bytes.iter().fold(sum, |sum, &byte| sum.wrapping_mul(0x0100_0000_01b3) ^ u64::from(byte))
}

/// Panics if the work takes too long: somebody waits for what has happened.
fn within<R: Send>(time: Duration, work: impl FnOnce() -> R + Send) -> R {
    let (done, waits) = std::sync::mpsc::channel::<()>();
    thread::scope(|scope| {
        scope.spawn(move || {
            if waits.recv_timeout(time) == Err(std::sync::mpsc::RecvTimeoutError::Timeout) {
                eprintln!("a wake-up was lost");
                std::process::abort();
            }
        });
        let result = work();
        drop(done);
        result
    })
}

fn loopback(v6: bool, port: [u8; 2]) -> Vec<u8> {
    let family = if v6 { AF_INET6 } else { AF_INET } as u16;
    let head = [family.to_ne_bytes(), port].concat();
    let ip: &[u8] = if v6 {
        &[0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0]
    } else {
        &[127, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0]
    };
    [&head, ip].concat()
}

fn listener(process: &Process, v6: bool, option: Option<i32>) -> (i32, Vec<u8>) {
    let fd = process.socket(if v6 { AF_INET6 } else { AF_INET }, SOCK_STREAM, 0).unwrap();
    if let Some(option) = option {
        process.setsockopt(fd, libc::SOL_SOCKET, option, &1i32.to_ne_bytes()).unwrap();
    }
    process.bind(fd, &loopback(v6, [0, 0])).unwrap();
    process.listen(fd, 64).unwrap();
    (fd, process.getsockname(fd).unwrap().bytes().to_vec())
}

/// 2,000 connections with 100 messages each by default: half of the threads connect and send, the
/// others accept, receive and answer with the sum of the received bytes.
#[test]
fn every_byte_arrives_in_order() {
    quietline_testing::isolated!();
    let connections = quietline_testing::budget("QUIETLINE_INET_CONNECTIONS", 2_000);
    let messages = number("QUIETLINE_INET_MESSAGES", 100);
    let kernel = Kernel::boot(Config::default()).unwrap();
    let process = &kernel.process().unwrap();
    let (listener, address) = &listener(process, false, None);
    let (begun, ended) = (AtomicU64::new(0), AtomicU64::new(0));
    within(Duration::from_secs(600), || {
        thread::scope(|scope| {
            for _ in 0..2 {
                scope.spawn(|| serve(process, *listener));
                scope.spawn(|| {
                    loop {
                        let seed = begun.fetch_add(1, Ordering::Relaxed);
                        if seed >= connections {
                            break;
                        }
                        talk(process, address, seed, messages);
                        if ended.fetch_add(1, Ordering::Relaxed) + 1 == connections {
                            // Whoever waits to accept is told that it is over.
                            process.shutdown(*listener, 0).unwrap();
                        }
                    }
                });
            }
        });
    });
    assert_eq!(ended.load(Ordering::Relaxed), connections);
    assert_eq!(process.open_fds().unwrap(), [*listener]);
    process.close(*listener).unwrap();
    assert_eq!((kernel.nr_files(), kernel.nr_inodes()), (0, 0));
}

fn talk(process: &Process, address: &[u8], seed: u64, messages: u64) {
    let mut dice = Dice(seed);
    let fd = process.socket(AF_INET, SOCK_STREAM, 0).unwrap();
    process.connect(fd, address).unwrap();
    let (mut sum, mut message) = (0, vec![0; 6000]);
    for _ in 0..messages {
        let len =
            if dice.next().is_multiple_of(50) { dice.next() % 6000 } else { dice.next() % 200 }
                as usize;
        message[..len].fill_with(|| dice.next() as u8);
        sum = add(sum, &message[..len]);
        assert_eq!(process.send(fd, &message[..len], 0), Ok(len));
    }
    process.shutdown(fd, 1).unwrap();
    let mut answer = [0; 8];
    assert_eq!(process.recv(fd, &mut answer, libc::MSG_WAITALL), Ok(8));
    assert_eq!(u64::from_ne_bytes(answer), sum, "connection {seed}");
    assert_eq!(process.read(fd, &mut answer), Ok(0));
    process.close(fd).unwrap();
}

fn serve(process: &Process, listener: i32) {
    let mut buffer = vec![0; 4000];
    loop {
        let fd = match process.accept(listener) {
            Ok((fd, _)) => fd,
            Err(Errno::INVAL) => return,
            Err(errno) => panic!("{errno}"),
        };
        let mut sum = 0;
        loop {
            match process.read(fd, &mut buffer).unwrap() {
                0 => break,
                n => sum = add(sum, &buffer[..n]),
            }
        }
        assert_eq!(process.write(fd, &sum.to_ne_bytes()), Ok(8));
        process.close(fd).unwrap();
    }
}

/// Both ends send and receive at the same time, with buffers of any size, over a queue that is nearly always full or empty.
#[test]
fn both_directions_at_once() {
    quietline_testing::isolated!();
    let kernel = Kernel::boot(Config::default()).unwrap();
    let process = &kernel.process().unwrap();
    let (listener, address) = listener(process, true, None);
    let client = process.socket(AF_INET6, SOCK_STREAM, 0).unwrap();
    for option in [libc::SO_SNDBUF, libc::SO_RCVBUF] {
        process.setsockopt(client, libc::SOL_SOCKET, option, &20_000i32.to_ne_bytes()).unwrap();
    }
    process.connect(client, &address).unwrap();
    let (server, _) = process.accept(listener).unwrap();
    process.setsockopt(server, libc::SOL_SOCKET, libc::SO_SNDBUF, &3000i32.to_ne_bytes()).unwrap();
    let total = quietline_testing::budget("QUIETLINE_INET_BYTES", 20_000_000) as usize;
    within(Duration::from_secs(600), || {
        thread::scope(|scope| {
            for (own, seed) in [(client, 1), (server, 2)] {
                scope.spawn(move || {
                    let (mut dice, mut next, mut left) = (Dice(seed), 0u8, total);
                    let mut buffer = vec![0; 70_000];
                    while left > 0 {
                        let len = (1 + dice.next() as usize % 70_000).min(left);
                        for byte in &mut buffer[..len] {
                            next = next.wrapping_add(3);
                            *byte = next;
                        }
                        assert_eq!(process.write(own, &buffer[..len]), Ok(len));
                        left -= len;
                    }
                    process.shutdown(own, 1).unwrap();
                });
                scope.spawn(move || {
                    let (mut dice, mut next, mut got) = (Dice(seed + 2), 0u8, 0);
                    let mut buffer = vec![0; 70_000];
                    loop {
                        let len = 1 + dice.next() as usize % 70_000;
                        let n = process.read(own, &mut buffer[..len]).unwrap();
                        if n == 0 {
                            break;
                        }
                        for &byte in &buffer[..n] {
                            next = next.wrapping_add(3);
                            assert_eq!(byte, next, "after {got}");
                            got += 1;
                        }
                    }
                    assert_eq!(got, total);
                });
            }
        });
    });
}

/// A number whose first byte can be found wherever reading begins.
fn record(n: u64) -> [u8; 8] {
    std::array::from_fn(|at| if at == 0 { 0xff } else { (n >> (7 * (at - 1)) & 0x7f) as u8 })
}

/// How many whole numbers these are, if they follow each other, whatever part of one comes first and last.
fn run(bytes: &[u8]) -> Option<usize> {
    let Some(first) = bytes.iter().position(|&byte| byte == 0xff) else {
        return (bytes.len() < 8).then_some(0);
    };
    let (numbers, rest) = bytes[first..].as_chunks::<8>();
    let Some(begin) = numbers.first() else { return Some(0) };
    let begin = (1..8).fold(0, |n, at| n | u64::from(begin[at]) << (7 * (at - 1)));
    let end = begin + numbers.len() as u64;
    let follow = numbers.iter().zip(begin..).all(|(number, n)| *number == record(n));
    let around = bytes[..first] == record(begin.wrapping_sub(1))[8 - first..]
        && *rest == record(end)[..rest.len()];
    (follow && around).then_some(numbers.len())
}

/// Several threads read a connection, by large calls, and one looks: what one call gets has no hole, and nothing is lost.
#[test]
fn what_one_call_reads_has_no_hole() {
    quietline_testing::isolated!();
    const BLOCK: usize = 96 * 1024;
    let blocks = quietline_testing::budget("QUIETLINE_INET_BYTES", 40_000_000) as usize / BLOCK;
    let kernel = Kernel::boot(Config::default()).unwrap();
    let process = &kernel.process().unwrap();
    let (listener, address) = listener(process, false, None);
    let client = process.socket(AF_INET, SOCK_STREAM, 0).unwrap();
    process.connect(client, &address).unwrap();
    let (server, _) = process.accept(listener).unwrap();
    let (got, large, done) = (AtomicUsize::new(0), AtomicUsize::new(0), AtomicBool::new(false));
    let holes = AtomicUsize::new(0);
    let look = |bytes: &[u8]| run(bytes).unwrap_or_else(|| holes.fetch_add(1, Ordering::Relaxed));
    within(Duration::from_secs(600), || {
        thread::scope(|scope| {
            let readers = [(); 2].map(|()| {
                scope.spawn(|| {
                    let mut buffer = vec![0; 2 * BLOCK];
                    loop {
                        let n = process.recv(server, &mut buffer, 0).unwrap();
                        if n == 0 {
                            break;
                        }
                        got.fetch_add(n, Ordering::Relaxed);
                        // What lies in several pieces, which are copied one by one.
                        large.fetch_add(
                            usize::from(look(&buffer[..n]) * 8 > 40 * 1024),
                            Ordering::Relaxed,
                        );
                    }
                })
            });
            let looker = scope.spawn(|| {
                let mut buffer = vec![0; 2 * BLOCK];
                while !done.load(Ordering::Relaxed) {
                    match process.recv(server, &mut buffer, libc::MSG_PEEK | libc::MSG_DONTWAIT) {
                        Ok(n) => look(&buffer[..n]),
                        Err(errno) => {
                            assert_eq!(errno, Errno::AGAIN);
                            0
                        }
                    };
                    thread::yield_now();
                }
            });
            let mut block = Vec::with_capacity(BLOCK);
            for n in 0..blocks as u64 {
                block.clear();
                let first = n * (BLOCK / 8) as u64;
                (first..first + (BLOCK / 8) as u64).for_each(|n| block.extend(record(n)));
                assert_eq!(process.send(client, &block, 0), Ok(BLOCK));
            }
            process.shutdown(client, libc::SHUT_WR).unwrap();
            readers.into_iter().for_each(|reader| reader.join().unwrap());
            done.store(true, Ordering::Relaxed);
            looker.join().unwrap();
        });
    });
    assert_eq!(
        holes.load(Ordering::Relaxed),
        0,
        "what one call has read is not what was sent in a row"
    );
    assert_eq!(got.load(Ordering::Relaxed), blocks * BLOCK);
    assert!(
        large.load(Ordering::Relaxed) > 0,
        "no call took several pieces: this has tested nothing"
    );
}

/// Several threads wait on one socket for connections and datagrams: none is lost, none comes twice.
#[test]
fn many_wait_on_one() {
    quietline_testing::isolated!();
    let kernel = Kernel::boot(Config::default()).unwrap();
    let process = &kernel.process().unwrap();
    let receiver = process.socket(AF_INET, SOCK_DGRAM, 0).unwrap();
    process.bind(receiver, &loopback(false, [0, 0])).unwrap();
    let address = &process.getsockname(receiver).unwrap();
    let count = quietline_testing::budget("QUIETLINE_INET_DATAGRAMS", 40_000) as usize;
    let (got, sum) = (AtomicUsize::new(0), AtomicU64::new(0));
    within(Duration::from_secs(600), || {
        thread::scope(|scope| {
            for _ in 0..3 {
                scope.spawn(|| {
                    let mut buffer = [0; 16];
                    while got.load(Ordering::SeqCst) < count {
                        let n = process.recv(receiver, &mut buffer, 0).unwrap();
                        if n == 0 {
                            break;
                        }
                        got.fetch_add(1, Ordering::SeqCst);
                        sum.fetch_add(
                            u64::from_ne_bytes(*buffer.first_chunk().unwrap()),
                            Ordering::SeqCst,
                        );
                    }
                });
            }
            let sender = process.socket(AF_INET, SOCK_DGRAM, 0).unwrap();
            process.connect(sender, address.bytes()).unwrap();
            for n in 0..count as u64 {
                // No more under way than the receiver has room for.
                while n as usize > got.load(Ordering::SeqCst) + 200 {
                    thread::yield_now();
                }
                assert_eq!(process.send(sender, &n.to_ne_bytes(), 0), Ok(8));
            }
            while got.load(Ordering::SeqCst) < count {
                thread::yield_now();
            }
            for _ in 0..3 {
                process.send(sender, &[], 0).unwrap();
            }
        });
    });
    let expected = (0..count as u64).sum::<u64>();
    assert_eq!((got.load(Ordering::SeqCst), sum.load(Ordering::SeqCst)), (count, expected));
}

/// Sockets are closed while others connect to them, send to them and wait for them.
#[test]
fn nothing_is_left_when_everything_ends_at_once() {
    quietline_testing::isolated!();
    let kernel = Kernel::boot(Config::default()).unwrap();
    let rounds = quietline_testing::budget("QUIETLINE_INET_ROUNDS", 600);
    within(Duration::from_secs(600), || {
        let process = &kernel.process().unwrap();
        for round in 0..rounds {
            let (listener, address) = listener(process, false, Some(libc::SO_REUSEADDR));
            let address = &address;
            thread::scope(|scope| {
                for _ in 0..2 {
                    scope.spawn(move || {
                        let fd = process.socket(AF_INET, SOCK_STREAM, 0).unwrap();
                        if process.connect(fd, address).is_ok() {
                            let _ = process.send(fd, b"hello", libc::MSG_NOSIGNAL);
                            let _ = process.read(fd, &mut [0; 8]);
                        }
                        process.close(fd).unwrap();
                    });
                }
                scope.spawn(move || {
                    while let Ok((fd, _)) = process.accept(listener) {
                        if round % 3 != 0 {
                            let _ = process.read(fd, &mut [0; 2]);
                        }
                        process.close(fd).unwrap();
                    }
                });
                for _ in 0..round % 50 {
                    std::hint::spin_loop();
                }
                process.shutdown(listener, 2).unwrap();
            });
            process.close(listener).unwrap();
        }
        assert!(process.open_fds().unwrap().is_empty());
    });
    assert_eq!((kernel.nr_files(), kernel.nr_inodes()), (0, 0));
}
