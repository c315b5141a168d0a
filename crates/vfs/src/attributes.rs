//! Times of files: which change when, and what the time is.
//!
//! # The problem
//!
//! Every change of a file takes the time. A clock that is right to the nanosecond costs as much as looking up a path;
//! a clock that ticks every few milliseconds is nearly free, but then two changes within a tick look like one, and who
//! looked in between believes to have the latest.
//!
//! # Our way
//!
//! The tick's time is used, unless somebody has been told of the last change and the next one falls into the same
//! tick: only then the exact time is taken, and from then on no file of the kernel gets an earlier one (the floor), so
//! that times never contradict the order in which things were done.
//!
//! # Source
//!
//! `kernel/time/timekeeping.c` and `fs/inode.c`, Linux 6.13 (multigrain timestamps); `utimensat(2)`, `mount(8)` for
//! `relatime`.

use crate::abi::{Timespec, UTIME_NOW, UTIME_OMIT};
use crate::cred::Cred;
use crate::permission::{Mask, Ownership};
use core::time::Duration;
use quietline_platform::atomic::{AtomicU64, Ordering};
use quietline_platform::clock;
use rustix::io::Errno;

/// A kernel's time of day, for files.
#[derive(Debug)]
pub struct FileClock {
    /// No file has got a time later than this, but for the host's ticks. Nanoseconds since 1970.
    floor: AtomicU64,
}

impl Default for FileClock {
    fn default() -> Self {
        Self::new()
    }
}

impl FileClock {
    /// A clock that has told no time yet.
    pub fn new() -> Self {
        Self { floor: AtomicU64::new(0) }
    }

    /// The time for a change. Writes no line; reads one that is seldom written.
    #[inline]
    pub fn now(&self) -> Timespec {
        let tick = clock::realtime_coarse();
        // Relaxed: a number; whoever must not get an earlier time than another thread has heard of it by other means.
        let floor = self.floor.load(Ordering::Relaxed);
        if tick.as_nanos() as u64 >= floor {
            timespec(tick)
        } else {
            timespec(Duration::from_nanos(floor))
        }
    }

    /// The time for a change that must be later than `told`, which somebody has seen.
    pub fn after(&self, told: Timespec) -> Timespec {
        let now = self.now();
        if now > told { now } else { self.exactly() }
    }

    /// The exact time, which becomes the floor.
    #[cold]
    fn exactly(&self) -> Timespec {
        let now = clock::realtime().as_nanos() as u64;
        // Relaxed: as in `now`.
        let before = self.floor.fetch_max(now, Ordering::Relaxed);
        timespec(Duration::from_nanos(now.max(before)))
    }
}

fn timespec(since: Duration) -> Timespec {
    Timespec { tv_sec: since.as_secs() as i64, tv_nsec: since.subsec_nanos().into() }
}

/// A day, in seconds.
const DAY: i64 = 24 * 60 * 60;

/// Whether a read at `now` changes the time of access: when a change came after the last one, or it is a day old
/// (`relatime`).
#[inline]
pub fn access_counts(atime: Timespec, mtime: Timespec, ctime: Timespec, now: Timespec) -> bool {
    atime <= mtime || atime <= ctime || now.tv_sec - atime.tv_sec >= DAY
}

/// How a time is to be set.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SetTime {
    /// Not at all.
    Omit,
    /// To the time of the call.
    Now,
    /// To this one.
    To(Timespec),
}

impl SetTime {
    /// What one of `utimensat`'s times means.
    ///
    /// # Errors
    /// `EINVAL` for nanoseconds that are none.
    pub fn of(time: Timespec) -> Result<Self, Errno> {
        match time.tv_nsec {
            UTIME_NOW => Ok(Self::Now),
            UTIME_OMIT => Ok(Self::Omit),
            0..1_000_000_000 => Ok(Self::To(time)),
            _ => Err(Errno::INVAL),
        }
    }

    /// The time, if it is to be set.
    pub fn resolve(self, now: Timespec) -> Option<Timespec> {
        match self {
            Self::Omit => None,
            Self::Now => Some(now),
            // At the ends of time there are no nanoseconds.
            Self::To(Timespec { tv_sec: tv_sec @ (i64::MIN | i64::MAX), .. }) => {
                Some(Timespec { tv_sec, tv_nsec: 0 })
            }
            Self::To(time) => Some(time),
        }
    }
}

/// Whether somebody may set a file's times so: who may write it may set both to now; its owner, to anything.
///
/// # Errors
/// `EACCES`, `EPERM`.
pub fn may_set_times(of: Ownership, cred: &Cred, times: [SetTime; 2]) -> Result<(), Errno> {
    if times == [SetTime::Now; 2] {
        return if of.owned_by(cred) { Ok(()) } else { of.permits(cred, Mask::WRITE) };
    }
    if of.owned_by(cred) { Ok(()) } else { Err(Errno::PERM) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::abi::S_IFREG;

    fn at(tv_sec: i64, tv_nsec: i64) -> Timespec {
        Timespec { tv_sec, tv_nsec }
    }

    #[test]
    fn a_change_after_one_that_was_told_is_later() {
        let clock = FileClock::new();
        let mut last = clock.now();
        for _ in 0..1000 {
            let next = clock.after(last);
            assert!(next > last, "{next:?} after {last:?}");
            assert!(clock.now() >= next, "no file gets an earlier time from now on");
            last = next;
        }
        assert!(last.tv_sec > 1_700_000_000 && last.tv_nsec < 1_000_000_000);
    }

    #[test]
    fn reads_leave_a_time_now_and_then() {
        let (old, new) = (at(1000, 5), at(1000, 6));
        assert!(access_counts(old, new, old, new), "written since");
        assert!(access_counts(old, old, old, new), "at the same time");
        assert!(!access_counts(new, old, old, new));
        assert!(access_counts(new, old, old, at(1000 + DAY, 0)));
    }

    #[test]
    fn who_may_set_times() {
        let file = Ownership { mode: S_IFREG | 0o602, uid: 1, gid: 1 };
        let (owner, other, root) = (Cred::new(1, 1), Cred::new(2, 2), Cred::new(0, 0));
        let (now, some) = ([SetTime::Now; 2], [SetTime::Now, SetTime::To(at(0, 0))]);
        assert_eq!(may_set_times(file, &other, now), Ok(()), "may write");
        assert_eq!(may_set_times(file, &other, some), Err(Errno::PERM));
        assert_eq!(may_set_times(file, &Cred::new(3, 1), now), Err(Errno::ACCESS));
        assert!([&owner, &root].into_iter().all(|cred| may_set_times(file, cred, some).is_ok()));
        assert_eq!(SetTime::of(at(7, 1_000_000_000)), Err(Errno::INVAL));
        assert_eq!(SetTime::of(at(7, UTIME_OMIT)).unwrap().resolve(at(9, 9)), None);
    }
}
