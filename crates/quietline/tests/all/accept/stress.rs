//! Clients, acceptors and one who shuts listeners, all of them short of memory, and the acceptors short of descriptors too: whoever is
//! connected to a listener that stays is served, once, and in the end nothing is left.
//!
//! `QUIETLINE_ACCEPT_SECONDS=60` goes on for so long (2 seconds by default), and longer if no
//! connection was reset by then or something has not run out. A thread left asleep is found by the
//! time: twenty seconds in which no thread is served.

use crate::accept::{FAMILIES, address};
use crate::support::{Random, StopOnDrop};
use quietline::abi::*;
use quietline::{Config, Errno, Kernel, Process};
use quietline_platform::fault;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc;
use std::time::{Duration, Instant};

const CLIENTS: u64 = 3;
const ACCEPTORS: u64 = 2;
const PATIENCE: Duration = Duration::from_secs(120);
/// What acceptors have at most: their listeners, numbers that only take room, and one or two for connections.
const NOFILE: usize = 66;

/// What was done, and what went wrong on the way.
#[derive(Default)]
struct Counts {
    served: AtomicU64,
    /// Refused, or reset by a listener that went.
    reset: AtomicU64,
    no_memory: AtomicU64,
    no_descriptor: AtomicU64,
}

impl Counts {
    fn numbers(&self) -> [u64; 4] {
        let Self { served, reset, no_memory, no_descriptor } = self;
        [served, reset, no_memory, no_descriptor].map(|count| count.load(Ordering::Relaxed))
    }
}

fn add(count: &AtomicU64) -> u64 {
    // Relaxed: a number that orders nothing; so all of them.
    count.fetch_add(1, Ordering::Relaxed) + 1
}

/// Makes a call in which an allocation may fail, or all from one on.
fn short<R>(dice: &mut Random, call: impl FnOnce() -> R) -> R {
    match dice.below(4) {
        0 => fault::fail_nth(1 + dice.below(12) as u64),
        1 => fault::fail_from(1 + dice.below(12) as u64),
        _ => {}
    }
    let done = call();
    fault::fail_nth(0);
    done
}

/// Makes a call until there is memory for it.
fn until<R>(
    counts: &Counts,
    dice: &mut Random,
    mut call: impl FnMut() -> Result<R, Errno>,
) -> Result<R, Errno> {
    loop {
        match short(dice, &mut call) {
            Err(Errno::NOMEM) => drop(add(&counts.no_memory)),
            done => return done,
        }
    }
}

/// A connection that is made, used, and closed; whether it came to that. It may be refused: by a listener that goes, and by one that has
/// no memory for who has waited for a place. But if it is made, and the listener stays, it is served.
fn client(p: &Process, counts: &Counts, dice: &mut Random, to: &[u8], goes: bool) -> bool {
    let family = i32::from(u16::from_ne_bytes([to[0], to[1]]));
    let fd = until(counts, dice, || p.socket(family, SOCK_STREAM, 0)).unwrap();
    let connected = until(counts, dice, || p.connect(fd, to));
    let token = (dice.below(usize::MAX) as u64).to_ne_bytes();
    let mut echo = [0; 8];
    let served = connected
        .and_then(|()| until(counts, dice, || p.send(fd, &token, MSG_NOSIGNAL)))
        .and_then(|sent| {
            assert_eq!(sent, 8);
            p.recv(fd, &mut echo, MSG_WAITALL)
        });
    p.close(fd).unwrap();
    match served {
        Ok(8) => {
            assert_eq!(echo, token, "somebody else's");
            true
        }
        other => {
            let refused = connected == Err(Errno::CONNREFUSED) && family == AF_INET;
            let ended = matches!(other, Ok(0) | Err(Errno::CONNRESET | Errno::PIPE));
            assert!(refused || goes && ended, "{other:?}");
            false
        }
    }
}

/// A process with these listeners that accepts some connections, and ends.
fn acceptor(listeners: &Process, counts: &Counts, dice: &mut Random, stop: &AtomicBool) {
    let p = loop {
        match short(dice, || listeners.fork()) {
            Ok(p) => break p,
            Err(errno) => assert_eq!(errno, Errno::NOMEM),
        }
    };
    let listening = p.open_fds().unwrap();
    // The next number but a few is one for which the table has to grow.
    while p.dup(listening[0]).unwrap() < 60 + dice.below(4) as i32 {}
    p.set_nofile(NOFILE).unwrap();
    let (mut held, mut idle) = (Vec::new(), 0);
    for _ in 0..30 + dice.below(30) {
        if stop.load(Ordering::Relaxed) {
            break;
        }
        let listener = listening[dice.below(listening.len())];
        let flags = if dice.below(2) == 0 { O_ANYFD } else { 0 };
        match short(dice, || p.accept4(listener, flags)) {
            Ok((fd, _)) => held.push(fd),
            Err(Errno::NOMEM) => drop(add(&counts.no_memory)),
            Err(Errno::MFILE) => {
                add(&counts.no_descriptor);
                idle = 9;
            }
            Err(Errno::AGAIN | Errno::INVAL) => idle += 1,
            Err(errno) => panic!("{errno}"),
        }
        // They are served when nothing more comes, or nothing more can: so descriptors run out at times.
        if idle > 8 {
            idle = 0;
            held.drain(..).for_each(|fd| serve(&p, fd));
            std::thread::yield_now();
        }
    }
    held.into_iter().for_each(|fd| serve(&p, fd));
}

fn serve(p: &Process, fd: i32) {
    let mut token = [0; 8];
    // A client that could not send has gone.
    if p.recv(fd, &mut token, MSG_WAITALL) == Ok(8) {
        assert_eq!(p.send(fd, &token, MSG_NOSIGNAL), Ok(8));
    }
    p.close(fd).unwrap();
}

/// A listener that does not wait: its process's descriptor, and its name.
fn listener(p: &Process, family: i32, name: &str) -> (i32, Vec<u8>) {
    let fd = p.socket(family, SOCK_STREAM | SOCK_NONBLOCK, 0).unwrap();
    p.bind(fd, &address(family, name)).unwrap();
    p.listen(fd, 1).unwrap();
    (fd, p.getsockname(fd).unwrap().bytes().to_vec())
}

#[test]
fn nothing_is_lost_where_everything_runs_out() {
    quietline_testing::isolated!();
    let seconds =
        std::env::var("QUIETLINE_ACCEPT_SECONDS").map_or(2, |text| text.parse().expect("a number"));
    let kernel = Kernel::boot(Config::default().privileged(true)).unwrap();
    let listeners = kernel.process().unwrap();
    let stay: Vec<_> =
        FAMILIES.iter().map(|family| listener(&listeners, *family, "stays")).collect();
    // One that goes, and comes back to its port, which it asked for by its number.
    let goes = listeners.socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0).unwrap();
    // Also beside connections that were accepted there.
    listeners.setsockopt(goes, SOL_SOCKET, SO_REUSEADDR, &1i32.to_ne_bytes()).unwrap();
    let mut port = address(AF_INET, "");
    port[2..4].copy_from_slice(&4000u16.to_be_bytes());
    listeners.bind(goes, &port).unwrap();
    listeners.listen(goes, 1).unwrap();
    let (counts, stop, ended) =
        (&Counts::default(), &AtomicBool::new(false), &AtomicBool::new(false));
    let (stay, port, listeners) = (&stay, &port, &listeners);
    let (over, ends) = mpsc::channel::<()>();
    std::thread::scope(|scope| {
        scope.spawn(move || {
            let mut last = 0;
            while ends.recv_timeout(PATIENCE) == Err(mpsc::RecvTimeoutError::Timeout) {
                let now = counts.served.load(Ordering::Relaxed);
                if now == last {
                    eprintln!("somebody has been left asleep after {now}");
                    std::process::abort();
                }
                last = now;
            }
        });
        let _ends = [StopOnDrop(ended), StopOnDrop(stop)];
        let clients: Vec<_> = (0..CLIENTS)
            .map(|thread| {
                let p = kernel.process().unwrap();
                scope.spawn(move || {
                    let mut dice = Random(thread);
                    while !ended.load(Ordering::Relaxed) {
                        let which = dice.below(3);
                        let to = stay.get(which).map_or(port, |(_, name)| name);
                        if client(&p, counts, &mut dice, to, which == 2) {
                            add(&counts.served);
                        } else {
                            add(&counts.reset);
                        }
                    }
                    assert_eq!(p.open_fds().unwrap(), [0; 0]);
                })
            })
            .collect();
        for thread in 0..ACCEPTORS {
            scope.spawn(move || {
                let mut dice = Random(100 + thread);
                while !stop.load(Ordering::Relaxed) {
                    acceptor(listeners, counts, &mut dice, stop);
                }
            });
        }
        let breaker = scope.spawn(move || {
            let mut dice = Random(1000);
            while !ended.load(Ordering::Relaxed) {
                std::thread::sleep(Duration::from_micros(dice.below(1500) as u64));
                short(&mut dice, || listeners.shutdown(goes, SHUT_RDWR)).unwrap();
                until(counts, &mut dice, || listeners.listen(goes, 1)).unwrap();
            }
        });
        let (begun, seconds) = (Instant::now(), Duration::from_secs(seconds));
        // Until all has happened that is to.
        while begun.elapsed() < seconds
            || counts.numbers().contains(&0) && begun.elapsed() < seconds + PATIENCE
        {
            std::thread::sleep(Duration::from_millis(50));
        }
        ended.store(true, Ordering::Relaxed);
        // Acceptors go on until the last client has been served.
        clients.into_iter().for_each(|client| client.join().unwrap());
        breaker.join().unwrap();
        stop.store(true, Ordering::Relaxed);
        drop(over);
    });
    let numbers = counts.numbers();
    println!("served, reset, without memory, without a descriptor: {numbers:?}");
    assert!(numbers.iter().all(|n| *n > 0), "{numbers:?}");
    // Each listener has all its places, and not one more.
    let p = kernel.process().unwrap();
    let all = stay.iter().cloned().chain([(goes, port.clone())]);
    for (listener, name) in all {
        let family = i32::from(u16::from_ne_bytes([name[0], name[1]]));
        let connects = || {
            let fd = p.socket(family, SOCK_STREAM | SOCK_NONBLOCK, 0).unwrap();
            p.connect(fd, &name).or_else(|_| p.connect(fd, &name))
        };
        assert_eq!([(); 2].map(|()| connects()), [Ok(()); 2]);
        assert!(matches!(connects(), Err(Errno::AGAIN | Errno::ALREADY)), "a third place");
        assert!(listeners.accept(listener).is_ok() && listeners.accept(listener).is_ok());
    }
    p.close_range(0, u32::MAX, 0).unwrap();
    listeners.close_range(0, u32::MAX, 0).unwrap();
    assert_eq!((kernel.nr_files(), kernel.nr_inodes()), (0, 0));
}
