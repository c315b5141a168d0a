//! Tests of the crate in one program, a module for each concept.

mod costs;
mod determinism;
mod forecast;
mod gate;
mod ladder;
mod seeds;
mod validation;
