//! Planted faults: each stands for a defect of the kernel that one of the checks must report.
//!
//! A fault is a call of the table that does wrong, or an occupant that holds something while the
//! end of a round is checked. No planted fault is in the kernel's crates: a call that is deaf to
//! its interrupt looks to the supervisor as a call of the kernel that is.

use clap::ValueEnum;

/// A fault that a run must find.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Plant {
    /// A call sleeps, and an interrupt does not wake it.
    DeafSleep,
    /// A call waits again each time when an interrupt has ended its wait.
    DeafLoop,
    /// Two threads take two locks in opposite orders.
    Deadlock,
    /// A thread takes a lock that it holds.
    SelfDeadlock,
    /// The end of a round sleeps.
    DeafEnd,
    /// A spin lock is held beyond the bound of CPU time.
    LongHold,
    /// A call panics.
    Panic,
    /// A call returns more bytes than its buffer holds.
    TooMany,
    /// A call returns a descriptor beyond the limit.
    HighDescriptor,
    /// A call returns an error that no program knows.
    StrangeError,
    /// A call leaks a block of the heap.
    HeapLeak,
    /// A call uses memory without a bound.
    Memory,
    /// A call leaks an open file.
    FileLeak,
    /// A call leaks an object of a slab cache.
    ObjectLeak,
    /// A call leaks a process.
    ProcessLeak,
    /// A descriptor stays open when all are closed.
    Descriptor,
    /// A descriptor stays reserved when all are closed.
    Reserved,
    /// A process stays in the list of processes.
    Pid,
    /// A port stays taken.
    Port,
    /// A port of the range that the kernel chooses from stays taken.
    EphemeralPort,
    /// A name of a local socket stays taken.
    SocketName,
    /// An inotify instance stays counted.
    InstanceCount,
    /// An inotify watch stays counted.
    WatchCount,
    /// A watch of an epoll stays counted.
    EpollCount,
    /// A file in flight between sockets stays counted.
    FlightCount,
    /// An inode of the root file system stays counted.
    InodeCount,
    /// A page of the root file system stays counted.
    PageCount,
    /// A name of the tree cannot be removed.
    Tree,
    /// A call hands out another user's file.
    StolenFile,
    /// A call hands out another user's bytes.
    StolenBytes,
    /// A call on another user's path succeeds.
    StolenPath,
    /// A call writes to another user's file.
    Defaced,
    /// A call never succeeds.
    NeverSucceeds,
}
