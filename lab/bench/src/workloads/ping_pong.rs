//! One byte to another thread, and one back: what it takes to wake somebody who sleeps.

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
        case("unix", Route::Unix, false),
        case("tcp", Route::Tcp, false),
        case("pipe-epoll", Route::Pipes, true),
        case("unix-epoll", Route::Unix, true),
        case("tcp-epoll", Route::Tcp, true),
    ],
    shown: Shown::Everything,
};

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
    /// Two stream sockets of `AF_UNIX`.
    Unix,
    /// A TCP connection of `AF_INET` over the loopback.
    Tcp,
}
