//! The slab caches, RCU and packets of quietline for C and C++.
//!
//! No logic of its own: each function checks what C can get wrong (null pointers, sizes of structures, names), calls the Rust
//! function of the same name, and turns the result into a status. `include/quietline.h` is generated from this crate, with
//! these comments; `include/quietline_inline.h` has the two hit paths for inlining, and `docs/c-api.md` says how to use it all.
//!
//! # Guarantees
//!
//! * Nothing unwinds into C: a panic (a broken invariant) ends the process with its message, as every `extern "C"` function
//!   does.
//! * Null arguments do nothing or are refused, as each function says.
//! * Structures that may grow carry their size, so that programs and libraries of different age understand each other.
//!
//! # Limits
//!
//! The names of types and functions are C's.

#![allow(non_camel_case_types)]

mod batch;
mod bulk;
mod cache;
mod callback;
mod debug;
mod forwarder;
mod free_rcu;
mod hooks;
pub mod inline;
mod names;
mod options;
mod packets;
mod rcu;
mod reason;
mod reclaim;
mod registry;
mod route;
mod skb;
mod stats;
mod status;
mod text;
mod tunables;
mod version;
mod versioned;
mod waitlist;

#[cfg(test)]
mod tests;
