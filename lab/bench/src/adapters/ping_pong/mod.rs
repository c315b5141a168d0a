//! Who carries a byte from thread to thread, or many: the host kernel, quietline, and two threads that have nothing but a word
//! each.

mod futex;
mod host;
mod player;
mod quietline;
mod stream;
mod system;

use std::sync::Arc;

use super::implementation::{Implementation, Opened};
use crate::harness::{Column, Shape};
use crate::workloads::{Job, PingPong, Route};

/// The host kernel, bare futexes, quietline.
pub fn columns() -> Vec<Arc<dyn Column>> {
    let all = vec![
        Implementation {
            name: "host",
            says: "the kernel of this machine, by system calls",
            shape: Shape::OneProcess,
            does: is_between_threads,
            open: open::<host::Host>,
        },
        Implementation {
            name: "peer-futex",
            says: "a word that says whose turn it is, and the host's futex: the least for threads that sleep",
            shape: Shape::NoTable,
            does: |job| job == Job::PingPong(PingPong { route: Route::Pipes, epoll: false }),
            open: futex::open,
        },
        Implementation {
            name: "quietline",
            says: "quietline, all threads one process",
            shape: Shape::OneProcess,
            does: is_between_threads,
            open: open::<quietline::Quietline>,
        },
    ];
    all.into_iter().map(|column| Arc::new(column) as Arc<dyn Column>).collect()
}

fn is_between_threads(job: Job) -> bool {
    matches!(job, Job::PingPong(_) | Job::Throughput(_))
}

fn open<S: system::System>(job: Job, threads: usize) -> Opened {
    if matches!(job, Job::Throughput(_)) {
        stream::open::<S>(job, threads)
    } else {
        system::open::<S>(job, threads)
    }
}
