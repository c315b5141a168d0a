//! The operations, by group.

mod bytes;
mod connections;
mod descriptors;
mod directories;
mod events;
mod forward;
mod messages;
mod packets;
mod paths;
mod primitives;
mod slab;
mod slab_rcu;

use crate::Operation;

/// Returns all operations, in the order of the sheet. The names are unique.
pub fn operations() -> Vec<Operation> {
    [
        slab::operations(),
        slab_rcu::operations(),
        primitives::operations(),
        descriptors::operations(),
        bytes::operations(),
        messages::operations(),
        connections::operations(),
        events::operations(),
        paths::operations(),
        directories::operations(),
        packets::operations(),
        forward::operations(),
    ]
    .concat()
}
