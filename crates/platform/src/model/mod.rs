//! The model back end: loom explores every interleaving that the memory model allows.

/// Atomic integers, pointers and fences, as loom models them.
pub mod atomic {
    pub use loom::sync::atomic::{
        AtomicBool, AtomicI64, AtomicPtr, AtomicU8, AtomicU16, AtomicU32, AtomicU64, AtomicUsize,
        Ordering, fence,
    };

    /// A compiler fence. On the native back end it is one half of an asymmetric pair whose other half is
    /// `membarrier`; loom knows no such pair, so here it is the full fence that the pair amounts to.
    pub fn compiler_fence(_order: Ordering) {
        fence(Ordering::SeqCst);
    }
}

/// Cells whose accesses loom watches.
pub mod cell {
    pub use loom::cell::UnsafeCell;
}

pub(crate) mod cpu;
pub(crate) mod percpu;

/// Hints to the processor; here, to loom's scheduler.
pub mod hint {
    pub use loom::hint::spin_loop;

    /// Nothing: no result depends on it.
    pub fn prefetch_write(_address: *const u8) {}
}

/// Threads.
pub mod thread {
    pub use loom::thread::{JoinHandle, current, park, spawn, yield_now};
}

/// Thread-local storage, in the form that loom has: no `const` initialisers.
pub use loom::thread_local;

/// Explores every interleaving of the threads that `f` spawns.
pub fn model(f: impl Fn() + Sync + Send + 'static) {
    loom::model(f);
}
