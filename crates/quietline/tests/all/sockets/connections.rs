//! Property 13, and 12, where it is many: ten thousand connections at once, all watched by one epoll, on which two threads wait; no message,
//! no byte and no descriptor is lost, and nobody is left asleep.
//!
//! A round is 10,000 connections (1,000 without optimisation), all open before the first byte goes. On each of them 100 messages go,
//! one after the other, and to each comes an answer: so a message that is lost, or an event of which nobody is told, ends the round for
//! want of progress. Both sides make the bytes of each message anew and compare; the answer is their checksum.
//!
//! `QUIETLINE_CONNECTIONS_AT_ONCE=N` changes how many connections; `QUIETLINE_CONNECTIONS_ROUNDS=N` how many rounds (default 1).
//!
//! # A day
//!
//! A server with 10,000 connections, each of which asks something every ten seconds and is made anew after 100 questions, answers 1,000
//! questions a second: 86,400,000 in 24 hours, which are 864,000 connections, or 86.4 rounds. `QUIETLINE_CONNECTIONS_ROUNDS=87` is a
//! day, compressed into the time that it takes. How much of it was run, and where, is in `lab/record` (`stress.txt`).

use crate::support::{alone, assert_nothing_open, watched};
use quietline::abi::*;
use quietline::eventpoll::{EPOLL_CTL_ADD, EPOLL_CTL_MOD, EPOLLIN, EPOLLONESHOT};
use quietline::{Config, EpollEvent, Errno, Kernel, Process};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Barrier, Mutex};
use std::thread;
use std::time::Instant;

/// Messages on each connection.
const MESSAGES: u64 = 100;
/// Threads that connect and ask, and threads that wait on the one epoll.
const CLIENTS: usize = 2;
const SERVERS: usize = 2;
/// Events taken at a time.
const EVENTS: usize = 32;
/// Bytes of the longest message.
const LONGEST: usize = 24 + 8 * 15;

/// What an event of the server's epoll is about, if not a connection.
const LISTENER: u64 = u64::MAX;
const OVER: u64 = u64::MAX - 1;

fn number(name: &str, or: u64) -> u64 {
    std::env::var(name).ok().and_then(|text| text.parse().ok()).unwrap_or(or)
}

fn mix(mut z: u64) -> u64 {
    z = (z ^ z >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ z >> 31
}

/// The bytes of a message: its length, whose it is and which, and what is to be found behind that. How many they are.
fn message(of: u64, number: u64, room: &mut [u8; LONGEST]) -> usize {
    let seed = mix(of << 32 | number);
    let len = 24 + 8 * (seed >> 60) as usize;
    let head = [len as u64, of, number].into_iter();
    let body = (0_u64..).map(|at| mix(seed ^ at));
    room[..len].chunks_mut(8).zip(head.chain(body)).for_each(|(to, word)| {
        to.copy_from_slice(&word.to_ne_bytes());
    });
    len
}

fn checksum(bytes: &[u8]) -> u64 {
    bytes.chunks(8).fold(0xcbf2_9ce4_8422_2325, |sum, word| {
        let word = u64::from_ne_bytes(*word.first_chunk().expect("messages are made of words"));
        (sum ^ word).wrapping_mul(0x100_0000_01b3).rotate_left(29)
    })
}

/// What one thread did.
#[derive(Default)]
struct Done {
    messages: u64,
    bytes: u64,
    calls: u64,
}

/// The server's side of a connection.
struct Session {
    fd: i32,
    /// Whose it is, when the first message has said so, and which message is due.
    of: Option<u64>,
    due: u64,
    /// What has come of the message that is not whole yet.
    room: [u8; LONGEST],
    have: usize,
}

/// A round.
struct Round<'a> {
    p: &'a Process,
    first: u64,
    connections: u64,
    address: &'a [u8],
    listener: i32,
    epoll: i32,
    over: i32,
    sessions: Vec<Mutex<Option<Session>>>,
    accepted: AtomicU64,
    closed: AtomicU64,
    /// Answers, for those who look whether anything goes on.
    answers: &'a AtomicU64,
    line: Barrier,
}

impl Round<'_> {
    fn watch(&self, epoll: i32, op: i32, fd: i32, events: u32, data: u64) {
        self.p.epoll_ctl(epoll, op, fd, &EpollEvent { events, data }).unwrap();
    }

    /// Waits on the one epoll, and does what there is to do, until all connections are over.
    fn serve(&self) -> Done {
        let mut done = Done::default();
        let mut events = [EpollEvent::default(); EVENTS];
        loop {
            let n = self.p.epoll_wait(self.epoll, &mut events, -1).unwrap();
            done.calls += 1;
            for event in &events[..n] {
                match event.data {
                    OVER => return done,
                    LISTENER => self.accept(&mut done),
                    at => self.answer(at, &mut done),
                }
            }
        }
    }

    fn accept(&self, done: &mut Done) {
        loop {
            done.calls += 1;
            let fd = match self.p.accept4(self.listener, O_ANYFD | SOCK_NONBLOCK) {
                Ok((fd, _)) => fd,
                Err(Errno::AGAIN) => return,
                Err(errno) => panic!("accept: {errno}"),
            };
            let at = self.accepted.fetch_add(1, Ordering::Relaxed);
            let session = Session { fd, of: None, due: 0, room: [0; LONGEST], have: 0 };
            *self.sessions[at as usize].lock().unwrap() = Some(session);
            self.watch(self.epoll, EPOLL_CTL_ADD, fd, EPOLLIN | EPOLLONESHOT, at);
            done.calls += 1;
        }
    }

    /// What has come on a connection, of which nobody else is told meanwhile.
    fn answer(&self, at: u64, done: &mut Done) {
        let mut place = self.sessions[at as usize].try_lock().expect("it is told to one at a time");
        let session = place.as_mut().expect("it is open");
        loop {
            done.calls += 1;
            match self.p.read(session.fd, &mut session.room[session.have..]) {
                Err(Errno::AGAIN) => break,
                Err(errno) => panic!("read: {errno}"),
                Ok(0) => {
                    assert_eq!(
                        (session.due, session.have),
                        (MESSAGES, 0),
                        "it ends after the last message"
                    );
                    self.p.close(session.fd).unwrap();
                    done.calls += 1;
                    *place = None;
                    if self.closed.fetch_add(1, Ordering::Relaxed) + 1 == self.connections {
                        self.p.write(self.over, &1_u64.to_ne_bytes()).unwrap();
                    }
                    return;
                }
                Ok(n) => session.have += n,
            }
            if session.take(self.p, done) {
                done.calls += 1;
            }
        }
        let fd = session.fd;
        // From then on somebody else may be told.
        drop(place);
        self.watch(self.epoll, EPOLL_CTL_MOD, fd, EPOLLIN | EPOLLONESHOT, at);
        done.calls += 1;
    }

    /// Connects its part, waits until all are connected and accepted, and asks until all has been answered.
    fn ask(&self, client: usize) -> Done {
        let (p, mut done) = (self.p, Done::default());
        let epoll = p.epoll_create1(O_ANYFD).unwrap();
        let family = i32::from(u16::from_ne_bytes(*self.address.first_chunk().unwrap()));
        let mine: Vec<u64> =
            (self.first..self.first + self.connections).skip(client).step_by(CLIENTS).collect();
        let mut links: Vec<(i32, u64)> = Vec::with_capacity(mine.len());
        for at in 0..mine.len() as u64 {
            let fd = p.socket(family, SOCK_STREAM | O_ANYFD, 0).unwrap();
            p.connect(fd, self.address).unwrap();
            self.watch(epoll, EPOLL_CTL_ADD, fd, EPOLLIN, at);
            done.calls += 3;
            links.push((fd, 0));
        }
        self.line.wait();
        while self.accepted.load(Ordering::Relaxed) < self.connections {
            thread::yield_now();
        }
        self.line.wait();
        let mut room = [0; LONGEST];
        let mut send = |fd: i32, of: u64, number: u64, done: &mut Done| {
            let len = message(of, number, &mut room);
            assert_eq!(p.write(fd, &room[..len]), Ok(len));
            done.calls += 1;
            done.bytes += len as u64;
            checksum(&room[..len])
        };
        let mut due: Vec<u64> =
            links.iter().zip(&mine).map(|((fd, _), of)| send(*fd, *of, 0, &mut done)).collect();
        let mut open = links.len();
        let mut events = [EpollEvent::default(); EVENTS];
        while open != 0 {
            let n = p.epoll_wait(epoll, &mut events, -1).unwrap();
            done.calls += 1;
            for event in &events[..n] {
                let at = event.data as usize;
                let (fd, number) = &mut links[at];
                let mut answer = [0; 8];
                let n = p.read(*fd, &mut answer).unwrap();
                done.calls += 1;
                if *number == MESSAGES {
                    assert_eq!(n, 0, "nothing comes after the last answer");
                    p.close(*fd).unwrap();
                    done.calls += 1;
                    open -= 1;
                    continue;
                }
                assert_eq!(
                    (n, u64::from_ne_bytes(answer)),
                    (8, due[at]),
                    "message {number} of {}",
                    mine[at]
                );
                self.answers.fetch_add(1, Ordering::Relaxed);
                done.messages += 1;
                *number += 1;
                if *number < MESSAGES {
                    due[at] = send(*fd, mine[at], *number, &mut done);
                } else {
                    p.shutdown(*fd, SHUT_WR).unwrap();
                    done.calls += 1;
                }
            }
        }
        p.close(epoll).unwrap();
        done
    }
}

impl Session {
    /// Answers a message, if it is whole: whether it was.
    fn take(&mut self, p: &Process, done: &mut Done) -> bool {
        let Some(head) = self.room[..self.have].first_chunk::<24>() else { return false };
        let word = |n: usize| u64::from_ne_bytes(*head[8 * n..].first_chunk().unwrap());
        let (len, of) = (word(0) as usize, word(1));
        assert!(len <= LONGEST, "{len} bytes");
        if self.have < len {
            return false;
        }
        assert_eq!(self.have, len, "the next message comes after the answer");
        assert_eq!(*self.of.get_or_insert(of), of, "a connection is one client's");
        let mut expected = [0; LONGEST];
        let due = message(of, self.due, &mut expected);
        assert!(self.room[..len] == expected[..due], "message {} of {of} is another one", self.due);
        assert_eq!(p.write(self.fd, &checksum(&self.room[..len]).to_ne_bytes()), Ok(8));
        self.due += 1;
        self.have = 0;
        done.messages += 1;
        done.bytes += len as u64;
        true
    }
}

/// Some rounds over a family's connections.
fn rounds(name: &str, address: impl Fn(&Process, i32) -> Vec<u8>, family: i32) {
    let _alone = alone();
    let at_once = number(
        "QUIETLINE_CONNECTIONS_AT_ONCE",
        if cfg!(debug_assertions) { 1_000 } else { 10_000 },
    );
    let rounds = quietline_testing::budget("QUIETLINE_CONNECTIONS_ROUNDS", 1);
    let kernel = Kernel::boot(Config::default()).unwrap();
    let p = &kernel.process().unwrap();
    let listener = p.socket(family, SOCK_STREAM | SOCK_NONBLOCK, 0).unwrap();
    let address = &address(p, listener)[..];
    p.listen(listener, 128).unwrap();
    let (epoll, over) = (p.epoll_create1(0).unwrap(), p.eventfd(0, O_NONBLOCK).unwrap());
    p.epoll_ctl(epoll, EPOLL_CTL_ADD, listener, &EpollEvent { events: EPOLLIN, data: LISTENER })
        .unwrap();
    p.epoll_ctl(epoll, EPOLL_CTL_ADD, over, &EpollEvent { events: EPOLLIN, data: OVER }).unwrap();
    let (answers, began) = (&AtomicU64::new(0), Instant::now());
    let mut whole = Done::default();
    watched(answers, || {
        for round in 0..rounds {
            let round = &Round {
                p,
                first: round * at_once,
                connections: at_once,
                address,
                listener,
                epoll,
                over,
                sessions: (0..at_once).map(|_| Mutex::new(None)).collect(),
                accepted: AtomicU64::new(0),
                closed: AtomicU64::new(0),
                answers,
                line: Barrier::new(CLIENTS),
            };
            let (asked, served) = thread::scope(|scope| {
                let servers: Vec<_> = (0..SERVERS).map(|_| scope.spawn(|| round.serve())).collect();
                let clients: Vec<_> =
                    (0..CLIENTS).map(|n| scope.spawn(move || round.ask(n))).collect();
                let sum = |sum: Done, one: Done| Done {
                    messages: sum.messages + one.messages,
                    bytes: sum.bytes + one.bytes,
                    calls: sum.calls + one.calls,
                };
                let asked =
                    clients.into_iter().map(|one| one.join().unwrap()).fold(Done::default(), sum);
                let served =
                    servers.into_iter().map(|one| one.join().unwrap()).fold(Done::default(), sum);
                (asked, served)
            });
            assert_eq!((asked.messages, served.messages), (at_once * MESSAGES, at_once * MESSAGES));
            assert_eq!(asked.bytes, served.bytes);
            assert_eq!(p.read(over, &mut [0; 8]), Ok(8));
            assert_eq!(kernel.nr_files(), 3, "listener, epoll, eventfd");
            whole.messages += asked.messages;
            whole.bytes += asked.bytes;
            whole.calls += asked.calls + served.calls;
        }
    });
    println!(
        "{name}: {rounds} rounds of {at_once} connections at once: {} messages asked and answered, {} bytes of questions, {} calls, {:.1} s",
        whole.messages,
        whole.bytes,
        whole.calls,
        began.elapsed().as_secs_f64()
    );
    for fd in [listener, epoll, over] {
        p.close(fd).unwrap();
    }
    // Sockets that ended lately lie in sheaves that are not full yet; their states end with them.
    crate::support::settle();
    kernel.shrink();
    crate::support::settle();
    assert_nothing_open(&kernel);
}

#[test]
fn unix() {
    quietline_testing::isolated!();
    let named = |p: &Process, listener: i32| {
        let name = [&(AF_UNIX as u16).to_ne_bytes()[..], b"\0connections"].concat();
        p.bind(listener, &name).unwrap();
        name
    };
    rounds("unix", named, AF_UNIX);
}

#[test]
fn tcp() {
    quietline_testing::isolated!();
    let loopback = |p: &Process, listener: i32| {
        let any = [&(AF_INET as u16).to_ne_bytes()[..], &[0, 0, 127, 0, 0, 1], &[0; 8]].concat();
        p.bind(listener, &any).unwrap();
        p.getsockname(listener).unwrap().bytes().to_vec()
    };
    rounds("tcp", loopback, AF_INET);
}
