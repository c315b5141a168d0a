//! What epoll, poll and their like take, one thread: nanoseconds on the CPU, quietline beside the host, turn by turn in one run;
//! medians. Each row checks what it did. The last rows are of two threads, by the clock on the wall.
//!
//! `cargo run --release -p quietline --example events [ROW]`
#![allow(unsafe_code, reason = "the host's calls")]

use quietline::abi::*;
use quietline::{Config, EpollEvent, ItimerSpec, Kernel, PollFd, Process};
use std::time::{Duration, Instant};

const ROUNDS: usize = 7;

/// Nanoseconds that this thread has been on a CPU: other programs do not count.
fn on_cpu() -> u64 {
    let stat = std::fs::read_to_string("/proc/thread-self/schedstat").expect("a kernel that tells");
    stat.split(' ').next().and_then(|first| first.parse().ok()).expect("a number")
}

fn is_wanted(name: &str) -> bool {
    std::env::args().nth(1).is_none_or(|only| name.contains(&only))
}

fn median(mut times: Vec<f64>) -> f64 {
    times.sort_by(f64::total_cmp);
    times[times.len() / 2]
}

/// Times `ours`, which does `n` operations, and the host's beside it.
fn row(name: &str, target: f64, n: usize, mut ours: impl FnMut(), mut host: impl FnMut()) {
    if !is_wanted(name) {
        return;
    }
    let timed = |work: &mut dyn FnMut(), n: usize| {
        let begin = on_cpu();
        (0..n).for_each(|_| work());
        (on_cpu() - begin) as f64 / n as f64
    };
    let mut times = [Vec::new(), Vec::new()];
    timed(&mut ours, n / 10);
    for _ in 0..ROUNDS {
        times[0].push(timed(&mut ours, n));
        times[1].push(timed(&mut host, n / 10));
    }
    let [own, theirs] = times.map(median);
    println!("{name:<36} {own:>8.1}   host {theirs:>8.0}   target {target:>5.0}");
}

fn ok(result: i32) -> i32 {
    assert!(result >= 0, "{}", std::io::Error::last_os_error());
    result
}

/// The host's calls.
mod host {
    pub(super) fn epoll() -> i32 {
        // SAFETY: makes a descriptor, as below.
        super::ok(unsafe { libc::epoll_create1(0) })
    }

    pub(super) fn counter() -> i32 {
        // SAFETY: as above.
        super::ok(unsafe { libc::eventfd(0, libc::EFD_NONBLOCK) })
    }

    pub(super) fn close(fd: i32) {
        // SAFETY: a descriptor of the caller's own.
        super::ok(unsafe { libc::close(fd) });
    }

    pub(super) fn control(ep: i32, op: i32, fd: i32, events: u32) {
        let mut event = libc::epoll_event { events, u64: 7 };
        // SAFETY: the event is there, as are the buffers below.
        super::ok(unsafe { libc::epoll_ctl(ep, op, fd, &mut event) });
    }

    pub(super) fn wait(ep: i32, timeout: i32) -> i32 {
        let mut events = [libc::epoll_event { events: 0, u64: 0 }; 8];
        // SAFETY: as above.
        super::ok(unsafe { libc::epoll_wait(ep, events.as_mut_ptr(), 8, timeout) })
    }

    pub(super) fn write(fd: i32) {
        // SAFETY: as above.
        assert_eq!(unsafe { libc::write(fd, 1u64.to_ne_bytes().as_ptr().cast(), 8) }, 8);
    }

    pub(super) fn read(fd: i32) {
        let mut bytes = [0u8; 8];
        // SAFETY: as above.
        assert_eq!(unsafe { libc::read(fd, bytes.as_mut_ptr().cast(), 8) }, 8);
    }

    pub(super) fn poll(fd: i32) -> i32 {
        let mut fds = [libc::pollfd { fd, events: 1, revents: 0 }];
        // SAFETY: as above.
        super::ok(unsafe { libc::poll(fds.as_mut_ptr(), 1, 0) })
    }
}

fn control(p: &Process, ep: i32, op: i32, fd: i32, events: u32) {
    p.epoll_ctl(ep, op, fd, &EpollEvent { events, data: 7 }).expect("it can");
}

fn wait(p: &Process, ep: i32, timeout: i32) -> usize {
    p.epoll_wait(ep, &mut [EpollEvent::default(); 8], timeout).expect("it can")
}

fn write(p: &Process, fd: i32) {
    assert_eq!(p.write(fd, &1u64.to_ne_bytes()), Ok(8));
}

fn read(p: &Process, fd: i32) {
    assert_eq!(p.read(fd, &mut [0; 8]), Ok(8));
}

fn main() {
    let kernel = Kernel::boot(Config::default()).expect("memory");
    let p = kernel.process().expect("memory");
    let counter = || p.eventfd(0, EFD_NONBLOCK).expect("memory");
    let epoll = || p.epoll_create1(0).expect("memory");

    row(
        "epoll_create1+close, O_ANYFD",
        60.0,
        200_000,
        || p.close(p.epoll_create1(O_ANYFD).expect("memory")).expect("open"),
        || host::close(host::epoll()),
    );

    let (ep, fd, hep, hfd) = (epoll(), counter(), host::epoll(), host::counter());
    control(&p, ep, EPOLL_CTL_ADD, fd, EPOLLIN);
    host::control(hep, EPOLL_CTL_ADD, hfd, EPOLLIN);
    row(
        "epoll_wait, 0 ready",
        8.0,
        1_000_000,
        || assert_eq!(wait(&p, ep, 0), 0),
        || assert_eq!(host::wait(hep, 0), 0),
    );
    row(
        "write, epoll_wait, read",
        80.0,
        300_000,
        || {
            write(&p, fd);
            assert_eq!(wait(&p, ep, 0), 1);
            read(&p, fd);
        },
        || {
            host::write(hfd);
            assert_eq!(host::wait(hep, 0), 1);
            host::read(hfd);
        },
    );
    write(&p, fd);
    host::write(hfd);
    row(
        "epoll_wait, 1 ready",
        30.0,
        1_000_000,
        || assert_eq!(wait(&p, ep, 0), 1),
        || assert_eq!(host::wait(hep, 0), 1),
    );
    row(
        "poll, 1 ready",
        25.0,
        1_000_000,
        || assert_eq!(p.poll(&mut [PollFd::new(fd, 1)], 0), Ok(1)),
        || assert_eq!(host::poll(hfd), 1),
    );
    row(
        "epoll_ctl MOD",
        25.0,
        1_000_000,
        || control(&p, ep, EPOLL_CTL_MOD, fd, EPOLLIN),
        || host::control(hep, EPOLL_CTL_MOD, hfd, EPOLLIN),
    );
    let (outer, houter) = (epoll(), host::epoll());
    control(&p, outer, EPOLL_CTL_ADD, ep, EPOLLIN);
    host::control(houter, EPOLL_CTL_ADD, hep, EPOLLIN);
    row(
        "epoll_wait, nested two levels",
        60.0,
        1_000_000,
        || assert_eq!(wait(&p, outer, 0), 1),
        || assert_eq!(host::wait(houter, 0), 1),
    );
    read(&p, fd);
    host::read(hfd);
    row(
        "write, both waits, read",
        130.0,
        300_000,
        || {
            write(&p, fd);
            assert_eq!(wait(&p, outer, 0), 1);
            assert_eq!(wait(&p, ep, 0), 1);
            read(&p, fd);
        },
        || {
            host::write(hfd);
            assert_eq!(host::wait(houter, 0), 1);
            assert_eq!(host::wait(hep, 0), 1);
            host::read(hfd);
        },
    );
    let (other, hother) = (epoll(), host::epoll());
    let (lone, hlone) = (counter(), host::counter());
    control(&p, other, EPOLL_CTL_ADD, lone, EPOLLIN);
    host::control(hother, EPOLL_CTL_ADD, hlone, EPOLLIN);
    row(
        "epoll_ctl DEL+ADD",
        90.0,
        300_000,
        || {
            control(&p, other, EPOLL_CTL_DEL, lone, 0);
            control(&p, other, EPOLL_CTL_ADD, lone, EPOLLIN);
        },
        || {
            host::control(hother, EPOLL_CTL_DEL, hlone, 0);
            host::control(hother, EPOLL_CTL_ADD, hlone, EPOLLIN);
        },
    );
    timers(&p);
    threads(&p);
}

/// Setting a timer, and how late it rings.
fn timers(p: &Process) {
    let timer = p.timerfd_create(CLOCK_MONOTONIC, 0).expect("memory");
    // SAFETY: makes a descriptor.
    let htimer = ok(unsafe { libc::timerfd_create(libc::CLOCK_MONOTONIC, 0) });
    let spec = ItimerSpec { interval: Duration::ZERO, value: Duration::from_secs(100) };
    let hspec = libc::itimerspec {
        it_interval: libc::timespec { tv_sec: 0, tv_nsec: 0 },
        it_value: libc::timespec { tv_sec: 100, tv_nsec: 0 },
    };
    row(
        "timerfd_settime",
        f64::NAN,
        100_000,
        || {
            p.timerfd_settime(timer, 0, spec).expect("a timer");
        },
        || {
            // SAFETY: both are there, or null.
            ok(unsafe { libc::timerfd_settime(htimer, 0, &hspec, std::ptr::null_mut()) });
        },
    );
    if !is_wanted("timer's lateness") {
        return;
    }
    let late = |ours: bool| {
        let value = Duration::from_millis(3);
        let begin = Instant::now();
        if ours {
            p.timerfd_settime(timer, 0, ItimerSpec { interval: Duration::ZERO, value })
                .expect("a timer");
            read(p, timer);
        } else {
            let it_value = libc::timespec { tv_sec: 0, tv_nsec: value.as_nanos() as i64 };
            let spec = libc::itimerspec { it_value, ..hspec };
            // SAFETY: both are there, or null.
            ok(unsafe { libc::timerfd_settime(htimer, 0, &spec, std::ptr::null_mut()) });
            host::read(htimer);
        }
        (begin.elapsed() - value).as_nanos() as f64
    };
    let [own, theirs] = [true, false].map(|ours| median((0..100).map(|_| late(ours)).collect()));
    println!("{:<36} {own:>8.0}   host {theirs:>8.0}", "timer's lateness, read that waits");
}

/// A counter written by one thread, waited for by another, and back.
fn threads(p: &Process) {
    const N: usize = 20_000;
    if !is_wanted("round trip of two threads") {
        return;
    }
    let counters = [0, 1].map(|_| p.eventfd(0, EFD_NONBLOCK).expect("memory"));
    let epolls = counters.map(|fd| {
        let ep = p.epoll_create1(0).expect("memory");
        control(p, ep, EPOLL_CTL_ADD, fd, EPOLLIN);
        ep
    });
    let hcounters = [0, 1].map(|_| host::counter());
    let hepolls = hcounters.map(|fd| {
        let ep = host::epoll();
        host::control(ep, EPOLL_CTL_ADD, fd, EPOLLIN);
        ep
    });
    let round = |me: usize| {
        if me == 0 {
            write(p, counters[1]);
        }
        assert_eq!(wait(p, epolls[me], -1), 1);
        read(p, counters[me]);
        if me == 1 {
            write(p, counters[0]);
        }
    };
    let hround = |me: usize| {
        if me == 0 {
            host::write(hcounters[1]);
        }
        assert_eq!(host::wait(hepolls[me], -1), 1);
        host::read(hcounters[me]);
        if me == 1 {
            host::write(hcounters[0]);
        }
    };
    let timed = |round: &(dyn Fn(usize) + Sync)| {
        std::thread::scope(|scope| {
            scope.spawn(|| (0..N).for_each(|_| round(1)));
            let begin = Instant::now();
            (0..N).for_each(|_| round(0));
            begin.elapsed().as_nanos() as f64 / N as f64
        })
    };
    let (mut own, mut theirs) = (Vec::new(), Vec::new());
    for _ in 0..ROUNDS {
        own.push(timed(&round));
        theirs.push(timed(&hround));
    }
    let (own, theirs) = (median(own), median(theirs));
    println!("{:<36} {own:>8.0}   host {theirs:>8.0}", "round trip of two threads");
}
