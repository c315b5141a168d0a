//! Tests of the C library in one program, a module for each concept.

mod header;
mod probes;
