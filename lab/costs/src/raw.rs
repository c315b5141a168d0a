//! Unsafe parts: a type whose memory stays typed while readers look at it, planted instructions,
//! and what only the C library tells.

#![allow(unsafe_code)]

use quietline_slab::{Counted, Typesafe};
use quietline_sync::FileRef;

/// Reference-counted object of 192 bytes for a typesafe cache.
pub(crate) struct Session {
    references: FileRef,
    _bytes: [u64; 23],
}

// SAFETY: there is no LINK_OFFSET.
unsafe impl Typesafe for Session {
    fn construct() -> Self {
        Self { references: FileRef::dead(), _bytes: [7; 23] }
    }
}

// SAFETY: the count is dead until the first life, and nothing but the cache's handles changes it.
unsafe impl Counted for Session {
    fn references(&self) -> &FileRef {
        &self.references
    }
}

/// Executes `n` instructions, and some more for the loop.
#[inline(always)]
pub(crate) fn execute(n: u32) {
    for _ in 0..n {
        // SAFETY: does nothing.
        unsafe { core::arch::asm!("nop", options(nomem, nostack, preserves_flags)) };
    }
}

/// Executes a fence instruction.
#[inline(always)]
pub(crate) fn fence() {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: touches no memory.
    unsafe {
        core::arch::asm!("mfence", options(nostack, preserves_flags));
    }
}

/// Enters the kernel once.
pub(crate) fn system_call() {
    // SAFETY: takes no argument and cannot fail.
    core::hint::black_box(unsafe { libc::getppid() });
}

/// Calls a library function that stays in user space.
pub(crate) fn library_call() {
    // SAFETY: takes a number.
    core::hint::black_box(unsafe { libc::toupper(core::hint::black_box(97)) });
}

/// Returns the bytes that the C library's allocator has handed out.
#[cfg(all(target_arch = "x86_64", not(quietline_sim)))]
pub(crate) fn bytes_in_use() -> usize {
    // SAFETY: takes no argument.
    unsafe { libc::mallinfo2() }.uordblks
}

/// Gives programs that this process starts addresses that are not random. Returns `false` if the
/// system refuses.
#[cfg(all(target_arch = "x86_64", not(quietline_sim)))]
pub(crate) fn fix_addresses() -> bool {
    const ASK: libc::c_ulong = 0xffff_ffff;
    // SAFETY: personality takes a number, and changes only how programs are laid out that are
    // started later.
    let now = unsafe { libc::personality(ASK) };
    // SAFETY: as above.
    now >= 0 && unsafe { libc::personality((now | libc::ADDR_NO_RANDOMIZE) as _) } >= 0
}
