//! Tests of the crate in one program, a module for each concept.

mod count;
mod walk;
