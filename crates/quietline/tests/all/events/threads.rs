//! Properties 12 and 13 among threads: of epoll, poll, select, timers and signals no event is lost, and nobody sleeps for ever.

use crate::support::Random;
use quietline::abi::*;
use quietline::{
    Config, EpollEvent, Errno, FdSet, Interrupt, ItimerSpec, Kernel, PollFd, Process, Shared,
    SigPipe,
};
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

/// Longer than anything here takes: whoever waits so long has missed a wake-up.
const LONG: Duration = Duration::from_secs(120);
const NAP: Duration = Duration::from_millis(20);

fn process() -> Process {
    Kernel::boot(Config::default()).unwrap().process().unwrap()
}

fn counter(p: &Process) -> i32 {
    p.eventfd(0, EFD_NONBLOCK).unwrap()
}

fn control(p: &Process, ep: i32, op: i32, fd: i32, events: u32) -> Result<(), Errno> {
    p.epoll_ctl(ep, op, fd, &EpollEvent { events, data: fd as u64 })
}

fn add(p: &Process, ep: i32, fd: i32, events: u32) {
    control(p, ep, EPOLL_CTL_ADD, fd, events).unwrap();
}

fn write(p: &Process, fd: i32) {
    assert_eq!(p.write(fd, &1u64.to_ne_bytes()), Ok(8));
}

/// What a counter had; 0 if nothing.
fn take(p: &Process, fd: i32) -> u64 {
    let mut bytes = [0; 8];
    match p.read(fd, &mut bytes) {
        Ok(8) => u64::from_ne_bytes(bytes),
        Err(Errno::AGAIN) => 0,
        other => panic!("{other:?}"),
    }
}

/// Waits; an event that does not come in time is one that was lost.
fn wait(p: &Process, ep: i32, max: usize) -> Vec<EpollEvent> {
    let mut events = vec![EpollEvent::default(); max];
    let n = p.epoll_pwait2(ep, &mut events, Some(LONG)).unwrap();
    assert_ne!(n, 0, "a wake-up is lost");
    events.truncate(n);
    events
}

/// Writers that count what they have written, waiters that count what they have read, of many counters by way of some epolls:
/// as much comes out as went in. `events` says how they are watched; `levels` how deep.
fn nothing_is_lost(events: u32, levels: usize, waiters: usize) {
    const COUNTERS: usize = 16;
    const WRITES: u64 = 8_000;
    let p = process();
    let counters: Vec<_> = (0..COUNTERS).map(|_| counter(&p)).collect();
    let inner = p.epoll_create1(0).unwrap();
    counters.iter().for_each(|&fd| add(&p, inner, fd, EPOLLIN | events));
    let mut top = inner;
    for _ in 1..levels {
        let outer = p.epoll_create1(0).unwrap();
        add(&p, outer, top, EPOLLIN);
        top = outer;
    }
    let taken = AtomicU64::new(0);
    let all = 2 * WRITES;
    thread::scope(|scope| {
        for writer in 0..2u64 {
            let (p, counters) = (&p, &counters);
            scope.spawn(move || {
                let mut random = Random(writer);
                for _ in 0..WRITES {
                    write(p, counters[random.below(COUNTERS)]);
                    if random.below(50) == 0 {
                        thread::sleep(Duration::from_micros(100));
                    }
                }
            });
        }
        for _ in 0..waiters {
            let (p, taken) = (&p, &taken);
            scope.spawn(move || {
                let begin = Instant::now();
                while taken.load(Ordering::Relaxed) < all {
                    assert!(begin.elapsed() < LONG, "a wake-up is lost");
                    let mut found = [EpollEvent::default(); 4];
                    // Another waiter may take the last: then nothing comes, and this looks again.
                    if p.epoll_wait(top, &mut found, 100).unwrap() == 0 {
                        continue;
                    }
                    let n =
                        if levels == 1 { 4 } else { p.epoll_wait(inner, &mut found, 0).unwrap() };
                    for event in found[..n].iter().filter(|event| event.events != 0) {
                        let fd = event.data as i32;
                        taken.fetch_add(take(p, fd), Ordering::Relaxed);
                        if events & EPOLLONESHOT != 0 {
                            control(p, inner, EPOLL_CTL_MOD, fd, EPOLLIN | events).unwrap();
                        }
                    }
                }
            });
        }
    });
    assert_eq!(taken.load(Ordering::Relaxed), all);
    assert!(counters.iter().all(|&fd| take(&p, fd) == 0));
}

#[test]
fn level_triggered() {
    quietline_testing::isolated!();
    nothing_is_lost(0, 1, 2);
}

#[test]
fn edge_triggered() {
    quietline_testing::isolated!();
    nothing_is_lost(EPOLLET, 1, 2);
}

#[test]
fn one_shot() {
    quietline_testing::isolated!();
    nothing_is_lost(EPOLLONESHOT, 1, 3);
}

#[test]
fn nested() {
    quietline_testing::isolated!();
    nothing_is_lost(0, 2, 2);
    nothing_is_lost(EPOLLET, 3, 1);
}

/// One waiter, edge-triggered, without any timeout to save it: every wake-up counts.
#[test]
fn a_round_trip_needs_every_wake_up() {
    quietline_testing::isolated!();
    for (levels, events) in [(1, EPOLLET), (1, 0), (2, EPOLLET), (5, EPOLLET)] {
        let p = process();
        let [there, back] = [0, 1].map(|_| {
            let fd = counter(&p);
            let ep = p.epoll_create1(0).unwrap();
            add(&p, ep, fd, EPOLLIN | events);
            let top = (1..levels).fold(ep, |top, _| {
                let outer = p.epoll_create1(0).unwrap();
                add(&p, outer, top, EPOLLIN | EPOLLET);
                outer
            });
            (fd, ep, top)
        });
        let come = |(fd, ep, top): (i32, i32, i32)| {
            wait(&p, top, 1);
            if ep != top {
                assert_eq!(wait(&p, ep, 1)[0].data, fd as u64);
            }
            assert_eq!(take(&p, fd), 1);
        };
        thread::scope(|scope| {
            scope.spawn(|| {
                for _ in 0..3_000 {
                    come(there);
                    write(&p, back.0);
                }
            });
            for _ in 0..3_000 {
                write(&p, there.0);
                come(back);
            }
        });
    }
}

/// Files and epolls are made, added, changed, written to, waited for and closed by threads that know nothing of each other.
#[test]
fn everything_at_once() {
    quietline_testing::isolated!();
    let kernel = Kernel::boot(Config::default()).unwrap();
    {
        let p = kernel.process().unwrap();
        thread::scope(|scope| {
            for seed in 0..4 {
                let p = &p;
                scope.spawn(move || {
                    let mut random = Random(seed);
                    for _ in 0..6_000 {
                        let (a, b) = (random.below(12) as i32, random.below(12) as i32);
                        // What is meant is not there any more as often as not: any error will do.
                        match random.below(12) {
                            0 | 1 => _ = p.eventfd(0, EFD_NONBLOCK),
                            2 => _ = p.epoll_create1(0),
                            3 | 4 => _ = p.close(a),
                            5 | 6 => {
                                _ = control(
                                    p,
                                    a,
                                    EPOLL_CTL_ADD,
                                    b,
                                    EPOLLIN | (seed as u32 % 2) << 31,
                                )
                            }
                            7 => _ = control(p, a, EPOLL_CTL_MOD, b, EPOLLIN | EPOLLOUT),
                            8 => _ = control(p, a, EPOLL_CTL_DEL, b, 0),
                            9 => _ = p.write(a, &1u64.to_ne_bytes()),
                            10 => {
                                let timeout = random.below(2) as i32;
                                _ = p.epoll_wait(a, &mut [EpollEvent::default(); 3], timeout);
                            }
                            _ => {
                                let mut fds = [PollFd::new(a, 1), PollFd::new(b, 5)];
                                _ = p.poll(&mut fds, random.below(2) as i32);
                            }
                        }
                        if p.open_fds().unwrap().len() > 12 {
                            let _ = p.close(random.below(40) as i32);
                        }
                    }
                });
            }
        });
    }
    crate::support::settle();
    crate::support::assert_nothing_open(&kernel);
}

/// Each of many sleepers of one epoll gets one of as many one-shot events: no wake-up is lost, and none is wasted.
#[test]
fn each_sleeper_gets_one() {
    quietline_testing::isolated!();
    const MANY: usize = 40;
    let p = process();
    let ep = p.epoll_create1(0).unwrap();
    let counters: Vec<_> = (0..MANY).map(|_| counter(&p)).collect();
    counters.iter().for_each(|&fd| add(&p, ep, fd, EPOLLIN | EPOLLONESHOT));
    thread::scope(|scope| {
        let sleepers: Vec<_> = (0..MANY).map(|_| scope.spawn(|| wait(&p, ep, 1)[0].data)).collect();
        thread::sleep(NAP);
        counters.iter().for_each(|&fd| write(&p, fd));
        let mut told: Vec<_> =
            sleepers.into_iter().map(|sleeper| sleeper.join().unwrap()).collect();
        told.sort();
        assert_eq!(told, counters.iter().map(|&fd| fd as u64).collect::<Vec<_>>());
    });
}

/// Two ends of a TCP connection.
fn connection(p: &Process) -> [i32; 2] {
    let listener = p.socket(AF_INET, SOCK_STREAM, 0).unwrap();
    p.listen(listener, 1).unwrap();
    let mut address = p.getsockname(listener).unwrap().bytes().to_vec();
    address[4..8].copy_from_slice(&[127, 0, 0, 1]);
    let client = p.socket(AF_INET, SOCK_STREAM, 0).unwrap();
    p.connect(client, &address).unwrap();
    let (server, _) = p.accept(listener).unwrap();
    p.close(listener).unwrap();
    [client, server]
}

/// Of epolls that watch a file exclusively a write wakes one, whatever is written to.
#[test]
fn exclusive() {
    quietline_testing::isolated!();
    let p = process();
    let fd = counter(&p);
    wakes_one(&p, "counter", fd, EPOLLIN, || write(&p, fd));
    let [read, into] = p.pipe2(0).unwrap();
    wakes_one(&p, "pipe", read, EPOLLIN, || write(&p, into));
    for ty in [SOCK_STREAM, SOCK_DGRAM, SOCK_SEQPACKET] {
        let [here, there] = p.socketpair(AF_UNIX, ty, 0).unwrap();
        wakes_one(&p, "local socket", there, EPOLLIN, || write(&p, here));
    }
    let [here, there] = connection(&p);
    wakes_one(&p, "TCP", there, EPOLLIN, || write(&p, here));
    let receiver = p.socket(AF_INET, SOCK_DGRAM, 0).unwrap();
    let mut address = [0; 16];
    address[..2].copy_from_slice(&(AF_INET as u16).to_ne_bytes());
    address[4..8].copy_from_slice(&[127, 0, 0, 1]);
    p.bind(receiver, &address).unwrap();
    let sender = p.socket(AF_INET, SOCK_DGRAM, 0).unwrap();
    p.connect(sender, p.getsockname(receiver).unwrap().bytes()).unwrap();
    wakes_one(&p, "UDP", receiver, EPOLLIN, || write(&p, sender));
}

/// The same for room, of a connection that was full and is emptied.
#[test]
fn exclusive_for_room() {
    quietline_testing::isolated!();
    let p = process();
    let [here, there] = connection(&p);
    let block = vec![0; 1 << 16];
    let fill = || while p.send(here, &block, MSG_DONTWAIT).is_ok() {};
    let mut room = vec![0; 1 << 16];
    fill();
    wakes_one(&p, "TCP", here, EPOLLOUT, || {
        fill();
        while p.recv(there, &mut room, MSG_DONTWAIT).is_ok() {}
    });
}

/// Ends those who wait for the counter, also when the test fails.
struct Stop<'a>(&'a Process, i32);

impl Drop for Stop<'_> {
    fn drop(&mut self) {
        let _ = self.0.write(self.1, &1u64.to_ne_bytes());
    }
}

/// An epoll that nobody sleeps in is passed over, and its event found later: so all of them sleep before each cause.
fn wakes_one(p: &Process, what: &str, fd: i32, events: u32, mut cause: impl FnMut()) {
    const MANY: usize = 8;
    let epolls: Vec<_> = (0..MANY).map(|_| p.epoll_create1(0).unwrap()).collect();
    let (woken, stop) = (AtomicU64::new(0), counter(p));
    for &ep in &epolls {
        add(p, ep, fd, events | EPOLLEXCLUSIVE | EPOLLET);
        add(p, ep, stop, EPOLLIN);
    }
    let wrong = thread::scope(|scope| {
        let _stop = Stop(p, stop);
        let sleep = |&ep: &i32| {
            let woken = &woken;
            crate::support::spawn_asleep(scope, move || {
                let mut event = [EpollEvent::default()];
                // So long that it ends nothing but a test that has failed.
                while p.epoll_pwait2(ep, &mut event, Some(10 * LONG)).unwrap() != 0 {
                    if event[0].data == stop as u64 {
                        return;
                    }
                    // Relaxed: no more than the number is looked at.
                    woken.fetch_add(1, Ordering::Relaxed);
                }
                panic!("the end of it is lost");
            })
        };
        let mut sleepers: Vec<_> = epolls.iter().map(sleep).collect();
        (1..=10).find_map(|round| {
            cause();
            let began = Instant::now();
            while woken.load(Ordering::Relaxed) < round && began.elapsed() < LONG {
                thread::yield_now();
            }
            // Who was woken has counted when it sleeps again.
            sleepers.iter_mut().for_each(crate::support::Asleep::until_asleep);
            let woken = woken.load(Ordering::Relaxed);
            (woken != round).then_some((round, woken))
        })
    });
    assert_eq!(wrong, None, "{what}: so often, and so many of {MANY} were woken");
    epolls.into_iter().chain([stop]).for_each(|fd| p.close(fd).unwrap());
}

#[test]
fn waits_are_interrupted() {
    quietline_testing::isolated!();
    let p = process();
    let (ep, fd) = (p.epoll_create1(0).unwrap(), p.eventfd(0, 0).unwrap());
    let inotify = p.inotify_init1(0).unwrap();
    let timer = p.timerfd_create(CLOCK_MONOTONIC, 0).unwrap();
    let signals = p.signalfd(-1, 1, 0).unwrap();
    let mut read = FdSet::new();
    read.insert(fd).unwrap();
    let calls: [(&str, &(dyn Fn() -> Errno + Sync)); 7] = [
        ("epoll_wait", &|| p.epoll_wait(ep, &mut [EpollEvent::default()], -1).unwrap_err()),
        ("poll", &|| p.poll(&mut [PollFd::new(fd, 1)], -1).unwrap_err()),
        ("select", &|| p.select(fd + 1, Some(&mut read.clone()), None, None, None).unwrap_err()),
        ("eventfd", &|| p.read(fd, &mut [0; 8]).unwrap_err()),
        ("inotify", &|| p.read(inotify, &mut [0; 512]).unwrap_err()),
        ("timerfd", &|| p.read(timer, &mut [0; 8]).unwrap_err()),
        ("signalfd", &|| p.read(signals, &mut [0; 128]).unwrap_err()),
    ];
    for (name, call) in calls {
        let interrupt = Shared::new(Interrupt::new()).unwrap();
        thread::scope(|scope| {
            let sleeper = scope.spawn(|| {
                let _entered = Interrupt::enter(&interrupt);
                call()
            });
            thread::sleep(NAP);
            assert!(!sleeper.is_finished(), "{name}");
            interrupt.raise();
            assert_eq!(sleeper.join().unwrap(), Errno::INTR, "{name}");
        });
    }
}

#[test]
fn timeouts() {
    quietline_testing::isolated!();
    let p = process();
    let (ep, fd) = (p.epoll_create1(0).unwrap(), counter(&p));
    add(&p, ep, fd, EPOLLIN);
    let begin = Instant::now();
    assert_eq!(p.epoll_wait(ep, &mut [EpollEvent::default()], 20), Ok(0));
    assert_eq!(p.poll(&mut [PollFd::new(fd, 1), PollFd::new(-1, 1)], 20), Ok(0));
    assert_eq!(p.poll(&mut [], 20), Ok(0));
    assert_eq!(p.select(0, None, None, None, Some(NAP)), Ok(0));
    assert!(begin.elapsed() >= 4 * NAP);
    let sleeper = |call: &(dyn Fn() -> usize + Sync)| {
        thread::scope(|scope| {
            let sleeper = scope.spawn(call);
            thread::sleep(NAP);
            write(&p, fd);
            assert_eq!(sleeper.join().unwrap(), 1);
            assert_eq!(take(&p, fd), 1);
        });
    };
    sleeper(&|| p.poll(&mut [PollFd::new(fd, 1)], -1).unwrap());
    sleeper(&|| {
        let many: Vec<_> = (0..100).map(|_| counter(&p)).collect();
        let mut fds: Vec<_> = many.iter().map(|&fd| PollFd::new(fd, 1)).collect();
        fds.push(PollFd::new(fd, 1));
        let n = p.ppoll(&mut fds, Some(LONG)).unwrap();
        assert_eq!(fds.pop(), Some(PollFd { fd, events: 1, revents: 1 }));
        many.into_iter().for_each(|fd| p.close(fd).unwrap());
        n
    });
    sleeper(&|| {
        let (mut read, mut write) = (FdSet::new(), FdSet::new());
        read.insert(fd).unwrap();
        let n = p.select(fd + 1, Some(&mut read), Some(&mut write), None, None).unwrap();
        assert!(read.contains(fd));
        n
    });
}

#[test]
fn timers_ring() {
    quietline_testing::isolated!();
    let p = process();
    let fd = p.timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK).unwrap();
    let ep = p.epoll_create1(0).unwrap();
    add(&p, ep, fd, EPOLLIN | EPOLLET);
    assert_eq!(take(&p, fd), 0);
    let once = |value| ItimerSpec { interval: Duration::ZERO, value };
    for millis in [1, 5, 70] {
        let begin = Instant::now();
        let value = Duration::from_millis(millis);
        assert_eq!(p.timerfd_settime(fd, 0, once(value)), Ok(ItimerSpec::default()));
        assert!(p.timerfd_gettime(fd).unwrap().value <= value);
        assert_eq!(wait(&p, ep, 1)[0].events, EPOLLIN);
        assert!(begin.elapsed() >= value);
        assert_eq!((take(&p, fd), take(&p, fd)), (1, 0));
    }
    // One that goes on, read late.
    let every = Duration::from_millis(3);
    let begin = Instant::now();
    p.timerfd_settime(fd, 0, ItimerSpec { interval: every, value: every }).unwrap();
    wait(&p, ep, 1);
    let mut first = 0;
    while first < 6 && begin.elapsed() < LONG {
        thread::sleep(NAP);
        first += take(&p, fd);
    }
    let most = begin.elapsed().as_millis() as u64 / 3 + 1;
    assert!((6..=most).contains(&first), "{first} of {most}");
    wait(&p, ep, 1);
    assert!(take(&p, fd) >= 1);
    // Disarmed, it says nothing.
    let old = p.timerfd_settime(fd, 0, ItimerSpec::default()).unwrap();
    assert_eq!(old.interval, every);
    thread::sleep(NAP);
    assert_eq!(take(&p, fd), 0);
    assert_eq!(p.epoll_wait(ep, &mut [EpollEvent::default()], 0), Ok(0));
    // A time that is past rings at once; so does a reader that waits.
    p.fcntl(fd, F_SETFL, 0).unwrap();
    let past = ItimerSpec { interval: Duration::ZERO, value: Duration::from_nanos(1) };
    p.timerfd_settime(fd, quietline::TFD_TIMER_ABSTIME, past).unwrap();
    assert_eq!(take(&p, fd), 1);
    p.timerfd_settime(fd, 0, once(NAP)).unwrap();
    assert_eq!(take(&p, fd), 1);
    assert_eq!(p.timerfd_settime(fd, 8, past), Err(Errno::INVAL));
    assert_eq!(p.timerfd_settime(ep, 0, past), Err(Errno::INVAL));
}

/// Timers armed, changed and closed by several threads, with readers that wait.
#[test]
fn timers_of_many_threads() {
    quietline_testing::isolated!();
    let kernel = Kernel::boot(Config::default()).unwrap();
    let p = kernel.process().unwrap();
    thread::scope(|scope| {
        for seed in 0..4 {
            let p = &p;
            scope.spawn(move || {
                let mut random = Random(seed);
                for _ in 0..300 {
                    let fd = p.timerfd_create(CLOCK_MONOTONIC, 0).unwrap();
                    for _ in 0..random.below(4) {
                        let value = Duration::from_micros(random.below(3_000) as u64 + 1);
                        p.timerfd_settime(fd, 0, ItimerSpec { interval: Duration::ZERO, value })
                            .unwrap();
                    }
                    if random.below(2) == 0 && p.timerfd_gettime(fd).unwrap().value > Duration::ZERO
                    {
                        let mut fds = [PollFd::new(fd, 1)];
                        assert_eq!(p.ppoll(&mut fds, Some(LONG)), Ok(1), "it has not rung");
                        assert_eq!(take(p, fd), 1);
                    }
                    p.close(fd).unwrap();
                }
            });
        }
    });
    drop(p);
    crate::support::settle();
    crate::support::assert_nothing_open(&kernel);
}

#[test]
fn signals_wait_to_be_read() {
    quietline_testing::isolated!();
    let p = process();
    let fd = p.signalfd(-1, 1 << (10 - 1) | 1 << (40 - 1) | 1 << (13 - 1), SFD_NONBLOCK).unwrap();
    let mut infos = [0; 4 * 128];
    assert_eq!(p.read(fd, &mut infos), Err(Errno::AGAIN));
    assert_eq!(p.read(fd, &mut infos[..127]), Err(Errno::INVAL));
    for signo in [40, 10, 10, 40, 12] {
        p.kill(p.getpid(), signo).unwrap();
    }
    assert_eq!(p.sigpending(), 1 << 9 | 1 << 39 | 1 << 11);
    assert_eq!(p.poll(&mut [PollFd::new(fd, 1)], 0), Ok(1));
    assert_eq!(p.read(fd, &mut infos), Ok(3 * 128));
    let signos: Vec<_> = infos[..384].chunks(128).map(|info| info[0]).collect();
    assert_eq!(signos, [10, 40, 40], "one of the one, both of the other");
    assert_eq!(infos[12..16], p.getpid().to_ne_bytes());
    assert_eq!(p.signalfd(fd, 1 << (12 - 1), 0), Ok(fd));
    assert_eq!(p.read(fd, &mut infos), Ok(128));
    assert_eq!((p.kill(p.getpid(), 65), p.kill(12345, 1)), (Err(Errno::INVAL), Err(Errno::SRCH)));
    // Across a fork: what waits is the parent's.
    p.kill(p.getpid(), 10).unwrap();
    assert_eq!(p.fork().unwrap().sigpending(), 0);
}

#[test]
fn a_broken_pipe_is_told_as_it_was_asked() {
    quietline_testing::isolated!();
    let p = process();
    let [read, write] = p.pipe2(0).unwrap();
    p.close(read).unwrap();
    assert_eq!(p.write(write, b"x"), Err(Errno::PIPE));
    assert_eq!(p.sigpending(), 0);
    p.set_sigpipe(SigPipe::Signal);
    let interrupt = Shared::new(Interrupt::new()).unwrap();
    let _entered = Interrupt::enter(&interrupt);
    assert_eq!(p.write(write, b"x"), Err(Errno::PIPE));
    assert_eq!(p.sigpending(), 1 << (13 - 1));
    assert!(interrupt.is_pending());
}

#[test]
fn inotify_can_be_waited_for() {
    quietline_testing::isolated!();
    let p = process();
    p.mkdir("/d", 0o755).unwrap();
    let fd = p.inotify_init1(O_NONBLOCK).unwrap();
    p.inotify_add_watch(fd, "/d", quietline::inotify::IN_CREATE).unwrap();
    let ep = p.epoll_create1(0).unwrap();
    add(&p, ep, fd, EPOLLIN);
    assert_eq!(p.epoll_wait(ep, &mut [EpollEvent::default()], 0), Ok(0));
    thread::scope(|scope| {
        let sleeper = scope.spawn(|| wait(&p, ep, 1));
        thread::sleep(NAP);
        p.mkdir("/d/x", 0o755).unwrap();
        assert_eq!(sleeper.join().unwrap()[0].data, fd as u64);
    });
    assert_eq!(p.read(fd, &mut [0; 512]), Ok(32));
    assert_eq!(p.read(fd, &mut [0; 512]), Err(Errno::AGAIN));
}
