//! The sim back end: N virtual CPUs on one thread, every access to a shared word an event of a model.
//!
//! The native names, each with a hook. What the hook does is said by a [`Machine`], which this crate defines and somebody
//! else brings (`lab/sim`; the product never names it). While none is installed on the calling thread, every
//! access is what it is natively, free and silent: so code that sets a scene, and whatever other threads of the process
//! do, needs no care.
//!
//! ```text
//!   product code --- atomic, cell, hint, futex, percpu ---> Machine::access, pause, wait, ...
//!                                                              |  (lab/sim)
//!                                                  prices it, and lets whoever is earliest go on
//! ```
//!
//! # Limits
//!
//! * Execution is sequentially consistent: what weaker orders allow is loom's matter, not this back end's.
//! * Memory that is neither atomic nor in a [`cell`] is not seen.
//! * `pages`, `heap` and `fork` cost nothing in the model. Pages, and in a scene [what is allocated](heap), lie at the same
//!   addresses in every run.
//! * The virtual CPUs are those that the machine was given: [`thread::spawn`] makes a thread outside it.

mod atomics;
pub(crate) mod cpu;
pub mod heap;
mod local;
mod machine;
mod names;
pub(crate) mod percpu;
mod place;

pub use local::{LocalKey, Values};
pub use machine::{Access, Installed, Machine, Place, install, running};
pub use names::{Name, forget_names, name, name_of};

pub use crate::percpu::chunk::owner_of;
pub use cpu::set_cpus;
pub(crate) use machine::with;
pub(crate) use place::hint_for;

/// Atomic integers, pointers and fences.
pub mod atomic {
    pub use super::atomics::{
        AtomicBool, AtomicI64, AtomicPtr, AtomicU8, AtomicU16, AtomicU32, AtomicU64, AtomicUsize,
        fence,
    };
    pub use core::sync::atomic::{Ordering, compiler_fence};
}

/// Hints to the processor.
pub mod hint {
    use super::machine::{Access, Place, with};

    /// A turn of a spin loop. In a simulation it waits until something that the caller has read since its last turn
    /// changes.
    #[inline]
    #[track_caller]
    pub fn spin_loop() {
        if with(|machine| machine.pause()).is_none() {
            core::hint::spin_loop();
        }
    }

    /// Begins to fetch the line of an address into this CPU's cache. Never faults, whatever the address.
    #[inline]
    #[track_caller]
    pub fn prefetch(address: *const u8) {
        with(|machine| machine.access(Place::of(address.addr(), 1), Access::Prefetch));
    }

    /// Begins to fetch the line of an address into this CPU's cache, and to take it from all others: for one who is about to
    /// write it, and would look at it first. Never faults, whatever the address.
    #[inline]
    #[track_caller]
    pub fn prefetch_write(address: *const u8) {
        with(|machine| machine.access(Place::of(address.addr(), 1), Access::PrefetchWrite));
    }
}

/// Threads.
pub mod thread {
    pub use std::thread::{JoinHandle, current, panicking, park, spawn};

    /// Offers the CPU to others; in a simulation, as [`spin_loop`](super::hint::spin_loop).
    #[track_caller]
    pub fn yield_now() {
        if super::machine::with(|machine| machine.pause()).is_none() {
            std::thread::yield_now();
        }
    }
}

/// Thread-local storage, one value for each virtual CPU.
pub use crate::sim_thread_local as thread_local;

/// Charges the calling CPU of a simulation for work that touches no memory, such as a hash of a
/// value that it has.
pub fn compute(cycles: u64) {
    machine::with(|machine| machine.compute(cycles));
}

/// Runs `f` under the model checker where there is one; here, once.
pub fn model(f: impl Fn() + Sync + Send + 'static) {
    f();
}
