//! What it costs to get two sockets that know each other, and what one alone can do with them.

use super::{Case, Job, Shown, Workload};

/// Connections made and ended by one thread that has both ends.
///
/// The end that connected closes first; over TCP it resets the connection (`SO_LINGER` of no time), so that no port has to wait.
pub static CONNECTIONS: Workload = Workload {
    name: "connections",
    says: "two sockets joined, by socketpair(2) or by socket, connect and accept, and closed; a descriptor sent (SCM_RIGHTS)",
    operation: "connection or descriptor",
    cases: &[
        case("socketpair", Connections::Pair),
        case("unix-connect", Connections::Unix),
        case("tcp-connect", Connections::Tcp),
        case("pass-pipe", Connections::PassPipe),
        case("pass-socket", Connections::PassSocket),
    ],
    shown: Shown::Everything,
};

const fn case(name: &'static str, what: Connections) -> Case {
    Case { name, job: Job::Connections(what), by_default: true }
}

/// What is done with connections.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Connections {
    /// `socketpair` of `AF_UNIX` streams, and `close` of both.
    Pair,
    /// `socket`, `connect`, `accept` and two `close`, to a listener of `AF_UNIX` with an abstract name, of the thread's own.
    Unix,
    /// The same to a listener of TCP on the loopback, with `SO_LINGER` set.
    Tcp,
    /// A byte with a descriptor of a pipe (`SCM_RIGHTS`) sent through a pair of streams and received, and the descriptor closed.
    PassPipe,
    /// The same with a socket of `AF_UNIX`, which the system has to watch while it is in a message, lest it be lost.
    PassSocket,
}
