//! The native back end: the machine itself.

/// Atomic integers, pointers and fences.
pub mod atomic {
    pub use core::sync::atomic::{
        AtomicBool, AtomicI64, AtomicPtr, AtomicU8, AtomicU16, AtomicU32, AtomicU64, AtomicUsize,
        Ordering, compiler_fence, fence,
    };
}

pub(crate) mod cpu;
pub(crate) mod percpu;

/// Hints to the processor.
pub mod hint {
    pub use core::hint::spin_loop;

    /// Begins to fetch the line of an address into this CPU's cache. Never faults, whatever the address.
    #[inline(always)]
    pub fn prefetch(address: *const u8) {
        #[cfg(all(target_arch = "x86_64", not(miri)))]
        // SAFETY: a hint; SSE is part of x86_64.
        unsafe {
            core::arch::x86_64::_mm_prefetch::<{ core::arch::x86_64::_MM_HINT_T0 }>(address.cast())
        };
        #[cfg(all(target_arch = "aarch64", not(miri)))]
        // SAFETY: a hint: it changes no register and no memory.
        unsafe {
            core::arch::asm!("prfm pldl1keep, [{}]", in(reg) address, options(nostack, preserves_flags, readonly))
        };
        #[cfg(any(miri, not(any(target_arch = "x86_64", target_arch = "aarch64"))))]
        let _ = address;
    }

    /// Begins to fetch the line of an address into this CPU's cache, and to take it from all others: for one who is about to
    /// write it, and would look at it first. Never faults, whatever the address.
    #[inline(always)]
    pub fn prefetch_write(address: *const u8) {
        // Not by the intrinsic, which is a fetch for reading unless the compiler is told that the CPU has this one. Those
        // that do not have it do nothing.
        #[cfg(all(target_arch = "x86_64", not(miri)))]
        // SAFETY: a hint: it changes no register and no memory.
        unsafe {
            core::arch::asm!("prefetchw [{}]", in(reg) address, options(nostack, preserves_flags, readonly))
        };
        #[cfg(all(target_arch = "aarch64", not(miri)))]
        // SAFETY: as above.
        unsafe {
            core::arch::asm!("prfm pstl1keep, [{}]", in(reg) address, options(nostack, preserves_flags, readonly))
        };
        #[cfg(any(miri, not(any(target_arch = "x86_64", target_arch = "aarch64"))))]
        let _ = address;
    }
}

/// Threads.
pub mod thread {
    pub use std::thread::{
        Builder, JoinHandle, Thread, current, panicking, park, park_timeout, spawn, yield_now,
    };
}

/// Thread-local storage.
pub use std::thread_local;

/// Runs `f` under the model checker where there is one; here, once.
pub fn model(f: impl Fn() + Sync + Send + 'static) {
    f();
}
