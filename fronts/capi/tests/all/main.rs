//! Tests of the C library in one program, a module for each concept.

#[cfg(feature = "header")]
mod header;
mod probes;
