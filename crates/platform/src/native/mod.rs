//! The native back end: the machine itself.

/// Atomic integers, pointers and fences.
pub mod atomic {
    pub use core::sync::atomic::{
        AtomicBool, AtomicI64, AtomicPtr, AtomicU8, AtomicU16, AtomicU32, AtomicU64, AtomicUsize, Ordering,
        compiler_fence, fence,
    };
}

/// Cells whose accesses a model checker can see.
pub mod cell;

pub(crate) mod cpu;
pub(crate) mod percpu;

/// Hints to the processor.
pub mod hint {
    pub use core::hint::spin_loop;
}

/// Threads.
pub mod thread {
    pub use std::thread::{JoinHandle, current, park, spawn, yield_now};
}

/// Thread-local storage.
pub use std::thread_local;

/// Runs `f` under the model checker where there is one; here, once.
pub fn model(f: impl Fn() + Sync + Send + 'static) {
    f();
}
