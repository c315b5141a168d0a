//! One value for each CPU, each on lines of its own.

use core::ops::Index;

use crossbeam_utils::CachePadded;
use quietline_platform::{AllocError, cpu, heap};

/// One `T` for each CPU that the machine may have, padded so that no two share a line (or a pair of lines that the
/// hardware fetches together).
///
/// The values are reached through shared references, by any thread, from any CPU: `T` is what makes that safe
/// (atomics, a lock). What per-CPU placement gives is that a thread which mostly uses its own CPU's value mostly
/// meets nobody there. For operations that must not meet anybody, indivisible on the current CPU and without locked
/// instructions, see [`quietline_platform::percpu`].
///
/// Differs from the kernel's: the values lie in one array of padded cells instead of one area per CPU, and
/// [`this`](Self::this) does not disable preemption, which a program cannot.
///
/// ```
/// use quietline_sync::{PerCpu, SpinLock};
///
/// let queues = PerCpu::new(|_cpu| SpinLock::new(Vec::new()))?;
/// queues.this().lock().push(42);
/// assert_eq!(queues.iter().map(|queue| queue.lock().len()).sum::<usize>(), 1);
/// # Ok::<(), quietline_platform::AllocError>(())
/// ```
///
/// # Source
///
/// `include/linux/percpu-defs.h` (`alloc_percpu`, `per_cpu_ptr`, `raw_cpu_ptr`).
#[derive(Debug)]
pub struct PerCpu<T> {
    values: Box<[CachePadded<T>]>,
}

impl<T> PerCpu<T> {
    /// Returns the values that `make` makes, called once for each CPU number in ascending order.
    ///
    /// The calling thread writes all values, those of CPUs that the machine may never get too. So
    /// each takes memory from the beginning, on the node of the calling thread. Large values belong
    /// behind a pointer that the first user of a CPU sets.
    ///
    /// # Errors
    ///
    /// [`AllocError`] when the heap is exhausted.
    pub fn new(mut make: impl FnMut(usize) -> T) -> Result<Self, AllocError> {
        let values = heap::try_boxed_slice(cpu::nr_cpus(), |cpu| CachePadded::new(make(cpu)))?;
        Ok(Self { values })
    }

    /// How many CPUs there are, and so how many values: constant for the life of the process, never 0.
    #[inline]
    pub fn cpus(&self) -> usize {
        self.values.len()
    }

    /// The value of this CPU number, or `None` if there is no such CPU.
    #[inline]
    pub fn get(&self, cpu: usize) -> Option<&T> {
        self.values.get(cpu).map(|value| &**value)
    }

    /// The value of the CPU that the caller runs on. A hint: the thread may be on another CPU before it uses
    /// the value, which must therefore bear two users.
    #[inline]
    pub fn this(&self) -> &T {
        &self[cpu::current()]
    }

    /// The values of all CPUs, in the order of their numbers.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = &T> + DoubleEndedIterator {
        self.values.iter().map(|value| &**value)
    }

    /// The values of all CPUs, in the order of their numbers, to change.
    pub fn iter_mut(&mut self) -> impl ExactSizeIterator<Item = &mut T> + DoubleEndedIterator {
        self.values.iter_mut().map(|value| &mut **value)
    }
}

impl<T> Index<usize> for PerCpu<T> {
    type Output = T;

    /// The value of this CPU number.
    ///
    /// # Panics
    ///
    /// If there is no such CPU.
    #[inline]
    fn index(&self, cpu: usize) -> &T {
        &self.values[cpu]
    }
}
