//! Bytes that go through an object, events that say so, and epolls that watch them.

use super::{Case, Job, Shown, Workload};

/// What a message costs by each kind of object: written and read again by one thread; or given and taken.
pub static BYTES: Workload = Workload {
    name: "bytes",
    says: "write(2) and read(2) through a pipe, an eventfd, two connected sockets: one thread at both ends",
    operation: "write+read",
    cases: &[
        shown("eventfd", Events::Through(Channel::Eventfd, 8)),
        shown("pipe-1", Events::Through(Channel::Pipe, 1)),
        shown("pipe-4096", Events::Through(Channel::Pipe, 4096)),
        shown("pipe-gift-4096", Events::Gift),
        shown("unix-1", Events::Through(Channel::Unix, 1)),
        case("unix-4096", Events::Through(Channel::Unix, 4096)),
        shown("unix-dgram-1", Events::Through(Channel::UnixDatagrams, 1)),
        shown("tcp-1", Events::Through(Channel::Tcp, 1)),
        case("tcp-4096", Events::Through(Channel::Tcp, 4096)),
        shown("udp-1", Events::Through(Channel::Udp, 1)),
    ],
    shown: Shown::Everything,
};

/// What it costs to learn of an event.
pub static EPOLL_WAIT: Workload = Workload {
    name: "epoll-wait",
    says: "epoll_wait(2) without waiting, on an epoll of one's own, on one that watches it, on one that all have in common; poll(2)",
    operation: "wait",
    cases: &[
        shown("none", Events::Wait { levels: 1, ready: false, message: false }),
        shown("ready", Events::Wait { levels: 1, ready: true, message: false }),
        shown("ready-nested", Events::Wait { levels: 2, ready: true, message: false }),
        shown("message", Events::Wait { levels: 1, ready: false, message: true }),
        shown("message-nested", Events::Wait { levels: 2, ready: false, message: true }),
        shown("poll-ready", Events::Poll),
        shown("shared-wake", Events::Shared { asks: false }),
        shown("shared-message", Events::Shared { asks: true }),
    ],
    shown: Shown::Everything,
};

/// What it costs to say what one wants to learn.
pub static EPOLL_CTL: Workload = Workload {
    name: "epoll-ctl",
    says: "epoll_ctl(2) on an epoll of one's own: change, and end and begin watching a descriptor; alone and below another epoll",
    operation: "call",
    cases: &[
        shown("mod", Events::Modify),
        shown("del-add", Events::DeleteAdd { levels: 1 }),
        shown("del-add-nested", Events::DeleteAdd { levels: 2 }),
    ],
    shown: Shown::Everything,
};

/// The dispatcher of 2017: a pipe from each thread to each, two levels of epoll. The seed describes
/// no more than that. Two inner epolls, random receivers and messages of one byte are guesses.
///
/// An operation is a turn: a byte to one of all threads, then whatever has come in. Nobody sleeps, so that a thread's turn does not
/// wait for others' turns.
///
/// The columns of history do less than `host` and `quietline`, because they are what was fought over and nothing else. They have
/// no descriptors, files, rights or notices of writes; a pipe is a count of bytes, none of which is copied, in a line with
/// its lock; who is to be woken is computed from the pipe's number, so there are no wait queues and none of their locks (in
/// 4.13 one for the pipe and one for each epoll that is watched); and an epoll's `mtx` is a spinlock that never sleeps.
pub static NESTED_EPOLL: Workload = Workload {
    name: "nested-epoll",
    says: "a full mesh of pipes, two levels of epoll in each thread: a message sent, and what came in taken",
    operation: "message",
    cases: &[shown("mesh", Events::Mesh)],
    shown: Shown::Everything,
};

const fn shown(name: &'static str, what: Events) -> Case {
    Case { name, job: Job::Events(what), by_default: true }
}

const fn case(name: &'static str, what: Events) -> Case {
    Case { name, job: Job::Events(what), by_default: false }
}

/// What is done with bytes and events.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Events {
    /// So many bytes are written and read again.
    Through(Channel, usize),
    /// A page is given to a pipe by reference, and taken: on the host by `vmsplice` with `SPLICE_F_GIFT`, and `read`, since it has no
    /// way to take it without a copy.
    Gift,
    /// The outermost of so many epolls is asked once, or, with a `message`, an eventfd is written, each epoll asked from the
    /// outermost on, and the eventfd read.
    Wait {
        /// Epolls, each of which watches the next; the last one watches the eventfd.
        levels: usize,
        /// Whether the eventfd is readable all the time.
        ready: bool,
        /// Whether a message is sent and taken.
        message: bool,
    },
    /// `poll` of one descriptor that is readable.
    Poll,
    /// `EPOLL_CTL_MOD`.
    Modify,
    /// `EPOLL_CTL_DEL`, then `EPOLL_CTL_ADD`, at the innermost of so many epolls.
    DeleteAdd {
        /// As in [`Wait`](Self::Wait).
        levels: usize,
    },
    /// A turn of the dispatcher.
    Mesh,
    /// One of the thread's 64 counters is written, all of which one epoll watches with those of all other threads.
    Shared {
        /// Whether the epoll is asked then, and what it tells of is taken, whosever it is. Otherwise the thread empties its counter
        /// itself, and nobody asks: the epoll is only woken.
        asks: bool,
    },
}

/// What bytes go through.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Channel {
    /// An eventfd: eight bytes, a number.
    Eventfd,
    /// A pipe.
    Pipe,
    /// Two stream sockets of `AF_UNIX`.
    Unix,
    /// Two datagram sockets of `AF_UNIX`.
    UnixDatagrams,
    /// A TCP connection of `AF_INET` over the loopback, without delay. Whoever reads waits.
    Tcp,
    /// Two UDP sockets of `AF_INET` that are connected over the loopback. Whoever reads waits.
    Udp,
}

/// Inner epolls that each thread of [`Events::Mesh`] has at most.
pub const GROUPS: usize = 2;

/// Whom a thread of [`Events::Mesh`] writes to: all others and itself, in an order of its own.
#[derive(Debug)]
pub struct Peers {
    state: u64,
    threads: usize,
}

impl Peers {
    /// The order of one of so many threads.
    pub fn new(thread: usize, threads: usize) -> Self {
        Self { state: thread as u64 + 1, threads }
    }

    /// The next one.
    #[inline(always)]
    pub fn next_peer(&mut self) -> usize {
        // The numbers of Numerical Recipes' quick generator of 64 bits.
        self.state = self
            .state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (self.state >> 33) as usize % self.threads
    }
}
