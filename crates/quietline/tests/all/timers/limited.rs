//! Calls on sockets that wait for a time (`SO_RCVTIMEO`, `SO_SNDTIMEO`), beside the host's: local sockets and those of the
//! loopback device, streams, datagrams and packets. Results, errors and bytes are equal, and none comes back before its time.
//!
//! Times that are told are compared as Linux keeps them, in its ticks, rounded up.

mod sockets;

use crate::support::Random;
use crate::support::chance::Chance;
use quietline::{Config, Kernel};
use sockets::{Host, Said, Sockets};
use std::time::{Duration, Instant};

/// What is done to one end of a connection, or to a listener.
#[derive(Debug, Clone, Copy)]
enum Call {
    /// Which end, receiving or not, seconds, microseconds, and how many bytes of that are passed.
    Limit {
        end: usize,
        receive: bool,
        time: [i64; 2],
        len: usize,
    },
    Limited {
        end: usize,
        receive: bool,
        len: usize,
    },
    Send {
        end: usize,
        len: usize,
        flags: i32,
    },
    Receive {
        end: usize,
        len: usize,
        flags: i32,
    },
    Read {
        end: usize,
        len: usize,
    },
    /// Until nothing goes in any more.
    Fill {
        end: usize,
    },
    Shutdown {
        end: usize,
        how: i32,
    },
    Accept,
}

/// Two ends that are connected, and a listener of streams that nobody connects to.
const LISTENER: usize = 2;
const LIMITS: [i32; 2] = [libc::SO_SNDTIMEO, libc::SO_RCVTIMEO];

/// Microseconds of the host's ticks.
fn tick(host: &mut Host) -> i64 {
    let ends = host.ends(libc::AF_UNIX, libc::SOCK_DGRAM);
    host.set(ends[0], LIMITS[1], &timeval([0, 1])).expect("set");
    let (_, value) = host.get(ends[0], LIMITS[1], 16).expect("told");
    ends.into_iter().for_each(|fd| host.close(fd));
    micros(&value)
}

fn timeval(time: [i64; 2]) -> Vec<u8> {
    time.iter().flat_map(|part| part.to_ne_bytes()).collect()
}

fn micros(value: &[u8]) -> i64 {
    let part = |at: usize| i64::from_ne_bytes(*value[at..].first_chunk().expect("eight bytes"));
    part(0) * 1_000_000 + part(8)
}

/// A program: family, type, and calls.
fn program(seed: u64) -> (i32, i32, Vec<Call>) {
    let dice = &mut Random(seed);
    let (family, ty) = [
        (libc::AF_UNIX, libc::SOCK_STREAM),
        (libc::AF_UNIX, libc::SOCK_DGRAM),
        (libc::AF_UNIX, libc::SOCK_SEQPACKET),
        (libc::AF_INET, libc::SOCK_STREAM),
        (libc::AF_INET, libc::SOCK_DGRAM),
    ][dice.below(5)];
    let calls = (0..5 + dice.below(15)).map(|_| {
        let end = dice.below(2);
        let flags = [0, 0, 0, libc::MSG_DONTWAIT, libc::MSG_PEEK, libc::MSG_WAITALL];
        let lengths = [0, 1, 2, 10, 100];
        match dice.below(16) {
            0..3 => {
                let time = [
                    [0, 0],
                    [0, 1],
                    [0, 500],
                    [0, 4_001],
                    [7, 999_999],
                    [9_000_000, 0],
                    [-1, 5],
                    [0, -1],
                    [0, 1_000_000],
                    [5, i64::MAX],
                ][dice.below(10)];
                let len = [16, 16, 16, 16, 24, 15, 8, 0][dice.below(8)];
                Call::Limit { end: dice.below(3), receive: dice.below(2) == 0, time, len }
            }
            3 => Call::Limited {
                end: dice.below(3),
                receive: dice.below(2) == 0,
                len: [16, 16, 24, 8, 0][dice.below(5)],
            },
            4..7 => Call::Send { end, len: lengths[dice.below(5)], flags: flags[dice.below(4)] },
            7..11 => {
                Call::Receive { end, len: lengths[dice.below(5)], flags: flags[dice.below(6)] }
            }
            11 | 12 => Call::Read { end, len: lengths[dice.below(5)] },
            13 if family == libc::AF_UNIX => Call::Fill { end },
            14 if dice.below(3) == 0 => Call::Shutdown { end, how: dice.below(3) as i32 },
            _ => Call::Accept,
        }
    });
    (family, ty, calls.collect())
}

/// A system in the course of a program.
struct Side<'a> {
    on: &'a mut dyn Sockets,
    fds: [i32; 3],
    sent: u8,
}

/// Longer than a program waits for: what would take that long is not called.
const LONG: Duration = Duration::from_secs(1);

impl Side<'_> {
    /// How long an end waits; none for ever.
    fn limit(&mut self, end: usize, receive: bool) -> Option<Duration> {
        let (_, value) =
            self.on.get(self.fds[end], LIMITS[usize::from(receive)], 16).expect("told");
        Some(Duration::from_micros(micros(&value) as u64)).filter(|time| !time.is_zero())
    }

    /// Makes a call. What has said that there is nothing has waited as long as `least`.
    fn make(&mut self, call: Call, least: Duration, tick: i64) -> Said {
        let began = Instant::now();
        let said = match call {
            Call::Limit { end, receive, time, len } => {
                let mut value = timeval(time);
                value.resize(len, 0);
                self.on.set(self.fds[end], LIMITS[usize::from(receive)], &value)
            }
            Call::Limited { end, receive, len } => {
                let (n, mut value) =
                    self.on.get(self.fds[end], LIMITS[usize::from(receive)], len)?;
                if n >= 16 {
                    value.splice(..16, ((micros(&value) + tick - 1) / tick).to_ne_bytes());
                } else {
                    // A part of it says nothing.
                    value.clear();
                }
                Ok((n, value))
            }
            Call::Send { end, len, flags } => {
                let bytes: Vec<u8> = (0..len)
                    .map(|_| {
                        self.sent = self.sent.wrapping_add(1);
                        self.sent
                    })
                    .collect();
                self.on.send(self.fds[end], &bytes, flags)
            }
            Call::Receive { end, len, flags } => self.on.receive(self.fds[end], len, flags),
            Call::Read { end, len } => self.on.read(self.fds[end], len),
            Call::Fill { end } => {
                let mut sent = 0;
                let last = loop {
                    match self.on.send(self.fds[end], &[9; 3000], libc::MSG_DONTWAIT) {
                        Ok((n, _)) => sent += n,
                        Err(errno) => break errno,
                    }
                };
                Ok((sent, vec![last as u8]))
            }
            Call::Shutdown { end, how } => self.on.shutdown(self.fds[end], how),
            Call::Accept => self.on.accept(self.fds[LISTENER]),
        };
        assert!(said != Err(libc::EAGAIN) || began.elapsed() >= least, "{call:?} came back early");
        said
    }
}

/// Where the systems first differ.
fn first_difference(
    family: i32,
    ty: i32,
    program: &[Call],
    tick: i64,
) -> Option<(usize, String, String)> {
    let (mut host, kernel) = (Host, Kernel::boot(Config::default()).unwrap());
    let mut ours = kernel.process().unwrap();
    let fds = [host.ends(family, ty), ours.ends(family, ty)];
    let mut sides = [&mut host as &mut dyn Sockets, &mut ours].into_iter().zip(fds);
    let mut sides: [Side<'_>; 2] = std::array::from_fn(|_| {
        let (on, fds) = sides.next().expect("two");
        Side { on, fds, sent: 0 }
    });
    if (family, ty) == (libc::AF_INET, libc::SOCK_STREAM) {
        // Otherwise the host holds short messages back for a while.
        sides.iter_mut().for_each(|side| side.fds[..2].iter().for_each(|fd| side.on.at_once(*fd)));
    }
    let found = program.iter().enumerate().find_map(|(at, &call)| {
        let waits = match call {
            Call::Send { end, flags, .. } => Some((end, false, flags)),
            Call::Receive { end, flags, .. } => Some((end, true, flags)),
            Call::Read { end, .. } => Some((end, true, 0)),
            Call::Accept => Some((LISTENER, true, 0)),
            _ => None,
        };
        let mut least = Duration::ZERO;
        let mut flags_of = None;
        if let Some((end, receive, flags)) =
            waits.filter(|(_, _, flags)| flags & libc::MSG_DONTWAIT == 0)
        {
            let limit = sides[1].limit(end, receive);
            // Who would wait long is made not to.
            if limit.is_none_or(|limit| limit > LONG) {
                flags_of = Some(flags | libc::MSG_DONTWAIT);
            } else if flags & libc::MSG_WAITALL == 0 {
                least = limit.unwrap_or_default();
            }
        }
        let call = match (call, flags_of) {
            (Call::Send { end, len, .. }, Some(flags)) => Call::Send { end, len, flags },
            (Call::Receive { end, len, .. }, Some(flags)) => Call::Receive { end, len, flags },
            (Call::Read { end, len }, Some(flags)) => Call::Receive { end, len, flags },
            (Call::Accept, Some(_)) => return None,
            (call, _) => call,
        };
        let [theirs, own] = sides.each_mut().map(|side| {
            let said = side.make(call, least, tick);
            format!("{said:?}, then {:?}", side.on.poll(side.fds))
        });
        (theirs != own).then_some((at, theirs, own))
    });
    for side in sides {
        side.fds.into_iter().for_each(|fd| side.on.close(fd));
    }
    found
}

#[test]
fn programs_of_limited_waits() {
    quietline_testing::isolated!();
    let first = crate::timers::number("QUIETLINE_TIMERS_SEED", 1);
    let programs = quietline_testing::budget("QUIETLINE_TIMERS_PROGRAMS", 1_000) / 10;
    crate::support::own_network();
    let tick = tick(&mut Host);
    let mut chance = Chance::new(programs, crate::timers::ONE_IN);
    for seed in first..first + programs {
        let (family, ty, mut calls) = program(seed);
        let run = |calls: &[Call]| first_difference(family, ty, calls, tick);
        let Some((at, theirs, own)) = run(&calls) else { continue };
        let said = format!("seed {seed}, call {at}:\n host      {theirs}\n quietline {own}");
        let Some(mut found) = chance.is_it(&said, || run(&calls)) else { continue };
        let differs = |calls: &[Call]| (0..3).all(|_| run(calls).is_some());
        // Where it differs at times only, all of it may matter.
        if differs(&calls) {
            for at in (0..calls.len()).rev() {
                let mut fewer = calls.clone();
                fewer.remove(at);
                if differs(&fewer) {
                    calls = fewer;
                }
            }
            found = (0..10).find_map(|_| run(&calls)).expect("it always differed");
        }
        let (at, theirs, own) = found;
        for call in &calls[..=at] {
            eprintln!("    {call:?}");
        }
        panic!("seed {seed}, family {family}, type {ty}:\n host      {theirs}\n quietline {own}");
    }
    eprintln!("{programs} programs: all the same, {chance}");
}
