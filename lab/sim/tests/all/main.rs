//! Tests of the crate in one program, a module for each concept.

mod directory;
mod footprint;
mod report;
mod simulation;
mod topology;
