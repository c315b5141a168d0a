//! A program on both systems, a call at a time.

use crate::timers::call::{Call, How, Other, PLACES, Result, System, Timeout, When};
use std::cell::Cell;
use std::time::{Duration, Instant};

/// What came of a call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// The places were not as the call needs it, or there would be no one right answer.
    Passed,
    Failed(i32),
    Number(i64),
    Bytes(Vec<u8>),
    /// How many tens of seconds are left, none if nothing is; the interval.
    Spec(Option<u64>, Duration),
    Events(Vec<(u32, u64)>),
    /// It came back before it might.
    Early(Box<Outcome>),
}

/// As it is in a set.
const SIGPIPE: u64 = 1 << (libc::SIGPIPE - 1);

/// Longer than anything takes that comes at all.
const LONG: Duration = Duration::from_secs(60);

pub(crate) struct World<'a> {
    pub(crate) host: &'a mut dyn System,
    pub(crate) ours: &'a mut dyn System,
    /// The clock of the timer at each place.
    clocks: [i32; PLACES],
    epolls: [bool; PLACES],
    /// How long what expires soon is given to wake all who are to be woken, after it is seen to have expired: who looks at a timer
    /// here sees it by the clock, and whoever rings it may come a little later.
    pub(crate) patience: Duration,
}

fn outcome<T>(result: Result<T>, of: impl FnOnce(T) -> Outcome) -> Outcome {
    result.map_or_else(Outcome::Failed, of)
}

/// Times while a program runs are told apart by tens of seconds; intervals are compared to the nanosecond.
fn spec([value, interval]: [Duration; 2]) -> Outcome {
    Outcome::Spec((!value.is_zero()).then(|| (value.as_secs() + 5) / 10), interval)
}

fn told(found: Vec<i16>) -> Outcome {
    Outcome::Events(found.into_iter().map(|found| (found as u16 as u32, 0)).collect())
}

fn chosen(told: [Vec<bool>; 3]) -> Outcome {
    Outcome::Events(told.into_iter().flatten().map(|told| (u32::from(told), 0)).collect())
}

/// Marks what came back with nothing before its time.
fn timed(
    least: Duration,
    is_nothing: impl Fn(&Outcome) -> bool,
    call: impl FnOnce() -> Outcome,
) -> Outcome {
    let began = Instant::now();
    let outcome = call();
    if is_nothing(&outcome) && began.elapsed() < least {
        Outcome::Early(Box::new(outcome))
    } else {
        outcome
    }
}

fn nothing(outcome: &Outcome) -> bool {
    matches!(outcome, Outcome::Events(events) if events.iter().all(|(found, _)| *found == 0))
}

fn clock(clock: i32) -> Duration {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the time is written to.
    assert_eq!(unsafe { libc::clock_gettime(clock, &mut time) }, 0);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

/// Whether the host has never slept: then the clock that counts that is the other one, as it always is here.
pub(crate) fn never_slept() -> bool {
    clock(libc::CLOCK_BOOTTIME).abs_diff(clock(libc::CLOCK_MONOTONIC)) < Duration::from_millis(100)
}

fn descriptors(on: &mut dyn System, of: &[(usize, i16)]) -> Vec<(i32, i16)> {
    of.iter().map(|(place, events)| (*on.at(*place), *events)).collect()
}

fn members(on: &mut dyn System, sets: [u8; 3]) -> [Vec<i32>; 3] {
    sets.map(|set| {
        let places = (0..PLACES).filter(|place| set >> place & 1 != 0);
        places.map(|place| *on.at(place)).filter(|fd| *fd >= 0).collect()
    })
}

/// What a signalfd or a timer said; who has sent a signal by whether it was this process and its user.
fn bytes(on: &dyn System, mut bytes: Vec<u8>) -> Outcome {
    let ids = on.ids();
    for info in bytes.as_chunks_mut::<128>().0 {
        for (at, id) in [12, 16].into_iter().zip(ids) {
            let same = info[at..at + 4] == id.to_ne_bytes();
            info[at..at + 4].copy_from_slice(&u32::from(!same).to_ne_bytes());
        }
    }
    Outcome::Bytes(bytes)
}

impl<'a> World<'a> {
    pub(crate) fn new(host: &'a mut dyn System, ours: &'a mut dyn System) -> Self {
        let clocks = [libc::CLOCK_MONOTONIC; PLACES];
        Self { host, ours, clocks, epolls: [false; PLACES], patience: Duration::from_micros(100) }
    }

    fn both(&mut self, call: impl Fn(&mut dyn System) -> Outcome) -> (Outcome, Outcome) {
        (call(self.host), call(self.ours))
    }

    /// Whether the host has something to tell of these: then both may wait for ever. Both are asked, because an epoll that is
    /// polled forgets what it finds not ready.
    fn has(&mut self, of: &[(usize, i16)]) -> bool {
        let has = |on: &mut dyn System| {
            let of = descriptors(on, of);
            on.poll(&of, Some(Duration::ZERO))
                .is_ok_and(|found| found.iter().any(|found| *found != 0))
        };
        has(self.ours);
        has(self.host)
    }

    /// The time to wait: one that does not end only if there is something to tell.
    fn waits(&mut self, timeout: Timeout, of: &[(usize, i16)]) -> Option<Duration> {
        match timeout {
            Timeout::Of(_) => timeout.time(),
            _ if self.has(of) => timeout.time(),
            _ => Some(Duration::ZERO),
        }
    }

    /// Whether a read at a place would wait for what does not come.
    fn would_wait(&mut self, at: usize) -> bool {
        self.is_blocking(at) && !self.has(&[(at, libc::POLLIN)])
    }

    fn is_blocking(&mut self, at: usize) -> bool {
        let fd = *self.host.at(at);
        self.host.other(fd, Other::Flags).is_ok_and(|flags| flags as i32 & libc::O_NONBLOCK == 0)
    }

    /// Until a timer has expired on both, and all are woken by it.
    fn pass(&mut self, at: usize, soon: bool) {
        for on in [&mut *self.host, &mut *self.ours] {
            let fd = *on.at(at);
            assert_eq!(
                on.poll(&[(fd, libc::POLLIN)], Some(LONG)),
                Ok(vec![libc::POLLIN]),
                "it has expired"
            );
        }
        if soon {
            std::thread::sleep(self.patience);
        }
    }

    #[allow(clippy::too_many_lines)] // a table
    pub(crate) fn step(&mut self, call: &Call) -> (Outcome, Outcome) {
        let passed = (Outcome::Passed, Outcome::Passed);
        let empty = |world: &mut Self, at: usize| *world.host.at(at) < 0;
        let made = |at: usize| {
            move |on: &mut dyn System, made: Result<i32>| {
                outcome(made, |fd| {
                    *on.at(at) = fd;
                    Outcome::Number(0)
                })
            }
        };
        match *call {
            Call::Epoll { at } if empty(self, at) => self.epolls[at] = true,
            Call::Dup { from, at } if empty(self, at) => self.epolls[at] = self.epolls[from],
            Call::Close { at } => self.epolls[at] = false,
            _ => {}
        }
        let done = |result: Result<()>| outcome(result, |()| Outcome::Number(0));
        match *call {
            Call::Timer { at, clock, flags } if empty(self, at) => {
                self.clocks[at] = clock;
                self.both(|on| {
                    let fd = on.timer(clock, flags);
                    made(at)(on, fd)
                })
            }
            Call::Signals { at, mask, flags } if empty(self, at) => self.both(|on| {
                let fd = on.signals(-1, mask, flags);
                made(at)(on, fd)
            }),
            Call::Epoll { at } if empty(self, at) => self.both(|on| {
                let fd = on.epoll();
                made(at)(on, fd)
            }),
            Call::Place { at } if empty(self, at) => self.both(|on| {
                let fd = on.place();
                made(at)(on, fd)
            }),
            Call::Dup { from, at } if empty(self, at) => {
                self.clocks[at] = self.clocks[from];
                self.both(|on| {
                    let fd = *on.at(from);
                    let fd = on.dup(fd);
                    made(at)(on, fd)
                })
            }
            Call::Pipe { read, write }
                if read != write && empty(self, read) && empty(self, write) =>
            {
                self.both(|on| {
                    outcome(on.pipe(), |[one, other]| {
                        (*on.at(read), *on.at(write)) = (one, other);
                        Outcome::Number(0)
                    })
                })
            }
            Call::Timer { .. }
            | Call::Signals { .. }
            | Call::Epoll { .. }
            | Call::Place { .. }
            | Call::Dup { .. }
            | Call::Pipe { .. } => passed,
            // With -1 it makes one.
            Call::Mask { at, .. } if empty(self, at) => passed,
            Call::Mask { at, mask, flags } => self.both(|on| {
                let fd = *on.at(at);
                outcome(on.signals(fd, mask, flags), |made| Outcome::Number((made != fd).into()))
            }),
            Call::Close { at } => self.both(|on| {
                let fd = std::mem::replace(on.at(at), -1);
                done(on.close(fd))
            }),
            Call::Arm { at, flags, when, every } => self.arm(at, flags, when, every),
            Call::ArmWait { at, nanos, ref how } => self.arm_wait(at, nanos, how),
            Call::Get { at } => self.both(|on| {
                let fd = *on.at(at);
                outcome(on.get(fd), spec)
            }),
            Call::Read { at, .. } if self.would_wait(at) => passed,
            Call::Read { at, ref n } => self.both(|on| {
                let fd = *on.at(at);
                outcome(on.read(fd, n), |read| bytes(on, read))
            }),
            // It would wait for room.
            Call::Write { at, n } if n > 4096 && self.is_blocking(at) => passed,
            Call::Write { at, .. } if self.is_blocking(at) && !self.has(&[(at, libc::POLLOUT)]) => {
                passed
            }
            Call::Write { at, .. } if self.host.pending() != 0 && self.has(&[(at, 0)]) => passed,
            Call::Write { at, n } => self.both(|on| {
                let fd = *on.at(at);
                outcome(on.write(fd, &vec![1; n]), |n| Outcome::Number(n as i64))
            }),
            Call::Other { at, what } => self.both(|on| {
                let fd = *on.at(at);
                outcome(on.other(fd, what), Outcome::Number)
            }),
            Call::Nonblock { at, on } => self.both(|system| {
                let fd = *system.at(at);
                done(system.nonblock(fd, on))
            }),
            Call::Kill { .. } if self.host.pending() & SIGPIPE != 0 => passed,
            Call::Kill { signo } => self.both(|on| done(on.kill(signo))),
            Call::Pending => self.both(|on| Outcome::Number(on.pending() as i64)),
            Call::Control { ep, op, at, events, data } => self.both(|on| {
                let (ep, fd) = (*on.at(ep), *on.at(at));
                done(on.control(ep, op, fd, events, data))
            }),
            Call::Wait { ep, max, timeout } => {
                let time = self.waits(timeout, &[(ep, libc::POLLIN)]);
                self.both(|on| {
                    let ep = *on.at(ep);
                    let least = time.unwrap_or_default();
                    timed(least, nothing, || outcome(on.wait(ep, max, time), Outcome::Events))
                })
            }
            Call::Poll { ref of, timeout } => {
                let time = self.waits(timeout, of);
                self.both(|on| {
                    let of = descriptors(on, of);
                    timed(time.unwrap_or_default(), nothing, || outcome(on.poll(&of, time), told))
                })
            }
            Call::PollMillis { ref of, millis } => {
                let millis = if millis >= 0 || self.has(of) { millis } else { 0 };
                let least = Duration::from_millis(u64::try_from(millis).unwrap_or(0));
                self.both(|on| {
                    let of = descriptors(on, of);
                    timed(least, nothing, || outcome(on.poll_millis(&of, millis), told))
                })
            }
            Call::Select { sets, timeout } => {
                let zero = Some(Duration::ZERO);
                let has = |on: &mut dyn System| {
                    let sets = members(on, sets);
                    let told = on.select(&sets, zero);
                    told.is_ok_and(|told| told.iter().flatten().any(|told| *told))
                };
                has(self.ours);
                let has = has(self.host);
                let time =
                    if has || matches!(timeout, Timeout::Of(_)) { timeout.time() } else { zero };
                self.both(|on| {
                    let sets = members(on, sets);
                    timed(time.unwrap_or_default(), nothing, || {
                        outcome(on.select(&sets, time), chosen)
                    })
                })
            }
        }
    }

    fn arm(&mut self, at: usize, flags: i32, when: When, every: Duration) -> (Outcome, Outcome) {
        let absolute = flags & quietline::TFD_TIMER_ABSTIME != 0;
        let clock_of = self.clocks[at];
        let boot = matches!(clock_of, libc::CLOCK_BOOTTIME | libc::CLOCK_BOOTTIME_ALARM);
        let alarm = matches!(clock_of, libc::CLOCK_REALTIME_ALARM | libc::CLOCK_BOOTTIME_ALARM);
        let real = matches!(clock_of, libc::CLOCK_REALTIME | libc::CLOCK_REALTIME_ALARM);
        let endless = every > Duration::from_secs(1_000_000_000);
        if (boot && absolute && !never_slept())
            || (alarm && matches!(when, When::Never | When::Seconds(_)))
            || (real && endless)
        {
            return (Outcome::Passed, Outcome::Passed);
        }
        let now = match self.clocks[at] {
            libc::CLOCK_REALTIME | libc::CLOCK_REALTIME_ALARM => clock(libc::CLOCK_REALTIME),
            _ => clock(libc::CLOCK_MONOTONIC),
        };
        let new = [when.value(now), every];
        let outcomes = self.both(|on| {
            let fd = *on.at(at);
            outcome(on.set(fd, flags, new), spec)
        });
        if when.is_due() && outcomes.0 == outcomes.1 && matches!(outcomes.0, Outcome::Spec(..)) {
            self.pass(at, !matches!(when, When::PastAt(_) | When::First));
        }
        outcomes
    }

    fn arm_wait(&mut self, at: usize, nanos: u32, how: &How) -> (Outcome, Outcome) {
        if *how == How::Read && !self.is_blocking(at) {
            return (Outcome::Passed, Outcome::Passed);
        }
        let value = Duration::from_nanos(nanos.into());
        let armed = Cell::new(false);
        // Of others none is ready: the call would end at once, with the timer or without. Nor is one an epoll that watches the timer:
        // it may be told a little later that it has expired than who looks at it.
        let ready = |world: &mut Self, place: usize| {
            *world.host.at(place) >= 0 && world.has(&[(place, !0)])
        };
        let quiet = (0..PLACES).filter(|place| !self.epolls[*place] && *place != at);
        let quiet: Vec<_> = quiet.collect();
        let quiet = quiet
            .into_iter()
            .filter(|place| !ready(self, *place))
            .fold(0, |set, at| set | 1u8 << at);
        let outcomes = self.both(|on| {
            let fd = *on.at(at);
            let began = Instant::now();
            if let Err(errno) = on.set(fd, 0, [value, Duration::ZERO]) {
                return Outcome::Failed(errno);
            }
            armed.set(true);
            let waited = match *how {
                How::Read => outcome(on.read(fd, &[8]), Outcome::Bytes),
                How::Poll(ref of) => {
                    let of: Vec<_> =
                        of.iter().copied().filter(|(at, _)| quiet >> at & 1 != 0).collect();
                    let mut of = descriptors(on, &of);
                    of.push((fd, libc::POLLIN));
                    outcome(on.poll(&of, Some(LONG)), told)
                }
                How::Select(sets) => {
                    let mut sets = members(on, sets.map(|set| set & quiet));
                    sets[0].push(fd);
                    outcome(on.select(&sets, Some(LONG)), chosen)
                }
                How::Epoll(events) => {
                    let ep = on.epoll().expect("an epoll");
                    let added = on.control(ep, libc::EPOLL_CTL_ADD, fd, events, 7);
                    // Who does not want to be told is not.
                    let time = if events & 1 != 0 { LONG } else { Duration::from_millis(1) };
                    let events = added.and_then(|()| on.wait(ep, 4, Some(time)));
                    on.close(ep).expect("closed");
                    outcome(events, Outcome::Events)
                }
            };
            let expired = match &waited {
                Outcome::Bytes(_) => true,
                Outcome::Events(events) => events.last().is_some_and(|(found, _)| *found & 1 != 0),
                _ => false,
            };
            if expired && began.elapsed() < value {
                Outcome::Early(Box::new(waited))
            } else {
                waited
            }
        });
        if outcomes.0 == outcomes.1 && armed.get() && !matches!(outcomes.0, Outcome::Bytes(_)) {
            self.pass(at, true);
        }
        outcomes
    }
}
