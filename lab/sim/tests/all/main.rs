//! Tests of the crate in one program, a module for each concept.

mod directory;
mod report;
mod simulation;
mod topology;
