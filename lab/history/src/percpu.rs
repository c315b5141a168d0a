//! What belongs to one CPU, and how a thread comes to be on it.

use crate::atomic::{AtomicI64, AtomicU32, Ordering};
use crate::dcache::Dentry;
use crate::errno::Errno;
use crate::file::File;
use crate::globals::Globals;
use crate::inode::Inode;
use crate::rcupdate::RcuData;
use crate::slab::KmemCacheCpu;
use crate::ticket::TicketGuard;

/// A value that has its cache line (or lines) to itself, as `____cacheline_aligned_in_smp` gives.
#[repr(C, align(64))]
pub(crate) struct Line<T>(pub(crate) T);

/// A CPU's own data. All but `rcu_seq` is written and read by the thread on that CPU alone, with plain
/// instructions; they are atomics only so that a mistake is wrong and not undefined.
#[repr(C, align(64))]
pub(crate) struct Cpu {
    /// Its place among the CPUs. Never changes.
    pub(crate) number: usize,
    /// Not 0 while a thread is in a system call on this CPU.
    pub(crate) preempt_count: AtomicU32,
    /// Inode number given out last; a multiple of 1,024 when the batch is used up.
    pub(crate) last_ino: AtomicU32,
    /// This CPU's parts of the counters.
    pub(crate) nr_files: AtomicI64,
    pub(crate) nr_dentry: AtomicI64,
    pub(crate) nr_inodes: AtomicI64,
    /// `net/socket.c`: sockets opened less sockets closed on this CPU.
    pub(crate) sockets_in_use: AtomicI64,
    pub(crate) filp: KmemCacheCpu<File>,
    pub(crate) dentry: KmemCacheCpu<Dentry>,
    pub(crate) inode: KmemCacheCpu<Inode>,
    pub(crate) rcu_data: RcuData,
    /// Odd while this CPU is in an RCU read section. Read by the CPU that waits for a grace period.
    pub(crate) rcu_seq: Line<AtomicU32>,
}

impl Cpu {
    /// A CPU that has done nothing yet.
    pub(crate) fn new(number: usize) -> Self {
        Self {
            number,
            preempt_count: AtomicU32::new(0),
            last_ino: AtomicU32::new(0),
            nr_files: AtomicI64::new(0),
            nr_dentry: AtomicI64::new(0),
            nr_inodes: AtomicI64::new(0),
            sockets_in_use: AtomicI64::new(0),
            filp: KmemCacheCpu::new(),
            dentry: KmemCacheCpu::new(),
            inode: KmemCacheCpu::new(),
            rcu_data: RcuData::new(),
            rcu_seq: Line(AtomicU32::new(0)),
        }
    }

    /// Gives its words their names, for whoever looks at lines.
    pub(crate) fn name_words(&self) {
        quietline_platform::name_words!(*self => "cpu" { preempt_count, last_ino, nr_files, nr_dentry, nr_inodes });
        quietline_platform::name_words!(*self => "cpu" { sockets_in_use, filp, dentry, inode, rcu_data, rcu_seq });
    }
}

/// What every function of the kernel can reach: the globals, and the CPU it runs on.
#[derive(Clone, Copy)]
pub(crate) struct Current<'a> {
    pub(crate) globals: &'a Globals,
    pub(crate) cpu: &'a Cpu,
}

/// A thread in a system call on a CPU, which is its own until this is dropped.
pub(crate) struct Syscall<'a> {
    pub(crate) current: Current<'a>,
    /// Held by a thread that has no CPU of its own.
    _exit: Option<TicketGuard<'a>>,
}

impl<'a> Syscall<'a> {
    /// Enters a system call on CPU number `cpu`. Writes the CPU's own line.
    ///
    /// # Errors
    ///
    /// `EINVAL` if there is no such CPU.
    ///
    /// # Panics
    ///
    /// If another thread is seen on that CPU: two threads were given one CPU.
    #[inline]
    pub(crate) fn enter(globals: &'a Globals, cpu: usize) -> Result<Self, Errno> {
        match globals.cpus.get(cpu) {
            Some(own) if cpu < globals.exit_cpu => Ok(Self::on(globals, own, None)),
            _ => Err(Errno::EINVAL),
        }
    }

    /// Enters on the CPU kept for threads that have none: whoever drops a process or calls for quiescence.
    pub(crate) fn enter_exit(globals: &'a Globals) -> Self {
        let guard = globals.exit_lock.0.lock();
        Self::on(globals, &globals.cpus[globals.exit_cpu], Some(guard))
    }

    #[inline]
    fn on(globals: &'a Globals, cpu: &'a Cpu, exit: Option<TicketGuard<'a>>) -> Self {
        // Relaxed: this only finds a caller's mistake; threads that take turns on a CPU synchronise
        // themselves.
        let others = if cfg!(debug_assertions) {
            cpu.preempt_count.swap(1, Ordering::Relaxed)
        } else {
            let others = cpu.preempt_count.load(Ordering::Relaxed);
            cpu.preempt_count.store(1, Ordering::Relaxed);
            others
        };
        assert!(others == 0, "two threads on one CPU of a history world");
        Self { current: Current { globals, cpu }, _exit: exit }
    }
}

impl Drop for Syscall<'_> {
    #[inline]
    fn drop(&mut self) {
        // Relaxed: as in `on`.
        self.current.cpu.preempt_count.store(0, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests;
