//! Clocks.

use std::time::Duration;

/// Reads a clock; in a simulation, that of the machine.
#[inline]
fn read_simulated(clock: libc::clockid_t) -> Duration {
    #[cfg(quietline_sim)]
    if let Some(now) = crate::sim::with(|machine| machine.now()) {
        return now;
    }
    read(clock)
}

#[inline]
fn read(clock: libc::clockid_t) -> Duration {
    let mut ts = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: ts is valid for writing; these clocks exist on every Linux.
    unsafe { libc::clock_gettime(clock, &mut ts) };
    Duration::new(ts.tv_sec as u64, ts.tv_nsec as u32)
}

/// Time since boot that never goes backwards.
pub fn monotonic() -> Duration {
    read_simulated(libc::CLOCK_MONOTONIC)
}

/// The time of day, since 1970, as of the host's last tick: some milliseconds old, and cheap.
#[inline]
pub fn realtime_coarse() -> Duration {
    read_simulated(libc::CLOCK_REALTIME_COARSE)
}

/// The time of day, since 1970, to the nanosecond.
pub fn realtime() -> Duration {
    read_simulated(libc::CLOCK_REALTIME)
}

/// CPU time that the calling thread has used.
pub fn thread_cpu() -> Duration {
    read(libc::CLOCK_THREAD_CPUTIME_ID)
}
