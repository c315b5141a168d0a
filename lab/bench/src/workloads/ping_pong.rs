//! One byte to another thread, and one back: what it takes to wake somebody who sleeps. And many bytes: what it takes to
//! carry them.

use super::{Case, Job, Shown, Workload};

/// Two threads that wait for each other; neither does anything else, so each sleeps whenever the other works.
///
/// Pinned, as by default, the two are on different CPUs, and each wake-up reaches for a CPU that has nothing to do. On one CPU
/// (`taskset -c 0`) a wake-up is an entry in a list, and a round trip two changes of thread.
pub static PING_PONG: Workload = Workload {
    name: "ping-pong",
    says: "one byte to another thread that sleeps, and one back: both wait for nothing else; pairs of threads",
    operation: "round trip",
    cases: &[
        case("pipe", Route::Pipes, false),
        case("eventfd", Route::Eventfds, false),
        case("unix", Route::Unix, false),
        case("tcp", Route::Tcp, false),
        case("pipe-epoll", Route::Pipes, true),
        case("eventfd-epoll", Route::Eventfds, true),
        case("unix-epoll", Route::Unix, true),
        case("tcp-epoll", Route::Tcp, true),
    ],
    shown: Shown::Everything,
};

/// Bytes in a block of [`THROUGHPUT`].
pub const BLOCK: usize = 64 << 10;

/// One thread writes, another one reads, as fast as they can; a pair of threads for each way. Each block goes in one `write`, and is
/// read until it is whole. An operation is a block: 65,536 bytes by the ns of the table are GB/s.
pub static THROUGHPUT: Workload = Workload {
    name: "throughput",
    says: "blocks of 64 KiB to another thread, which reads them: one writes, the other reads; pairs of threads",
    operation: "64 KiB",
    cases: &[stream("pipe", Route::Pipes), stream("unix", Route::Unix), stream("tcp", Route::Tcp)],
    shown: Shown::Everything,
};

const fn stream(name: &'static str, route: Route) -> Case {
    Case { name, job: Job::Throughput(route), by_default: true }
}

const fn case(name: &'static str, route: Route, epoll: bool) -> Case {
    Case { name, job: Job::PingPong(PingPong { route, epoll }), by_default: true }
}

/// A byte there and one back.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct PingPong {
    /// By what way.
    pub route: Route,
    /// Whether a thread waits in `epoll_wait`, and reads then; or else in `read`.
    pub epoll: bool,
}

/// What two threads have between them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Route {
    /// Two pipes.
    Pipes,
    /// Two eventfds: the byte goes as a number, which is one more, since a counter tells nobody of nothing.
    Eventfds,
    /// Two stream sockets of `AF_UNIX`.
    Unix,
    /// A TCP connection of `AF_INET` over the loopback.
    Tcp,
}
