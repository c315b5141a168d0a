//! Who joins sockets and ends them: the host kernel, and quietline.

mod host;
mod quietline;
mod system;

use std::sync::Arc;

use super::implementation::Implementation;
use crate::harness::{Column, Shape};
use crate::workloads::Job;

/// The host kernel, quietline.
pub fn columns() -> Vec<Arc<dyn Column>> {
    let all = vec![
        Implementation {
            name: "host",
            says: "the kernel of this machine, by system calls, a descriptor table per thread",
            shape: Shape::Processes,
            does: is_connections,
            open: system::open::<host::Host>,
        },
        Implementation {
            name: "quietline-lowestfd",
            says: "quietline, the lowest free descriptor, each thread a process",
            shape: Shape::Processes,
            does: is_connections,
            open: system::open::<quietline::Processes>,
        },
        Implementation {
            name: "quietline-anyfd",
            says: "quietline, any free descriptor (O_ANYFD), all threads one process",
            shape: Shape::OneProcess,
            does: is_connections,
            open: system::open::<quietline::OneProcess>,
        },
    ];
    all.into_iter().map(|column| Arc::new(column) as Arc<dyn Column>).collect()
}

fn is_connections(job: Job) -> bool {
    matches!(job, Job::Connections(_))
}
