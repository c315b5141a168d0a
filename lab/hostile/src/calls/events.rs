//! Waiting: epoll, poll, select, timers, signals and watches.

use super::{Call, calls, nothing, within};
use crate::kind::Kind::{Any, Bits, Fd, Limit, One, Path, Pid};
use libc::*;
use quietline::{EpollEvent, FdSet, ItimerSpec, PollFd, SigPipe};
use std::time::Duration;

macro_rules! n {
    ($($n:expr),* $(,)?) => { &[$($n as i64),*] };
}

const WANTED: &[i64] = n![
    EPOLLIN,
    EPOLLOUT,
    EPOLLPRI,
    EPOLLRDHUP,
    EPOLLET as u32,
    EPOLLONESHOT,
    1u32 << 28,
    1u32 << 29,
];
const POLLED: &[i64] = n![POLLIN, POLLOUT, POLLPRI, POLLRDHUP, 0x2000];
/// More descriptors than a process has.
const POLLS: &[i64] = &[0, 1, 2, 10, 5000];
const TIMES: &[i64] = n![0, 1, 1000, 1_000_000, 1_000_000_000, 1_i64 << 40, i64::MAX];

/// A list that begins at a descriptor.
fn polls(first: i32, count: i64, events: i64) -> Vec<PollFd> {
    (0..count.clamp(0, 5000) as i32)
        .map(|n| PollFd::new(first.wrapping_add(n), events as i16))
        .collect()
}

fn set(bits: i64) -> FdSet {
    let mut set = FdSet::new();
    for fd in (0..62).filter(|fd| bits >> fd & 1 != 0) {
        set.insert(fd).expect("memory for a set of descriptors");
    }
    set
}

/// Repeats a number's bits at the lower descriptors, where most are open.
fn spread(bits: i64) -> i64 {
    bits & 0x0f0f_0f0f
}

#[rustfmt::skip] // a table
pub(super) const CALLS: &[Call] = calls! {
    40 epoll_ctl(Fd, One(&[1, 1, 2, 3]), Fd, Bits(WANTED)) |c, a| {
        let event = EpollEvent { events: a.word(3), data: a.0[2] as u64 };
        c.p.epoll_ctl(a.int(0), a.int(1), a.int(2), &event).map(nothing)
    };
    20 epoll_wait(Fd, One(&[0, 1, 8, 64]), Limit) |c, a| {
        let mut events = vec![EpollEvent::default(); a.0[1].clamp(0, 64) as usize];
        within(c.p.epoll_wait(a.int(0), &mut events, a.int(2))?, events.len())
    };
    10 epoll_pwait2(Fd, One(&[0, 1, 8, 64]), Limit) |c, a| {
        let mut events = vec![EpollEvent::default(); a.0[1].clamp(0, 64) as usize];
        within(c.p.epoll_pwait2(a.int(0), &mut events, a.limit(2))?, events.len())
    };
    12 poll(Fd, One(POLLS), Bits(POLLED), Limit) |c, a| {
        let mut list = polls(a.int(0), a.0[1], a.0[2]);
        within(c.p.poll(&mut list, a.int(3))?, list.len())
    };
    10 ppoll(Fd, One(POLLS), Bits(POLLED), Limit) |c, a| {
        let mut list = polls(a.int(0), a.0[1], a.0[2]);
        within(c.p.ppoll(&mut list, a.limit(3))?, list.len())
    };
    10 select(One(&[0, 1, 8, 64, 1024]), Any, Any, Any, Limit) |c, a| {
        let [mut read, mut write, mut except] = [1, 2, 3].map(|at| set(spread(a.0[at])));
        let sets = (Some(&mut read), Some(&mut write), Some(&mut except));
        within(c.p.select(a.int(0), sets.0, sets.1, sets.2, a.limit(4))?, 3 * 64)
    };
    2 select(One(&[0, 8]), Limit) |c, a| {
        within(c.p.select(a.int(0), None, None, None, a.limit(1))?, 0)
    };
    12 timerfd_settime(Fd, Bits(&[1, 2]), One(TIMES), One(TIMES)) |c, a| {
        let [value, interval] = [2, 3].map(|at| Duration::from_nanos(a.0[at].unsigned_abs()));
        c.p.timerfd_settime(a.int(0), a.int(1), ItimerSpec { interval, value }).map(|_| 0)
    };
    6 timerfd_gettime(Fd) |c, a| c.p.timerfd_gettime(a.int(0)).map(|_| 0);
    12 kill(Pid, One(&[0, 1, 2, 9, 13, 31, 32, 34, 64])) |c, a| {
        c.p.kill(a.int(0), a.int(1)).map(nothing)
    };
    2 sigpending() |c, _| Ok(c.p.sigpending() as i64);
    2 set_sigpipe(One(&[0, 1])) |c, a| {
        c.p.set_sigpipe(if a.0[0] == 1 { SigPipe::Signal } else { SigPipe::Ignore });
        Ok(0)
    };
    20 inotify_add_watch(Fd, Path, Bits(n![
        IN_MODIFY, IN_ACCESS, IN_CREATE, IN_DELETE, IN_OPEN, IN_CLOSE, IN_MOVE, IN_ATTRIB,
        IN_ALL_EVENTS, IN_ONLYDIR, IN_ONESHOT, IN_MASK_ADD, 0x1000_0000,
    ])) |c, a| c.p.inotify_add_watch(a.int(0), a.path(1), a.word(2)).map(i64::from);
    6 inotify_rm_watch(Fd, One(&[1, 2, 3, 4])) |c, a| {
        c.p.inotify_rm_watch(a.int(0), a.int(1)).map(nothing)
    };
};
