//! Who carries a byte from thread to thread: the host kernel, quietline, and two threads that have nothing but a word each.

mod futex;
mod host;
mod player;
mod quietline;
mod system;

use std::sync::Arc;

use super::implementation::Implementation;
use crate::harness::{Column, Shape};
use crate::workloads::{Job, PingPong, Route};

/// The host kernel, bare futexes, quietline.
pub fn columns() -> Vec<Arc<dyn Column>> {
    let all = vec![
        Implementation {
            name: "host",
            says: "the kernel of this machine, by system calls",
            shape: Shape::OneProcess,
            does: is_ping_pong,
            open: system::open::<host::Host>,
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
            does: is_ping_pong,
            open: system::open::<quietline::Quietline>,
        },
    ];
    all.into_iter().map(|column| Arc::new(column) as Arc<dyn Column>).collect()
}

fn is_ping_pong(job: Job) -> bool {
    matches!(job, Job::PingPong(_))
}
