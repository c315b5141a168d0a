//! The objects of a scene: one set for all CPUs, or one for each.

use crate::{Scene, Sharing, Worker};
use quietline::{Config, Kernel, Process};
use std::sync::Arc;

/// Scene whose workers make system calls.
pub(crate) fn in_process(
    sharing: Sharing,
    make: impl Fn(Arc<Process>, usize) -> Worker + Sync + 'static,
) -> Scene {
    let kernel = Kernel::boot(Config::default().privileged(true)).expect("memory for a kernel");
    of_objects(sharing, move || kernel.process().expect("memory for a process"), make)
}

/// Scene whose workers use an object that `create` makes.
pub(crate) fn of_objects<T: Send + Sync + 'static>(
    sharing: Sharing,
    create: impl Fn() -> T + Sync + 'static,
    make: impl Fn(Arc<T>, usize) -> Worker + Sync + 'static,
) -> Scene {
    match sharing {
        Sharing::OneProcess => {
            let object = Arc::new(create());
            Box::new(move |cpu| make(Arc::clone(&object), cpu))
        }
        Sharing::OwnProcesses => Box::new(move |cpu| make(Arc::new(create()), cpu)),
    }
}

/// Value that lives as long as the program: packets and places borrow it.
pub(crate) fn leak<T>(value: T) -> &'static T {
    Box::leak(Box::new(value))
}
