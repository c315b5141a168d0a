//! Tests of the crate in one program, a module for each concept.

mod cpu;
mod fault;
mod fork;
mod futex;
mod instructions;
mod own_rseq;
mod pages;
mod percpu_memory;
#[cfg(not(loom))]
mod support;
