//! Random operations on quietline, held against models that are too simple to be wrong.
//!
//! ```text
//!   fuzz_targets/*.rs              libFuzzer chooses the bytes          cargo +nightly fuzz run slab
//!   src/bin/storm.rs               a seed chooses them, by the billion  storm --operations 1000000000 --seed 1
//!   crates/slab/tests/             a second of the same                 cargo test -p quietline-slab --test all model
//!            \                      |
//!             {slab,paths,routes,forward,device,packets,arguments}::run(bytes): interpreters; each byte is a decision
//! ```

pub mod arguments;
pub mod device;
pub mod forward;
mod input;
pub mod packets;
pub mod paths;
pub mod routes;
pub mod slab;
