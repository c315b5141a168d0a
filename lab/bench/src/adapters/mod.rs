//! Who does the jobs: one file per implementation, in the order of the columns.

mod census;
pub mod connections;
mod descriptors;
pub mod events;
pub mod forward;
pub mod history;
pub mod host;
mod implementation;
mod loopback;
mod owned;
pub mod paths;
pub mod ping_pong;
pub mod primitives;
mod probe;
pub mod quietline;
pub mod slab;
mod table;

use std::sync::Arc;

use crate::harness::Column;

/// Every column there is, in the order in which a report shows them: the host kernel, the ladder of old kernels, the peers of
/// the primitives, quietline; those of objects without descriptors; those of paths; those of packets; those of events; those of
/// connections; those of threads that wake each other. A name may stand for two, of which a case has one.
pub fn all() -> Vec<Arc<dyn Column>> {
    [
        host::columns(),
        history::columns(),
        primitives::columns(),
        quietline::columns(),
        slab::columns(),
        paths::columns(),
        forward::columns(),
        events::columns(),
        connections::columns(),
        ping_pong::columns(),
    ]
    .concat()
}

/// The names of the columns that a ladder shows: what is compared by default, without the variants that exist
/// to answer one question each.
pub fn in_ladder(name: &str) -> bool {
    let patch = name.strip_prefix("history-").is_some_and(|rung| {
        let others = ["alf", "2.6.37", "3.10", "4.2", "cmpxchg", "detached", "inode", "nested"];
        !others.iter().any(|other| rung.starts_with(other))
    });
    name == "host" || patch || is_main_quietline(name)
}

/// The names of the columns shown for a workload without a ladder.
pub fn in_summary(name: &str) -> bool {
    name == "host" || is_main_quietline(name)
}

fn is_main_quietline(name: &str) -> bool {
    matches!(name, "quietline-lowestfd" | "quietline-anyfd" | "quietline-handle")
}
