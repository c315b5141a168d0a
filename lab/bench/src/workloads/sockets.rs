//! Open a socket and close it: the loop in which eight CPUs were once seventeen times slower than one.

use super::{Case, Domain, Job, Object, Shown, Workload};

/// The `socketallocbench` of the 2008 series: each thread runs `close(socket(domain, SOCK_STREAM, 0))`.
///
/// A socket is a pseudo file: it needs a descriptor, a file, a dentry and an inode, and none of them can ever
/// be found by a path. What the old kernels pay for, and what the ladder takes away rung by rung, is putting
/// them on lists and counters meant for files that can.
pub static SOCKETS: Workload = Workload {
    name: "sockets",
    says: "socket(2) and close(2), each thread its own socket",
    operation: "open+close",
    cases: &[
        Case {
            name: "inet-stream",
            job: Job::OpenClose(Object::Socket(Domain::Inet)),
            by_default: true,
        },
        Case {
            name: "inet6-stream",
            job: Job::OpenClose(Object::Socket(Domain::Inet6)),
            by_default: false,
        },
        Case {
            name: "unix-stream",
            job: Job::OpenClose(Object::Socket(Domain::Unix)),
            by_default: false,
        },
    ],
    shown: Shown::Ladder,
};
