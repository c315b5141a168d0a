//! The tests of this crate, in one program. The models for loom are programs of their own, because
//! each stands for another part of the crate under the crate's own paths: see `Cargo.toml`.
#![cfg(not(loom))]

mod device {
    mod host;
    mod memory;
    mod software;
}
mod forward {
    mod advertisements;
    mod ends;
    mod errors;
    mod floods;
    mod forwarded;
    pub(crate) mod frames;
    mod limits;
    mod neighbours;
    mod routes;
}
mod packet {
    mod buffers;
    mod debug;
    mod no_bulk;
    mod probes;
}
