//! The tests of this crate, in one program.
#![cfg(not(loom))]

mod accept;
mod bytes;
#[cfg(target_os = "linux")]
mod concurrent;
mod descriptors;
mod differential;
mod events;
mod faults {
    mod calls;
    mod descriptors;
}
mod files {
    mod calls;
    mod gifts;
    #[cfg(target_arch = "x86_64")]
    mod instructions;
    mod locks;
}
mod inet;
mod kernels {
    mod bounds;
    mod capabilities;
    mod first_use;
    mod freeing;
    mod lifecycle;
    mod light;
    mod limits;
    mod memory;
    #[cfg(feature = "observe")]
    mod observe;
    mod proc;
    mod proc_access;
    mod proc_watching;
    mod pseudo_inodes;
    mod refused_fences;
    mod returned;
    mod scale;
    mod sleeping_readers;
    mod threads;
}
#[cfg(target_os = "linux")]
mod posix;
#[cfg(target_os = "linux")]
mod processes;
#[cfg(target_os = "linux")]
mod sleepers;
mod sockets;
mod support;
mod timers;
mod tree {
    mod capability;
    mod custom;
    mod custom_files;
    mod custom_names;
    mod edges;
    mod faults;
    mod fifos;
    mod memfd;
    mod memory;
    mod memory_fs;
    mod mount_options;
    mod mounts;
    mod paths;
    mod races;
    mod reserve;
    mod statfs;
}

#[global_allocator]
static HEAP: quietline_testing::heap::Counting = quietline_testing::heap::Counting;
