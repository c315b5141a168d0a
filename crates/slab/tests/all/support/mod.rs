//! What the tests share.

use quietline_platform::fault;
use std::ptr::NonNull;
use std::time::Duration;

/// xorshift64*: a seed gives the same sequence everywhere.
pub(crate) struct Random(u64);

impl Random {
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1)
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_F491_4F6C_DD1D)
    }

    pub(crate) fn below(&mut self, n: usize) -> usize {
        (self.next() % n as u64) as usize
    }
}

/// CPUs that this thread may use.
pub(crate) fn allowed_cpus() -> Vec<usize> {
    // SAFETY: plain calls on a set of our own.
    unsafe {
        let mut set: libc::cpu_set_t = core::mem::zeroed();
        assert_eq!(libc::sched_getaffinity(0, size_of_val(&set), &mut set), 0);
        (0..libc::CPU_SETSIZE as usize).filter(|&cpu| libc::CPU_ISSET(cpu, &set)).collect()
    }
}

/// Puts this thread on one CPU.
pub(crate) fn pin(cpu: usize) {
    // SAFETY: plain calls on a set of our own.
    unsafe {
        let mut set: libc::cpu_set_t = core::mem::zeroed();
        libc::CPU_SET(cpu, &mut set);
        assert_eq!(libc::sched_setaffinity(0, size_of_val(&set), &set), 0);
    }
}

/// Calls `f` with its first allocation failing, then its second, until it needs no more; how many failed.
pub(crate) fn each_fault(mut f: impl FnMut(bool)) -> u64 {
    for n in 1.. {
        fault::fail_nth(n);
        f(true);
        let done = fault::armed();
        fault::fail_nth(0);
        f(false);
        if done {
            return n - 1;
        }
    }
    unreachable!()
}

pub(crate) fn fill(object: NonNull<u8>, size: usize, byte: u8) {
    // SAFETY: callers own the object, which has that size.
    unsafe { object.write_bytes(byte, size) };
}

pub(crate) fn is_filled(object: NonNull<u8>, size: usize, byte: u8) -> bool {
    // SAFETY: as above, and filled before.
    (0..size).all(|i| unsafe { object.add(i).read() } == byte)
}

/// Objects on their way to another thread.
#[derive(Default)]
pub(crate) struct Parcel(pub(crate) Vec<Option<NonNull<u8>>>);

// SAFETY: whoever sends objects gives them away.
unsafe impl Send for Parcel {}

/// Returns the duration of a stress test: `QUIETLINE_STRESS_MILLIS`, or the default times
/// `QUIETLINE_TEST_SCALE`.
pub(crate) fn stress_time(default_millis: u64) -> Duration {
    Duration::from_millis(quietline_testing::budget("QUIETLINE_STRESS_MILLIS", default_millis))
}

/// Returns the rounds of a stress test: `QUIETLINE_STRESS_ROUNDS`, or the default times
/// `QUIETLINE_TEST_SCALE`.
pub(crate) fn stress_rounds(default: u64) -> usize {
    quietline_testing::budget("QUIETLINE_STRESS_ROUNDS", default) as usize
}

/// Sets the flag when it goes, also by a panic: threads of a scope that watch it end.
pub(crate) struct Stop<'a>(pub(crate) &'a std::sync::atomic::AtomicBool);

impl Drop for Stop<'_> {
    fn drop(&mut self) {
        self.0.store(true, std::sync::atomic::Ordering::Relaxed);
    }
}
