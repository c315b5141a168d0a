//! The only crate of quietline that knows the machine.
//!
//! # The problem
//!
//! Code that must not touch a contended cache line has to know which CPU it runs on, and has to change that
//! CPU's data without a locked instruction. Code that must be *proved* not to touch one has to run on machines
//! that do not exist: under a model checker, or on a hundred simulated CPUs. Both needs meet in one place.
//!
//! # The contended way
//!
//! A program that imports `core::sync::atomic` directly can neither be model-checked nor simulated, and a
//! program that keeps "per-thread" data by thread-local storage pays for threads instead of CPUs: data of idle
//! threads, registration of every thread, destructors when they vanish.
//!
//! # Our way
//!
//! Everything above this crate takes its atomics, cells, spin hints, threads, CPU numbers, per-CPU operations,
//! pages, parking and clocks from here. One back end stands behind these names, chosen when the crate is built:
//!
//! ```text
//!      quietline-sync, quietline-slab, quietline-vfs, ...
//!                          |
//!      atomic  cell  hint  thread  cpu  percpu               the swapped names
//!                          |
//!        +-----------------+--------------------+
//!      native            model                 sim
//!      Linux, rseq       loom                 N virtual CPUs
//!                          |
//!      pages  clock  random                                  native, and sim with virtual time and known numbers
//!      futex  fork  membarrier  heap  fault                  the same everywhere
//! ```
//!
//! * **native** — `core`'s atomics; per-CPU operations as restartable sequences ([`percpu`]), or, where the
//!   kernel offers none, as short locked sections on per-CPU slots.
//! * **model** — built by `RUSTFLAGS="--cfg loom"`: loom explores every interleaving. A per-CPU operation is one
//!   indivisible step on one CPU, which is what a restartable sequence promises.
//! * **sim** — built by `RUSTFLAGS="--cfg quietline_sim"`: each access to a word that CPUs may share is told to a machine
//!   model, which prices it and decides which of N virtual CPUs goes on.
//!
//! # Guarantees
//!
//! * A per-CPU operation happens entirely on one CPU or not at all, also across preemption, migration and
//!   signals, and for threads that this library has never seen.
//! * Every allocation that can fail says so by [`AllocError`], every fence by [`FenceError`].
//! * After `fork` the child may use everything at once: locks are taken across the fork, and per-CPU operations of
//!   the parent's other threads have happened in the child's copy, or have not.
//!
//! # Limits
//!
//! * Linux only. Restartable sequences on x86_64 and aarch64; elsewhere the fallback.
//! * Threads made by a raw `clone` that shares memory but gives no thread-local storage are not supported.
//!
//! # Lock order
//!
//! The page allocator's lock and the per-CPU allocator's lock are leaves: nothing is called while they are held,
//! except that the per-CPU allocator maps a chunk.

#[cfg(all(loom, quietline_sim))]
compile_error!("choose one back end: --cfg loom or --cfg quietline_sim");

#[cfg(not(any(loom, quietline_sim)))]
#[path = "native/mod.rs"]
mod backend;
#[cfg(loom)]
#[path = "model/mod.rs"]
mod backend;
#[cfg(quietline_sim)]
pub mod sim;
#[cfg(quietline_sim)]
use sim as backend;

#[cfg(not(loom))]
pub mod cell;
#[cfg(not(loom))]
pub mod clock;
pub mod cpu;
mod error;
pub mod fault;
pub mod fork;
pub mod futex;
pub mod heap;
pub mod membarrier;
pub mod memory;
mod name_words;
#[cfg(not(loom))]
pub mod pages;
pub mod percpu;
pub mod random;

#[cfg(loom)]
pub use backend::cell;
pub use backend::{atomic, hint, model, thread, thread_local};
pub use error::{AllocError, FenceError};
#[cfg(loom)]
#[doc(hidden)]
pub use loom;

/// A function that is `const`, except under loom, whose atomics have no `const` constructors.
#[cfg(not(loom))]
#[macro_export]
macro_rules! const_unless_loom {
    ($(#[$attribute:meta])* $visible:vis fn $($rest:tt)*) => {
        $(#[$attribute])* $visible const fn $($rest)*
    };
}

/// A function that is `const`, except under loom, whose atomics have no `const` constructors.
#[cfg(loom)]
#[macro_export]
macro_rules! const_unless_loom {
    ($($function:tt)*) => { $($function)* };
}
