use core::cell::Cell;

/// CPUs of the modelled machine.
const CPUS: usize = 2;

loom::thread_local! {
    static CPU: Cell<usize> = Cell::new(0);
}

/// CPU slots that per-CPU data has.
pub fn nr_cpus() -> usize {
    CPUS
}

/// The CPU that the calling thread was put on.
pub fn current() -> usize {
    CPU.with(|c| c.get())
}

/// Puts the calling thread on another CPU. Threads start on CPU 0.
pub fn migrate(cpu: usize) {
    assert!(cpu < CPUS, "the modelled machine has {CPUS} CPUs");
    CPU.with(|c| c.set(cpu));
}
