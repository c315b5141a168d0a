//! Who moves bytes and tells of events: the host kernel, quietline, and the nested epolls of 2013 to 2017.

mod history;
mod host;
mod loops;
mod mesh;
mod quietline;
mod shared;
mod system;

use std::sync::Arc;

use quietline_history::NestedWay;

use super::implementation::Implementation;
use crate::harness::{Column, Shape};
use crate::workloads::{Events, Job};

/// The host kernel, old kernels, quietline.
pub fn columns() -> Vec<Arc<dyn Column>> {
    let all = vec![
        Implementation {
            name: "host",
            says: "the kernel of this machine, by system calls",
            shape: Shape::OneProcess,
            does: is_events,
            open: system::open::<host::Host>,
        },
        Implementation {
            name: "history-nested-global",
            says: "Linux 4.13 and 4.14: steps from epoll to epoll are in one list, under one lock",
            shape: Shape::NoTable,
            does: is_mesh,
            open: |job, threads| history::open(NestedWay::Global, job, threads),
        },
        Implementation {
            name: "history-nested-dlock",
            says: "Bueso's patch of 2017: a list for each core",
            shape: Shape::NoTable,
            does: is_mesh,
            open: |job, threads| history::open(NestedWay::Dlock, job, threads),
        },
        Implementation {
            name: "history-nested-removed",
            says: "Linux 4.15, Baron's patches: no list for wake-ups and polls",
            shape: Shape::NoTable,
            does: is_mesh,
            open: |job, threads| history::open(NestedWay::Removed, job, threads),
        },
        Implementation {
            name: "quietline",
            says: "quietline, all threads one process",
            shape: Shape::OneProcess,
            does: is_events,
            open: system::open::<quietline::Quietline>,
        },
    ];
    all.into_iter().map(|column| Arc::new(column) as Arc<dyn Column>).collect()
}

fn is_events(job: Job) -> bool {
    matches!(job, Job::Events(_))
}

fn is_mesh(job: Job) -> bool {
    job == Job::Events(Events::Mesh)
}
