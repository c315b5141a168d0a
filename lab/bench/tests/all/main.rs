//! Tests of the crate in one program, a module for each concept.

mod checks;
mod columns;
mod json;
mod maths;
mod paths;
mod paths_stray;
mod primitives;
mod rounds;
mod selection;
mod slab;
mod smoke;
