//! timerfd: time as something that can be read and waited for.
//!
//! # The contended way
//!
//! Each timer is in a tree of its CPU, which every arming and every expiry walks, and an interrupt counts what has expired.
//!
//! # Our way
//!
//! How often a timer has expired is computed from the clock when somebody asks; only to wake those who wait it lies in its CPU's wheel
//! (`raw::timer`), and only until it has rung once: it is put back when it is read.
//!
//! # Guarantees
//!
//! * Counts of expiries are exact, whenever they are read. Times are kept to the nanosecond; a sleeper is woken a microsecond after
//!   its time at the latest, plus what the host needs to run two threads.
//! * What is set, read back, and accumulated when it is not read is as in Linux.
//!
//! # Limits
//!
//! * The host's clocks are read when a timer is set. Should somebody set the wall clock later, an absolute timer of it does not
//!   move; so `TFD_TIMER_CANCEL_ON_SET` is accepted and never has anything to do.
//! * Clocks that count suspended time are the monotonic one.
//! * In a child of a `fork` of the host nobody rings timers: reads that do not wait are right, others sleep until something else
//!   wakes them.
//!
//! # Lock order
//!
//! A timer's lock, a wheel's, the timer's queue.

use crate::abi::{
    CLOCK_BOOTTIME, CLOCK_BOOTTIME_ALARM, CLOCK_MONOTONIC, CLOCK_REALTIME, CLOCK_REALTIME_ALARM,
    O_CLOEXEC, O_NONBLOCK, O_RDWR,
};
use crate::file::{Direction, FileMode, Files, Io, Sink};
use crate::inode::PseudoInode;
use crate::poll::{Events, PollTable};
use crate::raw::handle::FileHandle;
use crate::raw::pseudo::{Payload, PseudoFs};
use crate::raw::timer::{OwnedTimer, Timers, open_timer};
use core::fmt;
use core::time::Duration;
use quietline_platform::clock;
use quietline_sync::{SpinLock, WaitQueue};
use rustix::io::Errno;

/// `timerfd_settime`: the time is one of the clock, not from now.
pub const TFD_TIMER_ABSTIME: i32 = 1;
/// `timerfd_settime`: to be told when somebody sets the clock.
pub const TFD_TIMER_CANCEL_ON_SET: i32 = 2;

/// What a timer is set to (`struct itimerspec`).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ItimerSpec {
    /// From one expiry to the next; zero for a timer that expires once.
    pub interval: Duration,
    /// Until the next; zero for one that is not armed.
    pub value: Duration,
}

/// A timer.
#[derive(Debug)]
pub struct TimerFd {
    /// The clock that it runs by.
    pub clockid: i32,
    state: SpinLock<State>,
    timer: OwnedTimer,
}

/// Times are nanoseconds of the monotonic clock, which may lie before its beginning.
#[derive(Debug, Default)]
struct State {
    /// When it expires next, or has expired and nobody has read it.
    expires: Option<i64>,
    interval: i64,
    /// Expiries that were counted when it was asked for its time, and not read.
    ticks: u64,
}

/// The end of time, from its last whole second on.
fn nanos(time: Duration) -> i64 {
    match time.as_nanos() {
        nanos if time.as_secs() < i64::MAX as u64 / 1_000_000_000 => nanos as i64,
        _ => i64::MAX,
    }
}

fn since(nanos: i64) -> Duration {
    Duration::from_nanos(u64::try_from(nanos).unwrap_or(0))
}

impl State {
    /// Expiries up to `now`, in this round. Those of a timer that goes on move it on.
    fn expire(&mut self, now: i64) -> u64 {
        let Some(expires) = self.expires.filter(|expires| *expires <= now) else { return 0 };
        if self.interval == 0 {
            return 1;
        }
        let times = (now - expires) / self.interval + 1;
        self.expires = Some(expires.saturating_add(times.saturating_mul(self.interval)));
        times as u64
    }

    fn is_expired(&self, now: impl FnOnce() -> i64) -> bool {
        self.ticks != 0 || self.expires.is_some_and(|expires| expires <= now())
    }

    /// What it is set to. One that goes on keeps count of what has expired.
    fn spec(&mut self, now: i64) -> ItimerSpec {
        if self.interval != 0 {
            self.ticks += self.expire(now);
        }
        let left = self.expires.map_or(0, |expires| expires.saturating_sub(now).max(0));
        ItimerSpec { interval: since(self.interval), value: since(left) }
    }
}

impl TimerFd {
    pub(crate) fn new(clockid: i32, timer: OwnedTimer) -> Self {
        Self { clockid, state: SpinLock::new(State::default()), timer }
    }

    /// Now, and a time of its clock, both by the monotonic one. A thread that does not run between two looks at clocks finds the
    /// time late rather than early.
    fn absolute(&self, time: i64) -> (i64, i64) {
        if matches!(self.clockid, CLOCK_REALTIME | CLOCK_REALTIME_ALARM) {
            let ahead = time.saturating_sub(nanos(clock::realtime()));
            let now = nanos(clock::monotonic());
            (now, now.saturating_add(ahead))
        } else {
            (nanos(clock::monotonic()), time)
        }
    }

    /// What `timerfd_settime` says to its flags before anything else.
    ///
    /// # Errors
    /// `EINVAL` for a flag that is unknown.
    pub fn check_flags(flags: i32) -> Result<(), Errno> {
        if flags & !(TFD_TIMER_ABSTIME | TFD_TIMER_CANCEL_ON_SET) != 0 {
            Err(Errno::INVAL)
        } else {
            Ok(())
        }
    }

    /// Whether its clock wakes the system: then only a caller with `CAP_WAKE_ALARM` may set it.
    pub fn wakes(&self) -> bool {
        matches!(self.clockid, CLOCK_REALTIME_ALARM | CLOCK_BOOTTIME_ALARM)
    }

    /// `timerfd_settime`: what it was set to before.
    ///
    /// # Errors
    /// `EINVAL` for a flag that is unknown; `ENOMEM`, and then it is not armed.
    pub fn set(&self, flags: i32, new: ItimerSpec) -> Result<ItimerSpec, Errno> {
        Self::check_flags(flags)?;
        let mut state = self.state.lock();
        self.timer.cancel();
        let value = nanos(new.value);
        let (now, expires) = if flags & TFD_TIMER_ABSTIME == 0 {
            let now = nanos(clock::monotonic());
            (now, now.saturating_add(value))
        } else {
            self.absolute(value)
        };
        let old = state.spec(now);
        let expires = (value != 0).then_some(expires);
        *state = State { expires, interval: nanos(new.interval), ticks: 0 };
        self.ring_at(&mut state, now)?;
        Ok(old)
    }

    /// `timerfd_gettime`.
    pub fn get(&self) -> ItimerSpec {
        let mut state = self.state.lock();
        let now = nanos(clock::monotonic());
        let rings = state.expires;
        let spec = state.spec(now);
        if state.expires != rings {
            self.timer.cancel();
            // It has expired already, and says so whenever it is asked.
            let _ = self.ring_at(&mut state, now);
        }
        spec
    }

    /// Sees to it that those who wait are woken when it expires next.
    fn ring_at(&self, state: &mut State, now: i64) -> Result<(), Errno> {
        let Some(expires) = state.expires else { return Ok(()) };
        if expires <= now {
            self.timer.queue().wake(Events::IN.bits(), 1);
            return Ok(());
        }
        self.timer.arm(since(expires)).map_err(|_| {
            state.expires = None;
            Errno::NOMEM
        })
    }

    fn take(&self) -> Option<u64> {
        let mut state = self.state.lock();
        let now = || nanos(clock::monotonic());
        if !state.is_expired(now) {
            return None;
        }
        let now = now();
        let ticks = core::mem::take(&mut state.ticks) + state.expire(now);
        if state.interval == 0 {
            state.expires = None;
        } else {
            self.timer.cancel();
            // Without memory it is not rung any more; what it counts is right.
            let _ = self.ring_at(&mut state, now);
        }
        Some(ticks)
    }
}

impl Payload for TimerFd {
    const CACHE: &'static str = "timerfd_ctx";
    const WRITES: bool = false;
    const SEEKS: bool = true;
    const CLOSES: bool = true;

    fn inode(&self) -> Option<&PseudoInode> {
        None
    }

    fn name(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("anon_inode:[timerfd]")
    }

    fn try_read(&self, _io: Io, to: &mut Sink<'_, '_>) -> Result<usize, Errno> {
        if to.left() < size_of::<u64>() {
            return Err(Errno::INVAL);
        }
        let ticks = self.take().ok_or(Errno::AGAIN)?;
        Ok(to.put(&ticks.to_ne_bytes()))
    }

    fn poll(&self, _io: Io, table: &mut PollTable<'_>) -> Events {
        table.wait_on(self.timer.queue());
        let expired = self.state.lock().is_expired(|| nanos(clock::monotonic()));
        if expired { Events::IN } else { Events::empty() }
    }

    fn waiters(&self, what: Direction) -> Option<&WaitQueue> {
        (what == Direction::Read).then(|| self.timer.queue())
    }

    fn closed(&self, _mode: FileMode) {
        self.timer.cancel();
    }
}

/// `timerfd_create`.
///
/// # Errors
/// `EINVAL` for a flag or a clock that is unknown; `EPERM` for a clock that wakes the system unless `may_wake`
/// (`CAP_WAKE_ALARM`); `ENFILE`, `ENOMEM`.
#[inline]
pub fn timerfd<'k>(
    fs: &'k PseudoFs<TimerFd>,
    timers: &'k Timers,
    files: &'k Files,
    clockid: i32,
    flags: i32,
    may_wake: impl Fn() -> bool,
) -> Result<FileHandle<'k>, Errno> {
    if flags & !(O_CLOEXEC | O_NONBLOCK) != 0 {
        return Err(Errno::INVAL);
    }
    match clockid {
        CLOCK_REALTIME | CLOCK_MONOTONIC | CLOCK_BOOTTIME => {}
        CLOCK_REALTIME_ALARM | CLOCK_BOOTTIME_ALARM if !may_wake() => return Err(Errno::PERM),
        CLOCK_REALTIME_ALARM | CLOCK_BOOTTIME_ALARM => {}
        _ => return Err(Errno::INVAL),
    }
    open_timer(fs, timers, files, clockid, O_RDWR | (flags & O_NONBLOCK))
}

#[cfg(test)]
mod tests;
