//! Per-CPU data, counters, ids, RCU, locks and reference counts.
//!
//! # The problem
//!
//! Threads that use different objects still meet: in the statistics that count the objects, in the number that
//! names the next one, in the lock around the table that holds them, in the count of references to what they have
//! in common. Each meeting is a cache line that travels between CPUs, and costs as much as a hundred instructions.
//!
//! # The contended way
//!
//! One atomic word for each of these: `COUNT.fetch_add(1)`, `NEXT_ID.fetch_add(1)`, a mutex around the object, an
//! `Arc` to share it. It is right, and it is slower with every CPU that is added.
//!
//! # Our way
//!
//! What can be split among the CPUs is split; what cannot be is changed by one instruction that always succeeds;
//! readers write nothing.
//!
//! ```text
//!      split among CPUs        one word, shared            readers write nothing
//!      ----------------        ----------------            ---------------------
//!      PerCpu                  Lockref                     rcu
//!      Counter                 FileRef                     Seqcount
//!      PerCpuShared            Shared                      Once
//!      IdAllocator             SpinLock
//!                              WaitQueue
//!           \                      |                            /
//!            quietline-platform: per-CPU words, atomics, futex, membarrier
//! ```
//!
//! | primitive | hot operation | locked instructions | shared lines written |
//! |---|---|---|---|
//! | [`Counter`] | `add` within the batch | 0 | 0 |
//! | [`IdAllocator`] | `next` within the batch | 0 | 0 |
//! | [`Lockref`] | `get`, `put_return` | 1 | the word's |
//! | [`FileRef`] | `get`, `put` | 1 | the word's |
//! | [`Shared`] | `clone`, drop | 1 | the count's |
//! | [`PerCpuShared`] | `share`, drop of an owner on its CPU | 1 | 0 |
//! | [`Once`] | `get` | 0 | 0 |
//! | [`Seqcount`] | a read section | 0 | 0 |
//! | [`rcu::Pointer`] | `load` in a section | 0 | 0 |
//! | [`SpinLock`] | `lock` and unlock, nobody waiting | 1 | the lock's |
//! | [`WaitQueue`] | `wake_ordered`, `wake_exchanged`, nobody waiting | 0 | 0 |
//!
//! # Guarantees
//!
//! * A count is exact when nobody changes it; how far off it may be meanwhile is stated and bounded.
//! * Of all who put references to an object exactly one learns that it was the last.
//! * Nobody waits for a thread that has lost its CPU, but for the holder of a lock and those ahead in its queue.
//! * Whatever allocates says so by [`AllocError`](quietline_platform::AllocError); nothing else allocates.
//!
//! # Limits
//!
//! * No primitive but the fast paths of [`Counter`] and [`IdAllocator`] and the loads of a count may be used in
//!   a signal handler that may have interrupted the same primitive.
//! * Locks are not recursive and know no priorities.
//! * Across `fork`: the locks of [`Counter`], [`IdAllocator`] and [`rcu::Domain`] are held. A [`SpinLock`] is its owner's
//!   to register ([`Registered`](quietline_platform::fork::Registered)). A [`Lockref`] that another thread holds locked
//!   at that moment stays locked in the child.
//!
//! # Lock order
//!
//! The locks inside [`Counter`] and [`IdAllocator`] are leaves: only per-CPU operations run while they are held. A
//! [`SpinLock`] and the lock of a [`Lockref`] have the order that their owners give them; neither takes another lock
//! while it waits.

mod backoff;
mod counter;
mod file_ref;
mod id_allocator;
mod lazy_box;
#[cfg(all(feature = "lock-times", not(any(loom, quietline_sim))))]
pub mod lock_times;
mod lockref;
mod might_sleep;
mod once;
mod percpu;
mod percpu_shared;
pub mod rcu;
mod seqcount;
mod shared;
mod spinlock;
mod wait_queue;

#[cfg(loom)]
#[doc(hidden)]
pub use backoff::model_sleeps;
pub use counter::Counter;
pub use file_ref::FileRef;
pub use id_allocator::{IdAllocator, WideIdAllocator};
pub use lazy_box::LazyBox;
pub use lockref::{Lockref, LockrefGuard};
pub use might_sleep::might_sleep;
pub use once::{Counted, Once};
pub use percpu::PerCpu;
pub use percpu_shared::{PerCpuOwner, PerCpuShared};
pub use seqcount::{Seqcount, SeqcountWrite};
pub use shared::Shared;
pub use spinlock::{SpinLock, SpinLockGuard};
pub use wait_queue::{
    Callback, Entered, Entry, Interrupt, Reply, Wait, WaitError, WaitQueue, wake_later,
};
