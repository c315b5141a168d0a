//! Parking by futex: wait while a word has a value, wake those who wait on it.

#[cfg(quietline_sim)]
use crate::atomic::{AtomicU32, Ordering};
#[cfg(not(quietline_sim))]
use core::sync::atomic::AtomicU32;
use std::time::Duration;

/// Sleeps while `*word == expect`, until woken or until `timeout` has passed. May return early without cause:
/// the caller checks its condition again. An interrupting signal is such a cause.
///
/// Writes no line; the kernel hashes the word's address.
pub fn wait(word: &AtomicU32, expect: u32, timeout: Option<Duration>) {
    #[cfg(quietline_sim)]
    if crate::sim::running() {
        // Relaxed: as the kernel looks. No other virtual CPU runs between the look and the sleep.
        if word.load(Ordering::Relaxed) == expect {
            crate::sim::with(|machine| machine.wait(word.as_ptr().addr(), timeout));
        }
        return;
    }
    let ts = timeout.map(|t| libc::timespec {
        tv_sec: t.as_secs().min(i64::MAX as u64) as _,
        tv_nsec: t.subsec_nanos() as libc::c_long,
    });
    let ts_ptr = ts.as_ref().map_or(core::ptr::null(), |t| t as *const libc::timespec);
    // SAFETY: the word outlives the call, the timespec (or null) too; FUTEX_WAIT only reads both.
    unsafe {
        libc::syscall(
            libc::SYS_futex,
            word.as_ptr(),
            libc::FUTEX_WAIT | libc::FUTEX_PRIVATE_FLAG,
            expect,
            ts_ptr,
        );
    }
}

/// Wakes up to `n` threads that wait on `word`.
pub fn wake(word: &AtomicU32, n: u32) {
    wake_raw(word.as_ptr(), n);
}

/// [`wake`] by address, for a waiter whose word may be gone by now: a wake-up on a reused address is a
/// wake-up without cause, which every waiter must bear anyhow.
#[allow(clippy::not_unsafe_ptr_arg_deref)] // the address is a key; nobody follows it
pub fn wake_raw(word: *const u32, n: u32) {
    #[cfg(quietline_sim)]
    if crate::sim::with(|machine| machine.wake(word.addr(), n)).is_some() {
        return;
    }
    // SAFETY: FUTEX_WAKE does not read the word; the address is only a key.
    unsafe {
        libc::syscall(
            libc::SYS_futex,
            word,
            libc::FUTEX_WAKE | libc::FUTEX_PRIVATE_FLAG,
            n.min(i32::MAX as u32),
        );
    }
}
