//! Packets in every interleaving: what is shared is not written, what has ended is not read, each head and each data is given back once,
//! and a packet that is sent home ends there once.
//!
//! What is modelled is the library's own source, all of `packet`, on caches of which the model knows every object: each has a cell, which
//! whoever reads the object reads, and whoever writes it or gives it back writes. So a count that is looked at without
//! seeing what others did before is found, and so is what is given back twice, or not at all.
#![cfg(loom)]
// As in the crate's `raw`; and what no model uses.
#![allow(unsafe_code, dead_code, unused_imports, unreachable_pub, missing_docs)]

// To packets, this is the crate that caches come from.
extern crate self as quietline_slab;

mod caches;
mod counts;
mod deferred;
mod put_off;
mod world;

#[path = "../../src"]
mod sources {
    pub mod packet;
}

pub use caches::{CacheError, Entry, Options, RawCache, Stats};
pub use sources::packet;
