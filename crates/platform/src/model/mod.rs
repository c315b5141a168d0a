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

/// Thread-local storage. `const` initialisers are computed at the first use.
pub use crate::model_thread_local as thread_local;

/// `loom::thread_local` with the forms of the standard library.
#[macro_export]
#[doc(hidden)]
macro_rules! model_thread_local {
    ($($(#[$attribute:meta])* $visible:vis static $name:ident: $type:ty = const $make:block;)+) => {
        $crate::loom::thread_local! { $($(#[$attribute])* $visible static $name: $type = $make;)+ }
    };
    ($($rest:tt)+) => { $crate::loom::thread_local! { $($rest)+ } };
}

/// Explores every interleaving of the threads that `f` spawns.
pub fn model(f: impl Fn() + Sync + Send + 'static) {
    loom::model(f);
}
