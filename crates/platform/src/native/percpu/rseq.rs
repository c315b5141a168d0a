//! The restartable bodies, one file for each architecture, and what the architectures share.
//!
//! Each body follows its contract in [`Words`](crate::percpu::Words).

/// Instructions that only tests execute.
#[cfg(not(test))]
macro_rules! in_tests {
    ($text:expr) => {
        ""
    };
}
#[cfg(test)]
macro_rules! in_tests {
    ($text:expr) => {
        $text
    };
}

/// A sequence's text with its operands, and in brackets those that only tests have.
#[cfg(not(test))]
macro_rules! sequence_asm {
    ([$($of_tests:tt)*] $text:expr, $($operands:tt)*) => {
        // SAFETY: the sequence accesses the words of one CPU, and what its caller's contract names.
        unsafe { core::arch::asm!($text, $($operands)*, options(nostack)) }
    };
}
#[cfg(test)]
macro_rules! sequence_asm {
    ([$($of_tests:tt)*] $text:expr, $($operands:tt)*) => {
        // SAFETY: as above; the tests' words are the tests' own.
        unsafe {
            core::arch::asm!(
                $text, $($operands)*, $($of_tests)* delay = out(reg) _,
                turns = sym super::inject::DELAY, aborts = sym super::inject::ABORTS,
                options(nostack)
            )
        }
    };
}

#[cfg_attr(target_arch = "x86_64", path = "rseq_x86_64.rs")]
#[cfg_attr(target_arch = "aarch64", path = "rseq_aarch64.rs")]
mod arch;

pub(crate) use arch::*;

/// The field offsets of a sheaf, for the assembly.
mod field {
    pub(super) use crate::percpu::sheaf::{CAPACITY, SLOTS};
    const _: () = assert!(crate::percpu::sheaf::LEN == 0);
}

/// Delays inside the sequences, so that tests can make an interruption there likely.
#[cfg(test)]
pub(crate) mod inject {
    use core::sync::atomic::{AtomicU32, AtomicU64, Ordering};

    /// Turns of an empty loop at each of the two injection points of a sequence: after the CPU
    /// number was read, and before the commit.
    pub(super) static DELAY: AtomicU32 = AtomicU32::new(0);

    /// Sequences that were restarted.
    pub(super) static ABORTS: AtomicU64 = AtomicU64::new(0);

    /// Sets the delay for all threads.
    pub(crate) fn set_delay(turns: u32) {
        // Relaxed, so below: numbers that order nothing.
        DELAY.store(turns, Ordering::Relaxed);
    }

    /// Returns the number of sequences restarted so far, in all threads.
    pub(crate) fn aborts() -> u64 {
        ABORTS.load(Ordering::Relaxed)
    }
}
