//! Random operations on quietline, held against models that are too simple to be wrong.
//!
//! ```text
//!   fuzz/fuzz_targets/*.rs     libFuzzer chooses the bytes          cargo +nightly fuzz run slab
//!   src/main.rs                a seed chooses them, by the billion  storm --operations 1000000000
//!   crates/slab/tests/         a second of the same                 cargo test -p quietline-slab
//!            \                  |
//!             {slab,paths,routes,forward,device,packets,arguments}::run(bytes)
//! ```
//!
//! Each module has a model and an interpreter: each byte is a decision.

pub mod arguments;
pub mod device;
pub mod forward;
mod input;
pub mod packets;
pub mod paths;
pub mod routes;
pub mod slab;
