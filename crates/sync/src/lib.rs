//! Per-CPU data, counters, ids, RCU, locks and reference counts.

mod backoff;
mod counter;
mod file_ref;
mod id_allocator;
mod lockref;
mod percpu;
pub mod rcu;
mod seqcount;
mod spinlock;

pub use counter::{Batch, Counter};
pub use file_ref::FileRef;
pub use id_allocator::IdAllocator;
pub use lockref::{Lockref, LockrefGuard};
pub use percpu::PerCpu;
pub use seqcount::{Seqcount, SeqcountWrite};
pub use spinlock::{SpinLock, SpinLockGuard};
