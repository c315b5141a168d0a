//! Wall time and the thread's own CPU time.

use std::time::Instant;

use rustix::time::{ClockId, Timespec, clock_gettime};

/// Both clocks, started together.
#[derive(Debug)]
pub struct Stopwatch {
    cpu: Timespec,
    wall: Instant,
}

/// What a stopwatch showed.
#[derive(Clone, Copy, Debug)]
pub struct Lap {
    /// When it was started.
    pub started: Instant,
    /// When it was stopped.
    pub stopped: Instant,
    /// CPU time of the calling thread in between, user and system, in ns.
    pub cpu_ns: u64,
}

impl Lap {
    /// Wall time in ns.
    pub fn wall_ns(&self) -> u64 {
        u64::try_from(self.stopped.duration_since(self.started).as_nanos()).unwrap_or(u64::MAX)
    }
}

impl Stopwatch {
    /// Starts both clocks. The wall clock is read last, so that reading the other is not counted.
    pub fn start() -> Self {
        let cpu = clock_gettime(ClockId::ThreadCPUTime);
        Self { cpu, wall: Instant::now() }
    }

    /// Reads both clocks. Must be called by the thread that started them.
    pub fn stop(self) -> Lap {
        let stopped = Instant::now();
        let cpu = clock_gettime(ClockId::ThreadCPUTime);
        let elapsed = nanoseconds(cpu) - nanoseconds(self.cpu);
        Lap { started: self.wall, stopped, cpu_ns: u64::try_from(elapsed).unwrap_or(0) }
    }
}

fn nanoseconds(time: Timespec) -> i64 {
    time.tv_sec * 1_000_000_000 + time.tv_nsec
}
