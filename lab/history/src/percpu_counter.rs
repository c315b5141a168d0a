//! `percpu_counter` (`lib/percpu_counter.c`): a count that each CPU keeps to itself until it has a batch.

use crate::atomic::{AtomicI64, Ordering};
use crate::percpu::{Cpu, Line};
use crate::ticket::TicketLock;

/// A count in two parts: one shared and one for each CPU, which [`Cpu`] holds and `pcount` finds.
#[repr(C, align(64))]
pub(crate) struct PercpuCounter {
    /// The shared part: its lock and the count, in one line as in the kernel.
    pub(crate) shared: Line<Shared>,
    batch: i64,
    pcount: fn(&Cpu) -> &AtomicI64,
}

/// What all CPUs write, once in a batch.
#[repr(C)]
pub(crate) struct Shared {
    lock: TicketLock,
    count: AtomicI64,
}

impl PercpuCounter {
    /// A counter of zero for `cpus` CPUs; `pcount` finds a CPU's part.
    pub(crate) fn new(cpus: usize, pcount: fn(&Cpu) -> &AtomicI64) -> Self {
        let cpus = i64::try_from(cpus).unwrap_or(i64::MAX / 4);
        Self {
            shared: Line(Shared { lock: TicketLock::new(), count: AtomicI64::new(0) }),
            // FBC_BATCH.
            batch: if cpus >= 16 { cpus * 2 } else { cpus * 4 },
            pcount,
        }
    }

    /// A plain per-CPU variable of zero (`DEFINE_PER_CPU`): it never adds to the shared part.
    pub(crate) fn plain(pcount: fn(&Cpu) -> &AtomicI64) -> Self {
        Self { batch: i64::MAX, ..Self::new(0, pcount) }
    }

    /// `__percpu_counter_add()`. Writes the CPU's own line, and once in a batch the shared one.
    #[inline]
    pub(crate) fn add(&self, cpu: &Cpu, amount: i64) {
        let pcount = (self.pcount)(cpu);
        // Relaxed, here and below: only this CPU writes its part; the shared part is under the lock; and a
        // count orders nothing.
        let count = pcount.load(Ordering::Relaxed) + amount;
        if count >= self.batch || count <= -self.batch {
            self.fold_slow(pcount, count);
        } else {
            pcount.store(count, Ordering::Relaxed);
        }
    }

    #[cold]
    fn fold_slow(&self, pcount: &AtomicI64, count: i64) {
        let _guard = self.shared.0.lock.lock();
        let shared = &self.shared.0.count;
        shared.store(shared.load(Ordering::Relaxed) + count, Ordering::Relaxed);
        pcount.store(0, Ordering::Relaxed);
    }

    /// `percpu_counter_read_positive()`: the shared part, or zero; wrong by up to a batch for each CPU.
    #[inline]
    pub(crate) fn read_positive(&self) -> i64 {
        self.shared.0.count.load(Ordering::Relaxed).max(0)
    }

    /// `percpu_counter_sum()`: exact while no CPU changes its part.
    pub(crate) fn sum(&self, cpus: &[Cpu]) -> i64 {
        let _guard = self.shared.0.lock.lock();
        let shared = self.shared.0.count.load(Ordering::Relaxed);
        shared + cpus.iter().map(|cpu| (self.pcount)(cpu).load(Ordering::Relaxed)).sum::<i64>()
    }
}
