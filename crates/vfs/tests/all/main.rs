//! The tests of this crate, in one program. The models for loom are programs of their own, because
//! each stands for another part of the crate under the crate's own paths: see `Cargo.toml`.
#![cfg(not(loom))]

mod dcache {
    mod entries;
    mod inode;
    #[cfg(target_arch = "x86_64")]
    mod instructions;
    mod review;
    mod short_of_memory;
    mod stress;
    pub(crate) mod support;
}
mod dirlog;
mod few;
mod fdtable {
    mod model;
    pub(crate) mod support;
    mod threads;
}
mod inotify {
    #[cfg(target_os = "linux")]
    mod differential;
    mod watches;
}
mod locks {
    #[cfg(target_os = "linux")]
    mod differential;
    mod records;
}
mod mounts {
    mod namespace;
    mod references;
    mod review;
}
mod pages {
    mod content;
    #[cfg(target_arch = "x86_64")]
    mod instructions;
    mod threads;
}
mod pipe;
mod pseudo;
mod signals;
mod walk {
    mod cost;
    mod paths;
    mod review;
    pub(crate) mod support;
    mod threads;
}
mod xattr;
