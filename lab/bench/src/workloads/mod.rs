//! What is done: one file per workload, none of which knows who does it.

pub mod anonfds;
pub mod connections;
pub mod dcache;
pub mod events;
pub mod forward;
pub mod open;
pub mod ping_pong;
pub mod pipes;
pub mod primitives;
pub mod slab;
pub mod sockets;
pub mod unlink;

pub use connections::Connections;
pub use dcache::{Dcache, Whose};
pub use events::{Channel, Events, GROUPS, Peers};
pub use forward::{Forward, Way};
pub use open::OpenFile;
pub use ping_pong::{BLOCK, PingPong, Route};
pub use primitives::{Call, Primitive};
pub use slab::{Pattern, Slab};
pub use unlink::Unlink;

/// A job done in a loop, in one or more variants.
#[derive(Debug)]
pub struct Workload {
    /// The name on the command line and in the JSON.
    pub name: &'static str,
    /// One line on what it does and why it matters.
    pub says: &'static str,
    /// What one operation is, as the table names it.
    pub operation: &'static str,
    /// Its variants; at least one is run by default.
    pub cases: &'static [Case],
    /// Which columns are shown without being asked for.
    pub shown: Shown,
}

/// Which columns a workload shows when none is named.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shown {
    /// The host kernel and quietline.
    Summary,
    /// Those and the ladder of old kernels.
    Ladder,
    /// Every column that does one of its cases. Such a workload has no ladder.
    Everything,
}

/// One variant of a workload.
#[derive(Debug)]
pub struct Case {
    /// The name on the command line and in the JSON.
    pub name: &'static str,
    /// What an adapter has to do.
    pub job: Job,
    /// Whether it runs without being asked for.
    pub by_default: bool,
}

/// What one operation does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Job {
    /// Opens files and closes them.
    OpenClose(Object),
    /// A system call on a descriptor that stays open.
    Descriptor(Call),
    /// One use of a primitive.
    Primitive(Primitive),
    /// Objects allocated and freed.
    Slab(Slab),
    /// References to dentries, and looking up paths.
    Dcache(Dcache),
    /// A file opened by its path, and closed.
    Open(OpenFile),
    /// Files made and removed.
    Unlink(Unlink),
    /// A file made and removed in a directory that is watched, and what inotify tells of it.
    Watched,
    /// Packets from device to device.
    Forward(Forward),
    /// A byte to another thread, and one back.
    PingPong(PingPong),
    /// Blocks of bytes to another thread.
    Throughput(Route),
    /// Sockets that are connected, and closed.
    Connections(Connections),
    /// Bytes that go through objects, and who is told of them.
    Events(Events),
}

/// What is opened and closed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Object {
    /// `socket(domain, SOCK_STREAM, 0)`, then `close`.
    Socket(Domain),
    /// `pipe2(0)`, then `close` of both ends.
    Pipe,
    /// `eventfd2(0, 0)`, then `close`.
    Eventfd,
    /// `timerfd_create(CLOCK_MONOTONIC, 0)`, then `close`.
    Timerfd,
    /// `signalfd4` on a new descriptor with `SIGUSR1` in its mask, then `close`.
    Signalfd,
}

impl Object {
    /// How many descriptors are open between the two halves of an operation.
    pub fn descriptors(self) -> usize {
        match self {
            Self::Pipe => 2,
            Self::Socket(_) | Self::Eventfd | Self::Timerfd | Self::Signalfd => 1,
        }
    }
}

/// The address family of a socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Domain {
    /// `AF_INET`.
    Inet,
    /// `AF_INET6`.
    Inet6,
    /// `AF_UNIX`.
    Unix,
}

/// Every workload, in the order in which `ql bench` runs them.
pub const ALL: &[&Workload] = &[
    &sockets::SOCKETS,
    &pipes::PIPES,
    &anonfds::ANONFDS,
    &primitives::PRIMITIVES,
    &slab::SLAB,
    &dcache::DCACHE,
    &open::OPEN,
    &unlink::UNLINK,
    &forward::FORWARD,
    &events::BYTES,
    &events::EPOLL_WAIT,
    &events::EPOLL_CTL,
    &events::NESTED_EPOLL,
    &connections::CONNECTIONS,
    &ping_pong::PING_PONG,
    &ping_pong::THROUGHPUT,
];
