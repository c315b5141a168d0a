//! The operations, by group.

mod descriptors;
mod events;
mod paths;
mod primitives;
mod slab;

use crate::Operation;

/// Returns all operations, in the order of the sheet. The names are unique.
pub fn operations() -> Vec<Operation> {
    [
        slab::operations(),
        primitives::operations(),
        descriptors::operations(),
        events::operations(),
        paths::operations(),
    ]
    .concat()
}

/// Returns an operation of a group.
const fn row(
    group: &'static str,
    name: &'static str,
    about: &'static str,
    scene: fn(crate::Sharing) -> crate::Scene,
) -> Operation {
    Operation { name, group, about, scene }
}
